/* graph.h - a recorded program as a list of lines.
 *
 * A line is an input, a number, a captured tensor or a call; it refers to
 * earlier lines only.  Equal programs have equal lines: aliases are dropped,
 * lanes are numbered from the outermost, numbers stand before the call that
 * uses them, and the results of a call that has several stand after it, those
 * that somebody needs, in their order. */
#ifndef NB_CORE_GRAPH_H
#define NB_CORE_GRAPH_H

#include "core/apply.h"
#include "nabla/graph.h"

typedef struct nb_line {
    nb_line_kind kind; /* a part is a call of nb_op_part */
    nb_dtype dtype;
    nb_shape shape;
    bool multi;           /* a call with several results */
    int64_t number;       /* bits, in dtype */
    nb_tensor *captured;  /* kept */
    const void *sharding; /* how it lies, of a call as it was recorded; or NULL:
                           * on no mesh, or several results */
    uint8_t device;       /* as in a node */
    bool given; /* an input on a card that runs are given as a number */
    nb_op *op;
    int nin, nattr;
    int *in;
    int64_t *attr;
    const void *source; /* as in a node */
    int32_t source_line;
    uint8_t direction; /* NB_BACKWARD, NB_TANGENT, NB_SILENT, as in a node */
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

/* What the graph's lanes were when it was recorded, or fresh ones if it was read
 * from a text.  On stand-ins they are called so: then programs inside know theirs
 * again, and data in several lanes is stored alike. */
void nb_graph_name_lanes(const nb_graph *g, int *id);

/* What they are when it is run on x: those that x has, else x's own in order;
 * those of no input as they were recorded. */
void nb_graph_match(const nb_graph *g, nb_tensor *const *x, int *id);

/* A node for each line, recorded on stand-ins for the inputs; lent. */
bool nb_graph_nodes(const nb_graph *g, nb_tensor **node);
/* The same on these inputs, in their lanes. */
bool nb_graph_nodes_on(const nb_graph *g, nb_tensor *const *x,
                       nb_tensor **node);

/* Adds a line, whose lists become the graph's, also where it fails. */
nb_line *nb_graph_add(nb_graph *g, nb_line line);

/* Frees what a line holds. */
void nb_line_free(nb_line *l);

/* Lists of its own for a line that has another's; a copy of a graph, which
 * shares its ops. */
bool nb_line_own(nb_line *l);
nb_graph *nb_graph_copy(const nb_graph *g);

/* Records a line whose inputs have values: its node, lent; id is what the lanes
 * of the graph are. */
nb_tensor *nb_line_record(const nb_line *l, nb_tensor **value, const int *id);

/* The value of a line that is a number. */
nb_tensor *nb_line_number(const nb_line *l);

/* Whether x is of the line's type, lanes aside, without its first `skip` axes.
 */
bool nb_line_takes(const nb_line *l, const nb_tensor *x, int skip);

/* Whether two lines are of one type, lanes aside. */
bool nb_line_same(const nb_line *a, const nb_line *b);

/* Numbers the lanes of all lines of a graph that was read, and says where they
 * are: as its inputs have them and its ops give them.  False, with the line, if
 * a type is wrong. */
bool nb_graph_settle(nb_graph *g);

/* Arithmetic operations of the call that makes y; 0 for views and regions. */
double nb_call_flops(nb_tensor *y);

/* Attributes that hold the id of a lane. */
bool nb_op_moves_lanes(const nb_op *op);

/* Whether a call of it has an effect. */
bool nb_graph_has_effect(const nb_graph *g);

/* Ops that hold programs: a copy of form, whose programs are to be put in, with
 * one use, the caller's; and the forms there are, for reading. */
nb_op *nb_op_holding(nb_op *form, int nout);
extern nb_op *const nb_forms[]; /* transform defines it; NULL ends it */

#endif
