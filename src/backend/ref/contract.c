/* contract.c - products summed over shared axes, as matrix products.
 *
 * Every axis of the nest belongs to one of: m (first operand and result), n
 * (second and result), k (both operands, summed), batch (all three).  Where one
 * axis each makes m, n and k, the operands are multiplied where they lie; where
 * several do, they are first copied so that each kind is one run.  Anything else
 * (integers, an axis of one operand alone that is summed) is left to the general
 * loop. */
#include "lower/loop.h"

#include "backend/ref/ref.h"
#include "base/blas.h"
#include "core/convert.h"

#include <string.h>

enum { M, N, K, BATCH, NKINDS };

/* The axes of the nest by kind, outermost first. */
typedef struct axes {
    int n[NKINDS], at[NKINDS][NB_MAX_DIMS];
} axes;

static bool classify(const nb_loop *l, axes *x)
{
    *x = (axes){0};
    for (int i = 0; i < l->naxes; i++) {
        bool a = l->stride[0][i], b = l->stride[1][i];
        int kind = l->reduced[i] ? K : a && b ? BATCH : b ? N : M;
        if (l->reduced[i] && !(a && b)) return false;
        x->at[kind][x->n[kind]++] = i;
    }
    return true;
}

static int64_t extent(const nb_loop *l, const axes *x, int kind)
{
    int64_t n = 1;
    for (int i = 0; i < x->n[kind]; i++)
        n *= l->size[x->at[kind][i]];
    return n;
}

/* In place: one axis a kind at most, and rows or columns of the result without
 * gaps. */
static bool in_place(const nb_loop *l, const axes *x)
{
    int m = x->n[M] ? x->at[M][0] : -1, n = x->n[N] ? x->at[N][0] : -1;
    return x->n[M] <= 1 && x->n[N] <= 1 && x->n[K] <= 1 &&
           (m < 0 || n < 0 || l->stride[2][m] == 1 || l->stride[2][n] == 1);
}

static int64_t stride_of(const nb_loop *l, const axes *x, int t, int kind)
{
    return x->n[kind] ? l->stride[t][x->at[kind][0]] : 0;
}

/* C = A B, or C' = B' A' if that is how the result is stored. */
static bool multiply(nb_dtype d, const nb_loop *l, const axes *x, const char *a,
                     const char *b, char *c)
{
    int64_t m = extent(l, x, M), n = extent(l, x, N), k = extent(l, x, K);
    int64_t am = stride_of(l, x, 0, M), ak = stride_of(l, x, 0, K);
    int64_t bk = stride_of(l, x, 1, K), bn = stride_of(l, x, 1, N);
    int64_t cm = stride_of(l, x, 2, M), cn = stride_of(l, x, 2, N);
    if (n == 1 || cn == 1)
        return nb_gemm(d, m, n, k, a, am, ak, b, bk, bn, c, cm);
    return nb_gemm(d, n, m, k, b, bn, bk, a, ak, am, c, cn);
}

/* The offsets of one batch point in bytes; false past the last. */
static bool next_batch(const nb_loop *l, const axes *x, int64_t *at)
{
    int i = x->n[BATCH] - 1;
    while (i >= 0 && ++at[i] == l->size[x->at[BATCH][i]])
        at[i--] = 0;
    return i >= 0;
}

static int64_t batch_offset(const nb_loop *l, const axes *x, int t,
                            const int64_t *at)
{
    int64_t o = 0;
    for (int i = 0; i < x->n[BATCH]; i++)
        o += at[i] * l->stride[t][x->at[BATCH][i]];
    return o;
}

static bool run_in_place(const nb_loop *l, const axes *x, nb_dtype d,
                         const char *a, const char *b, char *c)
{
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(d);
    do {
        if (!multiply(d, l, x, a + item * batch_offset(l, x, 0, at),
                      b + item * batch_offset(l, x, 1, at),
                      c + item * batch_offset(l, x, 2, at)))
            return false;
    } while (next_batch(l, x, at));
    return true;
}

/* Copies between operand t and a packed array whose axes are those of the two
 * kinds in turn; `out` says which way. */
static void copy_block(const nb_loop *l, const axes *x, nb_dtype d, int t,
                       int first, int second, char *operand, char *packed,
                       bool out)
{
    int axis[NB_MAX_DIMS], n = 0;
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(d);
    for (int i = 0; i < x->n[first]; i++)
        axis[n++] = x->at[first][i];
    for (int i = 0; i < x->n[second]; i++)
        axis[n++] = x->at[second][i];
    int64_t row = n ? l->size[axis[n - 1]] : 1;
    int64_t step = n ? l->stride[t][axis[n - 1]] : 1;
    for (;;) {
        int64_t o = 0;
        for (int i = 0; i < n - 1; i++)
            o += at[i] * l->stride[t][axis[i]];
        char *there = operand + o * item;
        if (out)
            nb_convert(there, d, step, packed, d, 1, row);
        else
            nb_convert(packed, d, 1, there, d, step, row);
        packed += row * item;
        int i = n - 2;
        while (i >= 0 && ++at[i] == l->size[axis[i]])
            at[i--] = 0;
        if (i < 0) return;
    }
}

static bool run_packed(const nb_loop *l, const axes *x, nb_dtype d, char *a,
                       char *b, char *c)
{
    int64_t m = extent(l, x, M), n = extent(l, x, N), k = extent(l, x, K);
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(d);
    char *room = nb_alloc((size_t)((m * k + k * n + m * n) * item));
    char *pa = room, *pb = pa + m * k * item, *pc = pb + k * n * item;
    bool ok = room;
    while (ok) {
        copy_block(l, x, d, 0, M, K, a + item * batch_offset(l, x, 0, at), pa,
                   false);
        copy_block(l, x, d, 1, K, N, b + item * batch_offset(l, x, 1, at), pb,
                   false);
        ok = nb_gemm(d, m, n, k, pa, k, 1, pb, n, 1, pc, n);
        if (ok)
            copy_block(l, x, d, 2, M, N, c + item * batch_offset(l, x, 2, at),
                       pc, true);
        if (!next_batch(l, x, at)) break;
    }
    nb_free(room);
    return ok;
}

/* 16-bit floats multiply in float32: a packed copy of an operand. */
static nb_tensor *widened(nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    int64_t n, size[NB_MAX_DIMS], stride[NB_MAX_DIMS], at[NB_MAX_DIMS] = {0};
    nb_shape_count(&s, &n);
    nb_buffer *b = nb_buffer_new((size_t)n * 4);
    nb_tensor *y = nb_leaf_new(NB_F32, &s, b, b ? b->data : NULL, NULL);
    nb_buffer_drop(b);
    if (!y || n == 0) return y;
    int nd = nb_tensor_strides(x, size, stride);
    int64_t row = nd ? size[nd - 1] : 1, step = nd ? stride[nd - 1] : 1;
    for (int64_t done = 0; done < n; done += row) {
        int64_t o = 0;
        for (int d = 0; d < nd - 1; d++)
            o += at[d] * stride[d];
        nb_convert(y->data + done * 4, NB_F32, 1, x->data + o * 2,
                   (nb_dtype)x->dtype, step, row);
        for (int d = nd - 2; d >= 0 && ++at[d] == size[d]; d--)
            at[d] = 0;
    }
    return y;
}

static bool half_product(const nb_call *c, nb_tensor *y, char *to, bool *done)
{
    nb_shape s = nb_tensor_shape(y);
    int64_t n;
    nb_shape_count(&s, &n);
    if (nb_scope_open() != NB_OK) return false;
    nb_tensor *in[2] = {widened(c->in[0]), widened(c->in[1])};
    nb_call wide = *c;
    wide.in = in;
    nb_tensor *z = nb_node_new(NULL, NULL, NB_F32, &s, 0, NULL, 0, NULL);
    char *acc = in[0] && in[1] && z ? nb_alloc((size_t)n * 4) : NULL;
    bool ok = acc && nb_ref_contract(&wide, z, acc, done);
    if (ok && *done) nb_convert(to, (nb_dtype)y->dtype, 1, acc, NB_F32, 1, n);
    nb_free(acc);
    nb_scope_close(0, NULL);
    return ok;
}

bool nb_ref_contract(const nb_call *c, nb_tensor *y, char *to, bool *done)
{
    nb_loop l;
    axes x;
    nb_dtype d = (nb_dtype)y->dtype;
    if (!nb_dtype_is_float(d) || c->op->reduce != NB_SUM) return true;
    if (d == NB_F16 || d == NB_BF16) return half_product(c, y, to, done);
    if (!nb_loop_build(&l, c, y)) return false;
    if (l.empty || !classify(&l, &x)) return true;
    *done = true;
    return in_place(&l, &x)
               ? run_in_place(&l, &x, d, c->in[0]->data, c->in[1]->data, to)
               : run_packed(&l, &x, d, c->in[0]->data, c->in[1]->data, to);
}
