/* code.c - loading code on a card. */
#include "backend/cuda/code.h"

#include "base/memory.h"

#include <string.h>

static bool load(nb_card_code *k, const nb_object *o, const char *name)
{
    const nb_cuda *api = k->card->api;
    int shared = 0;
    if (!nb_card_check(k->card, api->ModuleLoadData(&k->module, o->data),
                       "code cannot be loaded"))
        return false;
    if (!nb_card_check(k->card,
                       api->ModuleGetFunction(&k->function, k->module, name),
                       name))
        return false;
    if (!nb_card_check(k->card,
                       api->FuncGetAttribute(
                           &k->registers, NB_CUDA_FUNC_REGISTERS, k->function),
                       name) ||
        !nb_card_check(
            k->card,
            api->FuncGetAttribute(&shared, NB_CUDA_FUNC_SHARED, k->function),
            name))
        return false;
    k->shared = (size_t)shared;
    return true;
}

nb_card_code *nb_card_code_load(nb_card *c, const nb_object *o,
                                const char *name)
{
    if (!nb_card_enter(c)) return NULL;
    nb_card_code *k = nb_alloc_zero(sizeof *k);
    if (!k) return NULL;
    k->card = c;
    k->references = 1;
    if (load(k, o, name)) return k;
    nb_card_code_unload(k);
    return NULL;
}

/* The stream may still be about to run it. */
void nb_card_code_unload(nb_card_code *k)
{
    const nb_cuda *api = k->card->api;
    if (k->module && nb_card_reenter(k->card)) {
        api->StreamSynchronize(k->card->stream);
        api->ModuleUnload(k->module);
    }
    nb_free(k);
}

int nb_card_code_registers(const nb_card_code *k)
{
    return k->registers;
}
