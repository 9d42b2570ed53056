/* blas_pair.h - bfloat16 multiplied two and two by vdpbf16ps: into a float32 it
 * adds the products of one pair with another.  Numbers that are subnormal, in
 * or out, count as zero to it.
 *
 * Included by blas_own.c for that variant, after blas_pack.h. */
INLINE TARGET static NAME(vec) NAME(madd)(NAME(vec) sum, float a, NAME(vec) b)
{
    __m512 all = _mm512_set1_ps(a);
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(b), "v"(all));
    return sum;
}

/* A pair, where a float is stored. */
typedef uint32_t NAME(two) __attribute__((may_alias));

/* Two rows of numbers become one of pairs; high may be NULL: zeros. */
TARGET static void NAME(zip)(NAME(two) *restrict to,
                             const uint16_t *restrict low,
                             const uint16_t *restrict high, int64_t n)
{
    if (high)
        for (int64_t i = 0; i < n; i++)
            to[i] = low[i] | (uint32_t)high[i] << 16;
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = low[i];
}

/* One row of k numbers becomes one of pairs. */
TARGET static void NAME(pair_row)(NAME(two) *restrict to,
                                  const uint16_t *restrict from, int64_t step,
                                  int64_t k)
{
    if (step == 1)
        memcpy(to, from, (size_t)(k / 2) * 4);
    else
        for (int64_t p = 0; p < k / 2; p++)
            to[p] = from[2 * p * step] | (uint32_t)from[(2 * p + 1) * step]
                                             << 16;
    if (k % 2) to[k / 2] = from[(k - 1) * step];
}

/* n x k numbers as n x (k + 1) / 2 pairs, which lie as the numbers do. */
TARGET static NAME(source)
    NAME(pair)(REAL *to, nb_dtype d, int64_t n, int64_t k, const uint16_t *from,
               int64_t across, int64_t along)
{
    NAME(two) *pairs = (NAME(two) *)to;
    int64_t half = (k + 1) / 2;
    (void)d;
    if (across == 1 && along != 1) {
        for (int64_t p = 0; p < half; p++) {
            const uint16_t *low = from + 2 * p * along;
            NAME(zip)
            (pairs + p * n, low, 2 * p + 1 < k ? low + along : NULL, n);
        }
        return (NAME(source)){to, 1, n};
    }
    for (int64_t i = 0; i < n; i++)
        NAME(pair_row)(pairs + i * half, from + i * across, along, k);
    return (NAME(source)){to, half, 1};
}
