/* print.h - a nest as a kernel in CUDA C.
 *
 *     struct args { char *b[buffers]; long long n[parameters]; };
 *     extern "C" __global__ void name(args p);
 *
 * Of a buffer whose loads are given, the pointer is the element itself, its
 * bits the lowest.
 *
 * Equal nests have equal text, so that code is found again by it. */
#ifndef NB_CUDA_PRINT_H
#define NB_CUDA_PRINT_H

#include "backend/cuda/print/walk.h"

typedef struct nb_printed {
    int threads;       /* of a block */
    int64_t per_block; /* units of a block */
    int lanes;         /* points of an outer axis that are one unit */
    int vector, reach; /* that axis, -1: none; points it may begin earlier */
    int tile, along;   /* the axes of tiles, -1: none, and their extents */
    int rise, side;
} nb_printed;

/* Adds its text to t, and says how it is launched. */
bool nb_print_nest(nb_text *t, const nb_nest *x, const char *name,
                   nb_printed *how);

/* Blocks that a launch needs for the sizes of x. */
int64_t nb_printed_blocks(const nb_printed *how, const nb_nest *x);

#endif
