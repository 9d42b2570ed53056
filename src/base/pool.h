/* pool.h - the threads of the runtime.
 *
 * One pool serves the process.  Work comes as n chunks, handed out in turn to
 * whoever is free, the caller included.  How work is cut into chunks follows
 * from its size alone and never from the number of threads, so results do not
 * depend on that number; several chunks to a thread let the others go on when
 * the system takes one away.
 *
 * A chunk is plain computation: it may allocate, fail and call nb_parallel,
 * which then runs within it, but open no scope, build no tensor and not fork.
 * Whether it failed it says through ctx; the error that it set becomes the
 * caller's.
 *
 * nb_threads and nb_set_threads are in nabla/base.h. */
#ifndef NB_BASE_POOL_H
#define NB_BASE_POOL_H

#include "nabla/base.h"

typedef void nb_chunk_fn(void *ctx, int64_t i);

/* Calls fn(ctx, i) once for every i from 0 to n - 1, in any order and several
 * at a time, and returns when all are done.  If the pool is at work, for this
 * thread or another, the caller does everything, from 0 upwards. */
void nb_parallel(int64_t n, nb_chunk_fn *fn, void *ctx);

/* The same for work that takes about so many nanoseconds in one thread: it
 * stays with the caller if waking the others would take as long. */
void nb_parallel_if(double nanoseconds, int64_t n, nb_chunk_fn *fn, void *ctx);

#endif
