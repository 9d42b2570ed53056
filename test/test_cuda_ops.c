/* test_cuda_ops.c - on a card every op computes what it does on the CPU: alone,
 * under transforms, and with its real inputs in each other dtype.
 *
 * NABLA_TEST_EVERY and NABLA_TEST_PART take some of the cases (support/there.h).
 * An op's name as argument: that op alone. */
#include "support/cards.h"
#include "support/sim.h"
#include "support/subject.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *name;
    int n;
    way way[2]; /* the last applied first */
} word;

static const word all_words[] = {
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
enum { NWORDS = sizeof all_words / sizeof all_words[0] };

/* Shapes that depend on data are asked for while recording. */
static bool reads_values(const nb_op *op)
{
    return op->nout == -1 || !strcmp(op->name, "nonzero") ||
           !strncmp(op->name, "unique", 6);
}

static bool is_unmappable(const nb_op *op, const word *w)
{
    bool maps = false;
    for (int i = 0; i < w->n; i++)
        maps = maps || w->way[i] == VMAP || w->way[i] == SCAN;
    return maps && reads_values(op);
}

/* Whatever else has to do with a card computes there.  What is printed is
 * printed by the CPU. */
static bool may_be_elsewhere(const char *op)
{
    static const char *const ops[] = {"print"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(op, ops[i])) return true;
    return false;
}

static uint64_t elsewhere(char last[64])
{
    return nb_card_elsewhere(nb_card_at(0), last);
}

/* The function on the CPU, then on the card, where what it closes over and what
 * it makes of nothing are too. */
static void compare(const nb_op *op, const char *how, sample *s, task *t,
                    double tolerance)
{
    nb_tensor *want[MAX_ARGS], *got[MAX_ARGS];
    int n = MAX_ARGS, m = MAX_ARGS;
    char last[64];
    uint64_t before = elsewhere(last);
    if (!expect(nb_func_call(t->fn, t->nin, t->x, &n, want) == NB_OK &&
                    nb_realize_now(n, want),
                "%s%s runs", how, op->name))
        return;
    for (int i = 0; i < t->nin; i++)
        t->x[i] = nb_to_device(t->x[i], 1);
    for (int i = 0; i < s->nin; i++)
        s->in[i] = nb_to_device(s->in[i], 1);
    nb_default_device_set(1);
    bool ok = nb_func_call(t->fn, t->nin, t->x, &m, got) == NB_OK && m == n &&
              nb_realize_now(n, got);
    for (int k = 0; ok && k < n; k++)
        ok = nb_device_of(got[k]) == 1 && near(got[k], want[k], tolerance);
    nb_default_device_set(0);
    expect(ok, "%s%s on the card: %s", how, op->name,
           nb_error_code() ? nb_error_message() : "");
    expect(elsewhere(last) == before || may_be_elsewhere(last),
           "%s%s is computed on the card, not %s by the CPU", how, op->name,
           last);
    nb_error_clear();
}

static void every_word(nb_op *op)
{
    for (int k = 0; k < NWORDS; k++) {
        subject f;
        task t;
        if (reads_values(op) || is_unmappable(op, &all_words[k])) continue;
        if (!there_takes()) continue;
        nb_scope_open();
        if (!subject_of(op, &f, &t)) {
            expect(false, "%s: no sample", op->name);
        } else {
            for (int i = all_words[k].n - 1; i >= 0; i--)
                t = task_transform(all_words[k].way[i], &t, ~(uint64_t)0, 0);
            compare(op, all_words[k].name, &f.s, &t, 1e-9);
        }
        nb_scope_close(0, NULL);
    }
}

/* The op on its inputs cast to a dtype. */
static nb_status typed_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const sample *s = ctx;
    return nb_op_call(s->op, nx, x, s->nval, s->val, ny, y);
}

static const struct {
    nb_dtype dtype;
    double tolerance;
} dtypes[] = {{NB_F32, 1e-5}, {NB_F16, 1e-2}, {NB_BF16, 8e-2}, {NB_I8, 1e-5},
              {NB_I16, 1e-5}, {NB_I32, 1e-5}, {NB_I64, 1e-5},  {NB_U8, 1e-5},
              {NB_U16, 1e-5}, {NB_U32, 1e-5}, {NB_U64, 1e-5},  {NB_BOOL, 1e-5}};
enum { NTYPES = sizeof dtypes / sizeof dtypes[0] };

/* A matrix of ones has vectors for its value 0 that may be any. */
static bool is_open(const nb_op *op, nb_dtype d)
{
    return d == NB_BOOL && !strcmp(op->name, "svd");
}

static void every_dtype(nb_op *op)
{
    for (int k = 0; k < NTYPES; k++) {
        sample s;
        nb_tensor *y[MAX_ARGS];
        task t = {.nout = MAX_ARGS};
        if (reads_values(op) || is_open(op, dtypes[k].dtype)) continue;
        if (!there_takes()) continue;
        nb_scope_open();
        bool ok = sample_random(&s, op);
        t.nin = s.nin;
        t.fn = nb_func_new(typed_body, &s);
        for (int i = 0; ok && i < t.nin; i++) {
            bool real = is_float(s.in[i]) && !((op->index | op->mask) >> i & 1);
            t.x[i] = real ? nb_cast(s.in[i], dtypes[k].dtype) : s.in[i];
        }
        ok = ok && nb_func_call(t.fn, t.nin, t.x, &t.nout, y) == NB_OK &&
             nb_realize_now(t.nout, y);
        nb_error_clear();
        if (ok) {
            char how[32];
            snprintf(how, sizeof how, "%s ", nb_dtype_brief(dtypes[k].dtype));
            compare(op, how, &s, &t, dtypes[k].tolerance);
        }
        nb_scope_close(0, NULL);
    }
}

int main(int argc, char **argv)
{
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    nb_op *op;
    for (int i = 0; (op = nb_op_at(i)); i++) {
        if (argc > 1 && strcmp(argv[1], op->name)) continue;
        every_word(op);
        every_dtype(op);
    }
    return tally();
}
