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
#include "comm/peer.h"
#include "comm/stream.h"

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
/* Messages that are offered: smaller ones are copied sooner. */
static const size_t OFFERED = (size_t)8 << 10;

typedef struct ring {
    alignas(LINE) atomic_size_t head;
    alignas(LINE) atomic_size_t tail;
} ring;

typedef struct segment {
    uint64_t mark; /* so that a stranger's is not taken for ours */
    alignas(LINE) atomic_uint bell;
    atomic_int asleep;
    atomic_uint_fast64_t taken_back; /* offers of its owner up to that run */
    ring ring[];                     /* by rank; then their bytes */
} segment;

typedef struct card { /* what ranks tell each other */
    char host[NAME], name[NAME];
    uint64_t mark;
    nb_peer peer;
} card;

enum { OPENED = 1, READ = 2 }; /* what one of them could do with another */

static struct {
    int rank, size;
    size_t room, bytes; /* of a ring, of a segment */
    segment **at;       /* by rank; NULL: not this way */
    nb_peer *peer;      /* by rank; of those whose memory is read */
    bool all;           /* of all ranks, by all */
    size_t offered;     /* messages of so many bytes or more */
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
    if (p->bytes) nb_stream(to + nb_packet_data(p), data, p->bytes);
    nb_stream_end();
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

bool nb_shm_reads_all(void)
{
    return shm.at && shm.all;
}

static bool reads(int rank)
{
    return nb_shm_has(rank) && shm.peer[rank].pid;
}

bool nb_shm_offers(int rank, size_t bytes)
{
    return bytes >= shm.offered && reads(rank);
}

bool nb_shm_read(int rank, uint64_t run, uint64_t from, void *to, size_t bytes)
{
    if (!nb_peer_read(&shm.peer[rank], from, to, bytes)) return false;
    atomic_thread_fence(memory_order_seq_cst);
    return shm.at[rank]->taken_back < run;
}

void nb_shm_take_back(uint64_t run)
{
    if (shm.at) shm.at[shm.rank]->taken_back = run;
}

bool nb_shm_is_gone(int rank)
{
    return reads(rank) && nb_peer_is_gone(&shm.peer[rank]);
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

static bool is_said(const char *word)
{
    const char *text = getenv("NABLA_SHM");
    return text && strcmp(text, word) == 0;
}

/* What i could do with j, as each has told. */
static bool could(const unsigned char *seen, int i, int j, int what)
{
    return seen[(size_t)i * (size_t)shm.size + (size_t)j] & what;
}

static bool all_could(const unsigned char *seen, int what)
{
    bool all = true;
    for (int i = 0; i < shm.size; i++)
        for (int j = 0; j < shm.size; j++)
            all &= i == j || could(seen, i, j, what);
    return all;
}

/* Keeps only those who have ours as well. */
static void agree(const unsigned char *seen)
{
    int here = 1;
    for (int i = 0; i < shm.size; i++) {
        if (i == shm.rank || !shm.at[i]) continue;
        if (!could(seen, i, shm.rank, READ)) shm.peer[i].pid = 0;
        if (could(seen, i, shm.rank, OPENED)) {
            here++;
        } else {
            munmap(shm.at[i], shm.bytes);
            shm.at[i] = NULL;
        }
    }
    shm.all = all_could(seen, READ);
    shm.spin = here <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
}

static unsigned char try(const card *mine, const card *c, int rank)
{
    shm.at[rank] = open_other(mine, c);
    if (!shm.at[rank]) return 0;
    if (!mine->peer.pid || !nb_peer_is_readable(&c->peer)) return OPENED;
    shm.peer[rank] = c->peer;
    return OPENED | READ;
}

static void open_all(const nb_wire *w, card *all, unsigned char *seen)
{
    card mine = {.host = ""};
    size_t n = (size_t)shm.size;
    unsigned char *row = seen + n * n;
    name_host(mine.host);
    segment *own = is_said("0") ? NULL : make(&mine);
    if (!own) mine.name[0] = '\0';
    if (own && !is_said("rings")) mine.peer = nb_peer_self(mine.mark);
    if (!w->gather(&mine, sizeof mine, all)) return;
    for (int i = 0; own && i < shm.size; i++)
        if (i != shm.rank) row[i] = try(&mine, &all[i], i);
    if (own) shm.at[shm.rank] = own;
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
    shm.offered = is_said("reads") ? 1 : OFFERED;
    shm.room = ALL / n / LEAST * LEAST;
    if (shm.room < LEAST) shm.room = LEAST;
    if (shm.room > MOST) shm.room = MOST;
    shm.bytes = sizeof(segment) + n * (sizeof(ring) + shm.room);
    shm.at = nb_alloc_forever(n * sizeof *shm.at);
    shm.peer = nb_alloc_forever(n * sizeof *shm.peer);
    card *all = nb_alloc(n * sizeof *all);
    unsigned char *seen = nb_alloc_zero(n * n + n);
    if (shm.at && shm.peer && all && seen)
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
