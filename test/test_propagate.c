/* test_propagate.c - programs laid out as a whole: what spreads from both ends,
 * where sums are taken, and that nothing is computed otherwise for it.
 *
 * Worked cases say, of a program and the layouts of its operands, how one of
 * its values comes to lie and what a run moves, laid out as a whole and from
 * call to call.  Random programs then move no more as a whole than from call to
 * call, just what was planned, and give what the plain program gives.
 * NABLA_PROGRAMS is how many. */
#include "support/check.h"
#include "support/laid.h"
#include "support/operands.h"
#include "support/ranks.h"

#include "nabla/compile.h"
#include "nabla/nabla.h"
#include "shard/decide/layouts.h"
#include "shard/graph/propagate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M24 "@m = <[\"dp\"=2, \"tp\"=4]>"
#define TP4 "@m = <[\"tp\"=4]>"

#define SHAPE(...)                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) \
    {                                                               \
        __VA_ARGS__                                                 \
    }

typedef struct worked {
    const char *name, *mesh;
    nb_body *of;
    operand x[OPERANDS];
    const char *op, *lies; /* the first call of it, and how it lies there */
    int64_t bytes, forward;
} worked;

static const nb_mesh *mesh; /* of the case */

static nb_tensor *put(nb_tensor *x, const char *layout)
{
    return nb_reshard(x, nb_spec_parse(mesh, layout));
}

FN(spread_out, nb_exp(nb_broadcast_to(x[0], SHAPE(8, 4, 4))))
FN(first_columns,
   nb_exp(nb_slice_tensor(x[0], (int64_t[]){0, 0}, (int64_t[]){8, 16})))
FN(columns_asked, put(nb_matmul(x[0], x[1]), "[., tp]"))
FN(both_layers, put(nb_matmul(nb_relu(nb_matmul(x[0], x[1])), x[2]), "[tp, .]"))
FN(ones_added, nb_add(x[0], nb_exp(nb_ones(SHAPE(8, 16), NB_F32))))
FN(counted, nb_add(x[0], nb_sin(nb_iota(10, NB_F32))))
FN(counted_unevenly, put(nb_sin(nb_iota(10, NB_F32)), "[tp]"))
FN(three_rows, put(nb_sin(nb_neg(x[0])), "[tp, .]"))
FN(barred, nb_add(nb_sin(x[0]), put(nb_cos(x[0]), "[., .]R{tp}")))
FN(cut_after_adding,
   nb_exp(nb_slice_tensor(nb_add(nb_matmul(x[0], x[1]), x[2]),
                          (int64_t[]){0, 0}, (int64_t[]){8, 8})))
/* By rows and, more so, by columns. */
static nb_tensor *put_both(nb_tensor *x)
{
    return nb_add(put(x, "[tp p1, .]"), put(x, "[., tp]"));
}

FN(two_priorities, put_both(nb_sin(x[0])))
FN(asked_twice, nb_exp(put(nb_neg(put(nb_sin(x[0]), "[tp, .]")), "[., tp]")))
FN(in_two_ways,
   put(nb_matmul(put(nb_sin(x[0]), "[dp, .]"), put(nb_sin(x[1]), "[., tp]")),
       "[dp, tp]"))
FN(two_sums, nb_exp(nb_add(nb_matmul(x[0], x[1]), x[2])))
FN(used_twice, nb_mul(nb_exp(nb_neg(x[0])),
                      nb_exp(nb_mul(x[0], nb_scalar_float(2, NB_F32)))))

FN(whole_on_the_way, nb_sin(put(put(x[0], "[., .]"), "[tp, .]")))
FN(whole_for_a_part, nb_add(put(x[0], "[., .]"), x[1]))
FN(whole_for_some, nb_add(nb_mul(put(x[0], "[., .]"), x[1]), x[0]))

/* Its sine is a result, and whole. */
static nb_status whole_for_another(void *ctx, int nx, nb_tensor *const *x,
                                   int *ny, nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_mul(put(x[0], "[., .]"), x[1]);
    y[1] = nb_sin(x[0]);
    *ny = 2;
    return NB_OK;
}

/* Through calls of several results, and programs inside ops */

static nb_tensor *asked(nb_tensor *x, const char *layout)
{
    return nb_constrain(x, nb_spec_parse(mesh, layout));
}

static nb_tensor *log_of_det(nb_tensor *x)
{
    nb_tensor *y[2];
    return nb_slogdet(x, y) == NB_OK ? y[1] : NULL;
}

FN(half, nb_tanh(x[0]))
FN(sine, nb_sin(x[0]))

static nb_status add_step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_tanh(nb_add(x[0], x[1]));
    y[1] = nb_cos(y[0]);
    return *ny = 2, NB_OK;
}

static nb_tensor *steps(nb_tensor *init, nb_tensor *xs, int k)
{
    nb_tensor *y[2];
    int n = 2;
    nb_status s = nb_scan(nb_func_new(add_step, NULL), 1, &init, 1, &xs,
                          nb_size(xs, 0), false, &n, y);
    return s == NB_OK ? y[k] : NULL;
}

FN(below_three, nb_less(x[0], nb_num(3)))

static nb_status grown(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], nb_num(1));
    y[1] = nb_mul(x[1], nb_num(3));
    return *ny = 2, NB_OK;
}

static nb_tensor *until(nb_tensor *x)
{
    nb_tensor *init[] = {nb_cast(nb_num(0), NB_F32), x}, *y[2];
    nb_status s = nb_while(nb_func_new(below_three, NULL),
                           nb_func_new(grown, NULL), 2, init, y);
    return s == NB_OK ? y[1] : NULL;
}

static nb_tensor *either(nb_tensor *x)
{
    nb_tensor *y;
    int n = 1;
    nb_tensor *yes = nb_cast(nb_num(1), NB_BOOL);
    nb_status s = nb_cond(yes, nb_func_new(half, NULL), nb_func_new(sine, NULL),
                          1, &x, &n, &y);
    return s == NB_OK ? y : NULL;
}

FN(dets_in_parts, put(log_of_det(nb_exp(x[0])), "[tp]"))
FN(loop_then_rows, put(until(nb_exp(x[0])), "[tp, .]"))
FN(branch_then_columns, put(either(nb_exp(x[0])), "[., tp]"))
FN(steps_then_columns, put(steps(x[0], nb_exp(x[1]), 1), "[., ., tp]"))
FN(last_then_columns, put(steps(nb_exp(x[0]), x[1], 0), "[., tp]"))
FN(rows_are_asked, nb_cos(asked(nb_exp(x[0]), "[tp, .]")))
FN(some_are_asked,
   nb_add(asked(nb_exp(x[0]), "[tp, ?]"), put(nb_cos(x[0]), "[tp, dp]")))
FN(open_columns,
   nb_add(put(nb_exp(x[0]), "[tp, ?]"), put(nb_cos(x[0]), "[tp, dp]")))

/* The first result is not spoken of. */
static nb_status spoken_of_behind(void *ctx, int nx, nb_tensor *const *x,
                                  int *ny, nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_exp(x[0]);
    y[1] = put(nb_cos(y[0]), "[tp, .]");
    return *ny = 2, NB_OK;
}

static const worked cases[] = {
    {"columns that are asked for are computed as columns",
     TP4,
     columns_asked,
     {X("[., .]", 8, 16), X("[., .]", 16, 32)},
     "matmul",
     "[., tp]",
     0,
     0},
    {"backward through two products and relu",
     TP4,
     both_layers,
     {X("[., .]", 8, 16), X("[., .]", 16, 32), X("[., .]", 32, 8)},
     "relu",
     "[tp, .]",
     0,
     0},
    {"what lies on no device is computed in parts",
     TP4,
     ones_added,
     {X("[tp, .]", 8, 16)},
     "exp",
     "[tp, .]",
     0,
     0},
    {"numbers in a row are counted in parts",
     TP4,
     counted,
     {X("[tp]", 10)},
     "iota",
     "[tp]",
     0,
     0},
    {"also those of no operand",
     TP4,
     counted_unevenly,
     {X("[.]", 10)},
     "iota",
     "[tp]",
     0,
     0},
    {"not more blocks than elements",
     TP4,
     three_rows,
     {X("[., .]", 3, 8)},
     "sin",
     "[., .]",
     0,
     0},
    {"T45 a sum is taken before it is repeated",
     TP4,
     spread_out,
     {X("[., .]P{tp}", 4, 4)},
     "exp",
     "[., ., .]",
     96,
     768},
    {"T45 a sum is taken of what is left",
     TP4,
     first_columns,
     {X("[., .]P{tp}", 8, 1024)},
     "exp",
     "[., .]",
     768,
     768},
    {"what is whole is added to one part of a sum",
     TP4,
     cut_after_adding,
     {X("[., tp]", 8, 64), X("[tp, .]", 64, 32), X("[., .]", 8, 32)},
     "add",
     "[., .]P{tp}",
     384,
     1536},
    {"one sum for two uses",
     TP4,
     used_twice,
     {X("[., .]P{tp}", 8, 8)},
     "neg",
     "[., .]",
     384,
     768},
    {"two sums are taken as one",
     TP4,
     two_sums,
     {X("[., tp]", 8, 64), X("[tp, .]", 64, 32), X("[., .]P{tp}", 8, 32)},
     "add",
     "[., .]P{tp}",
     1536,
     1536},
    {"a sum that is asked for whole and then in parts is taken in parts",
     TP4,
     whole_on_the_way,
     {X("[., .]P{tp}", 8, 8)},
     "sin",
     "[tp, .]",
     192,
     384},
    {"also if who uses it needs a part",
     TP4,
     whole_for_a_part,
     {X("[., .]P{tp}", 8, 8), X("[tp, .]", 8, 8)},
     "add",
     "[tp, .]",
     192,
     384},
    {"also if others need a part of it",
     TP4,
     whole_for_some,
     {X("[., .]P{tp}", 8, 8), X("[tp, .]", 8, 8)},
     "add",
     "[tp, .]",
     192,
     384},
    {"but not if somebody else has it whole",
     TP4,
     whole_for_another,
     {X("[., .]P{tp}", 8, 8), X("[tp, .]", 8, 8)},
     "mul",
     "[tp, .]",
     384,
     384},
    {"what is said holds until something else is",
     TP4,
     asked_twice,
     {X("[., .]", 8, 8)},
     "neg",
     "[tp, .]",
     48,
     48},
    {"what is asked in two ways is left to the call",
     M24,
     in_two_ways,
     {X("[., .]", 8, 16), X("[., .]", 16, 8)},
     "matmul",
     "[dp, tp]",
     0,
     0},
    {"what must not be split is not",
     TP4,
     barred,
     {X("[., .]", 8, 8)},
     "cos",
     "[., .]",
     0,
     0},
    {"backward through a call of two results",
     TP4,
     dets_in_parts,
     {X("[., ., .]", 8, 2, 2)},
     "exp",
     "[tp, ., .]",
     0,
     0},
    {"backward through a loop",
     TP4,
     loop_then_rows,
     {X("[., .]", 8, 8)},
     "exp",
     "[tp, .]",
     0,
     0},
    {"backward through branches",
     TP4,
     branch_then_columns,
     {X("[., .]", 8, 8)},
     "exp",
     "[., tp]",
     0,
     0},
    {"from steps that a loop gives to those that it takes",
     TP4,
     steps_then_columns,
     {X("[., .]", 8, 8), X("[., ., .]", 3, 8, 8)},
     "exp",
     "[., ., tp]",
     0,
     0},
    {"from the last state to the first",
     TP4,
     last_then_columns,
     {X("[., .]", 8, 8), X("[., ., .]", 3, 8, 8)},
     "exp",
     "[., tp]",
     0,
     0},
    {"what is asked for is so",
     TP4,
     rows_are_asked,
     {X("[., .]", 8, 8)},
     "exp",
     "[tp, .]",
     0,
     0},
    {"and as far as it is left open as others want it",
     M24,
     some_are_asked,
     {X("[., .]", 8, 8)},
     "constrain",
     "[tp, dp]",
     0,
     ANY},
    {"what a reshard leaves open",
     M24,
     open_columns,
     {X("[., .]", 8, 8)},
     "reshard",
     "[tp, dp]",
     0,
     0},
    {"a result that nobody spoke of",
     TP4,
     spoken_of_behind,
     {X("[., .]", 8, 8)},
     "exp",
     "[tp, .]",
     0,
     0},
};

static const nb_spec *made_as(const nb_graph *g, const nb_layouts *l,
                              const char *op)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].op && !strcmp(g->line[k].op->name, op))
            return l->decision[k] ? l->decision[k]->give[0] : l->spec[k];
    return NULL;
}

static bool moves(const nb_graph *g, nb_tensor *const *node,
                  const nb_layouts *l, int64_t bytes)
{
    nb_traffic t;
    if (!nb_layouts_traffic(g, node, l, &t)) return false;
    if (bytes == ANY || t.bytes == bytes) return true;
    printf("  %lld bytes are to move, not %lld\n", (long long)t.bytes,
           (long long)bytes);
    return false;
}

/* The program recorded on the operands. */
static nb_graph *recorded(nb_body *of, int n, nb_tensor *const *x)
{
    nb_tensor *y[4];
    int ny = 4;
    nb_graph *g = NULL;
    if (of(NULL, n, x, &ny, y) != NB_OK || !y[0]) return NULL;
    return nb_graph_of(n, x, ny, y, &g) == NB_OK ? g : NULL;
}

static void table(const worked *c, int n, nb_tensor *const *x)
{
    nb_graph *g = recorded(c->of, n, x);
    nb_tensor **node = g ? malloc((size_t)g->n * sizeof *node) : NULL;
    nb_layouts whole, forward;
    bool ok = g && nb_graph_nodes(g, node) && nb_layouts_solve(g, node, &whole);
    if (expect(ok, "%s: the layouts", c->name)) {
        expect(lies(made_as(g, &whole, c->op), mesh, c->lies), "%s: %s",
               c->name, c->op);
        expect(moves(g, node, &whole, c->bytes), "%s: bytes", c->name);
        expect(nb_layouts_of(g, node, &forward) &&
                   moves(g, node, &forward, c->forward),
               "%s: bytes from call to call", c->name);
        nb_layouts_free(&whole);
        nb_layouts_free(&forward);
    }
    free(node);
    nb_graph_free(g);
}

static void works(const worked *c)
{
    nb_tensor *x[OPERANDS], *plain[OPERANDS], *y[2], *whole[2];
    int ny = 2, np = 2;
    mesh = nb_mesh_parse(c->mesh);
    int n = operands_lay(c->name, c->x, mesh, plain, x);
    if (n < 0) return;
    table(c, n, x);
    nb_func *f = nb_func_new(c->of, NULL);
    nb_executable *e = NULL;
    bool ok = nb_executable_new(f, n, x, &e) == NB_OK;
    nb_comm_stats_reset(mesh);
    ok = ok && nb_executable_run(e, n, x, &ny, y) == NB_OK;
    int64_t bytes = moved(mesh).bytes;
    if (expect(ok, "%s: the run", c->name)) {
        expect(c->bytes == ANY || bytes == c->bytes,
               "%s: %lld bytes move, not %lld", c->name, (long long)bytes,
               (long long)c->bytes);
        ok = c->of(NULL, n, plain, &np, whole) == NB_OK;
        const char *bad = blocks_check(y[0], whole[0], 2e-5);
        expect(ok && !bad, "%s: the value: %s", c->name, bad ? bad : "");
    }
    nb_executable_drop(e);
}

/* What spreads, whether or not it is then found to be worth it. */
static void priorities(void)
{
    static const operand of = X("[., .]", 8, 8);
    mesh = nb_mesh_parse(TP4);
    nb_tensor *x = lay(ramp(&of), mesh, of.layout);
    nb_graph *g = recorded(two_priorities, 1, &x);
    nb_tensor **node = malloc((size_t)g->n * sizeof *node);
    nb_spec *wish = NULL;
    bool ok = nb_graph_nodes(g, node) && nb_propagate(g, node, mesh, &wish);
    expect(ok, "what spreads of two priorities");
    for (int k = 0; ok && k < g->n; k++)
        if (g->line[k].op && !strcmp(g->line[k].op->name, "sin"))
            expect(!wish[k].dim[0].axes.n && wish[k].dim[1].axes.n == 1,
                   "the stronger priority is heard first");
    nb_free(wish);
    nb_graph_free(g);
    free(node);
}

/* T54: sum((relu(x w1) w2)^2) of w1, w2: one sum on the way there, none on the
 * way back, though the square and its derivative both want it taken. */
FN(two_layers,
   nb_reduce_sum(nb_square(nb_matmul(nb_relu(nb_matmul(x[2], x[0])), x[1])), -1,
                 NULL, false))

static void a_step_of_two_layers(void)
{
    static const operand of[] = {X("[., tp]", 64, 256), X("[tp, .]", 256, 64),
                                 X("[., .]", 8, 64)};
    static const int weights[] = {0, 1};
    nb_tensor *x[3], *plain[3], *y[2], *whole[2];
    int ny = 2, np = 2;
    mesh = nb_mesh_parse(TP4);
    for (int i = 0; i < 3; i++) {
        plain[i] = ramp(&of[i]);
        x[i] = lay(plain[i], mesh, of[i].layout);
    }
    nb_func *f = nb_grad(nb_func_new(two_layers, NULL), 2, weights);
    nb_executable *e = NULL;
    bool ok = nb_executable_new(f, 3, x, &e) == NB_OK;
    nb_comm_stats_reset(mesh);
    ok = ok && nb_executable_run(e, 3, x, &ny, y) == NB_OK &&
         nb_func_call(f, 3, plain, &np, whole) == NB_OK;
    expect(has_moved(mesh, 3072, ANY), "T54: what moves");
    for (int k = 0; ok && k < 2; k++) {
        ok = !blocks_check(y[k], whole[k], 1e-4);
        expect(lies(nb_sharding(y[k]), mesh, of[k].layout),
               "T54: gradient %d lies as its weight", k);
    }
    expect(ok, "T54: the gradients");
    nb_executable_drop(e);
}

/* Tables broken on purpose */

static void drop_pending(nb_decision *d)
{
    nb_spec s = nb_spec_draft(d->give[0]);
    s.partial.n = 0;
    d->give[0] = nb_spec_intern(&s);
}

static void carry_on(nb_decision *d)
{
    nb_spec s = nb_spec_draft(d->need[0]);
    s.partial = (nb_cut){.n = 1, .at = {nb_axis_full(mesh, 0)}};
    d->need[0] = nb_spec_intern(&s);
    d->give[0] = d->need[0];
}

static void split_one(nb_decision *d)
{
    d->need[0] = nb_spec_parse(mesh, "[tp, .]");
}

FN(product_and_sine, nb_sin(nb_matmul(x[0], x[1])))

static const struct {
    const char *says, *op;
    void (*spoil)(nb_decision *d);
} broken[] = {
    {"forgotten", "matmul", drop_pending},
    {"cannot carry", "sin", carry_on},
    {"split in two ways", "sin", split_one},
};

static void notices(nb_graph *g, nb_tensor *const *node, nb_layouts *l, int i)
{
    for (int k = 0; k < g->n; k++) {
        if (!g->line[k].op || strcmp(g->line[k].op->name, broken[i].op))
            continue;
        const nb_decision *was = l->decision[k];
        const nb_spec *spec[8];
        nb_decision d = *was;
        memcpy(spec, was->need, (size_t)was->nin * sizeof *spec);
        spec[was->nin] = was->give[0];
        d.need = spec;
        d.give = spec + was->nin;
        broken[i].spoil(&d);
        l->decision[k] = &d;
        FAILS("a table that is wrong", nb_layouts_verify(g, node, l),
              NB_ERUNTIME, broken[i].says);
        l->decision[k] = was;
    }
}

static void broken_tables(void)
{
    static const operand of[] = {X("[., tp]", 8, 16), X("[tp, .]", 16, 8)};
    nb_tensor *x[2];
    nb_layouts l;
    mesh = nb_mesh_parse(TP4);
    for (int i = 0; i < 2; i++)
        x[i] = lay(ramp(&of[i]), mesh, of[i].layout);
    nb_graph *g = recorded(product_and_sine, 2, x);
    nb_tensor **node = malloc((size_t)g->n * sizeof *node);
    bool ok = nb_graph_nodes(g, node) && nb_layouts_solve(g, node, &l);
    if (expect(ok && nb_layouts_verify(g, node, &l), "a table that is right")) {
        for (int i = 0; i < 3; i++)
            notices(g, node, &l, i);
        nb_layouts_free(&l);
    }
    nb_graph_free(g);
    free(node);
}

/* Random programs on matrices */

enum { POOL = 24, GIVEN = 3, PROGRAMS = 300 };

typedef struct random_program {
    unsigned seed;
    const nb_mesh *mesh; /* NULL: on none */
} random_program;

static nb_tensor *shaped_like(nb_tensor *const *pool, int n, nb_tensor *x)
{
    for (int turn = 0; turn < 8; turn++) {
        nb_tensor *y = pool[pick(n)];
        if (nb_size(y, 0) == nb_size(x, 0) && nb_size(y, 1) == nb_size(x, 1))
            return y;
    }
    return x;
}

static nb_tensor *product(nb_tensor *const *pool, int n, nb_tensor *x)
{
    for (int turn = 0; turn < 8; turn++) {
        nb_tensor *y = pool[pick(n)];
        if (nb_size(y, 0) == nb_size(x, 1)) return nb_sin(nb_matmul(x, y));
        if (nb_size(y, 1) == nb_size(x, 1))
            return nb_matmul(x, nb_swap_axes(y, 0, 1));
    }
    return nb_matmul(x, nb_swap_axes(x, 0, 1));
}

/* One row, repeated. */
static nb_tensor *repeated(nb_tensor *x, int64_t axis)
{
    int64_t size[] = {nb_size(x, 0), nb_size(x, 1)};
    nb_tensor *y = pick(2) ? nb_reduce_sum(x, 1, &axis, true)
                           : nb_reduce_max(x, 1, &axis, true);
    return nb_broadcast_to(y, 2, size);
}

static nb_tensor *window(nb_tensor *x)
{
    int64_t from[2], size[2];
    for (int d = 0; d < 2; d++) {
        from[d] = nb_size(x, d) > 2 ? pick(2) : 0;
        size[d] = nb_size(x, d) - from[d] - (nb_size(x, d) > 3 ? pick(2) : 0);
    }
    return nb_slice_tensor(x, from, size);
}

static nb_tensor *moved_about(const random_program *p, nb_tensor *x)
{
    char layout[LAYOUT];
    const nb_mesh *m = p->mesh ? p->mesh : mesh;
    layout_draw(layout, m, 2, NB_F64);
    layout[strcspn(layout, "P")] = 0; /* nothing is pending of what is asked */
    return *layout == '-' || !p->mesh ? x : put(x, layout);
}

static nb_tensor *counted_on(nb_tensor *x)
{
    nb_tensor *row = nb_iota(nb_size(x, 1), NB_F64);
    int64_t size[] = {nb_size(x, 0), nb_size(x, 1)};
    return nb_add(x, pick(2) ? nb_sin(row)
                             : nb_exp(nb_neg(nb_ones(2, size, NB_F64))));
}

static nb_tensor *next(const random_program *p, nb_tensor *const *pool, int n)
{
    nb_tensor *x = pool[n - 1 - pick(n < 4 ? n : 4)];
    nb_tensor *y = shaped_like(pool, n, x);
    int64_t flat[] = {nb_size(x, 0) * nb_size(x, 1)};
    switch (pick(13)) {
    case 0:
    case 1: return product(pool, n, x);
    case 2: return nb_add(x, y);
    case 3: return nb_mul(x, y);
    case 4: return nb_neg(x);
    case 5: return nb_sin(x);
    case 6: return nb_swap_axes(x, 0, 1);
    case 7: return repeated(x, pick(2));
    case 8: return window(x);
    case 9: return moved_about(p, x);
    case 10: return counted_on(x);
    case 11:
        return nb_size(x, 0) > 8 ? nb_relu(x)
                                 : nb_concatenate(2, (nb_tensor *[]){x, y}, 0);
    default:
        return nb_reshape(nb_sort(nb_reshape(x, 1, flat), 0, false, true), 2,
                          (int64_t[]){nb_size(x, 1), nb_size(x, 0)});
    }
}

static nb_status drawn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    const random_program *p = ctx;
    nb_tensor *pool[POOL];
    int n = nx;
    memcpy(pool, x, (size_t)nx * sizeof *pool);
    uniform_seed(p->seed);
    int last = nx + 2 + (int)pick(POOL - nx - 1);
    for (; n < last; n++)
        if (!(pool[n] = next(p, pool, n))) return nb_error_code();
    *ny = 2;
    y[0] = nb_add(pool[n - 1], nb_zeros(0, NULL, NB_F64));
    y[1] = nb_reduce_sum(pool[n - 2], -1, NULL, false);
    return y[0] && y[1] ? NB_OK : nb_error_code();
}

/* Bytes of both layouts of a program: not more as a whole. */
static bool compare(nb_tensor *const *x, random_program *p, int64_t *planned)
{
    nb_tensor *y[2];
    int ny = 2;
    nb_graph *g = NULL;
    nb_layouts whole, forward;
    nb_traffic a, b;
    bool ok = drawn(p, GIVEN, x, &ny, y) == NB_OK &&
              nb_graph_of(GIVEN, x, ny, y, &g) == NB_OK;
    nb_tensor **node = ok ? malloc((size_t)g->n * sizeof *node) : NULL;
    *planned = -1;
    ok = ok && nb_graph_nodes(g, node);
    if (ok && !nb_sharding(y[0]) && !nb_sharding(y[1])) {
        *planned = -2; /* on no mesh */
    } else if (ok && (ok = nb_layouts_solve(g, node, &whole))) {
        ok = nb_layouts_of(g, node, &forward) &&
             nb_layouts_traffic(g, node, &whole, &a) &&
             nb_layouts_traffic(g, node, &forward, &b) && a.bytes <= b.bytes;
        *planned = a.bytes;
        nb_layouts_free(&whole);
        nb_layouts_free(&forward);
    }
    nb_graph_free(g);
    free(node);
    return ok;
}

static const char *runs_alike(random_program *p, nb_tensor *const *x,
                              nb_tensor *const *plain, int64_t planned)
{
    random_program none = {.seed = p->seed};
    nb_tensor *y[2], *whole[2];
    int ny = 2, np = 2;
    nb_executable *e = NULL;
    nb_func *f = nb_func_new(drawn, p);
    if (nb_executable_new(f, GIVEN, x, &e) != NB_OK) return "it is not made";
    nb_comm_stats_reset(mesh);
    const char *bad = NULL;
    if (nb_executable_run(e, GIVEN, x, &ny, y) != NB_OK)
        bad = "it does not run";
    else if (moved(mesh).bytes > planned)
        bad = "it moves more than was planned";
    else if (drawn(&none, GIVEN, plain, &np, whole) != NB_OK)
        bad = "the plain one fails";
    for (int k = 0; !bad && k < 2; k++)
        bad = blocks_check(y[k], whole[k], 1e-6);
    nb_executable_drop(e);
    return bad;
}

static nb_status total(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_tensor *both[2];
    int n = 2;
    nb_status s = drawn(ctx, nx, x, &n, both);
    if (s != NB_OK) return s;
    y[0] = nb_reduce_sum(nb_sin(both[0]), -1, NULL, false);
    *ny = 1;
    return y[0] ? NB_OK : nb_error_code();
}

/* The same of derivatives, which lie as what they are of. */
static const char *slopes_alike(random_program *p, nb_tensor *const *x,
                                nb_tensor *const *plain)
{
    static const int all[] = {0, 1, 2};
    random_program none = {.seed = p->seed};
    nb_tensor *y[GIVEN], *whole[GIVEN];
    int ny = GIVEN, np = GIVEN;
    nb_executable *e = NULL;
    const char *bad = NULL;
    nb_func *f = nb_grad(nb_func_new(total, p), GIVEN, all);
    nb_func *g = nb_grad(nb_func_new(total, &none), GIVEN, all);
    if (nb_executable_new(f, GIVEN, x, &e) != NB_OK)
        bad = "its gradient is not made";
    else if (nb_executable_run(e, GIVEN, x, &ny, y) != NB_OK)
        bad = "its gradient does not run";
    else if (nb_func_call(g, GIVEN, plain, &np, whole) != NB_OK)
        bad = "the plain gradient fails";
    for (int k = 0; !bad && k < GIVEN; k++)
        bad = blocks_check(y[k], whole[k], 1e-6);
    nb_executable_drop(e);
    return bad;
}

static void try_program(unsigned seed)
{
    static const char *const meshes[] = {"2", "4", "2x2", "3x2"};
    static const int64_t sizes[] = {3, 4, 5, 6, 8};
    nb_tensor *x[GIVEN], *plain[GIVEN];
    int64_t planned;
    char layout[LAYOUT];
    uniform_seed(seed);
    mesh = mesh_sized(meshes[pick(4)]);
    if (!ranks_share(mesh)) return;
    for (int i = 0; i < GIVEN; i++) {
        int64_t size[] = {sizes[pick(5)], sizes[pick(5)]};
        plain[i] = draw(2, size, -1, 1);
        layout_draw(layout, mesh, 2, NB_F64);
        x[i] = lay(plain[i], mesh, layout);
    }
    random_program p = {.seed = seed, .mesh = mesh};
    bool ok = compare(x, &p, &planned);
    if (!expect(ok, "program %u: %s", seed, nb_error_message())) return;
    if (planned == -2) return;
    const char *bad = runs_alike(&p, x, plain, planned);
    expect(!bad, "program %u: %s (%s)", seed, bad, nb_error_message());
    bad = seed % 3 ? NULL : slopes_alike(&p, x, plain);
    expect(!bad, "gradient %u: %s (%s)", seed, bad, nb_error_message());
}

static void random_programs(int argc, char **argv)
{
    const char *n = getenv("NABLA_PROGRAMS");
    unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    unsigned count = argc > 1 ? 1 : n ? (unsigned)atoi(n) : PROGRAMS;
    for (unsigned i = first; i < first + count; i++) {
        nb_scope_open();
        try_program(i);
        nb_scope_close(0, NULL);
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nb_scope_open();
        works(&cases[i]);
        nb_scope_close(0, NULL);
    }
    nb_scope_open();
    priorities();
    a_step_of_two_layers();
    broken_tables();
    nb_scope_close(0, NULL);
    random_programs(argc, argv);
    return tally();
}
