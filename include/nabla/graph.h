/* nabla/graph.h - recorded programs: as a listing, read back, looked into,
 * checked, run.
 *
 * A graph is what was recorded between some inputs and some results.  Its text
 * is for people and for tests:
 *
 *     fn(
 *       %a1: f32[],
 *       %a2: f32[5],
 *     ) {
 *       %v1: f32[5] = sin(%a2)
 *       %v2: f32[], _ = scan(%a1, %v1, carries=1, length=5, reverse=False,
 *                            xs=1) {
 *         body(%a3: f32[], %a4: f32[]) {
 *           %v3: f32[] = mul(%a3, %a4)
 *           return (%v3, %v3)
 *         }
 *       }
 *       %v4: f32[] = add(%v2, 2.0:f32)
 *       return %v4
 *     }
 *
 * A line names its results, _ for one that nobody needs.  Static arguments
 * follow the operands, sorted by name, without those that are None because
 * nobody gave them.  Programs inside an op stand in braces after it; a name is
 * given once in a listing, and a program uses its own alone.  Hidden axes stand
 * left of |, the innermost vmap's first; ~ marks one along which nothing
 * varies, and '2 says, where the place alone does not, that an input's axis is
 * number two of the program's, counted from the outermost.  Numbers stand as 2.0:f32; tensors that are
 * neither inputs nor computed from them print as ?, and a text with one cannot
 * be read back.  # begins a remark, to the end of the line. */
#ifndef NABLA_GRAPH_H
#define NABLA_GRAPH_H

#include "nabla/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_graph nb_graph;

/* The graph from x to y; yours, nb_graph_free. */
NB_API nb_status nb_graph_of(int nx, nb_tensor *const *x, int ny,
                             nb_tensor *const *y, nb_graph **out);

/* Reads a text, which does not say where: what is read is of the default
 * device.  NB_EVALUE with the line that is wrong.  Ops that hold functions rather
 * than programs (custom_vjp, custom_jvp) cannot be read. */
NB_API nb_status nb_graph_parse(const char *text, nb_graph **out);

NB_API void nb_graph_free(nb_graph *g);

/* Its text; yours, nb_text_release.  Calls that lie on a mesh stand in blocks,
 * spmd @pod(%a1) { ... }, which name what they take; a reshard stands between
 * them.  Such a text is to be looked at, not read back.  More may be asked for: remarks that tell
 * where each line was recorded, and the colours of a terminal (keywords bold,
 * names cyan, hidden axes grey). */
enum { NB_TEXT_PLAIN = 0, NB_TEXT_SOURCES = 1, NB_TEXT_COLOURS = 2 };
NB_API char *nb_graph_text(const nb_graph *g);
NB_API char *nb_graph_text_with(const nb_graph *g, int what);

/* Whether every line has the type that its op gives it. */
NB_API nb_status nb_graph_check(const nb_graph *g);

/* Equal for graphs that do the same to inputs of the same types, whatever
 * tensors they were recorded from. */
NB_API uint64_t nb_graph_hash(const nb_graph *g);

/* How many calls, inputs and results it has. */
NB_API int nb_graph_calls(const nb_graph *g);
NB_API int nb_graph_inputs(const nb_graph *g);
NB_API int nb_graph_results(const nb_graph *g);

/* Looking into it.  Its lines are numbered from 0: the inputs first, then all
 * else, each after what it needs. */
typedef enum nb_line_kind {
    NB_LINE_INPUT,
    NB_LINE_NUMBER,
    NB_LINE_CAPTURED, /* a tensor from outside */
    NB_LINE_CALL,
    NB_LINE_PART /* one result of the call before, which has several */
} nb_line_kind;

enum { NB_LINE_AXES = 16 };

typedef struct nb_line_info {
    nb_line_kind kind;
    const char *op; /* of a call; else "" */
    int nin;        /* lines that go into it */
    const int *in;
    int nout;    /* of a call: its results; if `parts`, they are lines */
    bool parts;  /* of their own, and this one has no type */
    int part;    /* which result a part is */
    int regions; /* programs inside the op */
    nb_dtype dtype;
    int hidden, rank; /* hidden axes: the innermost vmap's first */
    int64_t hidden_size[NB_LINE_AXES], size[NB_LINE_AXES];
} nb_line_info;

/* How many lines there are; what line k is, false past the last; which line
 * result i is. */
NB_API int nb_graph_lines(const nb_graph *g);
NB_API bool nb_graph_line(const nb_graph *g, int k, nb_line_info *info);
NB_API int nb_graph_result(const nb_graph *g, int i);

/* Static argument i of line k: what it is called and its value, lists lent by
 * the graph.  False past the last. */
NB_API bool nb_graph_attr(const nb_graph *g, int k, int i, nb_arg *arg,
                          nb_value *value);

/* Program i inside line k and what it is to the op ("body"), lent by the graph;
 * NULL past the last. */
NB_API const nb_graph *nb_graph_region(const nb_graph *g, int k, int i);
NB_API const char *nb_graph_region_name(const nb_graph *g, int k, int i);

/* Where line k was recorded, as nb_source_of; valid until the next question. */
NB_API const char *nb_graph_source(const nb_graph *g, int k);

/* The value of a number or of what was captured, lent; NULL for other lines. */
NB_API nb_tensor *nb_graph_value(const nb_graph *g, int k);

/* The type of line k as listings write it, "f32[5 | 2,3]", and a number as they
 * write it, "2.0:f32"; yours, nb_text_release. */
NB_API char *nb_graph_type_text(const nb_graph *g, int k);
NB_API char *nb_graph_number_text(const nb_graph *g, int k);

/* Arithmetic operations of one run: multiplications, additions, functions of one
 * number, counted from the signatures; NaN with an error set on failure. */
NB_API double nb_graph_flops(const nb_graph *g);

/* Records it again on other inputs; the results, lent, go to y. */
NB_API nb_status nb_graph_run(const nb_graph *g, int nx, nb_tensor *const *x,
                              nb_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
