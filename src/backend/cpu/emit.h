/* emit.h - a nest as a function in LLVM IR.
 *
 *     void name(void **buffers, char *scratch, int64_t from, int64_t to)
 *
 * runs the units from..to.  A unit is one point of the outer axes, or a block
 * of the last of them where that is what vectors run along.  The parameters of
 * a nest for any sizes, and what nb_emitted_measure says of scratch, lie in an
 * array of int64_t that stands after the buffers. */
#ifndef NB_CPU_EMIT_H
#define NB_CPU_EMIT_H

#include "backend/cpu/ir.h"
#include "lower/nest.h"

typedef void nb_cpu_kernel(void **buffers, char *scratch, int64_t from,
                           int64_t to);

typedef struct nb_emitted {
    int64_t units;
    int64_t scratch; /* bytes that a thread needs */
    double cycles;   /* of one unit, roughly */
    /* How it is walked, whatever its sizes. */
    int vector, tile;    /* axes, or -1 */
    int64_t block;       /* of the vector axis in a unit, 0: all of it */
    int kept, kept_size; /* values kept in scratch; bytes of one, for a point */
    double point_cycles;
} nb_emitted;

/* Fills in units, scratch and cycles for the sizes of x. */
void nb_emitted_measure(nb_emitted *e, const nb_nest *x);

bool nb_emit_nest(nb_ir *ir, const nb_nest *x, const char *name,
                  nb_emitted *out);

/* How a nest is walked (form.c). */
enum { NB_MAX_PASSES = 16, NB_MAX_COPIES = 16, NB_TILE = 16 };

typedef enum nb_form {
    NB_FORM_MAP,   /* no inner axes: vectors along the last outer one */
    NB_FORM_ROW,   /* vectors along an inner axis, folded at the end */
    NB_FORM_COLUMN /* vectors along the last outer axis, loops over inner ones */
} nb_form;

typedef struct nb_walk {
    const nb_nest *nest;
    nb_form form;
    int vector;                 /* axis, -1: no axes */
    int lanes, copies;          /* of vectors; vectors at a time */
    int64_t block;              /* of the vector axis in a unit */
    int tile;                   /* an outer axis walked in tiles, or -1 */
    int nloops;                 /* within a unit, */
    int loop[NB_MAX_NEST_AXES]; /* these axes, the vector axis last */
    int npasses;
    int *ready;           /* by value: the pass that has it */
    int *level;           /* loops that it stands in, */
    bool *inside;         /* and whether in any */
    int *kept;            /* the pass that keeps it in scratch, or -1 */
    int *at;              /* where, among those kept */
    int nkept, kept_size; /* how many, and bytes of the largest at a point */
    bool *needed[NB_MAX_PASSES]; /* by value: in the loops of that pass */
    bool masks;
    bool *past; /* by value: stores that go past the caches */
} nb_walk;

bool nb_walk_plan(nb_walk *w, const nb_nest *x);
void nb_walk_free(nb_walk *w);

static inline bool nb_walk_is_vector(const nb_walk *w, int k)
{
    return w->vector >= 0 && w->nest->value[k].axes >> w->vector & 1;
}

#endif
