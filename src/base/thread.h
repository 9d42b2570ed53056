/* thread.h - threads of ours take no signals of the process, which are for its
 * own threads; only those that a thread causes itself. */
#ifndef NB_BASE_THREAD_H
#define NB_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* False, without an error, if the system gives none. */
bool nb_thread_start(pthread_t *t, const char *name, void *(*work)(void *),
                     void *ctx);

#endif
