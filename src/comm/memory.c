/* memory.c - see memory.h. */
#include "comm/memory.h"

#include "comm/box.h"
#include "comm/combine.h"

#include <string.h>

/* Strides of the data of a box, and where the part begins in it. */
static int64_t lay_out(int rank, const nb_box *part, const nb_box *b,
                       int64_t *stride)
{
    int64_t at = 0, step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = step;
        at += (part->start[d] - b->start[d]) * step;
        step *= b->size[d];
    }
    return at;
}

bool nb_part_copy(int device, int rank, const nb_box *part, const nb_box *a,
                  const void *from, const nb_box *b, void *to, size_t item)
{
    int64_t read[NB_MAX_DIMS], write[NB_MAX_DIMS];
    if (!device) {
        nb_box_copy(rank, part, a, from, b, to, item);
        return true;
    }
    int64_t x = lay_out(rank, part, a, read);
    int64_t y = lay_out(rank, part, b, write);
    return nb_blocks_on_card.box(device, item, rank, part->size,
                                 (char *)to + y * (int64_t)item, write,
                                 (const char *)from + x * (int64_t)item, read);
}

bool nb_blocks_combine(int device, nb_dtype dtype, nb_reduce kind, int n,
                       const void *const *x, int64_t count, void *out)
{
    if (!device) return nb_combine(dtype, kind, n, x, count, out), true;
    return nb_blocks_on_card.combine(device, dtype, kind, n, x, count, out);
}

bool nb_identity_put(int device, nb_dtype dtype, nb_reduce kind, int64_t count,
                     void *out)
{
    char one[16];
    nb_identity_fill(dtype, kind, device ? 1 : count, device ? one : out);
    return !device || nb_blocks_on_card.fill(device, nb_dtype_size(dtype),
                                             count, one, out);
}

bool nb_zero_put(int device, size_t bytes, void *out)
{
    static const char zero = 0;
    if (device)
        return nb_blocks_on_card.fill(device, 1, (int64_t)bytes, &zero, out);
    memset(out, 0, bytes);
    return true;
}
