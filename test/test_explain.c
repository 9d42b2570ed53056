/* test_explain.c - what programs say to themselves, and that it is so: each
 * collective of a run stands in the explanation, with its bytes and a reason. */
#include "support/check.h"
#include "support/faults.h"
#include "support/laid.h"
#include "support/ranks.h"

#include "nabla/nabla.h"
#include "shard/decide/resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M24 "@m = <[\"dp\"=2, \"tp\"=4]>"
#define M22 "@m = <[\"dp\"=2, \"tp\"=2]>"

static nb_tensor *laid(const char *mesh, const char *layout, int64_t rows,
                       int64_t columns)
{
    nb_tensor *x = draw(2, (int64_t[]){rows, columns}, -1, 1);
    return lay(nb_cast(x, NB_F32), nb_mesh_parse(mesh), layout);
}

static nb_explanation *explained(nb_func *f, int n, nb_tensor *const *x)
{
    nb_explanation *e = NULL;
    expect(nb_explain(f, n, x, NULL, &e) == NB_OK, "explain: %s",
           nb_error_message());
    return e;
}

static bool says(const nb_explanation *e, int k, const char *kind,
                 const char *axes, int64_t bytes, const char *reason)
{
    nb_explain_row r;
    if (!nb_explanation_row(e, k, &r)) return false;
    bool ok = !strcmp(r.kind, kind) && !strcmp(r.axes, axes) &&
              r.bytes == bytes && strstr(r.reason, reason);
    if (!ok)
        printf("row %d: %s %s %lld: %s\n", k, r.kind, r.axes,
               (long long)r.bytes, r.reason);
    return ok;
}

FN(hidden, nb_relu(nb_matmul(x[0], x[1])))
FN(loss, nb_mean(nb_relu(nb_matmul(x[0], x[1])), -1, NULL, false))
FN(added, nb_add(x[0], x[1]))
FN(sorted, nb_sort(x[0], 1, false, true))
FN(running, nb_cumsum(x[0], 1, false, false))
FN(greatest, nb_argmax(x[0], 1, false))
FN(joined, nb_concatenate(2, x, 0))
FN(rolled, nb_slice_tensor(x[0], (int64_t[]){2, 0}, (int64_t[]){6, 8}))
FN(asked, nb_reshard(x[0], nb_spec_parse(nb_mesh_parse(M24), "[tp, .]")))
FN(twice, nb_add(nb_relu(x[0]), nb_exp(x[0])))

/* The specification's worked example. */
static void an_axis_goes_to_the_cheaper_factor(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, tp]", 32, 128),
                      laid(M24, "[., tp]", 128, 256)};
    nb_explanation *e = explained(nb_func_new(hidden, NULL), 2, x);
    nb_explain_row r;
    expect(nb_explanation_rows(e) == 1, "one collective");
    expect(says(e, 0, "all_gather", "tp", 6144,
                "tp goes to n (6144), not to k (36864)"),
           "x is gathered");
    nb_explanation_row(e, 0, &r);
    expect(!strcmp(r.from, "f32[32@dp, 128@tp]") &&
               !strcmp(r.to, "f32[32@dp, 128]"),
           "its layouts: %s -> %s", r.from, r.to);
    expect(!strcmp(r.op, "matmul") && !strcmp(r.of, "input 0") &&
               strstr(r.rule, "k n"),
           "%s (%s) <- %s", r.op, r.rule, r.of);
    expect(r.bound == 6144, "bound %lld", (long long)r.bound);
    expect(nb_explanation_total(e, NULL, NULL) == 6144, "the total");
    nb_explanation_drop(e);
}

static void a_sum_is_pending_until_it_is_needed(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, tp]", 32, 128),
                      laid(M24, "[tp, .]", 128, 256)};
    nb_explanation *e = explained(nb_func_new(hidden, NULL), 2, x);
    nb_explain_row r;
    expect(says(e, 0, "all_reduce", "tp", 24576,
                "k split on tp leaves a sum pending over tp; relu needs the "
                "whole value"),
           "reduced for relu");
    nb_explanation_row(e, 0, &r);
    expect(r.cheaper == 12288 &&
               !strcmp(r.alternative,
                       "reduce_scatter possible if n is split on tp"),
           "%s: %lld", r.alternative, (long long)r.cheaper);
    expect(!strcmp(r.of, "matmul") && strstr(r.rule, "m k"), "of %s (%s)", r.of,
           r.rule);
    char *text = nb_explanation_text(e);
    expect(text && strstr(text, "24576 B  relu <- matmul"), "%s",
           text ? text : "");
    expect(text && strstr(text, "total 24576 bytes: 1 all_reduce (24576)"),
           "%s", text ? text : "");
    nb_text_release(text);
    nb_explanation_drop(e);
}

/* x on dp, w on tp: nothing moves but four bytes at the end. */
static void a_result_is_added_up_when_it_is_read(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, .]", 32, 128),
                      laid(M24, "[., tp]", 128, 256)};
    nb_explanation *e = explained(nb_func_new(loss, NULL), 2, x);
    nb_explain_row r;
    int n = nb_explanation_rows(e);
    expect(n >= 1 && nb_explanation_row(e, n - 1, &r) && r.reading, "%d rows",
           n);
    expect(strstr(r.reason, "reading the result"), "%s", r.reason);
    expect(!strcmp(r.kind, "all_reduce"), "%s", r.kind);
    nb_explanation_drop(e);
}

static void reasons_are_given(void)
{
    static const struct {
        nb_body *of;
        int n;
        const char *a, *b, *reason;
    } cases[] = {
        {added, 2, "[dp, .]", "[tp, .]", "operands of add disagree"},
        {added, 2, "[dp, .]", "[., .]R{dp}", "may not be split over dp"},
        {sorted, 1, "[., tp]", NULL, "argsort needs all of b"},
        {asked, 1, "[., tp]", NULL, "asked for by reshard"},
        {rolled, 1, "[dp, .]", NULL, "reach into others"},
        {joined, 2, "[dp, .]", "[dp, .]", "reach into others"},
        {running, 1, "[., tp]", NULL,
         "blocks of cumsum tell what they come to along b"},
        {greatest, 1, "[., tp]", NULL, "tell what they come to along b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nb_tensor *x[2] = {laid(M24, cases[i].a, 8, 8)};
        if (cases[i].b) x[1] = laid(M24, cases[i].b, 8, 8);
        nb_explanation *e =
            explained(nb_func_new(cases[i].of, NULL), cases[i].n, x);
        nb_explain_row r = {.reason = "nothing"};
        nb_explanation_row(e, 0, &r);
        expect(strstr(r.reason, cases[i].reason), "%zu: %s, not %s", i,
               r.reason, cases[i].reason);
        nb_explanation_drop(e);
    }
}

static void a_value_moves_once(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, .]P{tp}", 8, 8)};
    nb_explanation *e = explained(nb_func_new(twice, NULL), 1, x);
    expect(nb_explanation_rows(e) == 1, "for relu and exp together");
    nb_explanation_drop(e);
}

static nb_status whole_then_blocks(void *ctx, int nx, nb_tensor *const *x,
                                   int *ny, nb_tensor **y)
{
    const nb_mesh *m = nb_mesh_parse(M24);
    (void)ctx, (void)nx;
    y[0] = nb_reshard(x[0], nb_spec_parse(m, "[., .]"));
    y[1] = nb_reshard(x[0], nb_spec_parse(m, "[., tp]"));
    return *ny = 2, NB_OK;
}

static void is_true(nb_func *f, const nb_mesh *m, nb_tensor *const *x);

/* Once all of x is everywhere, blocks of it cost nothing. */
static void a_value_moves_from_where_it_is_nearest(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, .]", 8, 8), laid(M24, "[., .]", 8, 8)};
    nb_func *f = nb_func_new(whole_then_blocks, NULL);
    nb_explanation *e = explained(f, 2, x);
    expect(nb_explanation_rows(e) == 1 &&
               says(e, 0, "all_gather", "dp", 128, "asked for by reshard"),
           "one gather, %d rows", nb_explanation_rows(e));
    nb_explanation_drop(e);
    is_true(f, nb_mesh_parse(M24), x);
}

static void nothing_is_said_without_a_mesh(void)
{
    nb_tensor *x[] = {draw(2, (int64_t[]){4, 4}, -1, 1),
                      draw(2, (int64_t[]){4, 4}, -1, 1)};
    nb_explanation *e = explained(nb_func_new(hidden, NULL), 2, x);
    char *text = nb_explanation_text(e);
    expect(text && !strcmp(text, "total 0 bytes\n"), "%s", text);
    nb_text_release(text);
    nb_explanation_drop(e);
}

static void costs_are_predicted(void)
{
    const char *mesh = "@dear = <[\"dp\"=2, \"tp\"=4]>";
    const nb_mesh *m = nb_mesh_parse(mesh);
    nb_mesh_set_cost(m, 1, 1e-6, 1e-9);
    nb_tensor *x[] = {laid(mesh, "[dp, tp]", 32, 128),
                      laid(mesh, "[tp, .]", 128, 256)};
    nb_explanation *e = explained(nb_func_new(hidden, NULL), 2, x);
    nb_explain_row r;
    nb_explanation_row(e, 0, &r);
    double want = 6 * 1e-6 + 24576 * 1e-9;
    expect(r.seconds > 0.99 * want && r.seconds < 1.01 * want, "%g s",
           r.seconds);
    char *text = nb_explanation_text(e);
    expect(text && strstr(text, " s  relu"), "%s", text ? text : "");
    nb_text_release(text);
    nb_explanation_drop(e);
}

/* Budgets */

static void a_budget_makes_too_much_an_error(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, tp]", 32, 128),
                      laid(M24, "[., tp]", 128, 256)},
              *y[1];
    nb_func *f = nb_func_new(hidden, NULL);
    nb_explanation *e = NULL;
    int ny = 1;
    expect(nb_explain(f, 2, x,
                      &(nb_explain_options){.max_collective_bytes = 6144},
                      &e) == NB_OK,
           "as much as there is");
    nb_explanation_drop(e);
    FAILS("one byte less",
          nb_explain(f, 2, x,
                     &(nb_explain_options){.max_collective_bytes = 6143},
                     &e) == NB_OK,
          NB_EVALUE,
          "explain: 6144 bytes are communicated, max_collective_bytes is 6143; "
          "the most by c0 all_gather tp, 6144 bytes, for matmul");
    FAILS("none at all",
          nb_explain(f, 2, x, &(nb_explain_options){.max_collective_bytes = -1},
                     &e) == NB_OK,
          NB_EVALUE, "max_collective_bytes is 0");
    nb_func *tight =
        nb_compile(f, &(nb_compile_options){.max_collective_bytes = 100});
    FAILS("compiled", nb_func_call(tight, 2, x, &ny, y) == NB_OK, NB_EVALUE,
          "compile: 6144 bytes are communicated");
    nb_func *loose =
        nb_compile(f, &(nb_compile_options){.max_collective_bytes = 6144});
    ny = 1;
    expect(nb_func_call(loose, 2, x, &ny, y) == NB_OK, "compiled: %s",
           nb_error_message());
}

/* The account is true */

enum { MOST = 12 };

typedef struct script {
    const nb_mesh *mesh;
    int n, op[MOST], a[MOST], b[MOST];
    char layout[MOST][LAYOUT];
} script;

static nb_tensor *call(const script *s, int k, nb_tensor *a, nb_tensor *b)
{
    static const int64_t one[] = {1}, zero[] = {0};
    int64_t n = nb_size(a, 0);
    switch (s->op[k]) {
    case 0: return nb_add(a, b);
    case 1: return nb_mul(a, b);
    case 2: return nb_matmul(a, b);
    case 3: return nb_sin(a);
    case 4: return nb_swap_axes(a, 0, 1);
    case 5: return nb_softmax(a, 1);
    case 6: return nb_sort(a, 0, false, true);
    case 7: return nb_sub(a, nb_reduce_sum(a, 1, one, true));
    case 8: return nb_add(nb_reduce_max(a, 1, zero, true), b);
    case 9:
        return nb_slice_tensor(nb_concatenate(2, (nb_tensor *[]){a, b}, 0),
                               (int64_t[]){n / 2, 0}, (int64_t[]){n, n});
    case 10: return nb_relu(nb_neg(a));
    case 11:
        return nb_reshape(nb_sin(nb_reshape(a, 3, (int64_t[]){n / 2, 2, n})), 2,
                          (int64_t[]){n, n});
    case 12: return nb_cumsum(a, 1, false, false);
    default: return nb_reshard(a, nb_spec_parse(s->mesh, s->layout[k]));
    }
}

static nb_status script_run(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const script *s = ctx;
    nb_tensor *v[MOST + 2] = {x[0], x[1]};
    (void)nx;
    for (int k = 0; k < s->n; k++) {
        v[k + 2] = call(s, k, v[s->a[k]], v[s->b[k]]);
        if (!v[k + 2]) return NB_ERUNTIME;
    }
    y[0] = v[s->n + 1];
    y[1] = v[s->n];
    return *ny = 2, NB_OK;
}

static void script_draw(script *s, const nb_mesh *m)
{
    s->mesh = m;
    s->n = 2 + (int)pick(MOST - 2);
    for (int k = 0; k < s->n; k++) {
        s->op[k] = (int)pick(15);
        s->a[k] = (int)(pick(3) ? k + 1 - pick(2) : pick(k + 2));
        s->b[k] = (int)pick(k + 2);
        do
            layout_draw(s->layout[k], m, 2, NB_F32);
        while (*s->layout[k] == '-' || strchr(s->layout[k], 'P'));
    }
}

/* Whether steps of a kind did what the rows say.  Those that move nothing may
 * be left out, and it need not be one device that receives most in all. */
static bool is_planned(const nb_explanation *e, const nb_mesh *m, int kind)
{
    int64_t calls = 0, empty = 0, bytes = 0, greatest = 0;
    nb_comm_stats s = stats_anywhere(m, (nb_hop_kind)kind);
    nb_explain_row r;
    for (int i = 0; nb_explanation_row(e, i, &r); i++) {
        if (r.reading || strcmp(nb_hop_name((nb_hop_kind)kind), r.kind))
            continue;
        calls += r.times;
        empty += r.bytes ? 0 : r.times;
        bytes += r.bytes * r.times;
        if (r.bytes > greatest) greatest = r.bytes;
    }
    return s.calls <= calls && s.calls >= calls - empty && s.bytes <= bytes &&
           s.bytes >= greatest;
}

/* Reasons that say nothing but the fact. */
static int unjustified;

static void look(const nb_explanation *e)
{
    nb_explain_row r;
    for (int i = 0; nb_explanation_row(e, i, &r); i++) {
        bool bare = !*r.reason || strstr(r.reason, "takes it so");
        unjustified += bare;
        if (bare)
            printf("%s %s -> %s for %s: %s\n", r.kind, r.from, r.to, r.op,
                   r.reason);
        expect(r.bound <= r.bytes || r.bound > 0, "a bound");
    }
}

/* Whether a run of f does what its explanation says. */
static void is_true(nb_func *f, const nb_mesh *m, nb_tensor *const *x)
{
    nb_tensor *y[2];
    nb_executable *run = NULL;
    nb_explanation *e = explained(f, 2, x);
    int ny = 2;
    expect(nb_executable_new(f, 2, x, &run) == NB_OK, "%s", nb_error_message());
    nb_comm_stats_reset(m);
    bool ran = run && nb_executable_run(run, 2, x, &ny, y) == NB_OK;
    expect(ran, "a run: %s", nb_error_message());
    if (ran && e) {
        for (int k = NB_HOP_SLICE + 1; k < HOPS; k++)
            if (k != NB_HOP_UNREDUCE)
                expect(is_planned(e, m, k), "what moves: %s",
                       nb_hop_name((nb_hop_kind)k));
        look(e);
    }
    nb_executable_drop(run);
    nb_explanation_drop(e);
}

/* One in three is differentiated. */
static void one_script(const nb_mesh *m, int64_t n)
{
    script s;
    nb_tensor *x[2];
    char layout[2][LAYOUT];
    script_draw(&s, m);
    for (int i = 0; i < 2; i++) {
        layout_draw(layout[i], m, 2, NB_F32);
        x[i] = lay(nb_cast(draw(2, (int64_t[]){n, n}, -1, 1), NB_F32), m,
                   layout[i]);
    }
    nb_func *f = nb_func_new(script_run, &s);
    if (pick(3) == 0) f = nb_grad(f, 2, (int[]){0, 1});
    is_true(f, m, x);
    if (pick(4)) return;
    nb_verify_report r;
    expect(nb_verify(f, 2, x, 0, &r) == NB_OK, "verify: %s",
           nb_error_message());
}

static void what_is_listed_is_what_runs(void)
{
    static const char *const mesh[] = {"2", "4", "2x2", "2x4", "3x2", "2x2x2"};
    int rounds = getenv("EXPLAIN_ROUNDS") ? atoi(getenv("EXPLAIN_ROUNDS")) : 60;
    uniform_seed(7);
    for (int i = 0; i < rounds; i++) {
        const nb_mesh *m = mesh_sized(mesh[pick(6)]);
        if (!ranks_share(m)) continue;
        nb_scope_open();
        one_script(m, pick(2) ? 8 : 6);
        nb_scope_close(0, NULL);
    }
    expect(!unjustified, "%d collectives have no reason", unjustified);
}

/* Loops */

/* carry <- sin(carry w), w split along the sum. */
static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *const *w = ctx;
    (void)nx;
    y[0] = nb_sin(nb_matmul(x[0], w[0]));
    return *ny = 1, NB_OK;
}

static nb_status looped(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    return nb_scan(nb_func_new(turn, (void *)(x + 1)), 1, x, 0, NULL, 5, false,
                   ny, y);
}

static void turns_are_counted(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, .]", 8, 8), laid(M24, "[tp, .]", 8, 8)};
    nb_func *f = nb_func_new(looped, NULL);
    nb_explanation *e = explained(f, 2, x);
    nb_explain_row r = {0};
    int64_t most = 0;
    for (int k = 0; e && nb_explanation_row(e, k, &r); k++)
        if (r.times > most) most = r.times;
    expect(most == 5, "a collective of each turn, %lld times", (long long)most);
    nb_explanation_drop(e);
    is_true(f, nb_mesh_parse(M24), x);
}

/* Rules that are wrong */

static const char *target;

static void forget(const nb_call *c, nb_decision *d)
{
    if (strcmp(c->op->name, target)) return;
    for (int k = 0; k < d->nout; k++) {
        nb_spec s = nb_spec_draft(d->give[k]);
        s.partial.n = 0;
        d->give[k] = nb_spec_intern(&s);
    }
}

static void carry(const nb_call *c, nb_decision *d)
{
    const nb_spec *was = c->in[0]->sharding;
    if (strcmp(c->op->name, target) || !was) return;
    nb_spec need = nb_spec_draft(d->need[0]);
    nb_spec give = nb_spec_draft(d->give[0]);
    need.partial = give.partial = was->partial;
    need.kind = give.kind = was->kind;
    d->need[0] = nb_spec_intern(&need);
    d->give[0] = nb_spec_intern(&give);
}

FN(product_then_tanh, nb_tanh(nb_mul(x[0], x[1])))
FN(network, nb_sin(nb_add(nb_exp(nb_matmul(x[0], x[1])), nb_num(1))))

static void what_is_right_is_found_right(void)
{
    nb_tensor *x[] = {laid(M24, "[dp, tp]", 8, 12),
                      laid(M24, "[tp, .]", 12, 10)};
    nb_func *f = nb_func_new(network, NULL);
    nb_verify_report r;
    expect(nb_verify(f, 2, x, 0, &r) == NB_OK && !r.differs, "%s",
           nb_error_message());
    expect(r.compared == 8 && r.error < 1e-5, "%d compared, %g", r.compared,
           r.error);
    FAILS("a tolerance below zero", nb_verify(f, 2, x, -1, NULL) == NB_OK,
          NB_EVALUE, "tolerance");
}

static void what_is_wrong_is_named(void)
{
    static const struct {
        const char *op;
        void (*spoil)(const nb_call *c, nb_decision *d);
    } broken[] = {{"matmul", forget}, {"exp", carry}};
    nb_tensor *x[] = {laid(M24, "[dp, tp]", 8, 12),
                      laid(M24, "[tp, .]", 12, 10)};
    nb_func *f = nb_func_new(network, NULL);
    for (int i = 0; i < 2; i++) {
        nb_verify_report r;
        target = broken[i].op;
        nb_decide_spoil = broken[i].spoil;
        nb_status s = nb_verify(f, 2, x, 0, &r);
        nb_decide_spoil = NULL;
        expect(failed_with(NB_ERUNTIME, target), "the error");
        expect(s == NB_ERUNTIME && r.differs && !strcmp(r.op, target),
               "%s, not %s", r.op, target);
        expect(r.rank == 2 && r.device >= 0 && r.found != r.value &&
                   strstr(r.call, "f32[8@dp, 10]"),
               "where: %s", r.call);
    }
}

static void swap(const nb_call *c, nb_decision *d)
{
    if (strcmp(c->op->name, target)) return;
    nb_spec s = nb_spec_draft(d->give[0]);
    nb_axis first = s.dim[0].axes.at[0];
    s.dim[0].axes.at[0] = s.dim[0].axes.at[1];
    s.dim[0].axes.at[1] = first;
    d->give[0] = nb_spec_intern(&s);
}

/* Blocks of the first and the last device are where they should be, so not
 * every rank sees that others are not. */
static void what_one_finds_all_report(void)
{
    nb_tensor *x[] = {laid(M22, "[(dp tp), .]", 8, 4),
                      laid(M22, "[., .]", 8, 4)};
    nb_func *f = nb_func_new(product_then_tanh, NULL);
    nb_verify_report r;
    memset(&r, 0, sizeof r);
    target = "tanh";
    nb_decide_spoil = swap;
    nb_status s = nb_verify(f, 2, x, 0, &r);
    nb_decide_spoil = NULL;
    expect(failed_with(NB_ERUNTIME, "verify: tanh"), "the error");
    expect(s == NB_ERUNTIME && r.differs && !strcmp(r.op, target), "the op");
    expect(r.device == 1 || r.device == 2, "device %d", r.device);
    expect(ranks_same(&r, sizeof r), "on all ranks");
}

/* Memory runs out */

static bool explains(nb_func *f, nb_tensor *const *x)
{
    nb_explanation *e = NULL;
    bool ok = nb_explain(f, 2, x, NULL, &e) == NB_OK;
    char *text = ok ? nb_explanation_text(e) : NULL;
    nb_text_release(text);
    nb_explanation_drop(e);
    return text;
}

static bool verifies(nb_func *f, nb_tensor *const *x)
{
    return nb_verify(f, 2, x, 0, NULL) == NB_OK;
}

typedef struct question {
    bool (*ask)(nb_func *f, nb_tensor *const *x);
    nb_func *f;
    nb_tensor *x[2];
} question;

static bool answered(void *ctx)
{
    const question *q = ctx;
    return q->ask(q->f, q->x);
}

static void faults_are_errors(void)
{
    question q = {
        .f = nb_func_new(network, NULL),
        .x = {laid(M24, "[dp, tp]", 8, 12), laid(M24, "[tp, .]", 12, 10)}};
    if (nb_distributed_size() > 1) return; /* test_mpi.c has those of a rank */
    for (int i = 0; i < 2; i++) {
        faults f = {.run = answered, .ctx = &q, .sparse = 16, .keeps = true};
        f.bare = true;
        q.ask = i ? verifies : explains;
        f.done = !answered(&q); /* what stays is there */
        while (!f.done)
            expect(fault_survived(&f), "allocation %d", (int)f.n);
        expect(answered(&q), "and all still works");
    }
}

int main(void)
{
    static void (*const test[])(void) = {
        what_is_listed_is_what_runs,
        an_axis_goes_to_the_cheaper_factor,
        a_sum_is_pending_until_it_is_needed,
        a_result_is_added_up_when_it_is_read,
        reasons_are_given,
        a_value_moves_once,
        nothing_is_said_without_a_mesh,
        costs_are_predicted,
        a_budget_makes_too_much_an_error,
        turns_are_counted,
        what_is_right_is_found_right,
        what_is_wrong_is_named,
        what_one_finds_all_report,
        a_value_moves_from_where_it_is_nearest,
        faults_are_errors,
    };
    none_leaks(sizeof test / sizeof test[0], test);
    return tally();
}
