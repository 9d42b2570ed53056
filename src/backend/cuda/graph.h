/* graph.h - what a card is given, written down once and launched as a whole.
 *
 * While a thread captures, what it gives the card goes to a stream of its own
 * and is written down instead of run; other threads go on as ever.  What takes
 * memory of the card, copies from or to the host or waits is refused
 * meanwhile.  One thread at a time captures on a card, others wait for it.
 *
 * A graph holds addresses, not memory: whoever launches it sees to it that what
 * was there is there again.  It may be changed and freed while it runs. */
#ifndef NB_CUDA_GRAPH_H
#define NB_CUDA_GRAPH_H

#include "backend/cuda/build.h"

typedef struct nb_card_graph nb_card_graph;

/* NABLA_CUDA_GRAPHS=0 in the environment says no, and so does
 * NABLA_CUDA_SYNC. */
bool nb_card_graphs_wanted(void);

bool nb_card_capture_begin(nb_card *c);

/* What has been written down last, NULL if that is not one thing. */
void *nb_card_capture_node(nb_card *c);

/* Ends it in any case.  what: the names of its ops, for errors. */
nb_card_graph *nb_card_capture_end(nb_card *c, const char *what);
void nb_card_capture_give_up(nb_card *c);

/* What is written down may depend on values of the card: a condition is set by
 * kernels (moves.h), then comes what is done if it holds, or while it does.
 * Bodies may have others inside; whoever gives up ends all. */
typedef unsigned long long nb_card_condition;
typedef enum nb_card_when { NB_CARD_IF, NB_CARD_WHILE } nb_card_when;
bool nb_card_conditions_there(void); /* the driver has them: since 12.4 */
bool nb_card_condition_new(nb_card *c, nb_card_condition *k);
bool nb_card_body_begin(nb_card *c, nb_card_condition k, nb_card_when when);
bool nb_card_body_end(nb_card *c);

/* Launches from now on have other arguments for a kernel. */
typedef struct nb_card_launching {
    const nb_card_code *code;
    unsigned grid[3], block[3], shared;
    void **args;
} nb_card_launching;
bool nb_card_graph_change(nb_card_graph *g, void *node,
                          const nb_card_launching *l);

bool nb_card_graph_launch(nb_card_graph *g);
void nb_card_graph_free(nb_card_graph *g); /* NULL is fine */

typedef struct nb_card_graph_stats {
    int64_t captured, changed, launched; /* graphs, kernels, graphs */
} nb_card_graph_stats;
nb_card_graph_stats nb_card_graph_stats_get(void);

#endif
