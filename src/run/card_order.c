/* card_order.c - which steps of a program on a card wait for which.
 *
 * In a graph a step waits for those before it that write what it reads or
 * writes, or read what it writes, and for no others.  Blocks of the arena that
 * follow one another in the same place, and results in the place of inputs, are
 * found by their addresses; so is the workspace, which is one for all. */
#include "run/card_parts.h"

#include "lower/gemm.h"

typedef struct span {
    const char *from, *to;
    bool written;
} span;

/* The spans of all steps, one after another. */
typedef struct spans {
    span *at;
    int n, room;
    int *first; /* by step */
} spans;

static bool add_span(spans *x, const char *from, int64_t bytes, bool written)
{
    if (!nb_grow(&x->at, &x->room, x->n + 1, sizeof *x->at)) return false;
    x->at[x->n++] = (span){from, from + bytes, written};
    return true;
}

static bool add_nest(spans *x, const nb_exec *e, const nb_frame *f,
                     const nb_step *step)
{
    bool ok = true;
    for (int k = 0; ok && k < step->nest->n; k++) {
        const nb_nest_value *v = &step->nest->value[k];
        if (!nb_nest_in_memory(v) || v->given) continue;
        int b = step->buffer[v->buffer];
        ok = add_span(x, f->block[b], e->plan->bytes[b],
                      v->kind == NB_NEST_STORE);
    }
    return ok;
}

static bool add_gemm(spans *x, const nb_exec *e, const nb_frame *f,
                     const nb_step *step)
{
    const nb_gemm *g = step->gemm;
    bool ok = true;
    for (int i = 0; ok && i < step->nbuffers; i++) {
        int b = step->buffer[i];
        bool kept = g->end == NB_END_GELU && i == g->kept.buffer;
        ok = add_span(x, f->block[b], e->plan->bytes[b],
                      kept || i == g->c.buffer);
    }
    return ok;
}

static bool add_call(spans *x, const nb_exec *e, const nb_frame *f, int line)
{
    const nb_plan *p = e->plan;
    const nb_line *l = &p->graph->line[line];
    bool ok = add_span(x, f->block[line], p->bytes[line], true);
    for (int i = 0; ok && i < l->nin; i++) {
        int b = p->place[l->in[i]].root;
        ok = add_span(x, f->block[b], p->bytes[b], false);
    }
    return ok;
}

static bool meet(const spans *x, int a, int b)
{
    for (int i = x->first[a]; i < x->first[a + 1]; i++)
        for (int k = x->first[b]; k < x->first[b + 1]; k++) {
            const span *u = &x->at[i], *v = &x->at[k];
            if ((u->written || v->written) && u->from < v->to &&
                v->from < u->to)
                return true;
        }
    return false;
}

static bool find_spans(spans *x, const nb_exec *e, const nb_frame *f, int first,
                       int n)
{
    bool ok = (x->first = nb_alloc((size_t)(n + 1) * sizeof *x->first));
    for (int i = 0; ok && i < n; i++) {
        const nb_step *step = &e->plan->step[first + i];
        const nb_card_job *job = e->on_card[first + i].job;
        x->first[i] = x->n;
        ok = step->nest   ? add_nest(x, e, f, step)
             : step->gemm ? add_gemm(x, e, f, step)
                          : add_call(x, e, f, step->line);
        if (ok && job && job->workspace)
            ok = add_span(x, f->arena->data + nb_frame_arena(e),
                          (int64_t)job->workspace, true);
    }
    if (ok) x->first[n] = x->n;
    return ok;
}

/* before[i]: bits of the steps that come before step i by what is known. */
static bool find_waits(nb_card_order *o, const spans *x, int n,
                       uint64_t *before, size_t width)
{
    int room = 0;
    for (int i = 0; i < n; i++) {
        uint64_t *mine = before + (size_t)i * width;
        o->first[i] = o->n;
        for (int j = i - 1; j >= 0; j--) {
            if (mine[j / 64] >> (j % 64) & 1 || !meet(x, i, j)) continue;
            if (!nb_grow(&o->step, &room, o->n + 1, sizeof *o->step))
                return false;
            o->step[o->n++] = j;
            const uint64_t *of = before + (size_t)j * width;
            for (size_t w = 0; w < width; w++)
                mine[w] |= of[w];
            mine[j / 64] |= UINT64_C(1) << j % 64;
            if (o->depth[j] >= o->depth[i]) o->depth[i] = o->depth[j] + 1;
        }
        if (o->depth[i] > o->deepest) o->deepest = o->depth[i];
    }
    o->first[n] = o->n;
    return true;
}

bool nb_card_order_find(nb_card_order *o, const nb_exec *e, const nb_frame *f,
                        int first, int last)
{
    int n = last - first + 1;
    size_t width = (size_t)(n + 63) / 64;
    spans x = {0};
    uint64_t *before = nb_alloc_zero((size_t)n * width * sizeof *before);
    *o = (nb_card_order){0};
    o->first = nb_alloc((size_t)(n + 1) * sizeof *o->first);
    o->depth = nb_alloc_zero((size_t)n * sizeof *o->depth);
    bool ok = before && o->first && o->depth &&
              find_spans(&x, e, f, first, n) &&
              find_waits(o, &x, n, before, width);
    nb_free(before), nb_free(x.at), nb_free(x.first);
    if (!ok) nb_card_order_free(o);
    return ok;
}

void nb_card_order_free(nb_card_order *o)
{
    nb_free(o->first), nb_free(o->step), nb_free(o->depth);
    *o = (nb_card_order){0};
}
