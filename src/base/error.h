/* error.h - the one door for failure.
 *
 * nb_fail is the only way to get an error, so every failure has a message.  It
 * returns NULL, which serves functions that return a pointer and functions
 * that return bool alike; nb_status functions return NB_STATUS(ok). */
#ifndef NB_BASE_ERROR_H
#define NB_BASE_ERROR_H

#include "nabla/base.h"

void *nb_fail(nb_status code, const char *format, ...) NB_PRINTF(2, 3);
bool nb_failed(void);

/* Adds to the notes of the pending error, if there is one, as far as there is
 * room. */
void nb_error_note(const char *format, ...) NB_PRINTF(1, 2);

/* Tells whoever wants to know; false, with an error, if it is to be one. */
bool nb_warn(const char *format, ...) NB_PRINTF(1, 2);

/* Out of memory: allocates nothing itself. */
void *nb_fail_memory(size_t bytes, const char *what);

/* NB_OK, or the code of the failure; one without a cause was a NULL argument
 * that no earlier failure explains. */
nb_status nb_status_of(bool ok);
#define NB_STATUS(ok) nb_status_of(ok)

#endif
