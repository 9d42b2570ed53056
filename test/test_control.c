/* test_control.c - loops and branches.
 *
 * A loop is what it is when written out: most tests here are pairs of programs,
 * one with a loop or branch as an op and its twin without, which must agree
 * under every word of transforms.  Then come sentences, with the expected value
 * on the page, and faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/faults.h"
#include "support/there.h"

#include "base/memory.h"
#include "transform/func.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A body of several results, which closes over c. */
#define BODY_OF(name, ...)                                                 \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        nb_tensor *const *c = ctx;                                         \
        nb_tensor *all[] = {__VA_ARGS__};                                  \
        (void)c, (void)nx, (void)x;                                        \
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)            \
            y[k] = all[k];                                                 \
        return *ny = sizeof all / sizeof all[0], NB_OK;                    \
    }

static nb_func *fn(nb_body *body, nb_tensor *const *closed)
{
    return nb_func_new(body, (void *)closed);
}

static nb_tensor *num(double v)
{
    return nb_scalar_float(v, NB_F64);
}

static nb_tensor *whole(int64_t v)
{
    return nb_scalar_int(v, NB_I64);
}

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

static nb_tensor *at(nb_tensor *x, int64_t i)
{
    return nb_get(x, 1, (nb_key[]){NB_AT(i)});
}

/* One step of a body without a loop; its results. */
static void do_step(nb_body *body, nb_tensor *const *c, int nx,
                    nb_tensor *const *x, nb_tensor **y)
{
    int n = 8;
    if (body((void *)c, nx, x, &n, y) != NB_OK) y[0] = NULL;
}

/* Twins.  x[0] is a vector of 3, x[1] one of 2, x[2] a scalar; results: two. */

enum { NX = 3, NY = 2 };

static nb_status both(nb_tensor *a, nb_tensor *b, int *ny, nb_tensor **y)
{
    y[0] = a;
    y[1] = b;
    return *ny = NY, a && b ? NB_OK : NB_ERUNTIME;
}

#define TWIN(name)                                                         \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)

/* Carries of two shapes and an integer; a value closed over that is not
 * computed yet; two results a step. */
BODY_OF(rnn, nb_tanh(nb_add(nb_mul(x[0], c[0]), x[3])),
        nb_add(nb_mul(x[1], nb_num(0.5)), total(nb_square(x[0]))),
        nb_add(x[2], nb_count(1)), nb_mul(x[0], x[3]),
        nb_mul(x[1], nb_cast(x[2], NB_F64)))

static nb_tensor *rnn_end(nb_tensor *const *out)
{
    return nb_add(nb_mul(out[0], nb_cast(out[2], NB_F64)), out[1]);
}

TWIN(rnn_loop)
{
    nb_tensor *c[] = {nb_sin(x[2])}, *out[5];
    nb_tensor *init[] = {x[1], nb_exp(x[2]), whole(2)};
    int n = 5;
    (void)ctx, (void)nx;
    if (nb_scan(fn(rnn, c), 3, init, 1, x, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    return both(rnn_end(out),
                nb_add(total(nb_sin(out[3])), nb_mul(out[4], x[0])), ny, y);
}

TWIN(rnn_twin)
{
    nb_tensor *c[] = {nb_sin(x[2])}, *out[5];
    nb_tensor *in[] = {x[1], nb_exp(x[2]), whole(2), NULL};
    nb_tensor *sum = num(0), *scaled[3];
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++) {
        in[3] = at(x[0], t);
        do_step(rnn, c, 4, in, out);
        memcpy(in, out, 3 * sizeof *in);
        sum = nb_add(sum, total(nb_sin(out[3])));
        scaled[t] = nb_mul(out[4], in[3] = at(x[0], t));
    }
    return both(rnn_end(in), nb_add(sum, nb_stack(3, scaled, 0)), ny, y);
}

/* From the end, with ys in the order of xs. */
BODY_OF(from_end, nb_add(nb_mul(x[0], x[1]), nb_sin(nb_mul(c[2], x[0]))),
        nb_mul(x[0], c[1]))

TWIN(reverse_loop)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(from_end, x), 1, x + 2, 1, x, 3, true, &n, out) != NB_OK)
        return nb_error_code();
    return both(out[0], out[1], ny, y);
}

TWIN(reverse_twin)
{
    nb_tensor *s[3], *out[2], *in[] = {x[2], NULL};
    (void)ctx, (void)nx;
    for (int t = 2; t >= 0; t--) {
        in[1] = at(x[0], t);
        do_step(from_end, x, 2, in, out);
        in[0] = out[0];
        s[t] = out[1];
    }
    return both(in[0], nb_stack(3, s, 0), ny, y);
}

/* No xs; carries that change places; one that comes back as what is closed
 * over, or as a number; one that nothing depends on. */
BODY_OF(shuffle, x[1], nb_mul(x[0], c[0]), c[0], nb_num(2), nb_sin(x[4]))

static nb_status shuffle_init(nb_tensor *const *x, nb_tensor **init)
{
    init[0] = nb_mul(x[2], nb_ones_like(x[0]));
    init[1] = nb_cos(x[0]);
    init[2] = nb_square(x[0]);
    init[3] = x[2];
    init[4] = x[1];
    return NB_OK;
}

static nb_status shuffle_end(nb_tensor *const *o, int *ny, nb_tensor **y)
{
    return both(nb_add(nb_mul(o[0], o[1]), nb_mul(o[2], o[3])), o[4], ny, y);
}

TWIN(shuffle_loop)
{
    nb_tensor *init[5], *out[5];
    int n = 5;
    (void)ctx, (void)nx;
    shuffle_init(x, init);
    if (nb_scan(fn(shuffle, x), 5, init, 0, NULL, 5, false, &n, out) != NB_OK)
        return nb_error_code();
    return shuffle_end(out, ny, y);
}

TWIN(shuffle_twin)
{
    nb_tensor *in[5], *out[5];
    (void)ctx, (void)nx;
    shuffle_init(x, in);
    for (int t = 0; t < 5; t++) {
        do_step(shuffle, x, 5, in, out);
        memcpy(in, out, sizeof in);
    }
    return shuffle_end(in, ny, y);
}

/* No steps. */
TWIN(empty_loop)
{
    nb_tensor *out[2], *none = nb_get(x[0], 1, (nb_key[]){NB_RANGE(3, 3, 1)});
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(from_end, x), 1, x + 2, 1, &none, 0, false, &n, out) !=
        NB_OK)
        return nb_error_code();
    return both(nb_mul(out[0], x[1]), nb_add(total(out[1]), x[0]), ny, y);
}

TWIN(empty_twin)
{
    (void)ctx, (void)nx;
    return both(nb_mul(x[2], x[1]), x[0], ny, y);
}

/* Results that do not depend on the carry; a carry that is not used; a map. */
BODY_OF(apart, x[0], nb_mul(nb_exp(x[1]), c[1]), nb_scalar_float(3, NB_F64))
BODY_OF(each, nb_mul(nb_sin(x[0]), c[1]))

TWIN(apart_loop)
{
    nb_tensor *out[3], *m;
    int n = 3, one = 1;
    (void)ctx, (void)nx;
    if (nb_scan(fn(apart, x), 1, x + 2, 1, x, 0, false, &n, out) != NB_OK ||
        nb_map(fn(each, x), 1, x, &one, &m) != NB_OK)
        return nb_error_code();
    nb_tensor *s =
        nb_mul(out[2], nb_reduce_sum(out[1], 1, (int64_t[]){1}, false));
    return both(nb_add(out[0], s), m, ny, y);
}

TWIN(apart_twin)
{
    nb_tensor *s[3], *m[3];
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++) {
        nb_tensor *v = at(x[0], t);
        s[t] = nb_mul(nb_num(3), total(nb_mul(nb_exp(v), x[1])));
        m[t] = nb_mul(nb_sin(v), x[1]);
    }
    return both(nb_add(x[2], nb_stack(3, s, 0)), nb_stack(3, m, 0), ny, y);
}

/* A loop in a loop, which closes over what the outer one carries and over what
 * that closes over; its result meets values that have lanes when it has not. */
BODY_OF(inner, nb_add(nb_mul(x[0], c[0]), nb_mul(c[1], nb_sin(x[1]))))

static nb_tensor *inner_loop(nb_tensor *carry, nb_tensor *x,
                             nb_tensor *const *c)
{
    nb_tensor *in[] = {carry, c[2]}, *init = num(0.5), *out;
    int n = 1;
    (void)x;
    return nb_scan(fn(inner, in), 1, &init, 1, c, 0, false, &n, &out) == NB_OK
               ? out
               : NULL;
}

static nb_tensor *inner_twin(nb_tensor *carry, nb_tensor *x,
                             nb_tensor *const *c)
{
    nb_tensor *in[] = {carry, c[2]}, *v[] = {num(0.5), NULL}, *out;
    (void)x;
    for (int t = 0; t < 3; t++) {
        v[1] = at(c[0], t);
        do_step(inner, in, 2, v, &out);
        v[0] = out;
    }
    return v[0];
}

#define OUTER(way)                                                           \
    BODY_OF(outer_##way,                                                     \
            nb_tanh(nb_add(x[0], nb_mul(inner_##way(x[0], x[1], c), x[1]))), \
            nb_mul(inner_##way(c[2], x[1], c), x[0]))
OUTER(loop)
OUTER(twin)

TWIN(nested_loop)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(outer_loop, x), 1, x + 2, 1, x + 1, 0, true, &n, out) !=
        NB_OK)
        return nb_error_code();
    return both(out[0], out[1], ny, y);
}

TWIN(nested_twin)
{
    nb_tensor *out[2], *in[] = {x[2], NULL}, *s[2];
    (void)ctx, (void)nx;
    for (int t = 1; t >= 0; t--) {
        in[1] = at(x[1], t);
        do_step(outer_twin, x, 2, in, out);
        in[0] = out[0];
        s[t] = out[1];
    }
    return both(in[0], nb_stack(2, s, 0), ny, y);
}

/* A branch in a loop, a loop in a branch.  One side does not depend on what the
 * other does. */
BODY_OF(up, nb_mul(nb_sin(x[0]), c[2]), c[2])
BODY_OF(down, nb_sub(x[0], nb_mul(x[1], c[2])), nb_exp(x[1]))

static nb_status branch(nb_tensor *const *x, nb_tensor *const *c, int *ny,
                        nb_tensor **y)
{
    nb_tensor *high = nb_greater(x[0], nb_num(0.4));
    return nb_cond(high, fn(up, c), fn(down, c), 2, x, ny, y);
}

TWIN(branching)
{
    (void)nx;
    return branch(x, ctx, ny, y);
}

TWIN(branching_twin)
{
    nb_tensor *a[2], *b[2], *high = nb_greater(x[0], nb_num(0.4));
    (void)nx;
    do_step(up, ctx, 2, x, a);
    do_step(down, ctx, 2, x, b);
    y[0] = nb_where(high, a[0], b[0]);
    y[1] = nb_where(high, a[1], b[1]);
    return *ny = 2, NB_OK;
}

TWIN(branch_loop)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(branching, x), 1, x + 2, 1, x, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    return both(out[0], out[1], ny, y);
}

TWIN(branch_twin)
{
    nb_tensor *out[2], *in[] = {x[2], NULL}, *s[3];
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++) {
        in[1] = at(x[0], t);
        do_step(branching_twin, x, 2, in, out);
        in[0] = out[0];
        s[t] = out[1];
    }
    return both(in[0], nb_stack(3, s, 0), ny, y);
}

TWIN(with_loop)
{
    nb_tensor *out[2], *init = nb_mul(x[0], x[1]);
    nb_tensor *const *c = ctx;
    int n = 2;
    (void)nx;
    if (nb_scan(fn(from_end, c), 1, &init, 1, c, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    y[0] = out[0];
    y[1] = total(out[1]);
    return *ny = 2, NB_OK;
}

TWIN(with_twin)
{
    nb_tensor *out[2], *in[] = {nb_mul(x[0], x[1]), NULL}, *s = num(0);
    nb_tensor *const *c = ctx;
    (void)nx;
    for (int t = 0; t < 3; t++) {
        in[1] = at(c[0], t);
        do_step(from_end, c, 2, in, out);
        in[0] = out[0];
        s = nb_add(s, total(out[1]));
    }
    y[0] = in[0];
    y[1] = s;
    return *ny = 2, NB_OK;
}

/* The predicate is true, then false, then in the lanes' hands. */
TWIN(sides_loop)
{
    nb_tensor *a[2], *b[2], *in[] = {x[2], total(x[1])};
    int n = 2, m = 2;
    (void)ctx, (void)nx;
    if (nb_cond(nb_greater(total(x[0]), nb_num(-9)), fn(with_loop, x),
                fn(down, x), 2, in, &n, a) != NB_OK ||
        nb_cond(nb_greater(x[2], nb_num(9)), fn(with_loop, x), fn(down, x), 2,
                in, &m, b) != NB_OK)
        return nb_error_code();
    return both(nb_mul(a[0], b[1]), nb_mul(nb_add(a[1], b[0]), x[0]), ny, y);
}

TWIN(sides_twin)
{
    nb_tensor *a[2], *b[2], *in[] = {x[2], total(x[1])};
    (void)ctx, (void)nx;
    do_step(with_twin, x, 2, in, a);
    do_step(down, x, 2, in, b);
    return both(nb_mul(a[0], b[1]), nb_mul(nb_add(a[1], b[0]), x[0]), ny, y);
}

/* switch: index in range, below and above. */
BODY_OF(case0, nb_sin(x[0]))
BODY_OF(case1, nb_mul(x[0], c[2]))
BODY_OF(case2, nb_exp(nb_neg(x[0])))

static nb_tensor *chosen(nb_tensor *index, nb_tensor *x, nb_tensor *const *c)
{
    nb_func *f[] = {fn(case0, c), fn(case1, c), fn(case2, c)};
    nb_tensor *y;
    int n = 1;
    return nb_switch(index, 3, f, 1, &x, &n, &y) == NB_OK ? y : NULL;
}

/* An index that differs from lane to lane, once x is mapped. */
static nb_tensor *index_of(nb_tensor *x)
{
    return nb_cast(nb_floor(nb_mul(x, nb_num(4))), NB_I64);
}

TWIN(switch_loop)
{
    (void)ctx, (void)nx;
    nb_tensor *a =
        nb_add(chosen(whole(1), x[1], x), chosen(whole(-7), x[1], x));
    return both(nb_add(a, chosen(whole(9), x[1], x)),
                chosen(index_of(x[2]), x[0], x), ny, y);
}

TWIN(switch_twin)
{
    nb_tensor *a[3], *b[3], *i = index_of(x[2]);
    (void)ctx, (void)nx;
    nb_body *f[] = {case0, case1, case2};
    for (int k = 0; k < 3; k++) {
        do_step(f[k], x, 1, x + 1, a + k);
        do_step(f[k], x, 1, x, b + k);
    }
    nb_tensor *high = nb_where(nb_less(i, nb_count(2)), b[1], b[2]);
    return both(nb_add(nb_add(a[1], a[0]), a[2]),
                nb_where(nb_less(i, nb_count(1)), b[0], high), ny, y);
}

/* while, written out as so many turns as there can be, of which those after the
 * last change nothing. */
enum { TURNS = 10 };

static nb_tensor *spun(nb_body *test, nb_body *body, nb_tensor *const *c, int n,
                       nb_tensor *const *init, nb_tensor **y)
{
    memcpy(y, init, (size_t)n * sizeof *y);
    for (int t = 0; t < TURNS; t++) {
        nb_tensor *on, *next[4];
        do_step(test, c, n, y, &on);
        do_step(body, c, n, y, next);
        for (int k = 0; k < n; k++)
            y[k] = nb_where(on, next[k], y[k]);
    }
    return y[0];
}

BODY_OF(small, nb_less(total(x[0]), nb_mul(c[2], nb_num(9))))
BODY_OF(grow, nb_add(nb_mul(x[0], nb_num(1.6)), nb_square(c[2])),
        nb_add(x[1], nb_sin(nb_mul(x[1], c[2]))), nb_add(x[2], nb_count(1)))

static nb_status grown(nb_tensor *const *o, int *ny, nb_tensor **y)
{
    return both(nb_mul(o[0], nb_cast(o[2], NB_F64)), o[1], ny, y);
}

TWIN(while_loop)
{
    nb_tensor *init[] = {x[1], x[0], whole(1)}, *out[3];
    (void)ctx, (void)nx;
    if (nb_while(fn(small, x), fn(grow, x), 3, init, out) != NB_OK)
        return nb_error_code();
    return grown(out, ny, y);
}

TWIN(while_twin)
{
    nb_tensor *init[] = {x[1], x[0], whole(1)}, *out[3];
    (void)ctx, (void)nx;
    spun(small, grow, x, 3, init, out);
    return grown(out, ny, y);
}

/* A while in a while; the inner one starts from what the outer one is at, and
 * closes over it. */
BODY_OF(low, nb_less(x[0], nb_add(nb_num(2), c[0])))
BODY_OF(climb, nb_add(nb_mul(x[0], nb_num(1.5)), nb_mul(nb_sin(x[0]), c[0])))
BODY_OF(low_outer, nb_less(x[0], nb_num(8)))

static nb_tensor *climbed(nb_tensor *x, nb_tensor *scale)
{
    nb_tensor *c[] = {nb_mul(x, scale)}, *y;
    return nb_while(fn(low, c), fn(climb, c), 1, &x, &y) == NB_OK ? y : NULL;
}

static nb_tensor *climbed_twin(nb_tensor *x, nb_tensor *scale)
{
    nb_tensor *c[] = {nb_mul(x, scale)}, *y;
    return spun(low, climb, c, 1, &x, &y);
}

BODY_OF(leap, nb_add(climbed(x[0], c[2]), nb_mul(nb_num(0.7), x[0])))
BODY_OF(leap_twin, nb_add(climbed_twin(x[0], c[2]), nb_mul(nb_num(0.7), x[0])))

TWIN(whiles_loop)
{
    nb_tensor *init = nb_add(x[2], nb_num(0.3)), *out;
    (void)ctx, (void)nx;
    if (nb_while(fn(low_outer, x), fn(leap, x), 1, &init, &out) != NB_OK)
        return nb_error_code();
    return both(out, nb_mul(out, x[1]), ny, y);
}

TWIN(whiles_twin)
{
    nb_tensor *init = nb_add(x[2], nb_num(0.3)), *out;
    (void)ctx, (void)nx;
    spun(low_outer, leap_twin, x, 1, &init, &out);
    return both(out, nb_mul(out, x[1]), ny, y);
}

/* A while in a scan, in a branch; a scan and a branch in a while. */
BODY_OF(lift, climbed(nb_mul(x[0], nb_num(0.3)), x[1]),
        nb_mul(climbed(nb_add(x[1], nb_num(0.2)), c[2]), x[0]))
BODY_OF(lift_twin, climbed_twin(nb_mul(x[0], nb_num(0.3)), x[1]),
        nb_mul(climbed_twin(nb_add(x[1], nb_num(0.2)), c[2]), x[0]))

TWIN(mixed_loop)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(lift, x), 1, x + 2, 1, x, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    return both(out[0], out[1], ny, y);
}

TWIN(mixed_twin)
{
    nb_tensor *out[2], *in[] = {x[2], NULL}, *s[3];
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++) {
        in[1] = at(x[0], t);
        do_step(lift_twin, x, 2, in, out);
        in[0] = out[0];
        s[t] = out[1];
    }
    return both(in[0], nb_stack(3, s, 0), ny, y);
}

static nb_tensor *forked(nb_tensor *x, nb_tensor *const *c, bool twin)
{
    nb_tensor *in[] = {x, c[2]}, *out[2];
    int n = 2;
    nb_status s = twin ? branching_twin((void *)c, 2, in, &n, out)
                       : branch(in, c, &n, out);
    return s == NB_OK ? nb_add(nb_square(out[0]), nb_square(out[1])) : NULL;
}

BODY_OF(wind, nb_add(nb_add(x[0], nb_square(inner_loop(x[0], NULL, c))),
                     forked(x[0], c, false)))
BODY_OF(wind_twin, nb_add(nb_add(x[0], nb_square(inner_twin(x[0], NULL, c))),
                          forked(x[0], c, true)))

TWIN(wound_loop)
{
    nb_tensor *out;
    (void)ctx, (void)nx;
    if (nb_while(fn(low_outer, x), fn(wind, x), 1, x + 2, &out) != NB_OK)
        return nb_error_code();
    return both(out, nb_mul(out, x[1]), ny, y);
}

TWIN(wound_twin)
{
    nb_tensor *out;
    (void)ctx, (void)nx;
    spun(low_outer, wind_twin, x, 1, x + 2, &out);
    return both(out, nb_mul(out, x[1]), ny, y);
}

/* fori: bounds that are known, and bounds that are computed. */
BODY_OF(counted, nb_add(nb_mul(x[1], c[2]), nb_cast(x[0], NB_F64)),
        nb_mul(x[2], nb_cos(x[1])))

static nb_status fori(nb_tensor *from, nb_tensor *to, nb_tensor *const *x,
                      nb_tensor **out)
{
    nb_tensor *init[] = {x[2], x[1]};
    return nb_fori(from, to, fn(counted, x), 2, init, out);
}

TWIN(fori_loop)
{
    nb_tensor *a[2], *b[2], *n[2];
    (void)ctx, (void)nx;
    nb_tensor *to = nb_add(nb_cast(nb_greater(total(x[0]), nb_num(-9)), NB_I64),
                           nb_count(3));
    if (fori(nb_count(1), nb_count(4), x, a) != NB_OK ||
        fori(whole(2), to, x, b) != NB_OK ||
        fori(nb_count(3), whole(-2), x, n) != NB_OK)
        return nb_error_code();
    return both(nb_mul(a[1], b[0]), nb_add(nb_mul(a[0], b[1]), n[1]), ny, y);
}

TWIN(fori_twin)
{
    nb_tensor *a[2] = {x[2], x[1]}, *b[2] = {x[2], x[1]};
    (void)ctx, (void)nx;
    for (int i = 1; i < 4; i++) {
        nb_tensor *in[] = {whole(i), a[0], a[1]},
                  *of[] = {whole(i), b[0], b[1]};
        do_step(counted, x, 3, in, a);
        if (i >= 2) do_step(counted, x, 3, of, b);
    }
    return both(nb_mul(a[1], b[0]), nb_add(nb_mul(a[0], b[1]), x[1]), ny, y);
}

/* Associative scan: x -> a x + b, composed. */
BODY_OF(compose, nb_mul(x[0], x[2]), nb_add(nb_mul(x[2], x[1]), x[3]))

TWIN(prefix_loop)
{
    nb_tensor *in[] = {x[0], nb_mul(x[0], x[2])}, *a[2], *b[2];
    (void)ctx, (void)nx;
    if (nb_associative_scan(fn(compose, NULL), 2, in, 0, false, a) != NB_OK ||
        nb_associative_scan(fn(compose, NULL), 2, in, -1, true, b) != NB_OK)
        return nb_error_code();
    return both(nb_add(a[1], b[1]), nb_mul(a[0], b[0]), ny, y);
}

TWIN(prefix_twin)
{
    nb_tensor *a[3][2], *b[3][2];
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++)
        for (int r = 0; r < 2; r++) {
            nb_tensor *v = at(x[0], r ? 2 - t : t), *w = nb_mul(v, x[2]);
            nb_tensor **to = r ? b[2 - t] : a[t];
            to[0] = v;
            to[1] = w;
            if (t == 0) continue;
            nb_tensor **old = r ? b[3 - t] : a[t - 1];
            nb_tensor *in[] = {old[0], old[1], v, w};
            do_step(compose, NULL, 4, in, to);
        }
    nb_tensor *s[3], *p[3];
    for (int t = 0; t < 3; t++) {
        s[t] = nb_add(a[t][1], b[t][1]);
        p[t] = nb_mul(a[t][0], b[t][0]);
    }
    return both(nb_stack(3, s, 0), nb_stack(3, p, 0), ny, y);
}

/* Transforms within a body: a gradient and a map of what is carried, closing
 * over what comes from outside, the map with loops of its own; ops with several
 * results. */
BODY_OF(bump, total(nb_mul(nb_sin(nb_mul(x[0], c[1])), c[0])))
BODY_OF(turn, nb_mul(nb_sin(nb_add(x[1], c[0])), nb_lane_sum(x[1], "k")))
BODY_OF(on, nb_less(x[0], c[0]))
BODY_OF(off, nb_add(nb_add(x[0], nb_num(0.3)), nb_square(nb_mul(c[1], x[0]))))

static nb_tensor *ray_of(nb_tensor *x, nb_tensor *scale)
{
    nb_tensor *c[] = {x, scale}, *y, *z;
    nb_func *f = fn(turn, c), *test = fn(on, c), *body = fn(off, c);
    bool ok = nb_fori(nb_count(0), nb_count(2), f, 1, &scale, &y) == NB_OK &&
              nb_while(test, body, 1, &y, &z) == NB_OK;
    return ok ? nb_mul(nb_cos(y), z) : NULL;
}
BODY_OF(ray, ray_of(x[0], c[0]))

static nb_tensor *slope_of(nb_tensor *x, nb_tensor *scale)
{
    nb_tensor *c[] = {x, scale};
    return nb_func_call1(nb_grad(fn(bump, c), 1, (int[]){0}), 1, &x);
}

static nb_tensor *fan_of(nb_tensor *x, nb_tensor *over)
{
    nb_func *all = nb_vmap(fn(ray, &x), &(nb_vmap_options){.axis_name = "k"});
    return total(nb_func_call1(all, 1, &over));
}

static nb_tensor *largest(nb_tensor *x)
{
    nb_tensor *top[2];
    return nb_topk(x, 1, 0, true, top) == NB_OK ? total(top[0]) : NULL;
}

BODY_OF(within,
        nb_add(slope_of(x[0], c[2]),
               nb_mul(nb_num(0.1), fan_of(nb_add(x[0], x[1]), c[0]))),
        nb_add(nb_mul(x[0], x[1]), largest(nb_mul(c[0], x[0]))))

TWIN(within_loop)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    if (nb_scan(fn(within, x), 1, x + 2, 1, x + 1, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    return both(out[0], out[1], ny, y);
}

TWIN(within_twin)
{
    nb_tensor *out[2], *in[] = {x[2], NULL}, *s[2];
    (void)ctx, (void)nx;
    for (int t = 0; t < 2; t++) {
        in[1] = at(x[1], t);
        do_step(within, x, 2, in, out);
        in[0] = out[0];
        s[t] = out[1];
    }
    return both(in[0], nb_stack(2, s, 0), ny, y);
}

/* A part through which nothing flows back, or forward. */
BODY_OF(stopped, nb_add(nb_mul(x[0], nb_stop_gradient(nb_exp(x[0]))),
                        nb_mul(nb_stop_gradient(c[2]), c[2])))

TWIN(stopped_loop)
{
    nb_tensor *out, *spin;
    int n = 1;
    (void)ctx, (void)nx;
    if (nb_scan(fn(stopped, x), 1, x + 2, 0, NULL, 3, false, &n, &out) !=
            NB_OK ||
        nb_while(fn(small, x), fn(stopped, x), 1, x + 2, &spin) != NB_OK)
        return nb_error_code();
    return both(out, nb_mul(spin, x[1]), ny, y);
}

TWIN(stopped_twin)
{
    nb_tensor *in = x[2], *spin;
    (void)ctx, (void)nx;
    for (int t = 0; t < 3; t++)
        do_step(stopped, x, 1, &in, &in);
    spun(small, stopped, x, 1, x + 2, &spin);
    return both(in, nb_mul(spin, x[1]), ny, y);
}

/* A gradient around a loop that closes over the argument as well. */
BODY_OF(mixing,
        nb_add(nb_mul(x[0], c[0]), nb_mul(nb_sin(c[1]), nb_square(c[0]))))

TWIN(mixing_loop)
{
    nb_tensor *c[] = {x[0], *(nb_tensor **)ctx}, *init = c[1];
    int n = 1;
    (void)nx;
    *ny = 1;
    return nb_scan(fn(mixing, c), 1, &init, 0, NULL, 3, false, &n, y);
}

TWIN(mixing_twin)
{
    nb_tensor *c[] = {x[0], *(nb_tensor **)ctx}, *in = c[1];
    (void)nx;
    for (int t = 0; t < 3; t++)
        do_step(mixing, c, 1, &in, &in);
    y[0] = in;
    return *ny = 1, NB_OK;
}

static nb_status confused(nb_body *f, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    nb_tensor *v = x[2];
    nb_tensor *slope = nb_func_call1(nb_grad(fn(f, &v), 1, (int[]){0}), 1, &v);
    nb_tensor *push = nb_func_call1(nb_jacfwd(fn(f, &v), 0), 1, &v);
    return both(nb_mul(slope, x[0]), nb_mul(push, x[1]), ny, y);
}

TWIN(confused_loop)
{
    (void)ctx, (void)nx;
    return confused(mixing_loop, x, ny, y);
}

TWIN(confused_twin)
{
    (void)ctx, (void)nx;
    return confused(mixing_twin, x, ny, y);
}

/* Lanes that talk in a body: x[0] is mapped as i, x[1] as j. */
static nb_tensor *told(nb_tensor *x)
{
    nb_tensor *place = nb_cast(nb_lane_index("i"), NB_F64);
    return nb_add(nb_mul(x, nb_lane_sum(nb_sin(x), "i")),
                  nb_mul(place, nb_lane_mean(nb_square(x), "j")));
}
BODY_OF(talk, told(nb_add(x[0], nb_mul(x[1], c[2]))),
        nb_cast(nb_lane_index("j"), NB_F64), nb_lane_sum(x[1], "i"))

#define LANES(way, ...)                                                    \
    TWIN(talk_j_##way)                                                     \
    {                                                                      \
        nb_tensor *const *c = ctx;                                         \
        nb_tensor *in[] = {nb_mul(c[0], x[0]), NULL}, *out[3];             \
        nb_tensor *const *all = c + 1;                                     \
        (void)nx;                                                          \
        __VA_ARGS__                                                        \
        y[0] = out[0];                                                     \
        y[1] = nb_add(total(nb_mul(out[1], nb_add(x[0], nb_num(1)))),      \
                      total(out[2]));                                      \
        return *ny = 2, NB_OK;                                             \
    }                                                                      \
    TWIN(talk_i_##way)                                                     \
    {                                                                      \
        nb_tensor *const *of = ctx;                                        \
        nb_tensor *c[] = {x[0], of[0], of[1], of[2]};                      \
        (void)nx;                                                          \
        return nb_func_call(nb_vmap(fn(talk_j_##way, c),                   \
                                    &(nb_vmap_options){.axis_name = "j"}), \
                            1, of + 1, ny, y);                             \
    }                                                                      \
    TWIN(talk_##way)                                                       \
    {                                                                      \
        (void)ctx, (void)nx;                                               \
        return nb_func_call(nb_vmap(fn(talk_i_##way, x),                   \
                                    &(nb_vmap_options){.axis_name = "i"}), \
                            1, x, ny, y);                                  \
    }
LANES(loop, {
    int n = 3;
    if (nb_scan(fn(talk, all), 1, in, 1, all, 0, false, &n, out) != NB_OK)
        return nb_error_code();
})
LANES(twin, {
    nb_tensor *s[2][3], *step[3];
    for (int t = 0; t < 3; t++) {
        in[1] = at(all[0], t);
        do_step(talk, all, 2, in, step);
        in[0] = step[0];
        s[0][t] = step[1];
        s[1][t] = step[2];
    }
    out[0] = in[0];
    out[1] = nb_stack(3, s[0], 0);
    out[2] = nb_stack(3, s[1], 0);
})

typedef struct twins {
    const char *name;
    nb_body *loop, *twin;
    int letters;
} twins;

static const twins all_twins[] = {
    {"a scan that carries three tensors", rnn_loop, rnn_twin, 3},
    {"a scan from the end", reverse_loop, reverse_twin, 3},
    {"a scan whose carries change places", shuffle_loop, shuffle_twin, 2},
    {"a scan of no steps", empty_loop, empty_twin, 2},
    {"a scan and a map without a carry", apart_loop, apart_twin, 2},
    {"a scan in a scan", nested_loop, nested_twin, 3},
    {"a branch in a scan", branch_loop, branch_twin, 3},
    {"a scan in a branch", sides_loop, sides_twin, 3},
    {"a switch", switch_loop, switch_twin, 2},
    {"a while", while_loop, while_twin, 3},
    {"a while in a while", whiles_loop, whiles_twin, 2},
    {"a while in a scan", mixed_loop, mixed_twin, 2},
    {"a scan and a branch in a while", wound_loop, wound_twin, 2},
    {"a fori", fori_loop, fori_twin, 2},
    {"an associative scan", prefix_loop, prefix_twin, 2},
    {"transforms within a body", within_loop, within_twin, 2},
    {"a gradient of a loop that closes over its argument", confused_loop,
     confused_twin, 2},
    {"a stopped gradient within a body", stopped_loop, stopped_twin, 2},
    {"lanes that talk within a body", talk_loop, talk_twin, 2},
};
enum { NTWINS = sizeof all_twins / sizeof all_twins[0] };

static bool fits(way w, const task *g)
{
    int n = w == VJP ? g->nin + g->nout : w == JVP ? 2 * g->nin : g->nin;
    return n <= MAX_ARGS && 2 * g->nout <= MAX_ARGS;
}

static void agree(const task *a, const task *b, const char *word)
{
    nb_tensor *x[MAX_ARGS], *y[MAX_ARGS];
    int n = MAX_ARGS, m = MAX_ARGS;
    if (nb_func_call(a->fn, a->nin, a->x, &n, x) != NB_OK)
        fail_msg("%s: %s", word, nb_error_message());
    if (nb_func_call(b->fn, b->nin, a->x, &m, y) != NB_OK)
        fail_msg("%s, written out: %s", word, nb_error_message());
    assert_int_equal(n, m);
    for (int k = 0; k < n; k++)
        if (!near(x[k], y[k], 1e-9)) {
            char *p = nb_tensor_text(x[k]), *q = nb_tensor_text(y[k]);
            fail_msg("%s: result %d is %s, written out %s; %s", word, k, p, q,
                     nb_error_message());
        }
}

static void extend(const task *a, const task *b, const char *word, int letters)
{
    for (way w = VJP; letters && w < NWAYS; w++) {
        char longer[128];
        if (!fits(w, a)) continue;
        snprintf(longer, sizeof longer, "%s %s", way_name[w], word);
        nb_scope_open();
        unsigned some =
            (letters % 2 ? 0x5555u : 0x3333u) & ((1u << a->nin) - 1);
        task t = task_transform(w, a, some, letters % 2 ? 0 : -1);
        task u = task_transform(w, b, some, letters % 2 ? 0 : -1);
        if (there_takes()) agree(&t, &u, longer);
        extend(&t, &u, longer, letters - 1);
        nb_scope_close(0, NULL);
    }
}

static void a_loop_is_what_it_is_when_written_out(void **state)
{
    const twins *t = *state;
    task a = {.nin = NX, .nout = NY}, b = a;
    a.fn = nb_func_new(t->loop, NULL);
    b.fn = nb_func_new(t->twin, NULL);
    a.x[0] = VEC(0.3, 0.7, 0.45);
    a.x[1] = VEC(0.6, -0.2);
    a.x[2] = num(0.35);
    memcpy(b.x, a.x, sizeof b.x);
    if (there_takes()) agree(&a, &b, t->name);
    extend(&a, &b, t->name, t->letters);
}

/* Sentences */

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open() != NB_OK;
}

static int close_scope(void **state)
{
    (void)state;
    nb_error_clear();
    for (int open = 0; open < 20; open++) /* a test that fails leaves some */
        nb_scope_close(0, NULL);
    nb_caches_clear();
    return nodes_left() != 0 || !all_closed();
}

static void expect_error(nb_status s, nb_status code, const char *text)
{
    assert_int_equal(s, code);
    assert_string_equal(nb_error_message(), text);
    assert_true(all_closed());
    nb_error_clear();
}

static double value_of(nb_tensor *x)
{
    double v = nb_item(x);
    if (nb_error_code()) fail_msg("%s", nb_error_message());
    return v;
}

static void expect_values(nb_tensor *x, int64_t n, const double *v)
{
    if (!is(x, n, v)) fail_msg("%s", nb_error_message());
}
#define EXPECT(x, ...) \
    expect_values(x, COUNT(__VA_ARGS__), (double[]){__VA_ARGS__})

static nb_status scan0(nb_body *body, nb_tensor *init, int64_t length,
                       nb_tensor **y)
{
    int n = 1;
    return nb_scan(fn(body, NULL), 1, &init, 0, NULL, length, false, &n, y);
}

/* Errors */

BODY_OF(wider, nb_concatenate(2, (nb_tensor *[]){x[0], x[0]}, 0))
BODY_OF(other_type, nb_cast(x[0], NB_F32))
BODY_OF(same, x[0])
BODY_OF(twice, x[0], x[0])
BODY_OF(later, x[1])
BODY_OF(wrong_sum, nb_add(x[0], c[0]))

static nb_status nothing(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx, (void)x, (void)y;
    return *ny = 0, NB_OK;
}

static nb_status broken(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx, (void)x, (void)ny, (void)y;
    nb_error_raise(NB_EKEY, "the body's own trouble");
    return NB_EKEY;
}

static nb_status looks(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_item(total(x[0])) > 0 ? x[0] : nb_neg(x[0]);
    return *ny = 1, nb_error_code();
}

static void a_carry_must_come_back_as_what_it_was(void **state)
{
    nb_tensor *v = VEC(1, 2), *y[2], *w = whole(1);
    (void)state;
    expect_error(scan0(wider, v, 3, y), NB_EVALUE,
                 "scan: carry 0 is f64(2,) and comes back as f64(4,)");
    expect_error(scan0(other_type, v, 3, y), NB_EVALUE,
                 "scan: carry 0 is f64(2,) and comes back as f32(2,)");
    expect_error(scan0(nothing, v, 3, y), NB_EVALUE,
                 "scan: carry 0 does not come back: 0 results for 1");
    nb_tensor *c[] = {v, v, num(1)};
    expect_error(nb_while(fn(small, c), fn(wider, NULL), 1, &v, y), NB_EVALUE,
                 "while: state 0 is f64(2,) and comes back as f64(4,)");
    expect_error(nb_while(fn(small, c), fn(twice, NULL), 1, &v, y), NB_EVALUE,
                 "while: 1 states, the body returns 2");
    expect_error(nb_while(fn(small, c), fn(nothing, NULL), 1, &v, y), NB_EVALUE,
                 "while: 1 states, the body returns 0");
    expect_error(nb_fori(nb_count(0), w, fn(other_type, NULL), 1, &v, y),
                 NB_EVALUE, "fori: state 0 is f64(2,) and comes back as f32()");
    expect_error(nb_fori(nb_count(0), w, fn(nothing, NULL), 1, &v, y),
                 NB_EVALUE, "fori: 1 states, the body returns 0");
}

static void lengths_must_agree(void **state)
{
    nb_tensor *xs[] = {VEC(1, 2), VEC(1, 2, 3)}, *zero = num(0), *y[2];
    int n = 2;
    (void)state;
    expect_error(nb_scan(fn(same, NULL), 1, &zero, 2, xs, 0, false, &n, y),
                 NB_EVALUE, "scan: xs 1 has length 3, not 2");
    expect_error(nb_scan(fn(same, NULL), 1, &zero, 1, xs, 5, false, &n, y),
                 NB_EVALUE, "scan: xs 0 has length 2, not 5");
    expect_error(nb_scan(fn(same, NULL), 1, &zero, 1, &zero, 0, false, &n, y),
                 NB_EVALUE, "scan: xs 0 is 0-d, no axis to scan");
    expect_error(scan0(same, zero, -1, y), NB_EVALUE, "scan: length -1");
    expect_error(nb_map(fn(same, NULL), 0, NULL, &n, y), NB_EVALUE,
                 "map: nothing to map over");
    expect_error(nb_associative_scan(fn(compose, NULL), 2, xs, 0, false, y),
                 NB_EVALUE, "associative_scan: tensor 1 has length 3, not 2");
}

static void branches_must_agree(void **state)
{
    nb_tensor *v = VEC(1, 2), *y[2], *yes = nb_truth(true);
    nb_func *f[] = {fn(same, NULL), fn(same, NULL), fn(twice, NULL)};
    int n = 2;
    (void)state;
    expect_error(nb_cond(yes, f[0], fn(wider, NULL), 1, &v, &n, y), NB_EVALUE,
                 "cond: result 0 is f64(2,) in one branch and f64(4,) in "
                 "another");
    n = 2;
    expect_error(nb_cond(yes, f[0], fn(other_type, NULL), 1, &v, &n, y),
                 NB_EVALUE,
                 "cond: result 0 is f64(2,) in one branch and f32(2,) in "
                 "another");
    n = 2;
    expect_error(nb_cond(yes, f[0], f[2], 1, &v, &n, y), NB_EVALUE,
                 "cond: one branch has 1 results, another 2");
    n = 2;
    expect_error(nb_switch(whole(0), 3, f, 1, &v, &n, y), NB_EVALUE,
                 "switch: one branch has 1 results, another 2");
    n = 1;
    expect_error(nb_cond(yes, f[2], f[2], 1, &v, &n, y), NB_EVALUE,
                 "cond: 2 results, room for 1");
}

static nb_status mapped_branches(void *ctx, int nx, nb_tensor *const *x,
                                 int *ny, nb_tensor **y)
{
    nb_func *yes = fn(same, NULL), *no = fn(ctx ? wider : other_type, NULL);
    nb_tensor *v = VEC(1, 2);
    (void)nx;
    return nb_cond(nb_greater(x[0], nb_num(1.5)), yes, no, 1, &v, ny, y);
}

static void branches_must_agree_when_both_run(void **state)
{
    nb_tensor *v = VEC(1, 2), *y[2];
    int n = 2;
    (void)state;
    expect_error(nb_func_call(nb_vmap(nb_func_new(mapped_branches, NULL), NULL),
                              1, &v, &n, y),
                 NB_EVALUE,
                 "cond: result 0 is f64(2,) in one branch and f32(2,) in "
                 "another");
    n = 2;
    expect_error(nb_func_call(nb_vmap(nb_func_new(mapped_branches, &n), NULL),
                              1, &v, &n, y),
                 NB_EVALUE,
                 "cond: result 0 is f64(2,) in one branch and f64(4,) in "
                 "another");
}

static void wrong_arguments_are_refused(void **state)
{
    nb_tensor *v = VEC(1, 2), *one = num(1), *y[2];
    nb_func *f = fn(same, NULL);
    int n = 2;
    (void)state;
    expect_error(nb_cond(v, f, f, 1, &v, &n, y), NB_EVALUE,
                 "cond: the predicate is a scalar, not of 2 elements");
    expect_error(nb_while(f, f, 1, &v, y), NB_EVALUE,
                 "while: the test gives a scalar, not 2 elements");
    expect_error(nb_while(f, f, 0, NULL, y), NB_EVALUE, "while: no state");
    n = 2;
    expect_error(nb_switch(one, 1, &f, 1, &v, &n, y), NB_ETYPE,
                 "switch: the index is an integer, not float64");
    n = 2;
    expect_error(nb_switch(nb_cast(v, NB_I32), 1, &f, 1, &v, &n, y), NB_EVALUE,
                 "switch: the index is a scalar, not of 2 elements");
    n = 2;
    expect_error(nb_switch(whole(0), 0, &f, 1, &v, &n, y), NB_EVALUE,
                 "switch: no branches");
    expect_error(nb_fori(nb_count(0), one, f, 1, &v, y), NB_ETYPE,
                 "fori: a bound is an integer scalar, not 1 of float64");
    expect_error(nb_fori(whole(INT64_MIN), whole(1), f, 1, &v, y), NB_EOVERFLOW,
                 "fori: too many turns from -9223372036854775808 to 1");
    expect_error(nb_associative_scan(f, 1, &v, 1, false, y), NB_EAXIS,
                 "associative_scan: axis 1 is out of range for rank 1");
    expect_error(nb_associative_scan(fn(twice, NULL), 1, &v, 0, false, y),
                 NB_EVALUE,
                 "associative_scan: combine returns 2 tensors for 1");
    expect_error(nb_associative_scan(fn(wider, NULL), 1, &v, 0, false, y),
                 NB_EVALUE,
                 "associative_scan: combined tensor 0 is f64(1,) and comes "
                 "back as f64(2,)");
    nb_tensor *none[] = {NULL};
    expect_error(scan0(same, NULL, 3, y), NB_EVALUE, "an argument is NULL");
    expect_error(nb_while(f, f, 1, none, y), NB_EVALUE, "an argument is NULL");
    expect_error(nb_scan(NULL, 1, &v, 0, NULL, 3, false, &n, y), NB_EVALUE,
                 "an argument is NULL");
}

static const char *const asked =
    "a value is asked for while a loop or branch is being recorded: use where, "
    "cond or while_loop on it";

static void a_body_cannot_look_at_values(void **state)
{
    nb_tensor *v = VEC(1, 2), *y[2];
    int n = 2;
    (void)state;
    expect_error(scan0(looks, v, 3, y), NB_ERUNTIME, asked);
    expect_error(
        nb_cond(nb_truth(true), fn(looks, NULL), fn(same, NULL), 1, &v, &n, y),
        NB_ERUNTIME, asked);
    expect_error(nb_while(fn(looks, NULL), fn(same, NULL), 1, &v, y),
                 NB_ERUNTIME, asked);
}

static void the_error_of_a_body_is_the_error(void **state)
{
    nb_tensor *v = VEC(1, 2), *bad[] = {VEC(1, 2, 3)}, *y[2];
    int n = 2;
    (void)state;
    expect_error(scan0(broken, v, 3, y), NB_EKEY, "the body's own trouble");
    expect_error(nb_cond(nb_truth(false), fn(same, NULL), fn(broken, NULL), 1,
                         &v, &n, y),
                 NB_EKEY, "the body's own trouble");
    n = 1;
    expect_error(nb_scan(fn(wrong_sum, bad), 1, &v, 0, NULL, 3, false, &n, y),
                 NB_EVALUE,
                 "add: shapes (2,) and (3,) do not fit: axis of size 2 meets "
                 "axis of size 3 (..., ... -> ...)");
    assert_int_equal(scan0(same, v, 3, y), NB_OK);
    EXPECT(y[0], 1, 2);
}

/* A body that fails only when it is differentiated, in a map: everything that
 * was open is closed again. */
static nb_status failing_rule(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    (void)ctx, (void)nx, (void)x, (void)y;
    nb_error_raise(NB_ERUNTIME, "no derivative here");
    return *ny = 0, NB_ERUNTIME;
}
BODY_OF(shy, nb_func_call1(nb_custom_vjp(fn(case0, NULL), fn(twice, NULL),
                                         fn(failing_rule, NULL)),
                           1, x))

static nb_status shy_loop(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    *ny = 1;
    return scan0(shy, x[0], 3, y);
}

static void a_rule_that_fails_leaves_nothing_open(void **state)
{
    nb_tensor *v = VEC(1, 2), *y[2];
    nb_func *f = fn(shy_loop, NULL);
    int n = 2;
    (void)state;
    nb_func *g = nb_vmap(nb_grad(f, 1, (int[]){0}), NULL);
    expect_error(nb_func_call(g, 1, &v, &n, y), NB_ERUNTIME,
                 "no derivative here");
}

/* Numbers of no dtype yet */

BODY_OF(plain_numbers, nb_add(x[0], nb_num(0.5)), nb_count(3), nb_count(4))

static void bare_numbers_take_the_dtype_that_fits(void **state)
{
    nb_tensor *init[] = {nb_num(1), nb_scalar_float(2, NB_F32)}, *y[3];
    int n = 3;
    (void)state;
    assert_int_equal(
        nb_scan(fn(plain_numbers, NULL), 2, init, 0, NULL, 2, false, &n, y),
        NB_OK);
    assert_int_equal(nb_dtype_of(y[0]), nb_default_float());
    assert_int_equal(nb_dtype_of(y[1]), NB_F32);
    assert_int_equal(nb_dtype_of(y[2]), NB_I64);
    EXPECT(y[0], 2);
    EXPECT(y[1], 3);
    EXPECT(y[2], 4, 4);
}

/* An index of a dtype that cannot count the branches. */
static void a_narrow_index_chooses_among_many(void **state)
{
    enum { MANY = 200 };
    nb_func *f[MANY];
    nb_tensor *v[] = {num(1), num(2)}, *y;
    int n = 1;
    (void)state;
    for (int k = 0; k < MANY; k++)
        f[k] = fn(k == 100 || k == MANY - 1 ? later : same, NULL);
    nb_tensor *narrow = nb_scalar_int(100, NB_I8);
    assert_int_equal(nb_switch(narrow, MANY, f, 2, v, &n, &y), NB_OK);
    EXPECT(y, 2);
    nb_tensor *huge = nb_sub(nb_cast(whole(0), NB_U64), nb_count(1));
    assert_int_equal(nb_switch(huge, MANY, f, 2, v, &n, &y), NB_OK);
    EXPECT(y, 2);
}

BODY_OF(below, nb_less(x[0], nb_num(5)))

/* More states than a function has results elsewhere; walked back, the body
 * gives them twice. */
static nb_status all_but(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx;
    for (int k = 0; k < nx; k++)
        y[k] = nb_add(x[k], nb_num(1));
    return *ny = nx, nb_error_code();
}

static nb_status states_loop(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const bool *scan = ctx;
    nb_tensor **out = nb_array(nx);
    nb_func *f = fn(all_but, NULL);
    int n = nx;
    bool ok =
        out && (*scan ? nb_scan(f, nx, x, 0, NULL, 2, false, &n, out)
                      : nb_while(fn(below, NULL), f, nx, x, out)) == NB_OK;
    if (ok) y[0] = out[nx - 1];
    *ny = 1;
    nb_free(out);
    return nb_error_code();
}

static void a_loop_may_have_thousands_of_states(void **state)
{
    enum { MANY = 4200 };
    static nb_tensor *x[MANY];
    (void)state;
    for (int k = 0; k < MANY; k++)
        x[k] = num(3);
    for (int scan = 0; scan < 2; scan++) {
        bool which = scan;
        nb_func *f = nb_func_new(states_loop, &which);
        EXPECT(nb_func_call1(f, MANY, x), 5);
        assert_non_null(nb_func_call1(nb_grad(f, 1, (int[]){0}), MANY, x));
    }
}

/* Prefixes of every length: x -> a x + b, composed from either end. */
static void an_associative_scan_takes_any_length(void **state)
{
    enum { MOST = 20 };
    double v[2][MOST], ahead[2][MOST], back[2][MOST];
    (void)state;
    for (int64_t n = 0; n < MOST; n++) {
        for (int k = 0; k < n; k++) {
            v[0][k] = 0.9 + 0.2 * sin(3 * k);
            v[1][k] = cos(2 * k + (double)n);
        }
        for (int k = 0; k < n; k++) {
            int64_t r = n - 1 - k;
            ahead[0][k] = v[0][k] * (k ? ahead[0][k - 1] : 1);
            ahead[1][k] = v[1][k] + v[0][k] * (k ? ahead[1][k - 1] : 0);
            back[0][r] = v[0][r] * (k ? back[0][r + 1] : 1);
            back[1][r] = v[1][r] + v[0][r] * (k ? back[1][r + 1] : 0);
        }
        nb_tensor *x[] = {vec(n, v[0]), vec(n, v[1])}, *y[2], *z[2];
        nb_func *f = fn(compose, NULL);
        assert_int_equal(nb_associative_scan(f, 2, x, 0, false, y), NB_OK);
        assert_int_equal(nb_associative_scan(f, 2, x, -1, true, z), NB_OK);
        for (int k = 0; k < 2; k++) {
            expect_values(y[k], n, ahead[k]);
            expect_values(z[k], n, back[k]);
        }
    }
}

/* Combining calls the function on halves: the number of nodes grows with the
 * logarithm of the length. */
static int prefix_calls(int64_t n)
{
    nb_tensor *x[] = {nb_ones(1, &n, NB_F64), nb_ones(1, &n, NB_F64)}, *y[2];
    nb_graph *g = NULL;
    assert_int_equal(nb_associative_scan(fn(compose, NULL), 2, x, 0, false, y),
                     NB_OK);
    assert_int_equal(nb_graph_of(2, x, 2, y, &g), NB_OK);
    int calls = nb_graph_calls(g);
    nb_graph_free(g);
    return calls;
}

static void an_associative_scan_is_of_logarithmic_depth(void **state)
{
    (void)state;
    int per_level = prefix_calls(64) - prefix_calls(32);
    assert_int_equal(prefix_calls(1 << 14) - prefix_calls(1 << 13), per_level);
    assert_true(prefix_calls(1 << 14) <= 14 * per_level);
}

/* Newton: sqrt(a) by x <- (x + a / x) / 2 until it is near.  By implicit
 * differentiation dx/da = 1 / (2 x), d2x/da2 = -1 / (4 x^3). */
BODY_OF(far,
        nb_greater(nb_abs(nb_sub(nb_mul(x[0], x[0]), c[0])), nb_num(1e-14)))
BODY_OF(newton, nb_mul(nb_num(0.5), nb_add(x[0], nb_div(c[0], x[0]))))

static nb_status root(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *start = num(1);
    (void)ctx, (void)nx;
    *ny = 1;
    return nb_while(fn(far, x), fn(newton, x), 1, &start, y);
}

static void newton_differentiates_as_the_implicit_function(void **state)
{
    const double a[] = {2, 9, 0.25, 1};
    nb_func *f = fn(root, NULL), *g = nb_grad(f, 1, (int[]){0});
    nb_tensor *v = vec(4, a);
    (void)state;
    for (int k = 0; k < 4; k++) {
        nb_tensor *x = num(a[k]);
        double r = sqrt(a[k]);
        EXPECT(nb_func_call1(f, 1, &x), r);
        if (k == 3) continue; /* starts at its end: no turn, no derivative */
        EXPECT(nb_func_call1(g, 1, &x), 1 / (2 * r));
        EXPECT(nb_func_call1(nb_jacfwd(f, 0), 1, &x), 1 / (2 * r));
        EXPECT(nb_func_call1(nb_hessian(f, 0), 1, &x), -1 / (4 * r * r * r));
        EXPECT(nb_func_call1(nb_grad(g, 1, (int[]){0}), 1, &x),
               -1 / (4 * r * r * r));
    }
    EXPECT(nb_func_call1(nb_vmap(f, NULL), 1, &v), sqrt(2), 3, 0.5, 1);
    EXPECT(nb_func_call1(nb_vmap(g, NULL), 1, &v), 1 / sqrt(8), 1. / 6, 1, 0);
    EXPECT(nb_func_call1(nb_grad(nb_vmap(f, NULL), 1, (int[]){0}), 1, &v),
           1 / sqrt(8), 1. / 6, 1, 0);
}

/* Each lane stops by itself: Collatz. */
BODY_OF(not_one, nb_not_equal(x[0], nb_count(1)))

static nb_tensor *collatz_step(nb_tensor *x)
{
    nb_tensor *odd = nb_equal(nb_mod(x, nb_count(2)), nb_count(1));
    nb_tensor *up = nb_add(nb_mul(x, nb_count(3)), nb_count(1));
    return nb_where(odd, up, nb_floor_divide(x, nb_count(2)));
}
BODY_OF(collatz, collatz_step(x[0]), nb_add(x[1], nb_count(1)))

static nb_status stopping_time(void *ctx, int nx, nb_tensor *const *x, int *ny,
                               nb_tensor **y)
{
    nb_tensor *init[] = {x[0], whole(0)}, *out[2];
    (void)ctx, (void)nx;
    nb_status s = nb_while(fn(not_one, NULL), fn(collatz, NULL), 2, init, out);
    y[0] = out[1];
    return *ny = 1, s;
}

static void each_lane_stops_by_itself(void **state)
{
    const int64_t v[] = {1, 7, 27, 2, 97, 6};
    (void)state;
    nb_tensor *x = given(NB_I64, 1, (int64_t[]){6}, v);
    nb_func *f = nb_vmap(fn(stopping_time, NULL), NULL);
    EXPECT(nb_func_call1(f, 1, &x), 0, 16, 111, 1, 118, 8);
    nb_tensor *two = nb_reshape(x, 2, (int64_t[]){2, 3});
    EXPECT(nb_func_call1(nb_vmap(f, NULL), 1, &two), 0, 16, 111, 1, 118, 8);
}

static void lanes_may_be_none(void **state)
{
    (void)state;
    nb_tensor *x = nb_zeros(1, (int64_t[]){0}, NB_I64);
    nb_tensor *y = nb_func_call1(nb_vmap(fn(stopping_time, NULL), NULL), 1, &x);
    assert_int_equal(nb_size(y, 0), 0);
    assert_int_equal(nb_realize(y), NB_OK);
}

/* The imperative style: the weight is a bare number in memory. */

BODY_OF(linear, nb_add(nb_mul(x[0], c[0]), nb_num(1)))
BODY_OF(squared, nb_add(nb_square(x[0]), nb_num(3)))

static void backward_goes_through_loops(void **state)
{
    nb_tensor *w = num(0.5), *c[] = {w, NULL, num(1)}, *init = num(2), *y, *z;
    int n = 1;
    (void)state;
    nb_require_grad(w);
    /* y = 2 w^3 + w^2 + w + 1 = 2, and it stays there: z = y^2 + 3 */
    assert_int_equal(
        nb_scan(fn(linear, c), 1, &init, 0, NULL, 3, false, &n, &y), NB_OK);
    assert_int_equal(nb_while(fn(below, c), fn(squared, c), 1, &y, &z), NB_OK);
    EXPECT(z, 7);
    assert_int_equal(nb_backward(z, NULL, false), NB_OK);
    EXPECT(nb_grad_of(w), 2 * 2 * 3.5);
    nb_grad_clear(w);
}

/* A graph that holds a loop or a branch, run on values with lanes that it was
 * not recorded with. */

static nb_tensor *rerun(nb_tensor *x, nb_tensor *y, nb_tensor *lanes)
{
    nb_graph *g = NULL;
    nb_tensor *out = NULL;
    assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
    int lane = nb_lane_begin(nb_size(lanes, 0), NULL);
    nb_tensor *in = nb_lane_hide(lanes, 0, lane);
    assert_int_equal(nb_graph_run(g, 1, &in, &out), NB_OK);
    nb_lane_end();
    nb_graph_free(g);
    return nb_lane_show(out, 0, lane, nb_size(lanes, 0));
}

static void a_recorded_loop_takes_lanes(void **state)
{
    nb_tensor *x = num(2), *c[] = {x, NULL, num(1)}, *one = num(1), *y, *z;
    int n = 1;
    (void)state;
    assert_int_equal(nb_scan(fn(linear, c), 1, &one, 0, NULL, 3, false, &n, &y),
                     NB_OK);
    EXPECT(rerun(x, y, VEC(1, 2, 3)), 4, 15, 40);
    EXPECT(y, 15);
    nb_tensor *sure = nb_truth(true), *in[] = {x, one};
    nb_func *yes = fn(same, NULL), *no = fn(later, NULL);
    assert_int_equal(nb_cond(sure, yes, no, 2, in, &n, &y), NB_OK);
    EXPECT(rerun(x, y, VEC(1, 2, 3)), 1, 2, 3);
    if (there_is_card()) return; /* there lanes may go ways of their own */
    assert_int_equal(nb_cond(nb_less(x, one), yes, no, 2, in, &n, &y), NB_OK);
    z = rerun(x, y, VEC(1, 2, 3));
    expect_error(nb_realize(z), NB_ERUNTIME,
                 "cond: the predicate differs from lane to lane, which it did "
                 "not when recorded");
    assert_int_equal(nb_while(fn(below, NULL), fn(squared, NULL), 1, &x, &y),
                     NB_OK);
    z = rerun(x, y, VEC(1, 2, 3));
    expect_error(nb_realize(z), NB_ERUNTIME,
                 "while: the test differs from lane to lane, which it did not "
                 "when recorded");
}

/* A map within a loop, whose lanes talk in a loop of their own: they must not
 * be taken for the new lanes. */
BODY_OF(heard, nb_sin(nb_mul(x[1], nb_lane_sum(x[1], "k"))))

static nb_tensor *spoken(nb_tensor *x)
{
    nb_func *f = fn(heard, NULL);
    nb_tensor *y;
    return nb_fori(nb_count(0), nb_count(2), f, 1, &x, &y) == NB_OK ? y : NULL;
}
BODY_OF(speaker, spoken(nb_mul(x[0], c[0])))

static nb_tensor *choir_of(nb_tensor *x)
{
    nb_func *f = nb_vmap(fn(speaker, &x), &(nb_vmap_options){.axis_name = "k"});
    nb_tensor *voices = VEC(0.3, 0.7, 0.45);
    return total(nb_func_call1(f, 1, &voices));
}
BODY_OF(choir, choir_of(x[0]))

static nb_tensor *sung(nb_tensor *x)
{
    nb_tensor *y;
    assert_int_equal(scan0(choir, x, 2, &y), NB_OK);
    return y;
}

static void lanes_within_a_recorded_loop_stay_what_they_are(void **state)
{
    nb_tensor *x = num(0.35), *y = sung(x);
    (void)state;
    EXPECT(rerun(x, y, VEC(0.35, 0.2, 0.9)), value_of(sung(x)),
           value_of(sung(num(0.2))), value_of(sung(num(0.9))));
}

/* Size */

/* A state of 10 numbers that grows and shrinks, and its sum at each step. */
BODY_OF(swing, nb_sin(nb_add(x[0], c[0])), total(x[0]))
BODY_OF(goes_on, nb_less(x[1], c[1]))
BODY_OF(swing_on, nb_sin(nb_add(x[0], c[0])), nb_add(x[1], nb_count(1)))

static nb_tensor *long_loop(int64_t length, nb_tensor *w)
{
    nb_tensor *init = nb_zeros(1, (int64_t[]){10}, NB_F64), *y[2];
    int n = 2;
    nb_func *f = nb_func_new(swing, &w);
    nb_status s = nb_scan(f, 1, &init, 0, NULL, length, false, &n, y);
    return s == NB_OK ? nb_add(total(y[0]), total(y[1])) : NULL;
}

static nb_tensor *long_while(int64_t length, nb_tensor *w)
{
    nb_tensor *c[] = {w, whole(length)}, *y[2];
    nb_tensor *init[] = {nb_zeros(1, (int64_t[]){10}, NB_F64), whole(0)};
    bool ok = nb_while(fn(goes_on, c), fn(swing_on, c), 2, init, y) == NB_OK;
    return ok ? total(y[0]) : NULL;
}

typedef nb_tensor *loop(int64_t length, nb_tensor *w);
typedef struct sized {
    loop *run;
    int64_t length;
} sized;

static nb_status sized_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const sized *l = ctx;
    (void)nx;
    y[0] = l->run(l->length, x[0]);
    return *ny = 1, y[0] ? NB_OK : NB_ERUNTIME;
}

static uint64_t nodes_made(void)
{
    return nb_num(0)->serial;
}

/* The nodes that recording takes. */
static uint64_t recording(loop *run, int64_t length, bool back)
{
    sized l = {run, length};
    nb_func *f = nb_func_new(sized_body, &l);
    nb_tensor *w = num(0.7);
    uint64_t before = nodes_made();
    assert_non_null(nb_func_call1(back ? nb_grad(f, 1, (int[]){0}) : f, 1, &w));
    return nodes_made() - before;
}

static void a_loop_is_recorded_once(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        assert_int_equal(recording(long_loop, 100000, back),
                         recording(long_loop, 2, back));
        assert_int_equal(recording(long_while, 100000, back),
                         recording(long_while, 2, back));
        assert_true(recording(long_loop, 100000, back) < 100);
    }
}

/* Most nodes alive while something runs, seen from beside, and most bytes. */
typedef struct watch {
    atomic_bool over;
    int64_t nodes;
    size_t bytes;
} watch;

static void *look_on(void *arg)
{
    watch *w = arg;
    do {
        nb_stats s = nb_stats_get();
        if (s.nodes_live > w->nodes) w->nodes = s.nodes_live;
        usleep(50);
    } while (!w->over);
    return NULL;
}

static watch watched(nb_tensor *x)
{
    watch w = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_on, &w), 0);
    nb_memory_peak_reset();
    nb_status s = nb_realize(x);
    w.bytes = nb_memory_peak();
    w.over = true;
    pthread_join(thread, NULL);
    if (s != NB_OK) fail_msg("%s", nb_error_message());
    return w;
}

static void a_long_loop_runs_in_bounded_memory(void **state)
{
    loop *const runs[] = {long_loop, long_while};
    (void)state;
    for (int traced = 0; traced < 2; traced++)
        for (int k = 0; k < 2; k++) {
            nb_tensor *w = num(0.7);
            if (traced) nb_require_grad(w); /* each step has no history */
            watch a = watched(runs[k](100000, w));
            assert_true(a.nodes < 200);
            assert_true(a.bytes < 2 << 20); /* of ys 800,000 */
        }
}

static size_t backward_bytes(loop *run, int64_t length, double *slope)
{
    sized l = {run, length};
    nb_tensor *w = num(0.7);
    nb_func *f = nb_func_new(sized_body, &l);
    nb_tensor *g = nb_func_call1(nb_grad(f, 1, (int[]){0}), 1, &w);
    watch seen = watched(g);
    *slope = value_of(g);
    return seen.bytes;
}

/* d/dw of 10 sin(w + sin(w + ...)), and of sums of all but the last. */
static double slope_by_hand(int64_t length, double w, bool sums)
{
    double x = 0, u = 0, all = 0;
    for (int64_t t = 0; t < length; t++) {
        all += u;
        u = cos(x + w) * (u + 1);
        x = sin(x + w);
    }
    return 10 * (u + (sums ? all : 0));
}

static void walking_back_keeps_the_states(void **state)
{
    double slope, longer;
    (void)state;
    for (int k = 0; k < 2; k++) {
        loop *run = k ? long_while : long_loop;
        size_t a = backward_bytes(run, 1000, &slope);
        size_t b = backward_bytes(run, 4000, &longer);
        double there = slope_by_hand(1000, 0.7, !k);
        assert_true(fabs(slope - there) < 1e-9 * fabs(there));
        there = slope_by_hand(4000, 0.7, !k);
        assert_true(fabs(longer - there) < 1e-9 * fabs(there));
        /* 80 bytes a state; of a while, with a number, in blocks of 320 and
         * 224 with the tensor and its buffer */
        size_t most = k ? 1000 : 160;
        assert_true(a < 1000 * most && b < 4000 * most);
    }
}

/* Reverse mode of a while doubles its passes. */
static void a_while_can_be_walked_back_five_times(void **state)
{
    nb_func *f = fn(root, NULL);
    nb_tensor *x = num(2), *y;
    int n = 1;
    (void)state;
    const double expected[] = {1, 0.5, -0.25, 0.375};
    for (int order = 0; order < 4; order++) {
        EXPECT(nb_func_call1(f, 1, &x), expected[order] * pow(2, 0.5 - order));
        f = nb_grad(f, 1, (int[]){0});
    }
    f = nb_grad(nb_grad(f, 1, (int[]){0}), 1, (int[]){0});
    expect_error(nb_func_call(f, 1, &x, &n, &y), NB_EVALUE,
                 "while: walked back through more than five times over");
}

/* Threads */

static void *in_a_thread(void *arg)
{
    bool *ok = arg;
    *ok = true;
    for (int k = 0; *ok && k < 20; k++) {
        double a, b;
        nb_scope_open();
        backward_bytes(long_loop, 50, &a);
        backward_bytes(long_while, 50, &b);
        *ok = fabs(a - slope_by_hand(50, 0.7, true)) < 1e-9 * fabs(a) &&
              fabs(b - slope_by_hand(50, 0.7, false)) < 1e-9 * fabs(b);
        nb_scope_close(0, NULL);
    }
    return NULL;
}

static void loops_run_in_several_threads(void **state)
{
    pthread_t thread[4];
    bool ok[4];
    (void)state;
    for (int k = 0; k < 4; k++)
        assert_int_equal(pthread_create(&thread[k], NULL, in_a_thread, &ok[k]),
                         0);
    for (int k = 0; k < 4; k++) {
        pthread_join(thread[k], NULL);
        assert_true(ok[k]);
    }
}

/* Faults */

static bool realized(nb_func *f)
{
    nb_tensor *x[] = {VEC(0.3, 0.7, 0.45), VEC(0.6, -0.2), num(0.35)}, *y[8];
    int n = 8;
    return x[0] && x[1] && x[2] && f && nb_func_call(f, 3, x, &n, y) == NB_OK &&
           nb_realize_all(n, y) == NB_OK;
}

static bool derivatives(void *ctx)
{
    const twins *t = ctx;
    nb_func *f = nb_func_new(t->loop, NULL);
    const int some[] = {0, 2};
    if (!realized(nb_value_and_grad(f, 2, some))) return false;
    return realized(nb_jacfwd(f, 2));
}

static void every_allocation_may_fail(void **state)
{
    faults f = {.run = derivatives, .ctx = *state, .sparse = 100};
    assert_true(faults_survived(&f));
    assert_int_equal(nodes_left(), 0);
}

#define SENTENCE(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest sentences[] = {
        SENTENCE(a_carry_must_come_back_as_what_it_was),
        SENTENCE(lengths_must_agree),
        SENTENCE(branches_must_agree),
        SENTENCE(branches_must_agree_when_both_run),
        SENTENCE(wrong_arguments_are_refused),
        SENTENCE(a_body_cannot_look_at_values),
        SENTENCE(the_error_of_a_body_is_the_error),
        SENTENCE(a_rule_that_fails_leaves_nothing_open),
        SENTENCE(bare_numbers_take_the_dtype_that_fits),
        SENTENCE(a_narrow_index_chooses_among_many),
        SENTENCE(a_loop_may_have_thousands_of_states),
        SENTENCE(an_associative_scan_takes_any_length),
        SENTENCE(an_associative_scan_is_of_logarithmic_depth),
        SENTENCE(newton_differentiates_as_the_implicit_function),
        SENTENCE(each_lane_stops_by_itself),
        SENTENCE(lanes_may_be_none),
        SENTENCE(backward_goes_through_loops),
        SENTENCE(a_recorded_loop_takes_lanes),
        SENTENCE(lanes_within_a_recorded_loop_stay_what_they_are),
        SENTENCE(a_loop_is_recorded_once),
        SENTENCE(a_long_loop_runs_in_bounded_memory),
        SENTENCE(walking_back_keeps_the_states),
        SENTENCE(a_while_can_be_walked_back_five_times),
        SENTENCE(loops_run_in_several_threads),
    };
    enum { NSENTENCES = sizeof sentences / sizeof sentences[0] };
    struct CMUnitTest tests[NSENTENCES + 2 * NTWINS];
    char name[NTWINS][96];
    size_t n = 0;
    for (int k = 0; k < NSENTENCES; k++)
        if (there_shares(k)) tests[n++] = sentences[k];
    for (int k = 0; k < NTWINS; k++) {
        snprintf(name[k], sizeof name[k], "faults in %s", all_twins[k].name);
        tests[n++] = (struct CMUnitTest){
            .name = all_twins[k].name,
            .test_func = a_loop_is_what_it_is_when_written_out,
            .setup_func = open_scope,
            .teardown_func = close_scope,
            .initial_state = (void *)&all_twins[k]};
        if (!there_shares(k)) continue;
        tests[n++] =
            (struct CMUnitTest){.name = name[k],
                                .test_func = every_allocation_may_fail,
                                .initial_state = (void *)&all_twins[k]};
    }
    return _cmocka_run_group_tests("control", tests, n, NULL, NULL);
}
