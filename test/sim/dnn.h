/* dnn.h - simulated cuDNN: what describes a graph, and what is left of it in a
 * plan. */
#ifndef NB_SIM_DNN_H
#define NB_SIM_DNN_H

#include "sim.h"

/* Its numbers, SIM_... */
enum {
#define DNN_NUMBER(name, value) SIM_##name = value,
#include "../../src/backend/cuda/dnn/numbers.def"
#undef DNN_NUMBER
    SIM_DNN_MOST = 64,
    SIM_DNN_FIELDS = 24
};

/* An attribute, with a copy of its elements. */
typedef struct sim_field {
    int name, type;
    int64_t n;
    void *at;
} sim_field;

typedef struct sim_dnn_tensor {
    int64_t id, size[8], step[8], align;
    int rank, type;
    bool between, fixed;
} sim_dnn_tensor;

/* An operation: its attributes and those of what it refers to; tensors are
 * places among those of the program. */
typedef struct sim_dnn_op {
    int kind, n;
    sim_field field[SIM_DNN_FIELDS];
} sim_dnn_op;

/* They stay, because graphs may run them again. */
typedef struct sim_dnn_program {
    struct sim_dnn_program *next;
    int ntensors, nops;
    sim_dnn_tensor tensor[SIM_DNN_MOST];
    sim_dnn_op op[SIM_DNN_MOST];
} sim_dnn_program;

/* A run: where tensors are; of one that is given by value, that. */
typedef struct sim_dnn_run {
    struct sim_dnn_run *next;
    const sim_dnn_program *program;
    char *at[SIM_DNN_MOST];
    float value[SIM_DNN_MOST];
    char *space;
    size_t space_bytes;
} sim_dnn_run;

void sim_dnn_go(void *run); /* for cuLaunchHostFunc */

/* Programs as bytes, and back; the size, or NULL if they are none. */
int64_t sim_dnn_write(const sim_dnn_program *p, char *to); /* NULL: counts */
sim_dnn_program *sim_dnn_read(const char *from, int64_t n);
size_t sim_dnn_bytes(const sim_field *f);

/* Whether there is such an operation; whether the sizes of an operation of a
 * program go together. */
bool sim_dnn_knows(int kind);
bool sim_dnn_fits(const sim_dnn_program *p, int op);

/* Convolutions.  Tensors are places among those of the program, `result` that
 * which is written; numbers are one a line. */
typedef struct sim_conv {
    int lines, x, w, y, result;
    const int64_t *stride, *dilation, *before, *after;
} sim_conv;
/* False: the operation is none. */
bool sim_conv_of(sim_conv *c, const sim_dnn_program *p, const sim_dnn_op *op);
bool sim_conv_fits(const sim_conv *c, const sim_dnn_program *p);

/* Of a point of y and one of w, the point of x that they meet; false if it is
 * outside. */
bool sim_conv_at(const sim_conv *c, const sim_dnn_program *p, const int64_t *y,
                 const int64_t *w, int64_t *x);

#endif
