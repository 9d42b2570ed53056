/* kernel_source.h - what kernels from sources need, on the CPU and on cards. */
#ifndef NB_RUN_KERNEL_SOURCE_H
#define NB_RUN_KERNEL_SOURCE_H

#include "nabla/custom.h"

/* The folder that nabla/kernel.h is in; NULL with an error.  And a hash of
 * sources with that header. */
const char *nb_kernel_headers(const char *who);
bool nb_kernel_headers_add(const char *who, uint64_t hash[2]);

/* A kernel for a card, compiled and loaded there; lives for ever. */
const struct nb_card_text *nb_kernel_load_there(const nb_kernel_source *k,
                                                int device);

#endif
