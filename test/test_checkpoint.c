/* test_checkpoint.c - checkpoints compute what the function does, derivatives
 * of any order included; what they keep, and what that costs. */
#include "support/check.h"
#include "support/there.h"

#include "base/memory.h"
#include "core/graph.h"
#include "transform/func.h"

/* How the functions below wrap their insides: not at all, or so. */
static struct {
    bool off;
    nb_checkpoint_options options;
} how;

static nb_func *wrapped(nb_body *body, void *ctx)
{
    nb_func *f = nb_func_new(body, ctx);
    return how.off ? f : nb_checkpoint(f, &how.options);
}

static nb_tensor *once(nb_body *body, void *ctx, nb_tensor *x)
{
    return nb_func_call1(wrapped(body, ctx), 1, &x);
}

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

/* Programs of a vector.  Each closes over values that move with it: c[0] is the
 * argument, c[1] its sine. */
typedef nb_tensor *program(nb_tensor *const *c);

FN(product, nb_mul(nb_exp(nb_mul(x[0], c[1])), c[0]))
static nb_tensor *closing(nb_tensor *const *c)
{
    return once(product, (void *)c, nb_square(c[0]));
}

FN(inner, nb_mul(nb_tanh(nb_mul(x[0], c[1])), c[0]))
FN(outer, nb_mul(once(inner, ctx, nb_mul(x[0], c[1])), x[0]))
static nb_tensor *nested(nb_tensor *const *c)
{
    return once(outer, (void *)c, c[0]);
}

FN(layers, nb_tanh(nb_matmul(nb_tanh(nb_matmul(x[0], c[2])), c[2])))
static nb_tensor *dots(nb_tensor *const *c)
{
    nb_tensor *w[] = {c[0], c[1], nb_outer(c[0], c[1])};
    return once(layers, w, c[0]);
}

FN(sine, nb_sin(x[0]))
static nb_status sine_fwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_sin(x[0]);
    y[1] = x[0];
    return *ny = 2, NB_OK;
}
FN(sine_bwd, nb_mul(x[1], nb_cos(x[0])))
static nb_tensor *own_sine(nb_tensor *x)
{
    nb_func *f =
        nb_custom_vjp(nb_func_new(sine, NULL), nb_func_new(sine_fwd, NULL),
                      nb_func_new(sine_bwd, NULL));
    return nb_func_call1(f, 1, &x);
}
FN(with_rule, nb_mul(own_sine(nb_mul(x[0], c[1])), c[0]))
static nb_tensor *ruled(nb_tensor *const *c)
{
    return once(with_rule, (void *)c, c[0]);
}

static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *const *c = ctx, *all[] = {x[0], c[1]};
    (void)nx;
    y[0] = once(product, all, nb_mul(x[1], c[0]));
    y[1] = nb_mul(y[0], x[0]);
    return *ny = 2, NB_OK;
}
static nb_tensor *rolled(nb_body *body, nb_tensor *const *c, nb_tensor *init)
{
    nb_tensor *xs = nb_stack(2, (nb_tensor *[]){c[0], c[1]}, 0), *y[2];
    int n = 2;
    bool ok = nb_scan(nb_func_new(body, (void *)c), 1, &init, 1, &xs, 0, false,
                      &n, y) == NB_OK;
    return ok ? nb_add(y[0], total(y[1])) : NULL;
}
static nb_tensor *in_a_loop(nb_tensor *const *c)
{
    return rolled(turn, c, c[1]);
}

static nb_status plain_turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *const *c = ctx;
    (void)nx;
    y[0] = nb_sin(nb_mul(nb_mul(x[0], x[1]), c[1]));
    y[1] = nb_mul(y[0], c[0]);
    return *ny = 2, NB_OK;
}
FN(a_loop, rolled(plain_turn, c, nb_mul(x[0], c[1])))
static nb_tensor *around_a_loop(nb_tensor *const *c)
{
    return once(a_loop, (void *)c, c[0]);
}

/* Looks at what it computes, where it can. */
FN(looking, nb_item(total(nb_mul(x[0], c[1]))) > 0 ? nb_mul(nb_sin(x[0]), c[1])
                                                   : nb_mul(nb_num(100), x[0]))
static nb_tensor *looked(nb_tensor *const *c)
{
    return once(looking, (void *)c, nb_square(c[0]));
}

FN(noisy,
   nb_mul(nb_mul(x[0], c[1]),
          nb_random_normal(nb_random_key(7), 1, (int64_t[]){2}, 0, 1, NB_F64)))
static nb_tensor *random(nb_tensor *const *c)
{
    return once(noisy, (void *)c, c[0]);
}

FN(a_row, once(product, ctx, nb_mul(x[0], c[1])))
static nb_tensor *mapped(nb_tensor *const *c)
{
    nb_tensor *rows = nb_outer(c[0], c[1]);
    nb_func *f = nb_vmap(nb_func_new(a_row, (void *)c), NULL);
    return total(nb_func_call1(f, 1, &rows));
}
FN(rows_of, nb_func_call1(nb_vmap(nb_func_new(product, ctx), NULL), 1, x))
static nb_tensor *around_a_vmap(nb_tensor *const *c)
{
    return once(rows_of, (void *)c, nb_outer(c[0], c[1]));
}

static nb_status with(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    program *const *p = ctx;
    nb_tensor *c[] = {x[0], nb_sin(x[0])}, *z = (*p)(c);
    (void)nx;
    y[0] = z ? total(z) : NULL;
    return *ny = 1, NB_OK;
}

static const struct {
    const char *name;
    program *f;
} programs[] = {{"a closure", closing},
                {"a checkpoint in a checkpoint", nested},
                {"products", dots},
                {"a custom rule", ruled},
                {"a checkpoint in a loop", in_a_loop},
                {"a loop in a checkpoint", around_a_loop},
                {"looking", looked},
                {"random numbers", random},
                {"a checkpoint in a vmap", mapped},
                {"a vmap in a checkpoint", around_a_vmap}};
enum { NPROGRAMS = sizeof programs / sizeof programs[0] };

static nb_status summed(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *z = nb_func_call1(ctx, nx, x);
    y[0] = z ? total(nb_mul(z, z)) : NULL;
    return *ny = 1, NB_OK;
}
static nb_func *sum_of(nb_func *f)
{
    return nb_func_new(summed, f);
}

static const int first[] = {0};

static nb_func *slope(nb_func *f)
{
    return nb_grad(f, 1, first);
}

static nb_func *transform(int form, nb_func *f)
{
    switch (form) {
    case 0: return f;
    case 1: return slope(f);
    case 2: return slope(sum_of(slope(f)));
    case 3: return slope(sum_of(nb_jacfwd(f, 0)));
    case 4: return nb_hessian(f, 0);
    case 5: return nb_jacrev(nb_jacfwd(f, 0), 0);
    case 6: return nb_jacfwd(nb_jacfwd(f, 0), 0);
    case 7: return nb_jacfwd(nb_jacrev(slope(f), 0), 0);
    case 8: return nb_vmap(nb_hessian(f, 0), NULL);
    default: return slope(sum_of(nb_vmap(f, NULL)));
    }
}
enum { NTRANSFORMS = 10, MAPPED = 8 };

static nb_tensor *value(int form, int k)
{
    nb_tensor *x = VEC(0.3, 0.7);
    program *p = programs[k].f;
    if (form >= MAPPED) x = nb_stack(2, (nb_tensor *[]){x, nb_sin(x)}, 0);
    nb_tensor *y = nb_func_call1(transform(form, nb_func_new(with, &p)), 1, &x);
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

static void values(void)
{
    static bool (*const save[])(void *, const nb_op_info *) = {
        NULL, nb_save_contractions, nb_save_everything};
    for (int k = 0; k < NPROGRAMS; k++)
        for (int form = 0; form < NTRANSFORMS; form++) {
            if (programs[k].f == looked && form >= MAPPED) continue;
            nb_scope_open();
            how.off = true;
            nb_tensor *want = value(form, k);
            how.off = false;
            for (int s = 0; s < 3; s++) {
                how.options.save = save[s];
                nb_tensor *got = value(form, k);
                expect(got && want && near(got, want, 1e-12),
                       "%s is itself by way %d, policy %d", programs[k].name,
                       form, s);
            }
            how.options.save = NULL;
            nb_scope_close(0, NULL);
        }
}

/* Work: contractions in a program, those of programs inside it included. */

static int contractions(const nb_graph *g)
{
    int n = 0;
    for (int k = 0; k < g->n; k++) {
        const nb_op *op = g->line[k].op;
        if (!op) continue;
        n += op->kind == NB_MULTILINEAR && op->scalar && op->sign;
        for (int r = 0; r < 2; r++)
            if (op->region[r]) n += contractions(op->region[r]);
    }
    return n;
}

static double work(const nb_graph *g)
{
    double n = nb_graph_flops(g);
    for (int k = 0; k < g->n; k++)
        for (int r = 0; g->line[k].op && r < 2; r++)
            if (g->line[k].op->region[r]) n += work(g->line[k].op->region[r]);
    return n;
}

static int counted(bool (*save)(void *, const nb_op_info *), double *flops)
{
    nb_tensor *x = VEC(0.3, 0.7), *y[2];
    program *p = dots;
    nb_graph *g = NULL;
    int ny = 2, n = -1;
    nb_func *f = nb_value_and_grad(nb_func_new(with, &p), 1, first);
    how.options.save = save;
    if (nb_func_call(f, 1, &x, &ny, y) == NB_OK &&
        nb_graph_of(1, &x, 2, y, &g) == NB_OK) {
        n = contractions(g);
        *flops = work(g);
    }
    nb_graph_free(g);
    how.options.save = NULL;
    return n;
}

static bool only_tanh(void *ctx, const nb_op_info *info)
{
    int *asked = ctx;
    ++*asked;
    return info->name[0] == 't' && !info->contraction && info->value;
}

/* Forward: two, and the outer product.  Back: two for each, and the same two
 * again for what is not saved. */
static void policies(void)
{
    double nothing, products, all, tanhs;
    int asked = 0;
    int n = counted(NULL, &nothing),
        m = counted(nb_save_contractions, &products);
    expect(n == m + 2, "%d contractions, %d when they are saved", n, m);
    int a = counted(nb_save_everything, &all);
    expect(a == m, "%d when all is saved", a);
    how.options.ctx = &asked;
    int t = counted(only_tanh, &tanhs);
    how.options.ctx = NULL;
    expect(t == m, "%d when what comes of them is saved", t);
    expect(asked == 4, "a policy is asked once about each value: %d", asked);
    how.off = true;
    double plain;
    expect(counted(NULL, &plain) == a, "as many as without a checkpoint");
    how.off = false;
    expect(nothing > products && products > all && all == plain,
           "work: %g with nothing saved, %g products, %g all, %g without",
           nothing, products, all, plain);
}

/* Memory: a deep chain of blocks, a few values each. */
enum { LENGTH = 1 << 14, DEPTH = 24, WITHIN = 8 };

static nb_status block(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = x[0];
    for (int k = 0; k < WITHIN; k++)
        y[0] = nb_sin(y[0]);
    return *ny = 1, NB_OK;
}

static nb_status chain(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_tensor *h = x[0];
    (void)ctx, (void)nx;
    for (int k = 0; h && k < DEPTH; k++)
        h = once(block, NULL, h);
    y[0] = h ? total(h) : NULL;
    return *ny = 1, NB_OK;
}

/* The most data at once, in vectors. */
static double most(nb_func *f, int nx)
{
    nb_scope_open();
    nb_tensor *x = nb_full(1, (int64_t[]){LENGTH}, nb_num(0.5), NB_F64);
    nb_tensor *y = NULL, *in[] = {x, x};
    nb_realize(x);
    there_peak_reset();
    size_t before = there_bytes();
    bool ok = (y = nb_func_call1(f, nx, in)) && nb_realize(y) == NB_OK;
    double n = (double)(there_peak() - before) / (8.0 * LENGTH);
    nb_scope_close(0, NULL);
    return ok ? n : -1;
}

static void memory(void)
{
    nb_func *f = nb_func_new(chain, NULL), *g = slope(f);
    nb_func *hvp = nb_jvp(g);
    how.off = true;
    double plain = most(g, 1), second = most(hvp, 2);
    how.off = false;
    double less = most(g, 1), less_second = most(hvp, 2);
    expect(plain >= DEPTH * WITHIN, "%g vectors without checkpoints", plain);
    expect(less > 0 && less <= DEPTH + 2 * WITHIN + 8, "%g vectors with", less);
    expect(less_second <= 2 * DEPTH + 6 * WITHIN && second > 2 * plain / 2,
           "a second derivative: %g vectors, %g without", less_second, second);
    how.options.save = nb_save_everything;
    double all = most(g, 1);
    how.options.save = NULL;
    expect(all > DEPTH * (WITHIN - 1), "%g with everything saved", all);
}

/* Misuse and faults */

FN(failing, nb_matmul(x[0], nb_num(1)))
static nb_status two(void *ctx, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = y[1] = x[0];
    return *ny = 2, NB_OK;
}

static void misuse(void)
{
    nb_tensor *x = VEC(1, 2), *y;
    int ny = 1;
    expect(!once(failing, NULL, x) && failed_with(NB_EVALUE, "matmul"),
           "what a function says is passed on");
    expect(nb_func_call(nb_checkpoint(nb_func_new(two, NULL), NULL), 1, &x, &ny,
                        &y) != NB_OK &&
               failed_with(NB_EVALUE, "room for 1"),
           "there must be room for the results");
    expect(!nb_checkpoint(NULL, NULL), "of nothing there is no checkpoint");
    nb_error_clear();
}

static bool second_order(void)
{
    how.options.save = nb_save_contractions;
    bool ok = value(4, 2) && value(1, 4) && value(2, 1);
    how.options.save = NULL;
    return ok;
}

int main(void)
{
    there_open();
    static void (*const all[])(void) = {values, policies, memory, misuse};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        nb_scope_open();
        all[i]();
        nb_scope_close(0, NULL);
    }
    nb_caches_clear();
    expect(nb_nodes_live() == 0, "no node is left");
    expect_survival("a checkpoint of second order", second_order);
    return tally();
}
