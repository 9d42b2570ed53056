/* fuse.h - the state of fusion, which steps are then made of. */
#ifndef NB_LOWER_FUSE_H
#define NB_LOWER_FUSE_H

#include "core/axes.h"
#include "core/point.h"
#include "lower/plan.h"

enum { NB_MAX_NEST_LINES = 64 };
enum { NB_FEW_OF = 64 }; /* times as many are many */

typedef struct nb_use {
    int line, operand;
} nb_use;

/* A nest in the making.  Its lines are linked from the first on. */
typedef struct nb_fused {
    int naxes, head, lines;
    int top, seen;         /* its last line; when a search came by */
    unsigned outer, inner; /* bit a */
    bool scans, back;      /* totals run along the inner axis; from its end */
    int64_t size[NB_MAX_NEST_AXES];
} nb_fused;

typedef struct nb_fusion {
    nb_plan *plan;
    nb_axes **axes;   /* of lines that loop */
    nb_point **point; /* of those whose op says what a point is, or NULL */
    int8_t **to;      /* the nest's axis of each of these, -1: none */
    int *next;        /* line of the same nest */
    int n, room;
    nb_fused *nest;
    bool *seen_through; /* lines that are others with their dims moved */
    bool *handed_out;   /* lines that results are, perhaps by way of these */
    bool *number;       /* lines of one element, made of such */
    int *first;         /* uses of line k: from first[k] to first[k + 1] */
    nb_use *use;
    int *visited, *stack, stamp;
    bool alone; /* nothing fuses */
} nb_fusion;

bool nb_fusion_init(nb_fusion *f, nb_plan *p);
bool nb_fusion_run(nb_fusion *f);
void nb_fusion_free(nb_fusion *f);

/* Who uses what, looks that only move dims left out. */
bool nb_uses_of(nb_fusion *f);

/* The nest's axis of each dim of operand i of line c (i = nin: the result), -1
 * where it has one element. */
void nb_operand_axes(const nb_fusion *f, int c, int i, int *axis);

/* Whether line k is running totals that a nest can have, along which dim. */
bool nb_line_totals(const nb_plan *p, int k, int *dim);

/* Whether line k is its input copied in row-major order, to be looked at in
 * another shape, rows as rows: its points are those of the input. */
bool nb_line_flattens(const nb_plan *p, int k);
/* The node that has the points of line k: its own, or the input's. */
const nb_tensor *nb_points_of(const nb_plan *p, int k);

/* Whether a call sums, or the like, over more than one element. */
bool nb_axes_reduce(const nb_axes *a);

/* Whether line k, which loops, is needed outside the nest that computes it. */
bool nb_line_is_stored(const nb_fusion *f, int k);

/* An order in which nests and calls can run: a line of each. */
bool nb_plan_schedule(nb_fusion *f, int *order, int *n);

/* The steps of the plan, in that order. */
bool nb_plan_steps(nb_fusion *f);

#endif
