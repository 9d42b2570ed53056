/* ops.h - what family files share: forms of descriptors and rules, and short
 * names for what rules often ask.
 *
 * In a rule c is the call: c->in its inputs, c->out the node, `i` the number of
 * the input in question, ct the cotangent of the result, u a tangent. */
#ifndef NB_OPS_OPS_H
#define NB_OPS_OPS_H

#include "core/lanes.h"
#include "nabla/nabla.h"

#define OP(name, form) extern nb_op nb_op_##name;
#include "nabla/ops.def"

/* Rules that are one expression. */
#define PARTIAL(op, expression)                             \
    static nb_tensor *op##_partial(const nb_call *c, int i) \
    {                                                       \
        (void)c, (void)i;                                   \
        return expression;                                  \
    }
#define TRANSPOSE(op, expression)                                            \
    static nb_tensor *op##_transpose(const nb_call *c, int i, nb_tensor *ct) \
    {                                                                        \
        (void)c, (void)i;                                                    \
        return expression;                                                   \
    }
#define JVP(op, expression)                                                  \
    static nb_tensor *op##_jvp(const nb_call *c, int k, int i, nb_tensor *u) \
    {                                                                        \
        (void)c, (void)k, (void)i;                                           \
        return expression;                                                   \
    }
#define BODY(op, expression)                                              \
    static nb_val op##_body(nb_gen *g, const nb_val *x, const nb_call *c) \
    {                                                                     \
        (void)c;                                                          \
        return expression;                                                \
    }
#define COMPOSE(op, expression)                                     \
    static bool op##_compose(const nb_call *c, nb_results *results) \
    {                                                               \
        return nb_results_add(results, expression);                 \
    }

/* Visible sizes and rank of input i. */
#define RANK(i)       (c->in[i]->rank)
#define SIZE(i, axis) nb_size(c->in[i], (int)(axis))

/* Arguments of forms; those of UNARY and BINARY follow from the signature. */
#define P_REDUCE "x, axis:axes=None, keepdims:bool=False"
#define P_ARG    "x, axis:axis?=-1, keepdims:bool=False"
#define P_AXIS   "x, axis:axis=-1"
#define P_SCAN   "x, axis:axis=-1, exclusive:bool=False, reverse:bool=False"
#define P_SORT   "x, axis:axis=-1, descending:bool=False, stable:bool=True"
#define P_DIAG   "x, k:int=0"

/* Calls an op whose arguments are packed by hand. */
#define CALL1(name, x, ...)                                        \
    nb_apply(&nb_op_##name, 1, (nb_tensor *[]){x},                 \
             sizeof((nb_value[]){__VA_ARGS__}) / sizeof(nb_value), \
             (nb_value[]){__VA_ARGS__}, NB_CALLER)

/* Writes "... a b c" for the named axes first .. rank-1 of a term: axis d is
 * the letter 'a' + d. */
void nb_sign_axes(nb_text *t, int first, int rank);

/* Zeros or a value shaped like x, its lanes thin or absent. */
nb_tensor *nb_fill_like(nb_tensor *x, double value);

/* t with the axes back that the reduction c took away, repeated. */
nb_tensor *nb_unreduce(const nb_call *c, nb_tensor *t);

#endif
