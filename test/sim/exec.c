/* exec.c - graphs that run: a copy of the nodes and an order that keeps to
 * their edges and else turns them round, so that a missing edge shows. */
#include "graph.h"
#include <stdlib.h>
#include <string.h>

typedef struct step {
    const sim_node *node; /* of the graph, as a name */
    sim_work work;
    bool off;
    struct sim_exec **bodies; /* of a conditional node */
} step;

typedef struct sim_exec {
    int refs;
    sim_card *card;
    step *steps; /* in the order of the graph's nodes */
    int *order;
    int count;
    sim_graph *graph; /* kept: its nodes name the steps */
} sim_exec;

void sim_exec_keep(sim_exec *e)
{
    e->refs++;
}

void sim_exec_drop(sim_exec *e)
{
    if (!e || --e->refs) return;
    for (int i = 0; i < e->count; i++) {
        step *s = &e->steps[i];
        unsigned n = s->bodies ? s->work.branch->count : 0;
        for (unsigned k = 0; k < n; k++)
            sim_exec_drop(s->bodies[k]);
        free(s->bodies);
        sim_work_free(&s->work);
    }
    free(e->steps);
    free(e->order);
    sim_graph_drop(e->graph);
    free(e);
}

/* Kahn's order; of what could run next, what came last. */
static bool arrange(sim_exec *e, const sim_graph *g)
{
    int n = g->count, found = 0, edges = 0, waiting = 0;
    for (int i = 0; i < n; i++)
        edges += g->nodes[i]->after_count;
    int *room = calloc((size_t)(3 * n + edges + 2), sizeof *room);
    if (!room) return false;
    int *missing = room, *first = missing + n, *next = first + n + 1;
    int *ready = next + edges;
    for (int i = 0; i < n; i++) {
        missing[i] = g->nodes[i]->after_count;
        for (int k = 0; k < missing[i]; k++)
            first[g->nodes[i]->after[k]->index + 1]++;
    }
    for (int i = 0; i < n; i++)
        first[i + 1] += first[i];
    for (int i = n - 1; i >= 0; i--)
        for (int k = 0; k < missing[i]; k++)
            next[--first[g->nodes[i]->after[k]->index + 1]] = i;
    for (int i = 0; i < n; i++)
        if (!missing[i]) ready[waiting++] = i;
    while (waiting) {
        int i = ready[--waiting];
        int end = i + 2 <= n ? first[i + 2] : edges;
        e->order[found++] = i;
        for (int k = first[i + 1]; k < end; k++)
            if (!--missing[next[k]]) ready[waiting++] = next[k];
    }
    free(room);
    return found == n;
}

static sim_exec *make(sim_graph *g);

static bool bodies(step *s, const sim_branch *b)
{
    s->bodies = calloc(b->count, sizeof *s->bodies);
    bool good = s->bodies != NULL;
    for (unsigned i = 0; good && i < b->count; i++) {
        s->bodies[i] = make(b->bodies[i]);
        good = s->bodies[i] != NULL;
    }
    return good;
}

static sim_exec *make(sim_graph *g)
{
    size_t n = (size_t)g->count;
    sim_exec *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->refs = 1;
    e->card = g->card;
    e->graph = g;
    g->refs++;
    e->steps = calloc(n + 1, sizeof *e->steps);
    e->order = calloc(n + 1, sizeof *e->order);
    bool good = e->steps && e->order;
    for (size_t i = 0; good && i < n; i++) {
        step *s = &e->steps[i];
        s->node = g->nodes[i];
        good = sim_work_copy(&s->work, &g->nodes[i]->work);
        if (good) e->count++;
        if (good && s->work.kind == SIM_BRANCH)
            good = bodies(s, s->work.branch);
    }
    if (good && arrange(e, g)) return e;
    sim_exec_drop(e);
    return NULL;
}

static CUresult run_steps(sim_card *c, sim_exec *e);

static CUresult run_branch(sim_card *c, const step *s)
{
    const sim_branch *b = s->work.branch;
    const sim_condition *v = b->condition;
    CUresult code = CUDA_SUCCESS;
    if (b->type == 1) {
        while (!code && v->value)
            code = run_steps(c, s->bodies[0]);
        return code;
    }
    unsigned which = b->type ? v->value : !v->value;
    return which < b->count ? run_steps(c, s->bodies[which]) : code;
}

static CUresult run_steps(sim_card *c, sim_exec *e)
{
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < e->count && !code; i++) {
        step *s = &e->steps[e->order[i]];
        if (s->off) continue;
        code = s->bodies ? run_branch(c, s) : sim_do(c, &s->work);
    }
    return code;
}

CUresult sim_exec_run(sim_card *c, sim_exec *e)
{
    for (sim_condition *v = e->graph->conditions; v; v = v->next)
        if (v->assigned) v->value = v->first;
    return run_steps(c, e);
}

void sim_condition_set(unsigned long long handle, unsigned value)
{
    ((sim_condition *)(uintptr_t)handle)->value = value;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                     unsigned long long flags)
{
    SIM_CARD_TURN;
    (void)flags;
    if (!exec || !graph) return CUDA_ERROR_INVALID_VALUE;
    *exec = make(graph);
    return *exec ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
    SIM_CARD_TURN;
    if (!exec || !graph || !p) return CUDA_ERROR_INVALID_VALUE;
    *exec = make(graph);
    p->node = NULL;
    p->result = *exec ? 0 : 1;
    return *exec ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_TURN;
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    sim_exec_drop(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    SIM_CARD_TURN;
    (void)stream;
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    SIM_CARD_TURN;
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    sim_exec_keep(exec);
    return sim_put(card, stream, (sim_work){.kind = SIM_GRAPH, .exec = exec});
}

/* A step to change.  Launches that have begun keep what they had: they run. */
static step *change(sim_card *c, sim_exec *e, CUgraphNode node)
{
    if (!e) return NULL;
    if (e->refs > 1) sim_finish(c);
    for (int i = 0; i < e->count; i++)
        if (e->steps[i].node == node) return &e->steps[i];
    return NULL;
}

static CUresult replace(sim_card *c, sim_exec *e, CUgraphNode node,
                        CUresult code, sim_work w)
{
    if (code) return code;
    step *s = change(c, e, node);
    if (!s || s->work.kind != w.kind) {
        sim_work_free(&w);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_work_free(&s->work);
    s->work = w;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *p)
{
    SIM_CARD_TURN;
    sim_work w;
    CUresult code = sim_work_kernel(&w, card, p);
    return replace(card, exec, node, code, w);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *p,
                                        CUcontext context)
{
    SIM_CARD_TURN;
    sim_work w;
    (void)context;
    CUresult code = sim_work_copied(&w, p);
    return replace(card, exec, node, code, w);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *p,
                                        CUcontext context)
{
    SIM_CARD_TURN;
    sim_work w;
    (void)context;
    CUresult code = sim_work_set(&w, p);
    return replace(card, exec, node, code, w);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned on)
{
    SIM_CARD_TURN;
    step *s = change(card, exec, node);
    if (!s || s->work.kind > SIM_FILL) return CUDA_ERROR_INVALID_VALUE;
    s->off = !on;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *on)
{
    SIM_CARD_TURN;
    step *s = change(card, exec, node);
    if (!s || !on) return CUDA_ERROR_INVALID_VALUE;
    *on = !s->off;
    return CUDA_SUCCESS;
}

static bool same_edges(const sim_node *a, const sim_node *b)
{
    if (a->after_count != b->after_count) return false;
    for (int i = 0; i < a->after_count; i++)
        if (a->after[i]->index != b->after[i]->index) return false;
    return true;
}

/* 0, or CUgraphExecUpdateResult: topology, type or function changed. */
static int differs(const sim_exec *e, const sim_graph *g)
{
    enum { TOPOLOGY = 2, TYPE = 3 };
    if (e->count != g->count) return TOPOLOGY;
    for (int i = 0; i < e->count; i++) {
        if (e->steps[i].work.kind != g->nodes[i]->work.kind) return TYPE;
        if (!same_edges(e->steps[i].node, g->nodes[i])) return TOPOLOGY;
    }
    return 0;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *info)
{
    SIM_CARD_TURN;
    if (!exec || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = differs(exec, graph)};
    if (info->result) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (exec->refs > 1) sim_finish(card);
    for (int i = 0; i < exec->count; i++) {
        sim_work w;
        if (!sim_work_copy(&w, &graph->nodes[i]->work))
            return CUDA_ERROR_OUT_OF_MEMORY;
        sim_work_free(&exec->steps[i].work);
        exec->steps[i].work = w;
    }
    return CUDA_SUCCESS;
}
