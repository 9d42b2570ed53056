/* run.c - running plans. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "backend/cuda/parts.h"

static int fill(void *pack, const nb_dnn_plan *p, void *const *at,
                void *workspace)
{
    int64_t id[NB_DNN_PLACES];
    void *data[NB_DNN_PLACES];
    for (int i = 0; i < p->nplaces; i++) {
        id[i] = p->place[i].id;
        data[i] = p->place[i].fixed ? (void *)&p->place[i].value : *at++;
    }
    int status =
        nb_dnn.BackendSetAttribute(pack, NB_DNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                   NB_DNN_TYPE_INT64, p->nplaces, id);
    if (!status)
        status = nb_dnn.BackendSetAttribute(
            pack, NB_DNN_ATTR_VARIANT_PACK_DATA_POINTERS, NB_DNN_TYPE_VOID_PTR,
            p->nplaces, data);
    if (!status)
        status =
            nb_dnn.BackendSetAttribute(pack, NB_DNN_ATTR_VARIANT_PACK_WORKSPACE,
                                       NB_DNN_TYPE_VOID_PTR, 1, &workspace);
    return status ? status : nb_dnn.BackendFinalize(pack);
}

static int execute(nb_dnn_plan *p, void *pack)
{
    void *handle = nb_dnn_handle(p->card, NB_DNN_NOW);
    if (!handle) return NB_DNN_STATUS_NOT_INITIALIZED;
    nb_dnn_lock();
    int status = nb_dnn.SetStream(handle, nb_card_stream(p->card));
    if (!status) status = nb_dnn.BackendExecute(handle, p->plan, pack);
    nb_dnn_unlock();
    return status;
}

bool nb_dnn_plan_run(nb_dnn_plan *p, void *const *at, char *workspace,
                     const char *what)
{
    void *pack = NULL;
    if (!nb_card_enter(p->card)) return false;
    workspace =
        p->workspace
            ? workspace + (NB_DNN_ALIGN - (uintptr_t)workspace % NB_DNN_ALIGN) %
                              NB_DNN_ALIGN
            : NULL;
    int status = nb_dnn.BackendCreateDescriptor(
        NB_DNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (!status) status = fill(pack, p, at, workspace);
    if (!status) status = execute(p, pack);
    if (pack) nb_dnn.BackendDestroyDescriptor(pack);
    nb_card_launched(p->card, what);
    if (status)
        return nb_fail(NB_ERUNTIME, "cuDNN: %s failed: %s", what,
                       nb_dnn.GetErrorString(status));
    return !nb_card_waits() || nb_card_sync(p->card);
}
