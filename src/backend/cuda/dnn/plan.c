/* plan.c - how the library runs a graph: the first of what its heuristics
 * propose that it can make a plan of, and that is as wished. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "backend/cuda/parts.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { PROPOSALS = 32, PLACES = 24, NOTES = 16, ALIGN = 256 };

/* A plan keeps all descriptors that it was made of. */
struct nb_dnn_plan {
    nb_dnn_plan *next; /* of those in use */
    int users;
    nb_card *card;
    void *handle, *plan;
    nb_dnn_list all;
    nb_dnn_place *place;
    int nplaces;
    int64_t workspace;
    nb_text key;
};

static nb_dnn_plan *plans;

/* Proposals */

static void *describe_graph(nb_dnn_graph *g)
{
    return nb_dnn_describe(
        g, NB_DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){{NB_DNN_ATTR_OPERATIONGRAPH_HANDLE,
                              NB_DNN_TYPE_HANDLE, 1, &g->handle},
                             {NB_DNN_ATTR_OPERATIONGRAPH_OPS,
                              NB_DNN_TYPE_BACKEND_DESCRIPTOR, g->op.n,
                              g->op.at}});
}

/* What the heuristics of a mode propose, best first: their number. */
static int propose(nb_dnn_graph *g, void *graph, int mode, void **to)
{
    int64_t n = 0;
    void *heuristics = nb_dnn_describe(
        g, NB_DNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){
            {NB_DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
             NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
            {NB_DNN_ATTR_ENGINEHEUR_MODE, NB_DNN_TYPE_HEUR_MODE, 1, &mode}});
    if (!heuristics) return 0;
    for (int i = 0; i < PROPOSALS; i++) {
        to[i] = nb_dnn_new(&g->all, NB_DNN_BACKEND_ENGINECFG_DESCRIPTOR,
                           &g->broken);
        if (!to[i]) return nb_dnn_check(g, !g->broken, "proposals"), 0;
    }
    int status = nb_dnn.BackendGetAttribute(
        heuristics, NB_DNN_ATTR_ENGINEHEUR_RESULTS,
        NB_DNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS, &n, to);
    return nb_dnn_check(g, status, "proposals")
               ? (int)(n < PROPOSALS ? n : PROPOSALS)
               : 0;
}

/* Whether an engine says that it has a property. */
static bool has_note(nb_dnn_graph *g, void *config, int which)
{
    int note[NOTES];
    int64_t n = 0;
    bool found = false;
    void *engine =
        nb_dnn_new(&g->all, NB_DNN_BACKEND_ENGINE_DESCRIPTOR, &g->broken);
    if (!engine ||
        nb_dnn.BackendGetAttribute(config, NB_DNN_ATTR_ENGINECFG_ENGINE,
                                   NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                   &engine) ||
        nb_dnn.BackendGetAttribute(engine, NB_DNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                   NB_DNN_TYPE_NUMERICAL_NOTE, NOTES, &n, note))
        return true;
    for (int i = 0; i < n && i < NOTES; i++)
        found = found || note[i] == which;
    return found;
}

/* Plans */

/* Of a proposal, as wished; NULL if there is none, and whatever was wrong with
 * it is in the way of the next no more. */
static void *plan_of(nb_dnn_graph *g, void *config, const nb_dnn_wish *w,
                     int64_t *workspace)
{
    int64_t n = 0;
    if (!w->any_order &&
        has_note(g, config, NB_DNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        return NULL;
    void *plan = nb_dnn_describe(
        g, NB_DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){{NB_DNN_ATTR_EXECUTION_PLAN_HANDLE,
                              NB_DNN_TYPE_HANDLE, 1, &g->handle},
                             {NB_DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                              NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &config}});
    g->refused = false;
    if (!plan || nb_dnn.BackendGetAttribute(
                     plan, NB_DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                     NB_DNN_TYPE_INT64, 1, &n, workspace))
        return NULL;
    return w->workspace && *workspace > (int64_t)w->workspace ? NULL : plan;
}

static void *choose(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w,
                    int64_t *workspace)
{
    static const int modes[] = {NB_DNN_HEUR_MODE_A, NB_DNN_HEUR_MODE_FALLBACK};
    void *config[PROPOSALS];
    int skip = w->skip;
    for (int m = 0; m < 2 && !g->broken; m++) {
        g->refused = false;
        int n = propose(g, graph, modes[m], config);
        for (int i = 0; i < n && !g->broken; i++) {
            if (skip-- > 0) continue;
            void *plan = plan_of(g, config[i], w, workspace);
            if (plan) return plan;
        }
    }
    g->refused = true;
    return NULL;
}

static void destroy(nb_dnn_plan *p)
{
    nb_card_reenter(p->card);
    nb_dnn_list_free(&p->all);
    nb_free(p->place);
    nb_text_free(&p->key);
    nb_free(p);
}

/* Takes over what the graph is made of. */
static nb_dnn_plan *make(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w)
{
    int64_t workspace = 0;
    nb_text key = g->key;
    g->key = (nb_text){0};
    void *plan = choose(g, graph, w, &workspace);
    nb_text_free(&g->key);
    g->key = key;
    nb_dnn_plan *p = plan ? nb_alloc_zero(sizeof *p) : NULL;
    if (plan && !p) g->broken = true;
    if (!p) return NULL;
    *p = (nb_dnn_plan){.card = g->card,
                       .handle = g->handle,
                       .plan = plan,
                       .all = g->all,
                       .place = g->place,
                       .nplaces = g->nplaces,
                       .workspace = workspace,
                       .key = g->key};
    g->all = (nb_dnn_list){0};
    g->place = NULL;
    g->key = (nb_text){0};
    return p;
}

static nb_dnn_plan *find(const nb_text *key)
{
    nb_dnn_plan *p = plans;
    while (p && (p->key.n != key->n ||
                 memcmp(p->key.data, key->data, (size_t)key->n)))
        p = p->next;
    return p;
}

/* One that came in first is taken, and what was made for nothing is undone. */
static nb_dnn_plan *share(nb_dnn_plan *p, const nb_text *key)
{
    nb_dnn_lock();
    nb_dnn_plan *first = find(key);
    if (!first && p) {
        p->next = plans;
        plans = first = p;
    }
    if (first) first->users++;
    nb_dnn_unlock();
    if (p && first != p) destroy(p);
    return first;
}

bool nb_dnn_plan_find(nb_dnn_graph *g, const nb_dnn_wish *w, nb_dnn_plan **plan)
{
    *plan = NULL;
    if (g->nplaces > PLACES)
        return nb_fail(NB_EVALUE, "cuDNN: a graph of %d tensors in memory",
                       g->nplaces);
    int64_t wish[] = {w->any_order, w->skip, (int64_t)w->workspace};
    if (!nb_text_put(&g->key, (const char *)wish, sizeof wish))
        g->broken = true;
    void *graph = describe_graph(g);
    if (!graph || g->broken) return !g->broken;
    if ((*plan = share(NULL, &g->key))) return true;
    nb_dnn_plan *made = make(g, graph, w);
    if (made) *plan = share(made, &made->key);
    return !g->broken;
}

size_t nb_dnn_plan_workspace(const nb_dnn_plan *p)
{
    return p->workspace ? (size_t)p->workspace + ALIGN : 0;
}

void nb_dnn_plan_drop(nb_dnn_plan *p)
{
    if (!p) return;
    nb_dnn_lock();
    bool last = --p->users == 0;
    nb_dnn_plan **at = &plans;
    while (last && *at != p)
        at = &(*at)->next;
    if (last) *at = p->next;
    nb_dnn_unlock();
    if (last) destroy(p);
}

/* Running */

static int fill(void *pack, const nb_dnn_plan *p, void *const *at,
                void *workspace)
{
    int64_t id[PLACES];
    void *data[PLACES];
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
    nb_dnn_lock();
    int status = nb_dnn.SetStream(p->handle, nb_card_stream(p->card));
    if (!status) status = nb_dnn.BackendExecute(p->handle, p->plan, pack);
    nb_dnn_unlock();
    return status;
}

bool nb_dnn_plan_run(nb_dnn_plan *p, void *const *at, char *workspace,
                     const char *what)
{
    void *pack = NULL;
    if (!nb_card_enter(p->card)) return false;
    workspace = p->workspace
                    ? workspace + (ALIGN - (uintptr_t)workspace % ALIGN) % ALIGN
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
