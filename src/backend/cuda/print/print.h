/* print.h - a nest as a kernel in CUDA C.
 *
 *     struct args { char *b[buffers]; long long n[parameters]; };
 *     extern "C" __global__ void name(args p);
 *
 * Of a buffer whose loads are given, the pointer is the element itself, its
 * bits the lowest.
 *
 * Equal nests have equal text, so that code is found again by it.
 *
 * A kernel for several nests at once has the blocks of one after those of
 * another.  The number of units, and the whole size of an axis that was cut, are
 * parameters of each member:
 *
 *     struct one { char *b[buffers]; long long n[2]; };
 *     struct args { one m[members]; unsigned first[members]; };
 *
 * first: the first block of each, and of those that are not there the largest
 * number there is.  Nests that such a kernel is right for have the same text. */
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
    int members; /* of a kernel for several nests: at most; or 0 */
} nb_printed;

enum {
    NB_MEMBER_TOTAL, /* the numbers of a member */
    NB_MEMBER_CUT,
    NB_MEMBER_NUMBERS
};

/* Adds its text to t, and says how it is launched. */
bool nb_print_nest(nb_text *t, const nb_nest *x, const char *name,
                   nb_printed *how);

/* The same for as many nests as arguments of so many bytes hold; how->members
 * is less than 2 if that is not worth it. */
bool nb_print_nests(nb_text *t, const nb_nest *x, const char *name, size_t room,
                    nb_printed *how);

/* Bytes of a member; of all arguments. */
size_t nb_member_bytes(const nb_nest *x);
size_t nb_members_bytes(const nb_printed *how, const nb_nest *x);

/* Units as a kernel counts them, vectors as one. */
int64_t nb_printed_units(const nb_printed *how, const nb_nest *x);

/* Blocks that a launch needs for the sizes of x. */
int64_t nb_printed_blocks(const nb_printed *how, const nb_nest *x);

#endif
