/* bool.h - bytes that others call bools.
 *
 * A bool here is a byte that is 0 or 1: sums, casts and logic count on it.
 * Elsewhere any byte but 0 may stand for true, so what comes from there is
 * settled first. */
#ifndef NB_BASE_BOOL_H
#define NB_BASE_BOOL_H

#include <stdbool.h>
#include <stddef.h>

/* Whether n bytes are 0 or 1 each. */
bool nb_bool_is_settled(const void *data, size_t n);

/* Makes bytes that stand for true 1. */
void nb_bool_settle(void *data, size_t n);

#endif
