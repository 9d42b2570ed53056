/* kernel_card.c - kernels from CUDA sources.
 *
 * Each file stands by itself, with what it includes.  Of several, those that
 * name the function are looked into first; the first that has it is taken.
 * Texts are told apart by what they say, not by where they are. */
#include "backend/cuda/custom.h"
#include "base/memory.h"
#include "run/kernel_files.h"
#include "run/kernel_source.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct known {
    struct known *next;
    nb_card_text text;
} known;

static struct {
    pthread_mutex_t lock;
    known *first;
} texts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *lasting(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = nb_alloc_forever(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static known *known_new(const nb_card_text *t)
{
    known *k = nb_alloc_forever(sizeof *k);
    if (!k) return NULL;
    k->text = *t;
    k->text.source.name = nb_intern(t->source.name, strlen(t->source.name));
    k->text.file.path = nb_intern(t->file.path, strlen(t->file.path));
    bool ok = k->text.source.name && k->text.file.path &&
              (k->text.source.text = lasting(t->source.text));
    if (!ok) return free(k), NULL;
    return k;
}

static bool same(const nb_card_text *a, const nb_card_text *b)
{
    return !memcmp(a->file.key, b->file.key, sizeof a->file.key) &&
           !strcmp(a->source.name, b->source.name);
}

/* The text, for ever; with the path that it was first found at. */
static const nb_card_text *kept(const nb_card_text *t)
{
    pthread_mutex_lock(&texts.lock);
    known *k = texts.first;
    while (k && !same(&k->text, t))
        k = k->next;
    if (!k && (k = known_new(t))) {
        k->next = texts.first;
        texts.first = k;
    }
    pthread_mutex_unlock(&texts.lock);
    return k ? &k->text : NULL;
}

/* One file: the kernel that it has, NULL with NB_EVALUE if it has none. */
static const nb_card_text *look(const nb_kernel_source *k, nb_card *card,
                                char *path, const char *text)
{
    nb_sources s = {0};
    const char *folder = nb_kernel_headers(k->name);
    if (!folder || !nb_sources_read(&s, k->name, 1, &path) ||
        !nb_kernel_headers_add(k->name, s.hash))
        return NULL;
    nb_card_text t = {.source = {text, k->name},
                      .file = {path, folder, {s.hash[0], s.hash[1]}}};
    const nb_card_text *found = kept(&t);
    return found && nb_card_custom_get(card, found) ? found : NULL;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool names(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = text; (p = strstr(p, name)); p++)
        if ((p == text || !is_word(p[-1])) && !is_word(p[n])) return true;
    return false;
}

/* The files that name it, or those that do not. */
static const nb_card_text *search(const nb_kernel_source *k, nb_card *card,
                                  const nb_sources *s, bool naming)
{
    const nb_card_text *found = NULL;
    for (int i = 0; i < s->n && !found && !nb_failed(); i++) {
        nb_text t = {0};
        if (nb_file_text(s->path[i], k->name, &t) &&
            names(nb_text_get(&t), k->name) == naming)
            found = look(k, card, s->path[i], nb_text_get(&t));
        if (!found && nb_error_code() == NB_EVALUE) nb_error_clear();
        nb_text_free(&t);
    }
    return found;
}

const nb_card_text *nb_kernel_load_there(const nb_kernel_source *k, int device)
{
    nb_sources s = {0};
    nb_card *card = nb_card_at(device - 1);
    const nb_card_text *found = NULL;
    bool ok = card && nb_sources_find(&s, k, device);
    if (ok) found = search(k, card, &s, true);
    if (ok && !found && !nb_failed()) found = search(k, card, &s, false);
    if (ok && !found && !nb_failed())
        nb_fail(NB_EVALUE,
                "%s: there is no function for gpu:%d: %s has no extern \"C\" "
                "__global__ void %s(nb_kernel_args), see NB_KERNEL",
                k->name, device - 1, s.path[0], k->name);
    nb_sources_free(&s);
    return found;
}
