/* words.c - an op under transforms and in every dtype. */
#include "support/words.h"

#include "support/there.h"

#include <stdio.h>
#include <string.h>

static const word usual[] = {
    {"", 0, {0}},
    {"vjp ", 1, {VJP}},
    {"jvp ", 1, {JVP}},
    {"vmap ", 1, {VMAP}},
    {"scan ", 1, {SCAN}},
    {"checkpoint ", 1, {CHECKPOINT}},
    {"vmap vjp ", 2, {VMAP, VJP}},
    {"vjp vmap ", 2, {VJP, VMAP}},
    {"jvp vjp ", 2, {JVP, VJP}},
};

static bool reads_values(const nb_op *op)
{
    return op->nout == -1 || !strcmp(op->name, "nonzero") ||
           !strncmp(op->name, "unique", 6);
}

void words_each(nb_op *op, int n, const word *all, trial_fn *f)
{
    for (int k = 0; k < n; k++) {
        subject s;
        task t;
        if (reads_values(op) || !there_takes()) continue;
        nb_scope_open();
        if (expect(subject_of(op, &s, &t), "%s: no sample", op->name)) {
            for (int i = all[k].n - 1; i >= 0; i--)
                t = task_transform(all[k].way[i], &t, ~(uint64_t)0, 0);
            f(&(trial){op, all[k].name, &s.s, &t, 1e-9});
        }
        nb_scope_close(0, NULL);
    }
}

void words_usual(nb_op *op, trial_fn *f)
{
    words_each(op, sizeof usual / sizeof usual[0], usual, f);
}

static nb_status typed_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const sample *s = ctx;
    return nb_op_call(s->op, nx, x, s->nval, s->val, ny, y);
}

/* Whether the op has a value of a sample whose real inputs are cast. */
static bool typed_of(nb_op *op, nb_dtype d, sample *s, task *t)
{
    nb_tensor *y[MAX_ARGS];
    if (!sample_random(s, op)) return false;
    *t = (task){.fn = nb_func_new(typed_body, s), .nout = MAX_ARGS};
    t->nin = s->nin;
    for (int i = 0; i < t->nin; i++) {
        bool real = is_float(s->in[i]) && !((op->index | op->mask) >> i & 1);
        t->x[i] = real ? nb_cast(s->in[i], d) : s->in[i];
    }
    return nb_func_call(t->fn, t->nin, t->x, &t->nout, y) == NB_OK &&
           nb_realize_now(t->nout, y);
}

static const struct {
    nb_dtype dtype;
    double tolerance;
} dtypes[] = {{NB_F32, 1e-5}, {NB_F16, 1e-2}, {NB_BF16, 8e-2}, {NB_I8, 1e-5},
              {NB_I16, 1e-5}, {NB_I32, 1e-5}, {NB_I64, 1e-5},  {NB_U8, 1e-5},
              {NB_U16, 1e-5}, {NB_U32, 1e-5}, {NB_U64, 1e-5},  {NB_BOOL, 1e-5}};
enum { NTYPES = sizeof dtypes / sizeof dtypes[0] };

void words_dtypes(nb_op *op, bool (*left_out)(const nb_op *op, nb_dtype d),
                  trial_fn *f)
{
    for (int k = 0; k < NTYPES; k++) {
        nb_dtype d = dtypes[k].dtype;
        char how[32];
        sample s;
        task t;
        if (reads_values(op) || (left_out && left_out(op, d))) continue;
        if (!there_takes()) continue;
        nb_scope_open();
        bool ok = typed_of(op, d, &s, &t);
        nb_error_clear();
        snprintf(how, sizeof how, "%s ", nb_dtype_brief(d));
        if (ok) f(&(trial){op, how, &s, &t, dtypes[k].tolerance});
        nb_scope_close(0, NULL);
    }
}
