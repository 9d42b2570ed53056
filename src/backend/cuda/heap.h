/* heap.h - which parts of a card's memory are in use.
 *
 * Bookkeeping only: nothing here touches the memory, which the host could not
 * do, or calls the driver.  Memory comes in segments; a segment is cut into
 * parts that are in use or free.  A request gets the smallest free part that
 * holds it, and what is over is cut off; a part that is given back joins its
 * free neighbours.  Requests are of three kinds, each with segments of its
 * own, so that small ones do not cut up what large ones need.
 *
 * A part given back may still be read and written by work that its stream has
 * been given.  That is no matter to whoever takes it on the same stream; on
 * another one, the taker waits.  Parts of different streams do not join.
 *
 * The caller holds a lock.  Descriptions of parts are kept for ever and used
 * again. */
#ifndef NB_CUDA_HEAP_H
#define NB_CUDA_HEAP_H

#include "backend/cuda/driver.h"
#include "backend/cuda/memory.h"

typedef struct nb_part {
    struct nb_part *below, *above; /* the neighbours in its segment */
    struct nb_part *next, *last;   /* in a list of like ones */
    nb_address at;
    size_t bytes;
    void *stream; /* where it was last used; NULL: nobody uses it any more */
    bool used;
    unsigned char kind;
} nb_part;

typedef struct nb_heap nb_heap;

nb_heap *nb_heap_new(void); /* for ever */

/* *part is NULL where no free part will do; false only when the host's memory
 * runs out.  The part is in use; its stream is that of its last use. */
bool nb_heap_take(nb_heap *h, size_t bytes, void *stream, nb_part **part);

/* The part in use that starts there, or NULL. */
nb_part *nb_heap_find(const nb_heap *h, nb_address at);
void nb_heap_give(nb_heap *h, nb_part *p, void *stream);

/* How large a segment for so many bytes should be, and must be. */
size_t nb_heap_segment(size_t bytes);
size_t nb_heap_least(size_t bytes);

/* A new segment, for requests such as this. */
bool nb_heap_add(nb_heap *h, nb_address at, size_t segment, size_t bytes);

/* Takes a segment out that has no part in use; false: there is none. */
bool nb_heap_cut(nb_heap *h, nb_address *at, size_t *segment);

/* No free part is used by that stream any more; NULL: by any. */
void nb_heap_settle(nb_heap *h, void *stream);

nb_card_memory *nb_heap_stats(nb_heap *h);

/* The greatest size below `below` that parts in use have, and how many have
 * it; 0: none. */
size_t nb_heap_largest(const nb_heap *h, size_t below, int *n);

#endif
