/* test_autoshard.c - layouts chosen for functions: the plans of small networks
 * on the page, that running them moves what they cost, and gives what the plain
 * function gives. */
#include "support/check.h"
#include "support/laid.h"
#include "support/operands.h"

#include "nabla/nabla.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define D4  "@m = <[\"d\"=4]>"
#define M22 "@m = <[\"x\"=2, \"y\"=2]>"

/* A step of two linear layers: x, y, w1, w2. */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *rate = nb_scalar_float(0.01, NB_F32);
    nb_tensor *h = nb_matmul(x[0], x[2]);
    nb_tensor *e = nb_sub(nb_matmul(h, x[3]), x[1]);
    nb_tensor *g2 = nb_matmul(nb_swap_axes(h, 0, 1), e);
    nb_tensor *gh = nb_matmul(e, nb_swap_axes(x[3], 0, 1));
    nb_tensor *g1 = nb_matmul(nb_swap_axes(x[0], 0, 1), gh);
    y[0] = nb_sub(x[2], nb_mul(g1, rate));
    y[1] = nb_sub(x[3], nb_mul(g2, rate));
    *ny = 2;
    return y[0] && y[1] ? NB_OK : nb_error_code();
}

FN(two_layers, nb_matmul(nb_relu(nb_matmul(x[0], x[1])), x[2]))
FN(picked, nb_relu(nb_matmul(nb_softmax(x[0], 1), x[1])))

static nb_tensor *waves(int64_t m, int64_t n)
{
    nb_tensor *y = nb_sin(nb_arange_float(0, (double)(m * n), 1, NB_F32));
    y = nb_mul(nb_reshape(y, 2, (int64_t[]){m, n}),
               nb_scalar_float(0.1, NB_F32));
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

static void show(const nb_auto_plan *p)
{
    char *text = nb_auto_plan_text(p);
    printf("%s", text ? text : "no text\n");
    nb_text_release(text);
}

/* Arguments as the plan says, so that a run moves what the plan costs. */
static void place(const nb_auto_plan *p, int n, nb_tensor *const *x,
                  nb_tensor **to)
{
    for (int i = 0; i < n; i++)
        to[i] = nb_reshard(x[i], nb_auto_plan_argument(p, i));
    nb_realize_all(n, to);
}

static void runs(const char *name, nb_auto_plan *p, nb_body *of, int n,
                 nb_tensor *const *x, const nb_mesh *m)
{
    nb_tensor *y[4], *plain[4], *in[4];
    int ny = 4, np = 4;
    nb_func *f = nb_auto_plan_apply(p);
    nb_executable *e = NULL;
    place(p, n, x, in);
    bool ok = f && of(NULL, n, x, &np, plain) == NB_OK &&
              nb_executable_new(f, n, in, &e) == NB_OK;
    nb_comm_stats_reset(m);
    ok = ok && nb_executable_run(e, n, in, &ny, y) == NB_OK;
    double bytes = (double)moved(m).bytes;
    if (expect(ok && ny == np, "%s: the run", name)) {
        expect(fabs(bytes - nb_auto_plan_cost(p)) <=
                   1e-5 * nb_auto_plan_cost(p),
               "%s: %.0f bytes move, the plan is %.0f", name, bytes,
               nb_auto_plan_cost(p));
        for (int k = 0; k < ny; k++) {
            const char *bad = blocks_check(y[k], plain[k], 2e-5);
            expect(!bad, "%s: result %d: %s", name, k, bad ? bad : "");
            expect(nb_spec_same_layout(nb_sharding(y[k]),
                                       nb_auto_plan_result(p, k)),
                   "%s: where result %d lies", name, k);
        }
    }
    nb_executable_drop(e);
    /* The same from call to call. */
    ny = 4;
    ok = nb_func_call(f, n, x, &ny, y) == NB_OK &&
         nb_realize_all(ny, y) == NB_OK;
    for (int k = 0; ok && k < ny; k++)
        ok = !blocks_check(y[k], plain[k], 2e-5);
    expect(ok, "%s: without compiling", name);
}

static nb_auto_plan *plan(nb_body *of, const nb_mesh *m, int n,
                          nb_tensor *const *x, const nb_auto_options *o)
{
    nb_auto_plan *p = NULL;
    nb_status s = nb_auto_shard(nb_func_new(of, NULL), m, n, x, o, &p);
    return s == NB_OK ? p : NULL;
}

static const nb_auto_alias updated[] = {{0, 2}, {1, 3}};
static const nb_auto_options training = {.naliases = 2, .alias = updated};

static void a_step(const char *name, int64_t batch, int64_t width, double cost,
                   const char *w1, const char *w2)
{
    const nb_mesh *m = nb_mesh_parse(D4);
    nb_tensor *x[] = {waves(batch, width), waves(batch, width),
                      waves(width, width), waves(width, width)};
    nb_auto_plan *p = plan(step, m, 4, x, &training);
    if (!expect(p, "%s: a plan", name)) return;
    bool ok =
        expect(fabs(nb_auto_plan_cost(p) - cost) <= 1e-5 * cost,
               "%s: it costs %.0f, not %.0f", name, nb_auto_plan_cost(p), cost);
    ok = expect(nb_auto_plan_bound(p) <= nb_auto_plan_cost(p) &&
                    nb_auto_plan_memory(p) > 0,
                "%s: its bound and memory", name) &&
         ok;
    ok = expect(!w1 || (lies(nb_auto_plan_argument(p, 2), m, w1) &&
                        lies(nb_auto_plan_argument(p, 3), m, w2)),
                "%s: where the weights lie", name) &&
         ok;
    if (!ok) show(p);
    runs(name, p, step, 4, x, m);
    nb_auto_plan_drop(p);
}

/* T60 and T61, smaller. */
static void layers_wide_and_narrow(void)
{
    a_step("wide layers are split by column and row", 8, 64,
           2. * 3 / 4 * 8 * 64 * 4, NULL, NULL);
    a_step("many rows are split by row", 64, 8, 2 * (2. * 3 / 4 * 8 * 8 * 4),
           "[., .]", "[., .]");
}

static void budgets(void)
{
    const nb_mesh *m = nb_mesh_parse(D4);
    nb_tensor *x[] = {waves(8, 64), waves(64, 64), waves(64, 64)};
    nb_auto_options o = {.memory_budget = 100};
    nb_auto_plan *p = plan(two_layers, m, 3, x, &o);
    expect(failed_with(NB_EVALUE, "are needed") && !p,
           "a budget that is too small says what is needed");
    o.memory_budget = 1 << 20;
    p = plan(two_layers, m, 3, x, &o);
    expect(p && nb_auto_plan_memory(p) <= 1 << 20, "a budget that is enough");
    if (p) runs("within a budget", p, two_layers, 3, x, m);
    nb_auto_plan_drop(p);
    o.memory_budget = 16 << 10;
    p = plan(two_layers, m, 3, x, &o);
    expect(p && nb_auto_plan_memory(p) <= 16 << 10, "weights in parts");
    if (p) runs("weights in parts", p, two_layers, 3, x, m);
    nb_auto_plan_drop(p);
}

static void on_two_axes(void)
{
    const nb_mesh *m = nb_mesh_parse(M22);
    nb_tensor *x[] = {waves(16, 32), waves(32, 32), waves(32, 32),
                      waves(32, 32)};
    nb_tensor *given[] = {x[0], lay(x[1], m, "[x, y]"), x[2], x[3]};
    nb_auto_plan *p = plan(two_layers, m, 3, x, NULL);
    if (expect(p, "two axes")) runs("two axes", p, two_layers, 3, x, m);
    nb_auto_plan_drop(p);
    p = plan(two_layers, m, 3, given, NULL);
    if (expect(p && lies(nb_auto_plan_argument(p, 1), m, "[x, y]"),
               "what lies on the mesh stays there"))
        runs("given", p, two_layers, 3, given, m);
    nb_auto_plan_drop(p);
    p = plan(picked, m, 2, x, NULL);
    if (expect(p, "softmax")) runs("softmax", p, picked, 2, x, m);
    nb_auto_plan_drop(p);
}

/* What the function says of a value inside it. */

static const char *asked;
static const nb_mesh *asked_on;

static nb_tensor *said(nb_tensor *x)
{
    return asked ? nb_constrain(x, nb_spec_parse(asked_on, asked)) : x;
}

FN(asking, nb_matmul(said(nb_relu(nb_matmul(x[0], x[1]))), x[2]))

/* How the value lies that was spoken of: line `relu` of the plan's table. */
static bool plan_says(const nb_auto_plan *p, const char *row, const char *part)
{
    char *text = nb_auto_plan_text(p), *at = text ? strstr(text, row) : NULL;
    char *end = at ? strchr(at, '\n') : NULL;
    if (end) *end = 0;
    bool found = at && strstr(at, part);
    if (!found && text) printf("%s: %s\n", row, at ? at : "no such row");
    nb_text_release(text);
    return found;
}

static double cost_asking(const char *layout, const char *row)
{
    const nb_mesh *m = nb_mesh_parse(D4);
    nb_tensor *x[] = {waves(8, 64), waves(64, 64), waves(64, 64)};
    asked = layout;
    asked_on = m;
    nb_auto_plan *p = plan(asking, m, 3, x, NULL);
    if (!expect(p, "%s: a plan", layout ? layout : "nothing")) return -1;
    double cost = nb_auto_plan_cost(p);
    if (row)
        expect(plan_says(p, "constrain", row), "%s: the value lies so", layout);
    runs(layout ? layout : "nothing asked", p, asking, 3, x, m);
    nb_auto_plan_drop(p);
    return cost;
}

static void constraints(void)
{
    double free_ = cost_asking(NULL, NULL);
    double rows = cost_asking("[d, .]", "(8@d, 64)");
    double columns = cost_asking("[., d]", "(8, 64@d)");
    expect(rows >= free_ && columns >= free_, "asking never makes it cheaper");
    expect(cost_asking("[., .]", "(8, 64)") >= free_,
           "whole, if that is asked");
    expect(fabs(cost_asking("[?, ?]", NULL) - free_) <= 1e-5 * free_ + 1e-9,
           "open dims ask for nothing");
    /* Where two ways cost the same, the one that is rather wanted. */
    expect(fabs(cost_asking("[d?, ?]", "(8@d, 64)") - rows) <= 1e-5 * rows + 1,
           "open dims are had where that costs no more");
    asked = NULL;
}

static void mistakes(void)
{
    const nb_mesh *m = nb_mesh_parse(D4);
    nb_tensor *x[] = {waves(8, 64), waves(64, 64), waves(64, 64)}, *y[2];
    static const nb_auto_alias beyond[] = {{1, 0}}, other[] = {{0, 1}};
    nb_auto_options o = {.naliases = 1, .alias = beyond};
    FAILS("no such result", plan(two_layers, m, 3, x, &o), NB_EVALUE,
          "there are 1 results");
    o.alias = other;
    FAILS("a result of another type", plan(two_layers, m, 3, x, &o), NB_EVALUE,
          "not of the type");
    nb_auto_plan *p = plan(two_layers, m, 3, x, NULL);
    nb_func *f = nb_auto_plan_apply(p);
    nb_tensor *wrong[] = {x[1], x[1], x[2]};
    int ny = 2;
    FAILS("other arguments", nb_func_call(f, 3, wrong, &ny, y) == NB_OK,
          NB_EVALUE, "of another type");
    FAILS("too few", nb_func_call(f, 2, x, &ny, y) == NB_OK, NB_EVALUE,
          "for 3 arguments");
    nb_auto_plan_drop(p);
}

int main(void)
{
    void (*const test[])(void) = {layers_wide_and_narrow, budgets, on_two_axes,
                                  constraints, mistakes};
    for (size_t i = 0; i < sizeof test / sizeof test[0]; i++) {
        nb_scope_open();
        test[i]();
        nb_scope_close(0, NULL);
    }
    return tally();
}
