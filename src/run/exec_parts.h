/* exec_parts.h - what making and running executables share. */
#ifndef NB_RUN_EXEC_PARTS_H
#define NB_RUN_EXEC_PARTS_H

#include "backend/cpu/cache.h"
#include "backend/cpu/emit.h"
#include "backend/ref/product.h"
#include "run/exec.h"

#include <pthread.h>

/* A step that is a nest: its function, and how to cut its units. */
typedef struct nb_step_kernel {
    nb_cpu_kernel *fn;
    nb_emitted info;
    int64_t chunks, per_chunk; /* units */
    int64_t *param;            /* of a nest for any sizes */
    nb_product *product;       /* of a call that is one */
} nb_step_kernel;

/* What one run has: the arena, where blocks are, and nodes over them for the
 * calls of ops. */
typedef struct nb_frame {
    struct nb_frame *next;
    nb_buffer *arena;
    char **block;     /* by line: of roots */
    nb_buffer **held; /* by line: of results, made in this run */
    nb_tensor **node; /* by line: what calls read, made when first needed */
    nb_buffer *alien; /* what nodes over memory of the caller's look into */
    nb_buffer **own;  /* by line: of inputs, whose elements are put in order */
    struct nb_card_reel *reel; /* of a program on a card, as graphs */
} nb_frame;

typedef struct nb_card_step nb_card_step;     /* run/card_parts.h */
typedef struct nb_card_pieces nb_card_pieces; /* run/card_graph.c */
typedef struct nb_card_reel nb_card_reel;

struct nb_exec {
    nb_plan *plan;
    int device;             /* that everything is on */
    nb_card_step *on_card;  /* by step, if that is a card */
    nb_card_pieces *pieces; /* that are graphs there */
    bool *by_value;         /* by line: a number that kernels are given */
    size_t workspace;       /* bytes after the arena, for any one step */
    nb_code *code;
    nb_step_kernel *kernel; /* by step */
    int *take;     /* by line: the input whose block a result takes; or NULL */
    int *result;   /* by line: the first result that it is, -1: none */
    int64_t bytes; /* that a run needs besides its inputs */
    bool lends;    /* ops are called, which lend what they like */
    bool looks;    /* a result is a look, an input, or another result */
    bool echoes;   /* a result is, or looks into, an input */
    char *trouble; /* why there is no code, and ops run one by one; or NULL */
    atomic_bool loaded;   /* the code is made, or there is trouble; */
    pthread_mutex_t lock; /* for making it */
    atomic_int refs;
    _Atomic(nb_frame *) free;
};

enum { NB_SMALL_ARENA = 1 << 16 }; /* bytes, kept with a frame */

/* A frame for a run, one that waits or a new one; back when it is over. */
nb_frame *nb_frame_take(nb_exec *e);
void nb_frame_give(nb_exec *e, nb_frame *f);
nb_frame *nb_frame_new(const nb_exec *e); /* without an arena */
void nb_frame_free(const nb_exec *e, nb_frame *f);

/* Bytes of the arena, after which the workspace begins. */
size_t nb_frame_arena(const nb_exec *e);

/* Fails: what memory that cannot be had is for; on a card also what is alive
 * there.  Other errors stay what they are. */
void *nb_exec_explain(const nb_exec *e);

/* x with its elements in order, in a buffer. */
nb_tensor *nb_tensor_packed(nb_tensor *x);

#endif
