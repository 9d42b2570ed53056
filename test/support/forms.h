/* forms.h - calls of ops written as text, "matmul([1, 2], [3, 4]) = 11", to be
 * held to their value, their derivative, their refusal, or to survive without
 * memory.  What laws do for an op's example, these do for its other forms. */
#ifndef NB_TEST_FORMS_H
#define NB_TEST_FORMS_H

#include "nabla/base.h"

/* The call has that value. */
void form_holds(const char *text);

/* With random numbers of the shapes that are written, jvp is a finite
 * difference and vjp is jvp transposed; the value is not looked at. */
void form_derives(const char *text);

/* The call, written without a value, fails with that code and with `why` in its
 * message. */
void form_fails(const char *text, nb_status code, const char *why);

/* Whichever allocation fails, in the call or in its gradient: an error, and no
 * leak. */
void form_survives(const char *text);

#endif
