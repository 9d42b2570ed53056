/* convert.h - elements from one dtype to another.
 *
 * To bool: is it nonzero (a NaN is).  Float to integer: towards zero, held at
 * the ends of the range, NaN gives 0.  Integer to integer: modulo 2^bits.  To
 * floating: rounded once, to nearest even, from the exact value. */
#ifndef NB_CORE_CONVERT_H
#define NB_CORE_CONVERT_H

#include "nabla/dtype.h"

/* Converts n elements.  Strides count elements; from_stride may be zero or
 * negative, to_stride is not zero.  Pointers are aligned to their elements and
 * the two ranges do not overlap. */
void nb_convert(void *to, nb_dtype to_type, int64_t to_stride, const void *from,
                nb_dtype from_type, int64_t from_stride, int64_t n);

/* One element, by the same rules. */
double nb_read_f64(const void *at, nb_dtype d);
int64_t nb_read_i64(const void *at, nb_dtype d);
void nb_write_f64(void *at, nb_dtype d, double x);
void nb_write_i64(void *at, nb_dtype d, int64_t x);

#endif
