/* simulate.h - plans carried out on numbers, the slow way: for each element
 * that a device wants, somebody is looked for who has it. */
#ifndef NB_TEST_SIMULATE_H
#define NB_TEST_SIMULATE_H

#include "shard/plan/plan.h"

enum { MAX_DEVICES = 16 };

/* What each device has of a tensor. */
typedef struct world {
    const nb_spec *spec;
    const int64_t *size;
    const int64_t *value; /* of the whole tensor */
    nb_box box[MAX_DEVICES];
    int64_t *block[MAX_DEVICES];
} world;

/* A tensor that lies as `spec` says, addends of what is pending made up. */
world world_new(const nb_spec *spec, const int64_t *size, const int64_t *value);
void world_free(world *w);

/* The world after a step, and elements received, at most by a device.  NULL or
 * what is wrong: something is wanted that nobody in the group has. */
const char *world_step(world *w, const nb_hop *step, int64_t *received);

/* NULL, or what is wrong with the values. */
const char *world_check(const world *w);

/* One of the meshes (2), (4), (2,2), (2,4), (3,2), (2,2,2), or of the first
 * two. */
const nb_mesh *mesh_draw(bool one_axis);

/* A spec of random pieces of the axes, some in dims, some pending. */
const nb_spec *spec_draw(const nb_mesh *m, int rank, nb_reduce kind,
                         bool pending);
unsigned below(unsigned n); /* a random number */

/* Two specs of a small tensor; some sizes are uneven, one or none. */
typedef struct reshard_case {
    const nb_mesh *mesh;
    int rank;
    int64_t size[4], elements;
    const nb_spec *from, *into;
} reshard_case;
reshard_case case_draw(bool pending);
int64_t *case_values(const reshard_case *c); /* random ones; yours to free */

/* Bytes of plans against their bounds, over random pairs of specs. */
typedef struct ratios {
    int minimal;       /* how many reach their bound */
    double worst, all; /* of one pair; of the sums */
} ratios;
ratios reshard_ratios(bool one_axis, bool pending, int pairs,
                      const nb_plan_options *options);

#endif
