/* format.h - the text of an array, as a printed tensor shows it.
 *
 * The text is NumPy's, with four digits after the point, small values
 * suppressed, three items at each edge of a long axis once there are more than
 * six elements, and no folding of lines. */
#ifndef NB_CORE_FORMAT_H
#define NB_CORE_FORMAT_H

#include "base/text.h"
#include "nabla/dtype.h"

/* Adds the text; strides count elements.  Lines after the first begin with
 * `indent` (blank ones between blocks of rows do not).  False: no memory. */
bool nb_format(nb_text *t, nb_dtype d, int rank, const int64_t *size,
               const int64_t *stride, const void *data, const char *indent);

#endif
