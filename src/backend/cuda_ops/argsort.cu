NB_CUDA(
/* Keys are ordered as the elements: signed numbers are moved up by half the
 * range; the bits of positive floats are ordered as they are, those of negative
 * ones the other way round; -0 is 0, and NaN the greatest. */
static __device__ __forceinline__ K key_of(T x)
{
    if (KIND == 0) return (K)x;
    if (KIND == 1) return (K)x ^ TOP;
    K bits = (K)x;
    K sign = bits & TOP;
    K size = bits ^ sign;
    if (size > LIMIT) return (K)(TOP | (TOP - 1));
    if (size == 0) return TOP;
    return sign ? TOP - 1 - size : TOP | size;
}

extern "C" __global__ void __launch_bounds__(256)
order_keys(const T *x, K *keys, const dims lines, i64 n, i64 step,
           int descending)
{
    i64 all = lines.count * n;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll) {
        K key = key_of(x[dims_at(lines, 0, i / n) + i % n * step]);
        keys[i] = (descending ? ~key : key) & (TOP | (TOP - 1));
    }
}

extern "C" __global__ void __launch_bounds__(256)
order_write(const u32 *numbers, i64 *y, const dims lines, i64 n, i64 step)
{
    i64 all = lines.count * n;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll)
        y[dims_at(lines, 1, i / n) + i % n * step] = numbers[i];
}
)
