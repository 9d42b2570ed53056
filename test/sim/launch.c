/* launch.c - running a grid: block after block, or all of them in turns where
 * the launch is cooperative.  Threads that can never all arrive, and signals,
 * end the launch. */
#define _GNU_SOURCE
#include "run.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Signals of a kernel are faults of the card; others are not ours. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

enum { SIGNALS = sizeof signals / sizeof *signals };

static struct sigaction former[SIGNALS];
static _Thread_local volatile bool inside;

static void caught(int signal, siginfo_t *info, void *context)
{
    (void)context;
    bool address = signal == SIGSEGV || signal == SIGBUS;
    if (inside && address && sim_touch((uintptr_t)info->si_addr)) return;
    if (inside)
        sim_stop(address ? CUDA_ERROR_ILLEGAL_ADDRESS
                         : CUDA_ERROR_ILLEGAL_INSTRUCTION);
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == signal) sigaction(signal, &former[i], NULL);
}

static void take_signals(bool on)
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

/* Shared memory: nothing is in it when a block begins. */
static size_t fixed_bytes(void)
{
    const sim_image *m = sim_now.image;
    return m->fixed ? (size_t)(m->fixed_end - m->fixed) : 0;
}

static void shared_clear(void)
{
    sim_image *m = sim_now.image;
    if (m->fixed) memset(m->fixed, 0xff, fixed_bytes());
    memset(m->dynamic, 0xff, sim_now.shared);
}

static void shared_load(const sim_team *t)
{
    sim_image *m = sim_now.image;
    if (m->fixed) memcpy(m->fixed, t->shared, fixed_bytes());
    memcpy(m->dynamic, t->shared + fixed_bytes(), sim_now.shared);
}

static void shared_save(sim_team *t)
{
    sim_image *m = sim_now.image;
    if (m->fixed) memcpy(t->shared, m->fixed, fixed_bytes());
    memcpy(t->shared + fixed_bytes(), m->dynamic, sim_now.shared);
}

/* Teams. */
static void team_free(sim_team *t)
{
    for (int i = 0; t->threads && i < t->count; i++)
        sim_fiber_free(&t->threads[i].fiber);
    free(t->threads);
    free(t->ready);
    free(t->shared);
}

static bool team_new(sim_team *t, const unsigned block[3])
{
    int i = 0;
    *t = (sim_team){.count = (int)(block[0] * block[1] * block[2])};
    t->threads = calloc((size_t)t->count, sizeof *t->threads);
    for (t->ring = 1; t->ring < t->count;)
        t->ring *= 2;
    t->ready = calloc((size_t)t->ring, sizeof *t->ready);
    if (!t->threads || !t->ready) return false;
    for (unsigned z = 0; z < block[2]; z++)
        for (unsigned y = 0; y < block[1]; y++)
            for (unsigned x = 0; x < block[0]; x++)
                t->threads[i++].place = (sim_place){x, y, z};
    return true;
}

static sim_place place_of(const unsigned grid[3], uint64_t index)
{
    return (sim_place){(unsigned)(index % grid[0]),
                       (unsigned)(index / grid[0] % grid[1]),
                       (unsigned)(index / grid[0] / grid[1])};
}

static void block_run(sim_team *t)
{
    shared_clear();
    if (!sim_now.image->meets) {
        sim_sweep();
        return;
    }
    sim_team_begin(t);
    while (t->waiting && !sim_now.fault)
        sim_team_step(t);
    if (!sim_now.fault && t->alive)
        sim_now.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
}

static void blocks_in_order(const sim_launch *l, uint64_t blocks)
{
    sim_team t;
    if (!team_new(&t, l->block)) sim_now.fault = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t first = sim_now.seed ? sim_chance() % blocks : 0;
    for (uint64_t i = 0; i < blocks && !sim_now.fault; i++) {
        *sim_now.image->block = place_of(l->grid, (first + i) % blocks);
        block_run(&t);
    }
    team_free(&t);
}

/* Rounds of turns, until nobody can go on. */
static void rounds(sim_team *teams, uint64_t count)
{
    bool moved = true;
    while (moved && !sim_now.fault) {
        moved = false;
        for (uint64_t i = 0; i < count && !sim_now.fault; i++) {
            if (!teams[i].waiting) continue;
            *sim_now.image->block = teams[i].block;
            shared_load(&teams[i]);
            sim_team_step(&teams[i]);
            shared_save(&teams[i]);
            moved = true;
        }
    }
    for (uint64_t i = 0; i < count && !sim_now.fault; i++)
        if (teams[i].alive) sim_now.fault = CUDA_ERROR_ILLEGAL_INSTRUCTION;
}

static void blocks_together(const sim_launch *l, uint64_t blocks)
{
    sim_team *teams = calloc(blocks, sizeof *teams);
    bool good = teams != NULL;
    for (uint64_t i = 0; i < blocks && good; i++) {
        sim_team *t = &teams[i];
        good = team_new(t, l->block);
        t->block = place_of(l->grid, i);
        t->shared = malloc(fixed_bytes() + sim_now.shared + 1);
        good = good && t->shared;
        if (!good) break;
        memset(t->shared, 0xff, fixed_bytes() + sim_now.shared);
        sim_team_begin(t);
    }
    if (good)
        rounds(teams, blocks);
    else
        sim_now.fault = CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = 0; teams && i < blocks; i++)
        team_free(&teams[i]);
    free(teams);
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
static void fence(const sim_launch *l, int how)
{
    enum { PAGE = 4096 };
    size_t room = (l->shared + PAGE - 1) / PAGE * PAGE;
    mprotect(sim_now.image->dynamic + room, SIM_DYNAMIC_MOST - room, how);
}

static void peers(sim_card *c, void (*change)(sim_card *))
{
    for (int i = 0; i < SIM_CARDS; i++)
        if (c->peer[i]) change(sim_card_at(i));
}

CUresult sim_launch_run(sim_card *c, const sim_launch *l)
{
    sim_image *m = l->function->module->image;
    uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    sim_now = (sim_running){.image = m,
                            .kernel = l->function->kernel,
                            .args = checked(c, l),
                            .shared = l->shared};
    sim_now.seed = (uint64_t)sim_setting("NABLA_SIM_SEED", 0);
    *m->block_size = (sim_place){l->block[0], l->block[1], l->block[2]};
    *m->grid_size = (sim_place){l->grid[0], l->grid[1], l->grid[2]};
    *m->host = &sim_host_functions;
    sim_kernel_counted();
    peers(c, sim_open);
    fence(l, PROT_NONE);
    take_signals(true);
    if (l->together)
        blocks_together(l, blocks);
    else
        blocks_in_order(l, blocks);
    take_signals(false);
    fence(l, PROT_READ | PROT_WRITE);
    peers(c, sim_close);
    return sim_now.fault;
}
