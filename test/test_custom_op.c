/* test_custom_op.c - ops that are described at run time behave as those of the
 * catalogue: alone, in words of transforms, compiled; and what is wrong with a
 * description or a source is said.  NABLA_TEST_EVERY and NABLA_TEST_PART take
 * some of the words (support/there.h). */
#include "support/check.h"
#include "support/faults.h"
#include "support/there.h"

#include "core/graph.h"
#include "nabla/custom.h"
#include "ops/rows.h"
#include "transform/func.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* core's operand of a kernel has the name of the public one. */
#define nb_view nb_row_view
#include "nabla/kernel.h"
#undef nb_view
_Static_assert(sizeof(nb_kernel_args) == 16 + 16 + 8 + 16 * 8 + 16 * 144,
               "the ABI of kernels is fixed");

/* Kernels in f64, which the harness draws. */

static void cube(const nb_kernel_args *a)
{
    NB_ROWS(a, r)
    {
        double x = *NB_ROW(double, nb_in(a, 0), r);
        *NB_ROW(double, nb_out(a, 0), r) = x * x * x;
    }
}

/* "... k, ... k -> ..." */
static void inner_product(const nb_kernel_args *a)
{
    NB_ROWS(a, r)
    {
        const double *x = NB_ROW(double, nb_in(a, 0), r);
        const double *y = NB_ROW(double, nb_in(a, 1), r);
        double sum = 0;
        for (int64_t k = 0; k < nb_row_size(nb_in(a, 0)); k++)
            sum += x[k] * y[k];
        *NB_ROW(double, nb_out(a, 0), r) = sum;
    }
}

/* Of a whole operand: its sum and scale times its square. */
static void both(const nb_kernel_args *a)
{
    const double *x = nb_in(a, 0)->data;
    double *sum = nb_out(a, 0)->data, *square = nb_out(a, 1)->data;
    if (a->begin != 0 || a->end != 1 || nb_in(a, 0)->shape[0] != 1)
        *a->status = 7;
    *sum = 0;
    for (int64_t k = 0; k < nb_row_size(nb_in(a, 0)); k++) {
        *sum += x[k];
        square[k] = a->attr[0].f * x[k] * x[k];
    }
}

static void fails(const nb_kernel_args *a)
{
    *a->status = 3;
}

/* Rules */

static nb_status cube_jvp(const nb_applied *c, nb_tensor *const *u,
                          nb_tensor **uy)
{
    uy[0] = nb_mul(u[0], nb_mul(nb_num(3), nb_square(c->in[0])));
    return nb_error_code();
}

/* The derivative by way of the result: 3 y / x. */
static nb_status cube_vjp(const nb_applied *c, nb_tensor *const *ct,
                          nb_tensor **cx)
{
    cx[0] = nb_mul(ct[0], nb_div(nb_mul(nb_num(3), c->out[0]), c->in[0]));
    return nb_error_code();
}

static nb_status dot_vjp(const nb_applied *c, nb_tensor *const *ct,
                         nb_tensor **cx)
{
    nb_tensor *g = nb_unsqueeze(ct[0], -1);
    cx[0] = nb_mul(g, c->in[1]);
    cx[1] = nb_mul(g, c->in[0]);
    return nb_error_code();
}

static nb_status dot_jvp(const nb_applied *c, nb_tensor *const *u,
                         nb_tensor **uy)
{
    int64_t last = -1;
    uy[0] = nb_add(nb_reduce_sum(nb_mul(u[0], c->in[1]), 1, &last, false),
                   nb_reduce_sum(nb_mul(c->in[0], u[1]), 1, &last, false));
    return nb_error_code();
}

static nb_status both_infer(const nb_applied *c, int k, nb_type *type)
{
    type->dtype = nb_dtype_of(c->in[0]);
    type->rank = k ? nb_rank(c->in[0]) : 0;
    if (k) nb_sizes(c->in[0], type->shape);
    return NB_OK;
}

static nb_status both_vjp(const nb_applied *c, nb_tensor *const *ct,
                          nb_tensor **cx)
{
    nb_tensor *x = c->in[0];
    double scale = c->nval == 1 ? c->val[0].f : NAN;
    cx[0] = nb_add(nb_mul(ct[0], nb_ones_like(x)),
                   nb_mul(nb_mul(ct[1], nb_num(2 * scale)), x));
    return nb_error_code();
}

/* Bodies */

static nb_status swish_body(const nb_applied *c, int *n, nb_tensor **y)
{
    y[0] = nb_mul(c->in[0], nb_sigmoid(c->in[0]));
    return *n = 1, nb_error_code();
}

static nb_status swish_jvp(const nb_applied *c, nb_tensor *const *u,
                           nb_tensor **uy)
{
    nb_tensor *s = nb_sigmoid(c->in[0]);
    uy[0] = nb_mul(u[0], nb_add(s, nb_mul(c->out[0], nb_sub(nb_num(1), s))));
    return nb_error_code();
}

static nb_status halves_body(const nb_applied *c, int *n, nb_tensor **y)
{
    y[0] = nb_sin(c->in[0]);
    y[1] = nb_mul(c->in[0], c->in[1]);
    return *n = 2, nb_error_code();
}

static nb_status halves_vjp(const nb_applied *c, nb_tensor *const *ct,
                            nb_tensor **cx)
{
    cx[0] = nb_add(nb_mul(ct[0], nb_cos(c->in[0])), nb_mul(ct[1], c->in[1]));
    cx[1] = nb_mul(ct[1], c->in[0]);
    return nb_error_code();
}

/* The body is given hidden axes: it asks for as many as it was told. */
static nb_status whole_body(const nb_applied *c, int *n, nb_tensor **y)
{
    int *rank = c->ctx;
    if (rank) *rank = nb_rank(c->in[0]);
    y[0] = nb_reduce_sum(nb_mul(c->in[0], c->in[1]), 1, (int64_t[]){-1}, false);
    return *n = 1, nb_error_code();
}

static const nb_op_spec cube_spec = {.name = "test_cube",
                                     .doc = "x to the third.",
                                     .signature = "... -> ...",
                                     .in = NB_IN_FLOAT,
                                     .kernel = cube,
                                     .jvp = cube_jvp};
static const nb_op_spec cube_back_spec = {.name = "test_cube_back",
                                          .signature = "... -> ...",
                                          .in = NB_IN_FLOAT,
                                          .kernel = cube,
                                          .vjp = cube_vjp};
static const nb_op_spec dot_spec = {.name = "test_dot",
                                    .signature = "... k, ... k -> ...",
                                    .in = NB_IN_COMMON,
                                    .kernel = inner_product,
                                    .vjp = dot_vjp};
static const nb_op_spec dot_both_spec = {.name = "test_dot_both",
                                         .signature = "... k, ... k -> ...",
                                         .in = NB_IN_COMMON,
                                         .kernel = inner_product,
                                         .jvp = dot_jvp,
                                         .vjp = dot_vjp};
static const nb_op_spec both_spec = {.name = "test_both",
                                     .params = "x, scale:float=1",
                                     .nout = 2,
                                     .kernel = both,
                                     .infer = both_infer,
                                     .vjp = both_vjp};
static const nb_op_spec swish_spec = {.name = "test_swish",
                                      .signature = "... -> ...",
                                      .body = swish_body,
                                      .jvp = swish_jvp};
static const nb_op_spec plain_spec = {
    .name = "test_plain", .nin = 1, .body = swish_body};
static const nb_op_spec halves_spec = {.name = "test_halves",
                                       .signature = "..., ... -> ..., ...",
                                       .nout = 2,
                                       .broadcast = true,
                                       .body = halves_body,
                                       .vjp = halves_vjp};
static const nb_op_spec whole_spec = {.name = "test_whole",
                                      .signature = "... k, ... k -> ...",
                                      .body = whole_body,
                                      .vjp = dot_vjp,
                                      .whole = true};

/* ctx of a function that calls an op: the op. */
static nb_status use(void *ctx, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    return nb_op_call(ctx, nx, x, 0, NULL, ny, y);
}

static nb_tensor *once(nb_op *op, int nin, nb_tensor *const *in)
{
    nb_tensor *y = NULL;
    int n = 1;
    return nb_op_call(op, nin, in, 0, NULL, &n, &y) == NB_OK ? y : NULL;
}

/* All words of three letters over an op. */

static void try_word(const task *f, const char *name, int n, const way *w)
{
    task t = *f, last = t;
    char word[80] = "";
    for (int i = n - 1; i >= 0; i--) {
        last = t;
        t = task_transform(w[i], &last, w[i] == VMAP && i % 2 ? 1 : ~0ull, 0);
    }
    for (int i = 0; i < n; i++)
        snprintf(word + strlen(word), sizeof word - strlen(word), "%s ",
                 way_name[w[i]]);
    expect(task_agrees(w[0], &last, &t), "%s%s is as done slowly", word, name);
    if (w[0] == VJP)
        expect(task_is_transposed(&last, &t, 1e-10),
               "%s%s is the jvp transposed", word, name);
}

static void try_words(const nb_op_spec *spec, int nin, nb_tensor *const *x,
                      int nout)
{
    static const way ways[] = {VJP, JVP, VMAP, CHECKPOINT, SCAN};
    enum { N = sizeof ways / sizeof ways[0] };
    nb_op *op = nb_op_register(spec);
    task f = {.nin = nin, .nout = nout};
    expect(op, "%s is registered", spec->name);
    f.fn = nb_func_new(use, op);
    for (int i = 0; i < nin; i++)
        f.x[i] = x[i];
    for (int i = 0; i < N; i++)
        for (int j = -1; j < N; j++)
            for (int k = -1; k < (j < 0 ? 0 : N); k++) {
                if (!there_takes()) continue;
                nb_scope_open();
                try_word(
                    &f, spec->name, 1 + (j >= 0) + (k >= 0),
                    (way[]){ways[i], ways[j < 0 ? 0 : j], ways[k < 0 ? 0 : k]});
                nb_scope_close(0, NULL);
            }
    nb_op_drop(op);
}

static void all_words(void)
{
    nb_tensor *v = draw(1, (int64_t[]){3}, 0.5, 1.5);
    nb_tensor *m = draw(2, (int64_t[]){2, 3}, 0.5, 1.5);
    nb_tensor *one = draw(0, NULL, 0.5, 1.5);
    try_words(&cube_spec, 1, &m, 1);
    try_words(&cube_back_spec, 1, &v, 1);
    try_words(&dot_spec, 2, (nb_tensor *[]){m, v}, 1);
    try_words(&dot_both_spec, 2, (nb_tensor *[]){v, m}, 1);
    try_words(&both_spec, 1, &m, 2);
    try_words(&swish_spec, 1, &m, 1);
    try_words(&plain_spec, 1, &m, 1);
    try_words(&halves_spec, 2, (nb_tensor *[]){m, one}, 2);
    try_words(&whole_spec, 2, (nb_tensor *[]){m, v}, 1);
}

static void values(void)
{
    nb_op *op = nb_op_register(&cube_spec);
    nb_tensor *x = VEC(1, 2, 3), *m, *y[2];
    int n = 2;
    SAYS("a kernel computes", once(op, 1, &x), 1, 8, 27);
    x = nb_permute(nb_reshape(VEC(1, 2, 3, 4, 5, 6), 2, (int64_t[]){2, 3}), 2,
                   (int64_t[]){1, 0});
    SAYS("on strided data too", once(op, 1, &x), 1, 64, 8, 125, 27, 216);
    x = nb_broadcast_to(VEC(2), 1, (int64_t[]){3});
    SAYS("and on one number for all", once(op, 1, &x), 8, 8, 8);
    x = nb_reshape(vec(0, (double[]){0}), 2, (int64_t[]){0, 4});
    m = once(op, 1, &x);
    expect(m && nb_rank(m) == 2 && nb_size(m, 1) == 4 && nb_realize(m) == NB_OK,
           "and on nothing");
    nb_op_drop(op);
    op = nb_op_register(&both_spec);
    nb_value scale = {.kind = NB_VALUE_FLOAT, .f = 10};
    x = VEC(1, 2);
    expect(nb_op_call(op, 1, &x, 1, &scale, &n, y) == NB_OK && n == 2,
           "two results");
    SAYS("the sum", y[0], 3);
    SAYS("the squares, scaled", y[1], 10, 40);
    char *text = nb_attr_text(nb_tensor_in(y[0])[0], 0);
    expect(text && strncmp(text, "scale=10", 8) == 0, "attributes print");
    nb_text_release(text);
    nb_op_drop(op);
    op = nb_op_register(&dot_spec);
    nb_tensor *in[] = {VEC(1, 2), VEC(3, 4)};
    SAYS("a row is a vector", once(op, 2, in), 11);
    nb_op_drop(op);
}

static void threads(void)
{
    nb_op *op = nb_op_register(&dot_spec);
    nb_tensor *x = draw(2, (int64_t[]){20000, 8}, -1, 1);
    nb_tensor *y = draw(1, (int64_t[]){8}, -1, 1), *in[] = {x, y};
    nb_tensor *want = nb_reduce_sum(nb_mul(x, y), 1, (int64_t[]){-1}, false);
    int before = nb_threads();
    for (int n = 1; n <= 3; n++) {
        nb_set_threads(n);
        nb_tensor *d = nb_abs(nb_sub(once(op, 2, in), want));
        expect(nb_item(nb_reduce_max(d, -1, NULL, false)) < 1e-12,
               "%d threads share the rows", n);
    }
    nb_set_threads(before);
    nb_op_drop(op);
}

/* The body of an op with a signature sees hidden axes in front. */
static void hidden(void)
{
    int rank = 0;
    nb_op_spec s = whole_spec;
    s.ctx = &rank;
    nb_op *op = nb_op_register(&s);
    nb_tensor *in[] = {
        nb_reshape(VEC(1, 2, 3, 4, 5, 6, 7, 8), 3, (int64_t[]){2, 2, 2}),
        nb_reshape(VEC(1, 1, 0, 1), 2, (int64_t[]){2, 2})};
    nb_func *f = nb_vmap(nb_func_new(use, op), NULL);
    SAYS("lanes are axes", nb_func_call1(f, 2, in), 3, 7, 6, 8);
    expect(rank == 3, "in front of the visible ones: %d", rank);
    nb_op_drop(op);
}

static void compiled(void)
{
    nb_op *op = nb_op_register(&cube_spec);
    nb_tensor *x = VEC(1, 2, 3), *y = NULL;
    int n = 1;
    nb_func *f = nb_grad(nb_func_new(use, op), 1, (int[]){0});
    nb_executable *e = NULL;
    expect(nb_executable_new(f, 1, &x, &e) == NB_OK, "a gradient compiles");
    expect(e && nb_executable_run(e, 1, &x, &n, &y) == NB_OK, "and runs");
    SAYS("and is right", y, 3, 12, 27);
    nb_executable_drop(e);
    e = NULL;
    expect(nb_executable_new(nb_func_new(use, op), 1, &x, &e) == NB_OK &&
               nb_executable_run(e, 1, &x, &n, &y) == NB_OK,
           "a kernel is a step");
    SAYS("of its own", y, 1, 8, 27);
    nb_op_drop(op);
    if (e) expect(nb_executable_run(e, 1, &x, &n, &y) == NB_OK, "and stays");
    nb_executable_drop(e);
}

static double ten(const nb_applied *c)
{
    return 10 * (double)nb_elements(c->in[0]);
}

static void listed(void)
{
    nb_op_spec s = cube_spec;
    s.cost = ten;
    nb_op *op = nb_op_register(&s), *again = nb_op_register(&s);
    nb_tensor *x = VEC(1, 2, 3), *y = once(op, 1, &x);
    nb_graph *g = NULL;
    expect(op && again == op, "the same description is the same op");
    nb_op_drop(again);
    expect(nb_op_find("test_cube") == op && nb_op_registered(0) == op &&
               !nb_op_registered(1) && nb_op_is_public(op),
           "it is found by its name");
    expect(!strcmp(nb_op_doc(op), "x to the third.") &&
               !strcmp(nb_op_signature(op), "... -> ...") &&
               !strcmp(nb_op_params(op), "x0"),
           "it says what it is");
    s.doc = "Another.";
    FAILS("another of that name", nb_op_register(&s), NB_EVALUE,
          "another op is registered");
    expect(nb_graph_of(1, &x, 1, &y, &g) == NB_OK, "it is in graphs");
    char *text = g ? nb_graph_text(g) : NULL;
    expect(text && strstr(text, "test_cube(%a1)"), "by its name");
    expect(g && nb_graph_flops(g) == 30, "with its cost");
    nb_graph *h = NULL;
    expect(text && nb_graph_parse(text, &h) == NB_OK, "and read back");
    nb_graph_free(h);
    nb_text_release(text);
    nb_graph_free(g);
    nb_op_drop(op);
    expect(!nb_op_find("test_cube"), "a name is free again");
    SAYS("what was recorded still runs", y, 1, 8, 27);
}

/* What is wrong with a description. */
static void refused(void)
{
#define WRONG(sentence, part, ...)                            \
    do {                                                      \
        nb_op_spec s = cube_spec;                             \
        __VA_ARGS__;                                          \
        FAILS(sentence, nb_op_register(&s), NB_EVALUE, part); \
    } while (0)
    FAILS("no description", nb_op_register(NULL), NB_EVALUE, "description");
    WRONG("no name", "needs a name", s.name = NULL);
    WRONG("an odd name", "no name for an op", s.name = "a b");
    WRONG("a name of the catalogue", "catalogue", s.name = "add");
    WRONG("no work", "neither", s.kernel = NULL);
    WRONG("work twice", "not both", s.body = swish_body);
    WRONG("a bad signature", "->", s.signature = "... m k");
    WRONG("one of other inputs", "takes 2 tensors, its signature 1",
          s.params = "x, y");
    WRONG("one of other results", "has 3 results, its signature 1", s.nout = 3);
    WRONG("results that rows share", "every result needs ...",
          s.signature = "... n -> n");
    WRONG("rows of too many axes", "at most 7",
          s.signature = "... a b c d e f g h -> ...");
    WRONG("bad parameters", "parameters", s.params = "x:what");
    WRONG("a list for a kernel", "a kernel takes tensors",
          s.params = "x, n:ints=(1, 2)");
    WRONG("linear beyond its inputs", "linear in inputs", s.linear = 2);
    WRONG("no types", "rule for dtypes", s.in = (nb_in_types)99);
    WRONG("many results", "results", s.nout = 65);
    WRONG("nothing said of results", "signature, or infer", s.signature = NULL);
    nb_op_drop(NULL);
#undef WRONG
}

static nb_status bad_shape(const nb_applied *c, nb_tensor *const *from,
                           nb_tensor **to)
{
    (void)c, (void)from;
    to[0] = VEC(1, 2, 3, 4, 5);
    return NB_OK;
}

static nb_status bad_rule(const nb_applied *c, nb_tensor *const *from,
                          nb_tensor **to)
{
    (void)c, (void)from, (void)to;
    nb_error_raise(NB_EVALUE, "I cannot");
    return nb_error_code();
}

static nb_status no_result(const nb_applied *c, int *n, nb_tensor **y)
{
    (void)c;
    y[0] = NULL;
    return *n = 1, NB_OK;
}

static void failing(void)
{
    nb_op_spec s = cube_spec;
    nb_tensor *x = VEC(1, 2, 3);
    s.kernel = fails;
    nb_op *op = nb_op_new(&s);
    FAILS("a kernel that fails", nb_realize(once(op, 1, &x)) == NB_OK,
          NB_ERUNTIME, "test_cube: the kernel failed with status 3");
    nb_op_drop(op);
    s = cube_spec;
    s.jvp = NULL;
    op = nb_op_new(&s);
    nb_func *f = nb_grad(nb_func_new(use, op), 1, (int[]){0});
    FAILS("no rule", nb_func_call1(f, 1, &x), NB_ERUNTIME, "no derivative");
    nb_op_drop(op);
    s.vjp = bad_shape;
    op = nb_op_new(&s);
    f = nb_grad(nb_func_new(use, op), 1, (int[]){0});
    FAILS("a cotangent of another shape", nb_func_call1(f, 1, &x), NB_ERUNTIME,
          "VJP rule failed for operation 'test_cube': cotangent of input 0 has "
          "shape (5,), not (3,)");
    nb_op_drop(op);
    s.vjp = NULL;
    s.jvp = bad_rule;
    op = nb_op_new(&s);
    f = nb_grad(nb_func_new(use, op), 1, (int[]){0});
    FAILS("a rule that fails", nb_func_call1(f, 1, &x), NB_ERUNTIME,
          "JVP rule failed for operation 'test_cube': I cannot");
    nb_op_drop(op);
    op = nb_op_new(&(nb_op_spec){.name = "none", .nin = 1, .body = no_result});
    FAILS("a body without result", once(op, 1, &x), NB_ERUNTIME, "NULL");
    nb_op_drop(op);
    op = nb_op_register(&dot_spec);
    nb_tensor *in[] = {x, VEC(1, 2)};
    FAILS("shapes that do not fit", once(op, 2, in), NB_EVALUE,
          "axis of size 3 meets axis of size 2");
    FAILS("too few tensors", once(op, 1, in), NB_ETYPE, "takes 2 tensors");
    nb_op_drop(op);
}

/* An op that is linear says so instead of a jvp. */
static void twice(const nb_kernel_args *a)
{
    NB_ROWS(a, r)
    *NB_ROW(double, nb_out(a, 0), r) =
        *NB_ROW(double, nb_in(a, 0), r) - 2 * *NB_ROW(double, nb_in(a, 1), r);
}

static void linear(void)
{
    nb_op *op = nb_op_new(&(nb_op_spec){.name = "minus_two",
                                        .signature = "..., ... -> ...",
                                        .in = NB_IN_COMMON,
                                        .kernel = twice,
                                        .linear = NB_LINEAR_ALL});
    nb_tensor *in[] = {VEC(1, 2), VEC(3, 4), VEC(5, 6), VEC(7, 8)}, *y[2];
    int n = 2;
    expect(nb_func_call(nb_jvp(nb_func_new(use, op)), 4, in, &n, y) == NB_OK,
           "forward by itself");
    SAYS("of tangents", y[1], -9, -10);
    nb_op_drop(op);
}

/* Sources */

static char folder[64];

static const char *written(const char *name, const char *text)
{
    static char path[4][128];
    static int turn;
    char *to = path[turn++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    FILE *f = fopen(to, "w");
    expect(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s is written", to);
    return to;
}

static nb_tensor *called(const char *name, const char *path, nb_tensor *x,
                         int nattr, const nb_named *attr)
{
    nb_type t = {nb_dtype_of(x), nb_rank(x), {0}};
    nb_tensor *y = NULL;
    nb_sizes(x, t.shape);
    return nb_kernel_call(&(nb_kernel_source){name, 1, &path}, 1, &x, nattr,
                          attr, 1, &t, &y) == NB_OK
               ? y
               : NULL;
}

#define INCLUDE "#include <nabla/kernel.h>\n"

static void sources(void)
{
    nb_tensor *x = VEC(1, 2, 3);
    const char *path = written("plus.c", INCLUDE "NB_MAP1(plus, x, x + 1)\n");
    SAYS("a source is a kernel", called("plus", path, x, 0, NULL), 2, 3, 4);
    SAYS("and in its folder", called("plus", folder, x, 0, NULL), 2, 3, 4);
    path = written("plus.c", INCLUDE "NB_MAP1(plus, x, x + 2)\n");
    SAYS("one that changed is another", called("plus", path, x, 0, NULL), 3, 4,
         5);
    written("by.h", "#define BY 10\n");
    path = written("times.c", INCLUDE "#include \"by.h\"\n"
                                      "NB_MAP1(times, x, x * BY)\n");
    SAYS("it may include", called("times", path, x, 0, NULL), 10, 20, 30);
    written("by.h", "#define BY 20\n");
    SAYS("what may change", called("times", path, x, 0, NULL), 20, 40, 60);
    path = written("attrs.c", INCLUDE
                   "NB_KERNEL(attrs)\n{\n    double *y = "
                   "nb_out(a, 0)->data;\n"
                   "    for (int64_t k = 0; k < nb_row_size(nb_in(a, "
                   "0)); k++)\n"
                   "        y[k] = a->attr[0].f + (double)a->attr[1].i;\n"
                   "}\n");
    nb_named attr[] = {{"f", {.kind = NB_VALUE_FLOAT, .f = 0.5}},
                       {"i", {.kind = NB_VALUE_INT, .i = 4}}};
    SAYS("attributes, in order", called("attrs", path, x, 2, attr), 4.5, 4.5,
         4.5);
}

static void bad_sources(void)
{
    nb_tensor *x = VEC(1, 2, 3);
    nb_named text = {"s", {.kind = NB_VALUE_TEXT, .text = "no"}};
    FAILS("a file that is not there", called("k", "/no/such.c", x, 0, NULL),
          NB_ENOFILE, "k: no such file or folder: /no/such.c");
    FAILS("a file of no C", called("k", written("k.txt", ""), x, 0, NULL),
          NB_EVALUE, "is no .c or .cu file");
    const char *bad = written("bad.c", INCLUDE "\nNB_KERNEL(bad) { oops; }\n");
    FAILS("a source that is wrong", called("bad", bad, x, 0, NULL), NB_ERUNTIME,
          "bad.c:3:");
    const char *ok = written("ok.c", INCLUDE "NB_MAP1(fine, x, x)\n");
    FAILS("a function of another name", called("other", ok, x, 0, NULL),
          NB_EVALUE, "does not export void other(const nb_kernel_args *)");
    FAILS("an attribute of another kind", called("fine", ok, x, 1, &text),
          NB_ETYPE, "attribute s is an int, a bool or a float");
    char cc[128];
    snprintf(cc, sizeof cc, "%s/no-such-compiler", folder);
    setenv("CC", cc, 1);
    FAILS("no compiler", called("fine", ok, x, 0, NULL), NB_ERUNTIME,
          "no-such-compiler");
    unsetenv("CC");
    SAYS("and one again", called("fine", ok, x, 0, NULL), 1, 2, 3);
    nb_tensor *m = nb_cast(x, NB_BOOL);
    FAILS("a dtype that is not numeric",
          nb_realize(called("fine", ok, m, 0, NULL)) == NB_OK, NB_ERUNTIME,
          "dtypes");
    unlink(bad);
}

/* Lanes of a call without signature are computed one by one. */
FN(summed, called("total", (const char *)c, x[0], 0, NULL))
static void lanes(void)
{
    const char *path = written(
        "total.c", INCLUDE
        "NB_KERNEL(total)\n{\n    const double *x = nb_in(a, 0)->data;\n"
        "    double *y = nb_out(a, 0)->data;\n"
        "    for (int64_t k = 0; k < nb_row_size(nb_in(a, 0)); k++)\n"
        "        y[k] = x[k] + (k ? y[k - 1] : 0);\n}\n");
    nb_tensor *x = nb_reshape(VEC(1, 2, 3, 4), 2, (int64_t[]){2, 2});
    nb_func *f = nb_func_new(summed, (void *)path);
    SAYS("as a whole", nb_func_call1(f, 1, &x), 1, 3, 6, 10);
    SAYS("or in lanes", nb_func_call1(nb_vmap(f, NULL), 1, &x), 1, 3, 3, 7);
    SAYS("along either axis",
         nb_func_call1(nb_vmap(f, &(nb_vmap_options){.nin = 1,
                                                     .nout = 1,
                                                     .in_axes = (int[]){1},
                                                     .out_axes = (int[]){0}}),
                       1, &x),
         1, 4, 2, 6);
    FAILS("it has no derivative",
          nb_func_call1(nb_grad(f, 1, (int[]){0}), 1, &x), NB_ERUNTIME,
          "total: a kernel has no derivative");
}

/* Several processes at once, and entries that were damaged. */
static void processes(void)
{
    const char *path = written("many.c", INCLUDE "NB_MAP1(many, x, x + 5)\n");
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            nb_tensor *y = called("many", path, VEC(1, 2), 0, NULL);
            _exit(!(y && is(y, 2, (double[]){6, 7})));
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = 1;
        waitpid(child[i], &status, 0);
        expect(status == 0, "process %d compiles and runs", i);
    }
    char command[256];
    snprintf(command, sizeof command,
             "for f in %s/cache/*.code; do printf damaged | dd of=$f bs=1 "
             "seek=2000 conv=notrunc 2>/dev/null; done",
             folder);
    expect(system(command) == 0, "entries are damaged");
    SAYS("and made again", called("many", path, VEC(1, 2), 0, NULL), 6, 7);
}

static void *many_threads(void *ctx)
{
    nb_scope_open();
    nb_tensor *y = called("thread", ctx, VEC(1, 2), 0, NULL);
    bool ok = y && is(y, 2, (double[]){7, 8});
    nb_scope_close(0, NULL);
    return ok ? ctx : NULL;
}

static void in_threads(void)
{
    const char *path =
        written("thread.c", INCLUDE "NB_MAP1(thread, x, x + 6)\n");
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, many_threads, (void *)path);
    for (int i = 0; i < 4; i++) {
        void *ok;
        pthread_join(t[i], &ok);
        expect(ok, "thread %d runs it", i);
    }
}

/* Every allocation fails once. */
static bool program(void *path)
{
    nb_tensor *x = VEC(1, 2, 3), *m = nb_stack(2, (nb_tensor *[]){x, x}, 0);
    nb_op *swish = nb_op_new(&swish_spec), *two = nb_op_register(&both_spec);
    nb_op *inner = nb_op_new(&whole_spec);
    nb_tensor *in[] = {m, m};
    bool ok =
        swish && two && inner &&
        nb_realize(nb_func_call1(
            nb_grad(nb_func_new(use, swish), 1, (int[]){0}), 1, &x)) == NB_OK &&
        nb_realize(nb_func_call1(nb_vmap(nb_func_new(use, two), NULL), 1,
                                 &m)) == NB_OK &&
        nb_realize(nb_func_call1(nb_vmap(nb_func_new(use, inner), NULL), 2,
                                 in)) == NB_OK &&
        nb_realize(called("plus", path, x, 0, NULL)) == NB_OK;
    nb_op_drop(swish), nb_op_drop(two), nb_op_drop(inner);
    return ok;
}

static void memory_may_run_out(void)
{
    const char *path = written("plus.c", INCLUDE "NB_MAP1(plus, x, x + 1)\n");
    faults f = {.run = program, .ctx = (void *)path};
    bool ok = faults_survived(&f);
    expect(f.n > 0, "the program runs");
    expect(ok && f.n > 100, "allocation %lld", (long long)f.n);
}

/* Of C and its compiler; those of cards are in test_cuda_custom.c. */
static bool is_of_sources(void (*test)(void))
{
    return test == sources || test == bad_sources || test == lanes ||
           test == processes || test == in_threads ||
           test == memory_may_run_out;
}

int main(void)
{
    there_open();
    static void (*const all[])(void) = {values,     threads,
                                        hidden,     compiled,
                                        listed,     refused,
                                        failing,    linear,
                                        sources,    bad_sources,
                                        lanes,      processes,
                                        in_threads, memory_may_run_out,
                                        all_words};
    char cache[96];
    strcpy(folder, "/tmp/nabla-test-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("NABLA_CACHE_DIR", cache, 1);
    int device = there();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] != all_words && !there_leads()) continue;
        there_move(is_of_sources(all[i]) ? 0 : device);
        nb_scope_open();
        all[i]();
        nb_scope_close(0, NULL);
    }
    nb_caches_clear();
    expect(nb_nodes_live() == 0, "no node is left");
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) return 1;
    return tally();
}
