/* graph.h - a recorded program as a list of lines.
 *
 * A line is an input, a number, a captured tensor or a call; it refers to
 * earlier lines only.  Aliases are dropped and lanes numbered by first use, so
 * equal programs have equal lines. */
#ifndef NB_CORE_GRAPH_H
#define NB_CORE_GRAPH_H

#include "core/apply.h"
#include "nabla/graph.h"

typedef enum nb_line_kind {
    NB_LINE_INPUT,
    NB_LINE_NUMBER,
    NB_LINE_CAPTURED,
    NB_LINE_CALL
} nb_line_kind;

typedef struct nb_line {
    nb_line_kind kind;
    nb_dtype dtype;
    nb_shape shape;
    bool multi;          /* a call with several results */
    int64_t number;      /* bits, in dtype */
    nb_tensor *captured; /* kept */
    nb_op *op;
    int nin, nattr;
    int *in;
    int64_t *attr;
} nb_line;

enum { NB_MAX_GRAPH_LANES = NB_MAX_LANES * 8 };

struct nb_graph {
    nb_line *line; /* inputs first */
    int n, room, nx;
    int *result;
    int ny;
    int nlanes;   /* numbered 1 .. nlanes */
    int *lane_id; /* what they were when recorded; not part of the graph */
};

/* What the graph's lanes are when it is run on x: the lanes they were recorded
 * with where x has them, else x's own in order; those of no input as they were
 * recorded, or fresh if the graph was read from a text. */
void nb_graph_match(const nb_graph *g, nb_tensor *const *x, int *id);

nb_line *nb_graph_add(nb_graph *g, nb_line line);

/* Arithmetic operations of the call that makes y; 0 for views and regions. */
double nb_call_flops(nb_tensor *y);

/* Attributes that hold the id of a lane. */
bool nb_op_moves_lanes(const nb_op *op);

#endif
