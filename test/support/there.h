/* there.h - on which device tests compute: the CPU, or as NABLA_TEST_DEVICE
 * says ("gpu", "gpu:1"), which must be there.
 *
 * A program that begins with there_open makes what it makes of nothing on that
 * device; what it gives to functions it makes by `given`.  Only tests of how
 * the CPU does a thing ask there_is_card, and leave it out there. */
#ifndef NB_TEST_THERE_H
#define NB_TEST_THERE_H

#include "nabla/nabla.h"

/* Ends the program, as skipped, where that device is missing. */
void there_open(void);

/* For tests that compare devices: from now on it is that one. */
void there_move(int to);

/* Its number; 0 without there_open. */
int there(void);
bool there_is_card(void);

/* nb_constant, there. */
nb_tensor *given(nb_dtype dtype, int rank, const int64_t *shape,
                 const void *data);

/* Nodes and allocations that are alive, but those of programs that are kept:
 * on a card every program is. */
int64_t nodes_left(void);
int64_t memory_left(void);

/* Bytes of data there: now, and at most since the reset. */
size_t there_bytes(void);
size_t there_peak(void);
void there_peak_reset(void);

/* Whether the next case is taken.  NABLA_TEST_EVERY=n: each n-th of all cases.
 * NABLA_TEST_PART=k/n: of these the k-th of n parts, 0 the first, which together
 * have them all; several processes may share a test. */
bool there_takes(void);

/* What is no case among many is for the first part, or, if there are several
 * such things, the k-th is for one of the parts. */
bool there_leads(void);
bool there_shares(int k);

/* The allocation to fail after the n-th: the next.  On a card, where each try
 * loads its kernels anew, ever further ones, unless NABLA_TEST_ALL=1. */
int64_t there_next(int64_t n);

#endif
