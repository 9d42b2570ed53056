/* point.h - what an op does at one point of its result, where that is more than
 * arithmetic on its inputs there: it asks where the point is, reads inputs in
 * other places, or draws random words.
 *
 * An op says it by building code (`point` in op.h); values are named by their
 * number.  Places are counted in visible axes: lanes pass by. */
#ifndef NB_CORE_POINT_H
#define NB_CORE_POINT_H

#include "core/op.h"

enum { NB_MAX_POINT = 96 };

typedef enum nb_point_kind {
    NB_AT_NUMBER,
    NB_AT_PLACE, /* number + sum of step[d] i_d over the result's axes */
    NB_AT_READ,  /* an input: at the point, or at places along its axes */
    NB_AT_SCALAR,
    NB_AT_CONVERT,
    NB_AT_WORD /* word arg 0 of the stream of the key arg 1, arg 2; or, if that
                * is a uint64, the first two of that block */
} nb_point_kind;

typedef struct nb_point_value {
    nb_point_kind kind;
    nb_dtype dtype;
    nb_scalar scalar;
    int arg[3];
    int64_t number; /* of a word, what it is for, and the stream below that */
    int64_t step[NB_MAX_RANK];
    int input;
    bool elsewhere;      /* at places, not at the point; then */
    int at[NB_MAX_RANK]; /* by axis of the input; -1: the result's */
    int when;            /* a bool, else zero and nothing is read; -1: always */
} nb_point_value;

struct nb_point {
    const nb_call *call;
    int rank; /* of the result */
    int n;
    bool full; /* there was no room for more */
    nb_point_value value[NB_MAX_POINT];
    nb_val result;
};

/* The code of a call, NULL if it is not done so; false if memory ran out. */
bool nb_point_of(const nb_call *c, const nb_tensor *y, nb_point **out);

/* Bit i: input i is read elsewhere than at the point. */
uint64_t nb_point_elsewhere(const nb_point *p);

/* Bodies.  A place is an integer, an index int64. */
#define NB_NO_VAL ((nb_val){-1})
nb_val nb_p_number(nb_point *p, nb_dtype d, int64_t value);
nb_val nb_p_place(nb_point *p, int64_t first, const int64_t *step);
nb_val nb_p_along(nb_point *p, int axis, int64_t first, int64_t step);
nb_val nb_p_read(nb_point *p, int input, nb_dtype d);
nb_val nb_p_read_at(nb_point *p, int input, nb_dtype d, const nb_val *at,
                    nb_val when);
nb_val nb_p_convert(nb_point *p, nb_val x, nb_dtype d);
nb_val nb_p_word(nb_point *p, nb_val number, nb_val key0, nb_val key1,
                 nb_dtype d, uint32_t stream, uint32_t purpose);
/* In the dtype of the last operand. */
nb_val nb_p_scalar(nb_point *p, nb_scalar s, nb_val a, nb_val b, nb_val c);
nb_val nb_p_two(nb_point *p, nb_scalar s, nb_val a, nb_val b);
/* Both, either of which may be NB_NO_VAL: always. */
nb_val nb_p_both(nb_point *p, nb_val a, nb_val b);

#endif
