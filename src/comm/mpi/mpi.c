/* mpi.c - messages between processes by MPI, as libnabla_mpi.so.
 *
 * Nothing but calls of the standard, so that any MPI will do; nothing of the
 * engine but the form of nb_wire.  Messages go over a communicator of our own,
 * with one tag.  Failing calls return instead of ending the process. */
#include "comm/wire.h"

#include <mpi.h>
#include <stdio.h>

enum { MOST = 64, TAG = 7 };

static MPI_Comm world = MPI_COMM_NULL;
static MPI_Request request[MOST];
static bool used[MOST];
static bool ours; /* MPI was not running before */
static nb_wire wire;

static bool gather(const void *mine, size_t bytes, void *all)
{
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                         world) == MPI_SUCCESS;
}

static void *send(const void *data, size_t bytes, int rank)
{
    int i = 0;
    while (i < MOST && used[i])
        i++;
    if (i == MOST || MPI_Isend(data, (int)bytes, MPI_BYTE, rank, TAG, world,
                               &request[i]) != MPI_SUCCESS)
        return NULL;
    used[i] = true;
    return &request[i];
}

static bool sent(void *which)
{
    MPI_Request *r = which;
    int done = 0;
    if (MPI_Test(r, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) done = 1;
    if (done) used[r - request] = false;
    return done;
}

static bool probe(int *rank, size_t *bytes)
{
    MPI_Status status;
    int there = 0, n = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG, world, &there, &status) !=
            MPI_SUCCESS ||
        !there || MPI_Get_count(&status, MPI_BYTE, &n) != MPI_SUCCESS)
        return false;
    *rank = status.MPI_SOURCE;
    *bytes = (size_t)n;
    return true;
}

static bool receive(void *data, size_t bytes, int rank)
{
    return MPI_Recv(data, (int)bytes, MPI_BYTE, rank, TAG, world,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void finish(bool whole)
{
    int over = 0;
    MPI_Finalized(&over);
    if (over || !whole) return;
    if (world != MPI_COMM_NULL) MPI_Comm_free(&world);
    if (ours) MPI_Finalize();
}

static const nb_wire *give_up(char *why, size_t room, const char *reason)
{
    snprintf(why, room, "%s", reason);
    return NULL;
}

__attribute__((visibility("default"))) nb_wire_open_fn nb_wire_open;

const nb_wire *nb_wire_open(char *why, size_t room)
{
    int running = 0, over = 0, level = MPI_THREAD_SERIALIZED;
    MPI_Initialized(&running);
    MPI_Finalized(&over);
    if (over) return give_up(why, room, "MPI has been finalized");
    ours = !running;
    if (ours) MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (ours && level < MPI_THREAD_SERIALIZED)
        return give_up(why, room, "this MPI does not let threads take turns");
    if (MPI_Comm_dup(MPI_COMM_WORLD, &world) != MPI_SUCCESS)
        return give_up(why, room, "MPI_Comm_dup failed");
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    wire = (nb_wire){.abi = NB_WIRE_ABI,
                     .gather = gather,
                     .send = send,
                     .sent = sent,
                     .probe = probe,
                     .receive = receive,
                     .close = finish};
    MPI_Comm_rank(world, &wire.rank);
    MPI_Comm_size(world, &wire.size);
    return &wire;
}
