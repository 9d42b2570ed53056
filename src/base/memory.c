/* memory.c - allocation with fault injection, and the cache of data blocks.
 *
 * Block sizes are rounded up to one of four steps per power of two, so a freed
 * block fits the next request of about its size with at most a quarter wasted.
 * Free blocks wait in one stack per size under a lock that is held for a few
 * instructions.  Memory that waits is bounded: beyond CACHE_LIMIT it goes back
 * to the system. */
#define _GNU_SOURCE
#include "base/memory.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

enum { STEPS = 4, NSIZES = 40 * STEPS, ALIGN = 64 };
static const size_t HUGE_PAGE = (size_t)2 << 20;
static const size_t CACHE_LIMIT = (size_t)4 << 30;

static _Thread_local int64_t fault;
static atomic_int_fast64_t live;
static atomic_size_t allocated;

typedef struct spare {
    struct spare *next;
} spare;
static struct {
    pthread_mutex_t lock;
    spare *top[NSIZES];
    size_t bytes;
    atomic_int_fast64_t live; /* blocks in use; set under the lock, as are */
    atomic_size_t in_use, peak;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A forked child must not find the lock held by a thread it does not have. */
static void lock(void)
{
    pthread_mutex_lock(&cache.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&cache.lock);
}

bool nb_fault_strikes(void)
{
    return fault > 0 && --fault == 0;
}

void nb_fault_set(int64_t nth)
{
    fault = nth;
}

bool nb_fault_is_set(void)
{
    return fault > 0;
}

int64_t nb_memory_live(void)
{
    return live + cache.live;
}

size_t nb_block_bytes(void)
{
    return cache.in_use;
}

size_t nb_block_kept(void)
{
    lock();
    size_t bytes = cache.bytes;
    unlock();
    return bytes;
}

size_t nb_block_peak(void)
{
    return cache.peak;
}

void nb_block_peak_reset(void)
{
    lock();
    cache.peak = (size_t)cache.in_use;
    unlock();
}

/* Under the lock, which makes adding cheaper. */
static void use(int64_t n, size_t bytes)
{
    size_t now = atomic_load_explicit(&cache.in_use, memory_order_relaxed);
    int64_t blocks = atomic_load_explicit(&cache.live, memory_order_relaxed);
    atomic_store_explicit(&cache.live, blocks + n, memory_order_relaxed);
    now += bytes;
    atomic_store_explicit(&cache.in_use, now, memory_order_relaxed);
    if (now > atomic_load_explicit(&cache.peak, memory_order_relaxed))
        atomic_store_explicit(&cache.peak, now, memory_order_relaxed);
}

static void count(int64_t n, int64_t bytes)
{
    atomic_fetch_add_explicit(&live, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&allocated, (size_t)bytes, memory_order_relaxed);
}

size_t nb_memory_bytes(void)
{
    return allocated;
}

static void *counted(void *p, size_t bytes)
{
    if (!p) return nb_fail_memory(bytes, "the engine");
    count(1, (int64_t)malloc_usable_size(p));
    return p;
}

void *nb_alloc_forever(size_t bytes)
{
    void *p = nb_fault_strikes() ? NULL : calloc(1, bytes);
    return p ? p : nb_fail_memory(bytes, "the engine");
}

void *nb_alloc(size_t bytes)
{
    return counted(nb_fault_strikes() ? NULL : malloc(bytes ? bytes : 1),
                   bytes);
}

void *nb_alloc_zero(size_t bytes)
{
    return counted(nb_fault_strikes() ? NULL : calloc(1, bytes ? bytes : 1),
                   bytes);
}

void *nb_resize(void *p, size_t bytes)
{
    if (!p) return nb_alloc(bytes);
    int64_t before = (int64_t)malloc_usable_size(p);
    void *more = nb_fault_strikes() ? NULL : realloc(p, bytes ? bytes : 1);
    if (!more) return nb_fail_memory(bytes, "the engine");
    count(0, (int64_t)malloc_usable_size(more) - before);
    return more;
}

void nb_free(void *p)
{
    if (!p) return;
    count(-1, -(int64_t)malloc_usable_size(p));
    free(p);
}

char *nb_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = nb_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

bool nb_grow(void *array, int *room, int n, size_t item)
{
    void **p = array;
    if (n <= *room) return true;
    int more = *room ? 2 * *room : 8;
    if (more < n) more = n;
    void *bigger = nb_resize(*p, (size_t)more * item);
    if (!bigger) return false;
    *p = bigger;
    *room = more;
    return true;
}

/* The number of the smallest step that holds bytes, and the size of a step:
 * sizes 64, 80, 96, 112, 128, 160, ... */
static int step_of(size_t bytes)
{
    if (bytes <= ALIGN) return 0;
    int power = 63 - __builtin_clzll((unsigned long long)(bytes - 1));
    int quarter = (int)((bytes - 1) >> (power - 2) & 3);
    return (power - 6) * STEPS + quarter + 1;
}

static size_t step_size(int step)
{
    int power = step / STEPS, quarter = step % STEPS;
    size_t base = (size_t)ALIGN << power;
    return base + base / STEPS * (size_t)quarter;
}

static void prepare(void)
{
    pthread_atfork(lock, unlock, unlock);
}

/* Straight from the system, since the heap hands out again, in small pages,
 * what it was given back.  What lies outside the alignment is returned. */
static void *fresh_pages(size_t room)
{
    char *p = mmap(NULL, room + HUGE_PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)p & (HUGE_PAGE - 1);
    if (before) munmap(p, before);
    munmap(p + before + room, HUGE_PAGE - before);
    madvise(p + before, room, MADV_HUGEPAGE);
    return p + before;
}

static void *fresh(size_t room)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    return room < HUGE_PAGE ? aligned_alloc(ALIGN, (room + 63) / 64 * 64)
                            : fresh_pages(room);
}

static void give_back(void *p, size_t room)
{
    if (room < HUGE_PAGE)
        free(p);
    else
        munmap(p, room);
}

/* One that waits in the cache, or NULL. */
static void *waiting(int step, size_t room)
{
    lock();
    spare *s = cache.top[step];
    if (s) {
        cache.top[step] = s->next;
        cache.bytes -= room;
        use(1, room);
    }
    unlock();
    return s;
}

static void *fresh_used(size_t room)
{
    void *p = fresh(room);
    lock();
    if (p) use(1, room);
    unlock();
    return p;
}

void *nb_block_new(size_t bytes, size_t *room)
{
    int step = bytes > (size_t)1 << 44 ? NSIZES : step_of(bytes);
    void *p = NULL;
    if (step < NSIZES && !nb_fault_strikes()) {
        *room = step_size(step);
        if (!(p = waiting(step, *room))) p = fresh_used(*room);
    }
    return p ? p : nb_fail_memory(bytes, "tensor data");
}

void nb_block_free(void *p, size_t room)
{
    if (!p) return;
    lock();
    use(-1, -room);
    bool keep = cache.bytes + room <= CACHE_LIMIT;
    if (keep) {
        spare *s = p;
        int step = step_of(room);
        s->next = cache.top[step];
        cache.top[step] = s;
        cache.bytes += room;
    }
    unlock();
    if (!keep) give_back(p, room);
}

/* The limit of our group, where there is one. */
static size_t group_limit(void)
{
    unsigned long long bytes = 0;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "r");
    bool some = f && fscanf(f, "%llu", &bytes) == 1;
    if (f) fclose(f);
    return some ? (size_t)bytes : SIZE_MAX;
}

size_t nb_memory_limit(void)
{
    static atomic_size_t limit;
    struct sysinfo s;
    if (limit) return limit;
    size_t all = SIZE_MAX, group = group_limit();
    if (sysinfo(&s) == 0) all = (s.totalram + s.totalswap) * s.mem_unit;
    if (group < all) all = group;
    limit = all;
    return all;
}

void nb_block_trim(void)
{
    lock();
    for (int i = 0; i < NSIZES; i++)
        while (cache.top[i]) {
            spare *s = cache.top[i];
            cache.top[i] = s->next;
            give_back(s, step_size(i));
        }
    cache.bytes = 0;
    unlock();
}
