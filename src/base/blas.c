/* blas.c - which library computes a product, and in which blocks.
 *
 * The libraries want operands of which one stride is one and the other no less
 * than the extent; others are copied.  Our own kernel takes any strides, and
 * what does not fit a 32-bit integer.
 *
 * A product of some size is cut into blocks of C, each computed by one thread.
 * The cut follows from the shape: a number of C may be rounded differently in
 * a block of another shape, so one thread computes the same blocks as many. */
#include "base/blas.h"

#include "base/blas_lib.h"
#include "base/blas_own.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/pool.h"

#include <assert.h>
#include <stdatomic.h>

/* Numbers of multiplications, as measured: up to TINY a loop costs less than
 * the call, up to LITTLE less than any call but that of OpenBLAS, and up to
 * SMALL OpenBLAS is quicker than oneDNN.  From CUT on two threads are worth
 * having.  For a large product of few rows OpenBLAS is slower than our own
 * kernel, and with AVX-512 for one of many. */
enum {
    TINY = 64,
    LITTLE = 512,
    SMALL = 1 << 18,
    CUT = 1 << 19,
    FEW_ROWS = 4,
    MANY_ROWS = 32,
    WIDEST = 64
};

/* Where B is stored by columns, oneDNN packs all of it from FLAT_FROM rows on;
 * up to FLAT_TO of them it is better called for fewer, and for so many columns
 * that their part of B stays in the second cache. */
enum { FLAT_FROM = 16, FLAT_TO = 48, FLAT_ROWS = 12, FLAT_COLS = 192 };

/* Of blocks: the least height and width that keep oneDNN and OpenBLAS at full
 * speed, and those for our own kernel, which packs its part of A and B for
 * every block; the least width where the rows are too few to be cut; the least
 * extent if only many terms to a sum make the product large; and the most of
 * both, which keep a block in the second cache. */
enum {
    LEAST_ROWS = 48,
    LEAST_COLS = 512,
    LEAST_OWN = 192,
    LEAST_COLS_OF_FEW = 256,
    LEAST_COLS_OF_ONE = 384,
    LEAST_EITHER = 32,
    MOST_ROWS = 512,
    MOST_COLS = 1024,
    PARTS = 4
};

const char *nb_blas_name(void)
{
    bool openblas = nb_openblas_found();
    if (nb_onednn_found()) return openblas ? "onednn+openblas" : "onednn";
    return openblas ? "openblas" : "own";
}

/* About 50 multiplications of float32 and 64 bytes a nanosecond, and the call.
 */
double nb_gemm_cost(nb_dtype d, int64_t m, int64_t n, int64_t k)
{
    double x = (double)m, y = (double)n, z = (double)k;
    double size = (double)nb_float_size(d);
    double compute = x * y * z * (d == NB_F16 ? 4 : size) / 200;
    double move = (x * z + z * y + x * y) * size / 64;
    return 50 + (compute > move ? compute : move);
}

static void gather(void *to, const void *from, size_t size, int64_t rows,
                   int64_t cols, int64_t row, int64_t col)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = i * row + j * col;
            if (size == 4)
                ((float *)to)[i * cols + j] = ((const float *)from)[at];
            else
                ((double *)to)[i * cols + j] = ((const double *)from)[at];
        }
}

/* A copy of an operand that the libraries take, kept for as long as they need
 * it; data is NULL where none was needed. */
typedef struct copy {
    void *data;
    size_t room;
} copy;

static bool adapt(copy *c, nb_dtype d, const void **data, int64_t rows,
                  int64_t cols, int64_t *row, int64_t *col)
{
    *c = (copy){0};
    if (nb_operand_fits(rows, cols, *row, *col)) return true;
    size_t size = nb_float_size(d);
    c->data = nb_block_new((size_t)rows * (size_t)cols * size, &c->room);
    if (!c->data) return false;
    gather(c->data, *data, size, rows, cols, *row, *col);
    *data = c->data;
    *row = cols;
    *col = 1;
    return true;
}

static bool fits(int64_t n)
{
    return -INT32_MAX <= n && n <= INT32_MAX;
}

/* FLAT: by oneDNN, FLAT_ROWS rows at a time. */
typedef enum way { OWN, OPENBLAS, ONEDNN, FLAT } way;

/* GF/s of one core that has 116, with AVX-512, as measured (m x n x k; NT: B is
 * stored by columns):
 *                     oneDNN  flat OpenBLAS own
 *    256x768x3072 NT      99             95 107
 *    512x3072x768 NT     109            102 109
 *     64x3072x768 NT      97   102       90 100
 *     32x3072x768 NT      87   106       80  94
 *     16x3072x768 NT      71   103       62  78
 *      8x3072x768 NT      98             46  62
 *      1x3072x768 NT      41             41  45
 *        64x64x64 NT      76             85  98
 *       512x3072x768     109            103 108
 *        16x3072x768     112             67  62
 *         1x3072x768      38             40  42
 *           64x64x64      98            115 102
 * Where there is only AVX2, OpenBLAS was the best of them throughout. */
static way choose_wide(const nb_product *x, bool small)
{
    bool onednn = nb_onednn_found(), openblas = nb_openblas_found();
    bool by_cols = x->b_row == 1 && x->b_col != 1 && x->n > 1 && x->k > 1;
    if (by_cols && x->m >= FLAT_FROM)
        return onednn && !small && x->m < FLAT_TO ? FLAT : OWN;
    if (!small && x->n > 1 && (x->m == 1 || (x->m == 2 && !by_cols)))
        return OWN;
    if (small && openblas) return OPENBLAS;
    if (onednn) return ONEDNN;
    return openblas && x->m < MANY_ROWS ? OPENBLAS : OWN;
}

static way choose(const nb_product *x, double work)
{
    bool small = work <= SMALL, openblas = nb_openblas_found();
    bool narrow = fits(x->m) && fits(x->n) && fits(x->k) && fits(x->a_row) &&
                  fits(x->a_col) && fits(x->b_row) && fits(x->b_col) &&
                  fits(x->c_row);
    if (!narrow || (x->m > 1 && x->c_row < x->n)) return OWN;
    if (nb_float_size(x->dtype) == 2) return OWN;
    if (x->dtype == NB_F32 && nb_own_bytes() >= 64)
        return choose_wide(x, small);
    if (!openblas)
        return x->dtype == NB_F32 && nb_onednn_found() ? ONEDNN : OWN;
    return !small && 1 < x->m && x->m <= FEW_ROWS && x->n > 1 ? OWN : OPENBLAS;
}

/* A product in blocks of rows x cols of C, `across` of them side by side. */
typedef struct blocks {
    const nb_product *x;
    way way;
    int64_t rows, cols, across, count;
    atomic_bool failed;
} blocks;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The extent of the parts of n: so many of them, fewer if they would be less
 * than `least`, more if they would be more than `most`; whole vectors. */
static int64_t part(int64_t n, int64_t parts, int64_t least, int64_t most)
{
    if (parts > n / least) parts = n / least;
    if (parts < ceil_div(n, most)) parts = ceil_div(n, most);
    if (parts <= 1) return n;
    int64_t each = ceil_div(ceil_div(n, parts), 16) * 16;
    return each < n ? each : n;
}

/* Columns are cut first, rows if that does not give PARTS: what oneDNN does
 * with an operand it does once for every block, and blocks 512 high and wide
 * were 109 GF/s where flat ones, 128 high, were 100. */
static void cut(blocks *b, double work)
{
    int64_t m = b->x->m, n = b->x->n, most = MOST_COLS;
    int64_t high = LEAST_ROWS, wide = LEAST_COLS;
    if (b->way == OWN) high = wide = LEAST_OWN;
    if (b->way == FLAT) high = FLAT_TO, wide = most = FLAT_COLS;
    if (m < 2 * LEAST_ROWS && wide > LEAST_COLS_OF_FEW)
        wide = LEAST_COLS_OF_FEW;
    if (m == 1) wide = LEAST_COLS_OF_ONE;
    b->rows = m;
    b->cols = n;
    if (work >= CUT) {
        b->cols = part(n, PARTS, wide, most);
        int64_t left = ceil_div(PARTS, ceil_div(n, b->cols));
        b->rows = part(m, left, high, MOST_ROWS);
    }
    if (b->rows == m && b->cols == n && work >= 4 * CUT) {
        b->rows = part(m, PARTS, LEAST_EITHER, m);
        if (b->rows == m) b->cols = part(n, PARTS, LEAST_EITHER, n);
    }
    b->across = ceil_div(n, b->cols);
    b->count = b->across * ceil_div(m, b->rows);
}

static bool run_flat(nb_product x)
{
    int64_t left = x.m, each = ceil_div(left, ceil_div(left, FLAT_ROWS));
    bool ok = true;
    for (; ok && left > 0; left -= each) {
        x.m = left < each ? left : each;
        ok = nb_product_onednn(&x);
        x.a = (const float *)x.a + each * x.a_row;
        x.c = (float *)x.c + each * x.c_row;
    }
    return ok;
}

static bool run(const nb_product *x, way w)
{
    if (w == OPENBLAS) return nb_product_openblas(x), true;
    if (w == FLAT && run_flat(*x)) return true;
    if (w == ONEDNN && nb_product_onednn(x)) return true;
    return nb_product_own(x, WIDEST);
}

static void run_block(void *ctx, int64_t i)
{
    blocks *b = ctx;
    nb_product x = *b->x;
    int64_t size = (int64_t)nb_float_size(x.dtype);
    int64_t row = i / b->across * b->rows, col = i % b->across * b->cols;
    x.a = (const char *)x.a + row * x.a_row * size;
    x.b = (const char *)x.b + col * x.b_col * size;
    x.c = (char *)x.c + (row * x.c_row + col) * size;
    x.m = x.m - row < b->rows ? x.m - row : b->rows;
    x.n = x.n - col < b->cols ? x.n - col : b->cols;
    if (!run(&x, b->way)) b->failed = true;
}

static bool run_blocks(const nb_product *x, way w, double work)
{
    blocks b = {.x = x, .way = w};
    cut(&b, work);
    if (b.count == 1) return run(x, w);
    nb_parallel_if(nb_gemm_cost(x->dtype, x->m, x->n, x->k), b.count, run_block,
                   &b);
    return !b.failed;
}

static bool run_adapted(nb_product x, way w, double work)
{
    copy a, b = {0};
    bool ok = adapt(&a, x.dtype, &x.a, x.m, x.k, &x.a_row, &x.a_col) &&
              adapt(&b, x.dtype, &x.b, x.k, x.n, &x.b_row, &x.b_col) &&
              run_blocks(&x, w, work);
    nb_block_free(a.data, a.room);
    nb_block_free(b.data, b.room);
    return ok;
}

static bool multiply(const nb_product *x)
{
    bool half = nb_dtype_is_half(x->dtype);
    assert(x->m >= 0 && x->n >= 0 && x->k >= 0);
    if (x->dtype != NB_F32 && x->dtype != NB_F64 && (!half || x->add))
        return nb_fail(NB_ETYPE,
                       "matmul: dtype %d has no product here "
                       "(a floating one%s)",
                       (int)x->dtype, x->add ? " of 32 or 64 bits" : "");
    if (x->m == 0 || x->n == 0) return true;
    double work = (double)x->m * (double)x->n * (double)x->k;
    bool small_call = nb_openblas_found() && !half;
    if (work <= TINY || (work <= LITTLE && !small_call))
        return nb_product_simple(x), true;
    way w = choose(x, work);
    return w == OWN ? run_blocks(x, w, work) : run_adapted(*x, w, work);
}

bool nb_gemm(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
             int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
             int64_t b_col, void *c, int64_t c_row)
{
    return multiply(&(nb_product){d, m, n, k, a, a_row, a_col, b, b_row, b_col,
                                  c, c_row, false});
}

bool nb_gemm_add(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
                 int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                 int64_t b_col, void *c, int64_t c_row)
{
    return multiply(&(nb_product){d, m, n, k, a, a_row, a_col, b, b_row, b_col,
                                  c, c_row, true});
}
