/* test_plan.c - plans: the order of steps, and where blocks lie.
 *
 * First sentences about programs on the page.  Then laws on random programs:
 * steps do what their ops do, no block lies in another that is still needed,
 * and no pass over the plan changes a bit of the results. */
#include "support/check.h"

#include "base/memory.h"
#include "lower/passes.h"
#include "lower/rewrite.h"
#include "lower/split.h"
#include "run/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX = 64 * 64 * 4 };

/* Lines of a program of 64 x 64 matrices, written without their types. */
static nb_graph *parsed(const char *inputs, const char *lines)
{
    nb_text t = {0};
    nb_graph *g = NULL;
    nb_text_add(&t, "fn(\n");
    for (int i = 1; *inputs; i++, inputs++)
        nb_text_add(&t, "  %%a%d: f32[64,64],\n", i);
    nb_text_add(&t, ") {\n%s}\n", lines);
    bool ok = nb_graph_parse(nb_text_get(&t), &g) == NB_OK;
    nb_text_free(&t);
    return expect(ok, "%s is a program", lines) ? g : NULL;
}

static nb_plan *planned(const char *inputs, const char *lines)
{
    nb_graph *g = parsed(inputs, lines);
    return g && nb_lower_graph(g) ? nb_plan_new(g) : NULL;
}

static int buffer_of(const nb_step *s, int block)
{
    for (int b = 0; s->nest && b < s->nbuffers; b++)
        if (s->buffer[b] == block) return b;
    return -1;
}

/* Whether block b is written by the step that is the last to read a, where a
 * lies, point by point. */
static bool replaces(const nb_plan *p, const nb_life *l, int a, int b)
{
    const nb_step *s = &p->step[l[b].first];
    int from = buffer_of(s, a), to = buffer_of(s, b);
    return l[a].last == l[b].first && p->at[a] == p->at[b] && from >= 0 &&
           to >= 0 && nb_nest_in_place(s->nest, from, to, p->device);
}

static bool lie_apart(const nb_plan *p, const nb_life *l, int a, int b)
{
    bool meet = l[a].first <= l[b].last && l[b].first <= l[a].last;
    bool overlap =
        p->at[a] < p->at[b] + p->bytes[b] && p->at[b] < p->at[a] + p->bytes[a];
    return !meet || !overlap || replaces(p, l, a, b) || replaces(p, l, b, a);
}

static bool blocks_hold(const nb_plan *p)
{
    int n = nb_plan_blocks(p);
    nb_life *l = nb_alloc((size_t)(n + 1) * sizeof *l);
    bool ok = l;
    if (ok) nb_plan_lives(p, l);
    for (int a = 0; ok && a < n; a++) {
        if (p->home[a] != NB_HOME_ARENA) continue;
        ok = p->at[a] >= 0 && p->at[a] + p->bytes[a] <= p->arena;
        for (int b = 0; ok && b < a; b++)
            ok = p->home[b] != NB_HOME_ARENA || lie_apart(p, l, a, b);
    }
    nb_free(l);
    return ok;
}

/* Sentences */

static void arena_is(const char *sentence, int64_t bytes, const char *inputs,
                     const char *lines)
{
    nb_plan *p = planned(inputs, lines);
    expect(p && blocks_hold(p) && p->arena == bytes, "%s: %lld bytes, not %lld",
           sentence, p ? (long long)p->arena : -1LL, (long long)bytes);
    nb_plan_free(p);
}

static void arenas(void)
{
    arena_is("a nest writes over what it is the last to read", 2 * MATRIX, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,64] = neg(%v1)\n"
             "  %v3: f32[64,64] = matmul(%v2, %a1)\n"
             "  %v4: f32[64,64] = neg(%v3)\n"
             "  %v5: f32[64,64] = matmul(%v4, %a1)\n"
             "  return %v5\n");
    arena_is("also rows, when their sums are known", MATRIX, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,1] = reduce_sum(%v1, axis=1, keepdims=True)\n"
             "  %v3: f32[64,64] = sub(%v1, %v2)\n"
             "  %v4: f32[64,64] = matmul(%v3, %a1)\n"
             "  return %v4\n");
    arena_is("and what others want a few elements of, once these are taken",
             MATRIX + 2 * 64 * 4, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,1] = slice(%a1, size=(64, 1), start=(0, 0), "
             "step=(1, 1))\n"
             "  %v3: i64[64,1] = cast(%v2, dtype=@int64)\n"
             "  %v4: f32[64,1] = reduce_sum(%v1, axis=1, keepdims=True)\n"
             "  %v5: f32[64,64] = sub(%v1, %v4)\n"
             "  %v6: f32[64,64] = matmul(%v5, %a1)\n"
             "  %v7: f32[64,1] = take_along(%v1, %v3)\n"
             "  %v8: f32[64,1] = sub(%v4, %v7)\n"
             "  %v9: f32[] = reduce_sum(%v8, keepdims=False)\n"
             "  return (%v6, %v9)\n");
    arena_is("but not what a later pass reads again", 2 * MATRIX, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,64] = tanh(%v1)\n"
             "  %v3: f32[64,1] = reduce_sum(%v2, axis=1, keepdims=True)\n"
             "  %v4: f32[64,64] = mul(%v1, %v3)\n"
             "  %v5: f32[64,1] = reduce_max(%v4, axis=1, keepdims=True)\n"
             "  %v6: f32[64,64] = matmul(%v2, %a1)\n"
             "  return (%v6, %v5)\n");
    arena_is("nor across rows", 2 * MATRIX, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,64] = permute(%v1, order=(1, 0))\n"
             "  %v3: f32[64,64] = add(%v2, %v1)\n"
             "  %v4: f32[64,64] = matmul(%v3, %a1)\n"
             "  return %v4\n");
}

/* In the order of time the first leaves a gap that is too small. */
static void large_blocks_come_late(void)
{
    arena_is("a large block lies where it fits best", 3 * MATRIX, "a",
             "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,64] = matmul(%v1, %a1)\n"
             "  %v3: f32[128,64] = concatenate(%v2, %v2, axis=0)\n"
             "  %v4: f32[128,64] = matmul(%v3, %a1)\n"
             "  return %v4\n");
}

static int step_of(const nb_plan *p, const char *op, int nth)
{
    for (int s = 0; s < p->nsteps; s++)
        if (!strcmp(p->graph->line[p->step[s].line].op->name, op) && !nth--)
            return s;
    return -1;
}

static int steps_of(const char *lines)
{
    nb_plan *p = planned("ab", lines);
    int n = p && blocks_hold(p) ? p->nsteps : -1;
    nb_plan_free(p);
    return n;
}

static void products_are_turned(void)
{
    expect(steps_of("  %v1: f32[64,64] = matmul(%a1, %a2)\n"
                    "  %v2: f32[64,64] = permute(%v1, order=(1, 0))\n"
                    "  %v3: f32[4096] = reshape(%v2, shape=(4096,))\n"
                    "  %v4: f32[] = contract(%v3, %v3, rule=\"i, i -> \")\n"
                    "  return %v4\n") == 2,
           "a product is written in the order in which it is read");
    expect(steps_of("  %v1: f32[8,8,64] = reshape(%a1, shape=(8, 8, 64))\n"
                    "  %v2: f32[8,8,8] = contract(%v1, %v1, rule=\"a m k, a n "
                    "k -> a m n\")\n"
                    "  %v3: f32[8,8,8] = permute(%v2, order=(1, 0, 2))\n"
                    "  %v4: f32[512] = reshape(%v3, shape=(512,))\n"
                    "  %v5: f32[] = contract(%v4, %v4, rule=\"i, i -> \")\n"
                    "  return %v5\n") == 2,
           "also one of many matrices");
    expect(steps_of("  %v1: f32[64,64] = matmul(%a1, %a2)\n"
                    "  %v2: f32[64,64] = permute(%v1, order=(1, 0))\n"
                    "  %v3: f32[4096] = reshape(%v2, shape=(4096,))\n"
                    "  %v4: f32[] = contract(%v3, %v3, rule=\"i, i -> \")\n"
                    "  return (%v4, %v1)\n") == 3,
           "but what is handed out lies as it was asked for");
    nb_graph *g = parsed(
        "a", "  %v1: f32[64,64] = matmul(%a1, %a1)\n"
             "  %v2: f32[64,1] = slice(%v1, size=(64, 1), start=(0, 0), "
             "step=(1, 1))\n"
             "  %v3: f32[1,1] = contract(%v2, %v2, rule=\"m i, m j -> i j\")\n"
             "  return %v3\n");
    nb_plan *p = g ? nb_plan_new(g) : NULL;
    expect(p && p->place[1].stride[0] == 64 && p->place[1].stride[1] == 1,
           "a product of which a part is read is written as a whole");
    nb_plan_free(p);
}

/* Two layers, their gradients last in the text.  The gradient of the second is
 * as large as what it frees, but the step of its weight frees it: both run
 * before the first layer's, once nobody else reads the weight. */
static void gradients_are_used_up(void)
{
    nb_plan *p = planned(
        "abct", "  %v1: f32[64,64] = matmul(%a1, %a2)\n"
                "  %v2: f32[64,64] = matmul(%v1, %a3)\n"
                "  %v3: f32[64,64] = mul(%v2, %v2)\n"
                "  %v4: f32[64,64] = contract(%v3, %a3, rule=\"m n, k n -> m "
                "k\")\n"
                "  %v5: f32[64,64] = contract(%a1, %v4, rule=\"m k, m n -> k "
                "n\")\n"
                "  %v6: f32[64,64] = sub(%a2, %v5)\n"
                "  %v7: f32[64,64] = contract(%v1, %v3, rule=\"m k, m n -> k "
                "n\")\n"
                "  %v8: f32[64,64] = sub(%a3, %v7)\n"
                "  return (%v3, %v6, %v8)\n");
    int first = p ? step_of(p, "contract", 1) : -1;
    expect(p && blocks_hold(p) && first > 0 &&
               p->graph->line[p->step[first].line].in[0] >= p->graph->nx &&
               p->step[first + 1].nest,
           "a gradient is used up before the next comes");
    nb_plan_free(p);
}

/* Of small whole numbers, so that every order of adding them is exact. */
static void sums_of_columns(int64_t rows, int64_t cols, int steps)
{
    nb_graph *g = NULL;
    nb_text t = {0};
    nb_text_add(&t,
                "fn(\n  %%a1: f32[%lld,%lld],\n) {\n  %%v1: f32[%lld] = "
                "reduce_sum(%%a1, axis=0, keepdims=False)\n  return %%v1\n}\n",
                (long long)rows, (long long)cols, (long long)cols);
    float *data = nb_alloc((size_t)(rows * cols) * sizeof *data);
    for (int64_t i = 0; i < rows * cols; i++)
        data[i] = (float)(i % cols % 7 + i / cols % 3);
    nb_tensor *y, *x = nb_constant(NB_F32, 2, (int64_t[]){rows, cols}, data);
    nb_exec *e = NULL;
    bool ok = nb_graph_parse(nb_text_get(&t), &g) == NB_OK &&
              nb_realize(x) == NB_OK && (e = nb_exec_new(g)) &&
              nb_exec_run(e, &x, &y);
    ok = ok && nb_exec_plan(e)->nsteps == steps;
    for (int64_t c = 0; ok && c < cols; c++) {
        int64_t sum = rows * (c % 7) + rows / 3 * 3 + (rows % 3 == 2);
        ok = ((const float *)y->data)[c] == (float)sum;
    }
    expect(ok, "sums of %lld rows of %lld in %d steps", (long long)rows,
           (long long)cols, steps);
    nb_exec_drop(e);
    nb_free(data);
    nb_text_free(&t);
}

/* Pieces of the sums of a program's one nest, on a card. */
static int64_t card_pieces(const char *text)
{
    int64_t bytes[NB_MAX_SPLIT_VALUES], pieces = 1;
    nb_nest *first = NULL, *second = NULL;
    nb_graph *g = NULL;
    nb_plan *p = nb_graph_parse(text, &g) == NB_OK && nb_lower_graph(g)
                     ? nb_plan_new(g)
                     : NULL;
    if (!p || p->nsteps != 1) return nb_plan_free(p), -1;
    const nb_nest *x = p->step[0].nest;
    if (nb_nest_splits(x, false, true) &&
        nb_nest_split(x, false, true, &first, &second, bytes))
        pieces = first->size[0];
    nb_nest_free(first), nb_nest_free(second);
    nb_plan_free(p);
    return pieces;
}

static void sums_on_cards(void)
{
    expect(card_pieces("fn(\n  %a1: bf16[32768,768],\n) {\n"
                       "  %v1: bf16[768] = reduce_sum(%a1, axis=0, "
                       "keepdims=False)\n  return %v1\n}\n") == 84,
           "columns side by side are in pieces for all processors");
    expect(card_pieces("fn(\n  %a1: bf16[32768,768],\n  %a2: bf16[32768,1],\n"
                       ") {\n  %v1: bf16[32768,768] = mul(%a1, %a2)\n"
                       "  %v2: bf16[768] = reduce_sum(%v1, axis=0, "
                       "keepdims=False)\n  return %v2\n}\n") == 84,
           "also where each row has a factor");
}

/* Random programs */

typedef struct writer {
    nb_text t;
    int n;
    int row[128], nrow, matrix[128], nmatrix; /* lines, negative: inputs */
} writer;

static int some(int n)
{
    return (int)uniform(0, n - 1e-9);
}

static const char *name_of(int line, char *to)
{
    snprintf(to, 16, line < 0 ? "%%a%d" : "%%v%d", abs(line));
    return to;
}

static const char *a_matrix(writer *w, char *to)
{
    int near = w->nmatrix > 12 && some(4) ? w->nmatrix - 12 : 0;
    return name_of(w->matrix[near + some(w->nmatrix - near)], to);
}

static void write_line(writer *w)
{
    static const char *const one[] = {"neg", "tanh", "sin", "relu"};
    static const char *const two[] = {"add", "mul", "sub"};
    char a[16], b[16];
    int what = some(12);
    bool row = what == 0;
    a_matrix(w, a);
    a_matrix(w, b);
    nb_text_add(&w->t, "  %%v%d: f32[64,%d] = ", ++w->n, row ? 1 : 64);
    if (row)
        nb_text_add(&w->t, "reduce_max(%s, axis=1, keepdims=True)\n", a);
    else if (what == 1)
        nb_text_add(&w->t, "permute(%s, order=(1, 0))\n", a);
    else if (what == 2)
        nb_text_add(&w->t, "matmul(%s, %s)\n", a, b);
    else if (what < 6)
        nb_text_add(&w->t, "%s(%s)\n", one[some(4)], a);
    else if (what < 8 && w->nrow)
        nb_text_add(&w->t, "mul(%s, %s)\n", a,
                    name_of(w->row[some(w->nrow)], b));
    else
        nb_text_add(&w->t, "%s(%s, %s)\n", two[some(3)], a, b);
    if (row)
        w->row[w->nrow++] = w->n;
    else
        w->matrix[w->nmatrix++] = w->n;
}

static nb_graph *random_program(void)
{
    writer w = {.matrix = {-1, -2}, .nmatrix = 2};
    char a[16], b[16];
    int lines = 20 + some(60);
    for (int i = 0; i < lines; i++)
        write_line(&w);
    nb_text_add(&w.t, "  return (%s, %s, %%v%d)\n", a_matrix(&w, a),
                a_matrix(&w, b), w.matrix[w.nmatrix - 1]);
    nb_graph *g = parsed("ab", nb_text_get(&w.t));
    nb_text_free(&w.t);
    return g;
}

/* Runs the program with passes left out. */
static bool run_without(const char *passes, const nb_graph *g, nb_tensor **x,
                        nb_tensor **y)
{
    setenv("NABLA_DISABLE", passes, 1);
    nb_graph *copy = nb_graph_copy(g);
    nb_exec *e = copy ? nb_exec_new(copy) : NULL;
    bool ok = e && blocks_hold(nb_exec_plan(e)) && nb_exec_run(e, x, y);
    nb_exec_drop(e);
    unsetenv("NABLA_DISABLE");
    return ok;
}

static void laws(void)
{
    static const char *const off[] = {"cheap", "schedule", "memory",
                                      "cheap,schedule,memory"};
    int64_t size[] = {64, 64};
    for (int seed = 0; seed < 60; seed++) {
        nb_scope_open();
        nb_graph *g = random_program();
        nb_tensor *x[] = {nb_cast(draw(2, size, -1, 1), NB_F32),
                          nb_cast(draw(2, size, -1, 1), NB_F32)};
        nb_tensor *want[3], *got[3];
        bool ok = g && nb_realize(x[0]) == NB_OK && nb_realize(x[1]) == NB_OK;
        nb_check_set(true);
        expect(ok && run_without("", g, x, got), "program %d is right", seed);
        nb_check_set(false);
        expect(ok && run_without("", g, x, want), "program %d runs", seed);
        for (int i = 0; i < 4; i++) {
            ok = run_without(off[i], g, x, got);
            for (int k = 0; ok && k < 3; k++)
                ok = !memcmp(got[k]->data, want[k]->data, MATRIX);
            expect(ok, "program %d is the same without %s", seed, off[i]);
        }
        nb_graph_free(g);
        nb_scope_close(0, NULL);
    }
}

int main(void)
{
    unsetenv("NABLA_DISABLE");
    nb_scope_open();
    arenas();
    large_blocks_come_late();
    products_are_turned();
    gradients_are_used_up();
    sums_of_columns(2051, 2310, 2);
    sums_of_columns(300, 2310, 1);
    sums_of_columns(9000, 300, 1);
    sums_on_cards();
    nb_scope_close(0, NULL);
    laws();
    return tally();
}
