/* dims.c - joining dims, and their text for kernels. */
#include "backend/cuda_ops/dims.h"

#include "backend/cuda_ops/text.h"

/* Divisions by sizes that are mostly one or two are not worth unrolling: it
 * would take the compiler longer than the kernel. */
const char nb_dims_text[] = "#define ONE_BY_ONE _Pragma(\"unroll 1\")\n"
#include "backend/cuda_ops/dims.cu"
    ;
const char nb_halves_text[] =
#include "backend/cuda_ops/halves.cu"
    ;

nb_dims nb_dims_none(void)
{
    return (nb_dims){.count = 1};
}

static bool joins(const nb_dims *d, int64_t size, int operands,
                  const int64_t *stride)
{
    int last = (int)d->n - 1;
    if (last < 0) return false;
    for (int t = 0; t < operands; t++)
        if (d->stride[t][last] != stride[t] * size) return false;
    return true;
}

bool nb_dims_add(nb_dims *d, int64_t size, int operands, const int64_t *stride)
{
    d->count *= size;
    if (size == 1) return true;
    bool join = joins(d, size, operands, stride);
    if (!join && d->n == NB_DIMS_MOST) return false;
    int k = join ? (int)d->n - 1 : (int)d->n++;
    d->size[k] = join ? d->size[k] * size : size;
    for (int t = 0; t < operands; t++)
        d->stride[t][k] = stride[t];
    return true;
}

bool nb_dims_add_batch(nb_dims *d, const nb_batch *b, int operands,
                       const int *operand)
{
    for (int i = 0; i < b->n; i++) {
        int64_t stride[NB_DIMS_OPERANDS];
        for (int t = 0; t < operands; t++)
            stride[t] = b->step[operand[t]][i];
        if (!nb_dims_add(d, b->size[i], operands, stride)) return false;
    }
    return true;
}
