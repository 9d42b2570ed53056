/* test_points.c - what ops do at a point: places, picks, random words in loops.
 *
 * Every program is compiled and run with NABLA_CHECK's comparison on: what
 * differs from its ops run one by one is an error.  Integers must be equal.
 * Sizes are those around vectors of any machine. */
#include "support/check.h"
#include "support/there.h"

#include "backend/cpu/llvm.h"
#include "core/apply.h"
#include "nabla/nabla.h"
#include "ops/index.h"
#include "ops/random.h"
#include "ops/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {0,  1,  2,  3,  5,  8,  15,  16,  17,
                                31, 33, 64, 65, 67, 99, 128, 4103};
enum { NSIZES = sizeof sizes / sizeof sizes[0] };

/* Compiles the function and runs it; says how many steps it has, and how many
 * of these are calls.  False if it differs from its ops. */
static bool runs(nb_body *fn, void *ctx, int nx, nb_tensor **x, int *steps,
                 int *calls)
{
    nb_executable *e = NULL;
    nb_tensor *y[4];
    int ny = 4, loops = 0;
    bool ok = nb_executable_new(nb_func_new(fn, ctx), nx, x, &e) == NB_OK &&
              nb_executable_run(e, nx, x, &ny, y) == NB_OK;
    if (ok) *steps = nb_executable_steps(e, &loops);
    if (ok) *calls = *steps - loops;
    if (!ok) printf("%s\n", nb_error_message());
    nb_error_clear();
    nb_executable_drop(e);
    return ok;
}

/* It runs without calls; in so many steps, if that is not 0. */
static void fused(const char *what, nb_body *fn, void *ctx, int nx,
                  nb_tensor **x, int want)
{
    int steps = 0, calls = 0;
    if (!there_takes()) return;
    expect(runs(fn, ctx, nx, x, &steps, &calls), "%s is right", what);
    expect(calls == 0, "%s has %d calls", what, calls);
    expect(!want || steps == want, "%s has %d steps, not %d", what, steps,
           want);
}

static nb_tensor *numbers(nb_dtype d, int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= size[i];
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)(i * 37 % 101) + 1;
    nb_tensor *x = nb_cast(given(NB_F64, rank, size, v), d);
    free(v);
    return x;
}
#define SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }

/* Random words */

typedef struct word_draw {
    int rank;
    int64_t size[2];
    nb_dtype d;
    uint64_t below;
} word_draw;

static nb_status draws(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    const word_draw *d = ctx;
    nb_extents s = {d->rank, d->size};
    y[0] = nb_draw_bits(x[0], s, d->d, d->below, NB_SECOND);
    /* A row that is added keeps the axes apart. */
    if (nx > 1) y[0] = nb_add(y[0], nb_cast(x[1], d->d));
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static void words_are_those_of_the_kernel(void)
{
    nb_tensor *x[2] = {nb_random_key(77)};
    word_draw kinds[] = {{.d = NB_U32},
                         {.d = NB_U64},
                         {.d = NB_U64, .below = 1000},
                         {.d = NB_U64, .below = 0x9e3779b97f4a7c15}};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < NSIZES; i++) {
            word_draw d = kinds[k];
            d.rank = 1;
            d.size[0] = sizes[i];
            fused("a row of words", draws, &d, 1, x, 1);
            d = kinds[k];
            d.rank = 2;
            d.size[0] = 3;
            d.size[1] = sizes[i];
            x[1] = numbers(NB_U32, SHAPE(sizes[i]));
            fused("rows of words", draws, &d, 2, x, 0);
        }
}

static nb_status drop_out(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *u = nb_random_uniform(x[0], SHAPE(50, 67), 0, 1, NB_F32);
    y[0] = nb_where(nb_less(u, nb_num(0.5)), x[1], nb_num(0));
    return *ny = 1, NB_OK;
}

static nb_status normal_sum(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_reduce_sum(nb_random_normal(x[0], SHAPE(50, 67), 2, 3, NB_F32), 1,
                         (int64_t[]){1}, false);
    return *ny = 1, NB_OK;
}

static nb_status ramp(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const int *d = ctx;
    (void)nx;
    nb_tensor *i = nb_iota(nb_size(x[0], 0), (nb_dtype)*d);
    y[0] = nb_add(nb_cast(i, NB_F32), x[0]);
    return *ny = 1, NB_OK;
}

static void numbers_stay_in_registers(void)
{
    nb_tensor *x[] = {nb_random_key(5), numbers(NB_F32, SHAPE(50, 67))};
    fused("dropout", drop_out, NULL, 2, x, 1);
    fused("a sum of normal numbers", normal_sum, NULL, 1, x, 1);
    for (int d = NB_BOOL; d <= NB_F64; d++)
        for (int i = 0; i < NSIZES; i += 3) {
            nb_tensor *v = numbers(NB_F32, SHAPE(sizes[i]));
            fused("iota", ramp, &d, 1, &v, 1);
        }
}

/* Picks */

typedef struct reading {
    int n;
    int64_t axes[2], at;
    bool clamp;
} reading;

static nb_status reads(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    const reading *r = ctx;
    nb_pick p = {r->n, x + 1, r->axes, r->at, r->clamp};
    (void)nx;
    y[0] = nb_index(x[0], &p);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

/* In range, negative, and out of range on both sides. */
static nb_tensor *indices(nb_dtype d, int rank, const int64_t *size)
{
    static const double some[] = {0, 4, -1, 2, -7, 9, 3, -2, 127, 1, -5, 6};
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= size[i];
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = some[i * 5 % 12];
        if (v[i] < 0 && nb_dtype_is_unsigned(d)) v[i] = -v[i];
    }
    nb_tensor *x = nb_cast(given(NB_F64, rank, size, v), d);
    free(v);
    return x;
}

static const reading kinds[] = {{1, {0}, 0, true},    {1, {0}, 0, false},
                                {1, {1}, 1, true},    {1, {1}, 0, false},
                                {2, {0, 1}, 0, true}, {2, {0, 1}, 0, false}};

static void picks_are_those_of_the_kernel(void)
{
    for (int d = NB_BOOL; d <= NB_F64; d++)
        for (int k = 0; k < 6; k++) {
            nb_tensor *x[] = {numbers((nb_dtype)d, SHAPE(5, 6)),
                              indices(NB_I64, SHAPE(3, 23)),
                              indices(NB_I32, SHAPE(3, 23))};
            fused("index", reads, (void *)&kinds[k], 1 + kinds[k].n, x, 1);
        }
    for (int d = NB_I8; d <= NB_U64; d++)
        for (int i = 0; i < NSIZES; i++) {
            nb_tensor *x[] = {numbers(NB_F32, SHAPE(5, sizes[i])),
                              indices((nb_dtype)d, SHAPE(17))};
            fused("rows of a table", reads, (void *)&kinds[i % 2], 2, x, 1);
            x[0] = numbers(NB_F32, SHAPE(7, 5));
            x[1] = indices((nb_dtype)d, SHAPE(sizes[i]));
            fused("columns of a table", reads, (void *)&kinds[2 + i % 2], 2, x,
                  1);
        }
}

static void indices_that_name_nothing_read_zero(void)
{
    uint64_t far[] = {UINT64_MAX, (uint64_t)1 << 63, 1};
    nb_tensor *x[] = {numbers(NB_F32, SHAPE(5, 6)),
                      given(NB_U64, SHAPE(3), far)};
    fused("indices beyond int64", reads, (void *)&kinds[0], 2, x, 1);
    fused("and dropped", reads, (void *)&kinds[1], 2, x, 1);
    nb_tensor *y[] = {numbers(NB_F32, SHAPE(0, 6)), indices(NB_I64, SHAPE(4))};
    fused("a table without rows", reads, (void *)&kinds[1], 2, y, 1);
    nb_tensor *z[] = {numbers(NB_F32, SHAPE(5, 6)), indices(NB_I64, SHAPE(0))};
    fused("no indices", reads, (void *)&kinds[0], 2, z, 1);
}

/* Tables and what is placed may run backwards in memory. */
static nb_status back_reads(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const reading *r = ctx;
    nb_pick p = {r->n, x + 1, r->axes, r->at, r->clamp};
    nb_tensor *back = nb_flip(x[0], -1, NULL);
    (void)nx;
    nb_tensor *list = nb_flip(nb_index(back, &p), -1, NULL);
    y[0] = nb_place(&nb_op_index_add, back, list, &p);
    y[1] = nb_index(back, &p);
    return *ny = 2, y[1] ? NB_OK : nb_error_code();
}

static void tables_may_be_read_backwards(void)
{
    for (int k = 0; k < 6; k++) {
        nb_tensor *x[] = {numbers(NB_F32, SHAPE(5, 6)),
                          indices(NB_I64, SHAPE(3, 23)),
                          indices(NB_I32, SHAPE(3, 23))};
        int steps, calls, n = 1 + kinds[k].n;
        expect(runs(back_reads, (void *)&kinds[k], n, x, &steps, &calls),
               "a table read backwards is right");
    }
    nb_pick p = {
        1, (nb_tensor *[]){given(NB_I64, SHAPE(3), (int64_t[]){2, 0, -1})},
        (int64_t[]){0}, 0, true};
    nb_tensor *x = given(NB_F32, SHAPE(3), (float[]){1, 2, 3});
    SAYS("as is one that is small", nb_index(nb_flip(x, -1, NULL), &p), 1, 3,
         1);
}

static nb_status lookup(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *i = nb_add(x[1], nb_cast(nb_num(1), NB_I64));
    nb_tensor *e = nb_gather(nb_sin(x[0]), i, 0);
    y[0] = nb_reduce_sum(nb_mul(e, e), 1, (int64_t[]){-1}, false);
    return *ny = 1, NB_OK;
}

static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *p = nb_take_along_axis(nb_logsoftmax(x[0], -1), x[1], -1);
    y[0] = nb_reduce_sum(p, -1, NULL, false);
    return *ny = 1, NB_OK;
}

static nb_status loss_grad(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    (void)ctx;
    nb_func *g = nb_grad(nb_func_new(loss, NULL), 1, (int[]){0});
    return nb_func_call(g, nx, x, ny, y);
}

static void picks_fuse(void)
{
    nb_tensor *x[] = {numbers(NB_F32, SHAPE(40, 65)),
                      indices(NB_I64, SHAPE(33))};
    fused("a lookup with what is before and after it", lookup, NULL, 2, x, 2);
    nb_tensor *z[] = {numbers(NB_F32, SHAPE(40, 65)),
                      indices(NB_I64, SHAPE(40, 1))};
    fused("a loss", loss, NULL, 2, z, 2);
    fused("its gradient", loss_grad, NULL, 2, z, 1);
}

/* Windows */

typedef struct window {
    int64_t start[2], size[2], step[2];
} window;

static nb_status embeds(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const window *w = ctx;
    (void)nx;
    y[0] = nb_embed(x[0], w->start, w->size, w->step);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static nb_status updates(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const window *w = ctx;
    (void)nx;
    y[0] = nb_update(nb_neg(x[1]), x[0], w->start, w->step);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static void windows_are_those_of_the_kernel(void)
{
    static const struct {
        int64_t n[2];
        window w;
    } some[] = {
        {{3, 17}, {{0, 0}, {3, 17}, {1, 1}}},
        {{3, 17}, {{1, 5}, {6, 40}, {1, 1}}},
        {{3, 17}, {{2, 33}, {6, 40}, {1, -1}}},
        {{3, 17}, {{0, 1}, {9, 40}, {3, 2}}},
        {{3, 17}, {{8, 39}, {9, 40}, {-4, -2}}},
        {{3, 70}, {{4, 0}, {7, 77}, {1, 1}}},
        {{1, 1}, {{4, 3}, {7, 5}, {1, 1}}},
        {{0, 17}, {{0, 0}, {4, 40}, {1, 1}}},
        {{3, 0}, {{0, 0}, {3, 5}, {1, 1}}},
    };
    for (size_t k = 0; k < sizeof some / sizeof some[0]; k++)
        for (int d = NB_BOOL; d <= NB_F64; d++) {
            window w = some[k].w;
            nb_tensor *x[] = {numbers((nb_dtype)d, 2, some[k].n),
                              numbers((nb_dtype)d, 2, w.size)};
            fused("embed", embeds, &w, 1, x, 1);
            if (d != NB_BOOL) fused("update", updates, &w, 2, x, 1);
        }
}

static nb_status joins(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    const int64_t *axis = ctx;
    y[0] = nb_add(nb_concatenate(nx, x, *axis), nb_concatenate(nx, x, *axis));
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static void joints_are_those_of_the_kernel(void)
{
    static const int64_t parts[] = {5, 1, 0, 16, 33, 7, 64, 3};
    for (int64_t axis = 0; axis < 2; axis++)
        for (int n = 1; n <= 8; n++) {
            nb_tensor *x[8];
            for (int i = 0; i < n; i++) {
                int64_t size[2] = {9, 9};
                size[axis] = parts[i];
                x[i] = numbers(n % 2 ? NB_F32 : NB_I8, 2, size);
            }
            fused("concatenate", joins, &axis, n, x, 1);
        }
}

/* Running totals */

typedef struct totals {
    int axis, kind;
    bool exclusive, reverse;
} totals;

static nb_status sums(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const totals *t = ctx;
    nb_tensor *(*run)(nb_tensor *, int64_t, bool, bool) =
        t->kind ? nb_cumprod : nb_cumsum;
    (void)nx;
    nb_tensor *a = nb_add(x[0], x[0]);
    y[0] = nb_neg(run(a, t->axis, t->exclusive, t->reverse));
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static void totals_are_those_of_the_kernel(void)
{
    for (int k = 0; k < 8; k++)
        for (int i = 2; i < NSIZES; i++) {
            totals t = {k & 1, k >> 1 & 1 && i < 4, k >> 1 & 1, k >> 2};
            int64_t size[2] = {i > 12 ? 70 : 5, sizes[i]};
            if (t.axis == 0) size[0] = sizes[i], size[1] = i > 12 ? 70 : 5;
            nb_tensor *x = numbers(NB_F64, 2, size);
            fused("totals", sums, &t, 1, &x, 1);
        }
    for (int d = NB_I8; d <= NB_F64; d++) {
        totals t = {1, 0, d % 2, d % 3 == 0};
        nb_tensor *x = numbers((nb_dtype)d, SHAPE(9, 37));
        fused("totals of a dtype", sums, &t, 1, &x, 0);
    }
}

/* Both ways, of what is divided by its sum, and summed again. */
static nb_status ways(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *p = nb_softmax(x[0], 1);
    y[0] = nb_cumsum(p, 1, false, false);
    y[1] = nb_mul(nb_cumsum(p, 1, true, true), y[0]);
    y[2] = nb_reduce_sum(nb_cumsum(x[0], 1, false, true), 1, (int64_t[]){1},
                         false);
    y[3] = nb_softmax(nb_cumsum(x[0], 1, false, false), 1);
    return *ny = 4, NB_OK;
}

static void totals_fuse(void)
{
    nb_tensor *x = nb_mul(numbers(NB_F64, SHAPE(70, 67)), nb_num(0.01));
    fused("totals both ways", ways, NULL, 1, &x, 0);
}

/* A pick of what the nest itself stores over would see other points' results. */
static nb_status turned(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *a = nb_sin(x[0]);
    y[0] = nb_add(nb_gather(a, x[1], 0), a);
    return *ny = 1, NB_OK;
}

static void nothing_is_written_over_what_is_picked_from(void)
{
    enum { N = 5000 };
    int64_t back[N];
    for (int i = 0; i < N; i++)
        back[i] = N - 1 - i;
    nb_tensor *x[] = {numbers(NB_F32, SHAPE(N)), given(NB_I64, SHAPE(N), back)};
    int steps, calls;
    expect(runs(turned, NULL, 2, x, &steps, &calls), "a mirror is right");
}

/* Calls that several threads share: the same bits for any number of them. */

static nb_status works(void *ctx, int nx, nb_tensor *const *in, int *ny,
                       nb_tensor **y)
{
    int64_t first = 0, last = 1, turn[] = {1, 0};
    nb_tensor *x = in[0], *rows = in[1], *at = in[2];
    nb_pick p = {1, &at, &first, 0, false}, q = {1, &at, &last, 1, false};
    nb_tensor *other = nb_permute(x, 2, turn);
    nb_tensor *turned = nb_permute(rows, 2, turn);
    (void)ctx, (void)nx;
    y[0] = nb_place(&nb_op_index_add, x, rows, &p);
    y[1] = nb_place(&nb_op_index_set, x, rows, &p);
    y[2] = nb_place(&nb_op_index_mul, x, rows, &p);
    y[3] = nb_place(&nb_op_index_add, other, turned, &q);
    y[4] = nb_put_along_axis_add(x, in[3], rows, 0);
    y[5] = nb_cumsum(x, 1, false, false);
    y[6] = nb_cumsum(x, 0, true, true);
    y[7] = nb_cumprod(x, 1, false, true);
    y[8] = nb_sort(x, 1, false, true);
    y[9] = nb_reshape(nb_concatenate(2, (nb_tensor *[]){other, other}, 0), 1,
                      (int64_t[]){-1});
    return *ny = 10, y[9] ? NB_OK : nb_error_code();
}

static bool same(nb_tensor *x, nb_tensor *y)
{
    int64_t n = nb_elements(x);
    double *a = malloc((size_t)n * sizeof *a);
    double *b = malloc((size_t)n * sizeof *b);
    bool is = n == nb_elements(y) && nb_read(x, NB_F64, a) == NB_OK &&
              nb_read(y, NB_F64, b) == NB_OK &&
              !memcmp(a, b, (size_t)n * sizeof *a);
    free(a);
    free(b);
    return is;
}

static void threads_change_nothing(void)
{
    enum { ROWS = 700, UPDATES = 3000, WIDTH = 300 };
    const nb_dtype types[] = {NB_F32, NB_BF16, NB_I32};
    int was = nb_threads();
    for (int d = 0; d < 3; d++) {
        nb_tensor *x[] = {numbers(types[d], SHAPE(ROWS, WIDTH)),
                          numbers(types[d], SHAPE(UPDATES, WIDTH)),
                          indices(NB_I64, SHAPE(UPDATES)),
                          indices(NB_I64, SHAPE(UPDATES, WIDTH))};
        nb_tensor *y[2][10];
        nb_executable *e = NULL;
        bool ok =
            nb_executable_new(nb_func_new(works, NULL), 4, x, &e) == NB_OK;
        for (int n = 0; ok && n < 2; n++) {
            int ny = 10;
            nb_set_threads(n ? 3 : 1);
            ok = nb_executable_run(e, 4, x, &ny, y[n]) == NB_OK;
        }
        expect(ok, "%s", nb_error_message());
        for (int k = 0; ok && k < 10; k++)
            expect(same(y[0][k], y[1][k]),
                   "result %d in %s is the same by 1 and 3 threads", k,
                   nb_dtype_name(types[d]));
        nb_executable_drop(e);
    }
    nb_set_threads(was);
}

int main(void)
{
    there_open();
    void (*const all[])(void) = {words_are_those_of_the_kernel,
                                 numbers_stay_in_registers,
                                 picks_are_those_of_the_kernel,
                                 indices_that_name_nothing_read_zero,
                                 tables_may_be_read_backwards,
                                 picks_fuse,
                                 windows_are_those_of_the_kernel,
                                 joints_are_those_of_the_kernel,
                                 totals_are_those_of_the_kernel,
                                 totals_fuse,
                                 nothing_is_written_over_what_is_picked_from,
                                 threads_change_nothing};
    if (!nb_llvm_there()) return printf("no LLVM here\n"), 77;
    nb_check_set(true);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        nb_scope_open();
        all[i]();
        nb_scope_close(0, NULL);
    }
    return tally();
}
