/* contract.c - products summed over shared axes, as matrix products.
 *
 * Every axis of the nest belongs to one of: m (first operand and result), n
 * (second and result), k (both operands, summed), batch (all three).  Where one
 * axis each makes m, n and k, the operands are multiplied where they lie; where
 * several do, they are first copied so that each kind is one run.  Integers are
 * left to the general loop. */
#include "backend/ref/product.h"

#include "backend/ref/ref.h"
#include "base/blas.h"
#include "base/pool.h"
#include "core/convert.h"

#include <stdatomic.h>
#include <string.h>

enum { M = NB_KIND_M, N = NB_KIND_N, K = NB_KIND_K, BATCH = NB_KIND_BATCH };

/* A summed axis that one operand is repeated along is a k of stride zero. */
static void classify(nb_product *p)
{
    const nb_loop *l = &p->l;
    for (int i = 0; i < l->naxes; i++) {
        bool a = p->l.stride[0][i], b = p->l.stride[1][i];
        int kind = l->reduced[i] ? K : a && b ? BATCH : b ? N : M;
        p->at[kind][p->n[kind]++] = i;
    }
}

static int64_t extent(const nb_product *p, int kind)
{
    int64_t n = 1;
    for (int i = 0; i < p->n[kind]; i++)
        n *= p->l.size[p->at[kind][i]];
    return n;
}

/* In place: one axis a kind at most, and rows or columns of the result without
 * gaps. */
static bool in_place(const nb_product *p)
{
    int m = p->n[M] ? p->at[M][0] : -1, n = p->n[N] ? p->at[N][0] : -1;
    return p->n[M] <= 1 && p->n[N] <= 1 && p->n[K] <= 1 &&
           (m < 0 || n < 0 || p->l.stride[2][m] == 1 || p->l.stride[2][n] == 1);
}

static int64_t stride_of(const nb_product *p, int t, int kind)
{
    return p->n[kind] ? p->l.stride[t][p->at[kind][0]] : 0;
}

/* C = A B, or C' = B' A' if that is how the result is stored. */
static bool multiply(const nb_product *p, const char *a, const char *b, char *c)
{
    int64_t m = extent(p, M), n = extent(p, N), k = extent(p, K);
    int64_t am = stride_of(p, 0, M), ak = stride_of(p, 0, K);
    int64_t bk = stride_of(p, 1, K), bn = stride_of(p, 1, N);
    int64_t cm = stride_of(p, 2, M), cn = stride_of(p, 2, N);
    if (n == 1 || cn == 1)
        return nb_gemm(p->dtype, m, n, k, a, am, ak, b, bk, bn, c, cm);
    return nb_gemm(p->dtype, n, m, k, b, bn, bk, a, ak, am, c, cn);
}

/* The offsets of one batch point in bytes; false past the last. */
static bool next_batch(const nb_product *p, int64_t *at)
{
    int i = p->n[BATCH] - 1;
    while (i >= 0 && ++at[i] == p->l.size[p->at[BATCH][i]])
        at[i--] = 0;
    return i >= 0;
}

static int64_t batch_offset(const nb_product *p, int t, const int64_t *at)
{
    int64_t o = 0;
    for (int i = 0; i < p->n[BATCH]; i++)
        o += at[i] * p->l.stride[t][p->at[BATCH][i]];
    return o;
}

/* The batch points of a product, in groups that are worth a thread each. */
typedef struct batch {
    const nb_product *p;
    const char *a, *b;
    char *c;
    int64_t points, group;
    atomic_bool failed;
} batch;

static void run_group(void *ctx, int64_t i)
{
    batch *g = ctx;
    const nb_product *p = g->p;
    int64_t at[NB_MAX_DIMS], item = (int64_t)nb_dtype_size(p->dtype);
    int64_t left = g->points - i * g->group, first = i * g->group;
    if (left > g->group) left = g->group;
    for (int j = p->n[BATCH] - 1; j >= 0; j--) {
        at[j] = first % p->l.size[p->at[BATCH][j]];
        first /= p->l.size[p->at[BATCH][j]];
    }
    for (; left > 0 && !g->failed; left--) {
        if (!multiply(p, g->a + item * batch_offset(p, 0, at),
                      g->b + item * batch_offset(p, 1, at),
                      g->c + item * batch_offset(p, 2, at)))
            g->failed = true;
        next_batch(p, at);
    }
}

/* Small products are shared out in groups; large ones are made one by one,
 * each by all threads. */
static bool run_in_place(const nb_product *p, const char *a, const char *b,
                         char *c)
{
    enum { GROUP = 20000, LARGE = 50000 }; /* nanoseconds */
    batch g = {p, a, b, c, extent(p, BATCH), 1, false};
    if (g.points == 1) return multiply(p, a, b, c);
    double cost =
        nb_gemm_cost(p->dtype, extent(p, M), extent(p, N), extent(p, K));
    if (cost >= LARGE)
        g.group = g.points;
    else if (cost < GROUP)
        g.group = (int64_t)(GROUP / cost);
    nb_parallel_if(cost * (double)g.points, (g.points + g.group - 1) / g.group,
                   run_group, &g);
    return !g.failed;
}

/* Copies between operand t and a packed array whose axes are those of the two
 * kinds in turn; `out` says which way. */
static void copy_block(const nb_product *p, int t, int first, int second,
                       char *operand, char *packed, bool out)
{
    nb_dtype d = p->dtype;
    int axis[NB_MAX_DIMS], n = 0;
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(d);
    for (int i = 0; i < p->n[first]; i++)
        axis[n++] = p->at[first][i];
    for (int i = 0; i < p->n[second]; i++)
        axis[n++] = p->at[second][i];
    int64_t row = n ? p->l.size[axis[n - 1]] : 1;
    int64_t step = n ? p->l.stride[t][axis[n - 1]] : 1;
    for (;;) {
        int64_t o = 0;
        for (int i = 0; i < n - 1; i++)
            o += at[i] * p->l.stride[t][axis[i]];
        char *there = operand + o * item;
        if (out)
            nb_convert(there, d, step, packed, d, 1, row);
        else
            nb_convert(packed, d, 1, there, d, step, row);
        packed += row * item;
        int i = n - 2;
        while (i >= 0 && ++at[i] == p->l.size[axis[i]])
            at[i--] = 0;
        if (i < 0) return;
    }
}

static bool run_packed(const nb_product *p, const char *a, const char *b,
                       char *c)
{
    int64_t m = extent(p, M), n = extent(p, N), k = extent(p, K);
    int64_t at[NB_MAX_DIMS] = {0}, item = (int64_t)nb_dtype_size(p->dtype);
    char *room = nb_alloc((size_t)((m * k + k * n + m * n) * item));
    char *pa = room, *pb = pa + m * k * item, *pc = pb + k * n * item;
    bool ok = room;
    while (ok) {
        copy_block(p, 0, M, K, (char *)a + item * batch_offset(p, 0, at), pa,
                   false);
        copy_block(p, 1, K, N, (char *)b + item * batch_offset(p, 1, at), pb,
                   false);
        ok = nb_gemm(p->dtype, m, n, k, pa, k, 1, pb, n, 1, pc, n);
        if (ok)
            copy_block(p, 2, M, N, c + item * batch_offset(p, 2, at), pc, true);
        if (!next_batch(p, at)) break;
    }
    nb_free(room);
    return ok;
}

bool nb_product_plan(nb_product *p, const nb_call *c, const nb_tensor *y,
                     bool *fits)
{
    *fits = false;
    memset(p->n, 0, sizeof p->n);
    p->dtype = (nb_dtype)y->dtype;
    if (!nb_dtype_is_float(p->dtype)) return true;
    if (c->op->scalar != NB_S_mul || c->nin != 2 || c->sig->pointwise ||
        c->op->reduce != NB_SUM)
        return true;
    if (!nb_loop_build(&p->l, c, y)) return false;
    *fits = !p->l.empty;
    classify(p);
    p->in_place = in_place(p);
    return true;
}

bool nb_product_run(const nb_product *p, const char *a, const char *b, char *c)
{
    return p->in_place ? run_in_place(p, a, b, c) : run_packed(p, a, b, c);
}

bool nb_ref_contract(const nb_call *c, nb_tensor *y, char *to, bool *done)
{
    nb_product p;
    if (!nb_product_plan(&p, c, y, done)) return false;
    return !*done || nb_product_run(&p, c->in[0]->data, c->in[1]->data, to);
}
