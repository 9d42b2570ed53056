/* test_numbers.c - halves, random words, conversions, and printed arrays.
 *
 * The oracles are slow and plain: rounding is rint of a double scaled to the
 * last place, and a number on its way between dtypes is an exact integer or a
 * double. */
#include "base/half.h"
#include "base/philox.h"
#include "core/convert.h"
#include "core/format.h"
#include "support/faults.h"
#include "support/there.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef __int128 big;

/* A binary floating format: digits after the leading one, the exponent of the
 * smallest normal number, and that of the first power of two too large. */
typedef struct form {
    int digits, least, above;
} form;
static const form f16 = {10, -14, 16}, bf16 = {7, -126, 128};

static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double rounded(double x, form f)
{
    if (isnan(x) || isinf(x) || x == 0) return x;
    int e = ilogb(x) > f.least ? ilogb(x) : f.least;
    double r = ldexp(rint(ldexp(x, f.digits - e)), e - f.digits);
    return fabs(r) >= ldexp(1, f.above) ? copysign(INFINITY, x) : r;
}

static double value(uint16_t h, form f)
{
    int e = (h & 0x7fff) >> f.digits, top = f.above - f.least + 1;
    double m = h & ((1 << f.digits) - 1), one = 1 << f.digits;
    double x = e ? ldexp(one + m, e - 1 + f.least - f.digits)
                 : ldexp(m, f.least - f.digits);
    if (e == top) x = m != 0 ? NAN : INFINITY;
    return h & 0x8000 ? -x : x;
}

/* The same number, with the sign of zero, or both NaN. */
static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static double widen(uint16_t h, form f)
{
    return f.digits == 10 ? nb_f16_to_f32(h) : nb_bf16_to_f32(h);
}

static uint16_t narrow32(float x, form f)
{
    return f.digits == 10 ? nb_f32_to_f16(x) : nb_f32_to_bf16(x);
}

static uint16_t narrow64(double x, form f)
{
    return f.digits == 10 ? nb_f64_to_f16(x) : nb_f64_to_bf16(x);
}

static void check_patterns(form f)
{
    uint16_t quiet = (uint16_t)(1 << (f.digits - 1));
    for (int i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        double x = value(h, f);
        assert_true(same(widen(h, f), x));
        uint16_t back = isnan(x) ? h | quiet : h;
        assert_int_equal(narrow32((float)widen(h, f), f), back);
        assert_int_equal(narrow64(widen(h, f), f), back);
    }
}

static void test_every_half_widens_exactly_and_comes_back(void **s)
{
    (void)s;
    check_patterns(f16);
    check_patterns(bf16);
}

static void check_ties(form f)
{
    int infinite = (f.above - f.least + 1) << f.digits;
    for (int i = 0; i < infinite; i++) {
        double below = value((uint16_t)i, f);
        double above =
            i + 1 < infinite ? value((uint16_t)(i + 1), f) : ldexp(1, f.above);
        double tie = (below + above) / 2;
        int even = i + (i & 1);
        assert_int_equal(narrow64(tie, f), even);
        assert_int_equal(narrow64(-tie, f), even | 0x8000);
        assert_int_equal(narrow64(nextafter(tie, 0), f), i);
        assert_int_equal(narrow64(nextafter(tie, INFINITY), f), i + 1);
        assert_int_equal(narrow32((float)tie, f), even);
        assert_int_equal(narrow32(-(float)tie, f), even | 0x8000);
        assert_int_equal(narrow32(nextafterf((float)tie, 0), f), i);
        assert_int_equal(narrow32(nextafterf((float)tie, INFINITY), f), i + 1);
    }
}

static void test_narrowing_goes_to_nearest_and_ties_to_even(void **s)
{
    (void)s;
    check_ties(f16);
    check_ties(bf16);
}

static void check_against_rint(form f)
{
    for (int64_t bits = 0; bits <= UINT32_MAX; bits += 4099) {
        float x = nb_f32_from_bits((uint32_t)bits);
        assert_true(same(widen(narrow32(x, f), f), rounded(x, f)));
    }
    for (int i = 0; i < 1000000; i++) {
        double x = nb_f64_from_bits(draw());
        assert_true(same(widen(narrow64(x, f), f), rounded(x, f)));
        int e = f.least - f.digits - 3 + (int)(draw() % 300);
        x = ldexp((double)(int64_t)draw(), e - 63);
        assert_true(same(widen(narrow64(x, f), f), rounded(x, f)));
    }
}

static void test_narrowing_agrees_with_rint_anywhere(void **s)
{
    (void)s;
    check_against_rint(f16);
    check_against_rint(bf16);
}

static void test_a_nan_keeps_sign_and_payload_and_is_quiet(void **s)
{
    (void)s;
    float loud = nb_f32_from_bits(0xff802000);
    assert_int_equal(nb_f32_to_f16(loud), 0xfe01);
    assert_int_equal(nb_f32_to_f16(nb_f32_from_bits(0x7f800001)), 0x7e00);
    assert_int_equal(nb_f32_to_bf16(nb_f32_from_bits(0xff800001)), 0xffc0);
    assert_int_equal(nb_f64_to_f16(nb_f64_from_bits(0xfff0040000000000)),
                     0xfe01);
    assert_int_equal(nb_f64_to_bf16(nb_f64_from_bits(0x7ff0000000000001)),
                     0x7fc0);
    assert_int_equal(nb_f32_bits(nb_f16_to_f32(0xfc01)), 0xffc02000);
    assert_int_equal(nb_f32_bits(nb_bf16_to_f32(0xff81)), 0xffc10000);
}

/* 1 + 2^-11 + 2^-40 is above the tie that float would make of it. */
static void test_a_double_is_rounded_once(void **s)
{
    (void)s;
    assert_int_equal(nb_f64_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(nb_f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    uint16_t h;
    nb_write_i64(&h, NB_BF16, (1ll << 62) + (1ll << 54) + 1);
    assert_int_equal(h, 0x5e81);
    nb_write_i64(&h, NB_BF16, -(1ll << 62) - (1ll << 54) - 1);
    assert_int_equal(h, 0xde81);
    nb_write_i64(&h, NB_BF16, (1ll << 62) + (1ll << 54));
    assert_int_equal(h, 0x5e80);
    nb_write_i64(&h, NB_F16, 65519);
    assert_int_equal(h, 0x7bff);
    nb_write_i64(&h, NB_F16, 65520);
    assert_int_equal(h, 0x7c00);
    int32_t i = (1 << 30) + (1 << 22) + 1;
    nb_convert(&h, NB_BF16, 1, &i, NB_I32, 1, 1);
    assert_int_equal(h, 0x4e81);
}

static void test_philox_gives_the_published_words(void **s)
{
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    (void)s;
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        nb_philox(out, known[i], known[i] + 2);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
}

static void test_units_lie_in_zero_to_below_one(void **s)
{
    (void)s;
    assert_true(nb_unit_f64(0, 0) == 0 && nb_unit_f32(0) == 0);
    assert_true(nb_unit_f64(~0u, ~0u) == 1 - 0x1p-53);
    assert_true(nb_unit_f32(~0u) == 1 - 0x1p-24f);
    assert_true(nb_unit_f64(1u << 31, 0) == 0.5);
    assert_true(nb_unit_f32(1u << 31) == 0.5f);
    assert_true(nb_unit_f64(0, 1 << 11) == 0x1p-53);
    assert_true(nb_unit_f32(1 << 8) == 0x1p-24f);
}

/* What an element is: an integer, or a double. */
typedef struct number {
    bool real;
    big i;
    double x;
} number;

static number get(const void *at, nb_dtype d)
{
    number v = {0};
    switch (d) {
#define INTEGER(NAME, type) \
    case NB_##NAME: v.i = *(const type *)at; break;
        INTEGER(BOOL, uint8_t)
        INTEGER(I8, int8_t)
        INTEGER(I16, int16_t)
        INTEGER(I32, int32_t)
        INTEGER(I64, int64_t)
        INTEGER(U8, uint8_t)
        INTEGER(U16, uint16_t)
        INTEGER(U32, uint32_t)
        INTEGER(U64, uint64_t)
#undef INTEGER
    case NB_F16: v.x = value(*(const uint16_t *)at, f16); break;
    case NB_BF16: v.x = value(*(const uint16_t *)at, bf16); break;
    case NB_F32: v.x = *(const float *)at; break;
    case NB_F64: v.x = *(const double *)at; break;
    default: fail();
    }
    v.real = nb_dtype_is_float(d);
    return v;
}

static big least_of(nb_dtype d)
{
    int bits = 8 * (int)nb_dtype_size(d);
    return nb_dtype_is_unsigned(d) ? 0 : -((big)1 << (bits - 1));
}

static big most_of(nb_dtype d)
{
    int bits = 8 * (int)nb_dtype_size(d);
    return ((big)1 << (nb_dtype_is_unsigned(d) ? bits : bits - 1)) - 1;
}

static big wrapped(big i, nb_dtype d)
{
    big count = (big)1 << 8 * nb_dtype_size(d);
    i = (i % count + count) % count;
    return i > most_of(d) ? i - count : i;
}

static big held(double x, nb_dtype d)
{
    if (isnan(x)) return 0;
    if (x >= ldexp(1, 65)) return most_of(d);
    if (x <= -ldexp(1, 65)) return least_of(d);
    big i = (big)x;
    return i > most_of(d) ? most_of(d) : i < least_of(d) ? least_of(d) : i;
}

/* An integer rounded to so many bits, ties to even, by dividing. */
static double real_of(big i, int bits)
{
    big u = i < 0 ? -i : i, unit = 1;
    while (u / unit >= (big)1 << bits)
        unit *= 2;
    big q = u / unit, twice = u % unit * 2;
    q += twice > unit || (twice == unit && q % 2);
    double x = (double)q * (double)unit;
    return i < 0 ? -x : x;
}

static number expected(number v, nb_dtype to)
{
    number r = {.real = nb_dtype_is_float(to)};
    if (to == NB_BOOL)
        r.i = v.real ? v.x != 0 : v.i != 0;
    else if (!r.real)
        r.i = v.real ? held(v.x, to) : wrapped(v.i, to);
    else if (to == NB_F64)
        r.x = v.real ? v.x : real_of(v.i, 53);
    else if (to == NB_F32)
        r.x = v.real ? (float)v.x : real_of(v.i, 24);
    else {
        form f = to == NB_F16 ? f16 : bf16;
        r.x = rounded(v.real ? v.x : real_of(v.i, f.digits + 1), f);
    }
    return r;
}

static bool same_number(number a, number b)
{
    return a.real == b.real && (a.real ? same(a.x, b.x) : a.i == b.i);
}

/* Fills the buffer with the dtype's hard cases and random ones. */
enum { CASES = 600 };
static void *cases(nb_dtype d)
{
    static const double hard[] = {
        0,      -0.0,    0.5,     -0.5,    0.999,      -0.999,    1.5,
        -1.5,   2.5,     127.5,   128,     -128.9,     -129,      255.9,
        256,    32767.5, 32768,   -32769,  65535.9,    65536,     0x1p31,
        -1e-9,  0x1p32,  -0x1p31, 0x1p63,  -0x1p63,    0x1p64,    -0x1p64,
        65519,  65520,   1e38,    -1e38,   INFINITY,   -INFINITY, NAN,
        1e300,  -1e300,  1e-300,  0x1p-24, 0x1p-25,    0x1p-149,  0x1p-133,
        0x1p53, 1e-40,   0x1p16,  1e8,     2147483647, -1,        1,
    };
    enum { NHARD = sizeof hard / sizeof *hard };
    size_t bytes = nb_dtype_size(d);
    char *at = malloc(CASES * bytes);
    for (int i = 0; i < CASES; i++) {
        char *e = at + (size_t)i * bytes;
        uint64_t u = draw() >> draw() % 64;
        double x = i < NHARD ? hard[i] : ldexp((double)(int64_t)u, -31);
        if (i < 200 && i >= NHARD) /* powers of two, and beside them */
            u = (1ull << (i % 64)) + (uint64_t)(i / 64) - 2;
        if (i < 4) u = (uint64_t)most_of(d) + (uint64_t)(i % 2);
        if (i % 2) u = -u;
        switch (d) {
        case NB_F16: *(uint16_t *)e = nb_f64_to_f16(x); break;
        case NB_BF16: *(uint16_t *)e = nb_f64_to_bf16(x); break;
        case NB_F32: *(float *)e = (float)x; break;
        case NB_F64: *(double *)e = x; break;
        case NB_BOOL: *e = u & 1; break;
        default: memcpy(e, &u, bytes); break;
        }
    }
    return at;
}

static void check_pair(nb_dtype to, nb_dtype from)
{
    char *x = cases(from);
    size_t to_bytes = nb_dtype_size(to), from_bytes = nb_dtype_size(from);
    char *y = malloc(CASES * to_bytes);
    nb_convert(y, to, 1, x, from, 1, CASES);
    for (size_t i = 0; i < CASES; i++) {
        number v = get(x + i * from_bytes, from);
        number r = get(y + i * to_bytes, to), want = expected(v, to);
        if (!same_number(r, want))
            fail_msg("%s to %s, case %zu: %.17g gives %.17g, not %.17g",
                     nb_dtype_name(from), nb_dtype_name(to), i,
                     v.real ? v.x : (double)v.i, r.real ? r.x : (double)r.i,
                     want.real ? want.x : (double)want.i);
    }
    free(x);
    free(y);
}

static void test_every_pair_of_dtypes_converts_by_the_rules(void **s)
{
    (void)s;
    for (int to = 1; to < NB_NDTYPES; to++)
        for (int from = 1; from < NB_NDTYPES; from++)
            check_pair((nb_dtype)to, (nb_dtype)from);
}

/* Converts with strides and compares each element with one converted alone;
 * what lies between the elements keeps its mark. */
static void check_strides(nb_dtype to, int64_t ts, nb_dtype from, int64_t fs,
                          int64_t n)
{
    int64_t tb = (int64_t)nb_dtype_size(to), fb = (int64_t)nb_dtype_size(from);
    int64_t room = (n + 1) * llabs(ts), span = (n + 1) * (llabs(fs) + 1);
    char *hard = cases(from), *x = malloc((size_t)(span * fb));
    unsigned char *y = malloc((size_t)(room * tb)), mark = 0xa5;
    for (int64_t i = 0; i < span; i++)
        memcpy(x + i * fb, hard + i % CASES * fb, (size_t)fb);
    memset(y, mark, (size_t)(room * tb));
    char *x0 = fs < 0 ? x + (span - 1) * fb : x;
    unsigned char *y0 = ts < 0 ? y + (room - 1) * tb : y;
    nb_convert(y0, to, ts, x0, from, fs, n);
    for (int64_t i = 0; i < n; i++) {
        _Alignas(8) char one[8];
        nb_convert(one, to, 1, x0 + i * fs * fb, from, 1, 1);
        assert_memory_equal(y0 + i * ts * tb, one, (size_t)tb);
        memset(y0 + i * ts * tb, mark, (size_t)tb);
    }
    for (int64_t i = 0; i < room * tb; i++)
        assert_int_equal(y[i], mark);
    free(hard);
    free(x);
    free(y);
}

static void test_strides_pick_the_same_elements(void **s)
{
    static const int64_t strides[][2] = {
        {1, 1}, {1, 0}, {1, 2}, {1, -1}, {2, 1}, {3, 0}, {-1, 1}, {2, -3},
    };
    static const int64_t counts[] = {0, 1, 7, 9, 1025};
    (void)s;
    for (int pair = 0; pair < NB_NDTYPES * NB_NDTYPES; pair++) {
        nb_dtype to = (nb_dtype)(pair / NB_NDTYPES);
        nb_dtype from = (nb_dtype)(pair % NB_NDTYPES);
        if (!to || !from) continue;
        for (int k = 0; k < 8; k++)
            for (int c = 0; c < 5; c++)
                check_strides(to, strides[k][0], from, strides[k][1],
                              counts[c]);
    }
}

/* Blocks of halves may use the processor's instructions: the same bits. */
static void test_blocks_of_halves_equal_single_ones(void **s)
{
    enum { N = 65536 };
    static uint16_t h[N], back[N];
    static float x[N];
    (void)s;
    for (int i = 0; i < N; i++)
        h[i] = (uint16_t)i;
    nb_convert(x, NB_F32, 1, h, NB_F16, 1, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(nb_f32_bits(x[i]), nb_f32_bits(nb_f16_to_f32(h[i])));
    nb_convert(x, NB_F32, 1, h, NB_BF16, 1, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(nb_f32_bits(x[i]), nb_f32_bits(nb_bf16_to_f32(h[i])));
    for (uint32_t low = 0x0001; low < 0x10000; low = low * 3 + 0x1000) {
        for (uint32_t i = 0; i < N; i++)
            x[i] = nb_f32_from_bits(i << 16 | low);
        nb_convert(back, NB_F16, 1, x, NB_F32, 1, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(back[i], nb_f32_to_f16(x[i]));
        nb_convert(back, NB_BF16, 1, x, NB_F32, 1, N);
        for (int i = 0; i < N; i++)
            assert_int_equal(back[i], nb_f32_to_bf16(x[i]));
    }
}

static void test_single_elements_are_read_and_written(void **s)
{
    uint64_t u = UINT64_MAX;
    int8_t i = -3;
    float x = -2.75f;
    uint8_t b = 9;
    (void)s;
    assert_true(nb_read_f64(&u, NB_U64) == 0x1p64);
    assert_true(nb_read_i64(&u, NB_U64) == -1);
    assert_true(nb_read_f64(&i, NB_I8) == -3);
    assert_true(nb_read_i64(&x, NB_F32) == -2);
    nb_write_f64(&i, NB_I8, 1e9);
    assert_int_equal(i, 127);
    nb_write_i64(&i, NB_I8, 257);
    assert_int_equal(i, 1);
    nb_write_f64(&u, NB_U64, -1);
    assert_true(u == 0);
    nb_write_f64(&b, NB_BOOL, NAN);
    assert_int_equal(b, 1);
    nb_write_i64(&b, NB_BOOL, 0);
    assert_int_equal(b, 0);
}

/* The text of the values given, laid out row by row. */
static void check_text(const char *want, nb_dtype d, int rank,
                       const int64_t *size, const double *x, const char *indent)
{
    _Alignas(8) char data[1024];
    int64_t n = 1, stride[8];
    for (int axis = rank - 1; axis >= 0; axis--) {
        stride[axis] = n;
        n *= size[axis];
    }
    for (int64_t i = 0; i < n; i++)
        nb_write_f64(data + i * (int64_t)nb_dtype_size(d), d,
                     x ? x[i] : (double)i);
    nb_text t = {0};
    assert_true(nb_format(&t, d, rank, size, stride, data, indent));
    assert_string_equal(nb_text_get(&t), want);
    nb_text_free(&t);
}

#define VALUES(...) ((const double[]){__VA_ARGS__})
#define VECTOR(want, d, ...)                                                   \
    check_text(want, d, 1,                                                     \
               (const int64_t[]){sizeof VALUES(__VA_ARGS__) / sizeof(double)}, \
               VALUES(__VA_ARGS__), "")
#define SCALAR(want, d, x) check_text(want, d, 0, NULL, VALUES(x), "")
#define SHAPED(want, d, rank, ...) \
    check_text(want, d, rank, (const int64_t[]){__VA_ARGS__}, NULL, "")

static void test_numbers_show_up_to_four_digits(void **s)
{
    (void)s;
    VECTOR("[1. 2. 3.]", NB_F32, 1, 2, 3);
    VECTOR("[ 1.     2.25  -3.125]", NB_F32, 1, 2.25, -3.125);
    VECTOR("[0.1    0.25   0.3333]", NB_F32, 0.1, 0.25, 1. / 3);
    VECTOR("[ 0.  1. -0.]", NB_F32, 1e-5, 1, -1e-5);
    VECTOR("[0.     0.0001 1.0001 2.5002]", NB_F64, 0, 5e-5, 1.00005, 2.50015);
    SCALAR("14.", NB_F32, 14);
    SCALAR("3.1416", NB_F32, 3.14159274);
    SCALAR("-0.", NB_F64, -0.0);
}

/* 123456.789 in float32 is 123456.7890625; its neighbours are 1/128 away. */
static void test_a_number_shows_what_its_dtype_tells_apart(void **s)
{
    (void)s;
    VECTOR("[123456.79      0.5 ]", NB_F32, 123456.789, 0.5);
    VECTOR("[123456.789      0.5  ]", NB_F64, 123456.789, 0.5);
    VECTOR("[0.1]", NB_F16, 0.1);
    VECTOR("[0.1001]", NB_BF16, 0.1);
    VECTOR("[0.1]", NB_F32, 0.1);
}

static void test_large_numbers_are_scientific(void **s)
{
    (void)s;
    VECTOR("[999999.      1.]", NB_F32, 999999, 1);
    VECTOR("[1.e+06 1.e+00]", NB_F32, 1e6, 1);
    VECTOR("[1.2346e+06 5.0000e-01]", NB_F32, 1234567, 0.5);
    VECTOR("[99999999.         0.5]", NB_F64, 99999999, 0.5);
    VECTOR("[1.e+08 5.e-01]", NB_F64, 1e8, 0.5);
    VECTOR("[999.    0.5]", NB_F16, 999, 0.5);
    VECTOR("[1.e+03 5.e-01]", NB_F16, 1000, 0.5);
    VECTOR("[1.000e+03 1.563e-02]", NB_F16, 1000, 0x1p-6);
    VECTOR("[1.0005e+03 5.0008e-05]", NB_F16, 1000.5, 5e-5);
    VECTOR("[ 1.0e+100  1.0e-005  0.0e+000 -2.5e+000]", NB_F64, 1e100, 1e-5, 0,
           -2.5);
    VECTOR("[1.e+100 1.e-005     nan    -inf]", NB_F64, 1e100, 1e-5, NAN,
           -INFINITY);
}

static void test_nan_and_inf_align(void **s)
{
    (void)s;
    VECTOR("[nan inf  1.]", NB_F32, NAN, INFINITY, 1);
    VECTOR("[ nan -inf 1.25]", NB_F32, NAN, -INFINITY, 1.25);
    VECTOR("[ nan 100.]", NB_BF16, NAN, 100);
    VECTOR("[nan]", NB_F16, NAN);
    VECTOR("[-inf  nan]", NB_F64, -INFINITY, NAN);
    SCALAR("-inf", NB_F32, -INFINITY);
}

static void test_integers_and_bools_align(void **s)
{
    (void)s;
    VECTOR("[  1 -20 300]", NB_I64, 1, -20, 300);
    VECTOR("[-128    0  127]", NB_I8, -128, 0, 127);
    VECTOR("[18446744073709551615                    0]", NB_U64, 1e30, 0);
    VECTOR("[-9223372036854775808                    1]", NB_I64, -1e30, 1);
    VECTOR("[ True False]", NB_BOOL, 1, 0);
    VECTOR("[ True]", NB_BOOL, 1);
    SCALAR("True", NB_BOOL, 1);
    SCALAR("-7", NB_I32, -7);
}

static void test_more_than_six_elements_are_summarised(void **s)
{
    (void)s;
    SHAPED("[0 1 2 3 4 5]", NB_I32, 1, 6);
    SHAPED("[0 1 2 ... 4 5 6]", NB_I32, 1, 7);
    SHAPED("[0. 1. 2. ... 5. 6. 7.]", NB_F32, 1, 8);
    VECTOR("[1. 2. 3. ... 5. 6. 7.]", NB_F32, 1, 2, 3, 1e9, 5, 6, 7);
    SHAPED("[[0 1 2 3]\n [4 5 6 7]]", NB_I64, 2, 2, 4);
    SHAPED("[[ 0  1  2  3  4  5]\n [ 6  7  8  9 10 11]]", NB_I64, 2, 2, 6);
    SHAPED("[[ 0  1  2 ...  5  6  7]\n [ 8  9 10 ... 13 14 15]]", NB_I64, 2, 2,
           8);
    SHAPED("[[ 0  1  2]\n [ 3  4  5]\n [ 6  7  8]\n ...\n"
           " [12 13 14]\n [15 16 17]\n [18 19 20]]",
           NB_U8, 2, 7, 3);
}

static void test_rows_stand_on_their_own_lines(void **s)
{
    (void)s;
    const double x[] = {1, 2, 3, 4};
    const int64_t two[] = {2, 2, 2};
    SHAPED("[[0. 1.]\n [2. 3.]]", NB_F32, 2, 2, 2);
    check_text("[[1. 2.]\n   [3. 4.]]", NB_F32, 2, two, x, "  ");
    check_text("[[[0 1]\n    [2 3]]\n\n   [[4 5]\n    [6 7]]]", NB_I32, 3, two,
               NULL, "  ");
    SHAPED("[[[[0 1]\n   [2 3]]]\n\n\n [[[4 5]\n   [6 7]]]]", NB_I64, 4, 2, 1,
           2, 2);
}

static void test_empty_arrays_are_brackets(void **s)
{
    (void)s;
    SHAPED("[]", NB_F32, 1, 0);
    SHAPED("[]", NB_F32, 2, 0, 3);
    SHAPED("[]", NB_I8, 3, 2, 0, 3);
}

static void test_strides_are_followed(void **s)
{
    const int32_t x[] = {1, 2, 3, 4, 5, 6};
    const int64_t size[] = {3, 2}, turned[] = {1, 3}, back[] = {-2, 0};
    nb_text t = {0};
    (void)s;
    assert_true(nb_format(&t, NB_I32, 2, size, turned, x, NULL));
    assert_string_equal(nb_text_get(&t), "[[1 4]\n [2 5]\n [3 6]]");
    nb_text_free(&t);
    assert_true(nb_format(&t, NB_I32, 2, size, back, x + 4, ""));
    assert_string_equal(nb_text_get(&t), "[[5 5]\n [3 3]\n [1 1]]");
    nb_text_free(&t);
    int64_t huge[] = {INT64_MAX, INT64_MAX}, still[] = {0, 0};
    assert_true(nb_format(&t, NB_I32, 1, huge, still, x, ""));
    assert_string_equal(nb_text_get(&t), "[1 1 1 ... 1 1 1]");
    nb_text_free(&t);
}

static bool cube_formatted(void *unused)
{
    const double x[] = {1.5, 2.25, 3, 4, 5, 6, 7, 8};
    const int64_t size[] = {2, 2, 2}, stride[] = {4, 2, 1};
    nb_text t = {0};
    bool ok = nb_format(&t, NB_F64, 3, size, stride, x, "");
    (void)unused;
    nb_text_free(&t);
    return ok;
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    faults f = {.run = cube_formatted, .bare = true};
    (void)s;
    assert_true(faults_survived(&f) && f.n <= 20);
}

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_widens_exactly_and_comes_back),
        cmocka_unit_test(test_narrowing_goes_to_nearest_and_ties_to_even),
        cmocka_unit_test(test_narrowing_agrees_with_rint_anywhere),
        cmocka_unit_test(test_a_nan_keeps_sign_and_payload_and_is_quiet),
        cmocka_unit_test(test_a_double_is_rounded_once),
        cmocka_unit_test(test_philox_gives_the_published_words),
        cmocka_unit_test(test_units_lie_in_zero_to_below_one),
        cmocka_unit_test(test_every_pair_of_dtypes_converts_by_the_rules),
        cmocka_unit_test(test_strides_pick_the_same_elements),
        cmocka_unit_test(test_blocks_of_halves_equal_single_ones),
        cmocka_unit_test(test_single_elements_are_read_and_written),
        cmocka_unit_test(test_numbers_show_up_to_four_digits),
        cmocka_unit_test(test_a_number_shows_what_its_dtype_tells_apart),
        cmocka_unit_test(test_large_numbers_are_scientific),
        cmocka_unit_test(test_nan_and_inf_align),
        cmocka_unit_test(test_integers_and_bools_align),
        cmocka_unit_test(test_more_than_six_elements_are_summarised),
        cmocka_unit_test(test_rows_stand_on_their_own_lines),
        cmocka_unit_test(test_empty_arrays_are_brackets),
        cmocka_unit_test(test_strides_are_followed),
        cmocka_unit_test(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
