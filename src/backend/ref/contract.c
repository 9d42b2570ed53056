/* contract.c - products summed over shared axes, as matrix products.
 *
 * Every axis of the nest belongs to one of: m (first operand and result), n
 * (second and result), k (both operands, summed), batch (all three).  The
 * longest axis of each of m, n, k makes the matrices, the others are looped
 * over.  Anything else (integers, an axis of one operand alone that is summed)
 * is left to the general loop. */
#include "lower/loop.h"

#include "backend/ref/ref.h"
#include "base/blas.h"
#include "core/convert.h"

#include <string.h>

typedef struct product {
    int64_t n[3], a[3], b[3], c[3]; /* sizes and strides of m, n, k */
} product;

enum { M, N, K };

static int role(const nb_loop *l, int axis)
{
    bool a = l->stride[0][axis], b = l->stride[1][axis];
    if (l->reduced[axis]) return a && b ? K : -1;
    return a && !b ? M : b && !a ? N : -2;
}

/* Picks the axes of the matrices; false if some axis fits no role. */
static bool classify(const nb_loop *l, int pick[3])
{
    pick[M] = pick[N] = pick[K] = -1;
    for (int i = l->naxes - 1; i >= 0; i--) {
        int r = role(l, i);
        if (r == -1) return false;
        if (r < 0) continue;
        bool better = pick[r] < 0 || l->size[i] > l->size[pick[r]];
        /* the result wants a unit stride in n or in m */
        if (r != K && pick[r] >= 0 && l->stride[2][pick[r]] == 1)
            better = false;
        if (better) pick[r] = i;
    }
    int m = pick[M], n = pick[N];
    bool unit = n < 0 || m < 0 || l->stride[2][n] == 1 || l->stride[2][m] == 1;
    return unit;
}

static void matrices(const nb_loop *l, const int pick[3], product *p)
{
    for (int r = 0; r < 3; r++) {
        int i = pick[r];
        p->n[r] = i < 0 ? 1 : l->size[i];
        p->a[r] = i < 0 ? 0 : l->stride[0][i];
        p->b[r] = i < 0 ? 0 : l->stride[1][i];
        p->c[r] = i < 0 ? 0 : l->stride[2][i];
    }
}

/* C = A B, or C' = B' A' if that is how the result is stored. */
static bool multiply(nb_dtype d, const product *p, const char *a,
                     const char *b, char *c)
{
    bool rows = p->n[N] == 1 || p->c[N] == 1;
    if (rows)
        return nb_gemm(d, p->n[M], p->n[N], p->n[K], a, p->a[M], p->a[K], b,
                       p->b[K], p->b[N], c, p->c[M]);
    return nb_gemm(d, p->n[N], p->n[M], p->n[K], b, p->b[N], p->b[K], a,
                   p->a[K], p->a[M], c, p->c[N]);
}

/* Summed axes beyond the one of the matrices would need adding up; they are
 * rare after merging, and left to the general loop. */
static bool one_k(const nb_loop *l, const int pick[3])
{
    for (int i = 0; i < l->naxes; i++)
        if (l->reduced[i] && i != pick[K]) return false;
    return true;
}

static bool run(const nb_loop *l, const int pick[3], nb_dtype d,
                const char *a, const char *b, char *c)
{
    product p;
    int axis[NB_MAX_DIMS], n = 0;
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(d);
    matrices(l, pick, &p);
    for (int i = 0; i < l->naxes; i++)
        if (i != pick[M] && i != pick[N] && i != pick[K]) axis[n++] = i;
    for (;;) {
        int64_t o[3] = {0, 0, 0};
        for (int i = 0; i < n; i++)
            for (int t = 0; t < 3; t++)
                o[t] += at[i] * l->stride[t][axis[i]] * item;
        if (!multiply(d, &p, a + o[0], b + o[1], c + o[2])) return false;
        int i = n - 1;
        while (i >= 0 && ++at[i] == l->size[axis[i]])
            at[i--] = 0;
        if (i < 0) return true;
    }
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
    int pick[3];
    nb_dtype d = (nb_dtype)y->dtype;
    if (!nb_dtype_is_float(d) || c->op->reduce != NB_SUM) return true;
    if (d == NB_F16 || d == NB_BF16) return half_product(c, y, to, done);
    if (!nb_loop_build(&l, c, y)) return false;
    if (l.empty || !classify(&l, pick) || !one_k(&l, pick)) return true;
    *done = true;
    return run(&l, pick, d, c->in[0]->data, c->in[1]->data, to);
}
