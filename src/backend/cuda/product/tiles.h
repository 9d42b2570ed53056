/* tiles.h - the inner loops of products on a card, as text: a block makes a tile
 * of C = A B, of operands that any reader may bring, and any end may take.
 *
 * Halves are multiplied by the tensor cores and summed in float32, floats by
 * fused multiplication and addition; a sum is in the order of k.
 *
 * The text of a kernel `multiply(const product p)` is nb_tiles_begin's; then, of
 * whoever uses it, `struct product` with operands a and b, m and n, `struct
 * outer`, outer_at, k_from, k_to, `struct place`, place_of a row of C and put_two
 * of it; nb_tiles_loop's; and the reader,
 * copy_stage of halves or read_tiles of floats.  Blocks along x go over tiles,
 * for one pair of matrices after the other. */
#ifndef NB_CUDA_TILES_H
#define NB_CUDA_TILES_H

#include "backend/cuda/card.h"
#include "base/text.h"
#include "core/tensor.h"

typedef struct nb_tiles {
    nb_dtype a, c;           /* of both operands; of the result */
    bool a_turned, b_turned; /* tiles lie so that m, or k, runs */
    int bm, bn, bk;          /* of a block */
    int wm, wn;              /* of a warp or, of floats, of a thread */
    int stages;
} nb_tiles;

/* The sizes that there are for a dtype, the largest first; how many. */
int nb_tiles_all(nb_dtype a, const nb_tiles **list);
nb_tiles nb_tiles_sized(const nb_tiles *t, const nb_tiles *size);

unsigned nb_tiles_threads(const nb_tiles *t);
size_t nb_tiles_shared(const nb_tiles *t); /* bytes of the dynamic kind */

/* Types T, W (of sums), C, pair, vector; load_c and store_c; the sizes. */
void nb_tiles_begin(nb_text *t, const nb_tiles *k);
void nb_tiles_loop(nb_text *t, const nb_tiles *k);

#endif
