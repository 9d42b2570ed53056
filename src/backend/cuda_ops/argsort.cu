NB_CUDA(
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
