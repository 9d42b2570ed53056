/* combine_loops.h - combine.c for one dtype: NAME of it, T as stored, A in
 * which it is combined, LOAD and STORE between the two, PLAIN if they are the
 * same, U in which integers wrap.  Blocks stay in the nearest cache. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b)  JOIN_(a, b)
#define FN(f)       JOIN(f, NAME)
#define LOOP(left, expression)      \
    for (int i = 0; i < n; i++) {   \
        A a = left, b = LOAD(x[i]); \
        acc[i] = (A)(expression);   \
    }                               \
    break
#define KINDS(left)                                   \
    switch (kind) {                                   \
    case NB_SUM: LOOP(left, (U)a + (U)b);             \
    case NB_PROD: LOOP(left, (U)a *(U)b);             \
    case NB_MAX: LOOP(left, a > b || a != a ? a : b); \
    case NB_MIN: LOOP(left, a < b || a != a ? a : b); \
    case NB_AND: LOOP(left, a != 0 && b != 0);        \
    case NB_OR: LOOP(left, a != 0 || b != 0);         \
    }

static void FN(first)(nb_reduce kind, int n, A *restrict acc, const T *w,
                      const T *x)
{
    KINDS(LOAD(w[i]))
}

static void FN(next)(nb_reduce kind, int n, A *restrict acc, const T *x)
{
    KINDS(acc[i])
}

static void FN(combine)(nb_reduce kind, int n, const void *const *x,
                        int64_t count, void *out)
{
    A block[BLOCK];
    T stored[BLOCK];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int size = (int)(count - at < BLOCK ? count - at : BLOCK);
        FN(first)
        (kind, size, block, (const T *)x[0] + at, (const T *)x[1] + at);
        for (int k = 2; k < n; k++)
            FN(next)(kind, size, block, (const T *)x[k] + at);
        for (int i = 0; !PLAIN && i < size; i++)
            stored[i] = STORE(block[i]);
        nb_stream((T *)out + at, PLAIN ? (void *)block : stored,
                  (size_t)size * sizeof(T));
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
#undef KINDS
#undef NAME
#undef PLAIN
#undef T
#undef A
#undef U
#undef LOAD
#undef STORE
#undef LEAST
#undef MOST
