/* operands.h - for worked cases of layouts: operands as they stand on the page,
 * how a value comes to lie, what a run has moved. */
#ifndef NB_TEST_OPERANDS_H
#define NB_TEST_OPERANDS_H

#include "comm/comm.h"
#include "core/tensor.h"

enum { OPERANDS = 3 }; /* of a case at most; those behind have no layout */

typedef struct operand {
    const char *layout;
    int64_t size[4]; /* up to the first 0 */
    nb_dtype dtype;  /* none: f32 */
} operand;

#define X(where, ...)                            \
    {                                            \
        .layout = where, .size = { __VA_ARGS__ } \
    }

/* Its value, sines of 0, 1, 2 ..., on no mesh. */
nb_tensor *ramp(const operand *x);

/* Those of a case, on no mesh and laid out, each of which is expected to be
 * there: how many, or -1. */
int operands_lay(const char *name, const operand *of, const nb_mesh *m,
                 nb_tensor **plain, nb_tensor **x);

/* Whether it is the layout of that text; how it lies is printed otherwise. */
bool lies(const nb_spec *is, const nb_mesh *m, const char *text);
bool has_layout(const nb_tensor *y, const nb_mesh *m, const char *text);

/* What devices have sent each other since the last reset, on all ranks: steps
 * that a device does with what it has are left out. */
nb_comm_stats moved(const nb_mesh *m);

/* Whether it is so much; what it is is printed otherwise. */
enum { ANY = -1 };
bool has_moved(const nb_mesh *m, int64_t bytes, int64_t calls);

#endif
