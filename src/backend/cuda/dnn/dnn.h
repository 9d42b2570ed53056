/* dnn.h - cuDNN's graphs of operations, on a card.
 *
 * The library (libcudnn.so.9) is opened when first asked for.  NABLA_CUDNN
 * names another file, or "none".
 *
 * A graph is tensors and operations between them; a plan is how the library
 * runs it.  Whoever has something for the library writes
 *
 *     nb_dnn_graph *g = nb_dnn_graph_new(card);
 *     int x = nb_dnn_tensor_add(g, &(nb_dnn_tensor){NB_BF16, 4, {...}, {...}});
 *     int y = ...;
 *     nb_dnn_pointwise_add(g, &(nb_dnn_pointwise){NB_DNN_POINTWISE_EXP, x,
 *                                                 .y = y});
 *     bool ok = nb_dnn_plan_find(g, &(nb_dnn_wish){0}, &plan);
 *     nb_dnn_graph_free(g);
 *
 * and on every run gives the plan one address for each tensor in memory, in the
 * order in which they were added.  Nothing but nb_dnn_plan_find has to be
 * checked: once something went wrong, the rest does nothing.  What the library
 * refuses is no error: there is no plan then, and nb_dnn_graph_trouble says why.
 *
 * Plans are shared: a graph that says the same as one whose plan is in use gets
 * that plan.  They are kept on disk with the kernels, too. */
#ifndef NB_CUDA_DNN_H
#define NB_CUDA_DNN_H

#include "backend/cuda/card.h"
#include "nabla/dtype.h"

/* NB_DNN_... as the library has CUDNN_... */
enum {
#define DNN_NUMBER(name, value) NB_DNN_##name = value,
#include "backend/cuda/dnn/numbers.def"
#undef DNN_NUMBER
    NB_DNN_RANK = 8
};

/* Whether it can be opened; nb_dnn_need fails where not, and says what is
 * missing.  Its version: 91900 for 9.19.0. */
bool nb_dnn_there(void);
bool nb_dnn_need(void);
int nb_dnn_version(void);

/* Graphs */

typedef struct nb_dnn_graph nb_dnn_graph;

/* NULL with an error, if memory ran out or the library cannot start. */
nb_dnn_graph *nb_dnn_graph_new(nb_card *c);
void nb_dnn_graph_free(nb_dnn_graph *g);           /* NULL is fine */
const char *nb_dnn_graph_trouble(nb_dnn_graph *g); /* what was refused, or "" */

/* A tensor with its steps in elements.  One that is only between operations has
 * no memory; others begin at multiples of 16 bytes. */
typedef struct nb_dnn_tensor {
    nb_dtype dtype; /* NB_BOOL, NB_I32 and the floats */
    int rank;
    int64_t size[NB_DNN_RANK], step[NB_DNN_RANK];
    bool between;
} nb_dnn_tensor;

/* Its number in the graph, from 1 on; 0 if something went wrong. */
int nb_dnn_tensor_add(nb_dnn_graph *g, const nb_dnn_tensor *t);

/* The same, of one float32 that is always x, with so many dims of size 1. */
int nb_dnn_number_add(nb_dnn_graph *g, int rank, float x);

/* y = mode(x, b, t): b and t as the mode wants them, 0 for none.  It is
 * computed in float32, unless another dtype is named. */
typedef struct nb_dnn_pointwise {
    int mode; /* NB_DNN_POINTWISE_... */
    int x, b, t, y;
    int64_t axis; /* of GEN_INDEX */
    bool named;
    nb_dtype in;
} nb_dnn_pointwise;
void nb_dnn_pointwise_add(nb_dnn_graph *g, const nb_dnn_pointwise *p);

/* y = a b, of matrices in the last two dims; summed in float32. */
void nb_dnn_matmul_add(nb_dnn_graph *g, int a, int b, int y);

/* y, with size 1 along the dims that are gone; in float32. */
void nb_dnn_reduce_add(nb_dnn_graph *g, int how, int x, int y);
void nb_dnn_reshape_add(nb_dnn_graph *g, int x, int y);

/* Any other operation.  Descriptors are made of attributes and belong to the
 * graph; an attribute of the type BACKEND_DESCRIPTOR is the address of one. */
typedef struct nb_dnn_attribute {
    int name, type; /* NB_DNN_ATTR_..., NB_DNN_TYPE_... */
    int64_t n;
    const void *at;
} nb_dnn_attribute;
void *nb_dnn_describe(nb_dnn_graph *g, int kind, int n,
                      const nb_dnn_attribute *a);
void nb_dnn_operation_add(nb_dnn_graph *g, int kind, int n,
                          const nb_dnn_attribute *a);

/* The descriptor of a tensor, for an attribute. */
void *nb_dnn_tensor_at(nb_dnn_graph *g, int tensor);
int nb_dnn_data_of(nb_dtype d); /* NB_DNN_DATA_... */

/* Plans */

typedef struct nb_dnn_plan nb_dnn_plan;

typedef struct nb_dnn_wish {
    bool any_order;   /* results may differ from run to run */
    bool exact;       /* float32 is multiplied as that, not in fewer bits */
    int skip;         /* so many proposals are passed over */
    int tries;        /* the fastest of so many, on memory of the size, */
    bool same;        /* of those that give what the first gives */
    size_t workspace; /* bytes that it may want at most; 0: as it likes */
} nb_dnn_wish;

/* False with an error if memory ran out or the card is at fault; *plan is NULL
 * without one if the library has none. */
bool nb_dnn_plan_find(nb_dnn_graph *g, const nb_dnn_wish *w,
                      nb_dnn_plan **plan);
size_t nb_dnn_plan_workspace(const nb_dnn_plan *p);

/* Enqueues it on nb_card_stream, and waits for nothing; it may be captured. */
bool nb_dnn_plan_run(nb_dnn_plan *p, void *const *at, char *workspace,
                     const char *what);
void nb_dnn_plan_drop(nb_dnn_plan *p); /* NULL is fine */

/* The same meanwhile, in a thread of its own.  It takes the graph, also where it
 * fails (NULL, memory ran out); searches that say the same are one. */
typedef struct nb_dnn_search nb_dnn_search;
nb_dnn_search *nb_dnn_search_begin(nb_dnn_graph *g, const nb_dnn_wish *w);

/* Waits for it: what it has found, lent, or NULL. */
nb_dnn_plan *nb_dnn_search_plan(nb_dnn_search *s);
void nb_dnn_search_drop(nb_dnn_search *s); /* NULL is fine */

#endif
