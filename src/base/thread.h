/* thread.h - threads of ours take no signals of the process, which are for its
 * own threads; only those that a thread causes itself. */
#ifndef NB_BASE_THREAD_H
#define NB_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* False, without an error, if the system gives none. */
bool nb_thread_start(pthread_t *t, const char *name, void *(*work)(void *),
                     void *ctx);

/* Calls f(ctx) when the calling thread ends or ends the process, then before all
 * that atexit was told: libraries take themselves apart there, those first that
 * were opened last, and a thread that is still at work in one would fall with
 * it.  False if the system has no such thing. */
bool nb_thread_before_end(void (*f)(void *), void *ctx);

#endif
