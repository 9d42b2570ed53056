/* stats.h - counters of steps, and faults to be injected. */
#ifndef NB_COMM_STATS_H
#define NB_COMM_STATS_H

#include "comm/comm.h"

typedef struct nb_counters nb_counters;

/* Those of the mesh, made if need be; NULL if memory runs out. */
nb_counters *nb_counters_get(const nb_mesh *m);

/* A step of that kind has run on this device and received so many bytes. */
void nb_counters_add(const nb_device *me, nb_hop_kind kind, int64_t bytes);

/* Whether this exchange of the device is the one to fail; then the error is
 * set. */
bool nb_comm_must_fail(const nb_device *me, const char *where);

#endif
