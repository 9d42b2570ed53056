/* blas_tile.h - one blocked product, for one element type and vector size.
 *
 * Included once per variant by blas_own.c, which defines
 *   REAL    the element type
 *   NAME(x) x with the suffix of the variant
 *   BYTES   of a vector
 *   ROWS    of a tile of C
 *   VECS    vectors to a row of the tile
 *   TARGET  the attribute that lets the compiler use the instructions
 * and undefines them here, at the end.
 *
 * A block of B, DEPTH rows deep, is packed into panels as wide as a tile, a
 * block of A into panels as high; the tile runs down one panel of each with
 * its part of C in registers.  The panel of B stays in the first cache, the
 * block of A in the second. */
typedef REAL NAME(vec)
    __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

enum {
    NAME(LANES) = BYTES / sizeof(REAL),
    NAME(COLS) = VECS * NAME(LANES),
    NAME(HIGH) = HEIGHT / ROWS * ROWS,
    NAME(WIDE) = WIDTH / NAME(COLS) * NAME(COLS)
};

/* C (ROWS x COLS, replaced or added to) = panel of A times panel of B. */
TARGET static void NAME(tile)(int64_t k, const REAL *a, const REAL *b, REAL *c,
                              int64_t c_row, bool add)
{
    NAME(vec) sum[ROWS][VECS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < VECS; j++) {
            sum[i][j] = (NAME(vec)){0};
            if (add) sum[i][j] = ((NAME(vec) *)(c + i * c_row))[j];
        }
    for (; k > 0; k--, a += ROWS, b += NAME(COLS)) {
        const NAME(vec) *row = (const NAME(vec) *)b;
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
            for (int j = 0; j < VECS; j++)
                sum[i][j] += a[i] * row[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        NAME(vec) *row = (NAME(vec) *)(c + i * c_row);
#pragma GCC unroll 2
        for (int j = 0; j < VECS; j++)
            row[j] = sum[i][j];
    }
}

/* The same for a tile that C does not fill: rows x cols of it exist. */
TARGET static void NAME(edge)(int64_t k, const REAL *a, const REAL *b, REAL *c,
                              int64_t c_row, bool add, int64_t rows,
                              int64_t cols)
{
    REAL whole[ROWS * NAME(COLS)];
    NAME(tile)(k, a, b, whole, NAME(COLS), false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            REAL *at = &c[i * c_row + j];
            REAL sum = whole[i * NAME(COLS) + j];
            *at = add ? *at + sum : sum;
        }
}

/* Packs count x k numbers, `across` and `along` apart, into panels of `width`:
 * k runs of width numbers each, filled up with zeros. */
TARGET static void NAME(pack)(REAL *to, int width, int64_t count, int64_t k,
                              const REAL *from, int64_t across, int64_t along)
{
    for (; count > 0; count -= width, from += width * across) {
        int n = count < width ? (int)count : width;
        for (int64_t p = 0; p < k; p++, to += width) {
            const REAL *x = from + p * along;
            for (int i = 0; i < n; i++)
                to[i] = x[i * across];
            for (int i = n; i < width; i++)
                to[i] = 0;
        }
    }
}

/* m x n of C from packed blocks of A and B. */
TARGET static void NAME(block)(int64_t m, int64_t n, int64_t k, const REAL *a,
                               const REAL *b, REAL *c, int64_t c_row, bool add)
{
    for (int64_t j = 0; j < n; j += NAME(COLS))
        for (int64_t i = 0; i < m; i += ROWS) {
            REAL *at = c + i * c_row + j;
            if (m - i >= ROWS && n - j >= NAME(COLS))
                NAME(tile)(k, a + i * k, b + j * k, at, c_row, add);
            else
                NAME(edge)
            (k, a + i * k, b + j * k, at, c_row, add, least(m - i, ROWS),
             least(n - j, NAME(COLS)));
        }
}

TARGET static bool NAME(product)(const nb_product *x)
{
    const REAL *a = x->a, *b = x->b;
    REAL *c = x->c;
    int64_t m = x->m, n = x->n, k = x->k;
    int64_t high = least(NAME(HIGH), (m + ROWS - 1) / ROWS * ROWS);
    int64_t wide =
        least(NAME(WIDE), (n + NAME(COLS) - 1) / NAME(COLS) * NAME(COLS));
    int64_t deep = least(DEPTH, k);
    size_t room, bytes = (size_t)((high + wide) * deep) * sizeof(REAL);
    REAL *pb = nb_block_new(bytes, &room);
    if (!pb) return false;
    REAL *pa = pb + wide * deep;
    for (int64_t j = 0; j < n; j += wide)
        for (int64_t p = 0; p < k; p += deep) {
            int64_t nj = least(wide, n - j), kp = least(deep, k - p);
            NAME(pack)
            (pb, NAME(COLS), nj, kp, b + p * x->b_row + j * x->b_col, x->b_col,
             x->b_row);
            for (int64_t i = 0; i < m; i += high) {
                int64_t mi = least(high, m - i);
                NAME(pack)
                (pa, ROWS, mi, kp, a + i * x->a_row + p * x->a_col, x->a_row,
                 x->a_col);
                NAME(block)
                (mi, nj, kp, pa, pb, c + i * x->c_row + j, x->c_row, p > 0);
            }
        }
    nb_block_free(pb, room);
    return true;
}

/* The dot product of two runs of numbers. */
TARGET static REAL NAME(dot)(int64_t k, const REAL *a, const REAL *b)
{
    enum { STEP = 4 * NAME(LANES) };
    NAME(vec) sum[4] = {{0}};
    int64_t p = 0;
    for (; p + STEP <= k; p += STEP) {
        const NAME(vec) *u = (const NAME(vec) *)(a + p);
        const NAME(vec) *v = (const NAME(vec) *)(b + p);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[i] += u[i] * v[i];
    }
    NAME(vec) all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    REAL s = 0;
    for (int i = 0; i < NAME(LANES); i++)
        s += all[i];
    for (; p < k; p++)
        s += a[p] * b[p];
    return s;
}

/* For few rows or columns: rows of A meet columns of B, both unit stride. */
TARGET static void NAME(dots)(const nb_product *x)
{
    const REAL *a = x->a, *b = x->b;
    REAL *c = x->c;
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++)
            c[i * x->c_row + j] =
                NAME(dot)(x->k, a + i * x->a_row, b + j * x->b_col);
}

/* c += s[0] b[0] + ... + s[count - 1] b[count - 1], rows of n numbers. */
TARGET static inline void NAME(add)(int64_t n, int count, const REAL *s,
                                    const REAL *b, int64_t row, REAL *c)
{
    int64_t j = 0;
    for (; j + NAME(LANES) <= n; j += NAME(LANES)) {
        NAME(vec) sum = *(NAME(vec) *)(c + j);
        for (int q = 0; q < count; q++)
            sum += s[q] * *(const NAME(vec) *)(b + q * row + j);
        *(NAME(vec) *)(c + j) = sum;
    }
    for (; j < n; j++)
        for (int q = 0; q < count; q++)
            c[j] += s[q] * b[q * row + j];
}

/* A strip of `wide` columns from j on: adds multiples of rows of B, four at a
 * time. */
TARGET static void NAME(strip)(const nb_product *x, int64_t j, int64_t wide)
{
    for (int64_t i = 0; i < x->m; i++)
        memset((REAL *)x->c + i * x->c_row + j, 0, (size_t)wide * sizeof(REAL));
    for (int64_t p = 0; p < x->k; p += 4)
        for (int64_t i = 0; i < x->m; i++) {
            const REAL *a = (const REAL *)x->a + i * x->a_row + p * x->a_col;
            const REAL *b = (const REAL *)x->b + p * x->b_row + j;
            REAL s[4] = {0}, *c = (REAL *)x->c + i * x->c_row + j;
            int count = (int)least(4, x->k - p);
            for (int q = 0; q < count; q++)
                s[q] = a[q * x->a_col];
            if (count == 4)
                NAME(add)(wide, 4, s, b, x->b_row, c);
            else
                NAME(add)(wide, count, s, b, x->b_row, c);
        }
}

/* For few rows: in strips so narrow that four rows of B and those of C stay in
 * the first cache, and B is read from memory once. */
TARGET static void NAME(rows)(const nb_product *x)
{
    enum { WIDE = STRIP / sizeof(REAL) };
    for (int64_t j = 0; j < x->n; j += WIDE)
        NAME(strip)(x, j, least(WIDE, x->n - j));
}

#undef REAL
#undef NAME
#undef BYTES
#undef ROWS
#undef VECS
#undef TARGET
