/* blas_few_half.h - products of few rows of 16-bit floats: numbers of B are
 * widened as they are read, once.  Included by blas_own.c after blas_lift.h and
 * blas_few.h, with the same definitions. */
enum { NAME(LINE) = 512 }; /* numbers widened at a time */

/* Columns j to j + wide of C. */
TARGET static void NAME(narrow_rows)(const nb_product *x, int64_t j,
                                     int64_t wide, const float *sums)
{
    for (int64_t i = 0; i < x->m; i++)
        NAME(narrow_row)
    ((uint16_t *)x->c + i * x->c_row + j, x->dtype, sums + i * NAME(LINE),
     wide);
}

/* The same where rows of B have unit stride. */
TARGET static void NAME(strip_half)(const nb_product *x, int64_t j,
                                    int64_t wide)
{
    float lines[8 * NAME(LINE)], sums[FEW_HALVES * NAME(LINE)] = {0};
    const uint16_t *a = x->a, *b = (const uint16_t *)x->b + j;
    for (int64_t p = 0; p < x->k; p += 8) {
        int count = (int)least(8, x->k - p);
        for (int q = 0; q < count; q++)
            NAME(widen_row)
        (lines + q * NAME(LINE), x->dtype, b + (p + q) * x->b_row, 1, wide);
        for (int64_t i = 0; i < x->m; i++) {
            float s[8];
            NAME(widen_row)
            (s, x->dtype, a + i * x->a_row + p * x->a_col, x->a_col, count);
            NAME(add)
            (wide, count, s, lines, NAME(LINE), sums + i * NAME(LINE));
        }
    }
    NAME(narrow_rows)(x, j, wide, sums);
}

TARGET static void NAME(rows_half)(const nb_product *x)
{
    for (int64_t j = 0; j < x->n; j += NAME(LINE))
        NAME(strip_half)(x, j, least(NAME(LINE), x->n - j));
}

/* What rows p to p + k of B add to the sums of columns j to j + wide; columns
 * have unit stride. */
TARGET static void NAME(dots_part)(const nb_product *x, int64_t j, int64_t wide,
                                   int64_t p, int64_t k, float *sums)
{
    float rows[FEW_HALVES * NAME(LINE)], line[NAME(LINE)];
    const uint16_t *a = (const uint16_t *)x->a + p * x->a_col;
    const uint16_t *b = (const uint16_t *)x->b + p + j * x->b_col;
    for (int64_t i = 0; i < x->m; i++)
        NAME(widen_row)
    (rows + i * NAME(LINE), x->dtype, a + i * x->a_row, x->a_col, k);
    for (int64_t c = 0; c < wide; c++) {
        NAME(widen_row)(line, x->dtype, b + c * x->b_col, 1, k);
        for (int64_t i = 0; i < x->m; i++)
            sums[i * NAME(LINE) + c] +=
                NAME(dot)(k, rows + i * NAME(LINE), line);
    }
}

TARGET static void NAME(dots_half)(const nb_product *x)
{
    for (int64_t j = 0; j < x->n; j += NAME(LINE)) {
        int64_t wide = least(NAME(LINE), x->n - j);
        float sums[FEW_HALVES * NAME(LINE)] = {0};
        for (int64_t p = 0; p < x->k; p += NAME(LINE))
            NAME(dots_part)(x, j, wide, p, least(NAME(LINE), x->k - p), sums);
        NAME(narrow_rows)(x, j, wide, sums);
    }
}
