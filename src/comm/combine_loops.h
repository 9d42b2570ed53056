/* combine_loops.h - combine.c for one dtype: NAME of it, T as stored, A in
 * which it is combined, LOAD and STORE between the two, U in which integers
 * wrap.  Blocks are short enough to stay in the nearest cache. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define FN(f)       JOIN(f, NAME)
#define LOOP(expression)              \
    for (int i = 0; i < n; i++) {     \
        A a = acc[i], b = LOAD(x[i]); \
        acc[i] = (A)(expression);     \
    }                                 \
    break

static void FN(join)(nb_reduce kind, int n, A *acc, const T *x)
{
    switch (kind) {
    case NB_SUM: LOOP((U)a + (U)b);
    case NB_PROD: LOOP((U)a * (U)b);
    case NB_MAX: LOOP(a > b || a != a ? a : b);
    case NB_MIN: LOOP(a < b || a != a ? a : b);
    case NB_AND: LOOP(a != 0 && b != 0);
    case NB_OR: LOOP(a != 0 || b != 0);
    }
}

static void FN(combine)(nb_reduce kind, int n, const void *const *x,
                        int64_t count, void *out)
{
    A acc[BLOCK];
    T *y = out;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int size = (int)(count - at < BLOCK ? count - at : BLOCK);
        for (int i = 0; i < size; i++)
            acc[i] = LOAD(((const T *)x[0])[at + i]);
        for (int k = 1; k < n; k++)
            FN(join)(kind, size, acc, (const T *)x[k] + at);
        for (int i = 0; i < size; i++)
            y[at + i] = STORE(acc[i]);
    }
}

static void FN(fill)(nb_reduce kind, int64_t count, void *out)
{
    const T value[] = {[NB_SUM] = STORE((A)0),    [NB_MAX] = STORE((A)LEAST),
                       [NB_MIN] = STORE((A)MOST), [NB_PROD] = STORE((A)1),
                       [NB_AND] = STORE((A)1),    [NB_OR] = STORE((A)0)};
    for (int64_t i = 0; i < count; i++)
        ((T *)out)[i] = value[kind];
}

#undef JOIN_
#undef JOIN
#undef FN
#undef LOOP
#undef NAME
#undef T
#undef A
#undef U
#undef LOAD
#undef STORE
#undef LEAST
#undef MOST
