/* spmd_localiser.h - a device's program while it is being made. */
#ifndef NB_RUN_SPMD_LOCALISER_H
#define NB_RUN_SPMD_LOCALISER_H

#include "run/spmd_local.h"
#include "shard/decide/variants.h"
#include "transform/region.h"

typedef struct nb_localiser {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_layouts *lay;
    const nb_mesh *mesh;
    int position, device;      /* and what the device is */
    nb_variants there;         /* values of lines */
    nb_tensor ***part;         /* by line with several results: all of them */
    nb_tensor *const *given;   /* values of the inputs; NULL: stand-ins */
    const bool *needed;        /* lines that are; NULL: all */
    struct nb_localiser *root; /* whose inputs numbers are */
    nb_tensor *token;          /* moves made so far */
    const nb_call *call;       /* that is being made, and what was decided */
    const nb_decision *decision;
    int line; /* of it */
    nb_list in, out, at_number;
    int64_t *number; /* of this device: inputs after all others */
    int nnumbers, room;
} nb_localiser;

bool nb_localiser_begin(nb_localiser *m, const nb_graph *g,
                        nb_tensor *const *node, const nb_layouts *lay,
                        int position);
void nb_localiser_end(nb_localiser *m);

/* Records all lines. */
bool nb_localiser_lines(nb_localiser *m);

/* The value of a line in the layout in which somebody wants it. */
nb_tensor *nb_localiser_value(nb_localiser *m, int line, const nb_spec *want);

/* A number of this device: an input, so that devices share a program. */
nb_tensor *nb_localiser_number(nb_localiser *m, int64_t n);

/* spmd_region.c: a call with several results, on operands that lie as they
 * should; the results become the parts of the line. */
bool nb_localiser_call_many(nb_localiser *m, int line, const nb_call *c,
                            const nb_decision *d, nb_tensor **in);

#endif
