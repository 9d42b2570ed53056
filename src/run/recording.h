/* recording.h - a function recorded on stand-ins, to be compiled.
 *
 * The inputs of the program are the arguments of the function, then the keys
 * that it draws from the generator of the process, which are drawn anew on each
 * run, then what it closes over. */
#ifndef NB_RUN_RECORDING_H
#define NB_RUN_RECORDING_H

#include "core/graph.h"
#include "nabla/transform.h"

typedef struct nb_recording {
    nb_graph *graph;
    int nkeys, ncaptured;
    nb_tensor **captured; /* kept, realised */
} nb_recording;

/* f on arguments of the dtypes of x and of these shapes, or of x's own where
 * shape is NULL. */
bool nb_recording_make(nb_recording *r, nb_func *f, int nx, nb_tensor *const *x,
                       const nb_shape *shape);
void nb_recording_free(nb_recording *r);

#endif
