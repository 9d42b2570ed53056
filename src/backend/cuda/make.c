/* make.c - from texts to code on a card.
 *
 * Before a text NVRTC reads declarations of its own, one thread at a time; for
 * most kernels that is half of its work.  Texts that allow it are therefore
 * compiled several at once, each in a namespace: few enough to share them out
 * to all threads, and few enough that what changes in a program later does not
 * take all others along.  On disk the code is one entry then, and each text has
 * an entry that names it. */
#include "backend/cuda/make.h"

#include "backend/cuda/nvrtc.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOGETHER = 8 };

static struct {
    atomic_int_fast64_t read, compiled, ns;
} made;

nb_card_made nb_card_made_get(void)
{
    return (nb_card_made){made.read, made.compiled, made.ns};
}

nb_disk_key nb_card_image_key(const nb_card *c, const char *text)
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

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Texts that are compiled as one; the disk's key of their code. */
typedef struct group {
    nb_card_image **image;
    int n;
    nb_disk_key key;
} group;

typedef struct work {
    nb_card_image **image;
    atomic_bool failed; /* reading did, and not for want of an entry */
    group *group;
    int n;
    void (*beside)(void *);
    void *ctx;
} work;

/* Disk */

/* An entry of the size of a key names another. */
static bool read_code(nb_disk_key key, nb_object *o)
{
    if (!nb_disk_read(key, o)) return false;
    if (o->n != sizeof key) return true;
    memcpy(&key, o->data, sizeof key);
    nb_object_free(o);
    return nb_disk_read(key, o);
}

/* What the driver will not load, though it is undamaged, was made for another
 * one: it is compiled again. */
static void from_disk(void *ctx, int64_t i)
{
    work *w = ctx;
    nb_card_image *m = w->image[i];
    nb_object o;
    if (!read_code(m->key, &o)) w->failed = true;
    if (!o.data) return;
    bool ok = nb_card_image_load(m, &o);
    nb_object_free(&o);
    if (ok)
        made.read++;
    else if (nb_error_code() == NB_EMEMORY || !nb_card_ok(m->card))
        w->failed = true;
    else
        nb_error_clear();
}

static void to_disk(const group *g, const nb_object *o)
{
    nb_disk_key key = g->key;
    nb_object name = {&key, sizeof key, o->version};
    nb_disk_write(key, o);
    for (int i = 0; i < g->n && g->n > 1; i++)
        nb_disk_write(g->image[i]->key, &name);
}

/* Compiling */

static bool is_inside(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The text with another word for one. */
static void print_renamed(nb_text *t, const char *text, const char *word,
                          const char *by)
{
    size_t n = strlen(word);
    const char *from = text;
    for (const char *at = text; (at = strstr(at, word)); at += n) {
        if ((at > text && is_inside(at[-1])) || is_inside(at[n])) continue;
        nb_text_put(t, from, (size_t)(at - from));
        nb_text_put(t, by, strlen(by));
        from = at + n;
    }
    nb_text_put(t, from, strlen(from));
}

static void print_image(nb_text *t, const nb_card_image *m)
{
    char called[NB_CARD_NAME];
    if (!m->joins) {
        nb_text_put(t, m->text, strlen(m->text));
        return;
    }
    nb_card_image_calls(m, m->codes->name, called);
    nb_text_add(t, "namespace in_%s {\n#line 1\n", called);
    print_renamed(t, m->text, m->codes->name, called);
    nb_text_add(t, "}\nusing in_%s::%s;\n", called, called);
}

/* What cannot be loaded is not written. */
static void compile(const group *g)
{
    const nb_card *c = g->image[0]->card;
    nb_object o = {0};
    nb_text t = {0};
    for (int k = 0; k < g->n; k++)
        print_image(&t, g->image[k]);
    int64_t start = now();
    bool ok =
        !t.failed && nb_nvrtc_compile(nb_text_get(&t), c->major, c->minor, &o);
    made.ns += now() - start;
    nb_text_free(&t);
    if (!ok) return;
    for (int k = 0; k < g->n && ok; k++)
        ok = nb_card_image_load(g->image[k], &o);
    if (ok) to_disk(g, &o);
    made.compiled += g->n;
    nb_object_free(&o);
}

static void do_one(void *ctx, int64_t i)
{
    const work *w = ctx;
    if (w->beside && i == 0)
        w->beside(w->ctx);
    else
        compile(&w->group[i - (w->beside ? 1 : 0)]);
}

static int by_length(const void *a, const void *b)
{
    size_t x = strlen((*(nb_card_image *const *)a)->text);
    size_t y = strlen((*(nb_card_image *const *)b)->text);
    return (x < y) - (x > y);
}

static nb_disk_key key_of(const group *g)
{
    nb_disk_key key = g->image[0]->key;
    for (int i = 0; i < 2; i++)
        for (int k = 1; k < g->n; k++)
            key.part[i] = nb_hash(key.part[i], &g->image[k]->key, sizeof key);
    return key;
}

/* Those of image[first .. n) in groups, the largest shared out first. */
static int deal(nb_card_image **image, int n, nb_card_image **room, group *to)
{
    int each = (n + nb_threads() - 1) / nb_threads();
    if (each > TOGETHER) each = TOGETHER;
    int groups = each ? (n + each - 1) / each : 0;
    if (n) qsort(image, (size_t)n, sizeof(nb_card_image *), by_length);
    for (int g = 0; g < groups; g++) {
        to[g] = (group){.image = room};
        for (int i = g; i < n; i += groups)
            to[g].image[to[g].n++] = image[i];
        to[g].key = key_of(&to[g]);
        room += to[g].n;
    }
    return groups;
}

/* Moves those that are alone in their program to the front; how many. */
static int part(nb_card_image **image, int n)
{
    int alone = 0;
    const nb_card *card = NULL; /* of those that join */
    for (int i = 0; i < n; i++) {
        nb_card_image *m = image[i];
        if (m->joins && !card) card = m->card;
        if (m->joins && m->card == card) continue;
        memmove(&image[alone + 1], &image[alone],
                (size_t)(i - alone) * sizeof *image);
        image[alone++] = m;
    }
    return alone;
}

static bool compile_all(nb_card_image **image, int n, work *w)
{
    group *g = nb_alloc((size_t)(n + 1) * sizeof *g);
    nb_card_image **room = nb_alloc((size_t)(n + 1) * sizeof *room);
    bool ok = g && room;
    if (ok) {
        int alone = part(image, n);
        for (int i = 0; i < alone; i++)
            g[i] = (group){&image[i], 1, image[i]->key};
        w->group = g;
        w->n = alone + deal(image + alone, n - alone, room, g + alone);
        nb_parallel(w->n + (w->beside ? 1 : 0), do_one, w);
    }
    nb_free(g), nb_free(room);
    return ok;
}

bool nb_card_images_make(int n, nb_card_image **image, void (*beside)(void *),
                         void *ctx)
{
    int left = 0;
    work w = {.image = image, .beside = beside, .ctx = ctx};
    nb_card_image **rest = nb_alloc((size_t)(n + 1) * sizeof *rest);
    if (!rest) return false;
    if (n) nb_parallel(n, from_disk, &w);
    for (int i = 0; i < n; i++)
        if (!image[i]->module) rest[left++] = image[i];
    bool ok = !w.failed && compile_all(rest, left, &w);
    for (int i = 0; i < n; i++)
        ok = ok && image[i]->module;
    nb_free(rest);
    return ok;
}
