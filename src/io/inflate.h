/* inflate.h - unpacking of deflated data (RFC 1951), from memory to memory. */
#ifndef NB_IO_INFLATE_H
#define NB_IO_INFLATE_H

#include "nabla/base.h"

typedef struct nb_inflated {
    size_t used;       /* bytes read */
    size_t made;       /* bytes written */
    bool full;         /* stopped because there was more than room for */
    const char *fault; /* what is wrong with the data, NULL if nothing */
} nb_inflated;

/* Unpacks the n bytes at `in` into the `room` bytes at `out`.  Never reads or
 * writes beyond either, whatever the data; allocates nothing. */
nb_inflated nb_inflate(const uint8_t *in, size_t n, uint8_t *out, size_t room);

#endif
