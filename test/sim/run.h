/* run.h - the launch that runs: there is one at a time.  A team is the threads
 * of a block. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "fiber.h"
#include "sim.h"

typedef enum sim_state {
    SIM_NEW,
    SIM_READY,
    SIM_AT_BARRIER,
    SIM_AT_LANES,
    SIM_DONE
} sim_state;

typedef struct sim_thread {
    sim_fiber fiber;
    sim_place place;
    sim_state state;
    int line, yes; /* of the barrier it waits at */
    sim_lanes lanes;
    unsigned long long result;
} sim_thread;

typedef struct sim_warp {
    unsigned here, gone; /* lanes that wait; that have ended or never were */
    unsigned long long given[SIM_WARP]; /* of SIM_GATHER */
} sim_warp;

typedef struct sim_team {
    sim_place block;
    sim_thread *threads;
    int count, alive, arrived;
    int *ready; /* a ring of threads that can go on; its length is 2^k */
    int ring, head, waiting;
    sim_warp warps[32];
    char *shared; /* its shared memory while another team runs, or NULL */
} sim_team;

typedef struct sim_running {
    sim_image *image;
    const sim_kernel *kernel;
    void **args;
    unsigned shared;
    sim_team *team;
    sim_thread *now; /* NULL: threads that never meet, one after another */
    sim_fiber home;
    uint64_t seed, turns;
    CUresult fault;
} sim_running;

extern sim_running sim_now;

/* meet.c */
extern const sim_host sim_host_functions;
void sim_team_begin(sim_team *t);
void sim_team_step(sim_team *t); /* every thread that is ready, once */
void sim_stop(int code);         /* from inside a kernel; does not return */
void sim_sweep(void);
uint64_t sim_chance(void);

#endif
