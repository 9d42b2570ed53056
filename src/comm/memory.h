/* memory.h - blocks of devices, in memory of the CPU or of a card: what steps do
 * with them.
 *
 * On a card all of it is under way when a function returns, in the order of the
 * calls of all devices that are that card. */
#ifndef NB_COMM_MEMORY_H
#define NB_COMM_MEMORY_H

#include "core/signature.h"
#include "core/tensor.h"
#include "shard/layout/spec.h"

/* nb_box_copy there (comm/box.h). */
bool nb_part_copy(int device, int rank, const nb_box *part, const nb_box *a,
                  const void *from, const nb_box *b, void *to, size_t item);

/* nb_combine and nb_identity_fill there (comm/combine.h). */
bool nb_blocks_combine(int device, nb_dtype dtype, nb_reduce kind, int n,
                       const void *const *x, int64_t count, void *out);
bool nb_identity_put(int device, nb_dtype dtype, nb_reduce kind, int64_t count,
                     void *out);

bool nb_zero_put(int device, size_t bytes, void *out);

/* Those of cards, of which comm knows nothing: run/ defines it. */
typedef struct nb_card_blocks {
    bool (*box)(int device, size_t item, int rank, const int64_t *size,
                char *to, const int64_t *to_stride, const char *from,
                const int64_t *from_stride);
    bool (*fill)(int device, size_t item, int64_t count, const void *value,
                 char *to);
    bool (*combine)(int device, nb_dtype dtype, nb_reduce kind, int n,
                    const void *const *x, int64_t count, void *out);
} nb_card_blocks;
extern const nb_card_blocks nb_blocks_on_card;

#endif
