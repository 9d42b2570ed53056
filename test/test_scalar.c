/* test_scalar.c - arithmetic in compiled code, row by row of scalars.def.
 *
 * Each row and dtype is a kernel of vectors and one of single numbers.  What
 * is exact is compared with the reference backend bit by bit, and functions
 * with long double, in units of the last place; the largest error of each is
 * printed.  Conversions are compared with core/convert.c, of 16-bit floats all
 * there are. */
#include "backend/cpu/cache.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/llvm.h"
#include "backend/cpu/scalar.h"
#include "backend/ref/scalars.h"
#include "core/convert.h"
#include "lower/nest.h"
#include "support/faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 16, MOST_LANES = 32 };
static int passed, failed;
static const char *only; /* one row, from the command line */

static bool expect(bool ok, const char *what, const char *type)
{
    ok ? passed++ : failed++;
    if (!ok) printf("FAIL %s %s %s\n", what, type, nb_error_message());
    nb_error_clear();
    return ok;
}

/* The table, as data. */

enum { T1, T2, T3, C2, C1, B1, B2, SEL };
static const struct {
    const char *name;
    int form;
} rows[NB_S_count] = {
    {"", 0},
#define SCALAR(name, form, types, cost, f, i) {#name, form},
#include "core/scalars.def"
};

static int operands(int form)
{
    static const int by[] = {1, 2, 3, 2, 1, 1, 2, 3};
    return by[form];
}

static nb_dtype operand_type(int form, int i, nb_dtype d)
{
    return form == B1 || form == B2 || (form == SEL && i == 0) ? NB_BOOL : d;
}

static nb_dtype result_type(int form, nb_dtype d)
{
    return form == T1 || form == T2 || form == T3 || form == SEL ? d : NB_BOOL;
}

/* The functions that need not be exact, and what they should be. */
typedef long double real;
typedef struct function {
    nb_scalar s;
    real (*one)(real);
    real (*two)(real, real);
    double worst[2]; /* f32, f64 */
} function;
static function functions[] = {
    {NB_S_exp, .one = expl},     {NB_S_exp2, .one = exp2l},
    {NB_S_expm1, .one = expm1l}, {NB_S_log, .one = logl},
    {NB_S_log2, .one = log2l},   {NB_S_log10, .one = log10l},
    {NB_S_log1p, .one = log1pl}, {NB_S_sin, .one = sinl},
    {NB_S_cos, .one = cosl},     {NB_S_tan, .one = tanl},
    {NB_S_asin, .one = asinl},   {NB_S_acos, .one = acosl},
    {NB_S_atan, .one = atanl},   {NB_S_sinh, .one = sinhl},
    {NB_S_cosh, .one = coshl},   {NB_S_tanh, .one = tanhl},
    {NB_S_asinh, .one = asinhl}, {NB_S_acosh, .one = acoshl},
    {NB_S_atanh, .one = atanhl}, {NB_S_erf, .one = erfl},
    {NB_S_erfc, .one = erfcl},   {NB_S_pow, .two = powl},
    {NB_S_atan2, .two = atan2l}, {NB_S_hypot, .two = hypotl},
};

static function *function_of(nb_scalar s, nb_dtype d)
{
    if (!nb_dtype_is_float(d)) return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].s == s) return &functions[i];
    return NULL;
}

/* Numbers to try: all that is special, then all magnitudes, then the common
 * ones. */

static uint64_t state = 88172645463325252;
static uint64_t bits64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double unit(void)
{
    return (double)(bits64() >> 11) * 0x1p-53;
}

static const double special[] = {0.0,
                                 -0.0,
                                 1,
                                 -1,
                                 0.5,
                                 -0.5,
                                 2,
                                 -2,
                                 3,
                                 -3,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 0x1p-149,
                                 -0x1p-149,
                                 0x1p-126,
                                 -0x1p-126,
                                 0x1p-1074,
                                 -0x1p-1074,
                                 0x1p-1022,
                                 0x1.fp-130,
                                 0x1.fp-1030,
                                 0x1.fffffep127,
                                 -0x1.fffffep127,
                                 0x1.fffffffffffffp1023,
                                 -0x1.fffffffffffffp1023,
                                 1e10,
                                 -1e10,
                                 1e22,
                                 88.72,
                                 88.73,
                                 89.4,
                                 -87.3,
                                 -103.9,
                                 -104,
                                 709.78,
                                 709.79,
                                 710.4,
                                 -745.1,
                                 -745.2,
                                 127.99,
                                 128,
                                 -149,
                                 -149.5,
                                 -150,
                                 1023.99,
                                 1024,
                                 -1074,
                                 -1075,
                                 0.625,
                                 0.9,
                                 1.5,
                                 2.5,
                                 8192,
                                 8193,
                                 1e6,
                                 1000001,
                                 12345678,
                                 0.99999994,
                                 1.0000001,
                                 -0.99999994};
enum { NSPECIAL = sizeof special / sizeof *special };

static double number(int i)
{
    if (i < NSPECIAL * NSPECIAL) return special[i % NSPECIAL];
    double sign = bits64() & 1 ? -1 : 1, r = unit();
    switch (bits64() % 7) {
    case 0: return sign * ldexp(1 + r, (int)(bits64() % 256) - 128);
    case 1: return sign * ldexp(1 + r, (int)(bits64() % 60) - 30);
    case 2: return sign * 100 * r;
    case 3: return sign * 10 * r;
    case 4: return sign * r;
    case 5: return sign * M_PI_2 * (double)(bits64() >> 49);
    default: return sign * (1 + (r - 0.5) * ldexp(1, -(int)(bits64() % 24)));
    }
}

/* Any bits now and then, but for NaNs that signal. */
static double wide_number(int i)
{
    union {
        uint64_t u;
        double f;
    } any = {.u = bits64()};
    if (i < NSPECIAL * NSPECIAL || bits64() % 8) return number(i);
    return isnan(any.f) ? NAN : any.f;
}

static void fill_integers(uint64_t *to, int operand)
{
    for (int i = 0; i < N; i++) {
        uint64_t any = bits64(), small = bits64() % 140 - 70;
        uint64_t edge = (1ull << (bits64() % 64)) + bits64() % 3 - 1;
        uint64_t kind = (uint64_t)(i >> (2 * operand)) & 3;
        to[i] = kind == 0 ? any : kind == 1 ? edge : small;
    }
}

static void fill(void *to, nb_dtype d, int operand)
{
    static uint64_t wide[N];
    static double numbers[N];
    if (!nb_dtype_is_float(d)) {
        fill_integers(wide, operand);
        for (int i = 0; d == NB_BOOL && i < N; i++)
            wide[i] = wide[i] >> 3 & 1;
        nb_convert(to, d, 1, wide, NB_I64, 1, N);
        return;
    }
    for (int i = 0; i < N; i++) {
        int j = operand == 1 && i < NSPECIAL * NSPECIAL ? i / NSPECIAL : i;
        numbers[i] = d == NB_F64 ? wide_number(j) : number(j);
    }
    nb_convert(to, d, 1, numbers, NB_F64, 1, N);
}

/* Kernels */

typedef void kernel(void *y, const void *a, const void *b, const void *c,
                    int64_t n);

typedef struct loop {
    nb_ir *ir;
    nb_ir_loop l;
    nb_v y, x[3], i;
} loop;

static void begin(loop *p, nb_ir *ir, const char *name, int lanes)
{
    static const nb_irt types[] = {NB_IR_PTR, NB_IR_PTR, NB_IR_PTR, NB_IR_PTR,
                                   NB_IR_I64};
    nb_v arg[5];
    p->ir = ir;
    nb_ir_begin(ir, name, 5, types, arg);
    p->y = arg[0];
    memcpy(p->x, arg + 1, sizeof p->x);
    p->i = nb_ir_for(ir, &p->l, nb_ir_int(NB_IR_I64, 0), arg[4],
                     nb_ir_int(NB_IR_I64, lanes), 0, NULL);
}

static nb_v operand(loop *p, int k, nb_dtype d, int lanes)
{
    nb_v at = nb_ir_at(p->ir, p->x[k], nb_irt_in_memory(d), p->i);
    return nb_emit_load(p->ir, at, d, lanes, NULL);
}

static void end(loop *p, nb_dtype d, nb_v y)
{
    nb_v at = nb_ir_at(p->ir, p->y, nb_irt_in_memory(d), p->i);
    nb_emit_store(p->ir, at, d, y, NULL);
    nb_ir_next(p->ir, &p->l);
    nb_ir_end(p->ir);
}

static nb_code *build(nb_ir *ir, const char *what, const char *type)
{
    char *text = nb_ir_module(ir);
    nb_code *code = text ? nb_code_build(text) : NULL;
    if (!code && text && getenv("SHOW")) puts(text);
    nb_free(text);
    nb_ir_free(ir);
    expect(code, what, type);
    return code;
}

/* With a number as the second operand, in place of what is in memory. */
static const double *second;

static void write_row(nb_ir *ir, nb_scalar s, nb_dtype d, int lanes)
{
    char name[64];
    nb_v x[3] = {0};
    loop p;
    int form = rows[s].form;
    snprintf(name, sizeof name, "%s_%d", rows[s].name, lanes);
    begin(&p, ir, name, lanes);
    for (int k = 0; k < operands(form); k++)
        x[k] = operand(&p, k, operand_type(form, k, d), lanes);
    if (second && operands(form) > 1)
        x[1] = nb_emit_const(operand_type(form, 1, d), *second);
    end(&p, result_type(form, d), nb_emit_scalar(ir, s, d, x[0], x[1], x[2]));
}

/* Comparing */

static double as_double(const char *at, nb_dtype d, int i)
{
    return nb_read_f64(at + (size_t)i * nb_dtype_size(d), d);
}

/* How far y is from what it should be, in units of its last place. */
static double ulps(double y, real want, nb_dtype d)
{
    double most = d == NB_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    int digits = d == NB_F32 ? 24 : 53, least = d == NB_F32 ? -149 : -1074;
    if (want != want || y != y) return (want != want) == (y != y) ? 0 : 1e9;
    if (!signbit(y) != !signbit(want) && (y == 0 || want == 0)) return 1e9;
    if (want == 0) return y == 0 ? 0 : 1e9;
    if (isinf(y)) y = copysign(most, y);
    if (fabsl(want) > most) want = copysignl(most, want);
    int e = ilogbl(want) - digits + 1;
    return (double)(fabsl(y - want) / ldexpl(1, e < least ? least : e));
}

static bool same(const char *y, const char *want, nb_dtype d, int i)
{
    size_t bytes = nb_dtype_size(d);
    const char *p = y + (size_t)i * bytes, *q = want + (size_t)i * bytes;
    if (!memcmp(p, q, bytes)) return true;
    return nb_dtype_is_float(d) && isnan(as_double(y, d, i)) &&
           isnan(as_double(want, d, i));
}

typedef struct trial {
    nb_scalar s;
    nb_dtype d;
    char *x[3], *y, *want;
} trial;

static void show(const trial *t, int i, nb_dtype to)
{
    printf("  ");
    for (int k = 0; k < operands(rows[t->s].form); k++) {
        nb_dtype d = operand_type(rows[t->s].form, k, t->d);
        printf("%a (%.9g) ", as_double(t->x[k], d, i),
               as_double(t->x[k], d, i));
    }
    printf("gives %a (%.9g), not %a\n", as_double(t->y, to, i),
           as_double(t->y, to, i), as_double(t->want, to, i));
}

static bool exact(const trial *t)
{
    nb_dtype to = result_type(rows[t->s].form, t->d);
    for (int i = 0; i < N; i++) {
        if (same(t->y, t->want, to, i)) continue;
        double fused =
            fma(as_double(t->x[0], t->d, i), as_double(t->x[1], t->d, i),
                as_double(t->x[2], t->d, i));
        if (t->d == NB_F32)
            fused = fmaf((float)as_double(t->x[0], t->d, i),
                         (float)as_double(t->x[1], t->d, i),
                         (float)as_double(t->x[2], t->d, i));
        double y = as_double(t->y, to, i);
        if (t->s == NB_S_fma && nb_dtype_is_float(to) && y == fused) continue;
        return show(t, i, to), false;
    }
    return true;
}

/* Some of f64 are the C library's, which allows itself more. */
static double bound(const trial *t)
{
    bool library = t->s == NB_S_asinh || t->s == NB_S_acosh ||
                   t->s == NB_S_atanh || t->s == NB_S_erfc;
    return library && t->d == NB_F64 ? 4 : 2;
}

static bool close(const trial *t, function *f)
{
    double worst = 0;
    int where = 0;
    for (int i = 0; i < N; i++) {
        double a = as_double(t->x[0], t->d, i), b = as_double(t->x[1], t->d, i);
        real want = f->one ? f->one(a) : f->two(a, b);
        double e = ulps(as_double(t->y, t->d, i), want, t->d);
        if (e > worst) worst = e, where = i;
    }
    double *all = &f->worst[t->d == NB_F64];
    if (worst > *all) *all = worst;
    if (worst <= bound(t)) return true;
    printf("  %.3g ulp: ", worst);
    return show(t, where, t->d), false;
}

static void try_row(const trial *t, const nb_code *code, int lanes)
{
    char name[64], what[96];
    function *f = function_of(t->s, t->d);
    snprintf(name, sizeof name, "%s_%d", rows[t->s].name, lanes);
    kernel *run = (kernel *)nb_code_find(code, name);
    nb_scalar_run(t->s, t->d)(t->want, t->x[0], t->x[1], t->x[2], N);
    memset(t->y, 0xcc, N * nb_dtype_size(t->d));
    if (run) run(t->y, t->x[0], t->x[1], t->x[2], N);
    snprintf(what, sizeof what, "%s is right", name);
    expect(run && (f ? close(t, f) : exact(t)), what, nb_dtype_brief(t->d));
}

static char *room(void)
{
    char *p = aligned_alloc(64, N * 8);
    if (!p) exit(1);
    return p;
}

static void rows_hold(nb_dtype d, int lanes)
{
    nb_ir ir = {0};
    trial t = {.d = d};
    for (int k = 0; k < 5; k++)
        *(k < 3 ? &t.x[k] : k == 3 ? &t.y : &t.want) = room();
    for (int s = 1; s < NB_S_count; s++) {
        if (only && strcmp(only, rows[s].name)) continue;
        if (nb_scalar_run((nb_scalar)s, d))
            write_row(&ir, (nb_scalar)s, d, lanes);
    }
    nb_code *code = build(&ir, "rows compile", nb_dtype_brief(d));
    for (int s = 1; code && s < NB_S_count; s++) {
        if (only && strcmp(only, rows[s].name)) continue;
        if (!nb_scalar_run((nb_scalar)s, d)) continue;
        for (int k = 0; k < 3; k++)
            fill(t.x[k], operand_type(rows[s].form, k, d), k);
        if (second)
            nb_convert(t.x[1], operand_type(rows[s].form, 1, d), 1, second,
                       NB_F64, 0, N);
        t.s = (nb_scalar)s;
        try_row(&t, code, lanes);
    }
    nb_code_drop(code);
    for (int k = 0; k < 5; k++)
        free(k < 3 ? t.x[k] : k == 3 ? t.y : t.want);
}

/* Conversions */

static void write_convert(nb_ir *ir, nb_dtype from, nb_dtype to, int lanes)
{
    char name[64];
    loop p;
    snprintf(name, sizeof name, "to_%s", nb_dtype_brief(to));
    begin(&p, ir, name, lanes);
    nb_v x = operand(&p, 0, from, lanes);
    end(&p, to, nb_emit_convert(ir, x, from, to));
}

static bool converts(const nb_code *code, nb_dtype from, nb_dtype to,
                     const char *x, char *y, char *want)
{
    char name[64];
    snprintf(name, sizeof name, "to_%s", nb_dtype_brief(to));
    kernel *run = (kernel *)nb_code_find(code, name);
    if (!run) return false;
    nb_convert(want, to, 1, x, from, 1, N);
    run(y, x, x, x, N);
    for (int i = 0; i < N; i++) {
        size_t bytes = nb_dtype_size(to);
        if (!memcmp(y + (size_t)i * bytes, want + (size_t)i * bytes, bytes))
            continue;
        printf("  %a gives %a, not %a\n", as_double(x, from, i),
               as_double(y, to, i), as_double(want, to, i));
        return false;
    }
    return true;
}

/* Of 16-bit floats, all; of wider ones many that lie halfway between two. */
static void fill_convert(char *x, nb_dtype from)
{
    fill(x, from, 0);
    for (int i = 0; i < N; i++) {
        if (from == NB_F16 || from == NB_BF16) ((uint16_t *)x)[i] = (uint16_t)i;
        if (from == NB_F32 && i % 4 == 0)
            ((uint32_t *)x)[i] =
                (uint32_t)bits64() & (i % 8 ? 0xfffff000u : 0xffffffffu);
        if (from == NB_F64 && i % 4 == 0)
            ((uint64_t *)x)[i] = bits64() & (i % 8 ? ~0ull << 41 : ~0ull);
    }
}

static void conversions_hold(nb_dtype from, int lanes)
{
    nb_ir ir = {0};
    char *x = room(), *y = room(), *want = room();
    for (int to = 1; to < NB_NDTYPES; to++)
        write_convert(&ir, from, (nb_dtype)to, lanes);
    nb_code *code = build(&ir, "conversions compile", nb_dtype_brief(from));
    fill_convert(x, from);
    for (int to = 1; code && to < NB_NDTYPES; to++) {
        char what[64];
        snprintf(what, sizeof what, "to %s by %d from",
                 nb_dtype_brief((nb_dtype)to), lanes);
        expect(converts(code, from, (nb_dtype)to, x, y, want), what,
               nb_dtype_brief(from));
    }
    nb_code_drop(code);
    free(x), free(y), free(want);
}

/* Reductions */

static void write_fold(nb_ir *ir, nb_reduce r, nb_dtype d, int lanes)
{
    char name[64];
    static const nb_irt types[] = {NB_IR_PTR, NB_IR_PTR, NB_IR_PTR, NB_IR_PTR,
                                   NB_IR_I64};
    nb_v arg[5], x, start;
    snprintf(name, sizeof name, "fold_%d", (int)r);
    nb_ir_begin(ir, name, 5, types, arg);
    x = nb_emit_load(ir, arg[1], d, lanes, NULL);
    start = nb_ir_splat(ir, nb_emit_neutral(r, d), lanes);
    x = nb_emit_fold(ir, r, d, nb_emit_combine(ir, r, d, start, x));
    nb_emit_store(ir, arg[0], d, x, NULL);
    nb_ir_end(ir);
}

/* Halves onto halves with the reference's own operation. */
static bool folds(const nb_code *code, nb_reduce r, nb_dtype d, int lanes)
{
    char name[64], *x = room(), *y = room(), want[MOST_LANES * 8];
    size_t bytes = nb_dtype_size(d);
    snprintf(name, sizeof name, "fold_%d", (int)r);
    kernel *run = (kernel *)nb_code_find(code, name);
    bool ok = run;
    fill(x, d, 0);
    for (int i = 0; ok && i + lanes <= N; i += lanes) {
        char *at = x + (size_t)i * bytes;
        memcpy(want, at, (size_t)lanes * bytes);
        for (int w = lanes / 2; w > 0; w /= 2)
            nb_scalar_run(nb_reduce_scalar(r),
                          d)(want, want, want + (size_t)w * bytes, want, w);
        run(y, at, at, at, 0);
        /* 0 + -0 is 0, and a lone -0 may come out so. */
        ok = same(y, want, d, 0) ||
             (nb_dtype_is_float(d) && as_double(y, d, 0) == 0 &&
              as_double(want, d, 0) == 0);
    }
    free(x), free(y);
    return ok;
}

static void reductions_hold(nb_dtype d, int lanes)
{
    nb_ir ir = {0};
    for (int r = NB_SUM; r <= NB_OR; r++)
        write_fold(&ir, (nb_reduce)r, d, lanes);
    nb_code *code = build(&ir, "folds compile", nb_dtype_brief(d));
    for (int r = NB_SUM; code && r <= NB_OR; r++) {
        char what[64];
        snprintf(what, sizeof what, "fold %d of %d", r, lanes);
        expect(folds(code, (nb_reduce)r, d, lanes), what, nb_dtype_brief(d));
    }
    nb_code_drop(code);
}

static bool module_written(void *unused)
{
    nb_ir ir = {0};
    write_row(&ir, NB_S_sin, NB_F32, 16);
    write_row(&ir, NB_S_mod, NB_F32, 16);
    char *text = nb_ir_module(&ir);
    (void)unused;
    nb_free(text);
    nb_ir_free(&ir);
    return text;
}

static void memory_runs_out(void)
{
    faults f = {.run = module_written, .bare = true};
    expect(faults_survived(&f), "memory may run out anywhere", "");
}

static void print_worst(void)
{
    printf("largest errors in ulp: f32, f64\n");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        printf("  %-8s %.3f  %.3f\n", rows[functions[i].s].name,
               functions[i].worst[0], functions[i].worst[1]);
}

int main(int argc, char **argv)
{
    static const int widths[] = {1, 4, 16, MOST_LANES};
    only = argc > 1 ? argv[1] : NULL;
    if (!nb_llvm_there()) return puts("no LLVM: nothing tested"), 77;
    for (int d = 1; d < NB_NDTYPES; d++)
        for (int w = 0; w < 4; w++) {
            bool compute = nb_compute_type((nb_dtype)d) == (nb_dtype)d;
            if (compute) rows_hold((nb_dtype)d, widths[w]);
            if (only) continue;
            if (compute) reductions_hold((nb_dtype)d, widths[w]);
            conversions_hold((nb_dtype)d, widths[w]);
        }
    static const double seconds[] = {0, 2, 3, -1, 0.5};
    for (int d = 1; d < NB_NDTYPES; d++)
        for (int i = 0; i < 5; i++) {
            second = &seconds[i];
            if (nb_compute_type((nb_dtype)d) == (nb_dtype)d)
                rows_hold((nb_dtype)d, 8);
        }
    second = NULL;
    memory_runs_out();
    print_worst();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
