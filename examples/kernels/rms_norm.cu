/* rms_norm.cu - "... n -> ... n" on a card: a block of threads for each row. */
#include <nabla/kernel.h>

enum { THREADS = 128 };

/* The sum of what the threads of a block have, to all of them. */
static __device__ float sum_of_block(float x, float *room)
{
    int t = threadIdx.x;
    room[t] = x;
    __syncthreads();
    for (int n = THREADS / 2; n > 0; n /= 2) {
        if (t < n) room[t] += room[t + n];
        __syncthreads();
    }
    float sum = room[0];
    __syncthreads();
    return sum;
}

NB_LAUNCH(rms_norm, THREADS, THREADS * sizeof(float))
NB_KERNEL(rms_norm)
{
    extern __shared__ float room[];
    const nb_view *in = nb_in(a, 0), *out = nb_out(a, 0);
    int64_t n = nb_row_size(in);
    float epsilon = (float)a->attr[0].f;
    if (in->dtype != NB_F32) {
        *a->status = NB_STATUS_DTYPE;
        return;
    }
    NB_BLOCK_ROWS(a, r)
    {
        const float *x = NB_ROW(float, in, r);
        float *y = NB_ROW(float, out, r), sum = 0;
        for (int64_t k = threadIdx.x; k < n; k += THREADS)
            sum += x[k] * x[k];
        float scale = rsqrtf(sum_of_block(sum, room) / (float)n + epsilon);
        for (int64_t k = threadIdx.x; k < n; k += THREADS)
            y[k] = x[k] * scale;
    }
}
