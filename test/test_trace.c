/* test_trace.c - listings of recorded programs: what they say, that they read
 * back, what a graph tells of its lines, and where things were called. */
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* Functions */

#define FN(name, expression)                                               \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx, (void)nx;                                               \
        y[0] = expression;                                                 \
        return *ny = 1, y[0] ? NB_OK : nb_error_code();                    \
    }

FN(energy, nb_reduce_sum(nb_mul(nb_sin(x[0]), nb_num(2)), -1, NULL, false))
FN(cube_sum, nb_reduce_sum(nb_mul(nb_mul(x[0], x[0]), x[0]), -1, NULL, false))
FN(small, nb_less(x[0], nb_num(10)))
FN(twice, nb_mul(x[0], nb_num(2)))
FN(square, nb_mul(x[0], x[0]))
FN(product, nb_mul(x[0], x[1]))
FN(wrong_sizes, nb_matmul(x[0], x[0]))

static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_mul(x[0], x[1]);
    y[1] = nb_sin(y[0]);
    return *ny = 2, NB_OK;
}

static nb_status scanned(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    return nb_scan(nb_func_new(step, NULL), 1, x, 1, x + 1, 0, false, ny, y);
}

static nb_status looped(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    *ny = 1;
    return nb_while(nb_func_new(small, NULL), nb_func_new(twice, NULL), 1, x,
                    y);
}

static nb_status branched(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    return nb_cond(nb_greater(x[0], nb_num(0)), nb_func_new(twice, NULL),
                   nb_func_new(square, NULL), 1, x, ny, y);
}

static nb_func *fn(nb_body *body)
{
    return nb_func_new(body, NULL);
}

static nb_func *gradient(nb_func *f)
{
    return nb_grad(f, 1, (int[]){0});
}

static nb_tensor *filled(int rank, const int64_t *size)
{
    float v[64];
    for (int i = 0; i < 64; i++)
        v[i] = 0.25f * (float)(i % 7) + 0.5f;
    nb_tensor *x = nb_constant(NB_F32, rank, size, v);
    nb_set_traced(x, true); /* what loops realise stays in the graph */
    return x;
}

static nb_tensor *scalar(void)
{
    return filled(0, NULL);
}

static nb_tensor *vector(int64_t n)
{
    return filled(1, &n);
}

static nb_tensor *matrix(int64_t m, int64_t n)
{
    return filled(2, (int64_t[]){m, n});
}

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open() != NB_OK;
}

static int close_scope(void **state)
{
    (void)state;
    nb_error_clear();
    nb_source_set(NULL, 0);
    for (int open = 0; open < 20; open++) /* a test that fails leaves some */
        nb_scope_close(0, NULL);
    return nb_nodes_live() != 0;
}

/* A function, recorded; its results are lent. */

enum { MOST = 8 };

typedef struct recording {
    int nx, ny;
    nb_tensor *x[MOST], *y[MOST];
    nb_graph *g;
} recording;

static recording record(nb_func *f, int nx, nb_tensor *const *x)
{
    recording r = {.nx = nx, .ny = MOST};
    for (int i = 0; i < nx; i++)
        r.x[i] = x[i];
    if (nb_func_call(f, nx, x, &r.ny, r.y) != NB_OK ||
        nb_graph_of(nx, x, r.ny, r.y, &r.g) != NB_OK)
        fail_msg("%s", nb_error_message());
    return r;
}

static void lists_as(nb_func *f, int nx, nb_tensor *const *x, const char *text)
{
    recording r = record(f, nx, x);
    char *said = nb_graph_text(r.g);
    assert_string_equal(said, text);
    nb_text_release(said);
    nb_graph_free(r.g);
}

/* Goldens */

static void a_gradient(void **state)
{
    (void)state;
    nb_tensor *x = vector(3);
    lists_as(gradient(fn(energy)), 1, &x,
             "fn(\n"
             "  %a1: f32[3],\n"
             ") {\n"
             "  %v1: f32[1] = reshape(1.0:f32, shape=(1,))\n"
             "  %v2: f32[3] = broadcast_to(%v1, shape=(3,))\n"
             "  %v3: f32[3] = mul(%v2, 2.0:f32)\n"
             "  %v4: f32[3] = cos(%a1)\n"
             "  %v5: f32[3] = mul(%v3, %v4)\n"
             "  return %v5\n"
             "}\n");
}

static void hidden_axes_stand_innermost_first(void **state)
{
    (void)state;
    nb_func *inner = nb_vmap(
        fn(product),
        &(nb_vmap_options){.nin = 2, .in_axes = (int[]){0, NB_UNMAPPED}});
    nb_tensor *x[] = {filled(3, (int64_t[]){2, 3, 4}), matrix(2, 4)};
    lists_as(nb_vmap(inner, NULL), 2, x,
             "fn(\n"
             "  %a1: f32[2,3,4],\n"
             "  %a2: f32[2,4],\n"
             ") {\n"
             "  %v1: f32[2 | 3,4] = hide(%a1, axis=0, id=1, size=2)\n"
             "  %v2: f32[3,2 | 4] = hide(%v1, axis=0, id=2, size=3)\n"
             "  %v3: f32[2 | 4] = hide(%a2, axis=0, id=1, size=2)\n"
             "  %v4: f32[3,2 | 4] = mul(%v2, %v3)\n"
             "  %v5: f32[2 | 3,4] = show(%v4, axis=0, id=2, size=3)\n"
             "  %v6: f32[2,3,4] = show(%v5, axis=0, id=1, size=2)\n"
             "  return %v6\n"
             "}\n");
}

static void a_scan_and_its_body(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)};
    lists_as(fn(scanned), 2, x,
             "fn(\n"
             "  %a1: f32[],\n"
             "  %a2: f32[5],\n"
             ") {\n"
             "  %v1: f32[], %v2: f32[5] = scan(%a1, %a2, carries=1, length=5, "
             "reverse=False, xs=1) {\n"
             "    body(%a3: f32[], %a4: f32[]) {\n"
             "      %v3: f32[] = mul(%a3, %a4)\n"
             "      %v4: f32[] = sin(%v3)\n"
             "      return (%v3, %v4)\n"
             "    }\n"
             "  }\n"
             "  return (%v1, %v2)\n"
             "}\n");
}

static void results_that_nobody_needs_have_no_name(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)};
    lists_as(nb_grad(fn(scanned), 1, (int[]){1}), 2, x,
             "fn(\n"
             "  %a1: f32[],\n"
             "  %a2: f32[5],\n"
             ") {\n"
             "  _, %v1: f32[5] = scan(%a1, %a2, carries=1, length=5, "
             "reverse=False, xs=1) {\n"
             "    body(%a3: f32[], %a4: f32[]) {\n"
             "      %v2: f32[] = mul(%a3, %a4)\n"
             "      return (%v2, %a3)\n"
             "    }\n"
             "  }\n"
             "  _, %v3: f32[5] = scan(1.0:f32, %v1, %a2, carries=1, length=5, "
             "reverse=True, xs=2) {\n"
             "    body(%a5: f32[], %a6: f32[], %a7: f32[]) {\n"
             "      %v4: f32[] = mul(%a5, %a7)\n"
             "      %v5: f32[] = mul(%a5, %a6)\n"
             "      return (%v4, %v5)\n"
             "    }\n"
             "  }\n"
             "  return %v3\n"
             "}\n");
}

static void a_branch_has_two_programs(void **state)
{
    (void)state;
    nb_tensor *x = scalar();
    lists_as(fn(branched), 1, &x,
             "fn(\n"
             "  %a1: f32[],\n"
             ") {\n"
             "  %v1: bool[] = greater(%a1, 0.0:f32)\n"
             "  %v2: f32[] = cond(%v1, %a1, captured=0, operands=1) {\n"
             "    true(%a2: f32[]) {\n"
             "      %v3: f32[] = mul(%a2, 2.0:f32)\n"
             "      return %v3\n"
             "    }\n"
             "    false(%a3: f32[]) {\n"
             "      %v4: f32[] = mul(%a3, %a3)\n"
             "      return %v4\n"
             "    }\n"
             "  }\n"
             "  return %v2\n"
             "}\n");
}

static void a_loop_gives_its_states_and_the_test(void **state)
{
    (void)state;
    nb_tensor *x = scalar();
    lists_as(fn(looped), 1, &x,
             "fn(\n"
             "  %a1: f32[],\n"
             ") {\n"
             "  %v1: f32[] = while_loop(%a1, kept=(0,), states=(1,)) {\n"
             "    body(%a2: f32[]) {\n"
             "      %v2: f32[] = mul(%a2, 2.0:f32)\n"
             "      %v3: bool[] = less(%a2, 10.0:f32)\n"
             "      return (%v2, %v3)\n"
             "    }\n"
             "  }\n"
             "  return %v1\n"
             "}\n");
}

static void what_is_captured_is_a_question_mark(void **state)
{
    (void)state;
    nb_tensor *x = vector(2), *c = vector(2), *y = nb_mul(x, c);
    nb_graph *g = NULL, *h = NULL;
    assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
    char *text = nb_graph_text(g);
    assert_non_null(strstr(text, "mul(%a1, ?)"));
    assert_int_equal(nb_graph_parse(text, &h), NB_EVALUE);
    assert_null(h);
    nb_text_release(text);
    nb_graph_free(g);
}

static void numbers_are_as_short_as_they_can_be(void **state)
{
    (void)state;
    static const struct {
        double value;
        nb_dtype dtype;
        const char *text;
    } known[] = {
        {0.1, NB_F32, "0.1:f32"},
        {0.1, NB_F64, "0.1:f64"},
        {1.0 / 3, NB_F32, "0.33333334:f32"},
        {1.0 / 3, NB_F64, "0.3333333333333333:f64"},
        {1.0 / 3, NB_F16, "0.3333:f16"},
        {100, NB_F32, "100.0:f32"},
        {123456, NB_BF16, "123392.0:bf16"},
        {1e30, NB_F32, "1e+30:f32"},
        {-2, NB_F64, "-2.0:f64"},
        {1.0 / 0.0, NB_F32, "inf:f32"},
        {-7, NB_I8, "-7:i8"},
        {1, NB_BOOL, "1:bool"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nb_tensor *c = nb_scalar_float(known[i].value, known[i].dtype);
        nb_tensor *x = nb_scalar_float(1, known[i].dtype);
        nb_tensor *y = nb_where(nb_truth(true), x, c);
        nb_graph *g = NULL, *h = NULL;
        assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
        char *text = nb_graph_text(g);
        if (!strstr(text, known[i].text))
            fail_msg("no %s in %s", known[i].text, text);
        assert_int_equal(nb_graph_parse(text, &h), NB_OK);
        assert_true(nb_graph_hash(g) == nb_graph_hash(h));
        nb_text_release(text);
        nb_graph_free(g);
        nb_graph_free(h);
    }
}

/* Reading back */

static void reads_back(recording *r)
{
    nb_graph *h = NULL;
    nb_tensor *z[MOST];
    char *text = nb_graph_text(r->g), *remarks, *again;
    remarks = nb_graph_text_with(r->g, NB_TEXT_SOURCES);
    if (nb_graph_parse(remarks, &h) != NB_OK)
        fail_msg("%s in\n%s", nb_error_message(), remarks);
    again = nb_graph_text(h);
    assert_string_equal(text, again);
    assert_true(nb_graph_hash(r->g) == nb_graph_hash(h));
    assert_int_equal(nb_graph_check(r->g), NB_OK);
    if (nb_graph_run(h, r->nx, r->x, z) != NB_OK)
        fail_msg("%s", nb_error_message());
    for (int k = 0; k < r->ny; k++) {
        char *is = nb_tensor_text(z[k]), *was = nb_tensor_text(r->y[k]);
        assert_string_equal(is, was);
        nb_text_release(is);
        nb_text_release(was);
    }
    nb_text_release(text);
    nb_text_release(remarks);
    nb_text_release(again);
    nb_graph_free(h);
}

/* All kinds of programs; NULL past the last. */
static nb_func *sample(int i, int *nx, nb_tensor **x)
{
    nb_func *f[] = {
        gradient(fn(energy)),
        nb_hessian(fn(cube_sum), 0),
        nb_checkpoint(fn(energy), NULL),
        nb_hessian(nb_checkpoint(fn(energy), NULL), 0),
        fn(branched),
        gradient(fn(branched)),
        gradient(gradient(fn(branched))),
        fn(looped),
        gradient(fn(looped)),
        nb_jvp(gradient(fn(looped))),
        nb_vmap(gradient(fn(energy)), NULL),
        nb_vmap(fn(looped), NULL),
        nb_vmap(gradient(nb_vmap(fn(looped), NULL)), NULL),
        nb_vmap(nb_vmap(gradient(fn(branched)), NULL), NULL),
        fn(scanned),
        nb_grad(fn(scanned), 2, (int[]){0, 1}),
        nb_grad(nb_grad(fn(scanned), 1, (int[]){1}), 1, (int[]){0}),
        nb_vmap(
            fn(scanned),
            &(nb_vmap_options){.nin = 2, .in_axes = (int[]){NB_UNMAPPED, 0}}),
        nb_vmap(
            nb_grad(fn(scanned), 1, (int[]){1}),
            &(nb_vmap_options){.nin = 2, .in_axes = (int[]){NB_UNMAPPED, 0}}),
    };
    if (i == (int)(sizeof f / sizeof f[0])) return NULL;
    *nx = i < 14 ? 1 : 2;
    x[0] = i < 4 ? vector(3) : i < 10 || i >= 14 ? scalar() : matrix(2, 3);
    x[1] = i < 17 ? vector(4) : matrix(2, 4);
    if (i == 9) x[(*nx)++] = scalar();
    if (i == 11) x[0] = vector(3);
    return f[i];
}

static void every_listing_reads_back(void **state)
{
    (void)state;
    nb_tensor *x[MOST];
    nb_func *f;
    int nx;
    for (int i = 0; (f = sample(i, &nx, x)); i++) {
        recording r = record(f, nx, x);
        reads_back(&r);
        nb_graph_free(r.g);
    }
}

/* Inputs that have hidden axes of different vmaps. */
static void axes_of_inputs_say_which_they_are(void **state)
{
    (void)state;
    int outer = nb_lane_fresh(), inner = nb_lane_fresh();
    nb_tensor *x[] = {nb_hide(matrix(3, 4), 0, inner),
                      nb_hide(matrix(2, 4), 0, outer)};
    nb_tensor *y = nb_mul(x[0], x[1]);
    nb_graph *g = NULL, *h = NULL;
    assert_int_equal(nb_graph_of(2, x, 1, &y, &g), NB_OK);
    char *text = nb_graph_text(g);
    assert_string_equal(text, "fn(\n"
                              "  %a1: f32[3'2 | 4],\n"
                              "  %a2: f32[2 | 4],\n"
                              ") {\n"
                              "  %v1: f32[3,2 | 4] = mul(%a1, %a2)\n"
                              "  return %v1\n"
                              "}\n");
    assert_int_equal(nb_graph_parse(text, &h), NB_OK);
    char *again = nb_graph_text(h);
    assert_string_equal(text, again);
    assert_true(nb_graph_hash(g) == nb_graph_hash(h));
    nb_text_release(text);
    nb_text_release(again);
    nb_graph_free(g);
    nb_graph_free(h);
}

static const char *const refused[][2] = {
    {"fn() { %v1: f32[] = scan(1.0:f32, carries=1, length=2, reverse=False, "
     "xs=0) return %v1 }",
     "expected {"},
    {"fn() { %v1: f32[] = scan(1.0:f32, carries=1, length=2, reverse=False, "
     "xs=0) { body(%a1: i32[]) { return %a1 } } return %v1 }",
     "scan: the body does not fit"},
    {"fn() { %v1: f32[] = scan(1.0:f32, carries=7, length=2, reverse=False, "
     "xs=0) { body(%a1: f32[]) { return %a1 } } return %v1 }",
     "scan: the body does not fit"},
    {"fn() { %v1: f32[] = while_loop(1.0:f32, kept=(0,), states=(9,)) { "
     "body(%a1: f32[]) { return (%a1, 1:bool) } } return %v1 }",
     "while_loop: the program does not fit"},
    {"fn() { %v1: f32[] = while_loop(1.0:f32, kept=(0,), states=(1,)) { "
     "body(%a1: f32[]) { return (%a1, %a1) } } return %v1 }",
     "while_loop: the program does not fit"},
    {"fn() { %v1: f32[] = cond(1:bool, captured=0, operands=1) { true() { "
     "return 1.0:f32 } false() { return 2.0:f32 } } return %v1 }",
     "cond: the branches do not fit"},
    {"fn(%a1: f32[]) { %v1: f32[] = checkpoint(%a1, results=1, saved=0) { "
     "body(%a2: f32[]) { return %a1 } } return %v1 }",
     "an earlier line of this program"},
    {"fn(%a1: f32[2]) { %v1: f32[] = reduce_sum(%a1, axis=5) return %v1 }",
     "axis 5 is out of range"},
    {"fn(%a1: f32[2]) { %v1: f32[] = hide(%a1, axis=3, id=1, size=2) "
     "return %v1 }",
     "hide: no such axis"},
    {"fn(%a1: f32[2]) { %v1: f32[2 |] = hide(%a1, axis=0, id=-4, size=2) "
     "return %v1 }",
     "the id of a hidden axis"},
    {"fn(%a1: i32[2]) { %v1: i32[2] = sin(%a1) return %v1 }", "sin: input 0"},
    {"fn(%a1: f32[2]) { %v1: f32[2], %v2: f32[2] = sin(%a1) return %v1 }",
     "as many results"},
    {"fn(%a1: f32[2]) { %v1: f32[2] = sin(%a1, axis=1) return %v1 }",
     "an argument of the op"},
    {"fn(%a1: f32[2]) { return %a1 } more", "the end"},
    {"fn(%a1: f32[3,4'1,5'1 | 2]) { return %a1 }", "the innermost first"},
    {"fn(%a1: f32[99999999999999999999]) { return %a1 }",
     "line 1: expected an integer of 64 bits at \"9999"},
    {"fn(\n  %a1: f32[4,4611686018427387904]) { return %a1 }",
     "graph text, line 2: shape (4, 4611686018427387904) has more bytes than"},
    {"fn(%a1: f32[2]) {\n\n%v1: f32[4611686018427387904,4] = sin(%a1)\n"
     "return %v1 }",
     "graph text, line 3: shape (4611686018427387904, 4) has more bytes than"},
    {"fn(%a1: f64[2]) { %v1: f64[] = reduce_sum(%a1, "
     "axis=-99999999999999999999) return %v1 }",
     "an integer of 64 bits"},
};

static void a_wrong_text_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        nb_graph *g = NULL;
        if (nb_graph_parse(refused[i][0], &g) == NB_OK)
            fail_msg("read: %s", refused[i][0]);
        if (!strstr(nb_error_message(), refused[i][1]))
            fail_msg("%s: %s", refused[i][0], nb_error_message());
        nb_error_clear();
        assert_null(g);
    }
}

/* One byte changed, doubled or gone: read or refused, nothing worse. */
static void spoil(char *text, size_t n, unsigned *seed)
{
    static const char letters[] = "0123456789%av_,:=(){}[]| ~'#fnx-.";
    size_t at = (size_t)rand_r(seed) % n;
    int how = rand_r(seed) % 3;
    if (how == 0)
        text[at] = letters[(size_t)rand_r(seed) % (sizeof letters - 1)];
    else if (how == 1)
        memmove(text + at, text + at + 1, n - at);
    else
        memmove(text + at + 1, text + at, n - at - 1);
}

static void spoiled_texts_do_no_harm(void **state)
{
    (void)state;
    nb_tensor *x[MOST];
    nb_func *f;
    int nx, read = 0;
    unsigned seed = 7;
    for (int i = 0; (f = sample(i, &nx, x)); i++) {
        recording r = record(f, nx, x);
        char *text = nb_graph_text(r.g), *copy = malloc(strlen(text) + 1);
        for (int k = 0; k < 300; k++) {
            nb_graph *g = NULL;
            strcpy(copy, text);
            for (int n = rand_r(&seed) % 3; n >= 0; n--)
                spoil(copy, strlen(copy), &seed);
            read += nb_graph_parse(copy, &g) == NB_OK;
            nb_error_clear();
            nb_graph_free(g);
        }
        free(copy);
        nb_text_release(text);
        nb_graph_free(r.g);
    }
    assert_true(read > 100);
}

/* Every allocation of reading and printing may fail. */
static bool read_and_print(void *ctx)
{
    const char *text = ctx;
    nb_graph *g = NULL;
    char *copy = nb_graph_parse(text, &g) == NB_OK ? nb_graph_text(g) : NULL;
    bool ok = copy && !strcmp(copy, text);
    nb_text_release(copy);
    nb_graph_free(g);
    return ok;
}

static void reading_may_run_out_of_memory(void **state)
{
    (void)state;
    nb_tensor *x[MOST];
    int nx;
    nb_func *f = sample(16, &nx, x);
    recording r = record(f, nx, x);
    char *text = nb_graph_text(r.g);
    faults starved = {.run = read_and_print, .ctx = text, .bare = true};
    assert_true(faults_survived(&starved));
    nb_text_release(text);
    nb_graph_free(r.g);
}

/* Lines */

static void a_graph_tells_its_lines(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)};
    recording r = record(nb_grad(fn(scanned), 1, (int[]){1}), 2, x);
    nb_line_info l;
    nb_arg arg;
    nb_value v;
    assert_int_equal(nb_graph_inputs(r.g), 2);
    assert_true(nb_graph_line(r.g, 1, &l));
    assert_int_equal(l.kind, NB_LINE_INPUT);
    assert_true(l.rank == 1 && l.size[0] == 5 && l.dtype == NB_F32);
    assert_true(nb_graph_line(r.g, 2, &l));
    assert_int_equal(l.kind, NB_LINE_CALL);
    assert_string_equal(l.op, "scan");
    assert_true(l.nin == 2 && l.in[0] == 0 && l.in[1] == 1);
    assert_true(l.parts && l.nout == 2 && l.regions == 1);
    assert_true(nb_graph_attr(r.g, 2, 2, &arg, &v));
    assert_string_equal(arg.name, "length");
    assert_true(v.kind == NB_VALUE_INT && v.i == 5);
    assert_false(nb_graph_attr(r.g, 2, 4, &arg, &v));
    assert_true(nb_graph_line(r.g, 3, &l));
    assert_true(l.kind == NB_LINE_PART && l.part == 1 && l.in[0] == 2);
    assert_true(nb_graph_line(r.g, 4, &l));
    assert_int_equal(l.kind, NB_LINE_NUMBER);
    assert_true(nb_item(nb_graph_value(r.g, 4)) == 1);
    char *text = nb_graph_number_text(r.g, 4);
    assert_string_equal(text, "1.0:f32");
    nb_text_release(text);
    const nb_graph *body = nb_graph_region(r.g, 2, 0);
    assert_string_equal(nb_graph_region_name(r.g, 2, 0), "body");
    assert_null(nb_graph_region(r.g, 2, 1));
    assert_true(nb_graph_line(body, 2, &l));
    assert_string_equal(l.op, "mul");
    assert_int_equal(nb_graph_result(body, 1), 0);
    assert_int_equal(nb_graph_result(r.g, 0), nb_graph_lines(r.g) - 1);
    assert_false(nb_graph_line(r.g, nb_graph_lines(r.g), &l));
    nb_graph_free(r.g);
}

static void results_are_lines_once_and_in_order(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)}, *y[2];
    int ny = 2;
    assert_int_equal(nb_func_call(fn(scanned), 2, x, &ny, y), NB_OK);
    nb_tensor *z[] = {nb_sin(y[1]), nb_add(y[0], nb_num(1))};
    nb_graph *g = NULL;
    assert_int_equal(nb_graph_of(2, x, 2, z, &g), NB_OK);
    char *text = nb_graph_text(g);
    assert_non_null(strstr(text, "  %v1: f32[], %v2: f32[5] = scan("));
    assert_non_null(strstr(text, "  %v5: f32[5] = sin(%v2)\n"
                                 "  %v6: f32[] = add(%v1, 1.0:f32)\n"));
    nb_text_release(text);
    nb_graph_free(g);
}

static void hidden_sizes_come_innermost_first(void **state)
{
    (void)state;
    int outer = nb_lane_fresh(), inner = nb_lane_fresh();
    nb_tensor *x = filled(3, (int64_t[]){2, 3, 4});
    nb_tensor *y = nb_hide(nb_hide(x, 0, outer), 0, inner);
    nb_graph *g = NULL;
    nb_line_info l;
    assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
    assert_true(nb_graph_line(g, nb_graph_result(g, 0), &l));
    assert_true(l.hidden == 2 && l.hidden_size[0] == 3 &&
                l.hidden_size[1] == 2 && l.rank == 1 && l.size[0] == 4);
    char *type = nb_graph_type_text(g, nb_graph_result(g, 0));
    assert_string_equal(type, "f32[3,2 | 4]");
    char *text = nb_tensor_text(y);
    assert_non_null(strstr(text, " : f32[3,2 | 4]"));
    nb_text_release(type);
    nb_text_release(text);
    nb_graph_free(g);
}

/* Places */

static nb_status placed_step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_source_set("model.c", 7);
    y[0] = nb_mul(x[0], x[1]);
    return *ny = 1, NB_OK;
}

static nb_status placed(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_source_set("model.c", 12);
    nb_status s = nb_scan(nb_func_new(placed_step, NULL), 1, x, 1, x + 1, 0,
                          false, ny, y);
    if (s == NB_OK) y[0] = nb_exp(y[0]);
    return s;
}

static void lines_know_their_place(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)};
    nb_source_set("main.c", 3);
    recording r = record(fn(placed), 2, x);
    nb_tensor *after = nb_neg(x[0]); /* the body's place is over */
    assert_string_equal(nb_source_of(after), "main.c:3");
    assert_string_equal(nb_graph_source(r.g, 2), "model.c:12");
    assert_string_equal(nb_graph_source(nb_graph_region(r.g, 2, 0), 2),
                        "model.c:7");
    char *text = nb_graph_text_with(r.g, NB_TEXT_SOURCES);
    assert_non_null(strstr(text, "xs=1) {  # model.c:12\n"));
    assert_non_null(strstr(text, "mul(%a3, %a4)  # model.c:7\n"));
    assert_non_null(strstr(text, "exp(%v1)  # model.c:12\n"));
    nb_text_release(text);
    nb_graph_free(r.g);
}

/* What a rule records is where the op was; what is run again stays. */
static void derivatives_are_where_the_function_is(void **state)
{
    (void)state;
    nb_tensor *x[] = {scalar(), vector(5)}, *y;
    nb_source_set("main.c", 3);
    recording r = record(nb_grad(fn(placed), 1, (int[]){0}), 2, x);
    char *text = nb_graph_text_with(r.g, NB_TEXT_SOURCES);
    assert_null(strstr(text, "main.c"));
    assert_non_null(strstr(text, "  # model.c:12\n"));
    assert_non_null(strstr(text, "  # model.c:7\n"));
    nb_source_set("other.c", 1);
    assert_int_equal(nb_graph_run(r.g, 2, x, &y), NB_OK);
    assert_int_equal(strncmp(nb_source_of(y), "model.c", 7), 0);
    nb_text_release(text);
    nb_graph_free(r.g);
}

static void a_line_of_c_can_say_so(void **state)
{
    (void)state;
    nb_tensor *x = scalar(), *y = (NB_HERE, nb_sin(x));
    const char *source = nb_source_of(y), *colon = strrchr(source, ':');
    assert_non_null(strstr(source, "test_trace.c:"));
    assert_int_equal(atoi(colon + 1), __LINE__ - 3);
}

static void colours_are_for_terminals(void **state)
{
    (void)state;
    int outer = nb_lane_fresh();
    nb_tensor *x = nb_hide(matrix(2, 3), 0, outer), *y = nb_sin(x);
    nb_graph *g = NULL;
    assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
    char *text = nb_graph_text_with(g, NB_TEXT_COLOURS);
    assert_string_equal(text,
                        "\033[1mfn\033[0m(\n"
                        "  \033[36m%a1\033[0m: f32[\033[90m2 |\033[0m 3],\n"
                        ") {\n"
                        "  \033[36m%v1\033[0m: f32[\033[90m2 |\033[0m 3] = "
                        "sin(\033[36m%a1\033[0m)\n"
                        "  \033[1mreturn\033[0m \033[36m%v1\033[0m\n"
                        "}\n");
    nb_text_release(text);
    nb_graph_free(g);
}

/* Errors */

static nb_status wrong_at_nine(void *ctx, int nx, nb_tensor *const *x, int *ny,
                               nb_tensor **y)
{
    nb_source_set("model.c", 9);
    return wrong_sizes(ctx, nx, x, ny, y);
}

static nb_status wrong_in_scan(void *ctx, int nx, nb_tensor *const *x, int *ny,
                               nb_tensor **y)
{
    (void)ctx, (void)nx;
    return nb_scan(nb_func_new(wrong_at_nine, NULL), 1, x, 0, NULL, 2, false,
                   ny, y);
}

static void notes(nb_func *f, nb_tensor *x, const char *text)
{
    assert_null(nb_func_call1(f, 1, &x));
    assert_int_equal(nb_error_code(), NB_EVALUE);
    assert_int_equal(strncmp(nb_error_message(), "matmul: ", 8), 0);
    assert_null(strstr(nb_error_message(), "inside"));
    assert_string_equal(nb_error_notes(), text);
    nb_error_clear();
    assert_string_equal(nb_error_notes(), "");
}

static void errors_know_the_transforms(void **state)
{
    (void)state;
    nb_tensor *x = matrix(2, 3), *deep = filled(3, (int64_t[]){2, 2, 3});
    notes(fn(wrong_sizes), x, "");
    notes(gradient(fn(wrong_sizes)), x, "inside grad");
    notes(gradient(nb_vmap(fn(wrong_sizes), NULL)), deep,
          "inside vmap, inside grad");
    notes(nb_jacfwd(nb_jacrev(nb_checkpoint(fn(wrong_sizes), NULL), 0), 0), x,
          "inside checkpoint, inside jacrev, inside jacfwd");
    notes(nb_vmap(gradient(fn(wrong_in_scan)), NULL), deep,
          "at model.c:9, inside scan, inside grad, inside vmap");
    notes(fn(wrong_at_nine), x, "at model.c:9");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)
    const struct CMUnitTest tests[] = {
        TEST(a_gradient),
        TEST(hidden_axes_stand_innermost_first),
        TEST(a_scan_and_its_body),
        TEST(results_that_nobody_needs_have_no_name),
        TEST(a_branch_has_two_programs),
        TEST(a_loop_gives_its_states_and_the_test),
        TEST(what_is_captured_is_a_question_mark),
        TEST(numbers_are_as_short_as_they_can_be),
        TEST(every_listing_reads_back),
        TEST(axes_of_inputs_say_which_they_are),
        TEST(a_wrong_text_is_refused),
        TEST(spoiled_texts_do_no_harm),
        TEST(reading_may_run_out_of_memory),
        TEST(a_graph_tells_its_lines),
        TEST(results_are_lines_once_and_in_order),
        TEST(hidden_sizes_come_innermost_first),
        TEST(lines_know_their_place),
        TEST(derivatives_are_where_the_function_is),
        TEST(a_line_of_c_can_say_so),
        TEST(colours_are_for_terminals),
        TEST(errors_know_the_transforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
