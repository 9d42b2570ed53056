/* numbers.h - all numbers of a recorded program or of its plan that may depend
 * on sizes, in a fixed order: read, written, or marked as varying.
 *
 * Everything else is what two programs have in common if they are one program
 * at different sizes: its form. */
#ifndef NB_LOWER_NUMBERS_H
#define NB_LOWER_NUMBERS_H

#include "lower/plan.h"
#include "lower/samples.h"

typedef enum nb_numbers_way {
    NB_NUMBERS_READ,  /* into `at`, and the form */
    NB_NUMBERS_WRITE, /* from `at` */
    NB_NUMBERS_MARK   /* nests are given parameters for those of `formulas` */
} nb_numbers_way;

typedef struct nb_numbers {
    nb_numbers_way way;
    int64_t *at;
    int n, room;
    uint64_t form;
    const nb_formulas *formulas;
    int next;         /* of their numbers that vary */
    bool but_figures; /* lines that are numbers are not part of the form */
    int depth;        /* of programs inside ops */
    bool failed;
} nb_numbers;

/* False if memory ran out. */
bool nb_numbers_graph(nb_numbers *v, nb_graph *g);
bool nb_numbers_plan(nb_numbers *v, nb_plan *p);
void nb_numbers_free(nb_numbers *v);

#endif
