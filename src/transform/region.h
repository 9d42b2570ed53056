/* region.h - a function recorded once, as a program inside an op.
 *
 * Its inputs are the stand-ins, then whatever the function closes over.  Lanes
 * of closed-over values are inputs' lanes like any other. */
#ifndef NB_TRANSFORM_REGION_H
#define NB_TRANSFORM_REGION_H

#include "core/graph.h"
#include "transform/func.h"

typedef struct nb_region {
    nb_graph *graph;
    int nx, ny, ncaptured;
    nb_tensor **captured; /* kept */
} nb_region;

/* Readies an op that is made at a call: no parameters, one use, the caller's. */
void nb_op_without_params(nb_op *op);

/* A stand-in: a node of that type without a value. */
nb_tensor *nb_stand_in(nb_dtype dtype, const nb_shape *shape);

/* Records f on the nx stand-ins.  Everything older than them is captured. */
bool nb_region_record(nb_region *r, nb_func *f, int nx, nb_tensor *const *x);
void nb_region_free(nb_region *r);

/* Line of result k: its type. */
const nb_line *nb_region_result(const nb_graph *g, int k);

/* Runs a graph on realised inputs, results realised and lent. */
bool nb_region_run(const nb_graph *g, int nx, nb_tensor *const *x,
                   nb_tensor **y);

/* Copies x, realised, to packed data of the given shape; lanes that x lacks or
 * has thin are repeated. */
bool nb_copy_into(char *to, const nb_shape *shape, nb_tensor *x);

/* The lanes of b added to a, full where b's are; true if a changed. */
bool nb_lanes_widen(nb_shape *a, const nb_shape *b);

#endif
