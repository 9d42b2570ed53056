/* chain.h - steps that run together, some rows at a time.
 *
 * The blocks that pass between the steps of a chain have the same number of
 * rows: row u of one are its elements from u C on, C of them, whatever C is for
 * that block.  Every step makes row u from row u of these blocks, and from
 * others that nobody in the chain writes; or it sums over rows into a block
 * that nobody in the chain reads.  So the steps can be run for the first rows,
 * then for the next, and what they pass on is never there as a whole: its rows
 * lie in a tile, which the next rows take over.  Attention is such a chain,
 * whose tiles are of scores.
 *
 * A row is whole, so a softmax along it is the one that it was: no number has
 * to be corrected when more of the row comes, and the only sums in another
 * order are those over rows, which go from tile to tile. */
#ifndef NB_LOWER_CHAIN_H
#define NB_LOWER_CHAIN_H

#include "lower/loop.h"
#include "lower/plan.h"

enum { NB_MAX_CHAIN = 32, NB_MAX_CHAIN_BUFFERS = 32 };

/* Tiles are of `tile` rows at most, and none goes on across a multiple of
 * `run`.  Those of a group follow each other in one thread. */
typedef struct nb_chain {
    int first, last; /* steps */
    int64_t rows, run, group, tile;
    int64_t bytes; /* of the tiles of all blocks */
} nb_chain;

/* A product in a chain: of a tile, it is one matrix product.  Axes are those of
 * the loop. */
typedef struct nb_row_product {
    nb_loop loop;
    nb_dtype dtype;
    int nrows, row[NB_MAX_DIMS]; /* outermost first; tiles cut the last */
    int m, n, k;                 /* -1: none */
    bool sums;                   /* over rows */
} nb_row_product;

/* Finds chains; steps of one become neighbours. */
bool nb_plan_chain(nb_plan *p);

/* Where tiles begin in the memory of a thread; p->home is known. */
void nb_chain_place(nb_plan *p, const nb_life *life);

/* How steps go row by row.  `row` says how many elements a row of a block has,
 * 0 if the block does not pass between steps of the chain. */
typedef struct nb_rows {
    const nb_plan *plan;
    int64_t rows;
    int64_t (*row)(const void *ctx, int block);
    const void *ctx;
} nb_rows;

bool nb_rows_nest(const nb_rows *r, const nb_step *s);
/* Whether the call of the step is a product that does; false is no error, but
 * *failed is set if there was one. */
bool nb_rows_product(const nb_rows *r, const nb_step *s, nb_row_product *out,
                     bool *failed);

#endif
