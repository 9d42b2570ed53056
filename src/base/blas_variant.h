/* blas_variant.h - all of one variant of the product, for the definitions that
 * blas_tile.h lists.  blas_own.c makes the first eight, HALVES where 16-bit
 * floats may be widened, WIDEN where there is an instruction that does so with
 * LANES of float16, and PER where numbers are multiplied in pairs; all are
 * undefined here, at the end.  The order of the parts matters. */
#include "base/blas_pack.h"

#ifdef PER
#define MADD(sum, a, b) NAME(madd)(sum, a, b)
#define LIFT            NAME(pair)
#define NARROW          NARROW_PAIRS
#include "base/blas_pair.h"

#include "base/blas_tile.h"
#elif HALVES
#define PER             1
#define MADD(sum, a, b) ((sum) + (a) * (b))
#define LIFT            NAME(widen)
#define NARROW          NAME(narrow_row)
#include "base/blas_lift.h"

#include "base/blas_tile.h"

#include "base/blas_few.h"

#include "base/blas_few_half.h"
#else
#define PER             1
#define MADD(sum, a, b) ((sum) + (a) * (b))
#define LIFT(...)       ((NAME(source)){0})
#define NARROW(...)     ((void)0)
#include "base/blas_tile.h"

#include "base/blas_few.h"
#endif

#undef REAL
#undef NAME
#undef BYTES
#undef ROWS
#undef VECS
#undef LOW
#undef HIGH
#undef TARGET
#undef HALVES
#undef WIDEN
#undef PER
#undef MADD
#undef LIFT
#undef NARROW
