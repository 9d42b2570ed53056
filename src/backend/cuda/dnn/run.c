/* run.c - running plans, and trying which is fastest. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "backend/cuda/memory.h"
#include "backend/cuda/parts.h"

enum { TIMES = 4 };

/* What is tried instead of the first has to be so much faster. */
static const float gain = 0.98f;

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

/* Trying */

/* Memory of the size, for every tensor that is in memory. */
typedef struct trial {
    nb_card *card;
    nb_dnn_plan plan;
    void *at[NB_DNN_PLACES], *from, *to;
    size_t room[NB_DNN_PLACES], workspace_room;
    char *workspace;
    int n;
} trial;

static bool make_room(trial *t, int n, const nb_dnn_candidate *list)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (list[i].workspace > most) most = list[i].workspace;
    for (int i = 0; i < t->plan.nplaces; i++) {
        const nb_dnn_place *p = &t->plan.place[i];
        if (p->fixed) continue;
        void *at = nb_card_alloc(t->card, p->bytes, &t->room[t->n]);
        t->at[t->n++] = at;
        if (!at || !nb_card_zero(t->card, at, p->bytes)) return false;
    }
    t->workspace =
        nb_card_alloc(t->card, (size_t)most + NB_DNN_ALIGN, &t->workspace_room);
    return t->workspace;
}

/* Milliseconds of a few, or a negative number if it does not run. */
static float time_of(trial *t, const nb_dnn_candidate *c)
{
    const nb_cuda *cu = t->card->api;
    float ms = -1;
    t->plan.plan = c->plan;
    t->plan.workspace = c->workspace;
    bool ok = nb_dnn_plan_run(&t->plan, t->at, t->workspace, "trying a plan") &&
              !cu->EventRecord(t->from, t->card->stream);
    for (int i = 0; ok && i < TIMES; i++)
        ok = nb_dnn_plan_run(&t->plan, t->at, t->workspace, "trying a plan");
    ok = ok && !cu->EventRecord(t->to, t->card->stream) &&
         !cu->EventSynchronize(t->to) &&
         !cu->EventElapsedTime(&ms, t->from, t->to);
    if (!ok) nb_error_clear();
    return ok ? ms : -1;
}

static int fastest(trial *t, int n, const nb_dnn_candidate *list)
{
    const nb_cuda *cu = t->card->api;
    int best = 0;
    float least = -1;
    bool ok = nb_card_enter(t->card) && !cu->EventCreate(&t->from, 0) &&
              !cu->EventCreate(&t->to, 0) && make_room(t, n, list);
    for (int i = 0; ok && i < n; i++) {
        float ms = time_of(t, &list[i]);
        if (ms < 0 || (least >= 0 && ms >= least * gain)) continue;
        least = ms;
        best = i;
    }
    if (!ok) nb_error_clear();
    return best;
}

int nb_dnn_fastest(const nb_dnn_graph *g, int n, const nb_dnn_candidate *list)
{
    trial t = {
        .card = g->card,
        .plan = {.card = g->card, .place = g->place, .nplaces = g->nplaces}};
    nb_card_time_open(t.card);
    int best = fastest(&t, n, list);
    nb_card_time_close(t.card);
    const nb_cuda *cu = t.card->api;
    for (int i = 0; i < t.n; i++)
        nb_card_free(t.card, t.at[i], t.room[i]);
    nb_card_free(t.card, t.workspace, t.workspace_room);
    if (t.from) cu->EventDestroy(t.from);
    if (t.to) cu->EventDestroy(t.to);
    return best;
}
