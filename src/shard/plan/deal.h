/* deal.h - layouts as the planner sees them.
 *
 * The axes of two specs are cut into atoms, so that lists of both use equal or
 * disjoint pieces.  What both begin a dim with stays there, and what is pending
 * in both stays pending; only the other atoms move. */
#ifndef NB_SHARD_PLAN_DEAL_H
#define NB_SHARD_PLAN_DEAL_H

#include "shard/plan/plan.h"

enum { NB_ATOMS = 16, NB_PLAN_DIMS = 8 };

/* Where each atom is: in the list of a dim, pending, or free. */
typedef struct nb_deal {
    uint8_t n[NB_PLAN_DIMS]; /* atoms of each dim that takes part */
    uint8_t at[NB_ATOMS];    /* those of the first, of the second, ... */
    uint16_t pending;        /* a bit each */
    uint16_t turned;         /* what is pending is so by the target's wish */
} nb_deal;

/* A reshard to be planned.  Dims are numbered among those that take part. */
typedef struct nb_reshard_task {
    const nb_spec *from, *into;
    const int64_t *size;
    int item;
    nb_plan_options options;
    bool fits; /* the rest says how it can be searched */
    int natoms, ndims;
    nb_axis atom[NB_ATOMS];
    int dim[NB_PLAN_DIMS];      /* of the tensor */
    nb_cut fixed[NB_PLAN_DIMS]; /* what the dim begins with anyway */
    nb_cut kept;                /* pending before and after */
    nb_deal start, goal;
    int8_t home[NB_ATOMS]; /* the dim it has at the end, or -1 */
    double op;             /* price of a step besides its bytes */
} nb_reshard_task;

/* Whether it fits: if the specs can be cut into few enough atoms. */
void nb_reshard_open(nb_reshard_task *t);

/* All atoms that may move, for devices that go to all sides at once; false if
 * they are too many. */
bool nb_reshard_all_axes(const nb_reshard_task *t, nb_cut *axes);

/* The spec of a layout, as a draft; false if a list is too long. */
bool nb_deal_spec(const nb_reshard_task *t, const nb_deal *l, nb_spec *draft);

int nb_deal_first(const nb_deal *l, int d); /* of its atoms in `at` */
uint16_t nb_deal_used(const nb_deal *l);    /* in a dim or pending */
/* Takes the last k atoms of dim d away; adds k atoms to its end. */
void nb_deal_cut(nb_deal *l, int d, int k);
void nb_deal_add(nb_deal *l, int d, const uint8_t *atom, int k);

/* Calls visit for all moves, hops without their specs, from a layout but those that would not follow the
 * one that led to it (NULL: none did); `directed`: only those that bring atoms
 * to where they belong.  Stops when visit returns false. */
typedef bool nb_move_visit(void *ctx, const nb_deal *next, const nb_hop *move);
bool nb_deal_moves(const nb_reshard_task *t, const nb_deal *l,
                   const nb_hop *last, bool directed, nb_move_visit *visit,
                   void *ctx);

/* price.c: fills in bytes, messages and seconds; false if memory runs out. */
bool nb_hop_price(nb_hop *s, const int64_t *size, int item);
/* Bytes that some device must receive whatever the plan; below 0 if memory runs
 * out. */
int64_t nb_reshard_bound(const nb_reshard_task *t);
int64_t nb_hop_memory(const nb_hop *s, const int64_t *size, int item);

/* Steps as they are found; their specs are interned. */
typedef struct nb_route {
    nb_hop *step;
    int n, room;
} nb_route;
bool nb_route_add(nb_route *r, const nb_hop *move, const nb_spec *from,
                  const nb_spec *into);
/* route.c: all of them; false with an error. */
bool nb_route_find(const nb_reshard_task *t, nb_route *r);

/* search.c: the cheapest way from start to goal.  CROWDED: there was too much
 * to look at; FAILED: out of memory. */
typedef enum nb_search_end {
    NB_SEARCH_FOUND,
    NB_SEARCH_NONE,
    NB_SEARCH_CROWDED,
    NB_SEARCH_FAILED
} nb_search_end;
nb_search_end nb_reshard_search(const nb_reshard_task *t, bool directed,
                                nb_route *r);

#endif
