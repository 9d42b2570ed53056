NB_CUDA(
/* What row i of v is multiplied by: one over its value, nothing for values up to
 * `cut` of the first. */
static __device__ __forceinline__ double divisor(const T *s, i64 i, double cut)
{
    double x = s[i];
    return x > cut * s[0] ? 1 / x : x == x ? 0 : x;
}

/* Or the product of all values but that one, and of the determinants. */
static __device__ __forceinline__ double cofactor(const T *s, i64 n, i64 i,
                                                  T first, T second)
{
    double by = (double)first * second;
    for (i64 j = 0; j < n; j++)
        if (j != i) by *= s[j];
    return by;
}

/* A block a row. */
extern "C" __global__ void __launch_bounds__(256)
svd_weigh(const mats v, const T *values, i64 n, i64 cols, double cut,
          const T *dets, i64 count)
{
    i64 b = blockIdx.x / n;
    i64 i = blockIdx.x % n;
    const T *s = values + b * n;
    double by = dets ? cofactor(s, n, i, dets[b], dets[count + b])
                     : divisor(s, i, cut);
    for (i64 j = threadIdx.x; j < cols; j += blockDim.x)
        *place(v, b, i, j) = (T)(*place(v, b, i, j) * by);
}
)
