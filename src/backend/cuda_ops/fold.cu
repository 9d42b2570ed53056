NB_CUDA(
/* One element of the image: x is at (windows..., places in one..., channel). */
struct axis {
    i64 size, windows, taps, stride, dilation, step, tap_step;
};

struct fold {
    i64 count, channels, channel_step;
    axis a[3];
    dims lanes;
};

/* The window that holds a place of the image as tap k; -1 if none does. */
static __device__ __forceinline__ i64 window_of(const axis &a, i64 place, i64 k)
{
    i64 from = place - k * a.dilation;
    if (from < 0 || from % a.stride) return -1;
    return from / a.stride < a.windows ? from / a.stride : -1;
}

extern "C" __global__ void __launch_bounds__(256)
fold_each(const fold f, const at where)
{
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < f.count;
         i += gridDim.x * 256ll) {
        i64 left = i / f.channels;
        i64 at[3];
        for (int d = 2; d >= 0; d--) {
            at[d] = left % f.a[d].size;
            left /= f.a[d].size;
        }
        const X *x = (const X *)where.in[0] + dims_at(f.lanes, 0, left) +
                     i % f.channels * f.channel_step;
        V sum = 0;
        for (i64 j = 0; j < f.a[0].taps; j++) {
            i64 a = window_of(f.a[0], at[0], j);
            if (a < 0) continue;
            for (i64 k = 0; k < f.a[1].taps; k++) {
                i64 b = window_of(f.a[1], at[1], k);
                if (b < 0) continue;
                const X *row = x + a * f.a[0].step + j * f.a[0].tap_step +
                               b * f.a[1].step + k * f.a[1].tap_step;
                for (i64 l = 0; l < f.a[2].taps; l++) {
                    i64 c = window_of(f.a[2], at[2], l);
                    if (c >= 0)
                        sum += (V)LOAD_X(row[c * f.a[2].step +
                                           l * f.a[2].tap_step]);
                }
            }
        }
        ((X *)where.out)[i] = (X)STORE_X(sum);
    }
}
)
