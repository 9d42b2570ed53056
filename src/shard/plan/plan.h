/* plan.h - how a tensor gets from one layout to another.
 *
 * A plan is a list of steps, each from one spec to the next.  What is priced is
 * what runs: the same object is asked for bytes, explained and executed. */
#ifndef NB_SHARD_PLAN_H
#define NB_SHARD_PLAN_H

#include "shard/layout/spec.h"

typedef enum nb_hop_kind {
    NB_HOP_SLICE,           /* a whole dim is split: no communication */
    NB_HOP_ALL_GATHER,      /* the minor axes of a dim are dropped */
    NB_HOP_ALL_TO_ALL,      /* ... and appended to another dim */
    NB_HOP_PERMUTE,         /* blocks change places, counts stay */
    NB_HOP_REDUCE_SCATTER,  /* pending axes are reduced and split a dim */
    NB_HOP_ALL_REDUCE,      /* pending axes are reduced */
    NB_HOP_UNREDUCE,        /* whole becomes pending: kept at coordinate 0; or,
                            * if dim >= 0, what splits it does: each keeps its
                            * block; the rest is what changes no sum */
    NB_HOP_REDUCE_EXCHANGE, /* pending blocks to blocks directly */
    NB_HOP_EXCHANGE         /* blocks to blocks directly */
} nb_hop_kind;

/* A hop that ends in parts of its own rather than blocks: for dims where
 * `range` is not NULL, the part of block i of the dim, by its cut in `into`, is
 * [range[2 i], range[2 i + 1]); what of that is outside the tensor is zero. */
typedef struct nb_reach {
    const int64_t *range[NB_MAX_DIMS];
} nb_reach;

typedef struct nb_hop {
    nb_hop_kind kind;
    int dim, to; /* the dim that changes, and the one it moves to; or -1 */
    nb_cut axes; /* over which devices communicate, major to minor */
    const nb_spec *from, *into;
    int64_t bytes;         /* received, at most by any device */
    int messages;          /* and in how many messages */
    double seconds;        /* by the mesh's costs */
    const nb_reach *reach; /* or NULL */
} nb_hop;

/* Whether devices say anything to each other in it. */
static inline bool nb_hop_talks(const nb_hop *h)
{
    return h->kind != NB_HOP_SLICE && h->kind != NB_HOP_UNREDUCE;
}

/* Whether both arrange the same devices; if not, an error. */
bool nb_mesh_meets(const nb_mesh *a, const nb_mesh *b);

/* What a device has after it. */
void nb_hop_box(const nb_hop *h, const int64_t *size, int position,
                nb_box *box);

/* Of a tensor with these stored sizes and elements of `item` bytes. */
typedef struct nb_reshard_plan {
    const nb_spec *from, *into;
    int item, n;
    const int64_t *size;
    const nb_hop *step;
    int64_t bytes; /* received by a device, all steps */
    int64_t bound; /* no plan over the same axes can do with less */
    int64_t peak;  /* most bytes of input and output of a step, a device */
    double seconds;
} nb_reshard_plan;

/* A plan of one exchange that gives every device the parts it reaches for;
 * `into` says by which cuts ranges are numbered. */
const nb_reshard_plan *nb_reach_find(const nb_spec *from, const nb_spec *into,
                                     const int64_t *size, int item,
                                     const nb_reach *reach);

typedef struct nb_plan_options {
    bool idle_axes;   /* axes of neither spec may help */
    bool wide;        /* all-to-alls may run over several mesh axes */
    bool exchange;    /* blocks to blocks directly even where it saves little */
    bool collectives; /* blocks to blocks directly nowhere */
    int64_t memory;   /* bytes of a step, at most; 0: any */
} nb_plan_options;

/* The plan; remembered, and valid as long as the process.  Only layouts count,
 * of both specs.  NULL with an error if memory runs out or there is none within
 * the memory allowed. */
const nb_reshard_plan *nb_reshard_find(const nb_spec *from, const nb_spec *into,
                                       const int64_t *size, int item,
                                       const nb_plan_options *options);

/* "all_gather", ... */
const char *nb_hop_name(nb_hop_kind kind);

#endif
