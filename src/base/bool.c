/* bool.c - bytes that others call bools.  Loops have no branches, so that they
 * are vectorised. */
#include "base/bool.h"

#include <stdint.h>

bool nb_bool_is_settled(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint8_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= p[i];
    return all <= 1;
}

void nb_bool_settle(void *data, size_t n)
{
    uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        p[i] = p[i] != 0;
}
