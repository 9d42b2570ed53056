/* dims.h - several dims as one number, for kernels.
 *
 * Operands share the sizes and have strides of their own; dims that one step
 * walks in all of them are joined.  The struct travels to kernels by value: its
 * text there is dims.cu. */
#ifndef NB_CUDA_OPS_DIMS_H
#define NB_CUDA_OPS_DIMS_H

#include "core/batch.h"

enum { NB_DIMS_MOST = 8, NB_DIMS_OPERANDS = 4 };

typedef struct nb_dims {
    int64_t n, count;
    int64_t size[NB_DIMS_MOST];
    int64_t stride[NB_DIMS_OPERANDS][NB_DIMS_MOST]; /* elements */
} nb_dims;

nb_dims nb_dims_none(void); /* one place */

/* Adds a dim inside those so far; strides by operand.  False without an error
 * if there is no room. */
bool nb_dims_add(nb_dims *d, int64_t size, int operands, const int64_t *stride);

/* Adds the dims of a batch, with the steps of some of its operands. */
bool nb_dims_add_batch(nb_dims *d, const nb_batch *b, int operands,
                       const int *operand);

/* For sources: types and dims; load_f16, store_bf16 and so on. */
extern const char nb_dims_text[];
extern const char nb_halves_text[];

/* The name of the type of an element in memory; 16-bit floats are bits. */
const char *nb_card_type(nb_dtype d);

/* Defines a name as that type; LOAD_name of an element is a number, and
 * STORE_name of a number an element. */
void nb_card_define(nb_text *t, const char *name, nb_dtype d);

/* Types and dims, and for elements of a dtype: T, as bits; K, a key; TOP, the
 * highest bit of those that count; key_of(x). */
void nb_card_keys_text(nb_text *t, nb_dtype d);

#endif
