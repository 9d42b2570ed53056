/* shm.c - see shm.h.
 *
 * A ring is bytes with two counters: `head`, what has been written, and `tail`,
 * what has been read, each written by one side.  Packets lie in one piece; one
 * that does not fit before the end begins anew at the start, and a header of
 * kind SKIP says so.
 *
 * Two processes use the memory only if both could open that of the other, which
 * they tell each other, for machines of one name need not be one machine. */
#define _GNU_SOURCE
#include "comm/shm.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SKIP = 1000, LINE = 64, NAME = 64 };
/* Of a ring at most and at least, and of all rings of a process if it can be:
 * in containers there is often little memory to share. */
static const size_t MOST = (size_t)4 << 20, LEAST = (size_t)512 << 10;
static const size_t ALL = (size_t)8 << 20;

typedef struct ring {
    alignas(LINE) atomic_size_t head;
    alignas(LINE) atomic_size_t tail;
} ring;

typedef struct segment {
    uint64_t mark; /* so that a stranger's is not taken for ours */
    alignas(LINE) atomic_uint bell;
    atomic_int asleep;
    ring ring[]; /* by rank; then their bytes */
} segment;

typedef struct card { /* what ranks tell each other */
    char host[NAME], name[NAME];
    uint64_t mark;
} card;

static struct {
    int rank, size;
    size_t room, bytes; /* of a ring, of a segment */
    segment **at;       /* by rank; NULL: not this way */
    unsigned spin;
} shm;

static char *bytes_of(segment *s, int rank)
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
    segment *s = shm.at ? shm.at[rank] : NULL;
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
    segment *s = shm.at[shm.rank];
    for (unsigned i = 0; i < shm.spin; i++) {
        if (s->bell != bell) return;
        pause_briefly();
    }
    s->asleep++;
    if (s->bell == bell) futex(&s->bell, FUTEX_WAIT, bell, &t);
    s->asleep--;
}

/* Where n bytes can be written, or NULL; what is skipped is marked. */
static char *find_space(segment *s, size_t n, size_t *head)
{
    ring *r = &s->ring[shm.rank];
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
    segment *s = shm.at[rank];
    ring *r = &s->ring[shm.rank];
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    char *to = find_space(s, nb_packet_size(p), &head);
    if (!to) return false;
    memcpy(to, p, sizeof *p);
    if (p->text) memcpy(to + sizeof *p, text, p->text);
    if (p->bytes) memcpy(to + nb_packet_data(p), data, p->bytes);
    atomic_store_explicit(&r->head, head + nb_packet_size(p),
                          memory_order_release);
    nb_shm_ring(rank);
    return true;
}

const nb_packet *nb_shm_peek(int rank)
{
    segment *s = shm.at[shm.rank];
    ring *r = &s->ring[rank];
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
    ring *r = &shm.at[shm.rank]->ring[rank];
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    const nb_packet *p =
        (nb_packet *)(bytes_of(shm.at[shm.rank], rank) + tail % shm.room);
    atomic_store_explicit(&r->tail, tail + nb_packet_size(p),
                          memory_order_release);
    nb_shm_ring(rank);
}

/* Setting up. */

static void name_host(char text[NAME])
{
    char host[24] = "", boot[37] = "";
    gethostname(host, sizeof host - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(boot, sizeof boot, f)) boot[0] = '\0';
    if (f) fclose(f);
    snprintf(text, NAME, "%s %s", host, boot);
}

static segment *map(int file)
{
    void *p =
        mmap(NULL, shm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : p;
}

/* Space is taken at once: a full disk must not be found out by writing. */
static segment *make(card *c)
{
    if (getrandom(&c->mark, sizeof c->mark, 0) != sizeof c->mark) return NULL;
    snprintf(c->name, NAME, "/nabla-%ld-%llx", (long)getpid(),
             (unsigned long long)c->mark);
    int file = shm_open(c->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) return NULL;
    segment *s = NULL;
    if (posix_fallocate(file, 0, (off_t)shm.bytes))
        close(file);
    else
        s = map(file);
    if (s)
        s->mark = c->mark;
    else
        shm_unlink(c->name);
    return s;
}

static segment *open_other(const card *mine, const card *c)
{
    if (!c->name[0] || strcmp(mine->host, c->host) != 0) return NULL;
    int file = shm_open(c->name, O_RDWR, 0);
    segment *s = file < 0 ? NULL : map(file);
    if (s && s->mark != c->mark) {
        munmap(s, shm.bytes);
        s = NULL;
    }
    return s;
}

static bool is_wanted(void)
{
    const char *text = getenv("NABLA_SHM");
    return !text || strcmp(text, "0") != 0;
}

/* Keeps only those who have ours as well; seen: what each has opened. */
static void agree(const unsigned char *seen)
{
    size_t n = (size_t)shm.size;
    int here = 1;
    for (int i = 0; i < shm.size; i++) {
        if (i == shm.rank || !shm.at[i]) continue;
        if (seen[(size_t)i * n + (size_t)shm.rank]) {
            here++;
        } else {
            munmap(shm.at[i], shm.bytes);
            shm.at[i] = NULL;
        }
    }
    shm.spin = here <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
}

static void open_all(const nb_wire *w, card *all, unsigned char *seen)
{
    card mine = {.host = ""};
    size_t n = (size_t)shm.size;
    unsigned char *row = seen + n * n;
    name_host(mine.host);
    segment *own = is_wanted() ? make(&mine) : NULL;
    if (!own) mine.name[0] = '\0';
    if (!w->gather(&mine, sizeof mine, all)) return;
    for (int i = 0; own && i < shm.size; i++)
        shm.at[i] = i == shm.rank ? own : open_other(&mine, &all[i]);
    for (size_t i = 0; i < n; i++)
        row[i] = shm.at[i] != NULL;
    bool told = w->gather(row, n, seen);
    if (own) shm_unlink(mine.name);
    if (told && own) agree(seen);
    if (!told || !own) shm.at = NULL;
}

void nb_shm_open(const nb_wire *w)
{
    size_t n = (size_t)w->size;
    shm.rank = w->rank;
    shm.size = w->size;
    shm.room = ALL / n / LEAST * LEAST;
    if (shm.room < LEAST) shm.room = LEAST;
    if (shm.room > MOST) shm.room = MOST;
    shm.bytes = sizeof(segment) + n * (sizeof(ring) + shm.room);
    shm.at = nb_alloc_forever(n * sizeof *shm.at);
    card *all = nb_alloc(n * sizeof *all);
    unsigned char *seen = nb_alloc_zero(n * n + n);
    if (shm.at && all && seen)
        open_all(w, all, seen);
    else
        shm.at = NULL;
    nb_free(all);
    nb_free(seen);
}

void nb_shm_close(void)
{
    for (int i = 0; shm.at && i < shm.size; i++)
        if (shm.at[i]) munmap(shm.at[i], shm.bytes);
    shm.at = NULL;
}
