/* plan.c - how the library runs a graph: the first, or the fastest of the first
 * few, of what its heuristics propose that it can make a plan of, and that is as
 * wished. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { PROPOSALS = 32, NOTES = 16, TRIED = 8 };

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

/* Whether an engine says that it has one of some properties, which are bits. */
static bool has_note(nb_dnn_graph *g, void *config, unsigned which)
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
        found = found || (note[i] >= 0 && note[i] < 32 && which >> note[i] & 1);
    return found;
}

/* Plans */

static bool measure(void *plan, int64_t *workspace)
{
    int64_t n = 0;
    return !nb_dnn.BackendGetAttribute(
        plan, NB_DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, NB_DNN_TYPE_INT64, 1,
        &n, workspace);
}

/* Of a proposal, as wished; NULL if there is none, and whatever was wrong with
 * it is in the way of the next no more. */
static void *plan_of(nb_dnn_graph *g, void *config, const nb_dnn_wish *w,
                     int64_t *workspace)
{
    unsigned bad = 0;
    if (!w->any_order) bad |= 1u << NB_DNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (w->exact)
        bad |= 1u << NB_DNN_NUMERICAL_NOTE_TENSOR_CORE |
               1u << NB_DNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (bad && has_note(g, config, bad)) return NULL;
    void *plan = nb_dnn_describe(
        g, NB_DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 2,
        (nb_dnn_attribute[]){{NB_DNN_ATTR_EXECUTION_PLAN_HANDLE,
                              NB_DNN_TYPE_HANDLE, 1, &g->handle},
                             {NB_DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                              NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &config}});
    g->refused = false;
    bool fits = plan && measure(plan, workspace) &&
                (!w->workspace || *workspace <= (int64_t)w->workspace);
    return fits ? plan : NULL;
}

/* The first few proposals that can be made plans of: their number. */
static int list(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w,
                nb_dnn_candidate *to, int most)
{
    static const int modes[] = {NB_DNN_HEUR_MODE_A, NB_DNN_HEUR_MODE_FALLBACK};
    void *config[PROPOSALS];
    int skip = w->skip, found = 0;
    for (int m = 0; m < 2 && !found && !g->broken; m++) {
        g->refused = false;
        int n = propose(g, graph, modes[m], config);
        for (int i = 0; i < n && found < most && !g->broken; i++) {
            if (skip-- > 0) continue;
            nb_dnn_candidate *c = &to[found];
            c->plan = plan_of(g, config[i], w, &c->workspace);
            if (c->plan) found++;
        }
    }
    g->refused = !found;
    return g->broken ? 0 : found;
}

/* NABLA_TUNE=0: the library's first. */
static void *choose(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w,
                    int64_t *workspace)
{
    nb_dnn_candidate found[TRIED];
    const char *tune = getenv("NABLA_TUNE");
    int most = w->tries < TRIED ? w->tries : TRIED;
    if (most < 1 || (tune && !strcmp(tune, "0"))) most = 1;
    int n = list(g, graph, w, found, most);
    int best = n > 1 ? nb_dnn_fastest(g, w->same, n, found) : 0;
    *workspace = n ? found[best].workspace : 0;
    return n ? found[best].plan : NULL;
}

static void destroy(nb_dnn_plan *p)
{
    nb_card_reenter(p->card);
    nb_dnn_list_free(&p->all);
    nb_free(p->place);
    nb_text_free(&p->key);
    nb_free(p);
}

/* From disk, or chosen now; what is said to the library meanwhile is no part of
 * the key. */
static void *get(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w,
                 int64_t *workspace)
{
    nb_disk_key place = nb_dnn_key(g);
    nb_text key = g->key;
    g->key = (nb_text){0};
    void *plan = nb_dnn_recall(g, place);
    if (!plan || !measure(plan, workspace)) {
        plan = g->broken ? NULL : choose(g, graph, w, workspace);
        if (plan) nb_dnn_keep(plan, place);
    }
    nb_text_free(&g->key);
    g->key = key;
    return plan;
}

/* Takes over what the graph is made of. */
static nb_dnn_plan *make(nb_dnn_graph *g, void *graph, const nb_dnn_wish *w)
{
    int64_t workspace = 0;
    void *plan = get(g, graph, w, &workspace);
    nb_dnn_plan *p = plan ? nb_alloc_zero(sizeof *p) : NULL;
    if (plan && !p) g->broken = true;
    if (!p) return NULL;
    *p = (nb_dnn_plan){.card = g->card,
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
    if (g->nplaces > NB_DNN_PLACES)
        return nb_fail(NB_EVALUE, "cuDNN: a graph of %d tensors in memory",
                       g->nplaces);
    int64_t wish[] = {w->any_order, w->exact, w->skip,
                      w->tries,     w->same,  (int64_t)w->workspace};
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
    return p->workspace ? (size_t)p->workspace + NB_DNN_ALIGN : 0;
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
