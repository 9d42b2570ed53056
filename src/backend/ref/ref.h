/* ref.h - the reference executor: runs one call on realised inputs.
 *
 * Plain and correct, the oracle of other backends.  It looks at structure, not
 * at names: an op that has a view is a view, one with a scalar body is a loop
 * nest (or a matrix product, if it multiplies two operands and sums), one with
 * a kernel is called at each batch point. */
#ifndef NB_REF_REF_H
#define NB_REF_REF_H

#include "core/axes.h"

/* Where a result lives; strides are allocated, or NULL for row-major. */
typedef struct nb_placed {
    nb_buffer *buffer; /* owned */
    char *data;
    int64_t *strides;
} nb_placed;

/* Runs the call of node y.  False with an error set. */
bool nb_ref_run(const nb_call *c, nb_tensor *y, nb_placed *out);

/* The pieces, by structure. */
bool nb_ref_view(const nb_call *c, nb_tensor *y, nb_placed *out, bool *done);
bool nb_ref_part(const nb_call *c, nb_placed *out);
bool nb_ref_loop(const nb_call *c, nb_tensor *y, char *to);
bool nb_ref_contract(const nb_call *c, nb_tensor *y, char *to, bool *done);
bool nb_ref_kernel(const nb_call *c, nb_tensor *y, char *const *to);

/* The work of a call that is no view, into memory of the results' sizes. */
bool nb_ref_compute(const nb_call *c, nb_tensor *y, char *const *to);

#endif
