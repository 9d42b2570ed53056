/* card_parts.h - what the files of programs on a card share. */
#ifndef NB_RUN_CARD_PARTS_H
#define NB_RUN_CARD_PARTS_H

#include "backend/cuda/build.h"
#include "backend/cuda/call.h"
#include "backend/cuda/graph.h"
#include "backend/cuda/print/print.h"
#include "backend/cuda/product/blaslt.h"
#include "run/card.h"

/* What a step is: a kernel, a job, or else a call that the CPU runs or that is
 * at home anywhere. */
struct nb_card_step {
    nb_card_code *code;
    nb_printed how;
    int64_t blocks;
    char *args; /* pointers, then parameters */
    nb_card_job *job;
    char what[96]; /* the ops, for errors */
};

/* Jobs of e's calls and products, prepared. */
bool nb_card_find_calls(nb_exec *e);

/* The job of step s, a product of matrices. */
bool nb_card_find_product(nb_exec *e, int s);

/* Changes the kernel of step s in a graph to the blocks of a frame. */
bool nb_card_change_nest(nb_exec *e, int s, char *const *block,
                         nb_card_graph *g, void *node);

/* What of e, which is loaded, may be graphs. */
bool nb_card_cut(nb_exec *e);

#endif
