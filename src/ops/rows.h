/* rows.h - kernels that compute rows: the ABI of nabla/kernel.h. */
#ifndef NB_OPS_ROWS_H
#define NB_OPS_ROWS_H

#include "core/apply.h"
#include "core/axes.h"
#include "nabla/custom.h"

/* One operand: sizes and strides of all axes, batch axes first, then its own.
 * A batch axis that it does not have has stride 0. */
typedef struct nb_row_operand {
    nb_dtype dtype;
    int n; /* axes */
    int64_t size[NB_MAX_AXES], stride[NB_MAX_AXES];
    bool
        is_apart; /* the axes from `first` on, with so many elements, have to be
                    * copied to where they lie one behind the other */
    int first;
    int64_t count;
} nb_row_operand;

/* A call as its function sees it, but for where its operands are. */
typedef struct nb_row_call {
    int n, nbatch;
    int64_t rows, row; /* row: elements of all operands in one */
    bool by_lane;      /* a call for each */
    struct nb_kernel_args *args;
    nb_row_operand *operand; /* inputs, then results */
} nb_row_call;
bool nb_row_call_open(nb_row_call *r, const nb_call *c);
void nb_row_call_close(nb_row_call *r);

/* Arguments for all lanes, as they are for one. */
void nb_row_call_lane(const nb_row_call *r, const struct nb_kernel_args *all,
                      int64_t lane, struct nb_kernel_args *to);

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

/* Records one call of a kernel over rows: a function of the CPU's, or a text
 * for cards (backend/cuda/custom.h), which lives for ever; the other is NULL. */
typedef struct nb_row_work {
    nb_kernel_fn *fn;
    const struct nb_card_text *there;
} nb_row_work;
bool nb_rows_record(const char *name, const nb_row_work *work, int nin,
                    nb_tensor *const *in, int nattr, const nb_named *attr,
                    int nout, const nb_type *type, nb_results *r);

/* The signature of the op whose body runs in this thread, NULL for none: that
 * of the calls which nb_rows_record records.  Gives the one before. */
const nb_sig *nb_rows_within(const nb_sig *sig);

#endif
