/* solo.h - a loop or a branch that one block of threads runs by itself.
 *
 * The programs inside an op, and those inside of theirs, are planned for one
 * block and laid out as one list of things to do: nests, loops, branches.  The
 * block's threads do them in order and wait for each other where one needs what
 * another has written.  Nobody outside has a hand in it: a loop of any number
 * of turns is one launch.
 *
 * What loops carry has two halves: a turn reads one and writes the other.
 *
 * Hidden axes that programs do not mix are left out of them: there are as many
 * blocks as these have points, and each begins further on in what is given. */
#ifndef NB_CUDA_SOLO_H
#define NB_CUDA_SOLO_H

#include "backend/cuda/print/walk.h"
#include "core/joints.h"

enum { NB_SOLO_MOVES = 6, NB_SOLO_ALIGN = 16, NB_SOLO_LANES = 4 };

typedef enum nb_solo_space {
    NB_SOLO_GIVEN,  /* memory of the call's: its inputs, then its results */
    NB_SOLO_SHARED, /* the block's */
    NB_SOLO_WORK,   /* the card's, where that is too small */
    NB_SOLO_ALIKE   /* one element, which every thread has in a register */
} nb_solo_space;

/* A piece of memory. */
typedef struct nb_solo_slot {
    nb_solo_space space;
    int given;                   /* which of these it is, */
    int64_t lane[NB_SOLO_LANES]; /* and bytes to the next point of those */
    int64_t bytes;               /* of one half, if it has halves */
    int64_t at;                  /* where it begins in its space */
    int loop;      /* whose turns change halves; -1: it has none */
    bool ring;     /* steps of some turns */
    bool used;     /* something reads or writes it */
    bool constant; /* nobody writes it but before all else, */
    bool number;   /* to put this there, */
    bool staged;   /* or a copy of what is given; or between chunks of a ring */
    nb_dtype dtype; /* of a number, and of what is alike */
    int64_t bits;
} nb_solo_slot;

/* Where a block begins: in a slot, further on with the turns of loops. */
typedef struct nb_solo_at {
    int slot;
    bool next;    /* the half that is written */
    int64_t from; /* bytes */
    int nmoves;
    struct {
        int loop;
        int64_t bytes; /* a turn */
        int ring;      /* as many turns as there is room for; 0: all of them */
    } move[NB_SOLO_MOVES];
} nb_solo_at;

typedef enum nb_solo_kind {
    NB_SOLO_NEST,
    NB_SOLO_LOOP,
    NB_SOLO_BRANCH
} nb_solo_kind;

typedef struct nb_solo_list {
    struct nb_solo_item *item;
    int n, room;
} nb_solo_list;

/* Steps that a loop reads ahead: from memory of the card's to a ring. */
typedef struct nb_solo_ahead {
    nb_solo_at from, to;
    int64_t bytes, step; /* of a turn, and to the next in `from` */
    int turns;           /* read at once: half a ring */
} nb_solo_ahead;

typedef struct nb_solo_item {
    nb_solo_kind kind;
    bool waits; /* for the other threads, before it begins */
    /* A nest, owned, and where its buffers are. */
    nb_nest *nest;
    nb_solo_at *block;
    int number;     /* of the nest among all */
    double cycles;  /* of all its points */
    nb_cuda_walk w; /* how the block walks it, */
    bool walked;    /* if that is known, */
    unsigned how;   /* and in which way */
    int rounds;     /* in which it takes its units, 0: as many as it needs */
    bool *held; /* by value: loads that threads hold in registers, or NULL */
    bool *all;  /* by value: stores of what is alike */
    /* A loop: the test, if its length is -1, and the body; a branch: both
     * sides.  The test says what it says at `flag`. */
    int loop;
    int64_t length;
    bool reverse;
    nb_solo_at flag;
    bool waits_flag; /* before a loop reads it */
    nb_solo_list first, second;
    nb_solo_ahead *ahead;
    int naheads;
} nb_solo_item;

typedef struct nb_solo {
    int device;
    size_t shared_most; /* bytes that a block may have */
    int threads;        /* of the block */
    int registers;      /* of a thread, that may still be held */
    bool fits;          /* there is nothing that it cannot do */
    int nlanes;         /* hidden axes that blocks share out */
    int64_t lane[NB_SOLO_LANES];
    int64_t rows;  /* of what the first loop carries first, */
    int rows_slot; /* which is there; 0: it has no axes */
    nb_solo_slot *slot;
    int nslots, slot_room;
    int ngiven, nloops, nnests;
    nb_tensor **captured; /* kept: given after what the call has */
    int ncaptured, captured_room;
    nb_solo_list list;
    int64_t shared, work; /* bytes */
} nb_solo;

/* The call, whose inputs are laid out; fits is false, without an error, if it
 * holds what a block cannot do by itself. */
bool nb_solo_build(nb_solo *s, const nb_call *c);
/* The same with its hidden axes shared out to blocks, if it has any. */
bool nb_solo_build_lanes(nb_solo *s, const nb_call *c);
int64_t nb_solo_blocks(const nb_solo *s);
/* Turns that a loop reads ahead at once, of steps of so many bytes. */
int nb_solo_ring_turns(int64_t bytes, int64_t length);
/* Rows shared out to blocks, where programs go row by row. */
bool nb_solo_share_rows(nb_solo *s, int processors);
void nb_solo_free(nb_solo *s);

/* How many threads, and how they walk each nest; memory; nests again where that
 * does not allow vectors; then who waits. */
bool nb_solo_walk(nb_solo *s);
void nb_solo_place(nb_solo *s);
bool nb_solo_settle(nb_solo *s);
bool nb_solo_sync(nb_solo *s);

/* The kernel:
 *     struct args { char *b[given]; char *work; }; */
bool nb_solo_print(nb_solo *s, nb_text *t, const char *name);
void nb_solo_print_nest(nb_text *t, const nb_solo *s, const nb_solo_item *i,
                        int depth);
void nb_solo_print_held(nb_text *t, const nb_solo *s, const nb_solo_item *i);

/* The address, as an expression. */
void nb_solo_print_at(nb_text *t, const nb_solo *s, const nb_solo_at *at);

/* Whether that is a multiple of so many bytes from where memory begins. */
bool nb_solo_is_aligned(const nb_solo *s, const nb_solo_at *at, int64_t bytes);

/* Every item, outermost first. */
bool nb_solo_each(nb_solo_list *l, bool (*f)(void *ctx, nb_solo_item *i),
                  void *ctx);

#endif
