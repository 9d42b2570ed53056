/* local.h - devices of one process that meet in memory.
 *
 * Who takes part in a round posts what it sends and receives, waits until all
 * that it receives from have posted theirs, copies straight out of their
 * memory, and waits until its own messages are read.  Rounds are numbered the
 * same on all devices, so two posts belong together if their numbers are equal;
 * where they then say different things, or one has passed the number that the
 * other waits in, the programs differ.
 *
 * Messages to and from devices of other processes go along: see hall.h. */
#ifndef NB_COMM_LOCAL_H
#define NB_COMM_LOCAL_H

#include "comm/comm.h"

/* What carries messages over that mesh: memory alone if all its devices are
 * here. */
nb_link *nb_link_get(const nb_mesh *m);

/* The process that has a device: they are dealt out by number, so that all
 * meshes of the same devices have them in the same place. */
int nb_device_rank(const nb_mesh *m, int position);

/* "all_gather f32[4, 6] at model.py:12" */
enum { NB_WHERE = 256 };
const char *nb_round_text(const nb_meeting *r, char text[NB_WHERE]);

/* Seconds on a clock that only goes forward. */
double nb_clock(void);

#endif
