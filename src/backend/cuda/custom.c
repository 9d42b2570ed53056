/* custom.c - loading kernels of users' own. */
#include "backend/cuda/custom.h"

#include "backend/cuda/code.h"
#include "backend/cuda/make.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nvrtc.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>

enum { THREADS = 256 };

static struct {
    pthread_mutex_t lock; /* held while one is made: others wait for it */
    nb_card_custom *first;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What NB_LAUNCH has made of its numbers: a kernel that tells them. */
static bool ask(nb_card_custom *k, void *function, int said[2])
{
    nb_card *c = k->card;
    size_t room;
    void *at = nb_card_alloc(c, 2 * sizeof *said, &room);
    void *args[] = {&at};
    bool ok = at &&
              nb_card_check(c,
                            c->api->LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0,
                                                 c->stream, args, NULL),
                            k->text->source.name) &&
              nb_card_get(c, said, at, 2 * sizeof *said);
    nb_card_free(c, at, room);
    return ok;
}

static bool find_launch(nb_card_custom *k)
{
    nb_text name = {0};
    const char *who = k->text->source.name;
    int said[2] = {THREADS, 0};
    nb_text_add(&name, "%s_launch", who);
    bool named = !name.failed;
    void *function =
        named ? nb_card_code_other(k->code, nb_text_get(&name)) : NULL;
    nb_text_free(&name);
    if (!named) return false;
    if (function && !ask(k, function, said)) return false;
    k->threads = said[0];
    k->shared = (unsigned)said[1];
    bool fits = said[0] > 0 && said[0] <= k->card->threads && said[1] >= 0 &&
                (size_t)said[1] <= k->card->shared_most;
    return fits || nb_fail(NB_ERUNTIME,
                           "%s: a block of %d threads with %d bytes of shared "
                           "memory, where GPU %d has %d and %zu (NB_LAUNCH)",
                           who, said[0], said[1], k->card->id, k->card->threads,
                           k->card->shared_most);
}

/* Code from disk; *there: whether it is loaded.  One entry serves all kernels
 * of a text. */
static bool from_disk(nb_card_image *m, bool *there)
{
    nb_object o;
    if (!nb_disk_read(m->key, &o)) return false;
    if (!o.data) return true;
    *there = nb_card_image_load(m, &o);
    nb_object_free(&o);
    if (*there) return true;
    if (nb_error_code() != NB_ERUNTIME || !nb_card_ok(m->card)) return false;
    nb_error_clear(); /* of another driver: it is compiled again */
    return true;
}

static bool compiled(nb_card_image *m, const nb_card_file *f)
{
    nb_nvrtc_file file = {f->path, f->folder};
    nb_object o;
    if (!nb_nvrtc_compile_file(m->text, &file, m->card->major, m->card->minor,
                               &o))
        return false;
    bool ok = nb_card_image_load(m, &o);
    if (ok) nb_disk_write(m->key, &o);
    nb_object_free(&o);
    return ok;
}

static bool build(nb_card_custom *k)
{
    const nb_card_text *t = k->text;
    bool there = false;
    if (!nb_card_enter(k->card)) return false;
    if (!nb_nvrtc_version())
        return nb_fail(NB_ERUNTIME, "compile: %s", nb_nvrtc_trouble());
    nb_disk_key key = nb_card_image_key(k->card, t->source.text);
    for (int i = 0; i < 2; i++)
        key.part[i] = nb_hash(key.part[i], &t->file.key[i], sizeof key.part[i]);
    nb_card_image *m = nb_card_image_new(k->card, key, t->source.text);
    if (!m) return false;
    if (!(k->code = nb_card_code_new(m, t->source.name)))
        return nb_card_image_free(m), false;
    return from_disk(m, &there) && (there || compiled(m, &t->file));
}

static nb_card_custom *load(nb_card *c, const nb_card_text *t)
{
    nb_card_custom *k = nb_alloc_forever(sizeof *k);
    if (!k) return NULL;
    *k = (nb_card_custom){.card = c, .text = t};
    bool ok = build(k) && find_launch(k) &&
              (k->status = nb_card_word_new(c, t->source.name));
    if (ok) return k;
    nb_card_code_drop(k->code);
    free(k);
    return NULL;
}

const nb_card_custom *nb_card_custom_get(nb_card *c, const nb_card_text *t)
{
    pthread_mutex_lock(&loaded.lock);
    nb_card_custom *k = loaded.first;
    while (k && !(k->card == c && k->text == t))
        k = k->next;
    if (!k && (k = load(c, t))) {
        k->next = loaded.first;
        loaded.first = k;
    }
    pthread_mutex_unlock(&loaded.lock);
    return k;
}
