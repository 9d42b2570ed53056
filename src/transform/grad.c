/* grad.c - derivatives of functions: grad, vjp, jvp. */
#include "transform/func.h"

#include "ops/ops.h"

#include <string.h>

/* Some arguments on tape, the others as they are. */
typedef struct taped {
    nb_tape *tape;
    int nx, ny;
    nb_tensor **fresh, **y; /* of the listed arguments; results */
} taped;

static void taped_free(taped *t)
{
    nb_tape_drop(t->tape);
    nb_free(t->fresh);
    nb_free(t->y);
}

/* The arguments to differentiate by: each of nx, none twice. */
static bool listed(int nx, int n, const int32_t *argument)
{
    for (int k = 0; k < n; k++) {
        if (argument[k] < 0 || argument[k] >= nx)
            return nb_fail(NB_EVALUE,
                           "grad: no argument %d: the function has %d",
                           argument[k], nx);
        for (int j = 0; j < k; j++)
            if (argument[j] == argument[k])
                return nb_fail(NB_EVALUE, "grad: argument %d is listed twice",
                               argument[k]);
    }
    return true;
}

static bool room(const char *who, int n, int there)
{
    return n <= there ||
           nb_fail(NB_EVALUE, "%s: %d results, room for %d", who, n, there);
}

/* Records f(x) with the n arguments of that number on tape; the tape covers
 * `covered` results (all: -1). */
static bool record(taped *t, nb_func *f, int nx, nb_tensor *const *x, int n,
                   const int32_t *argument, int covered)
{
    nb_tensor **in = nb_array(nx), **on = nb_array(n);
    *t = (taped){.nx = n, .ny = NB_MAX_RESULTS};
    t->fresh = nb_array(n);
    t->y = nb_array(t->ny);
    bool ok = in && on && t->fresh && t->y && listed(nx, n, argument);
    for (int i = 0; ok && i < nx; i++)
        in[i] = x[i];
    for (int k = 0; ok && k < n; k++)
        on[k] = x[argument[k]];
    ok = ok && (t->tape = nb_tape_open(n, on, t->fresh));
    for (int k = 0; ok && k < n; k++)
        in[argument[k]] = t->fresh[k];
    ok = ok && nb_run(f, nx, in, &t->ny, t->y);
    if (ok && t->ny == 0) ok = nb_fail(NB_ETYPE, "grad: no result");
    ok = ok &&
         nb_tape_close(t->tape, covered < 0 ? t->ny : covered, t->y) == NB_OK;
    nb_free(in);
    nb_free(on);
    if (!ok) taped_free(t);
    return ok;
}

static bool gradients(const nb_made *m, int nx, nb_tensor *const *x,
                      nb_tensor **y, int *ny, bool with_value)
{
    taped t;
    int at = 0;
    if (!record(&t, m->of, nx, x, m->n, m->argument, 1)) return false;
    nb_tensor **g = nb_array(m->n);
    bool ok = g && room("grad", m->n + (with_value ? t.ny : 0), *ny) &&
              nb_tape_pull(t.tape, NULL, g) == NB_OK;
    for (int k = 0; ok && with_value && k < t.ny; k++)
        y[at++] = t.y[k];
    for (int k = 0; ok && k < m->n; k++)
        ok = (y[at++] = nb_laid_like(nb_or_zeros(g[k], x[m->argument[k]]),
                                     x[m->argument[k]]));
    *ny = at;
    nb_free(g);
    taped_free(&t);
    return ok;
}

static nb_status grad_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    return NB_STATUS(gradients(ctx, nx, x, y, ny, false));
}

static nb_status value_and_grad_body(void *ctx, int nx, nb_tensor *const *x,
                                     int *ny, nb_tensor **y)
{
    return NB_STATUS(gradients(ctx, nx, x, y, ny, true));
}

nb_func *nb_grad(nb_func *f, int n, const int *arguments)
{
    return nb_func_named(nb_func_made(f, grad_body, n, arguments), "grad");
}

nb_func *nb_value_and_grad(nb_func *f, int n, const int *arguments)
{
    return nb_func_named(nb_func_made(f, value_and_grad_body, n, arguments),
                         "value_and_grad");
}

static bool all_taped(taped *t, nb_func *f, int nx, nb_tensor *const *x)
{
    int32_t *every = nb_alloc((size_t)(nx + 1) * sizeof *every);
    for (int i = 0; every && i < nx; i++)
        every[i] = i;
    bool ok = every && record(t, f, nx, x, nx, every, -1);
    nb_free(every);
    return ok;
}

static nb_status jvp_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const nb_made *m = ctx;
    taped t;
    int n = nx / 2;
    if (nx % 2)
        return NB_STATUS(nb_fail(NB_EVALUE,
                                 "jvp: %d arguments: as many "
                                 "tangents as primals are needed",
                                 nx));
    if (!all_taped(&t, m->of, n, x)) return NB_STATUS(false);
    bool ok = room("jvp", 2 * t.ny, *ny) &&
              nb_tape_push(t.tape, x + n, y + t.ny) == NB_OK;
    for (int k = 0; ok && k < t.ny; k++) {
        y[k] = t.y[k];
        ok = (y[t.ny + k] = nb_or_zeros(y[t.ny + k], t.y[k]));
    }
    *ny = 2 * t.ny;
    taped_free(&t);
    return NB_STATUS(ok);
}

nb_func *nb_jvp(nb_func *f)
{
    return nb_func_named(nb_func_made(f, jvp_body, 0, NULL), "jvp");
}

static nb_status vjp_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const nb_made *m = ctx;
    taped t;
    int n = m->argument[0];
    if (nx < n) return NB_STATUS(nb_fail(NB_EVALUE, "vjp: too few arguments"));
    if (!all_taped(&t, m->of, n, x)) return NB_STATUS(false);
    bool ok = nx - n == t.ny;
    if (!ok)
        nb_fail(NB_EVALUE, "vjp: %d cotangents for %d results", nx - n, t.ny);
    ok = ok && room("vjp", t.ny + n, *ny) &&
         nb_tape_pull(t.tape, x + n, y + t.ny) == NB_OK;
    for (int k = 0; ok && k < t.ny; k++)
        y[k] = t.y[k];
    for (int k = 0; ok && k < n; k++)
        ok = (y[t.ny + k] = nb_or_zeros(y[t.ny + k], x[k]));
    *ny = t.ny + n;
    taped_free(&t);
    return NB_STATUS(ok);
}

nb_func *nb_vjp(nb_func *f, int nx)
{
    return nb_func_named(nb_func_made(f, vjp_body, 1, &nx), "vjp");
}
