/* mesh.h - devices along named axes. */
#ifndef NB_SHARD_LAYOUT_MESH_H
#define NB_SHARD_LAYOUT_MESH_H

#include "nabla/shard.h"

#include <stdatomic.h>

enum { NB_MESH_AXES = 8 };

struct nb_mesh {
    const nb_mesh *next; /* of those there are */
    const char *name;
    int naxes, ndevices, rules;
    const char *axis[NB_MESH_AXES];
    int size[NB_MESH_AXES], stride[NB_MESH_AXES];
    const int *device; /* at each position, row-major */
    const int *on;    /* what they were said to be (nabla/device.h), or NULL: */
    int by_default;   /* the device in force when the mesh was made */
    int *place, home; /* mesh_place.c: what they are, and the first one here */
    atomic_bool located;
    /* Seconds a message and a byte; not part of what the mesh is. */
    double message[NB_MESH_AXES], byte[NB_MESH_AXES];
};

/* By position: 0 the CPU, 1 + k card k.  Of devices of other processes what they
 * are there, if all machines have as many cards. */
const int *nb_mesh_places(const nb_mesh *m);

/* What the first device of this process is: tensors on the mesh are said to be
 * there. */
int nb_mesh_home(const nb_mesh *m);

/* Whether devices of the same number are the same. */
bool nb_mesh_shares(const nb_mesh *a, const nb_mesh *b);

/* Finds the places of a mesh whose devices were not said; run/ sets it. */
extern void (*const nb_mesh_locator)(const nb_mesh *m, int *place);

#endif
