/* moves.h - elements moved within a card, some tensors at once, by one kernel
 * for all shapes.
 *
 * Either side of a move may begin further on with a count that lies in memory of
 * the card: the turns of a loop, which nobody else counts.  When all is moved,
 * the kernel counts on, and sets the conditions of graphs (graph.h). */
#ifndef NB_CUDA_MOVES_H
#define NB_CUDA_MOVES_H

#include "backend/cuda/build.h"
#include "backend/cuda/graph.h"

enum { NB_MOVE_DIMS = 6, NB_MOVES = 12 };

typedef struct nb_move {
    char *to;
    const char *from;
    int64_t to_step, from_step;  /* bytes, by the count */
    int64_t unit, n, count;      /* bytes of an element; dims; elements */
    int64_t tiles;               /* of the last two dims; 0: no tiles */
    int64_t size[NB_MOVE_DIMS];  /* outermost first */
    int64_t to_by[NB_MOVE_DIMS]; /* strides, bytes */
    int64_t from_by[NB_MOVE_DIMS];
} nb_move;

/* Elements over dims, by strides in elements; what is moved is not said yet.
 * False, without an error, if the dims are too many. */
bool nb_move_over(nb_move *m, size_t item, int n, const int64_t *size,
                  const int64_t *to, const int64_t *from);

/* What follows when all is moved, if head is not NULL: the count there goes on
 * by `by`; `yes` holds if the count is below `until` and the flag, one byte, if
 * there is one, not 0; `no` holds if that does not.  Conditions may be 0. */
typedef struct nb_card_head {
    int64_t count;
    unsigned ticket, unused; /* of blocks that are done; 0 between launches */
} nb_card_head;
typedef struct nb_moved {
    nb_card_head *head; /* memory of the card, zeroed at first */
    const char *flag;
    int64_t by, until;
    nb_card_condition yes, no;
} nb_moved;

/* The kernel; with conditions, if the driver has them. */
nb_card_code *nb_moves_code(nb_card *c, bool conditions);
bool nb_moves_launch(nb_card *c, const nb_card_code *k, int n, const nb_move *m,
                     const nb_moved *then, const char *what);

#endif
