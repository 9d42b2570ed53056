/* closed.h - what functions close over while programs are recorded.
 *
 * A custom rule runs when derivatives are taken, which for the body of a loop is
 * after the body was recorded: what it closes over then stands for values of
 * that recording, not of the run that is differentiated.  So whatever calls such
 * a function takes the stand-ins of the recordings around it as inputs of its
 * own, and when the rule has run they are replaced by what those are by then. */
#ifndef NB_TRANSFORM_CLOSED_H
#define NB_TRANSFORM_CLOSED_H

#include "transform/region.h"

/* Stand-ins, and what they are now.  While they are recorded that is themselves,
 * and the list may grow. */
typedef struct nb_closed {
    struct nb_closed *around;
    const nb_list *recorded; /* or NULL */
    int n;
    nb_tensor *const *was, *const *now;
} nb_closed;
void nb_closed_record(nb_closed *c, const nb_list *x);
void nb_closed_open(nb_closed *c, int n, nb_tensor *const *was,
                    nb_tensor *const *now);
void nb_closed_close(nb_closed *c);

/* Whether this thread records something. */
bool nb_is_recording(void);

/* All that this thread has open, added to the lists, each once. */
bool nb_closed_list(nb_list *was, nb_list *now);

/* y with each `was` that it depends on replaced; `given` are nodes behind which
 * none is. */
typedef struct nb_swap {
    int n;
    nb_tensor *const *was, *const *now;
    int ngiven;
    nb_tensor *const *given;
} nb_swap;
bool nb_closed_swap(const nb_swap *s, int ny, nb_tensor **y);

#endif
