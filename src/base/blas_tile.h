/* blas_tile.h - one blocked product, for one element type and vector size.
 *
 * Included once per variant by blas_own.c, which defines
 *   REAL       the element type
 *   NAME(x)    x with the suffix of the variant
 *   BYTES      of a vector
 *   ROWS       of a tile of C, a power of two
 *   VECS       vectors to a row of the tile
 *   LOW, HIGH  the places of two vectors that interleave their halves
 *   TARGET     the attribute that lets the compiler use the instructions
 *   PER        numbers to a unit (see blas_pack.h)
 *   MADD       sum + a * b, for a unit a and vectors of units
 *   LIFT       makes units of 16-bit floats
 *   NARROW     makes 16-bit floats of sums
 *
 * DEPTH units of WIDTH columns of B are packed and stay in the second cache.
 * One panel of A at a time is packed too; it stays in the first cache while the
 * tile, with its part of C in registers, runs along it and all panels of B.
 *
 * A number of C is the same sum whatever block of C it is computed in. */

/* C (ROWS x vecs vectors, replaced or added to) = panel of A times one of B. */
INLINE TARGET static void NAME(fixed)(int vecs, int64_t k, const REAL *a,
                                      const REAL *b, REAL *c, int64_t c_row,
                                      bool add)
{
    NAME(vec) sum[ROWS][VECS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) {
            sum[i][j] = (NAME(vec)){0};
            __builtin_prefetch(c + i * c_row + j * NAME(LANES), 1);
        }
    for (; k > 0; k--, a += ROWS, b += vecs * NAME(LANES)) {
        const NAME(vec) *row = (const NAME(vec) *)b;
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                sum[i][j] = MADD(sum[i][j], a[i], row[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        NAME(vec) *row = (NAME(vec) *)(c + i * c_row);
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            row[j] = add ? (NAME(vec))(row[j] + sum[i][j]) : sum[i][j];
    }
}

TARGET static void NAME(tile)(int64_t vecs, int64_t k, const REAL *a,
                              const REAL *b, REAL *c, int64_t c_row, bool add)
{
    if (vecs == VECS)
        NAME(fixed)(VECS, k, a, b, c, c_row, add);
    else if (vecs == 2)
        NAME(fixed)(2, k, a, b, c, c_row, add);
    else
        NAME(fixed)(1, k, a, b, c, c_row, add);
}

/* The same where C does not fill the tile: rows x cols of it exist. */
TARGET static void NAME(edge)(int64_t vecs, int64_t k, const REAL *a,
                              const REAL *b, REAL *c, int64_t c_row, bool add,
                              int64_t rows, int64_t cols)
{
    REAL whole[ROWS * NAME(COLS)];
    NAME(tile)(vecs, k, a, b, whole, NAME(COLS), false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            REAL *at = &c[i * c_row + j];
            REAL sum = whole[i * NAME(COLS) + j];
            *at = add ? *at + sum : sum;
        }
}

/* What a product works with.  Sums of 16-bit floats are made beside C. */
typedef struct NAME(work) {
    const nb_product *x;
    size_t size;         /* of a number of A and B */
    int64_t deep, wide;  /* numbers, columns */
    REAL *pa, *pb;       /* a panel of A, panels of B */
    REAL *lifted, *sums; /* or NULL */
} NAME(work);

/* A panel of n x k numbers.  Runs that lie as the panel wants them need no more
 * than to be made units. */
INLINE TARGET static void NAME(panel)(const NAME(work) * w, REAL *to,
                                      int64_t width, int high, int64_t n,
                                      int64_t k, const void *from,
                                      int64_t across, int64_t along)
{
    NAME(source) s = {from, across, along};
    bool runs = w->lifted && across == 1 && along != 1 && n == width;
    if (w->lifted)
        s = LIFT(runs ? to : w->lifted, w->x->dtype, n, k, from, across, along);
    if (!runs) NAME(pack)(to, width, high, n, (k + PER - 1) / PER, s);
}

/* Panels of B from row p and column j on, k x n of it. */
TARGET static void NAME(pack_b)(const NAME(work) * w, int64_t p, int64_t j,
                                int64_t k, int64_t n)
{
    const nb_product *x = w->x;
    int64_t units = (k + PER - 1) / PER;
    for (int64_t q = 0; q < n; q += NAME(COLS)) {
        int64_t cols = least(n - q, NAME(COLS));
        int64_t from = p * x->b_row + (j + q) * x->b_col;
        NAME(panel)
        (w, w->pb + q * units, round_up(cols, NAME(LANES)), NAME(LANES), cols,
         k, (const char *)x->b + from * (int64_t)w->size, x->b_col, x->b_row);
    }
}

/* `rows` rows of C, from the panel of A and those of B. */
TARGET static void NAME(sweep)(const NAME(work) * w, REAL *c, int64_t c_row,
                               int64_t rows, int64_t n, int64_t units, bool add)
{
    for (int64_t q = 0; q < n; q += NAME(COLS)) {
        const REAL *b = w->pb + q * units;
        int64_t cols = least(n - q, NAME(COLS));
        int64_t vecs = round_up(cols, NAME(LANES)) / NAME(LANES);
        if (rows == ROWS && cols == vecs * NAME(LANES))
            NAME(tile)(vecs, units, w->pa, b, c + q, c_row, add);
        else
            NAME(edge)
        (vecs, units, w->pa, b, c + q, c_row, add, rows, cols);
    }
}

/* The part of m x n of C that rows p to p + k of B give. */
TARGET static void NAME(slab)(const NAME(work) * w, REAL *c, int64_t c_row,
                              int64_t i, int64_t j, int64_t p, int64_t m,
                              int64_t n, int64_t k)
{
    const nb_product *x = w->x;
    NAME(pack_b)(w, p, j, k, n);
    for (int64_t r = 0; r < m; r += ROWS) {
        int64_t rows = least(m - r, ROWS);
        int64_t from = (i + r) * x->a_row + p * x->a_col;
        NAME(panel)
        (w, w->pa, ROWS, ROWS, rows, k,
         (const char *)x->a + from * (int64_t)w->size, x->a_row, x->a_col);
        NAME(sweep)
        (w, c + r * c_row, c_row, rows, n, (k + PER - 1) / PER,
         x->add || p > 0);
    }
}

/* m x n of C. */
TARGET static void NAME(block)(const NAME(work) * w, int64_t i, int64_t j,
                               int64_t m, int64_t n)
{
    const nb_product *x = w->x;
    REAL *c = w->sums ? w->sums : (REAL *)x->c + i * x->c_row + j;
    int64_t c_row = w->sums ? w->wide : x->c_row;
    for (int64_t p = 0; p < x->k; p += w->deep)
        NAME(slab)(w, c, c_row, i, j, p, m, n, least(x->k - p, w->deep));
    for (int64_t r = 0; w->sums && r < m; r++)
        NARROW((uint16_t *)x->c + (i + r) * x->c_row + j, x->dtype,
               w->sums + r * c_row, n);
}

TARGET static bool NAME(product)(const nb_product *x)
{
    NAME(work) w = {.x = x, .size = nb_float_size(x->dtype)};
    bool half = w.size == 2;
    int64_t high = least(x->m, HEIGHT);
    w.deep = even_part(x->k, DEPTH * PER, NAME(LANES) * PER);
    w.wide = even_part(x->n, WIDTH / NAME(COLS) * NAME(COLS), NAME(COLS));
    int64_t panel = (w.deep / PER) * NAME(COLS), pb = (w.deep / PER) * w.wide;
    int64_t n = pb + (half ? 2 : 1) * panel + (half ? high * w.wide : 0);
    size_t room;
    w.pb = nb_block_new((size_t)n * sizeof(REAL), &room);
    if (!w.pb) return false;
    w.pa = w.pb + pb;
    if (half) w.lifted = w.pa + panel;
    if (half) w.sums = w.lifted + panel;
    for (int64_t i = 0; i < x->m; i += HEIGHT)
        for (int64_t j = 0; j < x->n; j += w.wide)
            NAME(block)
    (&w, i, j, least(x->m - i, HEIGHT), least(x->n - j, w.wide));
    nb_block_free(w.pb, room);
    return true;
}
