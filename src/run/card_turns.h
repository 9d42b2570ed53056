/* card_turns.h - runs of loops and branches of many kernels (card_loop.h). */
#ifndef NB_RUN_CARD_TURNS_H
#define NB_RUN_CARD_TURNS_H

#include "run/card_loop.h"

enum { NB_LOOP_MOVES = 64 };

/* A run; what is moved is gathered and moved at once. */
typedef struct nb_loop_run {
    nb_card_loop *l;
    char *const *in, *const *out;
    char *work;
    const char *what;
    int half;     /* of what is carried, that the next turn reads */
    char *record; /* of the turn, if it keeps something; or NULL */
    int nmoves;
    nb_move move[NB_LOOP_MOVES];
} nb_loop_run;

bool nb_loop_add_move(nb_loop_run *r, nb_move m, char *to, const char *from);
bool nb_loop_move_now(nb_loop_run *r, const nb_moved *then);

/* Before the first turn: what is carried begins, what does not lie in order is
 * put in order, what never changes is computed.  After the last turns of a
 * program: what it carried goes where it belongs. */
bool nb_loop_begin(nb_loop_run *r, const nb_loop_side *s);
bool nb_loop_end(nb_loop_run *r, const nb_loop_side *s,
                 const nb_loop_program *p);

/* Room for the addresses of a turn: inputs, results of what was computed before,
 * results.  Inputs but steps; results that are carried or kept. */
char **nb_loop_room(const nb_loop_side *s, const nb_loop_program *p);
void nb_loop_addresses(const nb_loop_run *r, const nb_loop_side *s,
                       const nb_loop_program *p, int half, char **x);
void nb_loop_carried_to(const nb_loop_run *r, const nb_loop_side *s,
                        const nb_loop_program *p, char **y);

/* Runs a program to places, and brings there what it has left elsewhere; a turn
 * of one that has no steps. */
bool nb_loop_enqueue(nb_loop_run *r, const nb_loop_program *p, char *const *x,
                     char *const *y);
bool nb_loop_turn(nb_loop_run *r, const nb_loop_program *p, char **x);

/* Tests: to the flag; a loop of a graph, whose turns go from the first half to
 * the first, as long as the test holds but `until` turns at most; its first test
 * may be known already. */
bool nb_loop_test(nb_loop_run *r, char **x);
bool nb_loop_capture(nb_loop_run *r, int64_t until, bool tested);
bool nb_loop_read(const nb_loop_run *r, nb_loop_head *head);

bool nb_loop_run_scan(nb_loop_run *r);
bool nb_loop_run_while(nb_loop_run *r);
bool nb_loop_run_passes(nb_loop_run *r);
bool nb_loop_run_cond(nb_loop_run *r);

#endif
