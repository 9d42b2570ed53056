/* dl.h - shared libraries that may or may not be there.
 *
 * Neither function sets an error: what is absent is NULL, and the caller goes
 * on without it.  A library once opened stays open. */
#ifndef NB_BASE_DL_H
#define NB_BASE_DL_H

/* The first library of the NULL-terminated list that can be opened. */
void *nb_dl_open(const char *const *names);

/* A symbol of it or of what it depends on; lib may be NULL. */
void *nb_dl_symbol(void *lib, const char *name);

#endif
