/* build.c - the table of kernels in use, and the way from text to kernel.
 *
 * The table keeps no references: code leaves it as its last user drops it.
 * What a thread gathers is its own until it is loaded; then it is listed.  Two
 * threads may so come to the same code at the same time, and both keep theirs. */
#include "backend/cuda/build.h"

#include "backend/cuda/make.h"
#include "backend/cuda/nvrtc.h"
#include "base/memory.h"

#include <string.h>

enum { BUCKETS = 1024 };

static struct {
    pthread_mutex_t lock;
    nb_card_image *bucket[BUCKETS];
    pthread_cond_t settled;
    atomic_int_fast64_t hits;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .settled = PTHREAD_COND_INITIALIZER};

typedef struct chore {
    nb_card_chore *run;
    void *ctx;
} chore;

/* What this thread gathers: texts to be compiled, a reference to each kernel
 * that was asked for, and what is to be done beside. */
static _Thread_local struct {
    int depth;
    nb_card_image **image;
    int n, room;
    nb_card_code **held;
    int nheld, held_room;
    chore *chore;
    int nchores, chore_room;
} gathered;

typedef struct chores {
    const chore *at;
    int n;
    bool ok;
} chores;

static void run_chores(void *ctx)
{
    chores *c = ctx;
    for (int i = 0; i < c->n && c->ok; i++)
        c->ok = c->at[i].run(c->at[i].ctx);
}

static nb_card_image **bucket_of(nb_disk_key key)
{
    return &table.bucket[key.part[0] % BUCKETS];
}

static bool is(const nb_card_image *m, const nb_card *c, nb_disk_key key)
{
    return m->card == c && !memcmp(&m->key, &key, sizeof key);
}

static bool build_gathered(void)
{
    int n = gathered.n;
    chores c = {gathered.chore, gathered.nchores, true};
    gathered.n = gathered.nchores = 0;
    if (!n && !c.n) return true;
    bool ok =
        nb_card_images_make(n, gathered.image, c.n ? run_chores : NULL, &c) &&
        c.ok;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < n; i++) {
        nb_card_image *m = gathered.image[i], **at = bucket_of(m->key);
        nb_free(m->text);
        m->text = NULL;
        m->settled = true;
        if (!m->module) continue;
        m->next = *at;
        *at = m;
    }
    pthread_cond_broadcast(&table.settled);
    pthread_mutex_unlock(&table.lock);
    return ok;
}

/* A program may be another thread's, which gathers more before it builds. */
static void await(const nb_card_image *m)
{
    pthread_mutex_lock(&table.lock);
    while (!m->settled)
        pthread_cond_wait(&table.settled, &table.lock);
    pthread_mutex_unlock(&table.lock);
}

bool nb_card_code_ready(const nb_card_code *k)
{
    if (k->function) return true;
    if (!build_gathered()) return false;
    await(k->image);
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

/* A reference for who asks and one that is held.  Text that found no memory is
 * empty (text.h), which has been said. */
static nb_card_code *ask(nb_card *c, const nb_card_source *s)
{
    if (!*s->text) return NULL;
    nb_disk_key key = nb_card_image_key(c, s->text);
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

nb_card_builds nb_card_builds_open(void)
{
    gathered.depth++;
    return (nb_card_builds){gathered.n, gathered.nchores};
}

/* Lets go of what is held. */
static void forget(void)
{
    for (int i = 0; i < gathered.nheld; i++)
        nb_card_code_drop(gathered.held[i]);
    nb_free(gathered.image), nb_free(gathered.held), nb_free(gathered.chore);
    memset(&gathered, 0, sizeof gathered);
}

/* Those from the first on will not be built. */
static void settle(int first)
{
    pthread_mutex_lock(&table.lock);
    for (int i = first; i < gathered.n; i++)
        gathered.image[i]->settled = true;
    pthread_cond_broadcast(&table.settled);
    pthread_mutex_unlock(&table.lock);
}

/* Images that are not wanted go with their kernels. */
bool nb_card_builds_close(nb_card_builds b, bool wanted)
{
    bool ok = wanted && build_gathered();
    settle(b.images);
    if (gathered.n > b.images) gathered.n = b.images;
    if (gathered.nchores > b.chores) gathered.nchores = b.chores;
    if (--gathered.depth == 0) forget();
    return ok;
}

bool nb_card_builds_beside(nb_card_chore *run, void *ctx)
{
    if (!gathered.depth) return run(ctx);
    if (!nb_grow(&gathered.chore, &gathered.chore_room, gathered.nchores + 1,
                 sizeof(chore)))
        return false;
    gathered.chore[gathered.nchores++] = (chore){run, ctx};
    return true;
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
    bool alone = !gathered.depth;
    nb_card_builds b = {0};
    if (alone) b = nb_card_builds_open();
    for (int i = 0; i < n && ok; i++)
        ok = (code[i] = ask(c, &s[i]));
    if (alone) ok = nb_card_builds_close(b, ok);
    for (int i = 0; i < n && !ok; i++) {
        nb_card_code_drop(code[i]);
        code[i] = NULL;
    }
    return ok;
}

nb_card_build_stats nb_card_build_stats_get(void)
{
    nb_card_made m = nb_card_made_get();
    return (nb_card_build_stats){table.hits, m.read, m.compiled,
                                 (double)m.ns / 1e6};
}
