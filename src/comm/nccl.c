/* nccl.c - see nccl.h.
 *
 * Members of a group are devices in the order of their numbers, so that meshes
 * of the same devices have the same group. */
#include "comm/nccl.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/local.h"
#include "comm/remote.h"
#include "nabla/distributed.h"

#include <pthread.h>
#include <string.h>

enum { PIECE = 16 << 20 };

typedef struct carrier {
    nb_link link; /* first: it is one */
    nb_link *base;
    struct carrier *next;
    const nb_mesh *mesh;
    bool none;   /* base does it all */
    int *member; /* by position */
    void **comm; /* by position; NULL: of another process */
} carrier;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static carrier *first;

int nb_distributed_nccl(void)
{
    return nb_nccl.version();
}

/* The meeting: messages of nothing to the same peers. */
static bool meet(carrier *c, nb_device *me, const nb_meeting *round,
                 const nb_post *post)
{
    size_t n = (size_t)(post->nsend + post->nrecv) + 1;
    nb_message *none = nb_alloc_zero(n * sizeof *none);
    nb_post empty = {post->nsend, post->nrecv, none, none + post->nsend, NULL};
    for (int i = 0; none && i < post->nsend; i++)
        none[i].peer = post->send[i].peer;
    for (int i = 0; none && i < post->nrecv; i++)
        none[post->nsend + i].peer = post->recv[i].peer;
    bool ok = none && c->base->exchange(c->base, me, round, &empty);
    nb_free(none);
    return ok;
}

static bool exchange(nb_link *l, nb_device *me, const nb_meeting *round,
                     const nb_post *post)
{
    carrier *c = (carrier *)l;
    return meet(c, me, round, post) &&
           nb_nccl.exchange(c->comm[me->position], post, c->member);
}

static void fail(nb_link *l, nb_device *me)
{
    nb_link *base = ((carrier *)l)->base;
    base->fail(base, me);
}

static bool start(nb_link *l, const nb_mesh *m)
{
    nb_link *base = ((carrier *)l)->base;
    return base->start(base, m);
}

static void leave(nb_link *l, nb_device *me)
{
    nb_link *base = ((carrier *)l)->base;
    base->leave(base, me);
}

/* Who takes part.  Devices of a process come one after another. */

typedef struct member {
    char card[NB_CARD_NAME];
    bool ready;
} member;

/* Whether all are cards, and each another, on every process alike. */
static bool agree(carrier *c, int each, bool *yes)
{
    const nb_mesh *m = c->mesh;
    const int *place = nb_mesh_places(m);
    size_t n = (size_t)m->ndevices;
    member *all = nb_alloc_zero(n * sizeof *all);
    member *mine = nb_alloc_zero((size_t)each * sizeof *mine);
    bool ok = all && mine;
    for (int i = 0; ok && i < m->ndevices; i++) {
        if (!nb_device_is_here(m, i)) continue;
        member *x = &mine[c->member[i] % each];
        x->ready = place[i] && nb_nccl.there();
        if (x->ready) ok = nb_nccl.name(place[i], x->card);
    }
    ok = ok && nb_ranks_gather(mine, (size_t)each * sizeof *mine, all);
    *yes = ok;
    for (size_t i = 0; i < n && *yes; i++) {
        *yes = all[i].ready;
        for (size_t k = 0; k < i && *yes; k++)
            *yes = memcmp(all[i].card, all[k].card, NB_CARD_NAME);
    }
    nb_free(all);
    nb_free(mine);
    return ok;
}

/* The name of the first process is everybody's. */
static bool share_id(char id[NB_NCCL_ID])
{
    int rank, size;
    if (!nb_ranks_get(&rank, &size) || (rank == 0 && !nb_nccl.id(id)))
        return false;
    char *all = nb_alloc_zero((size_t)size * NB_NCCL_ID);
    bool ok = all && nb_ranks_gather(id, NB_NCCL_ID, all);
    if (ok) memcpy(id, all, NB_NCCL_ID);
    nb_free(all);
    return ok;
}

static bool join(carrier *c, int each)
{
    const nb_mesh *m = c->mesh;
    const int *place = nb_mesh_places(m);
    char id[NB_NCCL_ID] = {0};
    int *number = nb_alloc((size_t)each * 3 * sizeof *number), n = 0;
    void **comm = nb_alloc((size_t)each * sizeof *comm);
    bool ok = number && comm && share_id(id);
    int *device = number, *as = number + each, *at = as + each;
    for (int i = 0; ok && i < m->ndevices; i++) {
        if (!nb_device_is_here(m, i)) continue;
        device[n] = place[i];
        as[n] = c->member[i];
        at[n++] = i;
    }
    ok = ok && nb_nccl.join(n, device, as, m->ndevices, id, comm);
    for (int i = 0; ok && i < n; i++)
        c->comm[at[i]] = comm[i];
    nb_free(number);
    nb_free(comm);
    return ok;
}

/* One that has the group of these devices already. */
static bool share(carrier *c)
{
    for (const carrier *k = first; k; k = k->next) {
        const nb_mesh *m = c->mesh;
        if (k->mesh->ndevices != m->ndevices || !nb_mesh_shares(m, k->mesh))
            continue;
        for (int i = 0; i < m->ndevices && !k->none; i++)
            c->comm[i] = k->comm[nb_mesh_position(k->mesh, m->device[i])];
        c->none = k->none;
        return true;
    }
    return false;
}

static bool settle(carrier *c)
{
    int each = nb_devices_here(c->mesh);
    bool yes = false;
    for (int i = 0; i < c->mesh->ndevices; i++)
        for (int k = 0; k < c->mesh->ndevices; k++)
            c->member[i] += c->mesh->device[k] < c->mesh->device[i];
    if (share(c)) return true;
    if (!each || !agree(c, each, &yes)) return false;
    c->none = !yes;
    return c->none || join(c, each);
}

static carrier *make(const nb_mesh *m, nb_link *base)
{
    size_t n = (size_t)m->ndevices;
    carrier *c =
        nb_alloc_forever(sizeof *c + n * (sizeof(int) + sizeof(void *)));
    if (!c) return NULL;
    *c = (carrier){.base = base, .mesh = m};
    c->link = (nb_link){.name = "nccl",
                        .piece = PIECE,
                        .cards = true,
                        .copies = true,
                        .exchange = exchange,
                        .fail = fail,
                        .start = start,
                        .leave = leave};
    c->comm = (void **)(c + 1);
    c->member = (int *)(c->comm + n);
    memset(c->comm, 0, n * (sizeof(int) + sizeof(void *)));
    return c;
}

static carrier *add(const nb_mesh *m, nb_link *base)
{
    carrier *c = make(m, base);
    if (!c || !settle(c)) return NULL;
    c->next = first;
    return first = c;
}

nb_link *nb_nccl_link(const nb_mesh *m, nb_link *base)
{
    pthread_mutex_lock(&lock);
    carrier *c = first;
    while (c && c->mesh != m)
        c = c->next;
    if (!c) c = add(m, base);
    pthread_mutex_unlock(&lock);
    return !c ? NULL : c->none ? base : &c->link;
}
