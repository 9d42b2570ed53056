/* test_dynamic.c - one executable for any sizes.
 *
 * Every op of the catalogue runs over an axis whose size is open, mapped along
 * it: the one executable gives what the ops give one by one, at each size.  Then
 * the parts: formulas, which sizes are one, when a program is recorded again,
 * what is refused, what memory it takes. */
#include "support/faults.h"
#include "support/there.h"
#include "support/words.h"

#include "backend/cpu/llvm.h"
#include "core/convert.h"
#include "lower/samples.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const word all_words[] = {{"vmap ", 1, {VMAP}},
                                 {"vmap vjp ", 2, {VMAP, VJP}},
                                 {"vmap jvp ", 2, {VMAP, JVP}},
                                 {"vmap scan ", 2, {VMAP, SCAN}}};
enum { NWORDS = sizeof all_words / sizeof all_words[0] };

/* x with m elements along an axis, its own over and over. */
static nb_tensor *resized(nb_tensor *x, int axis, int64_t m)
{
    int64_t n = nb_size(x, axis), *at = nb_alloc((size_t)(m + 1) * sizeof *at);
    for (int64_t i = 0; i < m; i++)
        at[i] = i % n;
    nb_tensor *index = given(NB_I64, 1, &m, at);
    nb_free(at);
    return nb_gather(x, index, axis);
}

static bool agrees_at(const task *t, nb_executable *e, int64_t m)
{
    nb_tensor *x[MAX_ARGS], *want[MAX_ARGS], *got[MAX_ARGS];
    int n = MAX_ARGS, k = MAX_ARGS;
    for (int i = 0; i < t->nin; i++)
        x[i] = t->in_axes[i] < 0 ? t->x[i] : resized(t->x[i], t->in_axes[i], m);
    if (nb_func_call(t->fn, t->nin, x, &n, want) != NB_OK ||
        !nb_realize_now(n, want)) {
        nb_error_clear(); /* not at this size */
        return true;
    }
    bool ok = nb_executable_run(e, t->nin, x, &k, got) == NB_OK && k == n;
    for (int i = 0; ok && i < n; i++)
        ok = near(got[i], want[i], 1e-9);
    return ok;
}

static void agrees(const trial *x)
{
    const char *how = x->how, *name = x->op->name;
    const task *t = x->t;
    static const int64_t sizes[] = {1, 0, 3, 5, 17};
    nb_dynamic_dim dim[MAX_ARGS];
    nb_executable *e = NULL;
    int n = 0;
    for (int i = 0; i < t->nin; i++)
        if (t->in_axes[i] >= 0)
            dim[n++] = (nb_dynamic_dim){i, t->in_axes[i], "n"};
    nb_status s = nb_executable_new_dynamic(t->fn, t->nin, t->x, n, dim, &e);
    if (!expect(s == NB_OK, "%s%s for any size", how, name)) return;
    const char *fixed = nb_executable_fixed(e);
    expect(!*fixed, "%s%s is one for all sizes: %s", how, name, fixed);
    for (size_t k = 0; !*fixed && k < sizeof sizes / sizeof *sizes; k++)
        expect(agrees_at(t, e, sizes[k]), "%s%s at %d", how, name,
               (int)sizes[k]);
    nb_executable_drop(e);
}

/* Formulas */

static int64_t poly(const int64_t *s)
{
    return 3 * s[0] * s[1] * s[1] - 7 * s[0] + s[1] * s[1] - 5;
}

static void polynomials_are_found(void)
{
    nb_samples s;
    int64_t value[NB_MAX_POINTS], coef[NB_MAX_TERMS], term[NB_MAX_TERMS];
    nb_samples_init(&s, 2);
    for (int p = 0; p < s.npoints; p++)
        value[p] = poly(s.size[p]);
    expect(nb_formula_fit(&s, value, coef), "a polynomial of two sizes");
    for (int64_t a = 0; a < 9; a++) {
        int64_t size[] = {a * a * 1000, 8 - a};
        nb_terms_at(&s, size, term);
        expect(nb_formula_at(&s, coef, term) == poly(size), "at %d", (int)a);
    }
    for (int p = 0; p < s.npoints; p++)
        value[p] = (s.size[p][0] + 63) / 64;
    expect(!nb_formula_fit(&s, value, coef), "a rounded division is none");
    for (int p = 0; p < s.npoints; p++)
        value[p] = s.size[p][0] * s.size[p][0] * s.size[p][0];
    expect(!nb_formula_fit(&s, value, coef), "nor is a third power");
    nb_samples_init(&s, NB_MAX_SYMBOLS);
    expect(s.nterms == NB_MAX_TERMS, "there is room for all terms");
}

static bool figure_is(nb_dtype dtype, double (*f)(double))
{
    nb_samples s;
    nb_figure x;
    int64_t bits[NB_MAX_POINTS] = {0}, term[NB_MAX_TERMS], want = 0;
    nb_samples_init(&s, 1);
    for (int p = 0; p < s.npoints; p++) {
        double v = f((double)s.size[p][0]);
        nb_convert(&bits[p], dtype, 1, &v, NB_F64, 1, 1);
    }
    if (!nb_figure_fit(&x, &s, dtype, bits)) return false;
    double v = f(12);
    nb_convert(&want, dtype, 1, &v, NB_F64, 1, 1);
    nb_terms_at(&s, (int64_t[]){12}, term);
    return nb_figure_at(&x, &s, term) == want;
}

static double square(double n)
{
    return n * n - 1;
}
static double inverse(double n)
{
    return 1 / (n - 1);
}
static double twice_inverse(double n)
{
    return -2 / (n * n);
}
static double root(double n)
{
    return sqrt(n + 3);
}
static double inverse_root(double n)
{
    return 1 / sqrt(n);
}

static void figures_are_found(void)
{
    for (int k = 0; k < 2; k++) {
        nb_dtype d = k ? NB_F64 : NB_F32;
        expect(figure_is(d, square), "a polynomial");
        expect(figure_is(d, inverse), "one over it");
        expect(figure_is(d, twice_inverse), "minus two over it");
        expect(figure_is(d, root), "a root");
        expect(figure_is(d, inverse_root), "one over a root");
        expect(!figure_is(d, log), "a logarithm is not found");
    }
    expect(figure_is(NB_I64, square), "a whole number");
}

/* Functions of sizes */

typedef struct about {
    int recorded;
    int64_t turn; /* something else is computed below this size */
} about;

/* The mean of the squares of the rows, and the rows less their mean. */
static nb_status centre(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    about *a = ctx;
    int64_t n = nb_size(x[0], 0);
    (void)nx;
    a->recorded++;
    nb_tensor *mean = nb_mean(x[0], 1, (int64_t[]){0}, true);
    y[0] = nb_sub(x[0], mean);
    if (n < a->turn) y[0] = nb_exp(y[0]);
    y[1] = nb_div(nb_reduce_sum(nb_mul(x[0], x[0]), -1, NULL, false),
                  nb_num((double)n));
    return *ny = 2, NB_OK;
}

static nb_tensor *rows(int64_t n)
{
    return draw(2, (int64_t[]){n, 3}, -1, 1);
}

static int64_t made; /* how much code runs_at has made */

static bool runs_at(nb_executable *e, nb_func *f, int64_t n)
{
    nb_tensor *x = rows(n), *got[2], *want[2];
    int ny = 2, nw = 2;
    bool ok = nb_realize(x) == NB_OK;
    int64_t before = nb_cache_stats_get().misses;
    ok = ok && nb_executable_run(e, 1, &x, &ny, got) == NB_OK;
    made += nb_cache_stats_get().misses - before;
    return ok && nb_func_call(f, 1, &x, &nw, want) == NB_OK &&
           near(got[0], want[0], 1e-9) && near(got[1], want[1], 1e-9);
}

static nb_executable *for_any(nb_func *f, nb_tensor *x)
{
    nb_executable *e = NULL;
    nb_dynamic_dim dim = {0, -2, "n"};
    if (nb_executable_new_dynamic(f, 1, &x, 1, &dim, &e) != NB_OK) return NULL;
    return e;
}

static void code_is_made_once(void)
{
    about a = {0};
    nb_func *f = nb_func_new(centre, &a);
    nb_executable *e = for_any(f, rows(4));
    runs_at(e, f, 4);
    made = 0;
    for (int64_t n = 1; n < 300; n += 23)
        expect(runs_at(e, f, n), "rows %d", (int)n);
    expect(made == 0, "no code was made");
    nb_executable_drop(e);
}

static void sizes_beyond_those_seen_are_recorded(void)
{
    about a = {0};
    nb_func *f = nb_func_new(centre, &a);
    nb_tensor *x = rows(40), *y[2];
    int ny = 2;
    nb_executable *e = for_any(f, x);
    int n = a.recorded;
    for (int64_t k = 41; k < 60; k++)
        x = rows(k), ny = 2, nb_executable_run(e, 1, &x, &ny, y);
    expect(a.recorded == n, "sizes between those seen are not");
    x = rows(7), ny = 2, nb_executable_run(e, 1, &x, &ny, y);
    expect(a.recorded == n + 1, "a smaller one is");
    x = rows(9), ny = 2, nb_executable_run(e, 1, &x, &ny, y);
    expect(a.recorded == n + 1, "then those in between are not");
    x = rows(9000), ny = 2, nb_executable_run(e, 1, &x, &ny, y);
    expect(a.recorded == n + 2, "a larger one is");
    nb_executable_drop(e);
}

static void another_program_at_some_sizes_is_run(void)
{
    about a = {.turn = 10};
    nb_func *f = nb_func_new(centre, &a);
    nb_executable *e = for_any(f, rows(20));
    expect(!*nb_executable_fixed(e), "large sizes agree");
    for (int64_t n = 1; n < 30; n += 4)
        expect(runs_at(e, f, n), "%d rows", (int)n);
    nb_executable_drop(e);
}

static nb_status unrolled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    int64_t n = nb_size(x[0], 0) % 7;
    y[0] = x[0];
    for (int64_t i = 0; i < n; i++)
        y[0] = nb_sin(y[0]);
    return *ny = 1, NB_OK;
}

static void programs_of_other_forms_are_fixed(void)
{
    nb_func *f = nb_func_new(unrolled, NULL);
    nb_compile_options o = {.ndynamic = 1,
                            .dynamic = (nb_dynamic_dim[]){{0, 0, "n"}}};
    nb_func *c = nb_compile(f, &o);
    nb_executable *e = for_any(f, rows(4));
    expect(strstr(nb_executable_fixed(e), "different ops"), "and say why");
    nb_executable_drop(e);
    for (int64_t n = 1; n < 6; n++) {
        nb_tensor *x = rows(n);
        expect(near(nb_func_call1(c, 1, &x), nb_func_call1(f, 1, &x), 1e-9),
               "each size is compiled, %d", (int)n);
    }
    nb_compile_stats s;
    expect(nb_compile_stats_of(c, &s) == NB_OK && s.misses == 5 && !s.hits,
           "and counted");
}

static void a_new_size_is_a_hit(void)
{
    about a = {0};
    nb_compile_options o = {.ndynamic = 1,
                            .dynamic = (nb_dynamic_dim[]){{0, 0, "n"}}};
    nb_func *c = nb_compile(nb_func_new(centre, &a), &o);
    for (int64_t n = 1; n < 6; n++) {
        nb_tensor *x = rows(n), *y[2];
        int ny = 2;
        expect(nb_func_call(c, 1, &x, &ny, y) == NB_OK, "rows %d", (int)n);
    }
    nb_compile_stats s;
    expect(nb_compile_stats_of(c, &s) == NB_OK && s.misses == 1 &&
               s.hits == 4 && s.cache_size == 1,
           "one miss, one executable");
}

FN(joined, nb_matmul(x[0], x[1]))

static bool refused_dims(int n, const nb_dynamic_dim *d, const char *part)
{
    nb_tensor *x[] = {draw(2, (int64_t[]){2, 3}, -1, 1),
                      draw(2, (int64_t[]){3, 4}, -1, 1)};
    nb_executable *e = NULL;
    bool failed = nb_executable_new_dynamic(nb_func_new(joined, NULL), 2, x, n,
                                            d, &e) != NB_OK;
    return failed_with(NB_EVALUE, part) && failed;
}

static void bad_dims_are_refused(void)
{
    nb_dynamic_dim k[] = {{0, 1, "k"}, {1, 0, "k"}};
    nb_tensor *x[] = {draw(2, (int64_t[]){2, 3}, -1, 1),
                      draw(2, (int64_t[]){3, 4}, -1, 1)};
    nb_tensor *z = draw(2, (int64_t[]){5, 4}, -1, 1), *y;
    nb_executable *e = NULL;
    int ny = 1;
    expect(refused_dims(1, (nb_dynamic_dim[]){{2, 0, "n"}}, "there are 2"),
           "no such argument");
    expect(refused_dims(1, (nb_dynamic_dim[]){{0, 2, "n"}}, "which has 2"),
           "no such axis");
    expect(refused_dims(2, (nb_dynamic_dim[]){{0, 0, "n"}, {1, 0, "n"}},
                        "'n' is 2 and"),
           "two sizes of one name");
    expect(refused_dims(2, (nb_dynamic_dim[]){{0, 0, "n"}, {0, -2, "m"}},
                        "named twice"),
           "two names of one size");
    expect(nb_executable_new_dynamic(nb_func_new(joined, NULL), 2, x, 2, k,
                                     &e) == NB_OK,
           "sizes that are one");
    x[1] = z;
    FAILS("stay one", nb_executable_run(e, 2, x, &ny, &y) == NB_OK, NB_EVALUE,
          "'k' is 3 and, in argument 1, 5");
    x[0] = draw(2, (int64_t[]){3, 5}, -1, 1);
    FAILS("and the others fixed", nb_executable_run(e, 2, x, &ny, &y) == NB_OK,
          NB_EVALUE, "compiled for");
    x[0] = draw(2, (int64_t[]){2, 5}, -1, 1);
    ny = 1;
    expect(nb_executable_run(e, 2, x, &ny, &y) == NB_OK &&
               near(y, nb_matmul(x[0], x[1]), 1e-9),
           "another size of both");
    nb_executable_drop(e);
}

static void memory_follows_the_size(void)
{
    about a = {0};
    nb_func *f = nb_func_new(centre, &a);
    nb_executable *e = for_any(f, rows(10));
    nb_memory_plan ten = nb_executable_memory(e);
    runs_at(e, f, 20);
    nb_memory_plan twenty = nb_executable_memory(e);
    expect(ten.arguments == 240 && twenty.arguments == 480, "arguments");
    expect(twenty.results - ten.results == 240, "results");
    nb_executable_drop(e);
}

FN(doubled, nb_mul(x[0], nb_num(2)))

static void donated_memory_is_taken(void)
{
    nb_tensor *x = rows(4);
    nb_executable *e = for_any(nb_func_new(doubled, NULL), x);
    expect(nb_executable_donate(e, 1, (int[]){0}) == NB_OK, "it may");
    for (int64_t n = 4; n < 7; n++) {
        nb_tensor *z = rows(n), *y;
        int ny = 1;
        nb_realize(z);
        const void *data = nb_device_data(z, NULL);
        expect(nb_executable_run(e, 1, &z, &ny, &y) == NB_OK &&
                   nb_device_data(y, NULL) == data,
               "at %d", (int)n);
    }
    nb_executable_drop(e);
}

typedef struct sized {
    nb_func *f, *compiled;
    nb_tensor *x, *z;
} sized;

static bool call_at(nb_func *f, nb_tensor *x)
{
    nb_tensor *y[2];
    int ny = 2;
    return nb_func_call(f, 1, &x, &ny, y) == NB_OK;
}

static bool called_at_both(void *ctx)
{
    sized *s = ctx;
    nb_compile_options o = {.ndynamic = 1,
                            .dynamic = (nb_dynamic_dim[]){{0, 0, "n"}}};
    s->compiled = nb_compile(s->f, &o);
    return s->compiled && call_at(s->compiled, s->x) &&
           call_at(s->compiled, s->z);
}

static bool called_again(void *ctx)
{
    const sized *s = ctx;
    return !s->compiled || call_at(s->compiled, s->z);
}

static void calls_survive_faults(void)
{
    about a = {0};
    sized s = {.f = nb_func_new(centre, &a), .x = rows(5), .z = rows(6)};
    faults f = {called_at_both, &s, .holds = called_again, .keeps = true};
    f.sparse = 40;
    expect(faults_survived(&f),
           "a failed allocation fails the call, not the next");
}

static void sentences(void)
{
    void (*const all[])(void) = {polynomials_are_found,
                                 figures_are_found,
                                 code_is_made_once,
                                 sizes_beyond_those_seen_are_recorded,
                                 another_program_at_some_sizes_is_run,
                                 programs_of_other_forms_are_fixed,
                                 a_new_size_is_a_hit,
                                 bad_dims_are_refused,
                                 memory_follows_the_size,
                                 donated_memory_is_taken,
                                 calls_survive_faults};
    none_leaks(sizeof all / sizeof all[0], all);
}

int main(int argc, char **argv)
{
    there_open();
    if (!there_is_card() && !nb_llvm_there())
        return printf("no LLVM here\n"), 77;
    nb_op *op;
    for (int i = 0; (op = nb_op_at(i)); i++) {
        if (argc < 2 || !strcmp(argv[1], op->name))
            words_each(op, NWORDS, all_words, agrees);
    }
    if (there_leads()) sentences();
    return tally();
}
