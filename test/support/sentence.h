/* sentence.h - for tests that are sentences over values on the page: a scope
 * around each, what a tensor is, what is refused. */
#ifndef NB_TEST_SENTENCE_H
#define NB_TEST_SENTENCE_H

#include "nabla/nabla.h"

/* Before and after a test: its scope, and that no node is left. */
int open_scope(void **state);
int close_scope(void **state);

void has_shape(nb_tensor *x, int rank, const int64_t *size);

/* No tensor, and the error of a call that says so; it goes. */
void refused(nb_tensor *x, nb_status code, const char *says);

/* Numbers of that dtype; that x has these, up to a relative error. */
nb_tensor *vector(nb_dtype d, int n, const double *v);
void is_near(nb_tensor *x, nb_dtype d, double error, int n,
             const double *expected);

#define VALUES(...)                                                     \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]) \
    {                                                                   \
        __VA_ARGS__                                                     \
    }
#define VECTOR(d, ...)         vector(d, VALUES(__VA_ARGS__))
#define IS(x, d, ...)          is_near(x, d, 0, VALUES(__VA_ARGS__))
#define NEAR(x, d, error, ...) is_near(x, d, error, VALUES(__VA_ARGS__))

#endif
