/* shm.c - rings and bells in the memory that processes share: see shm.h.
 *
 * Packets lie in a ring in one piece; one that does not fit before the end
 * begins anew at the start, and a header of kind SKIP says so. */
#define _GNU_SOURCE
#include "comm/shm_parts.h"

#include "comm/stream.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SKIP = 1000 };

static nb_shm shm;

nb_shm *nb_shm_get(void)
{
    return &shm;
}

static char *bytes_of(nb_segment *s, int rank)
{
    return (char *)&s->ring[shm.size] + (size_t)rank * shm.room;
}

bool nb_shm_has(int rank)
{
    return shm.at && rank != shm.rank && shm.at[rank];
}

static long futex(atomic_uint *word, int op, unsigned value,
                  const struct timespec *t)
{
    return syscall(SYS_futex, word, op, value, t, NULL, 0);
}

void nb_shm_ring(int rank)
{
    nb_segment *s = shm.at ? shm.at[rank] : NULL;
    if (!s) return;
    s->bell++;
    if (s->asleep) futex(&s->bell, FUTEX_WAKE, INT_MAX, NULL);
}

unsigned nb_shm_bell(void)
{
    return shm.at ? shm.at[shm.rank]->bell : 0;
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A short while awake, for the answer is often on its way; not where there are
 * more processes than processors. */
void nb_shm_sleep(unsigned bell, double seconds)
{
    struct timespec t = {0, (long)(1e9 * seconds)};
    if (!shm.at) {
        nanosleep(&t, NULL);
        return;
    }
    nb_segment *s = shm.at[shm.rank];
    for (unsigned i = 0; i < shm.spin; i++) {
        if (s->bell != bell) return;
        pause_briefly();
    }
    s->asleep++;
    if (s->bell == bell) futex(&s->bell, FUTEX_WAIT, bell, &t);
    s->asleep--;
}

/* Where n bytes can be written, or NULL; what is skipped is marked. */
static char *find_space(nb_segment *s, size_t n, size_t *head)
{
    nb_ring *r = &s->ring[shm.rank];
    char *base = bytes_of(s, shm.rank);
    size_t at = *head % shm.room, left = shm.room - at;
    size_t used = *head - atomic_load_explicit(&r->tail, memory_order_acquire);
    if (n > left) {
        if (used + left + n > shm.room) return NULL;
        ((nb_packet *)(base + at))->kind = SKIP;
        *head += left;
        return base;
    }
    return used + n > shm.room ? NULL : base + at;
}

bool nb_shm_push(int rank, const nb_packet *p, const void *text,
                 const void *data)
{
    nb_segment *s = shm.at[rank];
    nb_ring *r = &s->ring[shm.rank];
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    char *to = find_space(s, nb_packet_size(p), &head);
    if (!to) return false;
    memcpy(to, p, sizeof *p);
    if (p->text) memcpy(to + sizeof *p, text, p->text);
    if (p->bytes) nb_stream(to + nb_packet_data(p), data, p->bytes);
    nb_stream_end();
    atomic_store_explicit(&r->head, head + nb_packet_size(p),
                          memory_order_release);
    nb_shm_ring(rank);
    return true;
}

const nb_packet *nb_shm_peek(int rank)
{
    nb_segment *s = shm.at[shm.rank];
    nb_ring *r = &s->ring[rank];
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&r->head, memory_order_acquire))
        return NULL;
    nb_packet *p = (nb_packet *)(bytes_of(s, rank) + tail % shm.room);
    if (p->kind != SKIP) return p;
    atomic_store_explicit(&r->tail, tail + shm.room - tail % shm.room,
                          memory_order_release);
    return nb_shm_peek(rank);
}

void nb_shm_pop(int rank)
{
    nb_ring *r = &shm.at[shm.rank]->ring[rank];
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    const nb_packet *p =
        (nb_packet *)(bytes_of(shm.at[shm.rank], rank) + tail % shm.room);
    atomic_store_explicit(&r->tail, tail + nb_packet_size(p),
                          memory_order_release);
    nb_shm_ring(rank);
}
