/* card_wake.c - cuBLASLt is opened while the process prepares its data: it takes
 * a sixth of a second to load and to answer for the first time, and most of
 * what runs on a card multiplies.
 *
 * The thread allocates nothing of ours and ends by itself; who leaves the
 * process waits for it, and so does the thread that had a card first, which most
 * often is the one that leaves: only then the library is still whole.  One that
 * the environment names is opened when it is needed and not before. */
#include "run/card_parts.h"

#include "base/thread.h"

#include <stdlib.h>

static struct {
    atomic_bool asked, running;
    pthread_t thread;
} wake;

static void *work(void *card)
{
    nb_blaslt_wake(card);
    return NULL;
}

static void wait_for_it(void)
{
    if (atomic_exchange(&wake.running, false)) pthread_join(wake.thread, NULL);
}

static void wait_before(void *unused)
{
    (void)unused;
    wait_for_it();
}

/* The child of a fork has no such thread. */
static void forget(void)
{
    wake.running = false;
}

static void start(nb_card *c)
{
    if (atexit(wait_for_it) || pthread_atfork(NULL, NULL, forget)) return;
    nb_thread_before_end(wait_before, NULL);
    wake.running = nb_thread_start(&wake.thread, "nabla libraries", work, c);
}

void nb_card_wake(nb_card *c)
{
    if (wake.asked || atomic_exchange(&wake.asked, true)) return;
    const char *named[] = {getenv("NABLA_CUDA_DRIVER"),
                           getenv("NABLA_CUBLASLT")};
    if (!named[0] && !named[1]) start(c);
}
