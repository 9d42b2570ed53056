NB_CUDA(
/* c = a b, or c -= a b; of tiles of 64 x 64, all or only those on and below the
 * diagonal.  Sums run in the order of k. */
extern "C" __global__ void __launch_bounds__(256)
mats_multiply(const mats a, const mats b, const mats c, i64 m, i64 n, i64 k,
              int less, int lower, i64 down, i64 across)
{
    __shared__ T as[16][65];
    __shared__ T bs[16][65];
    i64 tj = blockIdx.x % across;
    i64 ti = blockIdx.x / across % down;
    i64 which = blockIdx.x / across / down;
    if (lower && tj > ti) return;
    i64 i0 = ti * 64;
    i64 j0 = tj * 64;
    int tx = threadIdx.x % 16;
    int ty = threadIdx.x / 16;
    T sum[4][4] = {};
    for (i64 k0 = 0; k0 < k; k0 += 16) {
        for (int e = threadIdx.x; e < 1024; e += 256) {
            int i = a.col == 1 ? e / 16 : e % 64;
            int p = a.col == 1 ? e % 16 : e / 64;
            int j = b.col == 1 ? e % 64 : e / 16;
            int q = b.col == 1 ? e / 64 : e % 16;
            bool in = i0 + i < m && k0 + p < k;
            as[p][i] = in ? *place(a, which, i0 + i, k0 + p) : (T)0;
            in = j0 + j < n && k0 + q < k;
            bs[q][j] = in ? *place(b, which, k0 + q, j0 + j) : (T)0;
        }
        __syncthreads();
        for (int p = 0; p < 16; p++) {
            T x[4];
            T y[4];
            for (int r = 0; r < 4; r++) {
                x[r] = as[p][ty + 16 * r];
                y[r] = bs[p][tx + 16 * r];
            }
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++)
                    sum[r][s] += x[r] * y[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++) {
            i64 i = i0 + ty + 16 * r;
            i64 j = j0 + tx + 16 * s;
            if (i >= m || j >= n) continue;
            T *to = place(c, which, i, j);
            *to = less ? *to - sum[r][s] : sum[r][s];
        }
}
)
