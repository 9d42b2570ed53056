/* axes.c - aligning operands.
 *
 * Lanes are matched by id, before and apart from "...": glued on in front and
 * aligned to the right, a lane would meet a visible axis wherever operands
 * differ in rank.  A term without "..." carries lanes all the same. */
#include "core/axes.h"

#include <string.h>

static bool misfit(const nb_op *op, const nb_sig *sig, nb_extent a, nb_extent b,
                   int nin, nb_tensor *const *in)
{
    nb_shape x = nb_tensor_shape(in[0]);
    nb_shape y = nb_tensor_shape(in[nin > 1 ? 1 : 0]);
    return nb_fail(NB_EVALUE,
                   "%s: shapes %s and %s do not fit: axis of size %lld meets "
                   "axis of size %lld (%s)",
                   op->name, nb_shape_text(&x), nb_shape_text(&y),
                   (long long)nb_extent_get(a), (long long)nb_extent_get(b),
                   sig->text);
}

static bool room(nb_axes *a, int n)
{
    a->operand = a->few;
    if (n <= (int)(sizeof a->few / sizeof a->few[0])) return true;
    a->operand = nb_alloc((size_t)n * sizeof *a->operand);
    return a->operand;
}

void nb_axes_free(nb_axes *a)
{
    if (a->operand != a->few) nb_free(a->operand);
}

/* The result has the union of the inputs' lanes; one along which no input
 * varies stays thin. */
static bool unite_lanes(nb_axes *a, int nin, nb_tensor *const *in)
{
    nb_shape all = {0};
    for (int i = 0; i < nin; i++)
        for (int l = 0; l < in[i]->nlanes; l++) {
            nb_lane lane = nb_tensor_lane(in[i])[l];
            if (!nb_shape_add_lane(&all, lane)) return false;
            int at = nb_shape_find_lane(&all, lane.id);
            all.lane[at].thin = all.lane[at].thin && lane.thin;
        }
    a->nlanes = all.nlanes;
    memcpy(a->lane, all.lane, sizeof a->lane);
    for (int l = 0; l < a->nlanes; l++)
        a->size[l] = nb_lane_stored(a->lane[l]);
    return true;
}

static int lane_axis(const nb_axes *a, int id)
{
    int l = 0;
    while (a->lane[l].id != id)
        l++;
    return l;
}

static bool check_rank(const nb_op *op, const nb_sig *sig, int i,
                       const nb_tensor *x)
{
    const nb_term *t = &sig->term[i];
    if (x->rank >= t->n && (t->dots || x->rank == t->n)) return true;
    return nb_fail(NB_EVALUE, "%s: input %d has rank %d, %s %d is needed (%s)",
                   op->name, i, x->rank, t->dots ? "at least" : "exactly", t->n,
                   sig->text);
}

/* Visible dims of input i: those behind the dots broadcast, the named ones
 * agree unless their factor lets every operand have its own size. */
static bool align_visible(nb_axes *a, const nb_op *op, const nb_sig *sig, int i,
                          int nin, nb_tensor *const *in)
{
    const nb_tensor *x = in[i];
    const nb_term *t = &sig->term[i];
    nb_operand *o = &a->operand[i];
    int dots = x->rank - t->n;
    for (int d = 0; d < x->rank; d++) {
        nb_extent e = nb_tensor_size(x)[d];
        if (d >= dots && t->dim[d - dots].n != 1) {
            o->axis[o->ndims++] = -1;
            continue;
        }
        int f = d < dots ? -1 : t->dim[d - dots].factor[0];
        int axis = a->nlanes + (d < dots ? a->ndots - dots + d : a->ndots + f);
        nb_extent *size = &a->size[axis];
        o->axis[o->ndims++] = (int16_t)axis;
        if (f >= 0 && sig->factor[f].kind == NB_PERMUTE) continue;
        if (nb_extent_is(*size, -1) || (f < 0 && nb_extent_is(*size, 1)))
            *size = e;
        if (nb_extent_same(*size, e) || (f < 0 && nb_extent_is(e, 1))) continue;
        return misfit(op, sig, *size, e, nin, in);
    }
    return true;
}

static void align_result(nb_axes *a, const nb_sig *sig, int k)
{
    const nb_term *t = &sig->term[sig->nin + k];
    nb_operand *o = &a->operand[a->nin + k];
    *o = (nb_operand){.ncore = t->n};
    for (int l = 0; l < a->nlanes; l++)
        o->axis[o->ndims++] = (int16_t)l;
    for (int p = 0; t->dots && p < a->ndots; p++)
        o->axis[o->ndims++] = (int16_t)(a->nlanes + p);
    for (int d = 0; d < t->n; d++)
        o->axis[o->ndims++] =
            t->dim[d].n == 1
                ? (int16_t)(a->nlanes + a->ndots + t->dim[d].factor[0])
                : -1;
}

bool nb_axes_align(nb_axes *a, const nb_op *op, const nb_sig *sig, int nin,
                   nb_tensor *const *in)
{
    a->nin = nin;
    a->nout = sig->nout;
    a->ndots = 0;
    a->operand = a->few;
    bool scalar = sig->nin == 1 && !sig->term[0].n && !sig->term[0].dots;
    if (nin != sig->nin && !(nin == 0 && scalar))
        return nb_fail(NB_EVALUE, "%s: takes %d operands, not %d (%s)",
                       op->name, sig->nin, nin, sig->text);
    if (sig->nbatches > 1)
        return nb_fail(NB_EVALUE, "%s: ops have one batch, \"...\" (%s)",
                       op->name, sig->text);
    if (!unite_lanes(a, nin, in)) return false;
    for (int i = 0; i < nin; i++) {
        if (!check_rank(op, sig, i, in[i])) return false;
        int dots = in[i]->rank - sig->term[i].n;
        if (dots > a->ndots) a->ndots = dots;
    }
    a->naxes = a->nlanes + a->ndots + sig->nfactors;
    for (int p = a->nlanes; p < a->naxes; p++)
        a->size[p] = nb_extent_of(-1);
    for (int f = 0; f < sig->nfactors; f++)
        if (sig->factor[f].size >= 0)
            a->size[a->nlanes + a->ndots + f] =
                nb_extent_of(sig->factor[f].size);
    if (!room(a, nin + sig->nout)) return false;
    for (int i = 0; i < nin; i++) {
        a->operand[i] = (nb_operand){.ncore = sig->term[i].n};
        for (int l = 0; l < in[i]->nlanes; l++)
            a->operand[i].axis[a->operand[i].ndims++] =
                (int16_t)lane_axis(a, nb_tensor_lane(in[i])[l].id);
        if (align_visible(a, op, sig, i, nin, in)) continue;
        nb_axes_free(a);
        return false;
    }
    for (int k = 0; k < sig->nout; k++)
        align_result(a, sig, k);
    return true;
}

/* The product of a dim's factors; -1 if one is not known. */
static nb_extent dim_extent(const nb_axes *a, const nb_sig *sig,
                            const nb_dim *dim)
{
    nb_extent e = nb_extent_of(1);
    for (int k = 0; k < dim->n; k++) {
        int f = dim->factor[k];
        nb_extent size = a->size[a->nlanes + a->ndots + f];
        if (nb_extent_is(size, -1) || sig->factor[f].kind == NB_PERMUTE ||
            !nb_extent_mul(&e, e, size))
            return nb_extent_of(-1);
    }
    return e;
}

bool nb_axes_result(const nb_axes *a, const nb_sig *sig, int k, nb_shape *out)
{
    const nb_term *t = &sig->term[sig->nin + k];
    int dots = t->dots ? a->ndots : 0;
    out->nlanes = a->nlanes;
    memcpy(out->lane, a->lane, sizeof out->lane);
    out->rank = dots + t->n;
    if (out->rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "a result of rank %d: at most %d (%s)",
                       out->rank, NB_MAX_RANK, sig->text);
    for (int p = 0; p < dots; p++)
        out->size[p] = a->size[a->nlanes + p];
    for (int d = 0; d < t->n; d++)
        out->size[dots + d] = dim_extent(a, sig, &t->dim[d]);
    return true;
}
