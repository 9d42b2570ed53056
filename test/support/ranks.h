/* ranks.h - tests as programs of several processes.
 *
 * Under mpirun every rank runs all of a test and looks at the devices that it
 * has.  What is asked here is asked by all ranks in the same order, and all get
 * the same answer, so that a check that fails on one of them is taken for a
 * failure, and followed, by all.  A single process is one rank. */
#ifndef NB_TEST_RANKS_H
#define NB_TEST_RANKS_H

#include "comm/comm.h"
#include "nabla/shard.h"

/* Whether so on all ranks.  An error that is set stays. */
bool ranks_agree(bool ok);

/* Whether all have the same bytes. */
bool ranks_same(const void *mine, size_t bytes);

/* Whether the ranks can share that mesh out. */
bool ranks_share(const nb_mesh *m);

/* Blocks by position, so many bytes each: those that other ranks have are filled
 * in. */
bool ranks_spread(const nb_mesh *m, void *const *block, const size_t *bytes);

/* What x has at a position, whichever rank has it. */
nb_tensor *shard_anywhere(nb_tensor *x, int position);

/* nb_comm_stats_get of the devices of all ranks. */
nb_comm_stats stats_anywhere(const nb_mesh *m, nb_hop_kind kind);

/* Prints "N passed, M failed", once; how the program should exit.  Ranks that
 * have counted differently have failed. */
int ranks_tally(int passed, int failed);

/* Before what a rank says of a failure: "rank 2: ", or "" if it is alone. */
const char *rank_prefix(void);

/* For what all ranks would say. */
bool rank_speaks(void);

#endif
