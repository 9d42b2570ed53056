/* card_loop.h - loops and branches of many kernels, which stay on the card.
 *
 * The programs inside an op are executables of their own, run at places in the
 * workspace of one job: what is carried has two, which turns read and write by
 * turns; values that never change are computed or put in order once.  Turns are
 * enqueued one after another, and nobody waits.  What has too many for that is
 * a loop of the graph that it becomes part of: the card counts its turns, and
 * steps are moved between their tensors and fixed places.  Tests are conditions
 * of that graph; before it is captured, the host reads them. */
#ifndef NB_RUN_CARD_LOOP_H
#define NB_RUN_CARD_LOOP_H

#include "backend/cuda/moves.h"
#include "run/card_parts.h"
#include "transform/kept.h"

typedef enum nb_input_kind {
    NB_STAYS,
    NB_CARRIED,
    NB_STEPS,
    NB_KEPT /* by the same turn of an earlier pass */
} nb_input_kind;

/* An input of a program. */
typedef struct nb_loop_input {
    nb_input_kind kind;
    int from;     /* which it is of the call's */
    bool lies;    /* it, or a step of it, is packed where it lies */
    nb_move move; /* it, or how it begins, or a step, to its place */
    int64_t step; /* bytes from one to the next */
    size_t bytes;
    size_t at[2]; /* its places; of what is kept, in the record of a turn */
} nb_loop_input;

/* A result of a program. */
typedef struct nb_loop_output {
    int feeds;     /* the input that it becomes, or -1 */
    int to;        /* which it is of the call's, or -1 */
    bool stacked;  /* one step of that */
    bool lands;    /* the program writes it where it is told to, */
    nb_move bring; /* or leaves it elsewhere */
    bool lies;     /* a step is packed where it belongs; or it goes by way of */
    size_t at;     /* a place of its own */
    nb_move move;  /* from there */
    int64_t step;
    size_t bytes;
} nb_loop_output;

/* A program: of one turn, of a test, of a side. */
typedef struct nb_loop_program {
    nb_turn_programs p;
    nb_exec *turn, *before;
    nb_loop_output *out;
    nb_loop_output *kept; /* what is computed before, in its places */
} nb_loop_program;

/* Programs that have the same inputs. */
typedef struct nb_loop_side {
    int nx;
    nb_loop_input *in;
    int n;
    nb_loop_program *program; /* a turn, a test, turns of further passes */
} nb_loop_side;

/* What the card says of a loop. */
typedef struct nb_loop_head {
    nb_card_head count;
    char flag[16]; /* of its test, the first byte */
} nb_loop_head;

typedef enum nb_loop_kind {
    NB_LOOP_SCAN,
    NB_LOOP_WHILE,
    NB_LOOP_COND
} nb_loop_kind;

typedef struct nb_card_loop {
    nb_card_job job;
    nb_loop_kind kind;
    nb_card *card;
    nb_card_code *moves;
    nb_loop_side side[2];
    int64_t length, per_turn; /* turns; launches of one */
    bool reverse;
    bool conditions; /* it is a loop, or branches, of graphs; if not it is so
                      * many turns there */
    int at_once;     /* turns between tests of a loop that counts */
    size_t head, flag, room;
    size_t record;     /* bytes that a turn keeps for later passes */
    atomic_bool warm;  /* it has run */
    atomic_bool unfit; /* no graph could be made of it */
} nb_card_loop;

/* The job of step s, if it is such a call and all that it does is enqueued;
 * *job stays NULL without an error if not. */
bool nb_card_loop_make(nb_exec *e, int s, const nb_call *c, nb_card_job **job);

bool nb_card_loop_run(nb_card_job *j, char *const *in, char *const *out,
                      char *workspace, const char *what);

/* Where step t of something begins, counted as turns go. */
static inline int64_t nb_loop_step(const nb_card_loop *l, int64_t step,
                                   int64_t t)
{
    return step * (l->reverse ? l->length - 1 - t : t);
}

#endif
