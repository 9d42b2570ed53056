/* catalogue.c - what the rows of ops.def yield: the C functions by form, the
 * table of all ops, and the generic calls on them. */
#include "ops/ops.h"

#include "ops/registry.h"

#include <string.h>

#define FUNCTION_UNARY(name)                                       \
    nb_tensor *nb_##name(nb_tensor *x)                             \
    {                                                              \
        return nb_apply(&nb_op_##name, 1, &x, 0, NULL, NB_CALLER); \
    }
#define FUNCTION_BINARY(name)                                      \
    nb_tensor *nb_##name(nb_tensor *x, nb_tensor *y)               \
    {                                                              \
        nb_tensor *in[] = {x, y};                                  \
        return nb_apply(&nb_op_##name, 2, in, 0, NULL, NB_CALLER); \
    }
#define FUNCTION_REDUCE(name)                                      \
    nb_tensor *nb_##name(nb_tensor *x, int n, const int64_t *axes, \
                         bool keepdims)                            \
    {                                                              \
        nb_value all = NB_V_NONE, some = NB_V_LIST(n, axes);       \
        nb_value v[] = {n < 0 ? all : some, NB_V_INT(keepdims)};   \
        return nb_apply(&nb_op_##name, 1, &x, 2, v, NB_CALLER);    \
    }
#define FUNCTION_ARG(name)                                          \
    nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool keepdims) \
    {                                                               \
        nb_value v[] = {NB_V_INT(axis), NB_V_INT(keepdims)};        \
        return nb_apply(&nb_op_##name, 1, &x, 2, v, NB_CALLER);     \
    }
#define FUNCTION_AXIS(name)                                     \
    nb_tensor *nb_##name(nb_tensor *x, int64_t axis)            \
    {                                                           \
        nb_value v[] = {NB_V_INT(axis)};                        \
        return nb_apply(&nb_op_##name, 1, &x, 1, v, NB_CALLER); \
    }
#define FUNCTION_SCAN(name)                                          \
    nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool exclusive, \
                         bool reverse)                               \
    {                                                                \
        nb_value v[] = {NB_V_INT(axis), NB_V_INT(exclusive),         \
                        NB_V_INT(reverse)};                          \
        return nb_apply(&nb_op_##name, 1, &x, 3, v, NB_CALLER);      \
    }
#define FUNCTION_SORT(name)                                           \
    nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool descending, \
                         bool stable)                                 \
    {                                                                 \
        nb_value v[] = {NB_V_INT(axis), NB_V_INT(descending),         \
                        NB_V_INT(stable)};                            \
        return nb_apply(&nb_op_##name, 1, &x, 3, v, NB_CALLER);       \
    }
#define FUNCTION_DIAG(name)                                     \
    nb_tensor *nb_##name(nb_tensor *x, int64_t k)               \
    {                                                           \
        nb_value v[] = {NB_V_INT(k)};                           \
        return nb_apply(&nb_op_##name, 1, &x, 1, v, NB_CALLER); \
    }
#define FUNCTION_OWN(name)
#define FUNCTION_RULE(name)
#define OP(name, form) FUNCTION_##form(name)
#include "nabla/ops.def"

enum { UNARY, BINARY, REDUCE, ARG, AXIS, SCAN, SORT, DIAG, OWN, RULE };
static const struct {
    nb_op *op;
    int form;
} rows[] = {
#define OP(name, form) {&nb_op_##name, form},
#include "nabla/ops.def"
};
enum { NROWS = sizeof rows / sizeof rows[0] };

nb_op *nb_op_at(int i)
{
    return i >= 0 && i < NROWS ? rows[i].op : NULL;
}

nb_op *nb_op_find(const char *name)
{
    for (int i = 0; name && i < NROWS; i++)
        if (!strcmp(rows[i].op->name, name)) return rows[i].op;
    return name ? nb_registry_find(name) : NULL;
}

bool nb_op_is_public(const nb_op *op)
{
    for (int i = 0; op && i < NROWS; i++)
        if (rows[i].op == op) return rows[i].form != RULE;
    return nb_registry_has(op);
}

const char *nb_op_name(const nb_op *op)
{
    return op ? op->name : NULL;
}

const char *nb_op_doc(const nb_op *op)
{
    return op && op->doc ? op->doc : "";
}

const char *nb_op_example(const nb_op *op)
{
    return op && op->example ? op->example : "";
}

const char *nb_op_signature(const nb_op *op)
{
    return op && op->sig ? op->sig : "";
}

const char *nb_op_params(nb_op *op)
{
    return op && nb_op_ready(op) && op->params ? op->params : "";
}

int nb_op_results(const nb_op *op)
{
    return !op || op->nout < 0 ? 0 : op->nout > 1 ? op->nout : 1;
}

bool nb_op_arg(nb_op *op, int i, nb_arg *arg)
{
    if (!op || !nb_op_ready(op) || i < 0 || i >= op->parsed->n) return false;
    const nb_param *p = &op->parsed->param[i];
    *arg = (nb_arg){p->name, (nb_arg_kind)p->kind, p->has_default,
                    p->keyword_only};
    return true;
}

nb_status nb_op_call(nb_op *op, int nin, nb_tensor *const *in, int nval,
                     const nb_value *val, int *nout, nb_tensor **out)
{
    nb_results r = {.room = *nout, .out = out};
    if (!op) return nb_fail(NB_EVALUE, "no such op"), NB_EVALUE;
    bool ok = nb_apply_many(op, nin, in, nval, val, &r, NB_CALLER);
    *nout = r.n;
    return NB_STATUS(ok);
}

char *nb_attr_text(const nb_tensor *x, int i)
{
    nb_text t = {0};
    if (!x || !x->op) return NULL;
    nb_call c = nb_call_of((nb_tensor *)x);
    if (!nb_arg_print(&c, i, &t) || t.failed) {
        nb_text_free(&t);
        return NULL;
    }
    return t.data;
}
