NB_CUDA(
/* Rows k0 to k0 + 63 of the x of l x = b, in its place, from which all before
 * them have been taken; l is lower triangular.  A block has 32 columns, four
 * threads a column, which has its rows in their registers by turns. */
extern "C" __global__ void __launch_bounds__(128)
triangle_solve(const mats l, const mats x, i64 n, i64 cols, i64 k0, int unit,
               i64 tiles)
{
    extern __shared__ __align__(16) char memory[];
    T *s = (T *)memory;
    T *y = s + 64 * 65;
    i64 b = blockIdx.x / tiles;
    i64 col = blockIdx.x % tiles * 32 + threadIdx.x % 32;
    int rows = n - k0 < 64 ? (int)(n - k0) : 64;
    int q = threadIdx.x % 4;
    int first = threadIdx.x % 32 - q;
    bool flat = l.col == 1 || l.col == -1;
    for (int e = threadIdx.x; e < rows * rows; e += 128) {
        int i = flat ? e / rows : e % rows;
        int j = flat ? e % rows : e / rows;
        if (j < i || (j == i && !unit))
            s[i * 65 + j] = *place(l, b, k0 + i, k0 + j);
    }
    for (int i = threadIdx.x / 32; i < rows; i += 4)
        y[i * 33 + threadIdx.x % 32] =
            col < cols ? *place(x, b, k0 + i, col) : (T)0;
    __syncthreads();
    T v[16];
    UNROLL for (int m = 0; m < 16; m++)
        if (q + 4 * m < rows) v[m] = y[(q + 4 * m) * 33 + threadIdx.x / 4];
    UNROLL for (int m = 0; m < 16; m++)
        UNROLL for (int e = 0; e < 4; e++) {
            int j = 4 * m + e;
            if (j >= rows) continue;
            T by = __shfl_sync(0xffffffffu, v[m], first + e);
            if (!unit) by = by / s[j * 65 + j];
            if (q == e) v[m] = by;
            UNROLL for (int o = m; o < 16; o++)
                if (q + 4 * o > j && q + 4 * o < rows)
                    v[o] -= s[(q + 4 * o) * 65 + j] * by;
        }
    UNROLL for (int m = 0; m < 16; m++)
        if (q + 4 * m < rows) y[(q + 4 * m) * 33 + threadIdx.x / 4] = v[m];
    __syncthreads();
    for (int i = threadIdx.x / 32; col < cols && i < rows; i += 4)
        *place(x, b, k0 + i, col) = y[i * 33 + threadIdx.x % 32];
}
)
