/* region.h - a function recorded once, as a program inside an op.
 *
 * The inputs of the program are the stand-ins on which the function was called,
 * then whatever it closes over.  A loop's program has carries: its first inputs
 * and its first results, of the same types.
 *
 * Everything that loops and branches have in common is here: recording, shapes
 * of results, derivatives of one turn, running. */
#ifndef NB_TRANSFORM_REGION_H
#define NB_TRANSFORM_REGION_H

#include "core/graph.h"
#include "transform/func.h"

typedef struct nb_list {
    nb_tensor **at; /* not kept */
    int n, room;
} nb_list;
bool nb_list_add(nb_list *l, nb_tensor *x); /* false if x is NULL */
void nb_list_free(nb_list *l);

/* Recording */

typedef struct nb_region {
    nb_graph *graph;
    int ncaptured;
    nb_tensor **captured; /* kept */
    bool once; /* before it is recorded: its derivatives are not asked for */
} nb_region;
void nb_region_free(nb_region *r);

/* A node of that type without a value. */
nb_tensor *nb_stand_in(nb_dtype dtype, const nb_shape *shape);
nb_tensor *nb_stand_in_on(int device, nb_dtype dtype, const nb_shape *shape);

/* Records f on stand-ins, or on aliases where it may ask for values; everything
 * older than the call is captured.  The inputs are x as f leaves it: f may add
 * nodes if it knows the list, and what leads to them is left out. */
bool nb_region_record(nb_region *r, nb_func *f, nb_list *x);

/* The same, with values inside as further results: those of which `asked` says
 * so.  *ny is how many f has itself. */
typedef struct nb_saving {
    bool (*asked)(void *ctx, nb_tensor *node);
    void *ctx;
} nb_saving;
bool nb_region_record_saving(nb_region *r, nb_func *f, nb_list *x,
                             const nb_saving *saving, int *ny);

/* The same for the body of a loop: nc carries stand before those that x has, in
 * as many lanes as they end up with.  who begins messages: "scan: carry". */
bool nb_region_loop(nb_region *r, const char *who, nb_func *f, int nc,
                    nb_tensor *const *init, nb_list *x);

/* Records an op made for this call: a copy of form that holds one graph or two,
 * which become its own.  Its inputs are what the regions capture after in, to
 * which they are added. */
bool nb_region_apply(nb_op *form, nb_region *r, nb_region *other, nb_list *in,
                     int nattr, const int64_t *attr, nb_results *results);

/* Readies an op that is made at a call: no parameters, one use, the caller's.
 */
void nb_op_without_params(nb_op *op);

/* x, or if it is a number of no dtype yet the number in the dtype that it has
 * beside `like`, or alone if that is NULL. */
nb_tensor *nb_strong(nb_tensor *x, nb_tensor *like);

/* Whether what was comes back as what it was. */
bool nb_carry_check(const char *who, int k, const nb_tensor *was,
                    const nb_tensor *is);

/* Shapes */

/* The line of result k: its type. */
const nb_line *nb_region_result(const nb_graph *g, int k);

/* The shape of a line when the graph runs on x.  Lanes that inputs have beyond
 * those they were recorded with reach every line.  An input that the op does
 * not have, because it arises within, is nb_absent. */
nb_shape nb_region_shape(const nb_graph *g, nb_tensor *const *x,
                         const nb_line *line);
extern nb_tensor *const nb_absent;

/* The shapes of all results of a call; allocated. */
nb_shape *nb_call_shapes(const nb_call *c);

/* The shapes of a program's inputs that change from turn to turn, for its
 * joints. */
bool nb_region_join(const nb_graph *g, const nb_call *c, struct nb_joints *j);

/* The lanes of b added to a, full where b's are; true if a changed. */
bool nb_lanes_widen(nb_shape *a, const nb_shape *b);

/* x spread over the lanes of s, and the transpose: a cotangent of that, summed
 * over those that x lacks (NULL: none). */
nb_tensor *nb_spread_over(nb_tensor *x, const nb_shape *s);
bool nb_spread_back(const nb_tensor *x, const nb_shape *s, nb_tensor **ct);

/* Whether a lane of x is full. */
bool nb_differs(const nb_tensor *x);

/* Derivatives of one turn */

/* Which lines move when the inputs that are on do: allocated.  Results move the
 * inputs that they become on the next turn: feeds[k], -1 for none. */
bool *nb_region_moves(const nb_graph *g, const bool *on, const int *feeds);

/* Which inputs of a call have a tangent, or could be of use with a cotangent:
 * allocated.  *any if one has or could. */
bool *nb_call_moved(const nb_call *c, nb_tensor *const *u, bool *any);
bool *nb_call_wanted(const nb_call *c, bool *any);

/* Results of a graph, n of them: those numbered, or the first if which is
 * NULL; and how they move when inputs move by u (NULL: not at all). */
bool nb_region_push(const nb_graph *g, nb_tensor *const *in,
                    nb_tensor *const *u, int n, const int *which, nb_tensor **y,
                    nb_tensor **uy);

/* What flows back to the inputs that are on, from cotangents of n results that
 * have the lanes given. */
bool nb_region_pull(const nb_graph *g, nb_tensor *const *in, const bool *on,
                    int n, const int *which, const nb_shape *lanes,
                    nb_tensor *const *ct, nb_tensor **cx);

/* The same from all results, which come out too: the nodes of this run. */
bool nb_region_pull_all(const nb_graph *g, nb_tensor *const *in, const bool *on,
                        const nb_shape *lanes, nb_tensor *const *ct,
                        nb_tensor **y, nb_tensor **cx);

/* Running */

/* Runs a graph on realised inputs, results realised and lent. */
bool nb_region_run(const nb_graph *g, int nx, nb_tensor *const *x,
                   nb_tensor **y);

/* What was recorded from stand-ins x to y, to be run many times on values of
 * exactly those types: shapes are inferred once, and what does not depend on x
 * is computed once.  Inputs that no result needs may be NULL. */
typedef struct nb_replay nb_replay;
nb_replay *nb_replay_new(int nx, nb_tensor *const *x, int ny,
                         nb_tensor *const *y);
bool nb_replay_run(nb_replay *p, nb_tensor *const *x, nb_tensor **y);
void nb_replay_free(nb_replay *p);

/* A leaf with the value of x, realised, in the lanes of s: x's own data if it
 * has just those. */
nb_tensor *nb_leaf_of(nb_tensor *x, const nb_shape *s);

/* x itself if it has the lanes of s, else such a leaf. */
nb_tensor *nb_settled(nb_tensor *x, const nb_shape *s);

/* Copies x, realised, to packed data of the given shape; lanes that x lacks or
 * has thin are repeated.  Or to step t of data of that shape: visible axis 0 is
 * where x goes. */
bool nb_copy_into(char *to, const nb_shape *shape, nb_tensor *x);
bool nb_copy_step(char *to, const nb_shape *shape, nb_tensor *x, int64_t t);

/* The same with steps, in elements, for each lane and visible axis. */
bool nb_copy_steps(char *to, const int64_t *step, const nb_shape *shape,
                   nb_tensor *x);

#endif
