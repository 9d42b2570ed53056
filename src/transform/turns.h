/* turns.h - loops and branches on programs that are kept (kept.h): what their
 * ops prepare, need and execute. */
#ifndef NB_TRANSFORM_TURNS_H
#define NB_TRANSFORM_TURNS_H

#include "transform/kept.h"

/* Two places for each of some states, packed: turns read one and write the
 * other. */
typedef struct nb_states {
    int n;
    size_t *bytes;
    nb_buffer **place; /* the current ones, then the others */
} nb_states;
bool nb_states_begin(nb_states *s, int n, const nb_shape *shape,
                     nb_tensor *const *init);
void nb_states_turn(nb_states *s, int from, int n); /* the others: current */
void nb_states_end(nb_states *s);
int64_t nb_states_bytes(int n, const nb_shape *shape, nb_tensor *const *init);

/* Bytes of packed memory. */
size_t nb_shape_bytes(const nb_shape *s, nb_dtype d);

/* What ops prepare and need, and runs of them: *done if the programs are there.
 */
bool nb_scan_prepare(const nb_call *c);
int64_t nb_scan_needs(const nb_call *c);
bool nb_scan_turns(const nb_call *c, const nb_shape *shape, char *const *to,
                   bool *done);
bool nb_passes_prepare(const nb_call *c);
int64_t nb_passes_needs(const nb_call *c);
bool nb_passes_turns(const nb_call *c, const nb_shape *shape, char *const *to,
                     bool *done);

#endif
