/* check.c - the slow way to every transform. */
#include "support/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 2 };

static int passed, failed;
const char *const way_name[NWAYS] = {"vjp", "jvp", "vmap", "jacrev", "jacfwd"};

bool expect(bool ok, const char *format, ...)
{
    va_list ap;
    ok = ok && !nb_error_code();
    *(ok ? &passed : &failed) += 1;
    if (!ok) {
        printf("FAIL ");
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
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

nb_tensor *draw(int rank, const int64_t *size, double lo, double hi)
{
    return draw_like(nb_zeros(rank, size, NB_F64), lo, hi);
}

nb_tensor *vec(int64_t n, const double *v)
{
    return nb_constant(NB_F64, 1, &n, v);
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

static void map(task *t, const task *g, unsigned mapped, int at)
{
    for (int i = 0; i < g->nin; i++) {
        t->in_axes[i] = mapped >> i & 1 ? at : NB_UNMAPPED;
        if (mapped >> i & 1) t->x[i] = lanes(g->x[i], at);
    }
    t->axis = at;
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

task task_transform(way w, const task *g, unsigned mapped, int at)
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
        map(&t, g, mapped, at);
        break;
    case JACREV: t.fn = nb_jacrev(g->fn, 0); break;
    default: t.fn = nb_jacfwd(g->fn, 0); break;
    }
    return t;
}

/* Central differences of order four, along u (NULL: not moved). */
static bool slope(const task *g, nb_tensor *const *x, nb_tensor *const *u,
                  nb_tensor **dy)
{
    const double h = 1e-5, at[] = {-2, -1, 1, 2}, weight[] = {1, -8, 8, -1};
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
        }
        if (nb_realize_all(g->nout, dy) != NB_OK) return false;
    }
    return true;
}

static bool all_near(int n, nb_tensor *const *x, nb_tensor *const *y,
                     double tolerance)
{
    for (int i = 0; i < n; i++)
        if (!near(x[i], y[i], tolerance)) return false;
    return true;
}

/* Vjp is jvp transposed: <ct, J u> = <J' ct, u> for a random u. */
static bool vjp_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *u[MAX_ARGS], *dy[MAX_ARGS];
    double left = 0, right = 0, size = 1;
    for (int i = 0; i < g->nin; i++) {
        nb_tensor *cx = fast[g->nout + i];
        u[i] = along(t->x[i]);
        if (nb_dtype_of(cx) != nb_dtype_of(t->x[i]) ||
            !near(cx, is_float(cx) ? cx : nb_zeros_like(u[i]), 0) ||
            !near(nb_zeros_like(cx), nb_zeros_like(t->x[i]), 0))
            return false;
        right += is_float(cx) ? dot(cx, u[i]) : 0;
        size += is_float(cx) ? fabs(dot(cx, u[i])) : 0;
    }
    if (!slope(g, t->x, u, dy)) return false;
    for (int k = 0; k < g->nout; k++)
        left += is_float(fast[k]) ? dot(t->x[g->nin + k], dy[k]) : 0;
    return fabs(left - right) <= 1e-6 * size;
}

static bool jvp_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *dy[MAX_ARGS];
    return slope(g, t->x, t->x + g->nin, dy) &&
           all_near(g->nout, fast + g->nout, dy, 1e-6);
}

/* Times a random u it is the slope along u. */
static bool jacobian_agrees(const task *g, const task *t, nb_tensor *jac)
{
    nb_tensor *u[MAX_ARGS] = {along(t->x[0])}, *dy[MAX_ARGS];
    int64_t of_jac[NB_MAX_RANK], of_u[NB_MAX_RANK];
    int n = nb_rank(u[0]);
    for (int d = 0; d < n; d++) {
        of_jac[d] = d - n;
        of_u[d] = d;
    }
    return slope(g, t->x, u, dy) &&
           near(nb_tensordot(jac, u[0], n, of_jac, of_u), dy[0], 1e-6);
}

static bool vmap_agrees(const task *g, const task *t, nb_tensor *const *fast)
{
    nb_tensor *x[MAX_ARGS], *y[MAX_ARGS];
    for (int b = 0; b < LANES; b++) {
        for (int i = 0; i < g->nin; i++)
            x[i] = t->in_axes[i] == NB_UNMAPPED
                       ? t->x[i]
                       : lane(t->x[i], t->in_axes[i], b);
        if (!call(g, x, y)) return false;
        for (int k = 0; k < g->nout; k++)
            if (!near(lane(fast[k], t->axis, b), y[k], 1e-10)) return false;
    }
    return true;
}

bool task_agrees(way w, const task *g, const task *t)
{
    nb_tensor *fast[MAX_ARGS], *y[MAX_ARGS];
    if (!t->fn || !call(t, t->x, fast)) return false;
    switch (w) {
    case VJP:
        return call(g, t->x, y) && all_near(g->nout, fast, y, 1e-12) &&
               vjp_agrees(g, t, fast);
    case JVP:
        return call(g, t->x, y) && all_near(g->nout, fast, y, 1e-12) &&
               jvp_agrees(g, t, fast);
    case VMAP: return vmap_agrees(g, t, fast);
    default: return jacobian_agrees(g, t, fast[0]);
    }
}
