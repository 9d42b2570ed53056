/* code.c - loading code on a card. */
#include "backend/cuda/code.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Names of those that may come together are told apart by keys. */
void nb_card_image_calls(const nb_card_image *m, const char *name,
                         char to[NB_CARD_NAME])
{
    int n = snprintf(to, NB_CARD_NAME, "%s", name);
    if (m->joins && n < NB_CARD_NAME)
        snprintf(to + n, NB_CARD_NAME - (size_t)n, "_%016llx",
                 (unsigned long long)m->key.part[0]);
}

static bool find_function(nb_card_code *k)
{
    nb_card *c = k->image->card;
    const nb_cuda *api = c->api;
    char called[NB_CARD_NAME];
    void *f = NULL;
    int shared = 0;
    nb_card_image_calls(k->image, k->name, called);
    int found = api->ModuleGetFunction(&f, k->image->module, called);
    if (found == NB_CUDA_NOT_FOUND)
        return nb_fail(NB_EVALUE, "there is no kernel of the name %s", k->name);
    if (!nb_card_check(c, found, k->name) ||
        !nb_card_check(
            c, api->FuncGetAttribute(&k->registers, NB_CUDA_FUNC_REGISTERS, f),
            k->name) ||
        !nb_card_check(
            c, api->FuncGetAttribute(&shared, NB_CUDA_FUNC_SHARED, f), k->name))
        return false;
    k->shared = (size_t)shared;
    k->function = f;
    return true;
}

/* The stream may still be about to run it. */
static void unload(nb_card_image *m)
{
    const nb_cuda *api = m->card->api;
    if (m->module && nb_card_reenter(m->card)) {
        api->StreamSynchronize(m->card->stream);
        api->ModuleUnload(m->module);
    }
    m->module = NULL;
    for (nb_card_code *k = m->codes; k; k = k->next)
        k->function = NULL;
}

nb_card_image *nb_card_image_new(nb_card *c, nb_disk_key key, const char *text)
{
    nb_card_image *m = nb_alloc_zero(sizeof *m);
    if (!m) return NULL;
    m->card = c;
    m->key = key;
    m->joins = !strncmp(text, NB_CARD_JOINS, strlen(NB_CARD_JOINS));
    if ((m->text = nb_copy_text(text))) return m;
    nb_free(m);
    return NULL;
}

void nb_card_image_free(nb_card_image *m)
{
    if (!m) return;
    unload(m);
    nb_free(m->text);
    nb_free(m);
}

bool nb_card_image_load(nb_card_image *m, const nb_object *o)
{
    if (!nb_card_enter(m->card)) return false;
    bool ok = nb_card_check(m->card,
                            m->card->api->ModuleLoadData(&m->module, o->data),
                            "code cannot be loaded");
    if (!ok) m->module = NULL;
    for (nb_card_code *k = m->codes; ok && k; k = k->next)
        ok = find_function(k);
    if (!ok) unload(m);
    return ok;
}

nb_card_code *nb_card_code_new(nb_card_image *m, const char *name)
{
    size_t n = strlen(name) + 1;
    nb_card_code *k = nb_alloc_zero(sizeof *k + n);
    if (!k) return NULL;
    memcpy(k->name, name, n);
    k->image = m;
    k->references = 1;
    if (m->module && !find_function(k)) return nb_free(k), NULL;
    k->next = m->codes;
    m->codes = k;
    return k;
}

void *nb_card_code_other(const nb_card_code *k, const char *name)
{
    void *function = NULL;
    const nb_card_image *m = k->image;
    if (!nb_card_reenter(m->card)) return NULL;
    int found = m->card->api->ModuleGetFunction(&function, m->module, name);
    return found == 0 ? function : NULL;
}

int nb_card_code_registers(const nb_card_code *k)
{
    return nb_card_code_ready(k) ? k->registers : 0;
}
