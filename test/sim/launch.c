/* launch.c - running a grid: block after block, the threads of a block as
 * fibers that switch where they meet.  Whoever arrives last goes on and readies
 * the others.  Threads that can never all arrive, and signals, end the
 * launch. */
#define _GNU_SOURCE
#include "fiber.h"
#include "sim.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef enum state { NEW, READY, AT_BARRIER, AT_LANES, DONE } state;

typedef struct thread {
    sim_fiber fiber;
    sim_place place;
    state state;
    int line, yes;
    sim_lanes lanes;
    unsigned long long result;
} thread;

/* The launch that runs: there is one at a time. */
static struct run {
    sim_image *image;
    const sim_kernel *kernel;
    void **args;
    thread *threads;
    int count, alive, arrived, yes;
    int *ready; /* a ring of threads that can go on */
    int head, waiting;
    thread *now;
    sim_fiber home;
    uint64_t seed;
    CUresult fault;
} run;

static _Thread_local volatile bool inside;

static uint64_t chance(void)
{
    run.seed ^= run.seed << 13;
    run.seed ^= run.seed >> 7;
    run.seed ^= run.seed << 17;
    return run.seed;
}

static void push(int i)
{
    run.threads[i].state = run.threads[i].state == NEW ? NEW : READY;
    run.ready[(run.head + run.waiting++) % run.count] = i;
}

static thread *pop(void)
{
    int first = run.head;
    if (run.seed) {
        int other = (int)((uint64_t)first + chance() % (uint64_t)run.waiting) %
                    run.count;
        int swap = run.ready[first];
        run.ready[first] = run.ready[other];
        run.ready[other] = swap;
    }
    run.head = (first + 1) % run.count;
    run.waiting--;
    return &run.threads[run.ready[first]];
}

static void leave(void)
{
    sim_fiber gone;
    sim_fiber_switch(run.now ? &run.now->fiber : &gone, &run.home);
}

static void stop(int code)
{
    run.fault = code;
    leave();
}

/* The barrier. */
static void release(void)
{
    run.yes = 0;
    for (int i = 0; i < run.count; i++)
        if (run.threads[i].state == AT_BARRIER) run.yes += run.threads[i].yes;
    for (int i = 0; i < run.count; i++)
        if (run.threads[i].state == AT_BARRIER) {
            run.threads[i].result = (unsigned)run.yes;
            if (&run.threads[i] == run.now)
                run.threads[i].state = READY;
            else
                push(i);
        }
    run.arrived = 0;
}

static bool same_barrier(int line)
{
    for (int i = 0; i < run.count; i++) {
        const thread *t = &run.threads[i];
        if (t->state == AT_BARRIER && t->line != line) return false;
    }
    return true;
}

static int barrier(int line, int yes)
{
    thread *t = run.now;
    if (run.arrived && !same_barrier(line))
        stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    t->state = AT_BARRIER;
    t->line = line, t->yes = yes;
    if (++run.arrived == run.alive)
        release();
    else
        leave();
    return (int)t->result;
}

/* The lanes of a warp. */
static thread *lane_of(int base, int i)
{
    return base + i < run.count ? &run.threads[base + i] : NULL;
}

static bool in(unsigned mask, int i)
{
    return mask >> i & 1;
}

static int source_of(const sim_lanes *l, int lane)
{
    int first = lane & -l->width, end = first + l->width, to = lane;
    switch (l->what) {
    case SIM_SHUFFLE: return first + (l->operand & (l->width - 1));
    case SIM_UP: to = lane - l->operand; break;
    case SIM_DOWN: to = lane + l->operand; break;
    case SIM_ACROSS:
        return (lane ^ l->operand) < end ? lane ^ l->operand : lane;
    default: break;
    }
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
    unsigned there = 0;
    for (int i = 0; i < SIM_WARP; i++) {
        thread *t = lane_of(base, i);
        if (!in(l->mask, i) || !t || t->state == DONE) continue;
        if (t->state != AT_LANES) return 0;
        if (t->lanes.mask != l->mask || t->lanes.line != l->line)
            stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
        there |= 1u << i;
    }
    return there;
}

static void meet(int base, unsigned there)
{
    for (int i = 0; i < SIM_WARP; i++)
        if (in(there, i)) lane_of(base, i)->result = gets(base, i, there);
    for (int i = 0; i < SIM_WARP; i++) {
        if (!in(there, i)) continue;
        if (lane_of(base, i) == run.now)
            run.now->state = READY;
        else
            push(base + i);
    }
}

static unsigned long long lanes(const sim_lanes *l)
{
    thread *t = run.now;
    int index = (int)(t - run.threads), lane = index % SIM_WARP;
    bool odd = l->width < 1 || l->width > SIM_WARP || l->width & (l->width - 1);
    if (!in(l->mask, lane) || odd) stop(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    t->lanes = *l;
    t->state = AT_LANES;
    unsigned there = gathered(index - lane, l);
    if (there)
        meet(index - lane, there);
    else
        leave();
    return t->result;
}

/* Who has ended is no longer waited for. */
static void ended(thread *t)
{
    int index = (int)(t - run.threads), base = index - index % SIM_WARP;
    t->state = DONE;
    run.alive--;
    if (run.arrived && run.arrived == run.alive) release();
    for (int i = 0; i < SIM_WARP; i++) {
        thread *other = lane_of(base, i);
        if (!other || other->state != AT_LANES) continue;
        unsigned there = gathered(base, &other->lanes);
        if (there) meet(base, there);
    }
}

static void begin(void)
{
    run.kernel->body(run.args);
    ended(run.now);
    leave();
}

static void begin_sweep(void)
{
    run.kernel->sweep(run.args);
    leave();
}

static void pause_nothing(void)
{
}

const sim_host sim_host_functions = {barrier, lanes, stop, pause_nothing,
                                     sim_condition_set};

/* Signals of a kernel are faults of the card; others are not ours. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

enum { SIGNALS = sizeof signals / sizeof *signals };

static struct sigaction former[SIGNALS];

static void caught(int signal, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    if (inside)
        stop(signal == SIGSEGV || signal == SIGBUS
                 ? CUDA_ERROR_ILLEGAL_ADDRESS
                 : CUDA_ERROR_ILLEGAL_INSTRUCTION);
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == signal) sigaction(signal, &former[i], NULL);
}

static void catch (bool on)
{
    static char room[64 << 10] __attribute__((aligned(64)));
    static stack_t own;
    struct sigaction a = {.sa_sigaction = caught,
                          .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    stack_t ours = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(on ? &ours : &own, on ? &own : NULL);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], on ? &a : &former[i], on ? &former[i] : NULL);
    inside = on;
}

static void block_sweep(void)
{
    sim_fiber f;
    if (!sim_fiber_new(&f, begin_sweep)) {
        run.fault = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    run.now = NULL;
    sim_fiber_switch(&run.home, &f);
    sim_fiber_free(&f);
}

static void block_fibers(void)
{
    run.alive = run.count, run.arrived = 0;
    run.head = run.waiting = 0;
    for (int i = 0; i < run.count; i++) {
        run.threads[i].state = NEW;
        push(i);
    }
    while (run.waiting && !run.fault) {
        thread *t = pop();
        if (t->state == NEW && !sim_fiber_new(&t->fiber, begin))
            run.fault = CUDA_ERROR_OUT_OF_MEMORY;
        if (run.fault) break;
        t->state = READY;
        run.now = t;
        *run.image->thread = t->place;
        sim_fiber_switch(&run.home, &t->fiber);
        if (t->state == DONE) sim_fiber_free(&t->fiber);
    }
    if (!run.fault && run.alive) run.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
    for (int i = 0; i < run.count && run.alive; i++)
        sim_fiber_free(&run.threads[i].fiber);
}

static void block_run(const sim_launch *l, uint64_t index)
{
    sim_image *m = run.image;
    m->block->x = (unsigned)(index % l->grid[0]);
    m->block->y = (unsigned)(index / l->grid[0] % l->grid[1]);
    m->block->z = (unsigned)(index / l->grid[0] / l->grid[1]);
    if (m->fixed) memset(m->fixed, 0xff, (size_t)(m->fixed_end - m->fixed));
    memset(m->dynamic, 0xff, l->shared);
    if (m->meets)
        block_fibers();
    else
        block_sweep();
}

static void places(const unsigned block[3])
{
    unsigned i = 0;
    for (unsigned z = 0; z < block[2]; z++)
        for (unsigned y = 0; y < block[1]; y++)
            for (unsigned x = 0; x < block[0]; x++)
                run.threads[i++].place = (sim_place){x, y, z};
}

/* An address that no card knows is one that no card can reach. */
static void **checked(sim_card *c, const sim_launch *l)
{
    const sim_kernel *k = l->function->kernel;
    for (int i = 0; i < k->count; i++) {
        uint64_t at;
        if (!k->parameters[i].pointer) continue;
        memcpy(&at, l->args[i], sizeof at);
        if (!at || sim_memory_card(at) || sim_pinned(at)) continue;
        at = (uint64_t)(uintptr_t)c->base;
        memcpy(l->args[i], &at, sizeof at);
    }
    return l->args;
}

/* Beyond what was asked for there is no dynamic shared memory. */
static void fence(sim_image *m, unsigned shared, int how)
{
    enum { PAGE = 4096 };
    size_t room = (shared + PAGE - 1) / PAGE * PAGE;
    mprotect(m->dynamic + room, SIM_DYNAMIC_MOST - room, how);
}

static void peers(sim_card *c, void (*change)(sim_card *))
{
    for (int i = 0; i < SIM_CARDS; i++)
        if (c->peer[i]) change(sim_card_at(i));
}

CUresult sim_launch_run(sim_card *c, const sim_launch *l)
{
    sim_image *m = l->function->module->image;
    int count = (int)(l->block[0] * l->block[1] * l->block[2]);
    uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    run = (struct run){.image = m, .kernel = l->function->kernel};
    run.count = count;
    run.seed = (uint64_t)sim_setting("NABLA_SIM_SEED", 0);
    run.args = checked(c, l);
    run.threads = calloc((size_t)count, sizeof *run.threads);
    run.ready = calloc((size_t)count, sizeof *run.ready);
    if (!run.threads || !run.ready) run.fault = CUDA_ERROR_OUT_OF_MEMORY;
    if (!run.fault) places(l->block);
    *m->block_size = (sim_place){l->block[0], l->block[1], l->block[2]};
    *m->grid_size = (sim_place){l->grid[0], l->grid[1], l->grid[2]};
    *m->host = &sim_host_functions;
    fence(m, l->shared, PROT_NONE);
    sim_kernel_counted();
    peers(c, sim_open);
    catch (true);
    uint64_t first = run.seed ? chance() % blocks : 0;
    for (uint64_t i = 0; i < blocks && !run.fault; i++)
        block_run(l, (first + i) % blocks);
    catch (false);
    peers(c, sim_close);
    fence(m, l->shared, PROT_READ | PROT_WRITE);
    free(run.threads);
    free(run.ready);
    return run.fault;
}
