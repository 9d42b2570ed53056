/* stream.c - streams and events.  A stream is a queue that runs when someone
 * waits for a place in it; an event is such a place.  The legacy stream waits
 * for all others but the non-blocking ones, and runs at once. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 4096, NON_BLOCKING = 1, NO_TIMING = 2 };

static uint64_t stream_ids;
static sim_stream *buried;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void event_drop(sim_event *e)
{
    if (--e->refs) return;
    free(e->nodes);
    free(e);
}

void sim_work_free(sim_work *w)
{
    switch (w->kind) {
    case SIM_KERNEL: free(w->launch.args); break;
    case SIM_COPY: free(w->copy.staged); break;
    case SIM_RECORD: event_drop(w->event); break;
    case SIM_GRAPH: sim_exec_drop(w->exec); break;
    default: break;
    }
}

CUresult sim_do(sim_card *c, const sim_work *w)
{
    switch (w->kind) {
    case SIM_KERNEL: return sim_launch_run(c, &w->launch);
    case SIM_COPY: return sim_copy_run(c, &w->copy);
    case SIM_FILL: return sim_fill_run(c, &w->fill);
    case SIM_CALL: w->call.function(w->call.data); return 0;
    case SIM_GRAPH: return sim_exec_run(c, w->exec);
    case SIM_RECORD: w->event->time = now(); return 0;
    case SIM_FREE: sim_memory_free(sim_memory_card(w->at), w->at); return 0;
    default: return 0;
    }
}

sim_stream *sim_stream_new(sim_card *c, unsigned flags, int priority)
{
    sim_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (sim_stream){.card = c, .flags = flags, .priority = priority};
    s->id = ++stream_ids;
    s->next = c->streams;
    c->streams = s;
    return s;
}

/* Events may still hold marks in them: they are kept, empty. */
static void bury(sim_stream *s)
{
    free(s->queue);
    free(s->last);
    s->queue = NULL, s->room = s->head = 0;
    s->last = NULL, s->last_count = 0;
    s->dead = true;
}

void sim_streams_free(sim_card *c)
{
    for (sim_stream *s = c->streams, *next; s; s = next) {
        next = s->next;
        bury(s);
        s->next = buried;
        buried = s;
    }
    c->streams = c->null = NULL;
}

/* Of this card, or one of the three the driver has names for. */
bool sim_stream_find(sim_card *c, CUstream handle, sim_stream **found)
{
    if ((uintptr_t)handle <= 2) {
        *found = c->null;
        return c->null != NULL;
    }
    for (sim_stream *s = c->streams; s; s = s->next)
        if (s == handle && !s->dead) {
            *found = s;
            return true;
        }
    return false;
}

void sim_run(sim_stream *s, uint64_t number)
{
    sim_card *c = s->card;
    if (s->done >= number) return;
    sim_open(c);
    while (s->done < number) {
        sim_work w = s->queue[s->head];
        if (w.kind == SIM_WAIT) sim_run(w.wait.stream, w.wait.number);
        s->head = (s->head + 1) % s->room;
        s->count--;
        CUresult code = c->fault ? 0 : sim_do(c, &w);
        if (code) c->fault = code;
        sim_work_free(&w);
        s->done++;
    }
    sim_close(c);
}

CUresult sim_finish(sim_card *c)
{
    for (sim_stream *s = c->streams; s; s = s->next)
        sim_run(s, s->issued);
    return c->fault;
}

static bool grow(sim_stream *s)
{
    if (s->count < s->room) return true;
    size_t room = s->room ? 2 * s->room : 64;
    sim_work *queue = malloc(room * sizeof *queue);
    if (!queue) return false;
    for (size_t i = 0; i < s->count; i++)
        queue[i] = s->queue[(s->head + i) % s->room];
    free(s->queue);
    s->queue = queue, s->room = room, s->head = 0;
    return true;
}

/* What a stream follows besides its own: the legacy stream all blocking ones,
 * which ran what it had when it did. */
static CUresult legacy(sim_card *c)
{
    for (sim_stream *s = c->streams; s; s = s->next) {
        if (s->flags & NON_BLOCKING) continue;
        if (s->capture) {
            s->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        sim_run(s, s->issued);
    }
    return c->fault;
}

static CUresult put(sim_card *c, sim_stream *s, const sim_work *w)
{
    CUresult code = s == c->null ? legacy(c) : CUDA_SUCCESS;
    if (code) return code;
    if (!grow(s)) return CUDA_ERROR_OUT_OF_MEMORY;
    s->queue[(s->head + s->count++) % s->room] = *w;
    s->issued++;
    return CUDA_SUCCESS;
}

CUresult sim_put(sim_card *c, CUstream handle, sim_work w)
{
    sim_stream *s;
    CUresult code = CUDA_ERROR_INVALID_HANDLE;
    if (sim_stream_find(c, handle, &s)) {
        if (s->capture) return sim_capture_put(s, w);
        code = put(c, s, &w);
    }
    if (code) {
        sim_work_free(&w);
        return code;
    }
    bool late = s != c->null && sim_setting("NABLA_SIM_ASYNC", 1);
    if (!late || s->count >= MOST) sim_run(s, s->issued);
    return CUDA_SUCCESS;
}

static CUresult create(sim_card *c, CUstream *stream, unsigned flags,
                       int priority)
{
    if (!stream || flags > NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *stream = sim_stream_new(c, flags, priority);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    SIM_CARD_TURN;
    return create(card, stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                    int priority)
{
    SIM_CARD_TURN;
    return create(card, stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!sim_stream_find(card, stream, &s) || s == card->null)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_run(s, s->issued);
    bury(s);
    return card->fault;
}

static CUresult waits(sim_card *c, CUstream handle, sim_stream **s)
{
    if (!sim_stream_find(c, handle, s)) return CUDA_ERROR_INVALID_HANDLE;
    if ((*s)->capture) (*s)->invalid = true;
    if ((*s)->capture || sim_capturing(c))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return *s == c->null ? legacy(c) : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    SIM_CARD_TURN;
    sim_stream *s;
    CUresult code = waits(card, stream, &s);
    if (code) return code;
    sim_run(s, s->issued);
    return card->fault;
}

/* Asking moves the work on by one step, so asking again ends. */
static CUresult query(sim_card *c, sim_mark m)
{
    if (m.stream->done < m.number) sim_run(m.stream, m.stream->done + 1);
    if (c->fault) return c->fault;
    return m.stream->done < m.number ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    SIM_CARD_TURN;
    sim_stream *s;
    CUresult code = waits(card, stream, &s);
    return code ? code : query(card, (sim_mark){s, s->issued});
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    SIM_CARD_TURN;
    sim_stream *s;
    (void)flags;
    if (!event || !sim_stream_find(card, stream, &s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture || event->capture) return sim_capture_wait(s, event);
    if (!event->mark.stream) return CUDA_SUCCESS;
    return sim_put(card, stream,
                   (sim_work){.kind = SIM_WAIT, .wait = event->mark});
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *context = s->card;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *flags = s->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *priority = s->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!sim_stream_find(card, stream, &s)) return CUDA_ERROR_INVALID_HANDLE;
    *id = s->id;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    SIM_CARD_TURN;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    return sim_put(card, stream,
                   (sim_work){.kind = SIM_CALL, .call = {function, data}});
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    SIM_CARD_TURN;
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    if (!*event) return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->refs = 1;
    (*event)->timed = !(flags & NO_TIMING);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    SIM_TURN;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    event_drop(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    SIM_CARD_TURN;
    sim_stream *s;
    if (!event || !sim_stream_find(card, stream, &s))
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture) return sim_capture_record(s, event);
    event->capture = 0;
    event->refs++;
    CUresult code =
        sim_put(card, stream, (sim_work){.kind = SIM_RECORD, .event = event});
    if (!code) event->mark = (sim_mark){s, s->issued};
    return code;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event)
{
    SIM_CARD_TURN;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->mark.stream) return CUDA_SUCCESS;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return query(card, event->mark);
}

CUresult cuEventSynchronize(CUevent event)
{
    SIM_CARD_TURN;
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->mark.stream) return CUDA_SUCCESS;
    if (sim_capturing(card)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_run(event->mark.stream, event->mark.number);
    return card->fault;
}

static bool reached(const sim_event *e)
{
    return e->mark.stream && e->mark.stream->done >= e->mark.number;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    SIM_CARD_TURN;
    if (!ms) return CUDA_ERROR_INVALID_VALUE;
    if (!from || !to || !from->timed || !to->timed)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!from->mark.stream || !to->mark.stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!reached(from) || !reached(to)) return CUDA_ERROR_NOT_READY;
    *ms = (float)(to->time - from->time);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
    return cuEventElapsedTime(ms, from, to);
}
