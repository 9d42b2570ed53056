/* recipe.h - random programs: lists of calls that take whatever shapes they are
 * given, so that one stays a program when some of its calls are left out. */
#ifndef NB_TEST_RECIPE_H
#define NB_TEST_RECIPE_H

#include "nabla/nabla.h"

enum { MAX_CALLS = 40, RECIPE_IN = 3 };

/* Call k makes value RECIPE_IN + k of values a and b; one that is left out
 * gives a.  p and q say which axis, how much. */
typedef struct recipe_call {
    int op, a, b;
    unsigned p, q;
} recipe_call;

typedef struct recipe {
    int n;
    recipe_call at[MAX_CALLS];
    uint64_t live; /* bit k: call k is there */
    bool smooth;   /* nothing whose derivative depends on ties */
    bool loss;     /* one number that depends on all, else the last value too */
    /* Lays a value out another way; NULL: calls that do so give the value. */
    nb_tensor *(*lay)(nb_tensor *x, unsigned how);
} recipe;

/* Drawn by uniform; and arguments for it, with dims more in front. */
recipe recipe_draw(void);
void recipe_inputs(int lanes, nb_tensor **x);

/* As a function: the number, then the last value. */
nb_status recipe_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y);

/* The names of its calls, in order. */
void recipe_print(const recipe *r);

#endif
