/* nabla/distributed.h - programs of more than one process.
 *
 * Under mpirun every process runs the same program, and the devices of a mesh
 * are dealt out to them by number: the first n of N to rank 0, the next to rank
 * 1.  A mesh that cannot be dealt out evenly is refused where a tensor is put on
 * it.  Where there is one process it has all devices.  A device that fails, ends
 * early or stays away makes the others fail, with an error that names it and
 * what they were waiting in.
 *
 * Processes of one machine read large messages out of each other's memory, where
 * the system lets processes of one user do so (on Linux, if
 * kernel.yama.ptrace_scope is 0 or a container has SYS_PTRACE), else they copy
 * them through memory that they share.  Results are the same, whichever way.
 * The environment variable NABLA_SHM can say `rings`, for copies only, or `0`,
 * for MPI alone. */
#ifndef NABLA_DISTRIBUTED_H
#define NABLA_DISTRIBUTED_H

#include "nabla/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the other processes: with MPI, through libnabla_mpi.so, which lies beside
 * this library or where the environment variable NABLA_MPI says.  All of them
 * call it.  A program started by mpirun need not: the first use of a mesh does
 * it, or asking for the rank, unless the environment variable NABLA_DISTRIBUTED
 * is 0.  Done twice it is done once. */
NB_API nb_status nb_distributed_init(void);

/* Which process this is, and of how many: 0 and 1 where there are no others, or
 * they cannot be reached. */
NB_API int nb_distributed_rank(void);
NB_API int nb_distributed_size(void);

/* Waits until all processes are here. */
NB_API nb_status nb_distributed_barrier(void);

/* Parts from the others, for good; at exit that is done anyway.  Waits until
 * they part too. */
NB_API void nb_distributed_finish(void);

/* The version of NCCL, which carries messages between cards: 22003 is 2.20.3.
 * 0, with an error, where there is none.  The environment variable NABLA_NCCL
 * names the library, or "none". */
NB_API int nb_distributed_nccl(void);

/* How many seconds a device waits for another in a collective before it fails:
 * what the environment variable NABLA_TIMEOUT says, or else 300. */
NB_API double nb_distributed_timeout(void);
NB_API nb_status nb_distributed_set_timeout(double seconds);

#ifdef __cplusplus
}
#endif
#endif
