/* blas_few.h - products of few rows or columns, where packing would cost more
 * than it saves.  Included by blas_own.c after blas_tile.h, with the same
 * definitions. */
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
        for (int64_t j = 0; j < x->n; j++) {
            REAL *at = &c[i * x->c_row + j];
            REAL sum = NAME(dot)(x->k, a + i * x->a_row, b + j * x->b_col);
            *at = x->add ? *at + sum : sum;
        }
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

/* A strip of `wide` columns from j on: adds multiples of rows of B, eight at a
 * time. */
TARGET static void NAME(strip)(const nb_product *x, int64_t j, int64_t wide)
{
    for (int64_t i = 0; !x->add && i < x->m; i++)
        memset((REAL *)x->c + i * x->c_row + j, 0, (size_t)wide * sizeof(REAL));
    for (int64_t p = 0; p < x->k; p += 8)
        for (int64_t i = 0; i < x->m; i++) {
            const REAL *a = (const REAL *)x->a + i * x->a_row + p * x->a_col;
            const REAL *b = (const REAL *)x->b + p * x->b_row + j;
            REAL s[8] = {0}, *c = (REAL *)x->c + i * x->c_row + j;
            int count = (int)least(8, x->k - p);
            for (int q = 0; q < count; q++)
                s[q] = a[q * x->a_col];
            if (count == 8)
                NAME(add)(wide, 8, s, b, x->b_row, c);
            else
                NAME(add)(wide, count, s, b, x->b_row, c);
        }
}

/* For few rows: in strips so narrow that eight rows of B and those of C stay in
 * the first cache, and B is read from memory once. */
TARGET static void NAME(rows)(const nb_product *x)
{
    enum { WIDE = STRIP / sizeof(REAL) };
    for (int64_t j = 0; j < x->n; j += WIDE)
        NAME(strip)(x, j, least(WIDE, x->n - j));
}
