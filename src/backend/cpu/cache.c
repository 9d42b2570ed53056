/* cache.c - the table of code in use, and the way from text to code.
 *
 * The table keeps no references: code leaves it as its last user drops it.
 *
 * A key is made of the text, the processor and the version of this library,
 * but not of the version of LLVM, which would have to be opened to be known.
 * Nor does it have to be: code of the same text for the same processor gives
 * the same results whichever version made it, since nothing in the text leaves
 * rounding or order open.  A later LLVM may do it better; emptying the folder
 * of the cache lets it try. */
#include "backend/cpu/cache.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/llvm.h"
#include "base/disk.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 1024 };

typedef struct entry {
    struct entry *next;
    nb_disk_key key;
    nb_code *code;
} entry;

static struct {
    pthread_mutex_t lock;
    entry *bucket[BUCKETS];
    atomic_int_fast64_t hits, disk_hits, misses, compile_ns;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static nb_disk_key key_of(const char *ir)
{
    const char *parts[] = {ir, nb_cpu_target()->id, nb_llvm_passes(),
                           nb_version()};
    nb_disk_key key = {{0x9b2c5f6ed1a34877u, 0x4d1fe6a3780c92b5u}};
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 4; p++)
            key.part[i] = nb_hash(key.part[i], parts[p], strlen(parts[p]));
    return key;
}

static entry **bucket_of(nb_disk_key key)
{
    return &table.bucket[key.part[0] % BUCKETS];
}

/* Code that is being freed may still be listed.  With the lock held. */
static nb_code *find_live(nb_disk_key key)
{
    for (entry *e = *bucket_of(key); e; e = e->next)
        if (!memcmp(&e->key, &key, sizeof key) && nb_code_keep_if_live(e->code))
            return e->code;
    return NULL;
}

static nb_code *find(nb_disk_key key)
{
    pthread_mutex_lock(&table.lock);
    nb_code *c = find_live(key);
    pthread_mutex_unlock(&table.lock);
    return c;
}

static void on_gone(void *arg)
{
    entry *gone = arg, **at = bucket_of(gone->key);
    pthread_mutex_lock(&table.lock);
    while (*at != gone)
        at = &(*at)->next;
    *at = gone->next;
    pthread_mutex_unlock(&table.lock);
    nb_free(gone);
}

/* Lists the code; another thread may have been quicker, then gives its. */
static nb_code *publish(nb_disk_key key, nb_code *c)
{
    entry *e = nb_alloc(sizeof *e), **at = bucket_of(key);
    if (!e) return nb_code_drop(c), NULL;
    pthread_mutex_lock(&table.lock);
    nb_code *other = find_live(key);
    if (!other) {
        *e = (entry){*at, key, c};
        *at = e;
        nb_code_watch(c, on_gone, e);
    }
    pthread_mutex_unlock(&table.lock);
    if (!other) return c;
    nb_free(e);
    nb_code_drop(c);
    return other;
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What cannot be loaded is not written. */
static nb_code *compile(const char *ir, nb_disk_key key)
{
    nb_object o;
    int64_t start = now();
    bool ok = nb_llvm_compile(ir, &o);
    table.compile_ns += now() - start;
    if (!ok) return NULL;
    nb_code *c = nb_code_load(o.data, o.n);
    if (c) nb_disk_write(key, &o);
    nb_object_free(&o);
    table.misses++;
    return c;
}

nb_code *nb_code_build(const char *ir)
{
    const nb_cpu *cpu = nb_cpu_target();
    if (cpu->trouble) return nb_fail(NB_ERUNTIME, "compile: %s", cpu->trouble);
    nb_disk_key key = key_of(ir);
    nb_code *c = find(key);
    if (c) {
        table.hits++;
        return c;
    }
    nb_object o;
    if (!nb_disk_read(key, &o)) return NULL;
    if (!o.data) {
        c = compile(ir, key);
    } else if ((c = nb_code_load(o.data, o.n))) {
        table.disk_hits++;
    }
    nb_object_free(&o);
    return c ? publish(key, c) : NULL;
}

nb_code_stats nb_code_stats_get(void)
{
    return (nb_code_stats){table.hits,
                           table.disk_hits,
                           table.misses,
                           nb_code_bytes(),
                           (double)table.compile_ns / 1e6,
                           nb_disk_trouble()};
}
