/* locate.c - what the devices of a mesh are where nobody has said it: cards, as
 * far as there are any, for the processes of this machine in turn. */
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/remote.h"
#include "nabla/device.h"

#include <stdlib.h>

/* Which process of those of this machine, as the one who started us says. */
static void find_rank(int rank, int size, int *near, int *all)
{
    static const char *const told[][2] = {
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
        {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"}};
    *near = rank;
    *all = size;
    for (size_t i = 0; size > 1 && i < sizeof told / sizeof *told; i++) {
        const char *which = getenv(told[i][0]), *many = getenv(told[i][1]);
        if (!which || !many || atoi(many) < 1) continue;
        *near = atoi(which);
        *all = atoi(many);
        return;
    }
}

static int order_of(const nb_mesh *m, int position)
{
    int before = 0;
    for (int i = 0; i < m->ndevices; i++)
        before += m->device[i] < m->device[position];
    return before;
}

void nb_devices_locate(const nb_mesh *m, int *place)
{
    int rank = 0, size = 1, near, all, cards = nb_devices() - 1;
    bool deals = nb_ranks_get(&rank, &size) && m->ndevices % size == 0;
    int each = deals ? m->ndevices / size : m->ndevices;
    if (!deals) nb_error_clear();
    find_rank(rank, size, &near, &all);
    for (int i = 0; i < m->ndevices; i++) {
        int k = order_of(m, i);
        int process = deals ? (k / each - rank + near + size * all) % all : 0;
        if (cards >= each * all)
            place[i] = 1 + process * each + k % each;
        else if (m->by_default && cards)
            place[i] = size > 1 ? 1 + process % cards : m->by_default;
        else
            place[i] = 0;
    }
}
