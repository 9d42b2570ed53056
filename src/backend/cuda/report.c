/* report.c - what kernels of users' own say of themselves.
 *
 * They store a status in memory of the host, pinned, which costs nothing where
 * they have nothing to say; whoever has waited for the card looks at it. */
#include "backend/cuda/custom.h"
#include "base/memory.h"
#include "core/row_args.h"

#include <stdlib.h>

enum { WORDS = 1024 };

struct nb_card_words {
    struct nb_card_words *next;
    atomic_int n;
    _Atomic int32_t *at; /* pinned */
    const char *name[WORDS];
};

/* With the lock of the card held. */
static struct nb_card_words *words_new(nb_card *c)
{
    void *at = NULL;
    struct nb_card_words *w = nb_alloc_forever(sizeof *w);
    if (!w) return NULL;
    if (!nb_card_check(
            c,
            c->api->MemHostAlloc(&at, WORDS * sizeof *w->at,
                                 NB_CUDA_HOST_PORTABLE | NB_CUDA_HOST_MAPPED),
            "pinned memory cannot be allocated"))
        return free(w), NULL;
    w->at = at;
    for (int i = 0; i < WORDS; i++)
        w->at[i] = 0;
    w->next = c->words;
    c->words = w;
    return w;
}

int32_t *nb_card_word_new(nb_card *c, const char *name)
{
    int32_t *at = NULL;
    if (!nb_card_enter(c)) return NULL;
    pthread_mutex_lock(&c->lock);
    struct nb_card_words *w = c->words;
    if (!w || w->n == WORDS) w = words_new(c);
    if (w) {
        w->name[w->n] = name;
        at = (int32_t *)&w->at[w->n++];
    }
    pthread_mutex_unlock(&c->lock);
    return at;
}

bool nb_card_words_check(nb_card *c)
{
    for (struct nb_card_words *w = c->words; w; w = w->next)
        for (int i = 0; i < w->n; i++) {
            int32_t status = w->at[i] ? atomic_exchange(&w->at[i], 0) : 0;
            if (!nb_row_status_check(w->name[i], status)) return false;
        }
    return true;
}
