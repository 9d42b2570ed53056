/* test_cuda_ops.c - on a card every op computes what it does on the CPU: alone,
 * under transforms, and with its real inputs in each other dtype.
 *
 * NABLA_TEST_EVERY and NABLA_TEST_PART take some of the cases (support/there.h).
 * An op's name as argument: that op alone. */
#include "support/cards.h"
#include "support/sim.h"
#include "support/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void compare(const trial *x)
{
    const char *how = x->how, *name = x->op->name;
    sample *s = x->s;
    task *t = x->t;
    nb_tensor *want[MAX_ARGS], *got[MAX_ARGS];
    int n = MAX_ARGS, m = MAX_ARGS;
    char last[64];
    uint64_t before = elsewhere(last);
    if (!expect(nb_func_call(t->fn, t->nin, t->x, &n, want) == NB_OK &&
                    nb_realize_now(n, want),
                "%s%s runs", how, name))
        return;
    for (int i = 0; i < t->nin; i++)
        t->x[i] = nb_to_device(t->x[i], 1);
    for (int i = 0; i < s->nin; i++)
        s->in[i] = nb_to_device(s->in[i], 1);
    nb_default_device_set(1);
    bool ok = nb_func_call(t->fn, t->nin, t->x, &m, got) == NB_OK && m == n &&
              nb_realize_now(n, got);
    for (int k = 0; ok && k < n; k++)
        ok = nb_device_of(got[k]) == 1 && near(got[k], want[k], x->tolerance);
    nb_default_device_set(0);
    expect(ok, "%s%s on the card: %s", how, name,
           nb_error_code() ? nb_error_message() : "");
    expect(elsewhere(last) == before || may_be_elsewhere(last),
           "%s%s is computed on the card, not %s by the CPU", how, name, last);
    nb_error_clear();
}

/* A matrix of ones has vectors for its value 0 that may be any. */
static bool is_open(const nb_op *op, nb_dtype d)
{
    return d == NB_BOOL && !strcmp(op->name, "svd");
}

int main(int argc, char **argv)
{
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    nb_op *op;
    for (int i = 0; (op = nb_op_at(i)); i++) {
        if (argc > 1 && strcmp(argv[1], op->name)) continue;
        words_usual(op, compare);
        words_dtypes(op, is_open, compare);
    }
    return tally();
}
