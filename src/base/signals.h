/* signals.h - threads of ours take no signals of the process, which are for its
 * own threads; only those that a thread causes itself. */
#ifndef NB_BASE_SIGNALS_H
#define NB_BASE_SIGNALS_H

#include <signal.h>

/* Of this thread, and of those that it starts, until pthread_sigmask sets it as
 * it was before. */
void nb_signals_block(sigset_t *before);

#endif
