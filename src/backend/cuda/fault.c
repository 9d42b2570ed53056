/* fault.c - results of the driver's calls, and cards that have failed.
 *
 * A fault is met by a call that had no part in it.  What can be said is which
 * kernels had been launched and were not known to have ended: the last few
 * names are kept for that. */
#define _GNU_SOURCE
#include "backend/cuda/parts.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* Results after which a context is of no use. */
bool nb_card_is_fault(int result)
{
    static const short faults[] = {
        214, /* ECC_UNCORRECTABLE */
        220, /* NVLINK_UNCORRECTABLE */
        226, /* CONTAINED */
        700, /* ILLEGAL_ADDRESS */
        702, /* LAUNCH_TIMEOUT */
        709, /* CONTEXT_IS_DESTROYED */
        710, /* ASSERT */
        714, /* HARDWARE_STACK_ERROR */
        715, /* ILLEGAL_INSTRUCTION */
        716, /* MISALIGNED_ADDRESS */
        717, /* INVALID_ADDRESS_SPACE */
        718, /* INVALID_PC */
        719, /* LAUNCH_FAILED */
        721, /* TENSOR_MEMORY_LEAK */
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (result == faults[i]) return true;
    return false;
}

/* Appends; what does not fit is left out. */
static void add(nb_card *c, const char *before, const char *text)
{
    size_t n = strlen(c->fault);
    snprintf(c->fault + n, sizeof c->fault - n, "%s%s", before, text);
}

struct nb_card_names {
    atomic_int references;
    char text[];
};

nb_card_names *nb_card_names_new(const char *text)
{
    size_t n = strlen(text) + 1;
    nb_card_names *new = nb_alloc(sizeof *new + n);
    if (!new) return NULL;
    new->references = 1;
    memcpy(new->text, text, n);
    return new;
}

const char *nb_card_names_text(const nb_card_names *n)
{
    return n->text;
}

void nb_card_names_drop(nb_card_names *n)
{
    if (n && atomic_fetch_sub(&n->references, 1) == 1) nb_free(n);
}

/* What was launched as number n. */
static const char *name_of(const nb_card *c, uint64_t n)
{
    const nb_card_names *all = c->recent[n % NB_CARD_RECENT].all;
    return all ? all->text : c->recent[n % NB_CARD_RECENT].what;
}

/* With a lock held, unless it is a card that is being started. */
static void add_suspects(nb_card *c)
{
    uint64_t from = c->done, n = c->launched;
    if (n == from) return;
    if (n - from == 1 && !c->recent[from % NB_CARD_RECENT].all) {
        add(c, " in ", name_of(c, from));
        return;
    }
    if (n - from > NB_CARD_RECENT) from = n - NB_CARD_RECENT;
    add(c, ", in one of these or before: ", name_of(c, from));
    while (++from < n)
        add(c, "; ", name_of(c, from));
    add(c, "", " (NABLA_CUDA_SYNC=1 finds the one)");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all faults */

static void mark(nb_card *c, int result, const char *what)
{
    pthread_mutex_lock(&lock);
    if (!c->faulted) {
        snprintf(c->fault, sizeof c->fault, "GPU %d (%s) failed: %s", c->id,
                 c->name, nb_cuda_text(result));
        add_suspects(c);
        if (c->launched == c->done) add(c, ", met by ", what);
        c->faulted = true;
    }
    pthread_mutex_unlock(&lock);
}

bool nb_card_check(nb_card *c, int result, const char *what)
{
    if (result == 0) return true;
    if (nb_card_is_fault(result)) {
        mark(c, result, what);
        return nb_card_ok(c);
    }
    return nb_fail(result == NB_CUDA_OUT_OF_MEMORY ? NB_EMEMORY : NB_ERUNTIME,
                   "GPU %d: %s (%s)", c->id, what, nb_cuda_text(result));
}

bool nb_card_ok(nb_card *c)
{
    if (c->faulted) return nb_fail(NB_ERUNTIME, "%s", c->fault);
    if (nb_cuda_forked())
        return nb_fail(NB_ERUNTIME,
                       "GPU %d: a process forked after the driver was started "
                       "cannot use it",
                       c->id);
    return true;
}

/* What a graph is made of was not launched. */
void nb_card_launched(nb_card *c, const char *what)
{
    if (nb_card_captures(c)) return;
    pthread_mutex_lock(&lock);
    int at = (int)(c->launched++ % NB_CARD_RECENT);
    char *to = c->recent[at].what;
    if (!memccpy(to, what, '\0', sizeof c->recent[at].what))
        to[sizeof c->recent[at].what - 1] = '\0';
    nb_card_names *old = c->recent[at].all;
    c->recent[at].all = NULL;
    pthread_mutex_unlock(&lock);
    nb_card_names_drop(old);
}

void nb_card_launched_all(nb_card *c, nb_card_names *what)
{
    atomic_fetch_add(&what->references, 1);
    pthread_mutex_lock(&lock);
    int at = (int)(c->launched++ % NB_CARD_RECENT);
    nb_card_names *old = c->recent[at].all;
    c->recent[at].all = what;
    pthread_mutex_unlock(&lock);
    nb_card_names_drop(old);
}

uint64_t nb_card_launches(nb_card *c)
{
    pthread_mutex_lock(&lock);
    uint64_t n = c->launched;
    pthread_mutex_unlock(&lock);
    return n;
}

void nb_card_was_elsewhere(nb_card *c, const char *op)
{
    pthread_mutex_lock(&lock);
    c->elsewhere++;
    snprintf(c->elsewhere_last, sizeof c->elsewhere_last, "%s", op);
    pthread_mutex_unlock(&lock);
}

uint64_t nb_card_elsewhere(nb_card *c, char last[64])
{
    pthread_mutex_lock(&lock);
    uint64_t n = c->elsewhere;
    memcpy(last, c->elsewhere_last, sizeof c->elsewhere_last);
    pthread_mutex_unlock(&lock);
    return n;
}

/* Nobody will ask for the names of what ended well. */
void nb_card_ended(nb_card *c, uint64_t n)
{
    nb_card_names *old[NB_CARD_RECENT];
    int nold = 0;
    pthread_mutex_lock(&lock);
    uint64_t k = c->done;
    if (c->launched - k > NB_CARD_RECENT) k = c->launched - NB_CARD_RECENT;
    for (; k < n; k++) {
        old[nold++] = c->recent[k % NB_CARD_RECENT].all;
        c->recent[k % NB_CARD_RECENT].all = NULL;
    }
    if (n > c->done) c->done = n;
    pthread_mutex_unlock(&lock);
    while (nold)
        nb_card_names_drop(old[--nold]);
}
