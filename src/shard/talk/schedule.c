/* schedule.c - pipelines: which stage does what when. */
#include "nabla/schedule.h"

#include "base/error.h"
#include "base/memory.h"

/* Stages that do their turns in order, each as soon as what it needs is there.
 */
typedef struct line {
    int stages, n;       /* microbatches */
    nb_stage_turn *turn; /* 2 n of them a stage */
    int *done;           /* by stage: turns that have a slot */
    int *ready; /* by stage, microbatch and direction: slot after it; or 0 */
} line;

static nb_stage_turn *turns_of(const line *l, int stage)
{
    return l->turn + 2 * l->n * stage;
}

static int *ready_at(const line *l, int stage, int microbatch, bool backward)
{
    return &l->ready[2 * (stage * l->n + microbatch) + backward];
}

/* A stage first lets in as many microbatches as there are stages behind it. */
static void order(const line *l, nb_schedule_kind kind, int stage)
{
    nb_stage_turn *t = turns_of(l, stage);
    int ahead = kind == NB_SCHEDULE_GPIPE ? l->n : l->stages - 1 - stage;
    int forward = 0, back = 0, k = 0;
    if (ahead > l->n) ahead = l->n;
    while (forward < ahead)
        t[k++] = (nb_stage_turn){.microbatch = forward++};
    while (back < l->n) {
        if (forward < l->n) t[k++] = (nb_stage_turn){.microbatch = forward++};
        t[k++] = (nb_stage_turn){.microbatch = back++, .backward = true};
    }
}

/* The slot from which on a turn can run; -1: what it needs has none yet. */
static int earliest(const line *l, int stage, const nb_stage_turn *t)
{
    int own = *ready_at(l, stage, t->microbatch, false), at;
    if (!t->backward) {
        if (stage == 0) return 0;
        at = *ready_at(l, stage - 1, t->microbatch, false);
        return at ? at : -1;
    }
    if (stage == l->stages - 1) return own ? own : -1;
    at = *ready_at(l, stage + 1, t->microbatch, true);
    return at && own ? at > own ? at : own : -1;
}

/* Gives slots until all turns have one; a turn starts when the one before it
 * has ended. */
static int run(line *l)
{
    int last = 0;
    bool more = true;
    while (more) {
        more = false;
        for (int s = 0; s < l->stages; s++) {
            nb_stage_turn *t = turns_of(l, s);
            int k = l->done[s], from;
            if (k == 2 * l->n || (from = earliest(l, s, &t[k])) < 0) continue;
            t[k].slot =
                k && t[k - 1].slot + 1 > from ? t[k - 1].slot + 1 : from;
            *ready_at(l, s, t[k].microbatch, t[k].backward) = t[k].slot + 1;
            if (t[k].slot + 1 > last) last = t[k].slot + 1;
            l->done[s]++;
            more = true;
        }
    }
    return last;
}

/* Stage s runs forward t - s and backward t - 2 (S - 1) + s in tick t. */
static int lockstep(const line *l, int stage)
{
    int ahead = 2 * (l->stages - 1) - stage, k = 0;
    nb_stage_turn *to = turns_of(l, stage);
    for (int tick = 0; tick < l->n + 2 * (l->stages - 1); tick++) {
        int forward = tick - stage, back = tick - ahead;
        if (forward >= 0 && forward < l->n)
            to[k++] = (nb_stage_turn){.slot = tick, .microbatch = forward};
        if (back >= 0 && back < l->n)
            to[k++] = (nb_stage_turn){tick, back, true};
    }
    return l->n + 2 * (l->stages - 1);
}

static int most_alive(const nb_stage_turn *t, int n)
{
    int now = 0, most = 0;
    for (int k = 0; k < 2 * n; k++) {
        now += t[k].backward ? -1 : 1;
        if (now > most) most = now;
    }
    return most;
}

static int fill(line *l, nb_schedule_kind kind)
{
    int slots = 0;
    for (int s = 0; s < l->stages; s++)
        if (kind == NB_SCHEDULE_LOCKSTEP)
            slots = lockstep(l, s);
        else
            order(l, kind, s);
    return kind == NB_SCHEDULE_LOCKSTEP ? slots : run(l);
}

static bool check(nb_schedule_kind kind, int stages, int n, int stage)
{
    if (kind < NB_SCHEDULE_GPIPE || kind > NB_SCHEDULE_LOCKSTEP)
        return nb_fail(NB_EVALUE, "schedule: %d is no kind of schedule",
                       (int)kind);
    if (stages < 1 || n < 1 || stages > 1 << 12 || n > 1 << 12)
        return nb_fail(NB_EVALUE, "schedule: %d stages, %d microbatches",
                       stages, n);
    if (stage < 0 || stage >= stages)
        return nb_fail(NB_EVALUE, "schedule: there is no stage %d among %d",
                       stage, stages);
    return true;
}

nb_status nb_schedule(nb_schedule_kind kind, int stages, int microbatches,
                      int stage, nb_stage_turn *turns, int *slots, int *live)
{
    line l = {.stages = stages, .n = microbatches};
    if (!check(kind, stages, microbatches, stage)) return NB_EVALUE;
    size_t n = (size_t)stages * (size_t)microbatches;
    l.turn = nb_alloc_zero(2 * n * sizeof *l.turn);
    l.done = nb_alloc_zero((size_t)stages * sizeof *l.done);
    l.ready = nb_alloc_zero(2 * n * sizeof *l.ready);
    bool ok = l.turn && l.done && l.ready;
    if (ok) {
        int count = fill(&l, kind);
        const nb_stage_turn *own = turns_of(&l, stage);
        if (slots) *slots = count;
        if (live) *live = most_alive(own, microbatches);
        for (int k = 0; turns && k < 2 * microbatches; k++)
            turns[k] = own[k];
    }
    nb_free(l.turn);
    nb_free(l.done);
    nb_free(l.ready);
    return ok ? NB_OK : nb_error_code();
}
