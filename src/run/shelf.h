/* shelf.h - programs that are kept because they may come again.
 *
 * A shelf knows its things by the hash of what they were made from, has room
 * for so many and lets go of those that were used longest ago.  Whoever has
 * taken one holds it: it stays until the last has put it back. */
#ifndef NB_RUN_SHELF_H
#define NB_RUN_SHELF_H

#include "core/graph.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct nb_shelved {
    struct nb_shelved *next;
    uint64_t hash;
    void *it; /* NULL: it is known that there can be none */
    atomic_int refs;
} nb_shelved;

typedef struct nb_shelf {
    pthread_mutex_t lock;
    nb_shelved *first; /* the one used last */
    int room;
    void (*drop)(void *it);
} nb_shelf;

/* NULL without an error: there is none. */
nb_shelved *nb_shelf_take(nb_shelf *s, uint64_t hash);

/* A new thing, which is taken over, also where memory runs out; unless it is to
 * be kept, only whoever puts it here has it.  If another thread was first with
 * an equal one, that one. */
nb_shelved *nb_shelf_put(nb_shelf *s, uint64_t hash, void *it, bool keep);

/* Of one that was taken; p may be NULL. */
void nb_shelf_return(nb_shelf *s, nb_shelved *p);

/* Lets go of all. */
void nb_shelf_clear(nb_shelf *s);

/* The hash of a program by which it is known; false if memory runs out. */
bool nb_graph_known_by(const nb_graph *g, uint64_t *hash);

#endif
