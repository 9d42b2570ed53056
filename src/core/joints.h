/* joints.h - how a program inside an op meets the call of that op.
 *
 * Loops and branches hand their inputs to programs and take their results from
 * there, each in its own order.  Whoever makes such programs anew, with other
 * values in them, has to know which is which. */
#ifndef NB_CORE_JOINTS_H
#define NB_CORE_JOINTS_H

#include "core/op.h"

enum { NB_MAX_STRANDS = 32 };

/* Where one more value would stand: before these inputs and results of the
 * program, and of the call. */
typedef struct nb_strand {
    int in, out, call_in, call_out;
} nb_strand;

typedef struct nb_joints {
    /* By input of the program: its shape; which input of the call it is, -1 if
     * the program itself has kept it; if it is one step of that, along the
     * first visible axis. */
    int nx;
    nb_shape *shape;
    int *from;
    bool *step;
    /* By result: which of the call's it is, or -1; if those of all turns are
     * stacked there; the input that it is on a later turn, or -1; which run
     * makes it.  Runs of the program come one after the other. */
    int ny;
    int *to, *feeds, *run;
    bool *stacked;
    int nruns;
    int64_t turns; /* of a run; -1: nobody knows */
    /* A value that goes through all runs in their order is a carry of its own in
     * each of the last ones; the first read the first of these. */
    int nstrands;
    nb_strand strand[NB_MAX_STRANDS];
    int more; /* before which input of the call others stand that the program
               * closes over; in it they are the last */
} nb_joints;

/* Of program `region` of a call; false without an error if there is none that
 * could be made anew. */
bool nb_joints_of(const nb_call *c, int region, nb_joints *j);
void nb_joints_free(nb_joints *j);

/* A node for each line of the program, on stand-ins for its inputs that are on a
 * device and of the joints' shapes; lent.  Moves of what is known are made. */
bool nb_joints_nodes(const nb_call *c, int region, const nb_joints *j,
                     int device, nb_tensor **node);

#endif
