/* steps.h - steps drawn at random, and what they should do, computed plainly:
 * for tests of devices, whatever carries their messages. */
#ifndef NB_TEST_STEPS_H
#define NB_TEST_STEPS_H

#include "comm/comm.h"

enum { SIZES = 4 };

/* A step of a tensor.  Element i of the value that is pending at index p is
 * step_value(s, p, i), small enough for all dtypes and exact in them. */
typedef struct step_case {
    nb_hop step;
    nb_dtype dtype;
    int64_t size[SIZES];
    unsigned seed;
} step_case;

/* The same sequence of cases from the same seed, in every process. */
step_case step_draw(const nb_mesh *m, unsigned *seed);

/* Runs it on this device; whether every element is right.  False with no error
 * set if one is not. */
bool step_holds(nb_device *me, const step_case *c);

/* Bytes that the device at a position of the mesh before a step should receive
 * in it: of a tensor of these sizes, elements of so many bytes. */
int64_t hop_bytes(const nb_hop *h, const int64_t *size, int item, int position);

/* Bytes that the device that receives most should receive. */
int64_t step_bytes(const step_case *c);

unsigned draw_below(unsigned *seed, unsigned n);
void put_number(nb_dtype d, void *data, int64_t i, double value);
double get_number(nb_dtype d, const void *data, int64_t i);

#endif
