/* rms_norm.c - "... n -> ... n": each row over the root of its mean square. */
#include <math.h>
#include <nabla/kernel.h>

NB_KERNEL(rms_norm)
{
    const nb_view *in = nb_in(a, 0), *out = nb_out(a, 0);
    int64_t n = nb_row_size(in);
    float epsilon = (float)a->attr[0].f;
    if (in->dtype != NB_F32) {
        *a->status = NB_STATUS_DTYPE;
        return;
    }
    NB_ROWS(a, r)
    {
        const float *x = NB_ROW(float, in, r);
        float *y = NB_ROW(float, out, r), sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += x[k] * x[k];
        float scale = 1 / sqrtf(sum / (float)n + epsilon);
        for (int64_t k = 0; k < n; k++)
            y[k] = x[k] * scale;
    }
}
