/* step.h - what the parts of nb_hop_run share: a step on this device. */
#ifndef NB_COMM_STEP_H
#define NB_COMM_STEP_H

#include "comm/comm.h"

typedef struct nb_task {
    nb_device *me;
    const nb_hop *step;
    nb_dtype dtype;
    int on; /* where blocks are: nb_device.on, or the CPU */
    int rank;
    size_t item;
    const int64_t *size;
    const void *in;
    void *out;
    nb_box from, into; /* this device's */
    int64_t wanted;    /* elements of the new block that the tensor has */
    int n, index;      /* devices of the group, and which this one is */
    int *member;       /* positions on the mesh that runs */
    nb_meeting round;
    int64_t received;
} nb_task;

/* One round of it; counts the bytes. */
bool nb_task_exchange(nb_task *t, const nb_post *post);

/* A position on the mesh that runs, on the mesh of a spec, which may arrange the
 * same devices otherwise; and what is there. */
int nb_task_position(const nb_task *t, const nb_spec *s, int position);
void nb_task_box(const nb_task *t, const nb_spec *s, int position, nb_box *box);

/* The part, which lies in both, from the data of a to that of b. */
bool nb_task_copy(const nb_task *t, const nb_box *part, const nb_box *a,
                  const void *from, const nb_box *b, void *to);

/* move.c: blocks change hands; reduce.c, settle.c: and are combined. */
bool nb_step_move(nb_task *t);
bool nb_step_reduce_scatter(nb_task *t);
bool nb_step_all_reduce(nb_task *t);
bool nb_step_reduce_exchange(nb_task *t);

#endif
