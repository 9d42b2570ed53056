/* conv_tile.h - the inner loops, for one element type and vector size.
 *
 * Included once per variant by conv_own.c, which defines UNROLL and
 *   REAL    the element type
 *   NAME(x) x with the suffix of the variant
 *   BYTES   of a vector
 *   ROWS    of a tile, 4, 6 or 8
 *   TARGET  the attribute that lets the compiler use the instructions
 * and undefines them here, at the end. */
typedef REAL NAME(vec)
    __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

enum { NAME(LANES) = BYTES / sizeof(REAL), NAME(COLS) = 2 * NAME(LANES) };

/* The tile for numbers of rows and vectors known at compile time. */
TARGET static inline __attribute__((always_inline)) void
NAME(sum)(const nb_conv_tile *t, REAL *c, int64_t c_row, bool add,
          const int rows, const int vecs)
{
    NAME(vec) sum[ROWS][2];
    const int64_t a_row = t->a_row, a_step = t->a_step, b_step = t->b_step;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++) {
            sum[i][j] = (NAME(vec)){0};
            if (add) sum[i][j] = ((NAME(vec) *)(c + i * c_row))[j];
        }
    }
    for (int64_t r = 0; r < t->runs; r++) {
        const REAL *a = (const REAL *)t->a + t->run[r].a;
        const REAL *b = (const REAL *)t->b + t->run[r].b;
        for (int64_t k = t->run[r].k; k > 0; k--, a += a_step, b += b_step) {
            const NAME(vec) *row = (const NAME(vec) *)b;
            UNROLL
            for (int i = 0; i < rows; i++) {
                UNROLL
                for (int j = 0; j < vecs; j++)
                    sum[i][j] += a[i * a_row] * row[j];
            }
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++)
            ((NAME(vec) *)(c + i * c_row))[j] = sum[i][j];
    }
}

#define CASE(n)                                            \
    case 2 * n: NAME(sum)(t, c, c_row, add, n, 1); return; \
    case 2 * n + 1: NAME(sum)(t, c, c_row, add, n, 2); return;

TARGET static void NAME(whole)(const nb_conv_tile *t, REAL *c, int64_t c_row,
                               bool add)
{
    switch (2 * t->rows + (t->cols > NAME(LANES))) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
#if ROWS > 4
        CASE(5)
        CASE(6)
#endif
#if ROWS > 6
        CASE(7)
        CASE(8)
#endif
    }
}

#undef CASE

/* A tile whose last vector C does not fill is made aside. */
TARGET static void NAME(tile)(const nb_conv_tile *t)
{
    REAL aside[ROWS * NAME(COLS)], *c = t->c;
    if (t->cols % NAME(LANES) == 0) {
        NAME(whole)(t, c, t->c_row, t->add);
        return;
    }
    NAME(whole)(t, aside, NAME(COLS), false);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            REAL *to = &c[i * t->c_row + j], sum = aside[i * NAME(COLS) + j];
            *to = t->add ? *to + sum : sum;
        }
}

TARGET static void NAME(weigh_row)(const nb_conv_tile *t, const REAL *a,
                                   REAL *c)
{
    const REAL *b = t->b;
    int64_t j = 0;
    for (; j + NAME(LANES) <= t->cols; j += NAME(LANES)) {
        NAME(vec) sum = {0};
        if (t->add) sum = *(NAME(vec) *)(c + j);
        for (const nb_conv_terms *r = t->run; r < t->run + t->runs; r++)
            for (int64_t p = 0; p < r->k; p++)
                sum += *(const NAME(vec) *)(a + r->a + p * t->a_step + j) *
                       *(const NAME(vec) *)(b + r->b + p * t->b_step + j);
        *(NAME(vec) *)(c + j) = sum;
    }
    for (; j < t->cols; j++) {
        REAL sum = t->add ? c[j] : 0;
        for (const nb_conv_terms *r = t->run; r < t->run + t->runs; r++)
            for (int64_t p = 0; p < r->k; p++)
                sum +=
                    a[r->a + p * t->a_step + j] * b[r->b + p * t->b_step + j];
        c[j] = sum;
    }
}

TARGET static void NAME(weigh)(const nb_conv_tile *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        NAME(weigh_row)
    (t, (const REAL *)t->a + i * t->a_row, (REAL *)t->c + i * t->c_row);
}

TARGET static void NAME(add)(void *to, const void *from, int64_t n)
{
    REAL *y = to;
    const REAL *x = from;
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static const nb_conv_tiler NAME(tiler) = {ROWS,       NAME(LANES), NAME(COLS),
                                          NAME(tile), NAME(weigh), NAME(add)};

#undef REAL
#undef NAME
#undef BYTES
#undef ROWS
#undef TARGET
