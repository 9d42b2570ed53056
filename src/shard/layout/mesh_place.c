/* mesh_place.c - what the devices of a mesh are: cards, or parts of the CPU.
 *
 * That is found out when it is first asked for, when a tensor is put on it:
 * programs that only plan start no driver. */
#include "shard/layout/mesh.h"

#include <pthread.h>

static void locate(nb_mesh *m)
{
    int first = 0;
    if (!m->on) nb_mesh_locator(m, m->place);
    while (first < m->ndevices - 1 && !nb_mesh_is_here(m, first))
        first++;
    m->home = m->place[first];
    m->located = true;
}

static const nb_mesh *located(const nb_mesh *m)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (m->located) return m;
    pthread_mutex_lock(&lock);
    if (!m->located) locate((nb_mesh *)m);
    pthread_mutex_unlock(&lock);
    return m;
}

const int *nb_mesh_places(const nb_mesh *m)
{
    return located(m)->place;
}

int nb_mesh_place(const nb_mesh *m, int position)
{
    if (!m || position < 0 || position >= m->ndevices) return -1;
    return nb_mesh_places(m)[position];
}

int nb_mesh_home(const nb_mesh *m)
{
    return located(m)->home;
}

bool nb_mesh_shares(const nb_mesh *a, const nb_mesh *b)
{
    const int *at = nb_mesh_places(a), *to = nb_mesh_places(b);
    for (int i = 0; i < a->ndevices; i++) {
        int k = nb_mesh_position(b, a->device[i]);
        if (k < 0 || at[i] != to[k]) return false;
    }
    return true;
}
