/* scalar_type.h - all instructions for one type; included once a type by
 * scalars.c with TYPE (suffix), T, U, W and, for floats, M(f) defined, and
 * CLASS_x macros that say which rows of the table exist. */
#define CAT2(a, b) a##_##b
#define CAT(a, b)  CAT2(a, b)
#define FN(name)   CAT(name, TYPE)

#define LOOP(name, R, A, B, C, value)                             \
    static void FN(name)(void *y, const void *pa, const void *pb, \
                         const void *pc, int64_t n)               \
    {                                                             \
        R *to = y;                                                \
        const A *xa = pa;                                         \
        const B *xb = pb;                                         \
        const C *xc = pc;                                         \
        for (int64_t i = 0; i < n; i++) {                         \
            A a = xa[i];                                          \
            B b = xb[i];                                          \
            C c = xc[i];                                          \
            (void)a, (void)b, (void)c;                            \
            to[i] = (R)(value);                                   \
        }                                                         \
    }
#define LOOP1(name, R, A, value)                                  \
    static void FN(name)(void *y, const void *pa, const void *pb, \
                         const void *pc, int64_t n)               \
    {                                                             \
        R *to = y;                                                \
        const A *xa = pa;                                         \
        (void)pb, (void)pc;                                       \
        for (int64_t i = 0; i < n; i++) {                         \
            A a = xa[i];                                          \
            (void)a;                                              \
            to[i] = (R)(value);                                   \
        }                                                         \
    }
#define LOOP2(name, R, A, B, value)                               \
    static void FN(name)(void *y, const void *pa, const void *pb, \
                         const void *pc, int64_t n)               \
    {                                                             \
        R *to = y;                                                \
        const A *xa = pa;                                         \
        const B *xb = pb;                                         \
        (void)pc;                                                 \
        for (int64_t i = 0; i < n; i++) {                         \
            A a = xa[i];                                          \
            B b = xb[i];                                          \
            to[i] = (R)(value);                                   \
        }                                                         \
    }
#define MAKE_T1(name, v)  LOOP1(name, T, T, KEEP(v))
#define MAKE_T2(name, v)  LOOP2(name, T, T, T, KEEP(v))
#define MAKE_T3(name, v)  LOOP(name, T, T, T, T, KEEP(v))
#define MAKE_C1(name, v)  LOOP1(name, uint8_t, T, v)
#define MAKE_C2(name, v)  LOOP2(name, uint8_t, T, T, v)
#define MAKE_B1(name, v)  LOOP1(name, uint8_t, uint8_t, v)
#define MAKE_B2(name, v)  LOOP2(name, uint8_t, uint8_t, uint8_t, v)
#define MAKE_SEL(name, v) LOOP(name, T, uint8_t, T, T, v)

#define SCALAR(name, form, types, cost, f, i) \
    CLASS_##types(MAKE_##form(name, VALUE(f, i)))
#include "core/scalars.def"

/* Eight running totals, so that the compiler may keep them in one register. */
#define REDUCE(name, expression)                                         \
    static void FN(reduce_##name)(void *acc, const void *x, int64_t n)   \
    {                                                                    \
        const T *p = x;                                                  \
        T a = *(T *)acc, b, part[16];                                    \
        int64_t i = 0;                                                   \
        if (n >= 32) {                                                   \
            for (int k = 0; k < 16; k++)                                 \
                part[k] = p[k];                                          \
            for (i = 16; i + 16 <= n; i += 16)                           \
                for (int k = 0; k < 16; k++) {                           \
                    T s = part[k], t = p[i + k];                         \
                    part[k] = COMBINE(expression, s, t);                 \
                }                                                        \
            for (int w = 8; w > 0; w /= 2)                               \
                for (int k = 0; k < w; k++)                              \
                    part[k] = COMBINE(expression, part[k], part[k + w]); \
            a = COMBINE(expression, a, part[0]);                         \
        }                                                                \
        for (; i < n; i++) {                                             \
            b = p[i];                                                    \
            a = COMBINE(expression, a, b);                               \
        }                                                                \
        *(T *)acc = a;                                                   \
    }
#define COMBINE(expression, p, q) KEEP(expression(p, q))
#define R_SUM(p, q)               VALUE((p) + (q), (T)((U)(p) + (U)(q)))
#define R_PROD(p, q)              VALUE((p) * (q), (T)((W)(p) * (W)(q)))
#define R_MAX(p, q) \
    VALUE(((p) > (q) || (p) != (p)) ? (p) : (q), (p) > (q) ? (p) : (q))
#define R_MIN(p, q) \
    VALUE(((p) < (q) || (p) != (p)) ? (p) : (q), (p) < (q) ? (p) : (q))
REDUCE(sum, R_SUM)
REDUCE(prod, R_PROD)
REDUCE(max, R_MAX)
REDUCE(min, R_MIN)

static nb_run *const FN(runs)[NB_S_count] = {
    NULL,
#define SCALAR(name, form, types, cost, f, i) PICK_##types(FN(name))
#include "core/scalars.def"
};
static void (*const FN(reduces)[])(void *, const void *, int64_t) = {
    FN(reduce_sum),  FN(reduce_max), FN(reduce_min),
    FN(reduce_prod), FN(reduce_min), FN(reduce_max)}; /* and, or: of bools */

#undef REDUCE
#undef COMBINE
#undef R_SUM
#undef R_PROD
#undef R_MAX
#undef R_MIN
#undef LOOP
#undef LOOP1
#undef LOOP2
#undef MAKE_T1
#undef MAKE_T2
#undef MAKE_T3
#undef MAKE_C1
#undef MAKE_C2
#undef MAKE_B1
#undef MAKE_B2
#undef MAKE_SEL
#undef FN
#undef CAT
#undef CAT2
#undef TYPE
#undef T
#undef U
#undef W
#undef KEEP
#undef INV
