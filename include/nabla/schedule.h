/* nabla/schedule.h - orders in which the stages of a pipeline work.
 *
 * M microbatches go forward through S stages and back.  A stage that runs all
 * forwards first keeps M activations; one forward, one backward keeps fewer and
 * takes no longer.  Nothing runs here: a schedule is a table to follow, and to
 * compare others with. */
#ifndef NABLA_SCHEDULE_H
#define NABLA_SCHEDULE_H

#include "nabla/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nb_schedule_kind {
    NB_SCHEDULE_GPIPE,   /* all forwards, then all backwards */
    NB_SCHEDULE_1F1B,    /* as soon as a backward can run, it does */
    NB_SCHEDULE_LOCKSTEP /* a forward and a backward each tick, on all stages
                            alike: for one program that all of them run */
} nb_schedule_kind;

/* What a stage does, and when: of a lock-step schedule a tick holds a forward
 * and a backward, else each takes a slot of its own. */
typedef struct nb_stage_turn {
    int slot, microbatch;
    bool backward;
} nb_stage_turn;

/* The turns of a stage in their order, 2 M of them, and how many slots the
 * whole schedule has, in *slots, and activations the stage keeps at most, in
 * *live; each may be NULL. */
NB_API nb_status nb_schedule(nb_schedule_kind kind, int stages,
                             int microbatches, int stage, nb_stage_turn *turns,
                             int *slots, int *live);

#ifdef __cplusplus
}
#endif
#endif
