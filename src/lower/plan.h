/* plan.h - from a recorded program to steps over memory.
 *
 * Every line of the graph lies somewhere: in a block of its own, in another
 * line's (a look), or nowhere, because the nest that computes it keeps it in
 * registers.  Steps run in order; each is a nest or the call of one op. */
#ifndef NB_LOWER_PLAN_H
#define NB_LOWER_PLAN_H

#include "core/graph.h"
#include "lower/nest.h"

/* Where the data of a line is: in the block of line `root`. */
typedef struct nb_place {
    int root;
    int64_t offset; /* elements */
    int64_t stride[NB_MAX_DIMS];
} nb_place;

struct nb_row_product;
struct nb_gemm;
struct nb_chain;

typedef struct nb_step {
    int line;      /* the call, or the last line of the nest */
    nb_nest *nest; /* NULL: a call */
    int nbuffers;  /* of a nest or gemm: the lines whose blocks they are */
    int *buffer;
    int chain, batch;               /* that it is in, from 1 on; 0: none */
    struct nb_row_product *product; /* of a chain: the call is one */
    struct nb_gemm *gemm; /* on a card: a product of matrices, see gemm.h */
} nb_step;

void nb_step_free(nb_step *s); /* what it holds */

/* The first and the last of some steps. */
typedef struct nb_life {
    int first, last;
} nb_life;

/* Where a block is kept. */
typedef enum nb_home {
    NB_HOME_NONE,
    NB_HOME_GIVEN, /* inputs, captured tensors, numbers */
    NB_HOME_ARENA,
    NB_HOME_RESULT, /* allocated on each run, handed out */
    NB_HOME_TILE    /* some rows at a time, while a chain runs */
} nb_home;

typedef struct nb_plan {
    nb_graph *graph;  /* owned */
    bool no_code;     /* every call runs by itself, none by a nest */
    int device;       /* that all lines are on; 0: the CPU */
    bool *library;    /* by line, on a card: products that a library makes */
    bool alone;       /* one block of a card runs all of it */
    bool any_size;    /* what depends on sizes stays as it is for others */
    nb_tensor **node; /* kept: a stand-in for each line, with its call */
    nb_place *place;
    int64_t **parts; /* of a call with several results: where they begin */
    int nextra, extra_room; /* blocks that are no line's, numbered after them */
    int64_t *extra;         /* bytes */
    int nsteps, room;
    nb_step *step;
    nb_home *home;  /* of roots */
    int64_t *at;    /* offset in the arena, or in the tiles of a thread */
    int64_t *bytes; /* of a root's block */
    int64_t arena;  /* bytes: the peak of temporaries */
    int *group;     /* the nest that computes a line, -1: none */
    int nchains, chain_room;
    struct nb_chain *chain; /* see chain.h */
    int64_t *row;           /* bytes of a row of blocks in tiles; or NULL */
    int64_t tiles; /* bytes: the most that the tiles of a thread take */
    int nbatches, batch_room;
    nb_life *batch; /* on a card: steps that may run at the same time */
} nb_plan;

/* The first and the last step that has to do with a block, -1: none; of all
 * blocks, lines' and others. */
int nb_plan_blocks(const nb_plan *p);
int nb_plan_extra(nb_plan *p, int64_t bytes); /* one more, no line's; or -1 */
void nb_plan_lives(const nb_plan *p, nb_life *l);

/* The steps that run when step s does: itself, or those of its chain or batch.
 * The one of them that may write block `to` over block `from`, which no other
 * of them touches; -1: none. */
nb_life nb_plan_with(const nb_plan *p, int s);
int nb_plan_in_place(const nb_plan *p, int s, int from, int to);

/* Whether a block of the arena is alive at a step; the step, -1 if there is
 * none, at which most bytes are, one block in another's place counted twice. */
bool nb_plan_is_alive(const nb_plan *p, const nb_life *l, int k, int step);
int nb_plan_fullest(const nb_plan *p, const nb_life *l, int64_t *bytes);

/* Takes the graph.  A plan for any size has the same form at all sizes. */
nb_plan *nb_plan_new(nb_graph *g);
nb_plan *nb_plan_new_any_size(nb_graph *g);

/* The same for one block of threads of a card: nothing is a library's, and no
 * sum is cut so that many blocks could share it. */
nb_plan *nb_plan_new_alone(nb_graph *g, int device);

/* The same steps once more, with a graph of their own: numbers may be changed,
 * then it is finished: stand-ins, blocks. */
nb_plan *nb_plan_copy(const nb_plan *p);
bool nb_plan_finish(nb_plan *p);
void nb_plan_free(nb_plan *p);

/* The start of one, of a copy of the graph: its lines, no steps. */
nb_plan *nb_plan_draft(const nb_graph *g);

/* The steps, their nests, the blocks: for people. */
char *nb_plan_text(const nb_plan *p);

/* The passes, in order; each leaves its part of the plan. */
bool nb_plan_nodes(nb_plan *p); /* stand-ins, lines that only look */
bool nb_plan_stand_ins(nb_plan *p);
bool nb_plan_fuse(nb_plan *p);                    /* nests, steps */
bool nb_plan_share(nb_plan *p);                   /* sums of the same memory */
bool nb_plan_bytes(nb_plan *p);                   /* sizes of blocks */
bool nb_plan_batch(nb_plan *p);                   /* steps side by side */
bool nb_plan_memory(nb_plan *p);                  /* blocks */
bool nb_plan_arena(nb_plan *p, const nb_life *l); /* their places in it */

/* Whether the card of the plan has a way to make such a product; run defines
 * it. */
extern bool (*const nb_card_multiplies)(int device, const struct nb_gemm *g);

/* Products summed over shared axes, which are the matrix library's. */
bool nb_call_is_product(const nb_call *c, const nb_tensor *y);
/* Lines whose work is a loop over points, by a scalar body. */
bool nb_line_loops(const nb_plan *p, int k);
/* A node of the type of line k, laid out as that is, without data. */
nb_tensor *nb_line_laid_out(const nb_plan *p, int k);
/* Lines that are the look of another. */
bool nb_line_looks(const nb_plan *p, int k);
/* The line that k is with its dims moved, k itself if none; dim[d] is the dim
 * of that line which dim d of k is, or -1. */
int nb_line_behind(const nb_plan *p, int k, int *dim);

#endif
