/* check.c - the slow way to every transform. */
#include "support/check.h"

#include "support/faults.h"
#include "support/ranks.h"
#include "support/there.h"
#include "transform/func.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 2 };

/* Differences: the step, and what of a value its rounding may be. */
static const double STEP = 1e-5, ROUNDING = 1e-13;

static int passed, failed;
const char *const way_name[ALL_WAYS] = {"vjp",     "jvp",        "vmap",
                                        "jacrev",  "jacfwd",     "hess_rf",
                                        "hess_fr", "checkpoint", "scan"};

bool expect(bool ok, const char *format, ...)
{
    va_list ap;
    bool here = ok && !nb_error_code();
    ok = ranks_agree(here);
    *(ok ? &passed : &failed) += 1;
    if (!here || (!ok && rank_speaks())) {
        printf("%sFAIL %s", rank_prefix(), here ? "elsewhere: " : "");
        va_start(ap, format);
        vprintf(format, ap);
        va_end(ap);
        printf(". %s\n", nb_error_message());
    }
    nb_error_clear();
    return ok;
}

int tally(void)
{
    return ranks_tally(passed, failed);
}

void none_leaks(size_t n, void (*const *test)(void))
{
    for (size_t i = 0; i < n; i++) {
        int64_t before = memory_left();
        nb_scope_open();
        test[i]();
        nb_scope_close(0, NULL);
        nb_caches_clear();
        if (i) expect(memory_left() <= before + 64, "%zu leaks", i);
    }
}

bool all_closed(void)
{
    int lanes;
    nb_lanes_open(&lanes);
    return !lanes && !nb_traces_open();
}

/* A pointer to data cannot be one to a function. */
static bool run_pointed_to(void *ctx)
{
    bool (**run)(void) = ctx;
    return (*run)();
}

void expect_survival(const char *name, bool (*run)(void))
{
    faults f = {.run = run_pointed_to, .ctx = &run};
    bool ok = faults_survived(&f);
    expect(f.n > 0, "%s runs", name); /* before anything fails */
    expect(ok, "%s survives the failure of allocation %lld", name,
           (long long)f.n);
}

nb_tensor *draw(int rank, const int64_t *size, double lo, double hi)
{
    /* A number that is made of nothing is nowhere. */
    nb_tensor *x = rank ? nb_zeros(rank, size, NB_F64)
                        : given(NB_F64, 0, NULL, &(double){0});
    return draw_like(x, lo, hi);
}

nb_tensor *vec(int64_t n, const double *v)
{
    return given(NB_F64, 1, &n, v);
}

bool is(nb_tensor *x, int64_t n, const double *v)
{
    double *a = malloc((size_t)(nb_elements(x) + 1) * sizeof *a);
    bool read = x && nb_read(x, NB_F64, a) == NB_OK;
    bool same = read && nb_elements(x) == n;
    for (int64_t i = 0; same && i < n; i++)
        same = fabs(a[i] - v[i]) <= 1e-9 * (1 + fabs(v[i]));
    for (int64_t i = 0; read && !same && i < nb_elements(x); i++)
        printf("%s%.10g%s", i ? " " : "  it is [", a[i],
               i + 1 < nb_elements(x) ? "" : "]\n");
    free(a);
    return same;
}

bool failed_with(nb_status code, const char *part)
{
    bool so = nb_error_code() == code && strstr(nb_error_message(), part);
    if (!so)
        printf("  the error is %d, %s\n", nb_error_code(), nb_error_message());
    nb_error_clear();
    return so;
}

static bool is_float(nb_tensor *x)
{
    return nb_dtype_is_float(nb_dtype_of(x));
}

static bool call(const task *t, nb_tensor *const *x, nb_tensor **y)
{
    int n = MAX_ARGS;
    return nb_func_call(t->fn, t->nin, x, &n, y) == NB_OK && n == t->nout;
}

/* Lanes of argument x: itself, and something so near it that no op minds, or
 * its indices turned. */
static nb_tensor *lanes(nb_tensor *x, int at)
{
    nb_tensor *other =
        is_float(x) ? nb_mul(x, nb_num(0.97)) : nb_flip(x, -1, NULL);
    nb_tensor *all = nb_stack(LANES, (nb_tensor *[]){x, other}, at);
    return nb_realize(all) == NB_OK ? all : NULL;
}

static nb_tensor *lane(nb_tensor *x, int at, int64_t i)
{
    if (at == 0) return nb_get(x, 1, (nb_key[]){NB_AT(i)});
    return nb_get(x, 2, (nb_key[]){NB_REST, NB_AT(i)});
}

static void stack(task *t, const task *g, uint64_t mapped, int at)
{
    for (int i = 0; i < g->nin; i++) {
        t->in_axes[i] = mapped >> i & 1 ? at : NB_UNMAPPED;
        if (mapped >> i & 1) t->x[i] = lanes(g->x[i], at);
    }
    t->axis = at;
}

static void map(task *t, const task *g, int at)
{
    t->fn = nb_vmap(g->fn, &(nb_vmap_options){.nin = g->nin,
                                              .in_axes = t->in_axes,
                                              .nout = 1,
                                              .out_axes = &at});
}

/* Something to push or pull along with x; integers move, and it must not
 * matter. */
static nb_tensor *along(nb_tensor *x)
{
    return is_float(x) ? draw_like(x, -1, 1) : nb_ones_like(x);
}

/* A scan of f over the arguments mapped, closing over the rest: its results
 * stacked, then a carry that halves and takes them in. */
typedef struct loop {
    const nb_made *of;
    nb_tensor *const *x;
} loop;

static nb_tensor *halved(nb_tensor *carry, int n, nb_tensor *const *y)
{
    nb_tensor *next = nb_mul(carry, nb_num(0.5));
    for (int k = 0; k < n; k++)
        if (is_float(y[k]))
            next = nb_add(next, nb_reduce_sum(y[k], -1, NULL, false));
    return next;
}

static nb_status step_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const loop *l = ctx;
    nb_tensor *in[MAX_ARGS];
    (void)nx;
    for (int i = 0, at = 1; i < l->of->n; i++)
        in[i] = l->of->argument[i] == NB_UNMAPPED ? l->x[i] : x[at++];
    --*ny;
    nb_status status = nb_func_call(l->of->of, l->of->n, in, ny, y + 1);
    if (status == NB_OK) y[0] = halved(x[0], *ny, y + 1);
    ++*ny;
    return status;
}

static nb_status scan_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    loop l = {ctx, x};
    nb_tensor *xs[MAX_ARGS], *carry = nb_scalar_float(1, NB_F64);
    int n = 0;
    for (int i = 0; i < nx; i++)
        if (l.of->argument[i] != NB_UNMAPPED) xs[n++] = x[i];
    nb_func *step = nb_func_new(step_body, &l);
    nb_status status = nb_scan(step, 1, &carry, n, xs, LANES, false, ny, y);
    if (status != NB_OK) return status;
    carry = y[0];
    memmove(y, y + 1, (size_t)(*ny - 1) * sizeof *y);
    y[*ny - 1] = carry;
    return NB_OK;
}

task task_transform(way w, const task *g, uint64_t mapped, int at)
{
    task t = {.nin = g->nin, .nout = 1};
    nb_tensor *y[MAX_ARGS];
    memcpy(t.x, g->x, sizeof t.x);
    switch (w) {
    case VJP:
        t.fn = nb_vjp(g->fn, g->nin);
        t.nin = t.nout = g->nin + g->nout;
        if (!call(g, g->x, y)) return t;
        for (int k = 0; k < g->nout; k++)
            t.x[g->nin + k] = along(y[k]);
        break;
    case JVP:
        t.fn = nb_jvp(g->fn);
        t.nin = 2 * g->nin;
        t.nout = 2 * g->nout;
        for (int i = 0; i < g->nin; i++)
            t.x[g->nin + i] = along(g->x[i]);
        break;
    case VMAP:
        t.nout = g->nout;
        stack(&t, g, mapped, at);
        map(&t, g, at);
        break;
    case SCAN:
        t.nout = g->nout + 1;
        stack(&t, g, mapped, 0);
        t.fn = nb_func_made(g->fn, scan_body, g->nin, t.in_axes);
        break;
    case CHECKPOINT:
        t.nout = g->nout;
        t.fn = nb_checkpoint(g->fn, NULL);
        break;
    case JACREV: t.fn = nb_jacrev(g->fn, 0); break;
    case HESS_RF: t.fn = nb_jacrev(nb_jacfwd(g->fn, 0), 0); break;
    case HESS_FR: t.fn = nb_jacfwd(nb_jacrev(g->fn, 0), 0); break;
    default: t.fn = nb_jacfwd(g->fn, 0); break;
    }
    return t;
}

static double *values(nb_tensor *x)
{
    double *v = malloc((size_t)(nb_elements(x) + 1) * sizeof *v);
    if (x && nb_read(x, NB_F64, v) == NB_OK) return v;
    free(v);
    return NULL;
}

static double largest(nb_tensor *x)
{
    double *v = values(x), most = 0;
    for (int64_t i = 0; v && i < nb_elements(x); i++)
        most = fabs(v[i]) > most ? fabs(v[i]) : most;
    free(v);
    return most;
}

static void show(const char *what, nb_tensor *x)
{
    double *v = values(x);
    printf("  %s [", what);
    for (int64_t i = 0; v && i < nb_elements(x) && i < 24; i++)
        printf("%s%.10g", i ? " " : "", v[i]);
    printf("] of shape (");
    for (int d = 0; x && d < nb_rank(x); d++)
        printf("%s%lld", d ? " " : "", (long long)nb_size(x, d));
    printf(")\n");
    free(v);
}

/* Whether got is near, but for some slack; shows both if it is not.  What is
 * not a number is not near anything. */
static bool close_to(nb_tensor *got, nb_tensor *expected, double tolerance,
                     double slack)
{
    bool ok = got && expected && nb_rank(got) == nb_rank(expected);
    for (int d = 0; ok && d < nb_rank(got); d++)
        ok = nb_size(got, d) == nb_size(expected, d);
    double *a = ok ? values(got) : NULL, *b = ok ? values(expected) : NULL;
    ok = a && b;
    for (int64_t i = 0; ok && i < nb_elements(got); i++) {
        double scale = fabs(b[i]) > 1 ? fabs(b[i]) : 1;
        ok = fabs(a[i] - b[i]) <= tolerance * scale + slack;
    }
    free(a);
    free(b);
    if (ok) return true;
    show("got     ", got);
    show("expected", expected);
    return false;
}

/* The same of several, up to rounding of the largest. */
static bool all_close(int n, nb_tensor *const *x, nb_tensor *const *y,
                      double tolerance)
{
    for (int i = 0; i < n; i++)
        if (!close_to(x[i], y[i], tolerance, tolerance * largest(y[i])))
            return false;
    return true;
}

/* Central differences of order four, along u (NULL: not moved), and the slack
 * that the rounding of the values leaves them. */
static bool slope(const task *g, nb_tensor *const *x, nb_tensor *const *u,
                  nb_tensor **dy, double *slack)
{
    const double h = STEP, at[] = {-2, -1, 1, 2}, weight[] = {1, -8, 8, -1};
    for (int p = 0; p < 4; p++) {
        nb_tensor *in[MAX_ARGS], *y[MAX_ARGS];
        for (int i = 0; i < g->nin; i++)
            in[i] = u[i] && is_float(x[i])
                        ? nb_add(x[i], nb_mul(u[i], nb_num(at[p] * h)))
                        : x[i];
        if (!call(g, in, y)) return false;
        for (int k = 0; k < g->nout; k++) {
            nb_tensor *t =
                nb_mul(nb_cast(y[k], NB_F64), nb_num(weight[p] / (12 * h)));
            if (!is_float(y[k])) t = nb_zeros_like(t);
            dy[k] = p ? nb_add(dy[k], t) : t;
            slack[k] = is_float(y[k]) ? ROUNDING / h * largest(y[k]) : 0;
        }
        if (nb_realize_all(g->nout, dy) != NB_OK) return false;
    }
    return true;
}

/* A cotangent has the shape and dtype of what it belongs to; of integers it is
 * zero. */
static bool is_cotangent(nb_tensor *cx, nb_tensor *x)
{
    return nb_dtype_of(cx) == nb_dtype_of(x) &&
           near(nb_zeros_like(cx), nb_zeros_like(x), 0) &&
           (is_float(cx) || near(cx, nb_zeros_like(x), 0));
}

/* <a, b> and the sum of what its terms are in size. */
static double product(nb_tensor *a, nb_tensor *b, double *size)
{
    if (!is_float(a)) return 0;
    *size += dot(nb_abs(a), nb_abs(b));
    return dot(a, b);
}

/* <ct, J u> = <J' ct, u>, where u moves the results by dy. */
static bool transposes(const task *g, const task *t, nb_tensor *const *fast,
                       nb_tensor *const *u, nb_tensor *const *dy,
                       double tolerance, const double *slack)
{
    double left = 0, right = 0, size = 1, room = 0;
    for (int i = 0; i < g->nin; i++)
        right += product(fast[g->nout + i], u[i], &size);
    for (int k = 0; k < g->nout; k++) {
        nb_tensor *ct = t->x[g->nin + k];
        left += product(ct, dy[k], &size);
        if (slack) room += slack[k] * (double)nb_elements(ct);
    }
    bool ok = fabs(left - right) <= tolerance * size + room;
    if (!ok) printf("  <ct, J u> is %.15g, <J' ct, u> %.15g\n", left, right);
    return ok;
}

static bool vjp_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *u[MAX_ARGS], *dy[MAX_ARGS];
    double slack[MAX_ARGS];
    for (int i = 0; i < g->nin; i++) {
        u[i] = along(t->x[i]);
        if (!is_cotangent(fast[g->nout + i], t->x[i])) return false;
    }
    return slope(g, t->x, u, dy, slack) &&
           transposes(g, t, fast, u, dy, 1e-6, slack);
}

bool task_is_transposed(const task *g, const task *t, double tolerance)
{
    task ahead = task_transform(JVP, g, 0, 0);
    nb_tensor *fast[MAX_ARGS], *y[MAX_ARGS];
    return t->fn && call(t, t->x, fast) && call(&ahead, ahead.x, y) &&
           transposes(g, t, fast, ahead.x + g->nin, y + g->nout, tolerance,
                      NULL);
}

static bool jvp_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *dy[MAX_ARGS];
    double slack[MAX_ARGS];
    if (!slope(g, t->x, t->x + g->nin, dy, slack)) return false;
    for (int k = 0; k < g->nout; k++)
        if (!close_to(fast[g->nout + k], dy[k], 1e-6, slack[k])) return false;
    return true;
}

/* Times a random u it is the slope along u. */
static bool jacobian_agrees(const task *g, const task *t, nb_tensor *jac)
{
    nb_tensor *u[MAX_ARGS] = {along(t->x[0])}, *dy[MAX_ARGS];
    int64_t of_jac[NB_MAX_RANK], of_u[NB_MAX_RANK];
    double slack[MAX_ARGS];
    int n = nb_rank(u[0]);
    for (int d = 0; d < n; d++) {
        of_jac[d] = d - n;
        of_u[d] = d;
    }
    return slope(g, t->x, u, dy, slack) &&
           close_to(nb_tensordot(jac, u[0], n, of_jac, of_u), dy[0], 1e-6,
                    slack[0]);
}

/* It is the jacobian of a jacobian, which is one itself. */
static bool hessian_agrees(way w, const task *g, const task *t, nb_tensor *hess)
{
    task first = task_transform(w == HESS_RF ? JACFWD : JACREV, g, 0, 0);
    return task_agrees(JACFWD, g, &first) && jacobian_agrees(&first, t, hess);
}

/* What carry a scan ends with, from the results of its steps. */
static bool batch_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *x[MAX_ARGS], *y[MAX_ARGS], *carry = nb_num(1);
    for (int b = 0; b < LANES; b++) {
        for (int i = 0; i < g->nin; i++)
            x[i] = t->in_axes[i] == NB_UNMAPPED
                       ? t->x[i]
                       : lane(t->x[i], t->in_axes[i], b);
        if (!call(g, x, y)) return false;
        for (int k = 0; k < g->nout; k++) {
            nb_tensor *got = lane(fast[k], t->axis, b);
            if (!all_close(1, &got, &y[k], 1e-10)) return false;
        }
        carry = halved(carry, g->nout, y);
    }
    return t->nout == g->nout || all_close(1, &fast[g->nout], &carry, 1e-10);
}

bool task_is_same(const task *t, const task *s, double tolerance)
{
    nb_tensor *x[MAX_ARGS], *y[MAX_ARGS];
    return t->fn && s->fn && t->nout == s->nout && call(t, t->x, x) &&
           call(s, s->x, y) && all_close(t->nout, x, y, tolerance);
}

bool task_agrees(way w, const task *g, const task *t)
{
    nb_tensor *fast[MAX_ARGS], *y[MAX_ARGS];
    if (!t->fn || !call(t, t->x, fast)) return false;
    switch (w) {
    case VJP:
        return call(g, t->x, y) && all_close(g->nout, fast, y, 1e-12) &&
               vjp_agrees(g, t, fast);
    case JVP:
        return call(g, t->x, y) && all_close(g->nout, fast, y, 1e-12) &&
               jvp_agrees(g, t, fast);
    case VMAP:
    case SCAN: return batch_agrees(g, t, fast);
    case CHECKPOINT: return task_is_same(t, g, 1e-12);
    case HESS_RF:
    case HESS_FR: return hessian_agrees(w, g, t, fast[0]);
    default: return jacobian_agrees(g, t, fast[0]);
    }
}
