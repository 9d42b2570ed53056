/* blas_pack.h - packing an operand into panels.
 *
 * Included by blas_own.c before blas_tile.h, with the same definitions.  A
 * panel is `width` rows of A or columns of B, stored as k runs of width units.
 * A unit is a number, or the PER numbers that one instruction multiplies and
 * adds up.  Where the numbers of a run lie far apart, blocks are transposed in
 * registers. */
typedef REAL NAME(vec)
    __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

enum { NAME(LANES) = BYTES / sizeof(REAL), NAME(COLS) = VECS * NAME(LANES) };

/* Numbers as they lie: those of a run are `across` apart, runs `along`. */
typedef struct NAME(source) {
    const REAL *data;
    int64_t across, along;
} NAME(source);

/* high x LANES numbers become LANES runs of high, `step` apart: log2(high)
 * times the two halves of all of them are interleaved.  high is a power of two,
 * no less than LANES or equal to step. */
INLINE TARGET static void NAME(turn)(REAL *to, int64_t step, int high,
                                     const REAL *from, int64_t across)
{
    NAME(vec) x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
        x[i] = *(const NAME(vec) *)(from + i * across);
#pragma GCC unroll 4
    for (int done = 1; done < high; done *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < high / 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + high / 2], LOW);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + high / 2], HIGH);
        }
#pragma GCC unroll 16
        for (int i = 0; i < high; i++)
            x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < high; i++) {
        int at = i * NAME(LANES);
        *(NAME(vec) *)(to + at / high * step + at % high) = x[i];
    }
}

/* n of high numbers to a run, the others zero. */
INLINE TARGET static void NAME(gather)(REAL *to, int64_t step, int high,
                                       int64_t n, int64_t k, NAME(source) from)
{
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < high; i++)
            to[p * step + i] =
                i < n ? from.data[i * from.across + p * from.along] : 0;
}

/* A strip of a panel: `high` of the numbers of each run.  The last block may
 * overlap the one before it. */
INLINE TARGET static void NAME(part)(REAL *to, int64_t step, int high,
                                     int64_t n, int64_t k, NAME(source) from)
{
    if (n < high || from.along != 1 || k < NAME(LANES)) {
        NAME(gather)(to, step, high, n, k, from);
        return;
    }
    for (int64_t p = 0; p < k; p += NAME(LANES)) {
        int64_t at = least(p, k - NAME(LANES));
        NAME(turn)(to + at * step, step, high, from.data + at, from.across);
    }
}

/* A panel of n runs, filled up to `width` with zeros, in strips of `high`. */
INLINE TARGET static void NAME(pack)(REAL *to, int64_t width, int high,
                                     int64_t n, int64_t k, NAME(source) from)
{
    size_t bytes = (size_t)high * sizeof(REAL);
    if (n == width && from.across == 1)
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i += high)
                memcpy(to + p * width + i, from.data + p * from.along + i,
                       bytes);
    else
        for (int64_t i = 0; i < width; i += high)
            NAME(part)
    (to + i, width, high, n - i, k,
     (NAME(source)){from.data + i * from.across, from.across, from.along});
}
