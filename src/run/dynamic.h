/* dynamic.h - sizes that are open until a call: which they are, and a member of
 * the family for those of a call. */
#ifndef NB_RUN_DYNAMIC_H
#define NB_RUN_DYNAMIC_H

#include "nabla/compile.h"
#include "run/family.h"
#include "run/recording.h"

typedef struct nb_dynamic nb_dynamic;

/* Of f and the arguments x, as recorded there.  Where the sizes stay those of
 * x, *out is NULL and *why, yours, says so.  False: an error. */
bool nb_dynamic_new(nb_func *f, int nx, nb_tensor *const *x, int ndims,
                    const nb_dynamic_dim *dims, const nb_recording *own,
                    nb_dynamic **out, char **why);
void nb_dynamic_free(nb_dynamic *d);

/* Whether axis a of argument i is open. */
bool nb_dynamic_is(const nb_dynamic *d, int i, int a);

/* The member for x, kept for the caller until nb_dynamic_leave.  The types of x
 * fit but for open sizes. */
const nb_member *nb_dynamic_enter(nb_dynamic *d, int nx, nb_tensor *const *x);
void nb_dynamic_leave(nb_dynamic *d, const nb_member *m);

/* The member used last. */
const nb_member *nb_dynamic_last(nb_dynamic *d);

/* What members donate from now on. */
bool nb_dynamic_donate(nb_dynamic *d, int n, const int *inputs);

#endif
