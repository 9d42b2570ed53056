/* graph.c - graphs and their nodes. */
#include "graph.h"
#include <stdlib.h>
#include <string.h>

static uint64_t ids;

sim_graph *sim_graph_new(sim_card *c)
{
    sim_graph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->refs = 1;
    g->id = ++ids;
    g->card = c;
    return g;
}

static void node_free(sim_node *n)
{
    sim_branch *b = n->work.kind == SIM_BRANCH ? n->work.branch : NULL;
    for (unsigned i = 0; b && i < b->count; i++)
        sim_graph_drop(b->bodies[i]);
    if (b) free(b->bodies);
    free(b);
    sim_work_free(&n->work);
    free(n->after);
    free(n);
}

void sim_graph_drop(sim_graph *g)
{
    if (!g || --g->refs) return;
    for (int i = 0; i < g->count; i++)
        node_free(g->nodes[i]);
    for (sim_condition *c = g->conditions, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(g->nodes);
    free(g);
}

sim_node *sim_node_new(sim_graph *g, sim_node *const *after, size_t count,
                       sim_work w)
{
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good = good && after[i] && after[i]->graph == g;
    if (good && g->count == g->room) {
        int room = g->room ? 2 * g->room : 32;
        sim_node **nodes = realloc(g->nodes, (size_t)room * sizeof *nodes);
        if (nodes) g->nodes = nodes, g->room = room;
        good = nodes != NULL;
    }
    sim_node *n = good ? calloc(1, sizeof *n) : NULL;
    sim_node **list = n ? malloc((count + 1) * sizeof *list) : NULL;
    if (!list) {
        free(n);
        sim_work_free(&w);
        return NULL;
    }
    if (count) memcpy(list, after, count * sizeof *list);
    *n = (sim_node){.graph = g, .index = g->count, .work = w, .after = list};
    n->after_count = (int)count;
    g->nodes[g->count++] = n;
    return n;
}

/* A second owner of the same work. */
bool sim_work_copy(sim_work *to, const sim_work *w)
{
    *to = *w;
    if (w->kind == SIM_RECORD) w->event->refs++;
    if (w->kind == SIM_GRAPH) sim_exec_keep(w->exec);
    if (w->kind != SIM_KERNEL) return true;
    const sim_launch *l = &w->launch;
    sim_card *c = l->function->module->card;
    bool good = !sim_launch_new(&to->launch, c, l->function, l->grid, l->block,
                                l->shared, l->args, NULL);
    to->launch.together = l->together;
    return good;
}

CUresult sim_work_kernel(sim_work *w, sim_card *c,
                         const CUDA_KERNEL_NODE_PARAMS *p)
{
    *w = (sim_work){.kind = SIM_KERNEL};
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    return sim_launch_new(&w->launch, c, p->function, p->grid, p->block,
                          p->shared, p->args, p->extra);
}

CUresult sim_work_copied(sim_work *w, const CUDA_MEMCPY3D *p)
{
    enum { HOST = 1 };
    if (!p || p->depth > 1) return CUDA_ERROR_INVALID_VALUE;
    sim_copy k = {.width = p->width, .rows = p->height ? p->height : 1};
    k.from_pitch = p->from_pitch ? p->from_pitch : p->width;
    k.to_pitch = p->to_pitch ? p->to_pitch : p->width;
    k.from = p->from_kind == HOST ? (uintptr_t)p->from_host : p->from_device;
    k.to = p->to_kind == HOST ? (uintptr_t)p->to_host : p->to_device;
    k.from += p->from_y * k.from_pitch + p->from_x;
    k.to += p->to_y * k.to_pitch + p->to_x;
    *w = (sim_work){.kind = SIM_COPY, .copy = k};
    return CUDA_SUCCESS;
}

CUresult sim_work_set(sim_work *w, const CUDA_MEMSET_NODE_PARAMS *p)
{
    if (!p || (p->size != 1 && p->size != 2 && p->size != 4))
        return CUDA_ERROR_INVALID_VALUE;
    sim_fill f = {.to = p->to, .width = p->width, .rows = p->height};
    f.pitch = p->pitch, f.value = p->value, f.size = p->size;
    *w = (sim_work){.kind = SIM_FILL, .fill = f};
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
    SIM_CARD_TURN;
    if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
    *graph = sim_graph_new(card);
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_TURN;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    sim_graph_drop(graph);
    return CUDA_SUCCESS;
}

/* A list into the caller's array, which may be NULL to ask for the length. */
static CUresult list_out(sim_node *const *from, size_t n, CUgraphNode *to,
                         size_t *count)
{
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; to && i < *count; i++)
        to[i] = i < n ? from[i] : NULL;
    if (!to || *count > n) *count = n;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_TURN;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    return list_out(graph->nodes, (size_t)graph->count, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_TURN;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    sim_node **roots = malloc(((size_t)graph->count + 1) * sizeof *roots);
    size_t n = 0;
    if (!roots) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->after_count) roots[n++] = graph->nodes[i];
    CUresult code = list_out(roots, n, nodes, count);
    free(roots);
    return code;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
    SIM_TURN;
    static const int types[] = {
        [SIM_KERNEL] = SIM_NODE_KERNEL, [SIM_COPY] = SIM_NODE_COPY,
        [SIM_FILL] = SIM_NODE_SET,      [SIM_CALL] = SIM_NODE_HOST,
        [SIM_GRAPH] = SIM_NODE_GRAPH,   [SIM_EMPTY] = SIM_NODE_EMPTY,
        [SIM_RECORD] = SIM_NODE_RECORD, [SIM_FREE] = SIM_NODE_FREE,
        [SIM_WAIT] = SIM_NODE_EMPTY,    [SIM_BRANCH] = SIM_NODE_CONDITIONAL};
    if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
    *type = types[node->work.kind];
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *after,
                                    size_t *count)
{
    SIM_TURN;
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    return list_out(node->after, (size_t)node->after_count, after, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *after,
                                       CUgraphEdgeData *edges, size_t *count)
{
    SIM_TURN;
    if (!node) return CUDA_ERROR_INVALID_VALUE;
    CUresult code =
        list_out(node->after, (size_t)node->after_count, after, count);
    if (!code && edges) memset(edges, 0, *count * sizeof *edges);
    return code;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                    size_t count, CUresult code, sim_work w)
{
    if (code) return code;
    *node = sim_node_new(graph, after, count, w);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                 const CUgraphNode *after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *p)
{
    SIM_CARD_TURN;
    sim_work w;
    if (!node || !graph) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = sim_work_kernel(&w, card, p);
    return add(node, graph, after, count, code, w);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *p, CUcontext context)
{
    SIM_CARD_TURN;
    sim_work w;
    (void)context;
    if (!node || !graph) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = sim_work_copied(&w, p);
    return add(node, graph, after, count, code, w);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *p,
                              CUcontext context)
{
    SIM_CARD_TURN;
    sim_work w;
    (void)context;
    if (!node || !graph) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = sim_work_set(&w, p);
    return add(node, graph, after, count, code, w);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph,
                            const CUgraphNode *after, size_t count,
                            const CUDA_HOST_NODE_PARAMS *p)
{
    SIM_CARD_TURN;
    if (!node || !graph || !p || !p->function) return CUDA_ERROR_INVALID_VALUE;
    sim_work w = {.kind = SIM_CALL, .call = {p->function, p->data}};
    return add(node, graph, after, count, 0, w);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                             const CUgraphNode *after, size_t count)
{
    SIM_CARD_TURN;
    if (!node || !graph) return CUDA_ERROR_INVALID_VALUE;
    return add(node, graph, after, count, 0, (sim_work){.kind = SIM_EMPTY});
}

/* Its bodies are empty graphs, for the caller to fill. */
static CUresult branch(sim_work *w, sim_card *c,
                       CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    bool good = p->handle && p->size && p->type >= 0 && p->type <= 2;
    if (!good || (p->type == 1 && p->size != 1))
        return CUDA_ERROR_INVALID_VALUE;
    sim_branch *b = calloc(1, sizeof *b);
    CUgraph *bodies = calloc(p->size, sizeof *bodies);
    if (!b || !bodies) {
        free(b);
        free(bodies);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *b = (sim_branch){.type = p->type, .count = p->size, .bodies = bodies};
    b->condition = (sim_condition *)(uintptr_t)p->handle;
    for (unsigned i = 0; i < p->size; i++)
        bodies[i] = sim_graph_new(c);
    p->bodies = bodies;
    *w = (sim_work){.kind = SIM_BRANCH, .branch = b};
    return CUDA_SUCCESS;
}

static CUresult any(sim_work *w, sim_card *c, CUgraphNodeParams *p)
{
    *w = (sim_work){.kind = SIM_EMPTY};
    switch (p->type) {
    case SIM_NODE_KERNEL: return sim_work_kernel(w, c, &p->kernel);
    case SIM_NODE_COPY: return sim_work_copied(w, &p->copy.copy);
    case SIM_NODE_SET: return sim_work_set(w, &p->set);
    case SIM_NODE_HOST:
        w->kind = SIM_CALL;
        w->call.function = p->host.function;
        w->call.data = p->host.data;
        return CUDA_SUCCESS;
    case SIM_NODE_EMPTY: return CUDA_SUCCESS;
    case SIM_NODE_CONDITIONAL: return branch(w, c, &p->conditional);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                        const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *p)
{
    SIM_CARD_TURN;
    sim_work w;
    if (!node || !graph || !p) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = any(&w, card, p);
    return add(node, graph, after, count, code, w);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                           const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t count,
                           CUgraphNodeParams *p)
{
    SIM_CARD_TURN;
    sim_work w;
    (void)edges;
    if (!node || !graph || !p) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = any(&w, card, p);
    return add(node, graph, after, count, code, w);
}

CUresult cuGraphConditionalHandleCreate(unsigned long long *handle,
                                        CUgraph graph, CUcontext context,
                                        unsigned first, unsigned flags)
{
    SIM_CARD_TURN;
    (void)context;
    if (!handle || !graph || flags > 1) return CUDA_ERROR_INVALID_VALUE;
    sim_condition *c = calloc(1, sizeof *c);
    if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
    *c = (sim_condition){.first = first, .assigned = flags};
    c->next = graph->conditions;
    graph->conditions = c;
    *handle = (uintptr_t)c;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                       CUDA_KERNEL_NODE_PARAMS *p)
{
    SIM_TURN;
    if (!node || !p || node->work.kind != SIM_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_launch *l = &node->work.launch;
    *p = (CUDA_KERNEL_NODE_PARAMS){
        .function = l->function, .shared = l->shared, .args = l->args};
    memcpy(p->grid, l->grid, sizeof p->grid);
    memcpy(p->block, l->block, sizeof p->block);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS *p)
{
    SIM_CARD_TURN;
    sim_work w;
    if (!node || node->work.kind != SIM_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    CUresult code = sim_work_kernel(&w, card, p);
    if (code) return code;
    sim_work_free(&node->work);
    node->work = w;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p)
{
    SIM_TURN;
    enum { HOST = 1, DEVICE = 2 };
    if (!node || !p || node->work.kind != SIM_COPY)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_copy *k = &node->work.copy;
    *p = (CUDA_MEMCPY3D){.width = k->width, .height = k->rows, .depth = 1};
    p->from_kind = sim_memory_card(k->from) ? DEVICE : HOST;
    p->to_kind = sim_memory_card(k->to) ? DEVICE : HOST;
    p->from_host = (const void *)(uintptr_t)k->from;
    p->to_host = (void *)(uintptr_t)k->to;
    p->from_device = k->from, p->to_device = k->to;
    p->from_pitch = k->from_pitch, p->to_pitch = k->to_pitch;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node,
                                    CUDA_MEMSET_NODE_PARAMS *p)
{
    SIM_TURN;
    if (!node || !p || node->work.kind != SIM_FILL)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_fill *f = &node->work.fill;
    *p = (CUDA_MEMSET_NODE_PARAMS){.to = f->to,
                                   .pitch = f->pitch,
                                   .value = f->value,
                                   .size = f->size,
                                   .width = f->width,
                                   .height = f->rows};
    return CUDA_SUCCESS;
}
