/* nabla/distributed.h - programs of more than one process.
 *
 * Under mpirun every process runs the same program, and the devices of a mesh
 * are dealt out to them: the first n of N to rank 0, the next to rank 1.  Where
 * there is one process it has all devices.  A device that fails, ends early or
 * stays away makes the others fail, with an error that names it and what they
 * were waiting in. */
#ifndef NABLA_DISTRIBUTED_H
#define NABLA_DISTRIBUTED_H

#include "nabla/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many seconds a device waits for another in a collective before it fails:
 * what the environment variable NABLA_TIMEOUT says, or else 300. */
NB_API double nb_distributed_timeout(void);
NB_API nb_status nb_distributed_set_timeout(double seconds);

#ifdef __cplusplus
}
#endif
#endif
