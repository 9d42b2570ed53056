/* subject.h - a catalogue op as a function to transform. */
#ifndef NB_TEST_SUBJECT_H
#define NB_TEST_SUBJECT_H

#include "support/check.h"

/* An op as a function: of all inputs but the reals that it holds fixed.  One
 * without reals to differentiate by gets one more argument, and a result in
 * front, which is its first result scaled by that. */
typedef struct subject {
    sample s;
    int nfree, free[MAX_IN];
    bool scaled;
} subject;

bool subject_of(nb_op *op, subject *f, task *g);

bool is_float(nb_tensor *x);

#endif
