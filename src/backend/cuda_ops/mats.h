/* mats.h - linear algebra on a card: batches of matrices, and the steps that
 * algorithms on them are made of.
 *
 * Matrices are of float32 or float64, and what is computed is computed in that.
 * Every step works on all matrices of the batch.  Those that fit are done by one
 * block each; larger ones in panels, whose columns a block factors and whose
 * effect on the rest many blocks see to.  Every sum has one order, so that
 * results are the same from run to run. */
#ifndef NB_CUDA_OPS_MATS_H
#define NB_CUDA_OPS_MATS_H

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/makers.h"

typedef enum nb_mats_kernel {
#define KERNEL(file, name) NB_K_##name,
#include "backend/cuda_ops/mats.def"
#undef KERNEL
    NB_K_COUNT
} nb_mats_kernel;

#define NB_K(name) ((uint64_t)1 << NB_K_##name)
#define NB_K_LU    (NB_K(lu_panel) | NB_K(lu_rows) | NB_K(mats_multiply))
#define NB_K_SOLVE (NB_K(triangle_solve) | NB_K(mats_multiply))
#define NB_K_QR    (NB_K(qr_panel) | NB_K(qr_apply) | NB_K(mats_unit))

/* Element i, j of matrix b: at + (b step + i row + j col) elements. */
typedef struct nb_mats {
    char *at;
    int64_t row, col, step;
} nb_mats;

/* An input of the call. */
typedef struct nb_mats_in {
    int64_t rows, cols, row, col;
} nb_mats_in;

enum { NB_MATS_ROOMS = 20 };

/* The job of an op.  A plan says how much memory it needs, by nb_mats_room, in
 * the order of its rooms, and may leave kernels out; steps, what is done. */
typedef struct nb_mats_job nb_mats_job;
typedef struct nb_mats_run nb_mats_run;
typedef struct nb_mats_op {
    uint64_t kernels;
    void (*plan)(nb_mats_job *j);
    bool (*steps)(const nb_mats_run *r);
} nb_mats_op;

struct nb_mats_job {
    nb_card_job job;
    nb_card *card;
    const nb_mats_op *op;
    uint64_t kernels;
    size_t item; /* bytes of an element */
    nb_dtype dtype;
    int64_t count; /* matrices */
    nb_dims at;    /* inputs, by batch */
    nb_mats_in in[2];
    int rooms;
    size_t room[NB_MATS_ROOMS]; /* where they are in the workspace */
    bool flag[3];               /* of the call, what its op made of them */
    double number;
    nb_card_code *code[NB_K_COUNT];
};

/* One run of it. */
struct nb_mats_run {
    const nb_mats_job *j;
    char *const *in, *const *out;
    char *workspace;
    const char *what;
};

/* The job of a call; the flags, and the number, are the op's. */
bool nb_mats_make(nb_card *card, const nb_call *c, const nb_mats_op *op,
                  const bool flag[3], double number, nb_card_job **job);

/* Adds a room for n elements, or ints, of each matrix. */
void nb_mats_room(nb_mats_job *j, int64_t n);
void nb_mats_ints(nb_mats_job *j, int64_t n);
char *nb_mats_at(const nb_mats_run *r, int room);

/* Packed matrices of rows x cols. */
nb_mats nb_mats_packed(char *at, int64_t rows, int64_t cols);
nb_mats nb_mats_from(const nb_mats_run *r, nb_mats m, int64_t i, int64_t j);
nb_mats nb_mats_turned(nb_mats m);

/* Launches `blocks` blocks; or as many as n places want. */
bool nb_mats_launch(const nb_mats_run *r, nb_mats_kernel k, int64_t blocks,
                    int64_t threads, size_t shared, void **args);
bool nb_mats_spread(const nb_mats_run *r, nb_mats_kernel k, int64_t n,
                    void **args);

/* Input i, or what is symmetric in it; rows in an order, if that is not NULL. */
bool nb_mats_load(const nb_mats_run *r, int i, bool symmetric, nb_mats to,
                  char *order);
bool nb_mats_unit(const nb_mats_run *r, nb_mats to, int64_t rows, int64_t cols,
                  char *order);

typedef struct nb_mats_size {
    int64_t m, n, k;
} nb_mats_size;

/* c = a b, m x k times k x n; or c less that; or only where rows are not before
 * columns, in tiles. */
typedef enum nb_mats_how {
    NB_MATS_IS,
    NB_MATS_LESS,
    NB_MATS_LESS_LOWER
} nb_mats_how;
bool nb_mats_multiply(const nb_mats_run *r, nb_mats a, nb_mats b, nb_mats c,
                      nb_mats_size s, nb_mats_how how);

/* How many columns of m rows a block can hold, at most `most`; 0: not one. */
int64_t nb_mats_fit(const nb_mats_job *j, int64_t m, int64_t most);

/* Threads of a block for n places: a power of two, 32 to most. */
int64_t nb_mats_threads(int64_t n, int64_t most);

/* x = t^-1 x for triangular t of n x n, lower or upper. */
bool nb_mats_solve(const nb_mats_run *r, nb_mats t, bool upper, bool unit,
                   nb_mats x, int64_t n, int64_t cols);

/* a becomes l and u; order, pivots: n ints a matrix each, sign: one. */
typedef struct nb_mats_lu {
    char *order, *pivot, *sign;
} nb_mats_lu;
bool nb_mats_factor(const nb_mats_run *r, nb_mats a, int64_t n, nb_mats_lu f);

/* a (m x n) becomes r and reflections; t: min(m, n) x 32 for these; q: m x cols,
 * their product's first columns.  Matrices that `skip`, ints, names are left. */
enum { NB_MATS_WIDE = 32 };
bool nb_mats_reflect(const nb_mats_run *r, nb_mats a, int64_t m, int64_t n,
                     nb_mats t, char *skip);
bool nb_mats_reflected(const nb_mats_run *r, nb_mats a, int64_t m, int64_t n,
                       nb_mats t, nb_mats q, int64_t cols, char *skip);

/* Turning rows (jacobi.cu): of each matrix flags and numbers.  Up to so many
 * rows are one block's; more of them are blocks of half as many, which meet in
 * rounds, and sweeps of rounds go on until one finds nothing to do. */
enum {
    NB_ROTATION_FLAGS = 32,
    NB_ROTATION_SWEEPS = 24,
    NB_ROTATION_BLOCK = 64
};
typedef struct nb_rotation_state {
    char *flag, *number;
} nb_rotation_state;
typedef struct nb_rotation {
    int64_t n; /* rows */
    int blocks, round, sweep;
    nb_rotation_state state;
    char *turns, *idle;
} nb_rotation;
int nb_rotation_blocks(int64_t n);
void nb_rotation_rooms(nb_mats_job *j, int64_t n); /* four */
nb_rotation nb_rotation_at(const nb_mats_run *r, int64_t n, int first);
bool nb_rotation_begin(const nb_mats_run *r, const nb_rotation *t, nb_mats w,
                       int64_t cols);
bool nb_rotation_rows(const nb_mats_run *r, const nb_rotation *t, nb_mats x,
                      int64_t cols);
bool nb_rotation_order(const nb_mats_run *r, char *values, int64_t n,
                       bool diagonal, bool falling, char *order);
bool nb_rotation_signs(const nb_mats_run *r, nb_mats x, int64_t n, int64_t cols,
                       char *signs);
typedef bool nb_rotation_round(const nb_mats_run *r, nb_rotation *t, void *ctx);
bool nb_rotation_run(const nb_mats_run *r, nb_rotation *t,
                     nb_rotation_round *round, void *ctx);
size_t nb_rotation_shared(const nb_mats_run *r);

#endif
