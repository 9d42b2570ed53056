/* words.h - the cases of an op of the catalogue: it as a function under words of
 * transforms, and on its real inputs in each other dtype.
 *
 * Cases are shared by processes and sampled as in support/there.h; each has a
 * scope of its own.  Ops whose shapes depend on data have none: data is asked
 * for while they are recorded. */
#ifndef NB_TEST_WORDS_H
#define NB_TEST_WORDS_H

#include "support/subject.h"

typedef struct word {
    const char *name;
    int n;
    way way[2]; /* the last applied first */
} word;

/* A case: the function, what of its sample it closes over, how near results
 * have to be to others. */
typedef struct trial {
    const nb_op *op;
    const char *how; /* "vmap vjp ", "f32 " */
    sample *s;
    task *t;
    double tolerance;
} trial;
typedef void trial_fn(const trial *x);

/* Under each of n words. */
void words_each(nb_op *op, int n, const word *all, trial_fn *f);

/* Under no transform and the usual ones, alone and in pairs. */
void words_usual(nb_op *op, trial_fn *f);

/* In each dtype but those that are left out (NULL: none) and those in which the
 * op has no value. */
void words_dtypes(nb_op *op, bool (*left_out)(const nb_op *op, nb_dtype d),
                  trial_fn *f);

#endif
