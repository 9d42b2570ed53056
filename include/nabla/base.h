/* nabla/base.h - status codes, the error door, and who may call what.
 *
 * A function that can fail returns an nb_status, or a pointer that is NULL on
 * failure.  Either way the reason is kept for the calling thread: the first
 * cause since the error was last cleared, with the code that a caller can act
 * on and a message for people.  NULL handed in as a tensor means that an
 * earlier step failed; the result is then NULL too and the first cause stays,
 * so an expression is checked once, at its end.
 *
 * The library never exits, aborts or prints on account of what it is given.
 *
 * Threads: every function may be called from any thread.  Scopes, errors and
 * defaults belong to the thread; a tensor may be shared between threads once
 * it is kept (nb_keep).  The library computes with threads of its own, which
 * start when first needed, take no signals and are not carried over a fork: the
 * child starts others. */
#ifndef NABLA_BASE_H
#define NABLA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NB_API                 __attribute__((visibility("default")))
#define NB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define NB_API
#define NB_PRINTF(text, first)
#endif

typedef enum nb_status {
    NB_OK = 0,
    NB_EVALUE,    /* shapes, sizes, argument values */
    NB_ETYPE,     /* dtypes that do not combine, wrong kinds of things */
    NB_EINDEX,    /* an index out of range */
    NB_EAXIS,     /* an axis out of range */
    NB_EOVERFLOW, /* a number too large for the dtype, a size for int64 */
    NB_EMEMORY,   /* out of memory */
    NB_ERUNTIME,  /* failing rules, compilers, devices */
    NB_ENOFILE,   /* no such file */
    NB_EKEY,      /* no such name */
    NB_ELATER,    /* promised, not there yet */
    NB_EFLOAT     /* a NaN where none was (nabla/debug.h) */
} nb_status;

/* The code of this thread's pending error, NB_OK if there is none. */
NB_API nb_status nb_error_code(void);

/* Its message, "" if there is none; valid until the error is cleared. */
NB_API const char *nb_error_message(void);

/* Where it was, for people: what the caller last said of its place (NB_HERE),
 * then the transforms that were running, innermost first: "at model.c:12,
 * inside vmap, inside grad".  "" if nobody said. */
NB_API const char *nb_error_notes(void);

/* What is legal but hardly meant.  The library prints nothing: a program that
 * wants to know says so, once, before its threads are many.  The text is lent;
 * false makes the call that warns fail, by an error that was raised or the
 * text. */
typedef bool nb_warning(void *ctx, const char *text);
NB_API void nb_warning_set(nb_warning *f, void *ctx);

/* Forgets the pending error. */
NB_API void nb_error_clear(void);

/* Raises an error from outside the library, say in a callback: for bindings
 * and custom rules.  Keeps the first cause; always returns NULL. */
NB_API void *nb_error_raise(nb_status code, const char *format, ...)
    NB_PRINTF(2, 3);

/* How many threads the library computes with, that of the caller included: what
 * the environment variable NABLA_NUM_THREADS says, or else one for every
 * processor that this process may run on.  No result depends on it. */
NB_API int nb_threads(void);

/* Changes it for the process, from the next computation on; at least 1. */
NB_API nb_status nb_set_threads(int n);

/* The version of the library, "major.minor.patch". */
NB_API const char *nb_version(void);

#ifdef __cplusplus
}
#endif
#endif
