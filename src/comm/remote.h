/* remote.h - this process among others. */
#ifndef NB_COMM_REMOTE_H
#define NB_COMM_REMOTE_H

#include "comm/wire.h"
#include "nabla/base.h"

/* Begins to talk over that wire; all ranks call it together. */
bool nb_remote_open(const nb_wire *w);

/* Says goodbye.  Waits until all others have done so too, but not for ever if
 * there has been a failure. */
void nb_remote_close(void);

/* Among how many this process is which: set once there is a program of many,
 * or known that there is none.  False with an error if there is one that this
 * process cannot take part in. */
bool nb_ranks_get(int *rank, int *size);

/* The bytes of every process, by rank; as many of each.  All of them call it, as
 * they run programs over a mesh: who does something else makes it fail. */
bool nb_ranks_gather(const void *mine, size_t bytes, void *all);

#endif
