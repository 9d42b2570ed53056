/* test_shard_loops.c - loops and branches on tensors that lie on a mesh: what
 * they give, and what a device receives, by number on the page.
 *
 * Every result is also compared with that of the same program on no mesh, block
 * by block. */
#include "support/check.h"
#include "support/laid.h"
#include "support/operands.h"

#include "base/memory.h"
#include "nabla/nabla.h"

#include <stdio.h>
#include <string.h>

#define X4  "@m = <[\"x\"=4]>"
#define M22 "@m = <[\"x\"=2, \"y\"=2]>"

typedef struct worked {
    const char *name, *mesh;
    nb_body *of; /* of one result */
    operand x[OPERANDS];
    const char *gives;
    int64_t bytes, calls;
} worked;

static nb_status one(nb_tensor *y, int *ny, nb_tensor **to)
{
    *ny = 1;
    to[0] = y;
    return y ? NB_OK : nb_error_code();
}

static nb_tensor *all(nb_tensor *x)
{
    return nb_mean(x, -1, NULL, false);
}

/* Loops until a test fails: (i, c) with i counting; the rest is closed over. */

typedef struct looped {
    nb_body *test, *body;
    nb_tensor *const *x;
} looped;

static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const looped *l = ctx;
    int n = 1;
    (void)nx;
    y[0] = nb_add(x[0], nb_num(1));
    nb_status status = l->body((void *)l->x, 1, x + 1, &n, y + 1);
    return *ny = 2, status;
}

static nb_status test(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const looped *l = ctx;
    return l->test((void *)l->x, nx, x, ny, y);
}

static nb_status until(nb_body *goes_on, nb_body *body, nb_tensor *const *x,
                       int *ny, nb_tensor **y)
{
    looped l = {goes_on, body, x + 1};
    nb_tensor *init[] = {nb_cast(nb_num(0), NB_F32), x[0]}, *out[2];
    nb_status status =
        nb_while(nb_func_new(test, &l), nb_func_new(turn, &l), 2, init, out);
    return status == NB_OK ? one(out[1], ny, y) : status;
}

FN(three_turns, nb_less(x[0], nb_num(3)))
FN(while_small, nb_less(nb_add(x[0], nb_mul(all(x[1]), nb_num(0))), nb_num(3)))
FN(tanh_of, nb_tanh(nb_add(x[0], nb_num(0.1))))
FN(times_w, nb_tanh(nb_matmul(x[0], c[0])))
FN(plus_mean, nb_add(x[0], all(x[0])))

#define LOOP(name, goes_on, body)                                          \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx, (void)nx;                                               \
        return until(goes_on, body, x, ny, y);                             \
    }
LOOP(counted, three_turns, tanh_of)
LOOP(products, three_turns, times_w)
LOOP(looked_at, while_small, tanh_of)
LOOP(means, three_turns, plus_mean)

/* Branches */

FN(sine, nb_sin(x[0]))
FN(cosine, nb_cos(x[0]))
FN(other, nb_cos(x[1]))
FN(total,
   nb_broadcast_to(nb_reduce_sum(x[0], -1, NULL, false), 2, (int64_t[]){8, 8}))

static nb_status branch(nb_tensor *pred, nb_body *yes, nb_body *no, int nx,
                        nb_tensor *const *x, int *ny, nb_tensor **y)
{
    return nb_cond(pred, nb_func_new(yes, NULL), nb_func_new(no, NULL), nx, x,
                   ny, y);
}

static nb_tensor *number(double value)
{
    return nb_cast(nb_num(value), NB_F32);
}

#define BRANCH(name, pred, yes, no)                                        \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx;                                                         \
        return branch(pred, yes, no, nx, x, ny, y);                        \
    }
BRANCH(either, nb_greater(number(1), number(0)), sine, cosine)
BRANCH(first_of_two, nb_greater(number(1), number(0)), sine, other)
BRANCH(second_of_two, nb_greater(number(0), number(1)), sine, other)
BRANCH(by_data, nb_greater(all(x[0]), nb_num(-100)), sine, cosine)
BRANCH(sum_or_not, nb_greater(number(0), number(1)), total, sine)

static nb_status switched(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    nb_func *branches[] = {nb_func_new(sine, NULL), nb_func_new(cosine, NULL),
                           nb_func_new(tanh_of, NULL)};
    (void)ctx;
    return nb_switch(nb_cast(nb_num(2), NB_I64), 3, branches, nx, x, ny, y);
}

/* In lanes */

static nb_status running(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_tanh(nb_add(x[0], x[1]));
    y[1] = nb_sin(y[0]);
    return *ny = 2, NB_OK;
}

/* All steps of a loop over x[1] that begins with x[0]. */
static nb_status steps(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_tensor *out[2];
    int n = 2;
    (void)ctx, (void)nx;
    nb_status status = nb_scan(nb_func_new(running, NULL), 1, x, 1, x + 1,
                               nb_size(x[1], 0), false, &n, out);
    return status == NB_OK ? one(out[1], ny, y) : status;
}

static nb_status mapped(nb_body *body, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    return nb_func_call(nb_vmap(nb_func_new(body, NULL), NULL), nx, x, ny, y);
}

#define MAPPED(name, body)                                                 \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx;                                                         \
        return mapped(body, nx, x, ny, y);                                 \
    }
MAPPED(mapped_steps, steps)
MAPPED(mapped_while, looked_at)

/* The mean of what it gives, differentiated in the first operand. */
static nb_status mean_of(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const nb_func *f = ctx;
    nb_tensor *z;
    int n = 1;
    nb_status status = nb_func_call((nb_func *)f, nx, x, &n, &z);
    return status == NB_OK ? one(all(z), ny, y) : status;
}

static nb_status slope(nb_body *body, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_func *mean = nb_func_new(mean_of, nb_func_new(body, NULL));
    return nb_func_call(nb_grad(mean, 1, (int[]){0}), nx, x, ny, y);
}

#define SLOPE(name, body)                                                  \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx;                                                         \
        return slope(body, nx, x, ny, y);                                  \
    }
SLOPE(slope_of_while, counted)
SLOPE(slope_of_products, products)
SLOPE(slope_of_branch, second_of_two)
SLOPE(slope_of_steps, mapped_steps)

/* A loop that was recorded in no lane, then run in some. */
static nb_status again_in_lanes(void *ctx, int nx, nb_tensor *const *x, int *ny,
                                nb_tensor **y)
{
    return *ny = 1, nb_graph_run(ctx, nx, x, y);
}

static nb_status replayed(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    int64_t size[] = {3, 8};
    nb_tensor *in[] = {nb_cast(draw(1, size + 1, -1, 1), NB_F32),
                       nb_cast(draw(2, size, -1, 1), NB_F32)};
    nb_tensor *out;
    nb_graph *g = NULL;
    int n = 1;
    (void)ctx;
    nb_status status = steps(NULL, 2, in, &n, &out);
    if (status == NB_OK) status = nb_graph_of(2, in, 1, &out, &g);
    if (status != NB_OK) return status;
    nb_func *f = nb_vmap(nb_func_new(again_in_lanes, g), NULL);
    status = nb_func_call(f, nx, x, ny, y);
    nb_graph_free(g);
    return status;
}

static const worked cases[] = {
    {"a state that is split stays so",
     X4,
     counted,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"blocks need not be even",
     X4,
     counted,
     {X("[x, .]", 7, 8)},
     "[x, .]",
     0,
     0},
    {"rows times a matrix that all have",
     X4,
     products,
     {X("[x, .]", 8, 8), X("[., .]", 8, 8)},
     "[x, .]",
     0,
     0},
    /* Four tests, each a sum of one number over four devices: 3 x 4. */
    {"every device sees the same test",
     X4,
     looked_at,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     48,
     4},
    /* Three turns, each the sum of a number. */
    {"a turn that adds a mean of all",
     X4,
     means,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     36,
     3},
    /* One sum of 256 B, 2 x 256 x 3/4. */
    {"what is pending is not carried",
     X4,
     counted,
     {X("[., .]P{x}", 8, 8)},
     "[., .]",
     384,
     1},
    /* k is split: 128 B summed over two devices in each of three turns. */
    {"a sum in every turn",
     M22,
     products,
     {X("[x, y]", 8, 8), X("[y, .]", 8, 8)},
     "[x, y]",
     384,
     3},

    {"either branch has blocks",
     X4,
     either,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"a branch that is taken moves what it must",
     X4,
     first_of_two,
     {X("[x, .]", 8, 8), X("[., x]", 8, 8)},
     "[x, .]",
     0,
     0},
    /* The other lies as [., x]: an all-to-all of 64 B, 64 x 3/4. */
    {"and one that is not, nothing",
     X4,
     second_of_two,
     {X("[x, .]", 8, 8), X("[., x]", 8, 8)},
     "[x, .]",
     48,
     1},
    {"a whole result of one branch is cut for the other",
     X4,
     sum_or_not,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"every device sees the same predicate",
     X4,
     by_data,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     12,
     1},
    {"branches of branches", X4, switched, {X("[x, .]", 8, 8)}, "[x, .]", 0, 0},

    {"a loop in lanes that are split",
     X4,
     mapped_steps,
     {X("[x, .]", 8, 4), X("[x, ., .]", 8, 3, 4)},
     "[x, ., .]",
     0,
     0},
    {"a loop in lanes, split along what it carries",
     X4,
     mapped_steps,
     {X("[., x]", 6, 8), X("[., ., x]", 6, 3, 8)},
     "[., ., x]",
     0,
     0},
    {"both",
     M22,
     mapped_steps,
     {X("[x, y]", 6, 8), X("[x, ., y]", 6, 3, 8)},
     "[x, ., y]",
     0,
     0},
    /* Whether any lane goes on: four times one byte, at most 2 x 1 x 3/4. */
    {"a test in lanes that are split",
     X4,
     mapped_while,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     ANY,
     4},
    {"a loop that was recorded in fewer lanes",
     X4,
     replayed,
     {X("[., .]", 6, 8), X("[x, ., .]", 6, 3, 8)},
     "[x, ., .]",
     0,
     0},

    {"the slope of a while loop",
     X4,
     slope_of_while,
     {X("[x, .]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"the slope of products in one",
     X4,
     slope_of_products,
     {X("[x, .]", 8, 8), X("[., .]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"the slope of a branch",
     X4,
     slope_of_branch,
     {X("[x, .]", 8, 8), X("[., x]", 8, 8)},
     "[x, .]",
     0,
     0},
    {"the slope of a loop in lanes",
     X4,
     slope_of_steps,
     {X("[x, .]", 8, 4), X("[x, ., .]", 8, 3, 4)},
     "[x, .]",
     0,
     0},
};

/* Running them */

static int arguments(const worked *c, nb_tensor **plain, nb_tensor **x)
{
    const nb_mesh *m = mesh_there(nb_mesh_parse(c->mesh));
    int n = operands_lay(c->name, c->x, m, plain, x);
    return n < 0 ? 0 : n;
}

static void works(const worked *c)
{
    const nb_mesh *m = mesh_there(nb_mesh_parse(c->mesh));
    nb_tensor *x[OPERANDS], *plain[OPERANDS], *y = NULL, *whole = NULL;
    int n = arguments(c, plain, x), ny = 1, nw = 1;
    nb_comm_stats_reset(m);
    bool ok = c->of(NULL, n, x, &ny, &y) == NB_OK &&
              c->of(NULL, n, plain, &nw, &whole) == NB_OK;
    if (!expect(ok, "%s: the call", c->name)) return;
    expect(has_layout(y, m, c->gives), "%s: the layout", c->name);
    if (!expect(nb_realize(y) == NB_OK, "%s: the run", c->name)) return;
    expect(has_moved(m, c->bytes, c->calls), "%s: what moves", c->name);
    const char *bad = blocks_check(y, whole, 1e-5);
    expect(!bad, "%s: the value: %s", c->name, bad ? bad : "");
}

/* Compiled, it is the same. */
static void compiles(const worked *c)
{
    nb_tensor *x[OPERANDS], *plain[OPERANDS], *y = NULL, *whole = NULL;
    int n = arguments(c, plain, x), ny = 1, nw = 1;
    nb_executable *e = NULL;
    nb_func *f = nb_func_new(c->of, NULL);
    bool ok = nb_executable_new(f, n, x, &e) == NB_OK &&
              nb_executable_run(e, n, x, &ny, &y) == NB_OK &&
              c->of(NULL, n, plain, &nw, &whole) == NB_OK;
    expect(ok, "%s: compiled", c->name);
    const char *bad = ok ? blocks_check(y, whole, 1e-5) : NULL;
    expect(!bad, "%s: the value, compiled: %s", c->name, bad ? bad : "");
    nb_executable_drop(e);
}

/* Memory gives out at one place after another. */
static bool attempt(const worked *c, int n, nb_tensor *const *x)
{
    nb_tensor *y;
    int ny = 1;
    nb_caches_clear();
    nb_scope_open();
    bool ok = c->of(NULL, n, x, &ny, &y) == NB_OK && nb_realize(y) == NB_OK;
    nb_scope_close(0, NULL);
    return ok;
}

static void allocations_may_fail(const worked *c)
{
    enum { EVERY = 23 };
    nb_tensor *x[OPERANDS], *plain[OPERANDS];
    bool struck = true, said = true, ok = true;
    int n = arguments(c, plain, x);
    for (int64_t at = 1; struck && said; at += EVERY) {
        nb_fault_set(at);
        ok = attempt(c, n, x);
        struck = !nb_fault_is_set();
        nb_fault_set(0);
        said = ok || nb_error_code() == NB_EMEMORY;
        nb_error_clear();
    }
    expect(said && ok, "%s: without memory", c->name);
}

/* Where a program cannot be had in parts, the explanation says why. */
static void what_is_whole_says_why(void)
{
    int64_t size[] = {8};
    nb_tensor *in = nb_cast(draw(1, size, -1, 1), NB_F32), *out, *x;
    nb_graph *g = NULL;
    int n = 1;
    looked_at(NULL, 1, &in, &n, &out);
    nb_graph_of(1, &in, 1, &out, &g);
    nb_func *f = nb_vmap(nb_func_new(again_in_lanes, g), NULL);
    const worked c = {"", X4, NULL, {X("[x, .]", 8, 8)}, "", 0, 0};
    nb_explanation *e = NULL;
    nb_explain_row r = {0};
    arguments(&c, &in, &x);
    expect(nb_explain(f, 1, &x, NULL, &e) == NB_OK, "it can be explained");
    bool said = false;
    for (int k = 0; e && nb_explanation_row(e, k, &r); k++)
        said =
            said || strstr(r.reason, "its test differs from one hidden place "
                                     "to another");
    expect(said, "a test that differs from lane to lane: %s",
           r.reason ? r.reason : "no row");
    nb_explanation_drop(e);
    nb_graph_free(g);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nb_scope_open();
        works(&cases[i]);
        compiles(&cases[i]);
        nb_scope_close(0, NULL);
        if (cases[i].of != looked_at && cases[i].of != second_of_two &&
            cases[i].of != mapped_while && cases[i].of != replayed)
            continue;
        nb_scope_open();
        allocations_may_fail(&cases[i]);
        nb_scope_close(0, NULL);
    }
    nb_scope_open();
    what_is_whole_says_why();
    nb_scope_close(0, NULL);
    return tally();
}
