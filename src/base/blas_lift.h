/* blas_lift.h - 16-bit floats, widened so that a tile of float32 takes them.
 *
 * Included by blas_own.c for every variant of float, after blas_pack.h and with
 * the same definitions, so that the loops are compiled for its instructions. */
typedef uint16_t NAME(halves)
    __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
typedef uint32_t NAME(bits)
    __attribute__((vector_size(BYTES), aligned(4), may_alias));

/* As many of n numbers next to each other as fill vectors; how many. */
TARGET static int64_t NAME(widen_vectors)(float *to, nb_dtype d,
                                          const uint16_t *from, int64_t n)
{
    int64_t i = 0, end = n - NAME(LANES);
    if (d == NB_BF16)
        for (; i <= end; i += NAME(LANES))
            *(NAME(bits) *)(to + i) =
                __builtin_convertvector(*(const NAME(halves) *)(from + i),
                                        NAME(bits))
                << 16;
#ifdef WIDEN
    if (d == NB_F16)
        for (; i <= end; i += NAME(LANES))
            *(NAME(vec) *)(to + i) = (NAME(vec))WIDEN(from + i);
#endif
    return i;
}

TARGET static void NAME(widen_row)(float *restrict to, nb_dtype d,
                                   const uint16_t *restrict from, int64_t step,
                                   int64_t n)
{
    int64_t i = step == 1 ? NAME(widen_vectors)(to, d, from, n) : 0;
    if (d == NB_F16)
        for (; i < n; i++)
            to[i] = nb_f16_to_f32(from[i * step]);
    else
        for (; i < n; i++)
            to[i] = nb_bf16_to_f32(from[i * step]);
}

/* n x k numbers; what was next to each other stays so. */
TARGET static NAME(source)
    NAME(widen)(float *to, nb_dtype d, int64_t n, int64_t k,
                const uint16_t *from, int64_t across, int64_t along)
{
    if (across == 1 && along != 1) {
        for (int64_t p = 0; p < k; p++)
            NAME(widen_row)(to + p * n, d, from + p * along, 1, n);
        return (NAME(source)){to, 1, n};
    }
    for (int64_t i = 0; i < n; i++)
        NAME(widen_row)(to + i * k, d, from + i * across, along, k);
    return (NAME(source)){to, k, 1};
}

TARGET static void NAME(narrow_row)(uint16_t *restrict to, nb_dtype d,
                                    const float *restrict from, int64_t n)
{
    if (d == NB_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = nb_f32_to_bf16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = nb_f32_to_f16(from[i]);
}
