/* rows.h - kernels that compute rows: the ABI of nabla/kernel.h. */
#ifndef NB_OPS_ROWS_H
#define NB_OPS_ROWS_H

#include "core/apply.h"
#include "nabla/custom.h"

/* For ops with `rows`: the work of a call.  An op whose signature is its own
 * has rows along "..." and the lanes, computed by several threads; one whose
 * signature is nb_rows_sign's is called once a lane. */
bool nb_rows_execute(const nb_call *c, char *const *to);

/* The signature of a call without one, where no dim has a partner; a result of
 * a type that is given, against what a signature says of it. */
bool nb_rows_sign(const nb_call *c, int nout, const nb_type *type,
                  nb_text *sig);
bool nb_rows_type(const nb_call *c, int k, const nb_type *type, nb_shape *out,
                  nb_dtype *dtype);

/* Whether a kernel can have this signature; who begins the message. */
bool nb_rows_check(const char *who, const nb_sig *sig);

/* Records one call of a function over rows. */
bool nb_rows_record(const char *name, nb_kernel_fn *fn, int nin,
                    nb_tensor *const *in, int nattr, const nb_named *attr,
                    int nout, const nb_type *type, nb_results *r);

/* The signature of the op whose body runs in this thread, NULL for none: that
 * of the calls which nb_rows_record records.  Gives the one before. */
const nb_sig *nb_rows_within(const nb_sig *sig);

#endif
