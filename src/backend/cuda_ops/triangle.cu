NB_CUDA(
/* Rows k0 to k0 + 63 of the x of l x = b, in its place, from which all before
 * them have been taken; l is lower triangular.  A block has 32 columns. */
extern "C" __global__ void __launch_bounds__(256)
triangle_solve(const mats l, const mats x, i64 n, i64 cols, i64 k0, int unit,
               i64 tiles)
{
    extern __shared__ __align__(16) char memory[];
    T *s = (T *)memory;
    T *y = s + 64 * 65;
    i64 b = blockIdx.x / tiles;
    i64 col = blockIdx.x % tiles * 32 + threadIdx.x % 32;
    int rows = n - k0 < 64 ? (int)(n - k0) : 64;
    int me = threadIdx.x % 32;
    int group = threadIdx.x / 32;
    int groups = blockDim.x / 32;
    for (int e = threadIdx.x; e < rows * rows; e += blockDim.x) {
        int i = l.col == 1 || l.col == -1 ? e / rows : e % rows;
        int j = l.col == 1 || l.col == -1 ? e % rows : e / rows;
        if (j < i || (j == i && !unit))
            s[i * 65 + j] = *place(l, b, k0 + i, k0 + j);
    }
    for (int i = group; i < rows; i += groups)
        y[i * 33 + me] = col < cols ? *place(x, b, k0 + i, col) : (T)0;
    __syncthreads();
    for (int j = 0; j < rows; j++) {
        T v = y[j * 33 + me];
        if (!unit) v = v / s[j * 65 + j];
        if (group == j % groups && col < cols) *place(x, b, k0 + j, col) = v;
        for (int i = j + 1 + group; i < rows; i += groups)
            y[i * 33 + me] -= s[i * 65 + j] * v;
        __syncthreads();
    }
}
)
