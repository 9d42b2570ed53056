/* test_model.c - layouts chosen for whole programs: cases T60 to T64 of the
 * specification, and what the table of a plan says.  A byte costs one, messages
 * and arithmetic nothing; contractions use every device. */
#include "support/check.h"

#include "base/memory.h"
#include "shard/solve/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 4096, LINEAR = 1, SPREAD = 2, SECOND = 4 };

/* A program while it is written: sizes of values, to check signatures by. */
typedef struct program {
    nb_model *m;
    int n;
    struct {
        int rank;
        int64_t size[8];
    } value[VALUES];
} program;

static const nb_mesh *mesh_of(const char *axis, int size)
{
    const nb_mesh *m = nb_mesh_new(axis, 1, &axis, &size, NULL);
    nb_mesh_set_cost(m, 0, 0, 1);
    return m;
}

static const nb_mesh *mesh_2d(void)
{
    const char *const axis[2] = {"dp", "tp"};
    const nb_mesh *m = nb_mesh_new("two", 2, axis, (int[]){2, 4}, NULL);
    nb_mesh_set_cost(m, 0, 0, 1);
    nb_mesh_set_cost(m, 1, 0, 1);
    return m;
}

static void begin(program *p, const nb_mesh *mesh)
{
    p->m = nb_model_new(mesh, NULL);
    p->n = 0;
}

static int input(program *p, const char *name, const char *spec, int rank,
                 const int64_t *size, const nb_mesh *mesh)
{
    nb_model_tensor t = {name, rank, 4, size,
                         spec ? nb_spec_parse(mesh, spec) : NULL};
    int v = nb_model_input(p->m, &t);
    if (!expect(v == p->n, "input %s", name)) exit(1);
    p->value[v].rank = rank;
    memcpy(p->value[v].size, size, (size_t)rank * sizeof *size);
    return p->n++;
}

#define SIZES(...)                                           \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) \
    {                                                        \
        __VA_ARGS__                                          \
    }
#define IN(name, ...) input(p, name, NULL, SIZES(__VA_ARGS__), NULL)

/* Factors of a signature without dots and groups, of operands with sizes. */
static void factor(const program *p, const nb_sig *sig, const int *operand,
                   nb_factors *f)
{
    memset(f, 0, sizeof *f);
    f->n = sig->nfactors, f->nin = sig->nin, f->nout = sig->nout;
    f->tensor = f->few;
    for (int t = 0; t < f->nin + f->nout; t++) {
        nb_factored *x = &f->tensor[t];
        x->rank = sig->term[t].n;
        for (int d = 0; d < x->rank; d++) {
            int k = sig->term[t].dim[d].factor[0];
            x->dim[d] = sig->term[t].dim[d];
            if (t < f->nin) f->size[k] = p->value[operand[t]].size[d];
            x->size[d] = f->size[k];
        }
    }
    for (int k = 0; k < f->n; k++) {
        f->kind[k] = (uint8_t)sig->factor[k].kind;
        f->reduce[k] = (uint8_t)sig->factor[k].reduce;
        f->reduced[k] = !sig->factor[k].in_result;
    }
}

static int op(program *p, const char *name, const char *text, int how, int a,
              int b)
{
    const nb_sig *sig = nb_sig_parse(text);
    int operand[2] = {a, b}, item = 4;
    nb_factors f;
    factor(p, sig, operand, &f);
    nb_model_op o = {.name = name, .factors = &f, .operand = operand};
    o.item = &item;
    o.carry = how & (LINEAR | SECOND) ? NB_CARRY_ALL : NB_CARRY_NONE;
    o.carriers = how & SECOND ? 2 : ~0ull;
    o.spread = how & SPREAD;
    int v = nb_model_add(p->m, &o);
    if (!expect(v == p->n, "op %s", name)) exit(1);
    const nb_factored *y = &f.tensor[f.nin];
    p->value[v].rank = y->rank;
    memcpy(p->value[v].size, y->size, (size_t)y->rank * sizeof *y->size);
    return p->n++;
}

static int mul(program *p, const char *name, const char *text, int a, int b)
{
    return op(p, name, text, SPREAD, a, b);
}

static bool solved(program *p, double cost)
{
    const nb_solution *s;
    nb_text t = {0};
    bool ok = nb_model_solve(p->m);
    s = nb_model_solution(p->m);
    ok = expect(ok && s->feasible && s->proved, "solved") &&
         expect(fabs(s->cost - cost) <= 1e-5 * cost, "cost %.10g is %.10g",
                s->cost, cost);
    if (!ok && s) nb_model_print(p->m, &t), printf("%s", nb_text_get(&t));
    nb_text_free(&t);
    return ok;
}

static bool lies(program *p, int value, const char *spec)
{
    const nb_spec *s = nb_model_spec(p->m, value);
    return s && nb_spec_same_layout(s, nb_spec_parse(s->mesh, spec));
}

/* T60, T61: a training step of two linear layers. */
static void mlp(program *p, int64_t batch, int64_t width, int *w)
{
    int x = IN("x", batch, width), y = IN("y", batch, width);
    int w1 = IN("w1", width, width), w2 = IN("w2", width, width);
    int h = mul(p, "h", "b i, i j -> b j", x, w1);
    int o = mul(p, "o", "b j, j k -> b k", h, w2);
    int e = op(p, "e", "b k, b k -> b k", LINEAR, o, y);
    int g2 = mul(p, "g2", "b j, b k -> j k", h, e);
    int gh = mul(p, "gh", "b k, j k -> b j", e, w2);
    int g1 = mul(p, "g1", "b i, b j -> i j", x, gh);
    int u1 = op(p, "u1", "i j, i j -> i j", LINEAR, w1, g1);
    int u2 = op(p, "u2", "i j, i j -> i j", LINEAR, w2, g2);
    nb_model_alias(p->m, u1, w1);
    nb_model_alias(p->m, u2, w2);
    w[0] = w1, w[1] = w2;
}

static void wide_layers_are_split_by_columns_and_rows(void)
{
    static program p;
    int w[2];
    begin(&p, mesh_of("d", 4));
    mlp(&p, 128, 1024, w);
    solved(&p, 786432);
    expect(lies(&p, w[0], "[., d]") && lies(&p, w[1], "[d, .]"),
           "columns, then rows");
    nb_model_free(p.m);
}

static void long_batches_are_split(void)
{
    static program p;
    int w[2];
    begin(&p, mesh_of("d", 4));
    mlp(&p, 1024, 128, w);
    solved(&p, 196608);
    expect(lies(&p, w[0], "[., .]") && lies(&p, w[1], "[., .]"),
           "weights are whole");
    nb_model_free(p.m);
}

/* T62 */
static void attention_with_and_without_a_budget(void)
{
    static program q, *p = &q;
    const nb_mesh *mesh = mesh_of("tp", 4);
    for (int limited = 0; limited < 2; limited++) {
        begin(p, mesh);
        int x = input(p, "x", "[., ., .]", SIZES(1, 128, 1024), mesh);
        int w[4] = {IN("wq", 1024, 16, 64), IN("wk", 1024, 16, 64),
                    IN("wv", 1024, 16, 64), IN("wo", 16, 64, 1024)};
        const char *project = "b s d, d h e -> b s h e";
        int q0 = mul(p, "q", project, x, w[0]);
        int k0 = mul(p, "k", project, x, w[1]);
        int v0 = mul(p, "v", project, x, w[2]);
        int s = mul(p, "s", "b s h e, b t h e -> b h s t", q0, k0);
        int a = op(p, "a", "b h s t -> b h s t ; replicate{t}", 0, s, 0);
        int c = mul(p, "c", "b h s t, b t h e -> b s h e", a, v0);
        int o = mul(p, "o", "b s h e, h e d -> b s d", c, w[3]);
        nb_model_want(p->m, o, nb_spec_parse(mesh, "[., ., .]"));
        int row = nb_model_row(p->m, limited ? 4 * 1024 * 1024 : -1);
        for (int i = 0; i < 4; i++)
            nb_model_count(p->m, row, w[i]);
        solved(p, limited ? 786432 : 491520);
        expect(!limited || lies(p, w[0], "[., tp, .]"), "by heads");
        expect(!limited || lies(p, w[3], "[tp, ., .]"), "as Megatron does");
        expect(!limited || nb_model_solution(p->m)->bytes[0] == 4 * 1024 * 1024,
               "a quarter");
        nb_model_free(p->m);
    }
}

/* T63 */
static void embedding_under_a_budget(void)
{
    static program q, *p = &q;
    for (int limited = 0; limited < 2; limited++) {
        begin(p, mesh_of("tp", 4));
        int table = IN("table", 1024, 64), w = IN("w", 64, 256);
        int tokens = IN("tokens", 8, 16);
        int x = op(p, "x", "v d, b s -> b s d ; mask{v}", 0, table, tokens);
        int y = mul(p, "y", "b s d, d f -> b s f", x, w);
        op(p, "z", "b s f -> b s f", 0, y, 0);
        int row = nb_model_row(p->m, limited ? 1024 * 64 : -1);
        nb_model_count(p->m, row, table);
        solved(p, limited ? 6144 : 0);
        expect(!limited || lies(p, table, "[., tp]"), "by columns");
        nb_model_free(p->m);
    }
}

/* A step of a transformer of so many layers: norm, attention, norm, two
 * products with a nonlinear function between; then back; then updates. */
typedef struct layer {
    int x, n1, q, k, v, p, c, r, n2, u, g, w[6];
} layer;

static const int64_t B = 8, S = 2048, D = 4096, H = 32, E = 128, F = 16384;
#define ROWS_NORM "b s d -> b s d ; replicate{d}"
#define ROWS_BACK "b s d, b s d -> b s d ; replicate{d}"
#define PROJECT   "b s d, d h e -> b s h e"
#define SAME      "b s d, b s d -> b s d"

static int forth(program *p, layer *l, int x)
{
    l->x = x;
    for (int i = 0; i < 3; i++)
        l->w[i] = IN("wqkv", D, H, E);
    l->w[3] = IN("wo", H, E, D);
    l->w[4] = IN("w1", D, F);
    l->w[5] = IN("w2", F, D);
    l->n1 = op(p, "norm", ROWS_NORM, 0, x, 0);
    l->q = mul(p, "q", PROJECT, l->n1, l->w[0]);
    l->k = mul(p, "k", PROJECT, l->n1, l->w[1]);
    l->v = mul(p, "v", PROJECT, l->n1, l->w[2]);
    int s = mul(p, "s", "b s h e, b t h e -> b h s t", l->q, l->k);
    l->p = op(p, "softmax", "b h s t -> b h s t ; replicate{t}", 0, s, 0);
    l->c = mul(p, "c", "b h s t, b t h e -> b s h e", l->p, l->v);
    int a = mul(p, "a", "b s h e, h e d -> b s d", l->c, l->w[3]);
    l->r = op(p, "r", SAME, LINEAR, x, a);
    l->n2 = op(p, "norm", ROWS_NORM, 0, l->r, 0);
    l->u = mul(p, "u", "b s d, d f -> b s f", l->n2, l->w[4]);
    l->g = op(p, "gelu", "b s f -> b s f", 0, l->u, 0);
    int o = mul(p, "o", "b s f, f d -> b s d", l->g, l->w[5]);
    return op(p, "y", SAME, LINEAR, l->r, o);
}

static int back(program *p, const layer *l, int dy, int *dw)
{
    int dg = mul(p, "dg", "b s d, f d -> b s f", dy, l->w[5]);
    dw[5] = mul(p, "dw2", "b s f, b s d -> f d", l->g, dy);
    int du = op(p, "du", "b s f, b s f -> b s f", SECOND, l->u, dg);
    int dn = mul(p, "dn2", "b s f, d f -> b s d", du, l->w[4]);
    dw[4] = mul(p, "dw1", "b s d, b s f -> d f", l->n2, du);
    int dr = op(p, "dnorm", ROWS_BACK, SECOND, l->r, dn);
    dr = op(p, "dr", SAME, LINEAR, dy, dr);
    int dc = mul(p, "dc", "b s d, h e d -> b s h e", dr, l->w[3]);
    dw[3] = mul(p, "dwo", "b s h e, b s d -> h e d", l->c, dr);
    int dp = mul(p, "dp", "b s h e, b t h e -> b h s t", dc, l->v);
    int d[3];
    d[2] = mul(p, "dv", "b h s t, b s h e -> b t h e", l->p, dc);
    int ds = op(p, "ds", "b h s t, b h s t -> b h s t ; replicate{t}", SECOND,
                l->p, dp);
    d[0] = mul(p, "dq", "b h s t, b t h e -> b s h e", ds, l->k);
    d[1] = mul(p, "dk", "b h s t, b s h e -> b t h e", ds, l->q);
    int sum = -1;
    for (int i = 0; i < 3; i++) {
        int one = mul(p, "dn1", "b s h e, d h e -> b s d", d[i], l->w[i]);
        sum = i ? op(p, "dn1+", SAME, LINEAR, sum, one) : one;
        dw[i] = mul(p, "dwqkv", "b s d, b s h e -> d h e", l->n1, d[i]);
    }
    int dx = op(p, "dnorm", ROWS_BACK, SECOND, l->x, sum);
    return op(p, "dx", SAME, LINEAR, dr, dx);
}

static void transformer(program *p, int layers, double share, bool tied)
{
    enum { MOST = 48 };
    static layer l[MOST];
    static int dw[MOST][6];
    double bytes = 4.0 * (double)layers * (double)(4 * D * D + 2 * D * F);
    int y = IN("x", B, S, D);
    int row = nb_model_row(p->m, share > 0 ? (int64_t)(share * bytes) : -1);
    for (int i = 0; i < layers; i++)
        y = forth(p, &l[i], y);
    for (int i = layers - 1; i >= 0; i--)
        y = back(p, &l[i], y, dw[i]);
    for (int i = layers - 1; i >= 0; i--)
        for (int k = 0; k < 6; k++) {
            const char *same =
                k < 4 ? "a b c, a b c -> a b c" : "a b, a b -> a b";
            int u = op(p, "update", same, LINEAR, l[i].w[k], dw[i][k]);
            nb_model_alias(p->m, u, l[i].w[k]);
            nb_model_count(p->m, row, l[i].w[k]);
        }
    if (tied) expect(nb_model_tie_repeats(p->m) > 0, "layers are found");
}

/* T64 */
static void budgets_of_a_transformer(void)
{
    static program p;
    nb_text t = {0};
    const nb_mesh *mesh = mesh_of("d", 8);
    int64_t bytes = 4 * (4 * D * D + 2 * D * F);
    begin(&p, mesh);
    transformer(&p, 1, 0.12, false);
    bool ok = nb_model_solve(p.m);
    const nb_solution *s = nb_model_solution(p.m);
    expect(ok && !s->feasible && s->proved && s->least[0] == bytes / 8,
           "an eighth is needed");
    expect(nb_model_print(p.m, &t) &&
               strstr(nb_text_get(&t), "memory 100663296 bytes needed, budget "
                                       "96636764"),
           "it says: %s", nb_text_get(&t));
    nb_text_free(&t);
    nb_model_free(p.m);
    begin(&p, mesh);
    transformer(&p, 1, 0.13, false);
    ok = nb_model_solve(p.m);
    s = nb_model_solution(p.m);
    expect(ok && s->feasible && s->cost <= 1.02 * s->bound,
           "cost %g is within 2 %% of the bound %g", s->cost, s->bound);
    expect(ok && s->bytes[0] <= (int64_t)(0.13 * (double)bytes), "it fits");
    nb_model_free(p.m);
}

/* Twelve layers are found to be alike; sharing their variables costs little. */
static void layers_share_variables(void)
{
    static program p;
    const nb_mesh *mesh = mesh_of("d", 8);
    double cost[2];
    for (int tied = 0; tied < 2; tied++) {
        begin(&p, mesh);
        transformer(&p, 12, 0, tied);
        bool ok = nb_model_solve(p.m);
        const nb_solution *s = nb_model_solution(p.m);
        expect(ok && s->proved && s->variables == (tied ? 51 : 601),
               "%d variables", s->variables);
        cost[tied] = s->cost;
        nb_model_free(p.m);
    }
    expect(cost[1] >= cost[0] && cost[1] <= 1.02 * cost[0], "%g tied, %g free",
           cost[1], cost[0]);
    begin(&p, mesh_2d());
    transformer(&p, 12, 0, true);
    bool ok = nb_model_solve(p.m);
    const nb_solution *s = nb_model_solution(p.m);
    expect(ok && s->proved && s->variables == 51, "two axes");
    nb_model_free(p.m);
}

static void plans_are_tables(void)
{
    static program p;
    int w[2];
    nb_text t = {0};
    begin(&p, mesh_of("d", 4));
    expect(!nb_model_print(p.m, &t) && failed_with(NB_EVALUE, "not solved"),
           "nothing to print yet");
    mlp(&p, 128, 1024, w);
    nb_model_count_live(p.m, 2, 1 << 30);
    solved(&p, 786432);
    nb_model_print(p.m, &t);
    const char *line[] = {
        "w1           (1024, 1024@d)\n", "w2           (1024@d, 1024)\n",
        "o            (128, 1024){P:d}\n",
        "cost 786432, bound 786432, by elimination\n", " of 1073741824\n"};
    for (int i = 0; i < 5; i++)
        expect(strstr(nb_text_get(&t), line[i]) != NULL, "%s is in %s", line[i],
               nb_text_get(&t));
    nb_text_free(&t);
    nb_model_free(p.m);
}

/* Groups: a dim (h e) that is cut by heads passes a reshape, one that is cut
 * finer does not. */
static void groups_are_split_from_their_major_end(void)
{
    nb_model *m = nb_model_new(mesh_of("d", 4), NULL);
    for (int64_t h = 2; h <= 8; h *= 4) {
        nb_factors f = {.n = 2, .nin = 1, .nout = 1, .size = {h, 64}};
        nb_factored *x = f.few, *y = f.few + 1;
        f.tensor = f.few;
        *x = (nb_factored){.rank = 1, .size = {h * 64}};
        x->dim[0] = (nb_dim){.n = 2, .factor = {0, 1}};
        *y = (nb_factored){.rank = 2, .size = {h, 64}};
        y->dim[0] = (nb_dim){.n = 1, .factor = {0}};
        y->dim[1] = (nb_dim){.n = 1, .factor = {1}};
        nb_model_tensor t = {"x", 1, 4, x->size, NULL};
        int in = nb_model_input(m, &t), item = 4;
        nb_model_op o = {.name = "reshape", .factors = &f, .operand = &in};
        o.item = &item;
        o.spread = true;
        int out = nb_model_add(m, &o);
        expect(out >= 0 && nb_model_solve(m), "solved");
        expect(nb_spec_is_whole(nb_model_spec(m, out)) == (h == 2),
               "%d heads on 4 devices", (int)h);
    }
    nb_model_free(m);
}

static void bad_operands_are_refused(void)
{
    static program q, *p = &q;
    begin(p, mesh_of("d", 4));
    int x = IN("x", 4, 4), w = IN("w", 8, 4), item = 4;
    nb_factors f;
    factor(p, nb_sig_parse("a b -> a b"), &x, &f);
    nb_model_op o = {.name = "copy", .factors = &f, .operand = &w};
    o.item = &item;
    expect(nb_model_add(p->m, &o) < 0 && failed_with(NB_EVALUE, "other sizes"),
           "sizes differ");
    o.operand = (int[]){7};
    expect(nb_model_add(p->m, &o) < 0 &&
               failed_with(NB_EVALUE, "copy has no operand 0"),
           "no such value");
    expect(!nb_model_tie(p->m, x, w) &&
               failed_with(NB_EVALUE, "x and w are not alike"),
           "tied unalike");
    nb_model_free(p->m);
}

/* The same small program with the n-th allocation failing, for every n. */
static bool small_program(void)
{
    nb_model *m = nb_model_new(mesh_of("d", 4), NULL);
    int64_t size[2] = {8, 8};
    nb_model_tensor t = {"x", 2, 4, size, NULL};
    int x = m ? nb_model_input(m, &t) : -1, item = 4, y = -1, row = -1;
    nb_factors f = {.n = 2, .nin = 2, .nout = 1, .size = {8, 8}};
    f.tensor = f.few;
    for (int k = 0; k < 3; k++) {
        f.few[k] = (nb_factored){.rank = 2, .size = {8, 8}};
        f.few[k].dim[0] = (nb_dim){.n = 1, .factor = {0}};
        f.few[k].dim[1] = (nb_dim){.n = 1, .factor = {1}};
    }
    nb_model_op o = {.name = "add", .factors = &f, .operand = (int[]){x, x}};
    o.item = &item;
    if (x >= 0) y = nb_model_add(m, &o);
    if (y >= 0) row = nb_model_row(m, 64);
    nb_text text = {0};
    bool ok = row >= 0 && nb_model_count(m, row, x) &&
              nb_model_alias(m, y, x) && nb_model_tie_repeats(m) >= 0 &&
              nb_model_count_live(m, 1, 1000) && nb_model_solve(m) &&
              nb_model_print(m, &text);
    nb_text_free(&text);
    nb_model_free(m);
    return ok;
}

static void memory_may_run_out(void)
{
    small_program();
    for (int64_t nth = 1; nth < 10000; nth++) {
        int64_t live = nb_memory_live();
        nb_fault_set(nth);
        bool ok = small_program(), struck = !nb_fault_is_set();
        nb_fault_set(0);
        expect((!struck || failed_with(NB_EMEMORY, "")) && ok == !struck,
               "allocation %d", (int)nth);
        expect(nb_memory_live() == live, "nothing is lost");
        if (!struck) break;
    }
}

int main(void)
{
    wide_layers_are_split_by_columns_and_rows();
    long_batches_are_split();
    attention_with_and_without_a_budget();
    embedding_under_a_budget();
    budgets_of_a_transformer();
    layers_share_variables();
    plans_are_tables();
    groups_are_split_from_their_major_end();
    bad_operands_are_refused();
    memory_may_run_out();
    return tally();
}
