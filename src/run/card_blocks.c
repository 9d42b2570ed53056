/* card_blocks.c - steps of plans on blocks that are on a card. */
#include "backend/cuda/blocks.h"
#include "comm/memory.h"

static bool box(int device, size_t item, int rank, const int64_t *size,
                char *to, const int64_t *to_stride, const char *from,
                const int64_t *from_stride)
{
    nb_card *c = nb_card_at(device - 1);
    return c &&
           nb_card_box(c, item, rank, size, to, to_stride, from, from_stride);
}

static bool fill(int device, size_t item, int64_t count, const void *value,
                 char *to)
{
    nb_card *c = nb_card_at(device - 1);
    return c && nb_card_fill(c, item, count, value, to);
}

static bool combine(int device, nb_dtype dtype, nb_reduce kind, int n,
                    const void *const *x, int64_t count, void *out)
{
    nb_card *c = nb_card_at(device - 1);
    return c && nb_card_combine(c, dtype, kind, n, x, count, out);
}

const nb_card_blocks nb_blocks_on_card = {box, fill, combine};
