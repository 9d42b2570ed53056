/* loop.c - scalar bodies over a loop nest, in short runs.
 *
 * The innermost axis is cut into runs of RUN elements; every instruction of
 * the body is one tight loop over the run, so that values stay in the first
 * cache.  Operands that are strided, broadcast or of another type are first
 * brought into a run of their own. */
#include "lower/loop.h"

#include "backend/ref/ref.h"
#include "backend/ref/scalars.h"
#include "core/convert.h"
#include "lower/nest.h"

#include <string.h>

enum { RUN = 1024, MAX_VALUES = NB_MAX_SCALAR_IN + NB_MAX_CODE };

typedef struct machine {
    nb_gen g;
    nb_val result;
    nb_dtype compute, result_type;
    int nin;
    nb_dtype in_type[NB_MAX_SCALAR_IN], want[NB_MAX_SCALAR_IN];
    nb_run *run[NB_MAX_CODE];
    const char *splat[NB_MAX_SCALAR_IN]; /* what a run is filled with */
    int64_t splat_n[NB_MAX_SCALAR_IN];
    char *value[MAX_VALUES]; /* a run of each, or NULL while not needed */
    char *store;
} machine;

static nb_dtype compute_type(const nb_call *c, const nb_tensor *y)
{
    int i = 0;
    if (c->op->in == NB_IN_BOOL) return NB_BOOL;
    if (c->op->out != NB_OUT_BOOL && c->op->out != NB_OUT_I64)
        return nb_compute_type((nb_dtype)y->dtype);
    while (i < c->nin - 1 && (c->op->index | c->op->mask) >> i & 1)
        i++;
    return nb_compute_type((nb_dtype)c->in[i]->dtype);
}

static bool prepare(machine *m, const nb_call *c, const nb_tensor *y)
{
    m->result = nb_gen_body(&m->g, c);
    m->compute = compute_type(c, y);
    m->nin = c->nin;
    int values = NB_MAX_SCALAR_IN + m->g.n;
    m->store = nb_alloc((size_t)values * RUN * 8);
    if (!m->store) return false;
    for (int i = 0; i < values; i++)
        m->value[i] = m->store + (size_t)i * RUN * 8;
    for (int i = 0; i < c->nin; i++) {
        m->in_type[i] = (nb_dtype)c->in[i]->dtype;
        m->want[i] = m->g.in_bool[i] ? NB_BOOL : m->compute;
        m->splat[i] = NULL;
    }
    for (int k = 0; k < m->g.n; k++) {
        const nb_instr *x = &m->g.code[k];
        if (x->scalar == NB_S_none) {
            nb_convert(m->value[NB_MAX_SCALAR_IN + k], m->compute, 1, &x->value,
                       NB_F64, 0, RUN);
            continue;
        }
        m->run[k] = nb_scalar_run(x->scalar, m->compute);
        if (m->run[k]) continue;
        nb_free(m->store);
        return nb_fail(NB_ETYPE, "%s: does not take %s", c->op->name,
                       nb_dtype_name(m->compute));
    }
    int last = m->result.id - NB_MAX_SCALAR_IN;
    bool is_bool =
        last < 0 ? m->g.in_bool[m->result.id] : m->g.code[last].is_bool;
    m->result_type = is_bool ? NB_BOOL : m->compute;
    return true;
}

/* A run of input i, in place if it can be used as it is. */
static const char *load(machine *m, int i, const char *at, int64_t stride,
                        int64_t n)
{
    if (stride == 1 && m->in_type[i] == m->want[i]) return at;
    if (stride == 0 && m->splat[i] == at && m->splat_n[i] >= n)
        return m->value[i];
    nb_convert(m->value[i], m->want[i], 1, at, m->in_type[i], stride, n);
    m->splat[i] = stride == 0 ? at : NULL;
    m->splat_n[i] = n;
    return m->value[i];
}

/* Computes a run; the result is where the return value says: at `to` if that
 * is given, else in a run of the machine's. */
static const char *evaluate(machine *m, const char **at, const int64_t *stride,
                            int64_t n, char *to)
{
    const char *v[MAX_VALUES];
    for (int i = 0; i < m->nin; i++)
        v[i] = load(m, i, at[i], stride[i], n);
    for (int k = 0; k < m->g.n; k++) {
        const nb_instr *x = &m->g.code[k];
        int id = NB_MAX_SCALAR_IN + k;
        char *into = to && id == m->result.id ? to : m->value[id];
        v[id] = into;
        if (x->scalar != NB_S_none)
            m->run[k](into, v[x->arg[0]], v[x->arg[1]], v[x->arg[2]], n);
    }
    return v[m->result.id];
}

/* Visits every point of all axes but the last: at[] follows along. */
typedef struct odometer {
    const nb_loop *l;
    int n;
    int64_t i[NB_MAX_DIMS];
    int64_t item[NB_MAX_LOOP_OPERANDS];
} odometer;

static bool step(odometer *o, const char **at)
{
    for (int a = o->n - 1; a >= 0; a--) {
        bool on = ++o->i[a] < o->l->size[a];
        int64_t by = on ? 1 : 1 - o->l->size[a];
        for (int t = 0; t < o->l->nops; t++)
            at[t] += o->l->stride[t][a] * by * o->item[t];
        if (on) return true;
        o->i[a] = 0;
    }
    return false;
}

static void map_row(machine *m, const char **at, const int64_t *stride,
                    const int64_t *item, int64_t n, nb_dtype type)
{
    const char *p[NB_MAX_LOOP_OPERANDS];
    char *to = (char *)at[m->nin];
    bool straight =
        m->g.n == 1 && m->result_type == type && stride[m->nin] == 1;
    bool direct = straight;
    for (int i = 0; i < m->nin; i++)
        direct = direct && stride[i] == 1 && m->in_type[i] == m->want[i];
    int64_t chunk = direct ? n : RUN;
    straight = m->result_type == type && stride[m->nin] == 1 &&
               m->result.id >= NB_MAX_SCALAR_IN;
    for (int64_t from = 0; from < n; from += chunk) {
        int64_t k = n - from < chunk ? n - from : chunk;
        for (int i = 0; i < m->nin; i++)
            p[i] = at[i] + from * stride[i] * item[i];
        char *here = to + from * stride[m->nin] * item[m->nin];
        const char *r = evaluate(m, p, stride, k, straight ? here : NULL);
        if (r != here)
            nb_convert(here, type, stride[m->nin], r, m->result_type, 1, k);
    }
}

/* acc[...] = reduce(acc[...], row): one total if the axis is reduced. */
static void reduce_row(machine *m, nb_reduce how, const char **at,
                       const int64_t *stride, const int64_t *item, int64_t n,
                       bool reduced)
{
    const char *p[NB_MAX_LOOP_OPERANDS];
    char *acc = (char *)at[m->nin];
    int64_t width = item[m->nin], apart = stride[m->nin];
    nb_run *combine = nb_scalar_run(nb_reduce_scalar(how), m->result_type);
    for (int64_t from = 0; from < n; from += RUN) {
        int64_t k = n - from < RUN ? n - from : RUN;
        for (int i = 0; i < m->nin; i++)
            p[i] = at[i] + from * stride[i] * item[i];
        const char *r = evaluate(m, p, stride, k, NULL);
        if (reduced) {
            nb_reduce_run(how, m->result_type, acc, r, k);
        } else if (apart == 1) {
            char *row = acc + from * width;
            combine(row, row, r, r, k);
        } else
            for (int64_t i = 0; i < k; i++)
                nb_reduce_run(how, m->result_type,
                              acc + (from + i) * apart * width, r + i * width,
                              1);
    }
}

static void start(odometer *o, const nb_loop *l, const nb_call *c,
                  int64_t result_item, const char **at)
{
    *o = (odometer){.l = l, .n = l->naxes - 1};
    for (int i = 0; i < c->nin; i++) {
        o->item[i] = (int64_t)nb_dtype_size((nb_dtype)c->in[i]->dtype);
        at[i] = c->in[i]->data;
    }
    o->item[c->nin] = result_item;
}

static void innermost(const nb_loop *l, int64_t *stride, int64_t *n)
{
    *n = l->naxes ? l->size[l->naxes - 1] : 1;
    for (int t = 0; t < l->nops; t++)
        stride[t] = l->naxes ? l->stride[t][l->naxes - 1] : 1;
}

static void map(machine *m, const nb_loop *l, const nb_call *c, nb_tensor *y,
                char *to)
{
    odometer o;
    const char *at[NB_MAX_LOOP_OPERANDS];
    int64_t stride[NB_MAX_LOOP_OPERANDS], n;
    innermost(l, stride, &n);
    start(&o, l, c, (int64_t)nb_dtype_size((nb_dtype)y->dtype), at);
    at[c->nin] = to;
    do
        map_row(m, at, stride, o.item, n, (nb_dtype)y->dtype);
    while (step(&o, at));
}

static bool reduce(machine *m, const nb_loop *l, const nb_call *c, nb_tensor *y,
                   char *to)
{
    odometer o;
    const char *at[NB_MAX_LOOP_OPERANDS];
    int64_t stride[NB_MAX_LOOP_OPERANDS], n, count;
    nb_shape shape = nb_tensor_shape(y);
    nb_reduce how = c->op->reduce;
    bool inner = l->naxes && l->reduced[l->naxes - 1];
    nb_shape_count(&shape, &count);
    bool same = m->result_type == y->dtype;
    char *acc =
        same ? to : nb_alloc((size_t)count * nb_dtype_size(m->result_type));
    if (!acc) return false;
    nb_reduce_start(how, m->result_type, acc, count);
    innermost(l, stride, &n);
    start(&o, l, c, (int64_t)nb_dtype_size(m->result_type), at);
    at[c->nin] = acc;
    if (!l->empty) do
            reduce_row(m, how, at, stride, o.item, n, inner);
        while (step(&o, at));
    if (same) return true;
    nb_convert(to, (nb_dtype)y->dtype, 1, acc, m->result_type, 1, count);
    nb_free(acc);
    return true;
}

/* A plain copy or cast: straight from one layout and type to the other. */
static void copy(const nb_loop *l, const nb_call *c, nb_tensor *y, char *to)
{
    odometer o;
    const char *at[NB_MAX_LOOP_OPERANDS];
    int64_t stride[NB_MAX_LOOP_OPERANDS], n;
    innermost(l, stride, &n);
    start(&o, l, c, (int64_t)nb_dtype_size((nb_dtype)y->dtype), at);
    at[1] = to;
    do
        nb_convert((char *)at[1], (nb_dtype)y->dtype, stride[1], at[0],
                   (nb_dtype)c->in[0]->dtype, stride[0], n);
    while (step(&o, at));
}

bool nb_ref_loop(const nb_call *c, nb_tensor *y, char *to)
{
    nb_loop l;
    machine m;
    bool reduces = false, ok = true;
    if (!nb_loop_build(&l, c, y)) return false;
    for (int a = 0; a < c->sig->nfactors; a++)
        reduces = reduces || !c->sig->factor[a].in_result;
    if (l.empty && !reduces) return true;
    if (c->op->scalar == NB_S_copy && !reduces && c->nin == 1)
        return copy(&l, c, y, to), true;
    if (!prepare(&m, c, y)) return false;
    if (reduces)
        ok = reduce(&m, &l, c, y, to);
    else
        map(&m, &l, c, y, to);
    nb_free(m.store);
    return ok;
}
