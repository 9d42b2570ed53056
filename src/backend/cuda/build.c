/* build.c - the table of kernels in use, and the way from text to kernel.
 *
 * The table keeps no references: code leaves it as its last user drops it.
 * What a thread gathers is its own until it is loaded; then it is listed.  Two
 * threads may so come to the same code at the same time, and both keep theirs. */
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
    nb_card_image *bucket[BUCKETS];
    atomic_int_fast64_t hits, disk_hits, misses, compile_ns;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What this thread gathers: texts to be compiled, and a reference to each
 * kernel that was asked for. */
static _Thread_local struct {
    int depth;
    nb_card_image **image;
    int n, room;
    nb_card_code **held;
    int nheld, held_room;
} gathered;

static nb_disk_key key_of(const nb_card *c, const char *text)
{
    char target[64];
    snprintf(target, sizeof target, "cuda %d.%d nvrtc %d", c->major, c->minor,
             nb_nvrtc_version());
    const char *parts[] = {text, target, nb_version()};
    nb_disk_key key = {{0x3fd5a7c1e09b6428u, 0x81c26fbd9e47d035u}};
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 3; p++)
            key.part[i] = nb_hash(key.part[i], parts[p], strlen(parts[p]));
    return key;
}

static nb_card_image **bucket_of(nb_disk_key key)
{
    return &table.bucket[key.part[0] % BUCKETS];
}

static bool is(const nb_card_image *m, const nb_card *c, nb_disk_key key)
{
    return m->card == c && !memcmp(&m->key, &key, sizeof key);
}

/* Making */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What the driver will not load, though it is undamaged, was made for another
 * one: it is compiled again. */
static bool from_disk(nb_card_image *m)
{
    nb_object o;
    if (!nb_disk_read(m->key, &o)) return false;
    if (!o.data) return true;
    bool ok = nb_card_image_load(m, &o);
    nb_object_free(&o);
    if (ok)
        table.disk_hits++;
    else if (nb_error_code() == NB_EMEMORY || !nb_card_ok(m->card))
        return false;
    else
        nb_error_clear();
    return true;
}

/* What cannot be loaded is not written. */
static bool compiled(nb_card_image *m)
{
    nb_object o;
    const nb_card *c = m->card;
    int64_t start = now();
    bool ok = nb_nvrtc_compile(m->text, c->major, c->minor, &o);
    table.compile_ns += now() - start;
    if (!ok) return false;
    ok = nb_card_image_load(m, &o);
    if (ok) nb_disk_write(m->key, &o);
    nb_object_free(&o);
    table.misses++;
    return ok;
}

static void publish(nb_card_image *m)
{
    pthread_mutex_lock(&table.lock);
    nb_card_image **at = bucket_of(m->key);
    m->next = *at;
    *at = m;
    pthread_mutex_unlock(&table.lock);
}

static void make(void *ctx, int64_t i)
{
    nb_card_image *m = ((nb_card_image **)ctx)[i];
    if (from_disk(m) && (m->module || compiled(m))) publish(m);
}

static bool build_gathered(void)
{
    int n = gathered.n;
    bool ok = true;
    gathered.n = 0;
    if (n) nb_parallel(n, make, gathered.image);
    for (int i = 0; i < n; i++) {
        nb_card_image *m = gathered.image[i];
        nb_free(m->text);
        m->text = NULL;
        ok = ok && m->module;
    }
    return ok;
}

bool nb_card_code_ready(const nb_card_code *k)
{
    if (k->function) return true;
    if (!build_gathered()) return false;
    return k->function ||
           nb_fail(NB_ERUNTIME, "%s: the kernel was not built", k->name);
}

/* Asking; with the lock held */

static nb_card_image *find_image(const nb_card *c, nb_disk_key key)
{
    nb_card_image *m = *bucket_of(key);
    while (m && !is(m, c, key))
        m = m->next;
    for (int i = 0; !m && i < gathered.n; i++)
        if (is(gathered.image[i], c, key)) m = gathered.image[i];
    return m;
}

static nb_card_image *add_image(nb_card *c, nb_disk_key key, const char *text)
{
    if (!nb_grow(&gathered.image, &gathered.room, gathered.n + 1,
                 sizeof(nb_card_image *)))
        return NULL;
    nb_card_image *m = nb_card_image_new(c, key, text);
    if (m) gathered.image[gathered.n++] = m;
    return m;
}

static nb_card_code *find_code(nb_card_image *m, const char *name)
{
    nb_card_code *k = m ? m->codes : NULL;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    if (k) k->references++;
    return k;
}

static nb_card_code *add_code(nb_card *c, nb_card_image *m, nb_disk_key key,
                              const nb_card_source *s)
{
    bool own = !m;
    if (own && !(m = add_image(c, key, s->text))) return NULL;
    nb_card_code *k = nb_card_code_new(m, s->name);
    if (!k && own) {
        gathered.n--;
        nb_card_image_free(m);
    }
    return k;
}

/* A reference for who asks and one that is held. */
static nb_card_code *ask(nb_card *c, const nb_card_source *s)
{
    nb_disk_key key = key_of(c, s->text);
    if (!nb_grow(&gathered.held, &gathered.held_room, gathered.nheld + 1,
                 sizeof(nb_card_code *)))
        return NULL;
    pthread_mutex_lock(&table.lock);
    nb_card_image *m = find_image(c, key);
    nb_card_code *k = find_code(m, s->name);
    if (m) table.hits++;
    if (!k) k = add_code(c, m, key, s);
    if (k) {
        k->references++;
        gathered.held[gathered.nheld++] = k;
    }
    pthread_mutex_unlock(&table.lock);
    return k;
}

nb_card_code *nb_card_code_keep(nb_card_code *k)
{
    pthread_mutex_lock(&table.lock);
    if (k) k->references++;
    pthread_mutex_unlock(&table.lock);
    return k;
}

/* Takes an image out of the table, if it is there. */
static void unlist(const nb_card_image *m)
{
    nb_card_image **at = bucket_of(m->key);
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at) *at = m->next;
}

void nb_card_code_drop(nb_card_code *k)
{
    if (!k) return;
    nb_card_image *empty = NULL;
    pthread_mutex_lock(&table.lock);
    bool last = --k->references == 0;
    if (last) {
        nb_card_code **at = &k->image->codes;
        while (*at != k)
            at = &(*at)->next;
        *at = k->next;
        if (!k->image->codes) unlist(empty = k->image);
    }
    pthread_mutex_unlock(&table.lock);
    if (last) nb_free(k);
    nb_card_image_free(empty);
}

void nb_card_builds_open(void)
{
    gathered.depth++;
}

bool nb_card_builds_close(bool wanted)
{
    if (--gathered.depth > 0) return wanted;
    bool ok = wanted && build_gathered();
    gathered.n = 0; /* those that are not wanted go with their kernels */
    for (int i = 0; i < gathered.nheld; i++)
        nb_card_code_drop(gathered.held[i]);
    nb_free(gathered.image), nb_free(gathered.held);
    gathered.image = NULL;
    gathered.held = NULL;
    gathered.room = gathered.nheld = gathered.held_room = 0;
    return ok;
}

bool nb_card_build(nb_card *c, int n, const nb_card_source *s,
                   nb_card_code **code)
{
    bool ok = true;
    for (int i = 0; i < n; i++)
        code[i] = NULL;
    if (!nb_card_enter(c)) return false;
    if (!nb_nvrtc_version())
        return nb_fail(NB_ERUNTIME, "compile: %s", nb_nvrtc_trouble());
    nb_card_builds_open();
    for (int i = 0; i < n && ok; i++)
        ok = (code[i] = ask(c, &s[i]));
    ok = nb_card_builds_close(ok);
    for (int i = 0; i < n && !ok; i++) {
        nb_card_code_drop(code[i]);
        code[i] = NULL;
    }
    return ok;
}

nb_card_build_stats nb_card_build_stats_get(void)
{
    return (nb_card_build_stats){table.hits, table.disk_hits, table.misses,
                                 (double)table.compile_ns / 1e6};
}
