/* capture.c - streams that write down what they are given.  A stream joins a
 * capture by waiting for an event of it, and must be waited for before it
 * ends. */
#include "graph.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL, THREAD, RELAXED };
enum { NONE, ACTIVE, INVALID };

static _Thread_local int thread_mode;

/* A call that could wait is not allowed; trying it spoils the capture. */
bool sim_capturing(sim_card *c)
{
    bool found = false;
    if (thread_mode == RELAXED) return false;
    for (sim_stream *s = c->streams; s; s = s->next) {
        if (!s->capture || !s->origin || s->mode == RELAXED) continue;
        if (s->mode == THREAD && !pthread_equal(s->thread, pthread_self()))
            continue;
        s->invalid = found = true;
    }
    return found;
}

static bool spoilt(sim_stream *s)
{
    for (sim_stream *o = s->card->streams; o; o = o->next)
        if (o->capture == s->capture && o->invalid) return true;
    return false;
}

static bool follow(sim_stream *s, sim_node *const *after, size_t count,
                   bool too)
{
    size_t had = too ? (size_t)s->last_count : 0;
    sim_node **last = realloc(s->last, (had + count + 1) * sizeof *last);
    if (!last) return false;
    if (count) memcpy(last + had, after, count * sizeof *last);
    s->last = last;
    s->last_count = (int)(had + count);
    return true;
}

CUresult sim_capture_put(sim_stream *s, sim_work w)
{
    if (spoilt(s)) {
        sim_work_free(&w);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    sim_node *n = sim_node_new(s->capture, s->last, (size_t)s->last_count, w);
    bool good = n && follow(s, &n, 1, false);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_record(sim_stream *s, sim_event *e)
{
    size_t n = (size_t)s->last_count;
    sim_node **nodes = realloc(e->nodes, (n + 1) * sizeof *nodes);
    if (!nodes) return CUDA_ERROR_OUT_OF_MEMORY;
    if (n) memcpy(nodes, s->last, n * sizeof *nodes);
    e->nodes = nodes;
    e->count = s->last_count;
    e->capture = s->capture->id;
    return CUDA_SUCCESS;
}

static sim_graph *active(sim_card *c, uint64_t id)
{
    for (sim_stream *s = c->streams; s; s = s->next)
        if (s->capture && s->capture->id == id) return s->capture;
    return NULL;
}

CUresult sim_capture_wait(sim_stream *s, sim_event *e)
{
    sim_graph *g = e->capture ? active(s->card, e->capture) : NULL;
    if (s->capture && !e->capture) {
        s->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!g || s == s->card->null) return CUDA_ERROR_CAPTURED_EVENT;
    if (s->capture && s->capture != g) {
        s->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    bool joined = s->capture != NULL;
    s->capture = g;
    bool good = follow(s, e->nodes, (size_t)e->count, joined);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult begin(sim_card *c, CUstream stream, sim_graph *g,
                      const CUgraphNode *after, size_t count, int mode)
{
    sim_stream *s;
    if (!sim_stream_find(c, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (s == c->null) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    s->borrowed = g != NULL;
    s->capture = g ? g : sim_graph_new(c);
    if (!s->capture || !follow(s, after, count, false))
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->origin = true, s->invalid = false;
    s->mode = mode;
    s->thread = pthread_self();
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    SIM_CARD_TURN;
    return begin(card, stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *after,
                                     const CUgraphEdgeData *edges, size_t count,
                                     int mode)
{
    SIM_CARD_TURN;
    (void)edges;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    return begin(card, stream, graph, after, count, mode);
}

/* Whether all that other streams captured comes before the origin's last. */
static bool joined(const sim_stream *origin)
{
    const sim_graph *g = origin->capture;
    bool *before = calloc((size_t)g->count + 1, sizeof *before), all = true;
    if (!before) return false;
    for (int i = 0; i < origin->last_count; i++)
        before[origin->last[i]->index] = true;
    for (int i = g->count - 1; i >= 0; i--)
        for (int k = 0; before[i] && k < g->nodes[i]->after_count; k++)
            before[g->nodes[i]->after[k]->index] = true;
    for (sim_stream *s = origin->card->streams; s; s = s->next)
        for (int i = 0; s->capture == g && i < s->last_count; i++)
            all = all && before[s->last[i]->index];
    free(before);
    return all;
}

static void end(sim_graph *g, sim_card *c)
{
    for (sim_stream *s = c->streams; s; s = s->next) {
        if (s->capture != g) continue;
        s->capture = NULL;
        s->origin = s->invalid = s->borrowed = false;
        s->last_count = 0;
    }
}

void sim_capture_abandon(sim_card *c)
{
    for (sim_stream *s = c->streams; s; s = s->next) {
        sim_graph *g = s->capture;
        if (!g || !s->origin) continue;
        bool borrowed = s->borrowed;
        end(g, c);
        if (!borrowed) sim_graph_drop(g);
    }
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (!s->origin) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    bool foreign =
        s->mode != RELAXED && !pthread_equal(s->thread, pthread_self());
    if (foreign) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult code = CUDA_SUCCESS;
    if (spoilt(s))
        code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(s))
        code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    sim_graph *g = s->capture;
    bool borrowed = s->borrowed;
    end(g, card);
    *graph = code ? NULL : g;
    if (code && !borrowed) sim_graph_drop(g);
    return code;
}

static int status_of(sim_stream *s)
{
    if (!s->capture) return NONE;
    return spoilt(s) ? INVALID : ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *status = status_of(s);
    return CUDA_SUCCESS;
}

static CUresult info(sim_card *c, CUstream stream, int *status, uint64_t *id,
                     CUgraph *graph, const CUgraphNode **after, size_t *count)
{
    sim_stream *s;
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_find(c, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *status = status_of(s);
    if (*status != ACTIVE) return CUDA_SUCCESS;
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture;
    if (after) *after = (const CUgraphNode *)s->last;
    if (count) *count = (size_t)s->last_count;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **after,
                                   size_t *count)
{
    SIM_CARD_TURN;
    return info(card, stream, status, id, graph, after, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **after,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    SIM_CARD_TURN;
    if (edges) *edges = NULL;
    return info(card, stream, status, id, graph, after, count);
}

static CUresult redirect(sim_card *c, CUstream stream, CUgraphNode *after,
                         size_t count, unsigned flags)
{
    sim_stream *s;
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    if (!sim_stream_find(c, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    bool good = follow(s, after, count, !flags);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *after,
                                           size_t count, unsigned flags)
{
    SIM_CARD_TURN;
    return redirect(card, stream, after, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream,
                                              CUgraphNode *after,
                                              const CUgraphEdgeData *edges,
                                              size_t count, unsigned flags)
{
    SIM_CARD_TURN;
    (void)edges;
    return redirect(card, stream, after, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    SIM_TURN;
    if (!mode || *mode < GLOBAL || *mode > RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int former = thread_mode;
    thread_mode = *mode;
    *mode = former;
    return CUDA_SUCCESS;
}
