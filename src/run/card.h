/* card.h - executables on a graphics card, and tensors that are there.
 *
 * All lines of such a program are on one card; its blocks are memory of that.
 * Nests are kernels, launched one after another; nobody waits for them but who
 * reads a value. */
#ifndef NB_RUN_CARD_H
#define NB_RUN_CARD_H

#include "run/exec_parts.h"

/* The device of a graph, if all its calls are on one, else -1. */
int nb_graph_device(const nb_graph *g);

/* A realised tensor, elements in order, there; lent.  x may be on any device.*/
nb_tensor *nb_tensor_on(nb_tensor *x, int device);

/* Code for the nests of e: its own, or that of one with other sizes. */
bool nb_card_load(nb_exec *e);
bool nb_card_load_like(nb_exec *e, const nb_exec *from);
void nb_card_unload(nb_exec *e);

/* Inputs that are numbers of the CPU, and that nothing but kernels read: these
 * are given the value instead of a block, its bits as an address. */
bool nb_card_find_by_value(nb_exec *e);
void nb_card_give_numbers(nb_graph *g); /* inputs that are moved there */
static inline bool nb_card_is_by_value(const nb_exec *e, int k)
{
    return e->by_value && e->by_value[k];
}
char *nb_card_value(const nb_tensor *x);

/* Runs all steps over the blocks of a frame, as graphs where that is possible;
 * others, and what graphs are made of, by `step`. */
typedef struct nb_card_doing {
    bool (*step)(void *ctx, int s);
    void *ctx;
} nb_card_doing;
bool nb_card_run_steps(nb_exec *e, nb_frame *f, const nb_card_doing *d);
void nb_card_pieces_free(nb_card_pieces *c);
void nb_card_reel_free(const nb_card_pieces *c, nb_card_reel *r);

/* Launches step s over the blocks of a frame. */
bool nb_card_run_nest(nb_exec *e, int s, char *const *block);

/* Steps that are jobs of the card's own; the workspace is e's.  Products of
 * matrices are given the buffers of their step as inputs. */
bool nb_card_is_job(const nb_exec *e, int s);
bool nb_card_only_enqueues(const nb_exec *e, int s); /* a kernel or a job */
bool nb_card_run_job(const nb_exec *e, int s, char *const *in, char *const *out,
                     char *workspace);

/* Copies bytes, either side on the CPU or on a card. */
bool nb_card_transfer(char *to, int device, const char *from, int from_device,
                      size_t n);

/* Copies elements on a card from strides to strides. */
bool nb_card_elements(int device, nb_dtype d, int n, const int64_t *size,
                      char *to, const int64_t *to_stride, const char *from,
                      const int64_t *stride);

/* Runs a call on the CPU, with its inputs and results brought there and back. */
bool nb_card_run_call(const nb_call *c, nb_tensor *y, int nout,
                      const int64_t *bytes, char *const *to);

/* Whether kernels take a block that begins there: vectors of a card are read at
 * multiples of their size, and a view may begin anywhere. */
bool nb_card_takes(int device, const char *data);

/* Copies elements on a card in order; both are there. */
bool nb_card_pack(int device, char *to, const nb_tensor *x);

#endif
