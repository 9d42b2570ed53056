/* fetch.c - what a device receives, read where it lies: in the memory of this
 * process, where a peer has posted it or a parcel holds it, or in that of
 * another, which has offered it.
 *
 * That is done outside of the lock.  Peers of this process stay as long as they
 * have a reader; one of another that goes on without having been told that its
 * message was taken has failed, and says so where nb_shm_read finds it.
 *
 * What a reader looks at must be in this process: it comes through scratch
 * memory, a range after another, small enough for the nearest caches. */
#include "comm/remote_parts.h"

#include "base/memory.h"
#include "comm/shm.h"
#include "core/tensor.h"

enum { SCRATCH = 512 << 10, LEAST = 64 << 10 };

/* A message that is received.  Neither data nor offer: it comes by itself. */
typedef struct source {
    const char *data;
    uint64_t offer; /* where in the memory of that rank */
    int rank;
    nb_parcel *parcel;
    bool torn;
} source;

/* What is received: of that the first nlook by a reader. */
typedef struct fetch {
    const nb_post *post;
    uint64_t run;
    source *from;
    int nlook, nremote; /* and so many of them from other processes */
    const void **seen;
    char *scratch;
    size_t room, range;
    int on; /* where it all is */
    bool failed;
} fetch;

/* Message j that a receives, as its peer sends it. */
static const nb_message *partner(const nb_seat *a, int j)
{
    const nb_message *m = a->post->recv;
    const nb_post *from = nb_hall_get()->at[m[j].peer].post;
    int before = 0;
    for (int i = 0; i < j; i++)
        before += m[i].peer == m[j].peer;
    return nb_message_nth(from->nsend, from->send, a->position, before);
}

static source find(const nb_seat *a, int j)
{
    const nb_message *m = &a->post->recv[j];
    source s = {.rank = nb_hall_get()->at[m->peer].rank};
    if (nb_seat_is_here(m->peer)) {
        s.data = partner(a, j)->data;
        return s;
    }
    s.parcel = nb_parcel_find(a, m);
    s.offer = s.parcel->offer;
    if (s.parcel->own) s.data = s.parcel->data;
    return s;
}

static bool prepare(fetch *f, const nb_seat *a)
{
    const nb_post *p = a->post;
    size_t n = (size_t)p->nrecv;
    *f = (fetch){.post = p, .run = nb_hall_get()->run, .on = nb_hall_get()->on};
    f->from = nb_alloc(n * (sizeof *f->from + sizeof *f->seen));
    if (!f->from) return false;
    f->seen = (const void **)(f->from + n);
    for (int j = 0; j < p->nrecv; j++) {
        f->from[j] = find(a, j);
        if (!p->reader || p->recv[j].data) continue;
        f->nlook++;
        f->nremote += f->from[j].offer != 0;
    }
    f->range = SIZE_MAX / 2;
    if (f->nremote == 0) return true;
    f->range = SCRATCH / (size_t)f->nremote / 64 * 64;
    if (f->range < LEAST) f->range = LEAST;
    f->scratch = nb_block_new((size_t)f->nremote * f->range, &f->room);
    return f->scratch;
}

static void finish(fetch *f)
{
    if (f->scratch) nb_block_free(f->scratch, f->room);
    nb_free(f->from);
}

static bool read_offer(const fetch *f, source *s, size_t at, void *to,
                       size_t bytes)
{
    s->torn = !nb_shm_read(s->rank, f->run, s->offer + at, to, bytes);
    return !s->torn;
}

/* A range of all that the reader looks at. */
static bool look_at(fetch *f, size_t at, size_t bytes)
{
    char *free = f->scratch;
    for (int j = 0; j < f->nlook; j++) {
        source *s = &f->from[j];
        f->seen[j] = s->data + at;
        if (!s->offer) continue;
        if (!read_offer(f, s, at, free, bytes)) return false;
        f->seen[j] = free;
        free += f->range;
    }
    f->post->reader->read(f->post->reader->ctx, at, bytes, f->seen);
    return true;
}

static bool look(fetch *f)
{
    size_t all = f->post->recv[0].bytes;
    for (size_t at = 0; at < all; at += f->range) {
        size_t left = all - at;
        if (!look_at(f, at, left < f->range ? left : f->range)) return false;
    }
    return true;
}

/* Whether the first messages lie somewhere; else the one there is comes by
 * itself, to the reader. */
static bool is_looked_at(const fetch *f)
{
    return f->nlook > 0 && (f->from[0].data || f->from[0].offer);
}

static void read_all(fetch *f)
{
    if (is_looked_at(f) && !look(f)) return;
    for (int j = f->nlook; j < f->post->nrecv; j++) {
        const nb_message *m = &f->post->recv[j];
        source *s = &f->from[j];
        if (s->offer && !read_offer(f, s, 0, m->data, m->bytes)) return;
        if (s->data && !nb_bytes_copy(f->on, m->data, s->data, m->bytes))
            f->failed = true;
    }
}

static void count_readers(nb_seat *a, int by)
{
    for (int j = 0; j < a->post->nrecv; j++) {
        nb_seat *b = &nb_hall_get()->at[a->post->recv[j].peer];
        if (!nb_seat_is_here(b->position)) continue;
        b->readers += by;
        if (by > 0) continue;
        b->unread--;
        if (b->unread == 0 || b->readers == 0) nb_seat_wake(b);
    }
}

/* Notes whom it could not read from; only if there is none is all read. */
static void settle(nb_seat *a, const fetch *f)
{
    for (int j = 0; j < a->post->nrecv; j++)
        if (f->from[j].torn) a->torn = a->post->recv[j].peer;
    for (int j = 0; j < a->post->nrecv && a->torn < 0; j++)
        if (f->from[j].parcel) nb_parcel_read(a, f->from[j].parcel);
}

bool nb_seat_read(nb_seat *a)
{
    fetch f;
    bool ok = prepare(&f, a);
    if (ok) {
        count_readers(a, 1);
        pthread_mutex_unlock(&nb_hall_get()->lock);
        read_all(&f);
        pthread_mutex_lock(&nb_hall_get()->lock);
        count_readers(a, -1);
        settle(a, &f);
        ok = !f.failed;
    }
    finish(&f);
    return ok;
}
