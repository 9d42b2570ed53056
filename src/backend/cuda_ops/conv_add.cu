NB_CUDA(
/* Adds up the sums of all parts, in their order. */
extern "C" __global__ void __launch_bounds__(256) add_parts(const product p)
{
    i64 all = p.outside.count * p.m * p.n;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll) {
        W sum = p.sums[i];
        for (int part = 1; part < p.parts; part++)
            sum += p.sums[part * all + i];
        i64 row = i / p.n;
        p.c[dims_at(p.outside, 2, row / p.m) + c_at(p, (int)(row % p.m)) +
            i % p.n] = store_c(sum);
    }
}
)
