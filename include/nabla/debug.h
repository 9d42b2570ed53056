/* nabla/debug.h - looking for what went wrong, and for where time goes.
 *
 * Watched ops run one by one, also those of compiled functions, and fail at the
 * place in the program that called them. */
#ifndef NABLA_DEBUG_H
#define NABLA_DEBUG_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What this thread watches from now on; gives what it watched before.
 * NB_DEBUG_NANS: an op that makes a NaN of inputs without one fails, NB_EFLOAT;
 * the message says which op, where it was called, and whether in the forward or
 * the backward pass.  NB_DEBUG_BOUNDS: an index out of range, which otherwise
 * names the nearest element or none, fails: NB_EINDEX. */
enum { NB_DEBUG_NANS = 1, NB_DEBUG_BOUNDS = 2 };
NB_API unsigned nb_debug_set(unsigned what);
NB_API unsigned nb_debug_get(void);

/* Whether every run of compiled code is followed by its ops one by one, and the
 * results compared, in this process: NABLA_CHECK=1 in the environment, or what
 * was set last.  A difference beyond rounding is NB_ERUNTIME; the message names
 * the first op that differs. */
NB_API void nb_check_set(bool on);
NB_API bool nb_check_get(void);

/* Prints a line when the values are computed: at once, or, if the function that
 * calls it is being recorded, whenever what was recorded runs; once for each
 * lane of a vmap.  {} stands for the next tensor, {0} for the first, {{ for a
 * brace; {:.3f} and the like, of scalars alone, as printf would. */
NB_API nb_status nb_debug_print(const char *format, int n, nb_tensor *const *x);

/* Where lines go from now on, in this process: NULL stands for stdout. */
NB_API void nb_print_to(void (*put)(void *ctx, const char *line), void *ctx);

/* From now on times are taken of every step of every executable, every op that
 * runs by itself, and all compiling; and of the memory in use.  Stop writes them
 * to the file: a JSON array of events, as Chrome and Perfetto show them.
 * NB_ERUNTIME if a profile is being taken already, or none is; NB_ENOFILE if the
 * file cannot be made. */
NB_API nb_status nb_profile_start(const char *path);
NB_API nb_status nb_profile_stop(void);

#ifdef __cplusplus
}
#endif
#endif
