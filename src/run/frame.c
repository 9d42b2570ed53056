/* frame.c - what one run of an executable has, kept for the next. */
#include "run/card.h"

void nb_frame_free(const nb_exec *e, nb_frame *f)
{
    const nb_plan *p = e->plan;
    nb_card_reel_free(e->pieces, f->reel);
    for (int k = 0; f->node && k < p->graph->n; k++)
        if (f->node[k]) {
            f->node[k]->data = NULL;
            f->node[k]->buffer = NULL;
            nb_drop(f->node[k]);
        }
    nb_buffer_drop(f->arena);
    nb_buffer_drop(f->alien);
    for (int k = 0; f->own && k < p->graph->n; k++)
        nb_buffer_drop(f->own[k]);
    nb_free(f->own);
    nb_free(f->block), nb_free(f->held), nb_free(f->node);
    nb_free(f);
}

nb_frame *nb_frame_new(const nb_exec *e)
{
    const nb_plan *p = e->plan;
    size_t n = (size_t)(p->graph->n + p->nextra) + 1;
    nb_frame *f = nb_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->block = nb_alloc_zero(n * sizeof *f->block);
    f->held = nb_alloc_zero(n * sizeof *f->held);
    f->node = nb_alloc_zero(n * sizeof *f->node);
    f->own = nb_alloc_zero(n * sizeof *f->own);
    if (f->block && f->held && f->node && f->own) return f;
    nb_frame_free(e, f);
    return NULL;
}

static nb_frame *frame_pop(nb_exec *e)
{
    nb_frame *f = atomic_exchange(&e->free, NULL);
    if (!f) return nb_frame_new(e);
    nb_frame *rest = f->next;
    f->next = NULL;
    while (rest) { /* others go back, one by one */
        nb_frame *next = rest->next;
        rest->next = atomic_load(&e->free);
        while (!atomic_compare_exchange_weak(&e->free, &rest->next, rest))
            continue;
        rest = next;
    }
    return f;
}

static bool is_ours(const nb_plan *p, int k)
{
    return p->home[k] == NB_HOME_ARENA || p->home[k] == NB_HOME_RESULT;
}

/* The largest block that a run makes, below a size; -1: none. */
static int largest_below(const nb_plan *p, int64_t bytes)
{
    int best = -1;
    for (int k = 0; k < p->graph->n; k++)
        if (is_ours(p, k) && p->bytes[k] < bytes &&
            (best < 0 || p->bytes[k] > p->bytes[best]))
            best = k;
    return best;
}

void *nb_exec_explain(const nb_exec *e)
{
    const nb_plan *p = e->plan;
    nb_text t = {0}, full = {0};
    int64_t below = INT64_MAX;
    if (nb_error_code() && nb_error_code() != NB_EMEMORY) return NULL;
    nb_text_add(&full, "%s", e->device ? nb_error_message() : "out of memory");
    for (int i = 0, k; i < 3 && (k = largest_below(p, below)) >= 0; i++) {
        const nb_line *l = &p->graph->line[k];
        nb_text_add(&t, "%s %s%s of %lld bytes", i ? "," : "", l->op->name,
                    nb_shape_text(&l->shape), (long long)p->bytes[k]);
        below = p->bytes[k];
    }
    nb_error_clear();
    nb_fail(NB_EMEMORY,
            "%s: the program needs %lld bytes besides its arguments, the "
            "largest:%s",
            nb_text_get(&full), (long long)e->bytes, nb_text_get(&t));
    nb_text_free(&t);
    nb_text_free(&full);
    return NULL;
}

/* Where the workspace begins. */
size_t nb_frame_arena(const nb_exec *e)
{
    return ((size_t)e->plan->arena + 255) / 256 * 256;
}

/* What is more than there is fails before anything runs: the system might hand
 * it out, and end the process when it is used. */
nb_frame *nb_frame_take(nb_exec *e)
{
    if (!e->device && (uint64_t)e->bytes > nb_memory_limit())
        return nb_exec_explain(e);
    nb_frame *f = frame_pop(e);
    if (f && !f->arena)
        f->arena = nb_buffer_on(e->device, nb_frame_arena(e) + e->workspace);
    if (!f || f->arena) return f;
    nb_frame_free(e, f);
    return nb_exec_explain(e);
}

/* A large arena is left to whoever needs memory next. */
void nb_frame_give(nb_exec *e, nb_frame *f)
{
    if (nb_frame_arena(e) + e->workspace > NB_SMALL_ARENA) {
        nb_buffer_drop(f->arena);
        f->arena = NULL;
    }
    f->next = atomic_load(&e->free);
    while (!atomic_compare_exchange_weak(&e->free, &f->next, f))
        continue;
}
