/* memory.h - where all memory comes from.
 *
 * Small things (nodes, tables, texts) come from nb_alloc.  Tensor data comes
 * from nb_block_new: blocks are kept and used again, because touching fresh
 * pages costs twenty times the work done in them; large ones are aligned to
 * and advised as huge pages.
 *
 * Both can be told to fail: after nb_fault_set(n) the n-th allocation from now
 * (1 is the next) of this thread returns NULL, once.  Tests use it to try
 * every place where memory can run out. */
#ifndef NB_BASE_MEMORY_H
#define NB_BASE_MEMORY_H

#include "base/error.h"

void *nb_alloc(size_t bytes);           /* NULL with an error set */
void *nb_alloc_zero(size_t bytes);      /* the same, cleared */
void *nb_resize(void *p, size_t bytes); /* p stays valid on failure */
void nb_free(void *p);                  /* NULL is fine */
char *nb_copy_text(const char *text);   /* allocated */

/* Grows *array (of item-sized elements) so that it holds at least n. */
bool nb_grow(void *array, int *room, int n, size_t item);

/* Data blocks: 64-byte aligned, *room is the real capacity.  bytes may be 0. */
void *nb_block_new(size_t bytes, size_t *room);
void nb_block_free(void *p, size_t room);
void nb_block_trim(void); /* gives cached blocks back */

void nb_fault_set(int64_t nth); /* 0: none */
bool nb_fault_is_set(void);     /* and has not struck yet */
bool nb_fault_strikes(void);    /* for other allocators: one of theirs fails */
int64_t nb_memory_live(void);   /* allocations not yet freed */
size_t nb_memory_bytes(void);   /* in them */

/* For tables that live as long as the process: not counted as live. */
void *nb_alloc_forever(size_t bytes);
size_t nb_memory_limit(void); /* what the machine has, or lends us */
size_t nb_block_bytes(void);  /* of data blocks in use */
size_t nb_block_kept(void);   /* of such that wait to be used again */
size_t nb_block_peak(void);   /* the most of it since the last call of */
void nb_block_peak_reset(void);

#endif
