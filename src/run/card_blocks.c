/* card_blocks.c - steps of plans on blocks that are on cards, and messages
 * between them. */
#include "backend/cuda/blocks.h"
#include "backend/cuda/nccl.h"
#include "base/memory.h"
#include "comm/memory.h"
#include "comm/nccl.h"

#include <string.h>

static bool box(int device, size_t item, int rank, const int64_t *size,
                char *to, const int64_t *to_stride, const char *from,
                const int64_t *from_stride)
{
    nb_card *c = nb_card_at(device - 1);
    return c &&
           nb_card_box(c, item, rank, size, to, to_stride, from, from_stride);
}

static bool fill(int device, size_t item, int64_t count, const void *value,
                 char *to)
{
    nb_card *c = nb_card_at(device - 1);
    return c && nb_card_fill(c, item, count, value, to);
}

static bool combine(int device, nb_dtype dtype, nb_reduce kind, int n,
                    const void *const *x, int64_t count, void *out)
{
    nb_card *c = nb_card_at(device - 1);
    return c && nb_card_combine(c, dtype, kind, n, x, count, out);
}

const nb_card_blocks nb_blocks_on_card = {box, fill, combine};

static bool name(int device, char to[NB_CARD_NAME])
{
    nb_card *c = nb_card_at(device - 1);
    return c && nb_card_check(c, c->api->DeviceGetUuid(to, c->device),
                              "it has no name");
}

static bool id(char to[NB_NCCL_ID])
{
    nb_nccl_id made;
    if (!nb_nccl_id_new(&made)) return false;
    memcpy(to, made.bytes, sizeof made.bytes);
    return true;
}

static bool join(int n, const int *device, const int *member, int size,
                 const char *name_of, void **comm)
{
    nb_nccl_id all;
    nb_card **card = nb_alloc((size_t)n * sizeof *card);
    bool ok = card;
    memcpy(all.bytes, name_of, sizeof all.bytes);
    for (int i = 0; ok && i < n; i++)
        ok = (card[i] = nb_card_at(device[i] - 1));
    ok = ok &&
         nb_card_comms_new(n, card, member, size, &all, (nb_card_comm **)comm);
    nb_free(card);
    return ok;
}

static bool exchange(void *comm, const nb_post *post, const int *member)
{
    bool ok = true;
    if (!post->nsend && !post->nrecv) return true;
    if (!nb_card_comm_begin(comm)) return false;
    for (int i = 0; ok && i < post->nsend; i++) {
        const nb_message *m = &post->send[i];
        ok = nb_card_comm_send(comm, member[m->peer], m->data, m->bytes);
    }
    for (int i = 0; ok && i < post->nrecv; i++) {
        const nb_message *m = &post->recv[i];
        ok = nb_card_comm_receive(comm, member[m->peer], m->data, m->bytes);
    }
    return nb_card_comm_end(comm) && ok;
}

const nb_card_talk nb_nccl = {nb_nccl_there, nb_nccl_version, name, id,
                              join,          exchange};
