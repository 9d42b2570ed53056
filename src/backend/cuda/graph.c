/* graph.c - capturing, changing and launching graphs. */
#include "backend/cuda/graph.h"

#include "backend/cuda/code.h"
#include "backend/cuda/parts.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { THREAD_LOCAL = 1, CONDITIONS = 12040 };

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
    int depth; /* of the body that is written down, 0: none */
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

static void *stream_at(nb_card *c, int depth)
{
    if (!c->aside[depth]) c->aside[depth] = nb_card_stream_new(c);
    return c->aside[depth];
}

bool nb_card_capture_begin(nb_card *c)
{
    if (!nb_card_enter(c) || !nb_card_is_free(c, "capturing")) return false;
    pthread_mutex_lock(&c->capturing);
    void *stream = stream_at(c, 0);
    bool ok = stream &&
              nb_card_check(c, c->api->StreamBeginCapture(stream, THREAD_LOCAL),
                            "capturing");
    if (ok) {
        capture.card = c;
        capture.depth = 0;
        capture.stream = stream;
    } else {
        pthread_mutex_unlock(&c->capturing);
    }
    return ok;
}

/* The graph that is written, and what comes next in it comes after. */
typedef struct writing {
    void *graph, **last;
    size_t n;
} writing;

static bool find_writing(nb_card *c, writing *w)
{
    int status = 0;
    uint64_t id;
    *w = (writing){0};
    int result = c->api->StreamGetCaptureInfo(capture.stream, &status, &id,
                                              &w->graph, &w->last, &w->n);
    return result == 0 && w->graph;
}

void *nb_card_capture_node(nb_card *c)
{
    writing w;
    return find_writing(c, &w) && w.n == 1 ? w.last[0] : NULL;
}

bool nb_card_conditions_there(void)
{
    const nb_cuda *api = nb_cuda_driver();
    return nb_cuda_version() >= CONDITIONS &&
           api->GraphConditionalHandleCreate && api->GraphAddNode &&
           api->StreamBeginCaptureToGraph &&
           api->StreamUpdateCaptureDependencies;
}

bool nb_card_condition_new(nb_card *c, nb_card_condition *k)
{
    enum { FROM_FIRST = 1 };
    writing w;
    return (find_writing(c, &w) ||
            nb_fail(NB_ERUNTIME, "a condition outside of a graph")) &&
           nb_card_check(c,
                         c->api->GraphConditionalHandleCreate(
                             k, w.graph, c->context, 0, FROM_FIRST),
                         "a condition cannot be made");
}

/* As the driver lays it out. */
typedef struct conditional {
    int type, reserved[3];
    union {
        struct {
            nb_card_condition handle;
            int when;
            unsigned size;
            void **body; /* set by the driver */
            void *context;
        };
        long long room[29];
    };
    long long more;
} conditional;

bool nb_card_body_begin(nb_card *c, nb_card_condition k, nb_card_when when)
{
    enum { CONDITIONAL = 13, REPLACE = 1 };
    conditional p = {.type = CONDITIONAL};
    void *node = NULL;
    writing w;
    if (capture.depth + 1 == NB_CARD_DEPTH)
        return nb_fail(NB_ERUNTIME, "loops %d deep in a graph", NB_CARD_DEPTH);
    p.handle = k, p.when = when, p.size = 1, p.context = c->context;
    void *stream = stream_at(c, capture.depth + 1);
    bool ok =
        stream && find_writing(c, &w) &&
        nb_card_check(c, c->api->GraphAddNode(&node, w.graph, w.last, w.n, &p),
                      "a condition cannot be used") &&
        nb_card_check(c,
                      c->api->StreamUpdateCaptureDependencies(
                          capture.stream, &node, 1, REPLACE),
                      "a condition cannot be used") &&
        nb_card_check(c,
                      c->api->StreamBeginCaptureToGraph(stream, p.body[0], NULL,
                                                        NULL, 0, THREAD_LOCAL),
                      "a body cannot be captured");
    if (!ok) return false;
    capture.depth++;
    capture.stream = stream;
    return true;
}

bool nb_card_body_end(nb_card *c)
{
    void *body;
    int result = c->api->StreamEndCapture(capture.stream, &body);
    capture.stream = c->aside[--capture.depth];
    return nb_card_check(c, result, "a body cannot be captured");
}

/* The graph, if nothing spoilt it. */
static int end(nb_card *c, void **graph)
{
    void *body;
    while (capture.depth) {
        c->api->StreamEndCapture(capture.stream, &body);
        capture.stream = c->aside[--capture.depth];
    }
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
