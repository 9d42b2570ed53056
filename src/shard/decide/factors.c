/* factors.c - from a call's signature to its factors. */
#include "shard/decide/factors.h"

#include <string.h>

int nb_stored_sizes(const nb_tensor *x, int64_t *size)
{
    int n = 0;
    for (int l = 0; l < x->nlanes; l++)
        size[n++] = nb_extent_get(nb_lane_stored(nb_tensor_lane(x)[l]));
    for (int d = 0; d < x->rank; d++)
        size[n++] = nb_extent_get(nb_tensor_size(x)[d]);
    return n;
}

bool nb_factored_has(const nb_factored *t, int factor)
{
    for (int d = 0; d < t->rank; d++)
        for (int i = 0; i < t->dim[d].n; i++)
            if (t->dim[d].factor[i] == factor) return true;
    return false;
}

void nb_factors_free(nb_factors *f)
{
    if (f->tensor != f->few) nb_free(f->tensor);
}

static bool begin(nb_factors *f, const nb_call *c, int nout,
                  nb_tensor *const *out)
{
    int n = c->nin + nout;
    f->n = 0;
    f->nin = c->nin;
    f->nout = nout;
    f->tensor = f->few;
    if (n > (int)(sizeof f->few / sizeof f->few[0]) &&
        !(f->tensor = nb_alloc((size_t)n * sizeof *f->tensor)))
        return false;
    for (int t = 0; t < n; t++) {
        nb_factored *x = &f->tensor[t];
        x->rank =
            nb_stored_sizes(t < c->nin ? c->in[t] : out[t - c->nin], x->size);
        for (int d = 0; d < x->rank; d++)
            x->dim[d].n = 0;
    }
    return true;
}

static int fresh(nb_factors *f, int64_t size)
{
    int k = f->n++;
    f->size[k] = size;
    f->kind[k] = NB_PASS;
    f->reduce[k] = NB_SUM;
    f->reduced[k] = false;
    return k;
}

static void set(nb_dim *d, int factor)
{
    d->n = 1;
    d->factor[0] = (int16_t)factor;
}

/* Ops that move lanes say of each dim of the result where it comes from. */
static void by_dims(nb_factors *f, const nb_call *c, nb_tensor *const *out)
{
    nb_factored *x = &f->tensor[0], *y = &f->tensor[c->nin];
    for (int d = 0; d < y->rank; d++) {
        int from = c->op->dim_of ? c->op->dim_of(c, out[0], d) : d;
        if (from < 0 || x->size[from] != y->size[d]) continue;
        int k = fresh(f, y->size[d]);
        set(&x->dim[from], k);
        set(&y->dim[d], k);
    }
}

/* Dim d of tensor t, which the signature names or dots stand for. */
static void by_axis(nb_factors *f, const nb_axes *a, const nb_sig *sig, int t,
                    int d)
{
    nb_factored *x = &f->tensor[t];
    const nb_operand *o = &a->operand[t];
    int core = d - (o->ndims - o->ncore), first = a->nlanes + a->ndots;
    int axis = o->axis[d];
    if (axis >= 0) {
        bool own = axis >= first && f->kind[axis] == NB_PERMUTE;
        if (!own && f->size[axis] < 0) f->size[axis] = x->size[d];
        if (!own && x->size[d] != f->size[axis]) return; /* it is broadcast */
        set(&x->dim[d], axis);
        return;
    }
    if (core < 0) return;
    x->dim[d] = sig->term[t + sig->nin - f->nin].dim[core];
    for (int i = 0; i < x->dim[d].n; i++)
        x->dim[d].factor[i] = (int16_t)(x->dim[d].factor[i] + first);
}

/* A group with one size that is not known fixes it. */
static void infer(nb_factors *f)
{
    bool again = true;
    while (again) {
        again = false;
        for (int t = 0; t < f->nin + f->nout; t++)
            for (int d = 0; d < f->tensor[t].rank; d++) {
                nb_dim *dim = &f->tensor[t].dim[d];
                int64_t known = 1;
                int open = -1, nopen = 0;
                for (int i = 0; i < dim->n; i++) {
                    int64_t s = f->size[dim->factor[i]];
                    if (s < 0)
                        open = dim->factor[i], nopen++;
                    else
                        known *= s;
                }
                if (nopen != 1 || !known) continue;
                f->size[open] = f->tensor[t].size[d] / known;
                again = true;
            }
    }
}

/* What is not known stays whole, and so does a group that does not add up. */
static void prune(nb_factors *f)
{
    for (int t = 0; t < f->nin + f->nout; t++)
        for (int d = 0; d < f->tensor[t].rank; d++) {
            nb_dim *dim = &f->tensor[t].dim[d];
            int64_t product = 1;
            for (int i = 0; i < dim->n; i++)
                product *= f->size[dim->factor[i]];
            if (dim->n > 1 && product != f->tensor[t].size[d]) dim->n = 0;
        }
}

static bool by_signature(nb_factors *f, const nb_call *c)
{
    nb_axes a;
    const nb_sig *sig = c->sig;
    if (!nb_axes_align(&a, c->op, sig, c->nin, c->in)) return false;
    int first = a.nlanes + a.ndots;
    for (int k = 0; k < a.naxes; k++) {
        fresh(f, nb_extent_get(a.size[k]));
        if (k < first) continue;
        const nb_factor *s = &sig->factor[k - first];
        f->kind[k] = (uint8_t)s->kind;
        f->reduce[k] = (uint8_t)s->reduce;
        f->reduced[k] = !s->in_result;
    }
    for (int t = 0; t < f->nin + f->nout; t++)
        for (int d = 0; d < f->tensor[t].rank; d++)
            if (d < a.operand[t].ndims) by_axis(f, &a, sig, t, d);
    nb_axes_free(&a);
    infer(f);
    prune(f);
    return true;
}

bool nb_factors_of(nb_factors *f, const nb_call *c, int nout,
                   nb_tensor *const *out)
{
    if (!begin(f, c, nout, out)) return false;
    if (c->op->shape) {
        by_dims(f, c, out);
        return true;
    }
    /* Of nothing is written as of a scalar. */
    if (!c->sig || (c->sig->nin != c->nin && c->nin)) return true;
    if (by_signature(f, c)) return true;
    nb_factors_free(f);
    return false;
}
