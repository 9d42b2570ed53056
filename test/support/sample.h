/* sample.h - calls of catalogue ops for tests: parsed from their examples, or
 * drawn at random in the same shapes. */
#ifndef NB_TEST_SAMPLE_H
#define NB_TEST_SAMPLE_H

#include "ops/ops.h"

enum { MAX_IN = 8, MAX_OUT = 8, MAX_VALUES = 12 };

/* A call of an op: tensors, values of the other arguments. */
typedef struct sample {
    nb_op *op;
    int nin, nval, nout;
    nb_tensor *in[MAX_IN];
    nb_value val[MAX_VALUES];
    int64_t list[MAX_VALUES][16];
    nb_tensor *expected[MAX_OUT]; /* of the example */
} sample;

/* Reads op->example; false with a message on stderr if it cannot. */
bool sample_example(sample *s, nb_op *op);

/* The example with every real input replaced by random float64 in the op's
 * domain; indices and masks stay. */
bool sample_random(sample *s, nb_op *op);

/* Calls the op on these inputs; the number of results, 0 on failure. */
int sample_call(const sample *s, nb_tensor *const *in, nb_tensor **out);

/* Whether input i is one that derivatives flow to. */
bool sample_smooth(const sample *s, int i);

/* What input i might be, of x's shape: real, in the op's domain. */
nb_tensor *sample_input(const nb_op *op, int i, const nb_tensor *x);

void uniform_seed(uint64_t seed);
double uniform(double lo, double hi);
int64_t pick(int64_t n); /* one of 0 .. n - 1 */
nb_tensor *draw_like(const nb_tensor *x, double lo, double hi);
double dot(nb_tensor *x, nb_tensor *y);
bool near(nb_tensor *x, nb_tensor *y, double tolerance);

#endif
