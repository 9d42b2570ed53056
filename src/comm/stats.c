/* stats.c - what the steps of a mesh have moved; and faults for tests.
 *
 * Counters belong to a device and are written by its thread alone.  A table
 * lives as long as its mesh does, for ever. */
#include "comm/stats.h"

#include "base/memory.h"
#include "shard/layout/mesh.h"

#include <pthread.h>
#include <stdatomic.h>

enum { KINDS = NB_HOP_EXCHANGE + 1 };

struct nb_counters {
    nb_counters *next;
    const nb_mesh *mesh;
    struct {
        atomic_int_fast64_t calls, bytes;
    } at[][KINDS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nb_counters *_Atomic first;
static atomic_int fault_position;
static atomic_int_fast64_t fault_left;

static nb_counters *find(const nb_mesh *m)
{
    nb_counters *c = first;
    while (c && c->mesh != m)
        c = c->next;
    return c;
}

nb_counters *nb_counters_get(const nb_mesh *m)
{
    nb_counters *c = find(m);
    if (c) return c;
    size_t bytes = sizeof *c + (size_t)m->ndevices * sizeof c->at[0];
    pthread_mutex_lock(&lock);
    c = find(m);
    if (!c && (c = nb_alloc_forever(bytes))) {
        c->mesh = m;
        c->next = first;
        first = c;
    }
    pthread_mutex_unlock(&lock);
    return c;
}

void nb_counters_add(const nb_device *me, nb_hop_kind kind, int64_t bytes)
{
    nb_counters *c = find(me->mesh);
    if (!c) return;
    c->at[me->position][kind].calls++;
    c->at[me->position][kind].bytes += bytes;
}

nb_comm_stats nb_comm_stats_get(const nb_mesh *m, nb_hop_kind kind)
{
    nb_comm_stats most = {0, 0};
    nb_counters *c = find(m);
    for (int i = 0; c && i < m->ndevices; i++) {
        int64_t calls = c->at[i][kind].calls, bytes = c->at[i][kind].bytes;
        if (calls > most.calls) most.calls = calls;
        if (bytes > most.bytes) most.bytes = bytes;
    }
    return most;
}

void nb_comm_stats_reset(const nb_mesh *m)
{
    nb_counters *c = find(m);
    for (int i = 0; c && i < m->ndevices; i++)
        for (int k = 0; k < KINDS; k++)
            c->at[i][k].calls = c->at[i][k].bytes = 0;
}

void nb_comm_fault_set(int position, int64_t nth)
{
    fault_position = position;
    fault_left = nth;
}

bool nb_comm_must_fail(const nb_device *me, const char *where)
{
    if (fault_left <= 0 || fault_position != me->position || --fault_left)
        return false;
    nb_fail(NB_ERUNTIME, "%s: device %d fails, as was asked for", where,
            me->position);
    return true;
}
