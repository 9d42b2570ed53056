/* test_jacobian.c - jacobians keep to their budget: what they need is counted
 * before it is computed, and pieces make the whole. */
#include "support/check.h"
#include "support/there.h"

#include "base/memory.h"
#include "core/graph.h"
#include "transform/func.h"

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

/* The sum of 1 / r over pairs of points: n * n things in between for n in. */
static nb_tensor *energy(nb_tensor *x)
{
    int64_t n = nb_size(x, 0);
    nb_tensor *d = nb_sub(nb_reshape(x, 3, (int64_t[]){n, 1, 3}),
                          nb_reshape(x, 3, (int64_t[]){1, n, 3}));
    nb_tensor *r2 = nb_reduce_sum(nb_square(d), 1, (int64_t[]){-1}, false);
    return total(nb_rsqrt(nb_add(r2, nb_eye(n, n, 0, NB_F64))));
}
FN(pairs, energy(x[0]))
FN(force, nb_mul(nb_sin(x[0]), total(nb_square(x[0]))))

/* The same in a checkpoint and in a loop, of which only the ops are seen. */
FN(pairs_again,
   nb_func_call1(nb_checkpoint(nb_func_new(pairs, NULL), NULL), 1, x))

static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], nb_mul(nb_num(0.01), nb_sin(x[0])));
    y[1] = energy(y[0]);
    return *ny = 2, NB_OK;
}

static nb_tensor *rolled(nb_tensor *x)
{
    nb_tensor *y[2];
    int n = 2;
    return nb_scan(nb_func_new(step, NULL), 1, &x, 0, NULL, 3, false, &n, y) ==
                   NB_OK
               ? total(y[1])
               : NULL;
}
FN(pairs_rolled, rolled(x[0]))

enum { POINTS = 32, SIDE = 3 * POINTS, RESULT = SIDE * SIDE * 8 };

static nb_tensor *points(void)
{
    nb_tensor *x = draw(2, (int64_t[]){POINTS, 3}, 0, 1);
    return nb_realize(x) == NB_OK ? x : NULL;
}

/* f at x, computed, and the most bytes that took. */
static nb_tensor *within(nb_func *f, nb_tensor *x, size_t budget, size_t *most)
{
    size_t usual = nb_jacobian_budget();
    nb_jacobian_budget_set(budget);
    there_peak_reset();
    size_t before = there_bytes();
    nb_tensor *y = nb_func_call1(f, 1, &x);
    bool ok = y && nb_realize(y) == NB_OK;
    *most = there_peak() - before;
    nb_jacobian_budget_set(usual);
    return ok ? y : NULL;
}

/* Ever less memory, down to about what one row needs. */
static void budgets(void)
{
    static const struct {
        const char *name;
        nb_body *f;
    } all[] = {{"pairs", pairs},
               {"pairs in a checkpoint", pairs_again},
               {"pairs in a loop", pairs_rolled}};
    for (int i = 0; i < 3; i++) {
        nb_scope_open();
        nb_tensor *x = points();
        nb_func *h = nb_hessian(nb_func_new(all[i].f, NULL), 0);
        size_t most, whole;
        nb_tensor *y = within(h, x, (size_t)1 << 40, &whole);
        expect(y && whole > 40 * RESULT, "%s at once need %zu", all[i].name,
               whole);
        for (size_t budget = whole; budget > 16 * RESULT; budget /= 2) {
            nb_scope_open();
            nb_tensor *z = within(h, x, budget, &most);
            expect(z && near(z, y, 1e-12), "%s in pieces", all[i].name);
            expect(most <= budget, "%s take %zu of %zu bytes", all[i].name,
                   most, budget);
            nb_scope_close(0, NULL);
        }
        nb_scope_close(0, NULL);
    }
}

/* Row by row: the result, what the tape holds, and the row. */
static void least(void)
{
    size_t most;
    nb_func *f = nb_func_new(pairs, NULL);
    nb_tensor *h = within(nb_hessian(f, 0), points(), 1, &most);
    expect(h && most < 6 * RESULT,
           "a Hessian row by row needs %zu bytes for "
           "%d of result",
           most, RESULT);
    expect(h && nb_is_leaf(h), "which is put together as it is computed");
}

/* Pieces that are differentiated further stay on the outer tape. */
static void further(void)
{
    size_t most;
    nb_tensor *x = draw(1, (int64_t[]){4}, 0.2, 1);
    nb_func *f = nb_func_new(force, NULL);
    nb_func *all[] = {
        nb_jacrev(nb_jacrev(f, 0), 0), nb_jacfwd(nb_jacfwd(f, 0), 0),
        nb_jacrev(nb_jacfwd(f, 0), 0), nb_jacfwd(nb_jacrev(f, 0), 0)};
    nb_tensor *y = within(all[0], x, (size_t)1 << 30, &most);
    for (int i = 0; i < 4; i++)
        expect(y && near(within(all[i], x, 1, &most), y, 1e-12),
               "a jacobian of a jacobian row by row (%d)", i);
}

/* Inside a loop nothing can be computed yet, so nothing is cut. */
static nb_status slope_step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *j = nb_func_call1(nb_jacrev(nb_func_new(force, NULL), 0), 1, x);
    (void)ctx, (void)nx;
    y[0] = j ? nb_matmul(j, x[0]) : NULL;
    return *ny = 1, NB_OK;
}
static nb_tensor *slopes(nb_tensor *x)
{
    nb_tensor *y;
    int n = 1;
    return nb_scan(nb_func_new(slope_step, NULL), 1, &x, 0, NULL, 2, false, &n,
                   &y) == NB_OK
               ? y
               : NULL;
}
FN(in_a_loop, slopes(x[0]))

static void loops(void)
{
    size_t most;
    nb_tensor *x = draw(1, (int64_t[]){4}, 0.2, 0.4);
    nb_func *f = nb_func_new(in_a_loop, NULL);
    nb_tensor *y = within(f, x, (size_t)1 << 30, &most);
    expect(y && near(within(f, x, 1, &most), y, 1e-12),
           "a jacobian in a loop is not cut");
}

/* Several blocks by hand. */
static void blocks(void)
{
    nb_tensor *x[] = {VEC(1, 2), VEC(3, 4, 5)}, *in[2], *j[2];
    for (int rows = 0; rows < 3; rows++) {
        nb_tape *t = nb_tape_open(2, x, in);
        nb_tensor *y[] = {nb_mul(in[0], total(in[1])), nb_square(in[1])};
        expect(nb_tape_close(t, 2, y) == NB_OK, "two results of two");
        expect(nb_tape_jacobian(t, true, 0, rows, j) == NB_OK, "back");
        SAYS("the first by the first", j[0], 12, 0, 0, 12);
        SAYS("and by the second", j[1], 1, 1, 1, 2, 2, 2);
        expect(nb_tape_jacobian(t, false, 1, rows, j) == NB_OK, "forward");
        SAYS("the first by the second", j[0], 1, 1, 1, 2, 2, 2);
        SAYS("the second by the second", j[1], 6, 0, 0, 0, 8, 0, 0, 0, 10);
        expect(nb_tape_jacobian(t, true, 2, rows, j) != NB_OK &&
                   failed_with(NB_EVALUE, "none is 2"),
               "there is no third");
        nb_tape_drop(t);
    }
}

int main(void)
{
    there_open();
    static void (*const all[])(void) = {budgets, least, further, loops, blocks};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        nb_scope_open();
        all[i]();
        nb_scope_close(0, NULL);
    }
    nb_caches_clear();
    expect(nb_nodes_live() == 0, "no node is left");
    return tally();
}
