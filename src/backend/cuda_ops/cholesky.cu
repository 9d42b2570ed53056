NB_CUDA(
/* Columns k0 to k0 + 63 of l from those of w, from which all before them have
 * been taken.  Every block factors the square on the diagonal; the first writes
 * it, each other solves 64 rows below: x l^T = w. */

/* The square in registers, 4 x 4 elements a thread.  Columns are taken from
 * those behind them as they are, over the pivot, and become those of l at the
 * end: so threads meet once a column, which two places take by turns. */
static __device__ __forceinline__ bool factor(const mats &w, i64 b, i64 k0,
                                              T *s, T *column, T *pivot, int n)
{
    int tx = threadIdx.x % 16;
    int ty = threadIdx.x / 16;
    int by = blockDim.x / 16;
    T a[4][4];
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int q = 0; q < 4; q++) {
            int i = ty + by * r;
            int k = tx + 16 * q;
            a[r][q] = i < n && k < n ? *place(w, b, k0 + i, k0 + k) : (T)0;
        }
    UNROLL for (int q = 0; q < 4; q++)
        for (int t = 0; t < 16 && 16 * q + t < n; t++) {
            T *c = column + t % 2 * 64;
            if (tx == t)
                UNROLL for (int r = 0; r < 4; r++)
                    c[ty + by * r] = a[r][q];
            __syncthreads();
            T p = c[16 * q + t];
            if (!(p > 0) || p - p != 0) return false;
            T over = 1 / p;
            UNROLL for (int r = 0; r < 4; r++) {
                T f = c[ty + by * r] * over;
                UNROLL for (int m = q; m < 4; m++)
                    if (m > q || tx > t) a[r][m] -= f * c[tx + 16 * m];
            }
        }
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int q = 0; q < 4; q++)
            if (ty + by * r == tx + 16 * q)
                pivot[tx + 16 * q] = SQRT(a[r][q]);
    __syncthreads();
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int q = 0; q < 4; q++) {
            int i = ty + by * r;
            int k = tx + 16 * q;
            if (i < n && k <= i)
                s[i * 65 + k] = k < i ? a[r][q] / pivot[k] : pivot[k];
        }
    __syncthreads();
    return true;
}

/* Four threads a row, which has its elements in their registers by turns. */
static __device__ __forceinline__ void solve_rows(const T *s, T *rows)
{
    int q = threadIdx.x % 4;
    int first = threadIdx.x % 32 - q;
    T *row = rows + threadIdx.x / 4 * 65;
    T x[16];
    UNROLL for (int m = 0; m < 16; m++)
        x[m] = row[q + 4 * m];
    UNROLL for (int m = 0; m < 16; m++)
        UNROLL for (int e = 0; e < 4; e++) {
            int j = 4 * m + e;
            T v = __shfl_sync(0xffffffffu, x[m], first + e) / s[j * 65 + j];
            if (q == e) x[m] = v;
            UNROLL for (int o = m; o < 16; o++)
                if (o > m || q > e) x[o] -= v * s[(q + 4 * o) * 65 + j];
        }
    UNROLL for (int m = 0; m < 16; m++)
        row[q + 4 * m] = x[m];
}

extern "C" __global__ void __launch_bounds__(256)
cholesky_panel(const mats w, const mats l, i64 n, i64 k0, i64 tiles, int *bad)
{
    extern __shared__ __align__(16) char memory[];
    T *s = (T *)memory;
    T *x = s + 64 * 65;
    T *column = x + 64 * 65;
    i64 b = blockIdx.x / tiles;
    i64 tile = blockIdx.x % tiles;
    int cols = n - k0 < 64 ? (int)(n - k0) : 64;
    bool fine = factor(w, b, k0, s, column, column + 128, cols);
    if (tile == 0 && threadIdx.x == 0 && (k0 == 0 || !fine)) bad[b] = !fine;
    if (!fine) return;
    if (tile == 0) {
        for (int e = threadIdx.x; e < cols * cols; e += blockDim.x)
            if (e % cols <= e / cols)
                *place(l, b, k0 + e / cols, k0 + e % cols) =
                    s[e / cols * 65 + e % cols];
        return;
    }
    i64 r0 = k0 + 64 * tile;
    int rows = n - r0 < 64 ? (int)(n - r0) : 64;
    for (int e = threadIdx.x; e < 64 * 64; e += 256)
        x[e / 64 * 65 + e % 64] =
            e / 64 < rows ? *place(w, b, r0 + e / 64, k0 + e % 64) : (T)0;
    __syncthreads();
    solve_rows(s, x);
    __syncthreads();
    for (int e = threadIdx.x; e < rows * 64; e += 256)
        *place(l, b, r0 + e / 64, k0 + e % 64) = x[e / 64 * 65 + e % 64];
}

/* Zeros above the diagonal; NaN where there is no such factor. */
extern "C" __global__ void __launch_bounds__(256)
cholesky_close(const mats l, i64 n, i64 count, const int *bad)
{
    for (i64 k = blockIdx.x * 256ll + threadIdx.x; k < count * n * n;
         k += gridDim.x * 256ll) {
        i64 b = k / (n * n);
        i64 i = k % (n * n) / n;
        i64 j = k % n;
        if (bad[b])
            *place(l, b, i, j) = NOT;
        else if (j > i)
            *place(l, b, i, j) = 0;
    }
}
)
