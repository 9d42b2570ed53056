/* apply.h - calling an op: from arguments to a recorded node. */
#ifndef NB_CORE_APPLY_H
#define NB_CORE_APPLY_H

#include "core/tensor.h"
#include "nabla/op.h"

typedef struct words {
    int n;
    int64_t at[NB_MAX_WORDS];
} words;

bool nb_pack(const nb_op *op, int nval, const nb_value *val, words *w);
bool nb_settle_axes(nb_call *c);
int64_t *nb_arg_words(nb_call *c, int k);

/* Attribute k: its declaration and its words; NULL past the last. */
const int64_t *nb_arg_find(const nb_call *c, int k, const nb_param **param);
void nb_arg_value(nb_text *t, const nb_param *p, const int64_t *at);
bool nb_arg_print(const nb_call *c, int k, nb_text *t); /* "axis=1" */

/* The op applied; results are added to r (lent).  `caller` is where the user
 * called from, for nodes to remember. */
bool nb_apply_many(nb_op *op, int nin, nb_tensor *const *in, int nval,
                   const nb_value *val, nb_results *r, void *caller);

/* The same for an op with one result. */
nb_tensor *nb_apply(nb_op *op, int nin, nb_tensor *const *in, int nval,
                    const nb_value *val, void *caller);

/* Records a primitive with attributes that are packed and checked already:
 * the way rules repeat a call with other inputs. */
nb_tensor *nb_record(nb_op *op, int nin, nb_tensor *const *in, int nattr,
                     const int64_t *attr);
bool nb_record_many(nb_op *op, int nin, nb_tensor *const *in, int nattr,
                    const int64_t *attr, nb_results *r);

/* Whether a call with packed attributes, such as a text may say, would be
 * recorded just so; may change them. */
bool nb_call_check(nb_call *c);

/* Shape and dtype of result k of a call whose signature is known. */
bool nb_call_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype);

/* The place in the user's program that nodes remember. */
typedef struct nb_site {
    const char *file; /* as was set, or NULL */
    int line;
    void *caller; /* of the outermost C call */
} nb_site;

nb_site nb_site_now(void);

/* What follows is recorded as if from where x was, a rule of x's op say; gives
 * the place it was, to go back to. */
nb_site nb_site_of(const nb_tensor *x);
void nb_site_back(nb_site was);

/* A place that a node or a line remembers, as nb_source_of gives it. */
const char *nb_source_text(const void *source, int line);

/* "part": one result of an op with several. */
extern nb_op nb_op_part;
nb_tensor *nb_part_new(nb_tensor *all, int k, nb_dtype d, const nb_shape *s);

/* x in dtype d: itself, a cast, or a number rewritten. */
nb_tensor *nb_as(nb_tensor *x, nb_dtype d);

#define NB_CALLER __builtin_return_address(0)

#define NB_V_INT(v)                             \
    {                                           \
        .kind = NB_VALUE_INT, .i = (int64_t)(v) \
    }
#define NB_V_FLOAT(v)                    \
    {                                    \
        .kind = NB_VALUE_FLOAT, .f = (v) \
    }
#define NB_V_TEXT(v)                       \
    {                                      \
        .kind = NB_VALUE_TEXT, .text = (v) \
    }
#define NB_V_LIST(m, v)                              \
    {                                                \
        .kind = NB_VALUE_LIST, .n = (m), .list = (v) \
    }
#define NB_V_NONE             \
    {                         \
        .kind = NB_VALUE_NONE \
    }
#define NB_V_DEFAULT             \
    {                            \
        .kind = NB_VALUE_DEFAULT \
    }

/* Brings inputs together that may be anywhere; fails if others are apart. */
bool nb_settle_devices(const char *who, int nin, nb_tensor **in);

#endif
