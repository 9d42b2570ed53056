/* meet.c - the threads of a block as fibers that switch where they meet.
 * Whoever arrives last goes on and readies the others. */
#include "run.h"

sim_running sim_now;

uint64_t sim_chance(void)
{
    sim_now.seed ^= sim_now.seed << 13;
    sim_now.seed ^= sim_now.seed >> 7;
    sim_now.seed ^= sim_now.seed << 17;
    return sim_now.seed;
}

static void push(int i)
{
    sim_team *t = sim_now.team;
    sim_thread *x = &t->threads[i];
    if (x->state != SIM_NEW) x->state = SIM_READY;
    t->ready[(t->head + t->waiting++) & (t->ring - 1)] = i;
}

/* Lanes that met go on at once, while what they use is near; now and then at
 * the end, for a loop that waits for another warp. */
static void push_lane(int i)
{
    sim_team *t = sim_now.team;
    if (sim_now.seed || ++sim_now.turns % 1024 < 32) {
        push(i);
        return;
    }
    t->threads[i].state = SIM_READY;
    t->head = (t->head - 1) & (t->ring - 1);
    t->ready[t->head] = i;
    t->waiting++;
}

static sim_thread *pop(void)
{
    sim_team *t = sim_now.team;
    int first = t->head;
    if (sim_now.seed) {
        uint64_t skip = sim_chance() % (uint64_t)t->waiting;
        int other = (first + (int)skip) & (t->ring - 1);
        int swap = t->ready[first];
        t->ready[first] = t->ready[other];
        t->ready[other] = swap;
    }
    t->head = (first + 1) & (t->ring - 1);
    t->waiting--;
    return &t->threads[t->ready[first]];
}

static void leave(void)
{
    sim_fiber gone;
    sim_fiber_switch(sim_now.now ? &sim_now.now->fiber : &gone, &sim_now.home);
}

void sim_stop(int code)
{
    sim_now.fault = code;
    leave();
}

/* The barrier. */
static void release(void)
{
    sim_team *t = sim_now.team;
    unsigned yes = 0;
    for (int i = 0; i < t->count; i++)
        if (t->threads[i].state == SIM_AT_BARRIER)
            yes += (unsigned)t->threads[i].yes;
    for (int i = 0; i < t->count; i++) {
        sim_thread *x = &t->threads[i];
        if (x->state != SIM_AT_BARRIER) continue;
        x->result = yes;
        if (x == sim_now.now)
            x->state = SIM_READY;
        else
            push(i);
    }
    t->arrived = 0;
}

/* All wait at the same line, or the program is wrong. */
static bool same_barrier(const sim_team *t, int line)
{
    for (int i = 0; i < t->count; i++) {
        const sim_thread *x = &t->threads[i];
        if (x->state == SIM_AT_BARRIER) return x->line == line;
    }
    return true;
}

static int barrier(int line, int yes)
{
    sim_team *t = sim_now.team;
    sim_thread *x = sim_now.now;
    if (t->arrived && !same_barrier(t, line))
        sim_stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    x->state = SIM_AT_BARRIER;
    x->line = line, x->yes = yes;
    if (++t->arrived == t->alive)
        release();
    else
        leave();
    return (int)x->result;
}

/* The lanes of a warp. */
static sim_thread *lane_of(int base, int i)
{
    sim_team *t = sim_now.team;
    return base + i < t->count ? &t->threads[base + i] : NULL;
}

static bool in(unsigned mask, int i)
{
    return mask >> i & 1;
}

static int source_of(const sim_lanes *l, int lane)
{
    int first = lane & -l->width, end = first + l->width, to = lane;
    if (l->what == SIM_SHUFFLE) return first + (l->operand & (l->width - 1));
    if (l->what == SIM_ACROSS)
        return (lane ^ l->operand) < end ? lane ^ l->operand : lane;
    to += l->what == SIM_UP ? -l->operand : l->operand;
    return to < first || to >= end ? lane : to;
}

static unsigned long long join(int what, unsigned long long x,
                               unsigned long long y)
{
    switch (what) {
    case SIM_ADD: return x + y;
    case SIM_MIN: return (long long)y < (long long)x ? y : x;
    case SIM_MAX: return (long long)y > (long long)x ? y : x;
    case SIM_UMIN: return y < x ? y : x;
    case SIM_UMAX: return y > x ? y : x;
    case SIM_AND: return x & y;
    case SIM_OR: return x | y;
    case SIM_XOR: return x ^ y;
    default: return x;
    }
}

/* What lane gets; all of `there` have arrived.  A lane that is not there gives
 * all ones, as nothing is promised. */
static unsigned long long gets(int base, int lane, unsigned there)
{
    const sim_lanes *l = &lane_of(base, lane)->lanes;
    sim_warp *w = &sim_now.team->warps[base / SIM_WARP];
    if (l->what == SIM_GATHER) {
        w->given[lane] = l->value;
        return (uintptr_t)w->given;
    }
    if (l->what <= SIM_ACROSS) {
        int from = source_of(l, lane);
        return in(there, from) ? lane_of(base, from)->lanes.value : ~0ull;
    }
    unsigned long long out = 0;
    bool first = true;
    for (int i = 0; i < SIM_WARP; i++) {
        if (!in(there, i)) continue;
        unsigned long long v = lane_of(base, i)->lanes.value;
        if (l->what == SIM_BALLOT)
            out |= (unsigned long long)(v != 0) << i;
        else if (l->what == SIM_MATCH)
            out |= (unsigned long long)(v == l->value) << i;
        else
            out = first ? v : join(l->what, out, v);
        first = false;
    }
    return out;
}

/* The lanes that wait with this one, or 0 as long as one is missing. */
static unsigned gathered(int base, const sim_lanes *l)
{
    const sim_warp *w = &sim_now.team->warps[base / SIM_WARP];
    unsigned there = l->mask & ~w->gone;
    if ((w->here & there) != there) return 0;
    for (int i = 0; i < SIM_WARP; i++) {
        if (!in(there, i)) continue;
        const sim_lanes *o = &lane_of(base, i)->lanes;
        if (o->mask != l->mask || o->line != l->line)
            sim_stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    }
    return there;
}

static void meet(int base, unsigned there)
{
    sim_now.team->warps[base / SIM_WARP].here &= ~there;
    for (int i = 0; i < SIM_WARP; i++)
        if (in(there, i)) lane_of(base, i)->result = gets(base, i, there);
    for (int i = SIM_WARP - 1; i >= 0; i--) {
        if (!in(there, i)) continue;
        if (lane_of(base, i) == sim_now.now)
            sim_now.now->state = SIM_READY;
        else
            push_lane(base + i);
    }
}

static unsigned long long lanes(const sim_lanes *l)
{
    sim_thread *x = sim_now.now;
    int index = (int)(x - sim_now.team->threads), lane = index % SIM_WARP;
    bool odd = l->width < 1 || l->width > SIM_WARP || l->width & (l->width - 1);
    if (!in(l->mask, lane) || odd) sim_stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    x->lanes = *l;
    x->state = SIM_AT_LANES;
    sim_now.team->warps[index / SIM_WARP].here |= 1u << lane;
    unsigned there = gathered(index - lane, l);
    if (there)
        meet(index - lane, there);
    else
        leave();
    return x->result;
}

/* Others get their turn, for what this thread may be spinning on. */
static void pause(void)
{
    sim_thread *x = sim_now.now;
    if (!x) return;
    push((int)(x - sim_now.team->threads));
    leave();
}

const sim_host sim_host_functions = {barrier, lanes, sim_stop, pause,
                                     sim_condition_set};

/* Who has ended is no longer waited for. */
static void ended(sim_thread *x)
{
    sim_team *t = sim_now.team;
    int index = (int)(x - t->threads), base = index - index % SIM_WARP;
    x->state = SIM_DONE;
    t->alive--;
    if (t->arrived && t->arrived == t->alive) release();
    sim_warp *w = &t->warps[index / SIM_WARP];
    w->gone |= 1u << (index - base);
    for (int i = 0; i < SIM_WARP && w->here; i++) {
        sim_thread *other = lane_of(base, i);
        if (!in(w->here, i)) continue;
        unsigned there = gathered(base, &other->lanes);
        if (there) meet(base, there);
    }
}

static void begin(void)
{
    sim_now.kernel->body(sim_now.args);
    ended(sim_now.now);
    leave();
}

void sim_team_begin(sim_team *t)
{
    sim_now.team = t;
    t->alive = t->count;
    t->arrived = t->head = t->waiting = 0;
    for (int i = 0; i < t->count; i++) {
        t->threads[i].state = SIM_NEW;
        push(i);
    }
    for (int i = 0; i < 32; i++) {
        int left = t->count - i * SIM_WARP;
        unsigned there = left <= 0 ? 0 : ~0u >> (left < 32 ? 32 - left : 0);
        t->warps[i] = (sim_warp){.gone = ~there};
    }
}

void sim_team_step(sim_team *t)
{
    sim_now.team = t;
    for (int n = t->waiting; n && !sim_now.fault; n--) {
        sim_thread *x = pop();
        if (x->state == SIM_NEW && !sim_fiber_new(&x->fiber, begin)) {
            sim_now.fault = CUDA_ERROR_OUT_OF_MEMORY;
            return;
        }
        x->state = SIM_READY;
        sim_now.now = x;
        *sim_now.image->thread = x->place;
        sim_fiber_switch(&sim_now.home, &x->fiber);
        if (x->state == SIM_DONE) sim_fiber_free(&x->fiber);
    }
}

static void begin_sweep(void)
{
    sim_now.kernel->sweep(sim_now.args);
    leave();
}

void sim_sweep(void)
{
    sim_fiber f;
    sim_now.now = NULL;
    if (!sim_fiber_new(&f, begin_sweep)) {
        sim_now.fault = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    sim_fiber_switch(&sim_now.home, &f);
    sim_fiber_free(&f);
}
