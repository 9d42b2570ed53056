/* attention.c - the two ops, and what they compute, plainly: the reference for
 * kernels, in float64 and a row of scores at a time. */
#include "lower/attention.h"

#include "core/batch.h"
#include "core/convert.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, O, LSE, G, DQ, DK, DV }; /* operands of attention_back */

static bool sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "%s", nb_arg_text(c, 0));
}

/* Sums along a row are kept as float32, all else as it comes. */
static bool infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    (void)out;
    *dtype = (nb_dtype)c->in[0]->dtype;
    if (c->op == &nb_op_attention && k == 1) *dtype = NB_F32;
    return true;
}

/* Forms */

static bool add_batch(nb_attention_form *f, int64_t size)
{
    if (f->nbatch == NB_ATTENTION_BATCH)
        return nb_fail(NB_EVALUE, "attention: a batch of more than %d dims",
                       NB_ATTENTION_BATCH);
    f->size[f->nbatch++] = size;
    return true;
}

/* The dim of operand i that a factor is, or -1. */
static int dim_of(const nb_sig *s, int i, int factor)
{
    for (int d = 0; d < s->term[i].n; d++)
        if (s->term[i].dim[d].factor[0] == factor) return d;
    return -1;
}

/* What a factor is of: rows and columns have names of their own. */
static int64_t *extent(nb_attention_form *f, const char *name)
{
    switch (*name) {
    case 't': return &f->t;
    case 's': return &f->s;
    case 'd': return &f->d;
    case 'e': return &f->e;
    default: return NULL;
    }
}

static bool add_factor(nb_attention_form *f, const nb_sig *s, int factor,
                       const nb_view *view)
{
    const char *name = s->factor[factor].name;
    int64_t *size = extent(f, name);
    bool row = *name == 't' || *name == 's', first = true;
    for (int i = 0; i < f->noperands; i++) {
        int d = dim_of(s, i, factor);
        if (d >= 0 && *name == 'z') f->join = view[i].stride[d];
        if (d < 0 || *name == 'z') continue;
        if (first && size) *size = view[i].size[d];
        if (first && !size && !add_batch(f, view[i].size[d])) return false;
        first = false;
        nb_attention_matrix *m = &f->operand[i];
        *(row    ? &m->row
          : size ? &m->column
                 : &m->batch[f->nbatch - 1]) = view[i].stride[d];
    }
    return true;
}

/* Of the named dims alone; what stands before them has been added. */
static bool look(nb_attention_form *f, const nb_call *c, const nb_view *view)
{
    bool ok = true;
    f->noperands = c->nin + c->op->nout;
    f->scale = nb_arg_float(c, 1);
    f->masks = nb_arg_int(c, 2) != NB_NONE;
    f->ahead = f->masks ? nb_arg_int(c, 2) : 0;
    for (int i = 0; i < f->noperands; i++)
        f->operand[i].dtype = view[i].dtype;
    for (int k = 0; ok && k < c->sig->nfactors; k++)
        ok = add_factor(f, c->sig, k, view);
    for (; f->join && f->noperands < NB_ATTENTION_OPERANDS; f->noperands++)
        f->operand[f->noperands] = f->operand[DQ];
    return ok;
}

bool nb_attention_form_of(nb_attention_form *f, const nb_call *c)
{
    nb_batch b;
    *f = (nb_attention_form){0};
    if (!nb_batch_open(&b, c, NULL)) return false;
    bool ok = true;
    for (int i = 0; ok && i < b.n; i++) {
        ok = add_batch(f, b.size[i]);
        for (int k = 0; ok && k < b.nops; k++)
            f->operand[k].batch[i] = b.step[k][i];
    }
    ok = ok && look(f, c, b.view);
    nb_batch_close(&b);
    return ok;
}

bool nb_attention_attr(nb_op *op, const char *rule, double scale, int64_t ahead,
                       words *w)
{
    nb_value none = NB_V_NONE, some = NB_V_INT(ahead);
    nb_value v[] = {NB_V_TEXT(rule), NB_V_FLOAT(scale),
                    ahead == NB_NONE ? none : some};
    *w = (words){0};
    return nb_op_ready(op) && nb_pack(op, 3, v, w);
}

/* The work */

/* Operands at one point of the batch. */
typedef struct point {
    const nb_attention_form *f;
    char *data[NB_ATTENTION_OPERANDS];
} point;

static char *place(const point *p, int i, int64_t row, int64_t column)
{
    const nb_attention_matrix *m = &p->f->operand[i];
    int64_t at = row * m->row + column * m->column;
    return p->data[i] + at * (int64_t)nb_dtype_size(m->dtype);
}

static double get(const point *p, int i, int64_t row, int64_t column)
{
    return nb_read_f64(place(p, i, row, column), p->f->operand[i].dtype);
}

static void put(const point *p, int i, int64_t row, int64_t column, double x)
{
    nb_write_f64(place(p, i, row, column), p->f->operand[i].dtype, x);
}

static double dot(const point *p, int i, int64_t row, int j, int64_t other,
                  int64_t n)
{
    double y = 0;
    for (int64_t d = 0; d < n; d++)
        y += get(p, i, row, d) * get(p, j, other, d);
    return y;
}

/* Scores of query t, in x; how many keys it sees. */
static int64_t scores(const point *p, int64_t t, double *x)
{
    const nb_attention_form *f = p->f;
    int64_t n = f->masks && t + f->ahead + 1 < f->s ? t + f->ahead + 1 : f->s;
    for (int64_t s = 0; s < n; s++)
        x[s] = f->scale * dot(p, Q, t, K, s, f->d);
    return n < 0 ? 0 : n;
}

static void attend(const point *p, double *x)
{
    enum { TO = 3, SUM = 4 };
    const nb_attention_form *f = p->f;
    for (int64_t t = 0; t < f->t; t++) {
        int64_t n = scores(p, t, x);
        double most = -INFINITY, sum = 0;
        for (int64_t s = 0; s < n; s++)
            most = x[s] > most ? x[s] : most;
        for (int64_t s = 0; s < n; s++)
            sum += x[s] = exp(x[s] - most);
        put(p, SUM, t, 0, most + log(sum));
        for (int64_t e = 0; e < f->e; e++) {
            double y = 0;
            for (int64_t s = 0; s < n; s++)
                y += x[s] * get(p, V, s, e);
            put(p, TO, t, e, y / sum);
        }
    }
}

/* Sums that end up in dk and dv, then those. */
static void go_back(const point *p, double *x, double *dk, double *dv)
{
    const nb_attention_form *f = p->f;
    for (int64_t t = 0; t < f->t; t++) {
        int64_t n = scores(p, t, x);
        double lse = get(p, LSE, t, 0), mean = dot(p, G, t, O, t, f->e);
        for (int64_t s = 0; s < n; s++) {
            double w = exp(x[s] - lse);
            for (int64_t e = 0; e < f->e; e++)
                dv[s * f->e + e] += w * get(p, G, t, e);
            x[s] = f->scale * w * (dot(p, G, t, V, s, f->e) - mean);
            for (int64_t d = 0; d < f->d; d++)
                dk[s * f->d + d] += x[s] * get(p, Q, t, d);
        }
        for (int64_t d = 0; d < f->d; d++) {
            double y = 0;
            for (int64_t s = 0; s < n; s++)
                y += x[s] * get(p, K, s, d);
            put(p, DQ, t, d, y);
        }
    }
    for (int64_t s = 0; s < f->s; s++) {
        for (int64_t d = 0; d < f->d; d++)
            put(p, DK, s, d, dk[s * f->d + d]);
        for (int64_t e = 0; e < f->e; e++)
            put(p, DV, s, e, dv[s * f->e + e]);
    }
}

static bool at_point(const point *p)
{
    const nb_attention_form *f = p->f;
    bool back = f->noperands == NB_ATTENTION_OPERANDS;
    size_t n = (size_t)f->s, sums = back ? n * (size_t)(f->d + f->e) : 0;
    double *x = nb_alloc_zero((n + sums + 1) * sizeof *x);
    if (!x) return false;
    if (back)
        go_back(p, x, x + n, x + n + n * (size_t)f->d);
    else
        attend(p, x);
    nb_free(x);
    return true;
}

static bool kernel(const nb_kernel *k)
{
    nb_attention_form f = {0};
    if (!look(&f, k->call, k->view)) return false;
    int64_t points = 1;
    for (int b = 0; b < f.nbatch; b++)
        points *= f.size[b];
    for (int64_t at = 0; at < points; at++) {
        point p = {.f = &f};
        for (int i = 0; i < f.noperands; i++) {
            const nb_view *v = &k->view[f.join && i > DQ ? DQ : i];
            int64_t left = at, offset = i > DQ ? (i - DQ) * f.join : 0;
            for (int b = f.nbatch - 1; b >= 0; left /= f.size[b--])
                offset += left % f.size[b] * f.operand[i].batch[b];
            p.data[i] = v->data + offset * (int64_t)nb_dtype_size(v->dtype);
        }
        if (!at_point(&p)) return false;
    }
    return true;
}

static double cost(const nb_call *c)
{
    nb_attention_form f;
    if (!nb_attention_form_of(&f, c)) return nb_error_clear(), 0;
    double n = (double)f.t * (double)f.s * (double)(f.d + f.e);
    for (int b = 0; b < f.nbatch; b++)
        n *= (double)f.size[b];
    return n * (f.noperands == NB_ATTENTION_OPERANDS ? 5 : 2);
}

nb_op nb_op_attention = {
    .name = "attention",
    .doc = "softmax(scale q k^T) v, and the logarithm of the sums that it "
           "divides by.",
    .params = "q, k, v, rule:text, scale:float, ahead:int=None",
    .sign = sign,
    .kind = NB_RULE,
    .in = NB_IN_ANY,
    .nout = 2,
    .infer = infer,
    .kernel = kernel,
    .cost = cost,
};

nb_op nb_op_attention_back = {
    .name = "attention_back",
    .doc = "What flows back to q, k and v from g, which flows back to o.",
    .params = "q, k, v, o, lse, g, rule:text, scale:float, ahead:int=None",
    .sign = sign,
    .kind = NB_RULE,
    .in = NB_IN_ANY,
    .nout = 3,
    .infer = infer,
    .kernel = kernel,
    .cost = cost,
};

nb_op nb_op_attention_back_one = {
    .name = "attention_back_one",
    .doc = "What flows back to q, k and v, as parts of one tensor.",
    .params = "q, k, v, o, lse, g, rule:text, scale:float, ahead:int=None",
    .sign = sign,
    .kind = NB_RULE,
    .in = NB_IN_ANY,
    .nout = 1,
    .infer = infer,
    .kernel = kernel,
    .cost = cost,
};
