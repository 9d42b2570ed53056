/* mesh.h - devices along named axes. */
#ifndef NB_SHARD_LAYOUT_MESH_H
#define NB_SHARD_LAYOUT_MESH_H

#include "nabla/shard.h"

enum { NB_MESH_AXES = 8 };

struct nb_mesh {
    const nb_mesh *next; /* of those there are */
    const char *name;
    int naxes, ndevices, rules;
    const char *axis[NB_MESH_AXES];
    int size[NB_MESH_AXES], stride[NB_MESH_AXES];
    const int *device; /* at each position, row-major */
    /* Seconds a message and a byte; not part of what the mesh is. */
    double message[NB_MESH_AXES], byte[NB_MESH_AXES];
};

#endif
