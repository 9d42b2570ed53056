/* emit_point.h - values of a nest that ask where the point is: indices, loads
 * from computed places, random words. */
#ifndef NB_CPU_EMIT_POINT_H
#define NB_CPU_EMIT_POINT_H

#include "backend/cpu/ir.h"
#include "core/op.h"

/* first, first + stride, ... as integers of dtype d; both are int64. */
nb_v nb_emit_index(nb_ir *ir, nb_v first, nb_v stride, int lanes, nb_dtype d);

/* Elements from `at` on, a stride apart, each `by` further; zero, without
 * touching memory, where `when` does not hold.  The last two are numbers or
 * vectors; mask is that of a tail, or NULL. */
typedef struct nb_picked {
    nb_v at, by, when, stride;
    nb_v buffer; /* where the memory begins */
    int lanes;
    const nb_v *mask;
} nb_picked;
nb_v nb_emit_pick(nb_ir *ir, const nb_picked *p, nb_dtype stored);

/* Running totals over the lanes of x, from *total on, which is then what they
 * came to; lanes that are off add nothing. */
typedef struct nb_scanned {
    nb_reduce reduce;
    nb_dtype d;
    bool before; /* without the lane itself */
    const nb_v *mask;
} nb_scanned;
nb_v nb_emit_scan(nb_ir *ir, const nb_scanned *s, nb_v x, nb_v *total);

/* Random words (lower/nest.h), of dtype uint32 or uint64: whose, and which. */
typedef struct nb_stream {
    nb_v key[2];
    int64_t id;
} nb_stream;
nb_v nb_emit_word(nb_ir *ir, const nb_stream *s, nb_dtype d, nb_v number);
/* The first two words of a block. */
nb_v nb_emit_block(nb_ir *ir, const nb_stream *s, nb_v at);
/* Those from word `first` on, two vectors of so many lanes: the same, but every
 * block is computed once.  First is a multiple of the words in a block. */
void nb_emit_words(nb_ir *ir, const nb_stream *s, nb_dtype d, nb_v first,
                   int lanes, nb_v y[2]);

#endif
