/* build.c - the table of kernels in use, and the way from text to kernel.
 *
 * The table keeps no references: code leaves it as its last user drops it. */
#include "backend/cuda/build.h"

#include "backend/cuda/code.h"
#include "backend/cuda/nvrtc.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 1024 };

static struct {
    pthread_mutex_t lock;
    nb_card_code *bucket[BUCKETS];
    atomic_int_fast64_t hits, disk_hits, misses, compile_ns;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One kernel that is wanted. */
typedef struct job {
    nb_card *card;
    const nb_card_source *source;
    nb_disk_key key;
    nb_card_code *code;
    bool again; /* the same as one before it */
} job;

static nb_disk_key key_of(const nb_card *c, const nb_card_source *s)
{
    char target[64];
    snprintf(target, sizeof target, "cuda %d.%d nvrtc %d", c->major, c->minor,
             nb_nvrtc_version());
    const char *parts[] = {s->text, s->name, target, nb_version()};
    nb_disk_key key = {{0x3fd5a7c1e09b6428u, 0x81c26fbd9e47d035u}};
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 4; p++)
            key.part[i] = nb_hash(key.part[i], parts[p], strlen(parts[p]));
    return key;
}

static nb_card_code **bucket_of(nb_disk_key key)
{
    return &table.bucket[key.part[0] % BUCKETS];
}

static bool same(nb_disk_key a, nb_disk_key b)
{
    return !memcmp(&a, &b, sizeof a);
}

/* A reference to what the table has, or NULL.  With the lock held. */
static nb_card_code *find_locked(const job *j)
{
    nb_card_code *k = *bucket_of(j->key);
    while (k && !(same(k->key, j->key) && k->card == j->card))
        k = k->next;
    if (k) k->references++;
    return k;
}

static nb_card_code *find(const job *j)
{
    pthread_mutex_lock(&table.lock);
    nb_card_code *k = find_locked(j);
    pthread_mutex_unlock(&table.lock);
    return k;
}

/* Lists the code; another thread may have been quicker, then gives its. */
static nb_card_code *publish(const job *j, nb_card_code *k)
{
    pthread_mutex_lock(&table.lock);
    nb_card_code *other = find_locked(j);
    if (!other) {
        nb_card_code **at = bucket_of(j->key);
        k->key = j->key;
        k->next = *at;
        *at = k;
    }
    pthread_mutex_unlock(&table.lock);
    if (!other) return k;
    nb_card_code_unload(k);
    return other;
}

nb_card_code *nb_card_code_keep(nb_card_code *k)
{
    pthread_mutex_lock(&table.lock);
    if (k) k->references++;
    pthread_mutex_unlock(&table.lock);
    return k;
}

void nb_card_code_drop(nb_card_code *k)
{
    if (!k) return;
    pthread_mutex_lock(&table.lock);
    bool last = --k->references == 0;
    nb_card_code **at = bucket_of(k->key);
    while (last && *at != k)
        at = &(*at)->next;
    if (last) *at = k->next;
    pthread_mutex_unlock(&table.lock);
    if (last) nb_card_code_unload(k);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What the driver will not load, though it is undamaged, was made for another
 * one: it is compiled again. */
static bool from_disk(job *j)
{
    nb_object o;
    if (!nb_disk_read(j->key, &o)) return false;
    if (!o.data) return true;
    j->code = nb_card_code_load(j->card, &o, j->source->name);
    nb_object_free(&o);
    if (j->code)
        table.disk_hits++;
    else if (nb_error_code() == NB_EMEMORY || !nb_card_ok(j->card))
        return false;
    else
        nb_error_clear();
    return true;
}

/* What cannot be loaded is not written. */
static bool compiled(job *j)
{
    nb_object o;
    const nb_card *c = j->card;
    int64_t start = now();
    bool ok = nb_nvrtc_compile(j->source->text, c->major, c->minor, &o);
    table.compile_ns += now() - start;
    if (!ok) return false;
    j->code = nb_card_code_load(j->card, &o, j->source->name);
    if (j->code) nb_disk_write(j->key, &o);
    nb_object_free(&o);
    table.misses++;
    return j->code;
}

static void make(void *ctx, int64_t i)
{
    job *j = ((job **)ctx)[i];
    if (from_disk(j) && (j->code || compiled(j))) j->code = publish(j, j->code);
}

static bool is_again(const job *jobs, int i)
{
    for (int j = 0; j < i; j++)
        if (same(jobs[j].key, jobs[i].key)) return true;
    return false;
}

/* Those that have to be made; the others are found, or the same as one that
 * has to. */
static int look(job *jobs, int n, job **todo)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        job *j = &jobs[i];
        if ((j->code = find(j)))
            table.hits++;
        else if (!(j->again = is_again(jobs, i)))
            todo[m++] = j;
    }
    return m;
}

static bool build(job *jobs, int n, job **todo)
{
    bool ok = true;
    nb_parallel(look(jobs, n, todo), make, todo);
    for (int i = 0; i < n; i++) {
        job *j = &jobs[i];
        if (j->again && (j->code = find(j))) table.hits++;
        ok = ok && j->code;
    }
    return ok;
}

bool nb_card_build(nb_card *c, int n, const nb_card_source *s,
                   nb_card_code **code)
{
    for (int i = 0; i < n; i++)
        code[i] = NULL;
    if (!nb_card_enter(c)) return false;
    if (!nb_nvrtc_version())
        return nb_fail(NB_ERUNTIME, "compile: %s", nb_nvrtc_trouble());
    job *jobs = nb_alloc((size_t)n * sizeof *jobs);
    job **todo = nb_alloc((size_t)n * sizeof *todo);
    bool ok = jobs && todo;
    for (int i = 0; i < n && ok; i++)
        jobs[i] = (job){.card = c, .source = &s[i], .key = key_of(c, &s[i])};
    if (ok) {
        ok = build(jobs, n, todo);
        for (int i = 0; i < n; i++)
            if (ok)
                code[i] = jobs[i].code;
            else
                nb_card_code_drop(jobs[i].code);
    }
    nb_free(jobs);
    nb_free(todo);
    return ok;
}

nb_card_build_stats nb_card_build_stats_get(void)
{
    return (nb_card_build_stats){table.hits, table.disk_hits, table.misses,
                                 (double)table.compile_ns / 1e6};
}
