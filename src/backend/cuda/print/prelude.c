/* prelude.c - the functions that kernels call, from the tables of the engine:
 * an instruction is its row in scalars.def, whose text is C for any target. */
#include "backend/cuda/print/prelude.h"

#include "base/half.h"
#include "core/convert.h"

#include <math.h>
#include <string.h>

typedef enum form { T1, T2, T3, C1, C2, B1, B2, SEL } form;

static const struct {
    form form;
    const char *real, *whole;
} rows[] = {
    {T1, "", ""},
#define SCALAR(name, form, types, cost, f, i) {form, #f, #i},
#include "core/scalars.def"
};

/* By dtype: the type in registers, in memory, one without a sign of its width,
 * and one in which it multiplies without overflow. */
static const struct {
    const char *type, *stored, *plain, *wide;
} types[NB_NDTYPES] = {[NB_BOOL] = {"b1", "u8", "u8", "u32"},
                       [NB_I8] = {"i8", "i8", "u8", "u32"},
                       [NB_I16] = {"i16", "i16", "u16", "u32"},
                       [NB_I32] = {"i32", "i32", "u32", "u32"},
                       [NB_I64] = {"i64", "i64", "u64", "u64"},
                       [NB_U8] = {"u8", "u8", "u8", "u32"},
                       [NB_U16] = {"u16", "u16", "u16", "u32"},
                       [NB_U32] = {"u32", "u32", "u32", "u32"},
                       [NB_U64] = {"u64", "u64", "u64", "u64"},
                       [NB_F16] = {"f16", "u16", "", ""},
                       [NB_BF16] = {"bf16", "u16", "", ""},
                       [NB_F32] = {"f32", "f32", "f32", "f32"},
                       [NB_F64] = {"f64", "f64", "f64", "f64"}};

static const char basics[] = "typedef bool b1;\n"
                             "typedef signed char i8;\n"
                             "typedef short i16;\n"
                             "typedef int i32;\n"
                             "typedef long long i64;\n"
                             "typedef unsigned char u8;\n"
                             "typedef unsigned short u16;\n"
                             "typedef unsigned int u32;\n"
                             "typedef unsigned long long u64;\n"
                             "typedef u16 f16;\n" /* bits */
                             "typedef u16 bf16;\n"
                             "typedef float f32;\n"
                             "typedef double f64;\n"
                             "#define FN static __device__ __forceinline__\n"
                             "#undef INFINITY\n"
                             "#define INFINITY __int_as_float(0x7f800000)\n";

/* Quotients, remainders, powers and shifts, as the reference has them. */
static const char arithmetic[] =
    "FN f64 nb_float_mod(f64 a, f64 b)\n"
    "{\n"
    "    f64 r = fmod(a, b);\n"
    "    if (r == 0) return copysign(0.0, b);\n"
    "    return (r < 0) != (b < 0) ? r + b : r;\n"
    "}\n"
    "FN f64 nb_floor_div(f64 a, f64 b)\n"
    "{\n"
    "    f64 r = fmod(a, b), q = (a - r) / b;\n"
    "    if (b == 0) return a / b;\n"
    "    if (r != 0 && (r < 0) != (b < 0)) q -= 1;\n"
    "    if (q == 0) return copysign(0.0, a / b);\n"
    "    return floor(q) + (q - floor(q) > 0.5);\n"
    "}\n"
    "FN u64 power(u64 x, u64 n)\n"
    "{\n"
    "    u64 y = 1;\n"
    "    for (; n; n >>= 1, x *= x)\n"
    "        if (n & 1) y *= x;\n"
    "    return y;\n"
    "}\n"
    "#define SIGNED(T) ((T)-1 < (T)1)\n"
    "#define WIDTH(T) ((T)(8 * sizeof(T)))\n"
    "#define nb_int_pow(a, b) ((b) >= 0 ? (T)power((u64)(a), (u64)(b)) : "
    "(a) == 1 ? (T)1 : (a) == (T)-1 ? (T)((b) & 1 ? -1 : 1) : (T)0)\n"
    "#define nb_int_quot(a, b) ((b) == 0 ? (T)0 : SIGNED(T) && (b) == (T)-1 "
    "? (T)(0 - (U)(a)) : (T)((a) / (b) - (((a) % (b) != 0) && "
    "(((a) < 0) != ((b) < 0)))))\n"
    "#define nb_int_mod(a, b) ((b) == 0 || (SIGNED(T) && (b) == (T)-1) "
    "? (T)0 : ((a) % (b) != 0) && (((a) < 0) != ((b) < 0)) "
    "? (T)((a) % (b) + (b)) : (T)((a) % (b)))\n"
    "#define nb_shl(a, b) ((b) < 0 || (b) >= WIDTH(T) ? (T)0 "
    ": (T)((W)(a) << (int)(b)))\n"
    "#define nb_shr(a, b) ((b) < 0 || (b) >= WIDTH(T) "
    "? ((a) < 0 ? (T)-1 : (T)0) : (T)((a) >> (int)(b)))\n";

/* Halves.  Going through float could round a double or a long integer twice:
 * what it loses is kept in the last bit (round to odd). */
static const char halves[] =
    "FN f32 c_f16_f32(u16 h)\n"
    "{\n"
    "    f32 x;\n"
    "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n"
    "    return x;\n"
    "}\n"
    "FN u16 c_f32_f16(f32 x)\n"
    "{\n"
    "    u16 h;\n"
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "    return h;\n"
    "}\n"
    "FN f32 c_bf16_f32(u16 h)\n"
    "{\n"
    "    return __int_as_float((u32)h << 16);\n"
    "}\n"
    "FN u16 c_f32_bf16(f32 x)\n"
    "{\n"
    "    u16 h;\n"
    "    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "    return h;\n"
    "}\n"
    "FN f32 odd(f32 y, bool exact)\n"
    "{\n"
    "    return exact ? y : __int_as_float(__float_as_int(y) | 1);\n"
    "}\n"
    "FN f32 odd_f64(f64 x)\n"
    "{\n"
    "    f32 y = __double2float_rz(x);\n"
    "    return odd(y, (f64)y == x || x != x);\n"
    "}\n"
    "FN f32 odd_i64(i64 x)\n"
    "{\n"
    "    f32 y = __ll2float_rz(x);\n"
    "    return odd(y, (i64)y == x);\n"
    "}\n"
    "FN f32 odd_u64(u64 x)\n"
    "{\n"
    "    f32 y = __ull2float_rz(x);\n"
    "    return odd(y, (u64)y == x);\n"
    "}\n"
    "FN f64 c_f16_f64(u16 h) { return c_f16_f32(h); }\n"
    "FN f64 c_bf16_f64(u16 h) { return c_bf16_f32(h); }\n"
    "FN u16 c_f64_f16(f64 x) { return c_f32_f16(odd_f64(x)); }\n"
    "FN u16 c_f64_bf16(f64 x) { return c_f32_bf16(odd_f64(x)); }\n";

/* One instruction each; a NaN stays one. */
static const char extremes[] =
    "FN f32 max_f32(f32 a, f32 b)\n"
    "{\n"
    "    f32 y;\n"
    "    asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
    "    return y;\n"
    "}\n"
    "FN f32 min_f32(f32 a, f32 b)\n"
    "{\n"
    "    f32 y;\n"
    "    asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n"
    "    return y;\n"
    "}\n";

static const char philox[] =
    "FN void philox(u32 *c, u32 k0, u32 k1)\n"
    "{\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 10; i++) {\n"
    "        u64 a = (u64)0xd2511f53u * c[0], b = (u64)0xcd9e8d57u * c[2];\n"
    "        c[0] = (u32)(b >> 32) ^ c[1] ^ k0;\n"
    "        c[2] = (u32)(a >> 32) ^ c[3] ^ k1;\n"
    "        c[1] = (u32)b;\n"
    "        c[3] = (u32)a;\n"
    "        k0 += 0x9e3779b9u;\n"
    "        k1 += 0xbb67ae85u;\n"
    "    }\n"
    "}\n"
    "FN u32 word_u32(i64 n, u32 k0, u32 k1, u32 low, u32 high)\n"
    "{\n"
    "    u64 at = (u64)n >> 2;\n"
    "    u32 c[4] = {(u32)at, (u32)(at >> 32), low, high};\n"
    "    philox(c, k0, k1);\n"
    "    u32 a = n & 1 ? c[1] : c[0], b = n & 1 ? c[3] : c[2];\n"
    "    return n & 2 ? b : a;\n"
    "}\n"
    "FN u64 block_u64(u64 at, u32 k0, u32 k1, u32 low, u32 high)\n"
    "{\n"
    "    u32 c[4] = {(u32)at, (u32)(at >> 32), low, high};\n"
    "    philox(c, k0, k1);\n"
    "    return (u64)c[0] << 32 | c[1];\n"
    "}\n"
    "FN u64 word_u64(i64 n, u32 k0, u32 k1, u32 low, u32 high)\n"
    "{\n"
    "    u64 at = (u64)n >> 1;\n"
    "    u32 c[4] = {(u32)at, (u32)(at >> 32), low, high};\n"
    "    philox(c, k0, k1);\n"
    "    u32 a = n & 1 ? c[2] : c[0], b = n & 1 ? c[3] : c[1];\n"
    "    return (u64)a << 32 | b;\n"
    "}\n";

const char *nb_cuda_type(nb_dtype d)
{
    return types[d].type;
}

const char *nb_cuda_stored(nb_dtype d)
{
    return types[d].stored;
}

void nb_cuda_scalar_name(nb_text *t, nb_scalar s, nb_dtype compute)
{
    nb_text_add(t, "s_%s_%s", nb_scalar_name(s), types[compute].type);
}

static bool is_extreme(nb_scalar s, nb_dtype d)
{
    return d == NB_F32 && (s == NB_S_max || s == NB_S_min);
}

/* Instructions.  Tests take numbers and give bools; logic takes bools. */
static void scalar(nb_text *t, nb_scalar s, nb_dtype d)
{
    form f = rows[s].form;
    bool real = nb_dtype_is_float(d), boolean = d == NB_BOOL;
    const char *type = boolean ? "u8" : types[d].type;
    bool test = f == C1 || f == C2 || f == B1 || f == B2;
    bool logic = f == B1 || f == B2;
    nb_text_add(t, "#undef M\n#define M(fn) fn%s\n", d == NB_F32 ? "##f" : "");
    nb_text_add(t, "#undef INV\n#define INV(a) %s(a)\n", boolean ? "!" : "~");
    nb_text_add(t, "FN %s ", test ? "b1" : types[d].type);
    nb_cuda_scalar_name(t, s, d);
    nb_text_add(t, "(%s a, %s b, %s c)\n{\n", f == SEL || logic ? "b1" : type,
                logic ? "b1" : type, type);
    nb_text_add(t, "    typedef %s T;\n    typedef %s U;\n    typedef %s W;\n",
                type, types[d].plain, types[d].wide);
    const char *is = real ? rows[s].real : rows[s].whole;
    if (is_extreme(s, d))
        is = s == NB_S_max ? "max_f32(a, b)" : "min_f32(a, b)";
    nb_text_add(t, "    return %s(%s)%s;\n}\n", test || boolean ? "" : "(T)",
                is, boolean && !test ? " != 0" : "");
}

void nb_cuda_reduce_name(nb_text *t, nb_reduce r, nb_dtype d)
{
    nb_cuda_scalar_name(t, nb_reduce_scalar(r), d);
}

void nb_cuda_constant(nb_text *t, nb_dtype d, int64_t bits)
{
    if (d == NB_F32)
        nb_text_add(t, "__int_as_float(0x%08x)", (unsigned)bits);
    else if (d == NB_F64)
        nb_text_add(t, "__longlong_as_double(0x%016llxll)",
                    (unsigned long long)bits);
    else if (d == NB_BOOL)
        nb_text_add(t, "%s", bits & 1 ? "true" : "false");
    else
        nb_text_add(t, "(%s)%lldll%s", types[d].type,
                    (long long)(bits == INT64_MIN ? bits + 1 : bits),
                    bits == INT64_MIN ? " - 1" : "");
}

void nb_cuda_neutral(nb_text *t, nb_reduce r, nb_dtype d)
{
    int64_t bits = 0;
    double x = nb_reduce_neutral(r);
    nb_write_f64(&bits, d, d == NB_BOOL ? x > 0 : x);
    nb_text_add(t, "(");
    nb_cuda_constant(t, d, bits);
    nb_text_add(t, ")");
}

/* Floats to integers are held at the ends of the range, which the instruction
 * does for 32 and 64 bits; NaN gives 0. */
static void to_integer(nb_text *t, nb_dtype from, nb_dtype to)
{
    const char *at = from == NB_F32 ? "__float2" : "__double2";
    bool plain = nb_dtype_is_unsigned(to), wide = nb_dtype_size(to) == 8;
    nb_text_add(t, "    if (x != x) return 0;\n    %s y = %s%s%s_rz(x);\n",
                wide ? plain ? "u64" : "i64" : "i32", at,
                wide && plain ? "u" : "", wide ? "ll" : "int");
    if (to == NB_U32)
        nb_text_add(t, "    return %suint_rz(x);\n", at);
    else if (nb_dtype_size(to) < 4) {
        int bits = 8 * (int)nb_dtype_size(to) - !plain;
        int low = plain ? 0 : -(1 << bits), high = (1 << bits) - 1;
        nb_text_add(t, "    return y < %d ? %d : y > %d ? %d : y;\n", low, low,
                    high, high);
    } else
        nb_text_add(t, "    return y;\n");
}

static void conversion(nb_text *t, nb_dtype from, nb_dtype to)
{
    bool real = nb_dtype_is_float(from);
    if (nb_dtype_is_half(from) && (to == NB_F32 || to == NB_F64)) return;
    if (nb_dtype_is_half(to) && (from == NB_F32 || from == NB_F64)) return;
    nb_text_add(t, "FN %s c_%s_%s(%s x)\n{\n",
                nb_dtype_is_half(to) ? "u16" : types[to].type, types[from].type,
                types[to].type,
                nb_dtype_is_half(from) ? "u16" : types[from].type);
    if (nb_dtype_is_half(from))
        nb_text_add(t, "    return c_f32_%s(c_%s_f32(x));\n", types[to].type,
                    types[from].type);
    else if (nb_dtype_is_half(to) && nb_dtype_size(from) == 8)
        nb_text_add(t, "    return c_f32_%s(odd_%s(x));\n", types[to].type,
                    types[from].type);
    else if (nb_dtype_is_half(to))
        nb_text_add(t, "    return c_f64_%s((f64)x);\n", types[to].type);
    else if (to == NB_BOOL)
        nb_text_add(t, "    return x != 0;\n");
    else if (real && nb_dtype_is_integer(to))
        to_integer(t, from, to);
    else
        nb_text_add(t, "    return (%s)x;\n", types[to].type);
    nb_text_add(t, "}\n");
}

/* What has been written. */
typedef struct written {
    nb_text *t;
    bool scalar[NB_S_count][NB_NDTYPES], conversion[NB_NDTYPES][NB_NDTYPES];
} written;

static void need_scalar(written *w, nb_scalar s, nb_dtype d)
{
    if (!w->scalar[s][d]) scalar(w->t, s, d);
    w->scalar[s][d] = true;
}

static void need_conversion(written *w, nb_dtype from, nb_dtype to)
{
    if (from == to || w->conversion[from][to]) return;
    w->conversion[from][to] = true;
    if (nb_dtype_is_half(from) && to != NB_F32 && to != NB_F64)
        need_conversion(w, NB_F32, to);
    conversion(w->t, from, to);
}

static void need(written *w, const nb_nest *x, const nb_nest_value *v)
{
    if (v->kind == NB_NEST_SCALAR) need_scalar(w, v->scalar, v->compute);
    if (v->kind == NB_NEST_CONVERT) need_conversion(w, v->compute, v->dtype);
    if (nb_nest_reads(v)) need_conversion(w, v->stored, v->dtype);
    if (v->kind == NB_NEST_STORE)
        need_conversion(w, x->value[v->arg[0]].dtype, v->stored);
    if (v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_SCAN)
        need_scalar(w, nb_reduce_scalar(v->reduce), v->dtype);
}

static bool has(const nb_nest *x, bool (*is)(const nb_nest_value *))
{
    for (int k = 0; k < x->n; k++)
        if (is(&x->value[k])) return true;
    return false;
}

static bool divides(const nb_nest_value *v)
{
    nb_scalar s = v->scalar;
    return v->kind == NB_NEST_SCALAR &&
           (s == NB_S_quot || s == NB_S_mod || s == NB_S_pow || s == NB_S_shl ||
            s == NB_S_shr);
}

static bool halves_it(const nb_nest_value *v)
{
    return nb_dtype_is_half(v->stored) || nb_dtype_is_half(v->dtype);
}

static bool is_of_floats(const nb_nest_value *v)
{
    bool reduces = v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_SCAN;
    if (reduces) return is_extreme(nb_reduce_scalar(v->reduce), v->dtype);
    return v->kind == NB_NEST_SCALAR && is_extreme(v->scalar, v->compute);
}

static bool draws(const nb_nest_value *v)
{
    return v->kind == NB_NEST_WORD;
}

static bool any_has(int n, const nb_cuda_walk *const *w,
                    bool (*is)(const nb_nest_value *))
{
    for (int i = 0; i < n; i++)
        if (has(w[i]->nest, is)) return true;
    return false;
}

void nb_cuda_prelude(nb_text *t, int n, const nb_cuda_walk *const *walk)
{
    written w = {.t = t};
    nb_text_add(t, "%s", basics);
    if (any_has(n, walk, divides)) nb_text_add(t, "%s", arithmetic);
    if (any_has(n, walk, halves_it)) nb_text_add(t, "%s", halves);
    if (any_has(n, walk, draws)) nb_text_add(t, "%s", philox);
    if (any_has(n, walk, is_of_floats)) nb_text_add(t, "%s", extremes);
    nb_cuda_prelude_forms(t, n, walk);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < walk[i]->nest->n; k++)
            need(&w, walk[i]->nest, &walk[i]->nest->value[k]);
}
