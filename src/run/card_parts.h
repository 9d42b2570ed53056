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
    char *args;       /* pointers, then parameters; or those of members */
    int nwith, *with; /* of several nests in one launch: their steps */
    bool follows;     /* it is among those of an earlier step */
    nb_card_job *job;
    char what[96]; /* the ops, for errors */
};

/* The kernels of a program, before they are built: their texts, and the steps
 * that they belong to. */
typedef struct nb_card_texts {
    int n, *step;
    nb_text *text;
} nb_card_texts;

/* Adds those of step s, a nest, or of the batch that begins there. */
bool nb_card_print_nest(nb_exec *e, int s, nb_card_texts *to);
bool nb_card_print_batch(nb_exec *e, int s, nb_card_texts *to);

/* How many bytes of arguments the launch of step s has, and puts the blocks of
 * a frame into them. */
size_t nb_card_args_bytes(const nb_exec *e, int s);
void nb_card_put_blocks(const nb_exec *e, int s, char *const *block,
                        char *args);

/* Has a thread open the library of products, the first time that it is called:
 * whoever puts something on a card is about to multiply. */
void nb_card_wake(nb_card *c);

/* Jobs of e's calls and products, prepared. */
bool nb_card_find_calls(nb_exec *e);
void nb_card_find_workspace(nb_exec *e); /* once they are built */

/* What they have begun is waited for, so that nothing is under way in a program
 * that was made and is not run. */
bool nb_card_settle_calls(nb_exec *e);

/* The job of step s, a product of matrices. */
bool nb_card_find_product(nb_exec *e, int s);

/* Changes the kernel of step s in a graph to the blocks of a frame. */
bool nb_card_change_nest(nb_exec *e, int s, char *const *block,
                         nb_card_graph *g, void *node);

/* What of e, which is loaded, may be graphs. */
bool nb_card_cut(nb_exec *e);

#endif
