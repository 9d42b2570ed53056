/* nabla/graph.h - recorded programs: as a listing, read back, checked, run.
 *
 * A graph is what was recorded between some inputs and some results.  Its text
 * is for people and for tests:
 *
 *     fn(
 *       %a1: f32[8,4],
 *     ) {
 *       %v1: f32[8,4] = sin(%a1)
 *       %v2: f32[8,1] = reduce_sum(%v1, axis=1, keepdims=True)
 *       return (%v1, %v2)
 *     }
 *
 * Numbers stand in it as 2.0:f32; tensors that are neither inputs nor computed
 * from them print as ?, and a text with one cannot be read back. */
#ifndef NABLA_GRAPH_H
#define NABLA_GRAPH_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_graph nb_graph;

/* The graph from x to y; yours, nb_graph_free. */
NB_API nb_status nb_graph_of(int nx, nb_tensor *const *x, int ny,
                             nb_tensor *const *y, nb_graph **out);

/* Reads a text; NB_EVALUE with the line that is wrong. */
NB_API nb_status nb_graph_parse(const char *text, nb_graph **out);

NB_API void nb_graph_free(nb_graph *g);

/* Its text; yours, nb_text_release. */
NB_API char *nb_graph_text(const nb_graph *g);

/* Whether every line has the type that its op gives it. */
NB_API nb_status nb_graph_check(const nb_graph *g);

/* Equal for graphs that do the same to inputs of the same types, whatever
 * tensors they were recorded from. */
NB_API uint64_t nb_graph_hash(const nb_graph *g);

/* How many calls, inputs and results it has. */
NB_API int nb_graph_calls(const nb_graph *g);
NB_API int nb_graph_inputs(const nb_graph *g);
NB_API int nb_graph_results(const nb_graph *g);

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
