NB_CUDA(
/* Columns k0 to k0 + 63 of l from those of w, from which all before them have
 * been taken.  Every block factors the square on the diagonal; the first writes
 * it, each other solves 64 rows below: x l^T = w.
 *
 * Columns are taken from those behind them as they are, over the pivot, and
 * become those of l at the end: so threads meet once a column. */
static __device__ __forceinline__ bool factor(T *s, int n)
{
    int tx = threadIdx.x % 16;
    int ty = threadIdx.x / 16;
    int by = blockDim.x / 16;
    for (int j = 0; j < n; j++) {
        T p = s[j * 65 + j];
        if (!(p > 0) || p - p != 0) return false;
        T over = 1 / p;
        for (int i = j + 1 + ty; i < n; i += by) {
            T f = s[i * 65 + j] * over;
            for (int k = j + 1 + tx; k <= i; k += 16)
                s[i * 65 + k] -= f * s[k * 65 + j];
        }
        __syncthreads();
    }
    for (int e = threadIdx.x; e < n * n; e += blockDim.x) {
        int i = e / n;
        int j = e % n;
        if (j < i) s[i * 65 + j] /= SQRT(s[j * 65 + j]);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        s[j * 65 + j] = SQRT(s[j * 65 + j]);
    __syncthreads();
    return true;
}

/* Four threads a row, which meet within their warp. */
static __device__ __forceinline__ void solve_rows(const T *s, T *x, int n)
{
    int row = threadIdx.x / 4 * 65;
    for (int j = 0; j < n; j++) {
        T v = x[row + j] / s[j * 65 + j];
        __syncwarp();
        if (threadIdx.x % 4 == 0) x[row + j] = v;
        for (int k = j + 1 + threadIdx.x % 4; k < n; k += 4)
            x[row + k] -= v * s[k * 65 + j];
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(256)
cholesky_panel(const mats w, const mats l, i64 n, i64 k0, i64 tiles, int *bad)
{
    extern __shared__ __align__(16) char memory[];
    T *s = (T *)memory;
    T *x = s + 64 * 65;
    i64 b = blockIdx.x / tiles;
    i64 tile = blockIdx.x % tiles;
    int cols = n - k0 < 64 ? (int)(n - k0) : 64;
    for (int e = threadIdx.x; e < cols * cols; e += blockDim.x)
        s[e / cols * 65 + e % cols] =
            *place(w, b, k0 + e / cols, k0 + e % cols);
    __syncthreads();
    bool fine = factor(s, cols);
    if (tile == 0 && threadIdx.x == 0 && (k0 == 0 || !fine)) bad[b] = !fine;
    if (!fine) return;
    if (tile == 0) {
        for (int e = threadIdx.x; e < cols * cols; e += blockDim.x)
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
    solve_rows(s, x, cols);
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
