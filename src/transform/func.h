/* func.h - functions as values: what transforms are made of. */
#ifndef NB_TRANSFORM_FUNC_H
#define NB_TRANSFORM_FUNC_H

#include "core/tensor.h"
#include "nabla/nabla.h"

enum { NB_MAX_RESULTS = 4096 };

/* A function made from another: body is called with a pointer to this. */
typedef struct nb_made {
    nb_func *of; /* kept */
    int n;
    int32_t argument[];
} nb_made;

/* A transform of f with n numbers of its own; NULL if f is. */
nb_func *nb_func_made(nb_func *f, nb_body *body, int n, const int *numbers);

/* f, which is called by that name in the notes of what fails in it.  The name
 * lives on. */
nb_func *nb_func_named(nb_func *f, const char *name);

/* The same for a function of the caller's: another that calls it. */
nb_func *nb_func_inside(nb_func *f, const char *name);

/* f, which lends its results and nothing else, and needs no scope for it. */
nb_func *nb_func_tidy(nb_func *f);

/* The ctx of a function with that body, NULL of any other. */
void *nb_func_ctx(const nb_func *f, nb_body *body);

/* Arrays of tensors for a call. */
nb_tensor **nb_array(int n);

/* y = f(x) in a scope of its own, results lent by the one around it. */
bool nb_run(nb_func *f, int nx, nb_tensor *const *x, int *ny, nb_tensor **y);

/* g, or zeros like x where none flowed. */
nb_tensor *nb_or_zeros(nb_tensor *g, nb_tensor *x);

#endif
