/* shm_offer.c - messages that stay where they are, in the memory of who sends
 * them: see shm.h. */
#include "comm/shm_parts.h"

bool nb_shm_reads_all(void)
{
    const nb_shm *s = nb_shm_get();
    return s->at && s->all;
}

static bool reads(int rank)
{
    return nb_shm_has(rank) && nb_shm_get()->peer[rank].pid;
}

bool nb_shm_offers(int rank, size_t bytes)
{
    return bytes >= nb_shm_get()->offered && reads(rank);
}

bool nb_shm_read(int rank, uint64_t run, uint64_t from, void *to, size_t bytes)
{
    if (!nb_peer_read(&nb_shm_get()->peer[rank], from, to, bytes)) return false;
    atomic_thread_fence(memory_order_seq_cst);
    return nb_shm_get()->at[rank]->taken_back < run;
}

void nb_shm_take_back(uint64_t run)
{
    nb_shm *s = nb_shm_get();
    if (s->at) s->at[s->rank]->taken_back = run;
}

bool nb_shm_is_gone(int rank)
{
    return reads(rank) && nb_peer_is_gone(&nb_shm_get()->peer[rank]);
}
