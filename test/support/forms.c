/* forms.c - the checks of forms.h. */
#include "forms.h"

#include "sample.h"
#include "support/faults.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const double H = 1e-3;
static const double WEIGHT[] = {1, -8, 8, -1}, AT[] = {-2, -1, 1, 2};

/* The op of the call, with the call for its example; returns what was. */
static nb_op *borrow(const char *text, const char **was)
{
    char name[64];
    size_t n = strcspn(text, "(");
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    nb_op *op = nb_op_find(name);
    if (!op) fail_msg("no op is named %s", name);
    *was = op->example;
    op->example = text;
    return op;
}

static nb_op *sample_of(const char *text, bool random, sample *s)
{
    const char *was;
    nb_op *op = borrow(text, &was);
    bool ok = random ? sample_random(s, op) : sample_example(s, op);
    op->example = was;
    if (!ok) fail_msg("%s: %s", text, nb_error_message());
    return op;
}

void form_holds(const char *text)
{
    sample s;
    nb_tensor *out[MAX_OUT];
    sample_of(text, false, &s);
    int n = sample_call(&s, s.in, out);
    if (n != s.nout) fail_msg("%s: %s", text, nb_error_message());
    for (int k = 0; k < n; k++) {
        if (near(out[k], s.expected[k], 1e-9)) continue;
        char *is = nb_tensor_text(out[k]);
        fail_msg("%s: result %d is %s%s", text, k, is ? is : "",
                 nb_error_message());
    }
}

/* Results at x, moved along u and pulled back from ct. */
typedef struct derived {
    int n;
    nb_tensor *out[MAX_OUT], *u[MAX_IN], *uy[MAX_OUT];
    nb_tensor *ct[MAX_OUT], *cx[MAX_IN];
} derived;

static bool derive(const sample *s, derived *d)
{
    nb_tensor *fresh[MAX_IN];
    memset(d, 0, sizeof *d);
    uint64_t bit = nb_walk_begin(s->nin, s->in, fresh);
    if (!bit) return false;
    d->n = sample_call(s, fresh, d->out);
    for (int i = 0; i < s->nin; i++)
        if (sample_smooth(s, i)) d->u[i] = draw_like(s->in[i], -1, 1);
    for (int k = 0; k < d->n; k++)
        if (nb_dtype_is_float(nb_dtype_of(d->out[k])))
            d->ct[k] = draw_like(d->out[k], -1, 1);
    bool ok = d->n > 0 && !nb_failed() &&
              nb_walk_push(bit, s->nin, fresh, d->u, d->n, d->out, d->uy) &&
              nb_walk_pull(bit, s->nin, fresh, d->n, d->out, d->ct, d->cx);
    nb_walk_end(bit);
    return ok;
}

/* Central differences of order four. */
static nb_tensor *rise_of(const sample *s, const derived *d, int k)
{
    nb_tensor *sum = NULL;
    for (int p = 0; p < 4; p++) {
        nb_tensor *x[MAX_IN], *y[MAX_OUT];
        for (int i = 0; i < s->nin; i++)
            x[i] = d->u[i]
                       ? nb_add(s->in[i], nb_mul(d->u[i], nb_num(AT[p] * H)))
                       : s->in[i];
        if (sample_call(s, x, y) <= k) return NULL;
        nb_tensor *t = nb_mul(y[k], nb_num(WEIGHT[p] / (12 * H)));
        sum = sum ? nb_add(sum, t) : t;
    }
    return sum;
}

void form_derives(const char *text)
{
    sample s;
    derived d;
    double left = 0, right = 0;
    sample_of(text, true, &s);
    if (!derive(&s, &d)) fail_msg("%s: %s", text, nb_error_message());
    for (int k = 0; k < d.n; k++) {
        if (!d.ct[k]) continue;
        nb_tensor *moved = d.uy[k] ? d.uy[k] : nb_fill_like(d.out[k], 0);
        if (!near(moved, rise_of(&s, &d, k), 1e-6))
            fail_msg("%s: the jvp of result %d is no difference. %s", text, k,
                     nb_error_message());
        left += dot(d.ct[k], moved);
    }
    for (int i = 0; i < s.nin; i++)
        if (d.u[i] && d.cx[i]) right += dot(d.cx[i], d.u[i]);
    if (!(fabs(left - right) < 1e-9 * (1 + fabs(left))))
        fail_msg("%s: the vjp is not the jvp transposed: %g, %g", text, left,
                 right);
}

void form_fails(const char *text, nb_status code, const char *why)
{
    sample s;
    char call[1024];
    nb_tensor *out[MAX_OUT];
    snprintf(call, sizeof call, "%s = 0", text);
    sample_of(call, false, &s);
    if (sample_call(&s, s.in, out)) fail_msg("%s: does not fail", text);
    if (nb_error_code() != code || !strstr(nb_error_message(), why))
        fail_msg("%s: code %d, not %d with \"%s\": %s", text, nb_error_code(),
                 code, why, nb_error_message());
    nb_error_clear();
}

static bool derived_values(void *ctx)
{
    const sample *s = ctx;
    derived d = {0};
    bool ok = derive(s, &d);
    for (int k = 0; ok && k < d.n; k++)
        ok = nb_realize(d.out[k]) == NB_OK;
    for (int i = 0; ok && i < s->nin; i++)
        ok = !d.cx[i] || nb_realize(d.cx[i]) == NB_OK;
    return ok;
}

void form_survives(const char *text)
{
    sample s;
    sample_of(text, true, &s);
    if (!faults_survived(&(faults){.run = derived_values, .ctx = &s}))
        fail_msg("%s", text);
}
