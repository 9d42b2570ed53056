/* graph.c - graphs of operations: descriptors, made of attributes.
 *
 * All that is said to the library is also written into the key, descriptors by
 * their places: graphs with the same key are the same. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 16 };

/* Descriptors */

void nb_dnn_list_free(nb_dnn_list *l)
{
    while (l->n > 0)
        nb_dnn.BackendDestroyDescriptor(l->at[--l->n]);
    nb_free(l->at);
    *l = (nb_dnn_list){0};
}

static bool push(nb_dnn_list *l, void *d)
{
    if (!nb_grow(&l->at, &l->room, l->n + 1, sizeof *l->at)) return false;
    l->at[l->n++] = d;
    return true;
}

void *nb_dnn_new(nb_dnn_list *l, int kind, bool *broken)
{
    void *d = NULL;
    *broken = !push(l, NULL);
    if (*broken) return NULL;
    if (nb_dnn.BackendCreateDescriptor(kind, &d)) d = NULL;
    if (d)
        l->at[l->n - 1] = d;
    else
        l->n--;
    return d;
}

bool nb_dnn_check(nb_dnn_graph *g, int status, const char *what)
{
    char last[400] = "";
    if (!status) return true;
    if (g->refused) return false;
    g->refused = true;
    nb_dnn.GetLastErrorString(last, sizeof last);
    snprintf(g->trouble, sizeof g->trouble, "%s: %s %s", what,
             nb_dnn.GetErrorString(status), last);
    return false;
}

static bool is_well(const nb_dnn_graph *g)
{
    return !g->refused && !g->broken;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case NB_DNN_TYPE_INT64:
    case NB_DNN_TYPE_DOUBLE:
    case NB_DNN_TYPE_HANDLE:
    case NB_DNN_TYPE_VOID_PTR: return 8;
    case NB_DNN_TYPE_CHAR:
    case NB_DNN_TYPE_BOOLEAN: return 1;
    default: return 4;
    }
}

static int place_of(const nb_dnn_list *l, const void *d)
{
    int i = 0;
    while (i < l->n && l->at[i] != d)
        i++;
    return i;
}

/* Handles are those of the card, whose place among cards is in the key. */
static void note(nb_dnn_graph *g, const nb_dnn_attribute *a)
{
    nb_text_put(&g->key, (const char *)&a->name, sizeof a->name);
    nb_text_put(&g->key, (const char *)&a->n, sizeof a->n);
    if (a->type == NB_DNN_TYPE_HANDLE) return;
    if (a->type != NB_DNN_TYPE_BACKEND_DESCRIPTOR) {
        nb_text_put(&g->key, a->at, (size_t)a->n * bytes_of(a->type));
        return;
    }
    for (int64_t i = 0; i < a->n; i++) {
        int place = place_of(&g->all, ((void *const *)a->at)[i]);
        nb_text_put(&g->key, (const char *)&place, sizeof place);
    }
}

void *nb_dnn_describe(nb_dnn_graph *g, int kind, int n,
                      const nb_dnn_attribute *a)
{
    char what[48];
    if (!is_well(g)) return NULL;
    void *d = nb_dnn_new(&g->all, kind, &g->broken);
    snprintf(what, sizeof what, "descriptor %d", kind);
    if (!d) return nb_dnn_check(g, !g->broken, what), NULL;
    nb_text_put(&g->key, (const char *)&kind, sizeof kind);
    for (int i = 0; i < n; i++) {
        int status = nb_dnn.BackendSetAttribute(d, a[i].name, a[i].type, a[i].n,
                                                a[i].at);
        snprintf(what, sizeof what, "attribute %d", a[i].name);
        if (!nb_dnn_check(g, status, what)) return NULL;
        note(g, &a[i]);
    }
    snprintf(what, sizeof what, "descriptor %d", kind);
    g->broken = g->key.failed;
    return nb_dnn_check(g, nb_dnn.BackendFinalize(d), what) ? d : NULL;
}

void nb_dnn_operation_add(nb_dnn_graph *g, int kind, int n,
                          const nb_dnn_attribute *a)
{
    void *d = nb_dnn_describe(g, kind, n, a);
    if (d && !push(&g->op, d)) g->broken = true;
}

/* Tensors */

int nb_dnn_data_of(nb_dtype d)
{
    switch (d) {
    case NB_F64: return NB_DNN_DATA_DOUBLE;
    case NB_F16: return NB_DNN_DATA_HALF;
    case NB_BF16: return NB_DNN_DATA_BFLOAT16;
    case NB_I32: return NB_DNN_DATA_INT32;
    case NB_I64: return NB_DNN_DATA_INT64;
    case NB_BOOL: return NB_DNN_DATA_BOOLEAN;
    default: return NB_DNN_DATA_FLOAT;
    }
}

static bool add_place(nb_dnn_graph *g, nb_dnn_place p)
{
    if (!nb_grow(&g->place, &g->place_room, g->nplaces + 1, sizeof *g->place))
        return false;
    g->place[g->nplaces++] = p;
    return true;
}

static size_t reach(const nb_dnn_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n += (t->size[i] - 1) * t->step[i];
    return (size_t)n * nb_dtype_size(t->dtype);
}

static int add_tensor(nb_dnn_graph *g, const nb_dnn_tensor *t,
                      const float *value)
{
    int64_t id = g->tensor.n + 1, align = ALIGNMENT;
    int data = nb_dnn_data_of(t->dtype);
    bool fixed = value;
    void *d = nb_dnn_describe(
        g, NB_DNN_BACKEND_TENSOR_DESCRIPTOR, 7,
        (nb_dnn_attribute[]){
            {NB_DNN_ATTR_TENSOR_UNIQUE_ID, NB_DNN_TYPE_INT64, 1, &id},
            {NB_DNN_ATTR_TENSOR_DATA_TYPE, NB_DNN_TYPE_DATA_TYPE, 1, &data},
            {NB_DNN_ATTR_TENSOR_DIMENSIONS, NB_DNN_TYPE_INT64, t->rank,
             t->size},
            {NB_DNN_ATTR_TENSOR_STRIDES, NB_DNN_TYPE_INT64, t->rank, t->step},
            {NB_DNN_ATTR_TENSOR_BYTE_ALIGNMENT, NB_DNN_TYPE_INT64, 1, &align},
            {NB_DNN_ATTR_TENSOR_IS_VIRTUAL, NB_DNN_TYPE_BOOLEAN, 1,
             &t->between},
            {NB_DNN_ATTR_TENSOR_IS_BY_VALUE, NB_DNN_TYPE_BOOLEAN, 1, &fixed}});
    if (!d) return 0;
    bool ok = push(&g->tensor, d);
    if (ok && !t->between)
        ok = add_place(g, (nb_dnn_place){.id = id,
                                         .dtype = t->dtype,
                                         .bytes = reach(t),
                                         .fixed = fixed,
                                         .value = fixed ? *value : 0});
    if (ok && fixed)
        ok = nb_text_put(&g->key, (const char *)value, sizeof *value);
    if (!ok) g->broken = true;
    return ok ? (int)id : 0;
}

int nb_dnn_tensor_add(nb_dnn_graph *g, const nb_dnn_tensor *t)
{
    return add_tensor(g, t, NULL);
}

int nb_dnn_number_add(nb_dnn_graph *g, int rank, float x)
{
    nb_dnn_tensor t = {.dtype = NB_F32, .rank = rank};
    for (int i = 0; i < rank; i++)
        t.size[i] = t.step[i] = 1;
    return add_tensor(g, &t, &x);
}

void *nb_dnn_tensor_at(nb_dnn_graph *g, int tensor)
{
    return tensor > 0 && tensor <= g->tensor.n ? g->tensor.at[tensor - 1]
                                               : NULL;
}

/* Operations */

/* An attribute that is one descriptor. */
#define ONE(name, d)                                  \
    {                                                 \
        name, NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &(d) \
    }

static void *describe_pointwise(nb_dnn_graph *g, const nb_dnn_pointwise *p)
{
    int in = p->named ? nb_dnn_data_of(p->in) : NB_DNN_DATA_FLOAT;
    bool indexes = p->mode == NB_DNN_POINTWISE_GEN_INDEX;
    return nb_dnn_describe(
        g, NB_DNN_BACKEND_POINTWISE_DESCRIPTOR, indexes ? 3 : 2,
        (nb_dnn_attribute[]){
            {NB_DNN_ATTR_POINTWISE_MODE, NB_DNN_TYPE_POINTWISE_MODE, 1,
             &p->mode},
            {NB_DNN_ATTR_POINTWISE_MATH_PREC, NB_DNN_TYPE_DATA_TYPE, 1, &in},
            {NB_DNN_ATTR_POINTWISE_AXIS, NB_DNN_TYPE_INT64, 1, &p->axis}});
}

void nb_dnn_pointwise_add(nb_dnn_graph *g, const nb_dnn_pointwise *p)
{
    void *how = describe_pointwise(g, p), *x = nb_dnn_tensor_at(g, p->x);
    void *y = nb_dnn_tensor_at(g, p->y), *b = nb_dnn_tensor_at(g, p->b);
    void *t = nb_dnn_tensor_at(g, p->t);
    nb_dnn_operation_add(
        g, NB_DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 3 + !!b + !!t,
        (nb_dnn_attribute[]){
            ONE(NB_DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how),
            ONE(NB_DNN_ATTR_OPERATION_POINTWISE_XDESC, x),
            ONE(NB_DNN_ATTR_OPERATION_POINTWISE_YDESC, y),
            ONE(NB_DNN_ATTR_OPERATION_POINTWISE_BDESC, b),
            ONE(NB_DNN_ATTR_OPERATION_POINTWISE_TDESC, t)});
}

void nb_dnn_matmul_add(nb_dnn_graph *g, int a, int b, int y)
{
    int in = NB_DNN_DATA_FLOAT;
    void *how =
        nb_dnn_describe(g, NB_DNN_BACKEND_MATMUL_DESCRIPTOR, 1,
                        &(nb_dnn_attribute){NB_DNN_ATTR_MATMUL_COMP_TYPE,
                                            NB_DNN_TYPE_DATA_TYPE, 1, &in});
    void *left = nb_dnn_tensor_at(g, a), *right = nb_dnn_tensor_at(g, b);
    void *to = nb_dnn_tensor_at(g, y);
    nb_dnn_operation_add(
        g, NB_DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 4,
        (nb_dnn_attribute[]){ONE(NB_DNN_ATTR_OPERATION_MATMUL_ADESC, left),
                             ONE(NB_DNN_ATTR_OPERATION_MATMUL_BDESC, right),
                             ONE(NB_DNN_ATTR_OPERATION_MATMUL_CDESC, to),
                             ONE(NB_DNN_ATTR_OPERATION_MATMUL_DESC, how)});
}

void nb_dnn_reduce_add(nb_dnn_graph *g, int how, int x, int y)
{
    int in = NB_DNN_DATA_FLOAT;
    void *d = nb_dnn_describe(
        g, NB_DNN_BACKEND_REDUCTION_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){
            {NB_DNN_ATTR_REDUCTION_OPERATOR,
             NB_DNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how},
            {NB_DNN_ATTR_REDUCTION_COMP_TYPE, NB_DNN_TYPE_DATA_TYPE, 1, &in}});
    void *from = nb_dnn_tensor_at(g, x), *to = nb_dnn_tensor_at(g, y);
    nb_dnn_operation_add(
        g, NB_DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 3,
        (nb_dnn_attribute[]){ONE(NB_DNN_ATTR_OPERATION_REDUCTION_XDESC, from),
                             ONE(NB_DNN_ATTR_OPERATION_REDUCTION_YDESC, to),
                             ONE(NB_DNN_ATTR_OPERATION_REDUCTION_DESC, d)});
}

void nb_dnn_reshape_add(nb_dnn_graph *g, int x, int y)
{
    void *from = nb_dnn_tensor_at(g, x), *to = nb_dnn_tensor_at(g, y);
    nb_dnn_operation_add(
        g, NB_DNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){ONE(NB_DNN_ATTR_OPERATION_RESHAPE_XDESC, from),
                             ONE(NB_DNN_ATTR_OPERATION_RESHAPE_YDESC, to)});
}

/* Graphs */

nb_dnn_graph *nb_dnn_graph_new(nb_card *c)
{
    void *handle = nb_dnn_handle(c, NB_DNN_NOW);
    nb_dnn_graph *g = handle ? nb_alloc_zero(sizeof *g) : NULL;
    if (!g) return NULL;
    g->card = c;
    g->handle = handle;
    nb_text_put(&g->key, (const char *)&c->id, sizeof c->id);
    return g;
}

void nb_dnn_graph_free(nb_dnn_graph *g)
{
    if (!g) return;
    nb_dnn_list_free(&g->all);
    nb_free(g->tensor.at), nb_free(g->op.at), nb_free(g->place);
    nb_text_free(&g->key);
    nb_free(g);
}

const char *nb_dnn_graph_trouble(nb_dnn_graph *g)
{
    return g->trouble;
}
