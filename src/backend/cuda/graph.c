/* graph.c - capturing, changing and launching graphs. */
#include "backend/cuda/graph.h"

#include "backend/cuda/code.h"
#include "backend/cuda/parts.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { THREAD_LOCAL = 1 };

struct nb_card_graph {
    nb_card *card;
    void *graph, *exec;
    nb_card_names *names;
};

static struct {
    atomic_int_fast64_t captured, changed, launched;
} stats;

static _Thread_local struct {
    const nb_card *card;
    void *stream;
} capture;

bool nb_card_graphs_wanted(void)
{
    static atomic_int known; /* 1: no, 2: yes */
    if (!known) {
        const char *set = getenv("NABLA_CUDA_GRAPHS");
        bool no = set && !strcmp(set, "0");
        known = no || nb_card_waits() ? 1 : 2;
    }
    return known == 2;
}

void *nb_card_stream(const nb_card *c)
{
    return capture.card == c ? capture.stream : c->stream;
}

bool nb_card_captures(const nb_card *c)
{
    return capture.card == c;
}

bool nb_card_is_free(const nb_card *c, const char *what)
{
    return capture.card != c ||
           nb_fail(NB_ERUNTIME, "GPU %d: %s while a graph is captured", c->id,
                   what);
}

bool nb_card_capture_begin(nb_card *c)
{
    if (!nb_card_enter(c) || !nb_card_is_free(c, "capturing")) return false;
    pthread_mutex_lock(&c->capturing);
    if (!c->aside) c->aside = nb_card_stream_new(c);
    bool ok =
        c->aside &&
        nb_card_check(c, c->api->StreamBeginCapture(c->aside, THREAD_LOCAL),
                      "capturing");
    if (ok) {
        capture.card = c;
        capture.stream = c->aside;
    } else {
        pthread_mutex_unlock(&c->capturing);
    }
    return ok;
}

void *nb_card_capture_node(nb_card *c)
{
    int status = 0;
    uint64_t id;
    void *graph, **node = NULL;
    size_t n = 0;
    int result = c->api->StreamGetCaptureInfo(capture.stream, &status, &id,
                                              &graph, &node, &n);
    return result == 0 && n == 1 ? node[0] : NULL;
}

/* The graph, if nothing spoilt it. */
static int end(nb_card *c, void **graph)
{
    *graph = NULL;
    int result = c->api->StreamEndCapture(capture.stream, graph);
    capture.card = NULL;
    pthread_mutex_unlock(&c->capturing);
    return result;
}

void nb_card_capture_give_up(nb_card *c)
{
    void *graph;
    end(c, &graph);
    if (graph) c->api->GraphDestroy(graph);
}

nb_card_graph *nb_card_capture_end(nb_card *c, const char *what)
{
    void *graph;
    nb_card_graph *g = nb_alloc_zero(sizeof *g);
    bool ok = nb_card_check(c, end(c, &graph), "capturing");
    if (!g) {
        if (graph) c->api->GraphDestroy(graph);
        return NULL;
    }
    g->card = c;
    g->graph = graph;
    if (ok && (g->names = nb_card_names_new(what)) &&
        nb_card_check(c, c->api->GraphInstantiate(&g->exec, graph, 0),
                      "a graph cannot be made")) {
        stats.captured++;
        return g;
    }
    nb_card_graph_free(g);
    return NULL;
}

/* As the driver lays it out. */
typedef struct params {
    void *function;
    unsigned grid[3], block[3], shared;
    void **args, **extra;
    void *kernel, *context;
} params;

bool nb_card_graph_change(nb_card_graph *g, void *node,
                          const nb_card_launching *l)
{
    params p = {
        .function = l->code->function, .shared = l->shared, .args = l->args};
    memcpy(p.grid, l->grid, sizeof p.grid);
    memcpy(p.block, l->block, sizeof p.block);
    stats.changed++;
    return nb_card_enter(g->card) &&
           nb_card_check(
               g->card,
               g->card->api->GraphExecKernelNodeSetParams(g->exec, node, &p),
               "a graph cannot be changed");
}

bool nb_card_graph_launch(nb_card_graph *g)
{
    nb_card *c = g->card;
    if (!nb_card_enter(c) ||
        !nb_card_check(c, c->api->GraphLaunch(g->exec, c->stream),
                       nb_card_names_text(g->names)))
        return false;
    nb_card_launched_all(c, g->names);
    stats.launched++;
    return true;
}

void nb_card_graph_free(nb_card_graph *g)
{
    if (!g) return;
    if (nb_card_reenter(g->card)) {
        if (g->exec) g->card->api->GraphExecDestroy(g->exec);
        if (g->graph) g->card->api->GraphDestroy(g->graph);
    }
    nb_card_names_drop(g->names);
    nb_free(g);
}

nb_card_graph_stats nb_card_graph_stats_get(void)
{
    return (nb_card_graph_stats){stats.captured, stats.changed, stats.launched};
}
