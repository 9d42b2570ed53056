/* derive.h - one step of differentiation through one node, and walks over many.
 *
 * A tangent or cotangent that is NULL is zero and is never made. */
#ifndef NB_TRANSFORM_DERIVE_H
#define NB_TRANSFORM_DERIVE_H

#include "core/tensor.h"
#include "nabla/transform.h"

/* How node y moves when its inputs move by u[i] (NULL: not at all), into *uy:
 * NULL if it does not move.  For one result of several (`part`), y is that part
 * and u belongs to the inputs of the op that has them.  False with an error. */
bool nb_push(nb_tensor *y, nb_tensor *const *u, nb_tensor **uy);

/* The cotangent of input i, given that of y, into *cx: NULL if none flows.  For
 * a node with several results ct has one a result (NULL: zero). */
bool nb_pull(nb_tensor *y, int i, nb_tensor *const *ct, nb_tensor **cx);

/* Broadcasting transposed: g is a cotangent of y pulled back to x, still spread
 * along what alignment added, lanes and visible axes; they are summed. */
nb_tensor *nb_unbroadcast(const nb_tensor *y, const nb_tensor *x, nb_tensor *g);

/* Walks between x and y, which must have been recorded from x while `bit` was
 * open, x carrying it (nb_walk_begin makes such x).  Results are NULL where
 * nothing flows. */
bool nb_walk_push(uint64_t bit, int nx, nb_tensor *const *x,
                  nb_tensor *const *u, int ny, nb_tensor *const *y,
                  nb_tensor **uy);
bool nb_walk_pull(uint64_t bit, int nx, nb_tensor *const *x, int ny,
                  nb_tensor *const *y, nb_tensor *const *ct, nb_tensor **cx);

/* Fresh aliases of x that carry a new bit, returned; 0 with an error. */
uint64_t nb_walk_begin(int nx, nb_tensor *const *x, nb_tensor **fresh);
void nb_walk_end(uint64_t bit);

/* A tape for rules: what was recorded has the lanes that it needs, and the lanes
 * of cotangents alone pass through. */
nb_tape *nb_tape_open_inner(int nx, nb_tensor *const *x, nb_tensor **fresh);

/* Whether it is; if not, an error. */
bool nb_tape_is_closed(const nb_tape *t);

/* What a closed tape leads from and to; their number. */
int nb_tape_inputs(const nb_tape *t, nb_tensor *const **x);
int nb_tape_results(const nb_tape *t, nb_tensor *const **y);

/* Calls `found` for every node between that carries the bit and requires grad,
 * with its cotangent. */
bool nb_walk_back(uint64_t bit, int ny, nb_tensor *const *y,
                  nb_tensor *const *ct, nb_grad_found *found, void *ctx);

#endif
