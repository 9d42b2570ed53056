/* laid.h - for tests of sharding: tensors put on meshes, whether their blocks
 * are right, and what getting them there should have cost. */
#ifndef NB_TEST_LAID_H
#define NB_TEST_LAID_H

#include "comm/comm.h"
#include "core/tensor.h"

enum { LAYOUT = 96, HOPS = NB_HOP_EXCHANGE + 1 };

/* The mesh whose devices are so many cards in turn as NABLA_SHARD_CARDS says; m
 * itself where it says nothing. */
const nb_mesh *mesh_there(const nb_mesh *m);

/* The mesh of sizes "2x4", there: its axes are x, y, z. */
const nb_mesh *mesh_sized(const char *sizes);

/* A layout for a tensor of these dims, "[x, (y z)]Pmax{w}R{v}", or "-": on no
 * mesh.  Tensors of some dtypes have sums pending, others none. */
void layout_draw(char *text, const nb_mesh *m, int rank, nb_dtype dtype);

/* x laid out so, realised.  What is pending is made by reducing over a dim more
 * that is split, or if the text ends in "!" by moving it there. */
nb_tensor *lay(nb_tensor *x, const nb_mesh *m, const char *layout);

/* Axes of a layout's text: how many there are, and the text without the k-th. */
int layout_axes(const char *text);
bool layout_without(char *text, const nb_mesh *m, int k);

/* What steps should do, of each kind: how often, how often without moving
 * anything, and the bytes that the device at a position receives. */
enum { TRAFFIC_DEVICES = 16 };
typedef struct traffic {
    int64_t calls[HOPS], empty[HOPS], bytes[HOPS][TRAFFIC_DEVICES];
} traffic;

/* Adds what it takes to compute y, as the decisions say that are made at its
 * calls and at those that it needs; and what it takes to read it then. */
bool traffic_of_calls(traffic *t, int n, nb_tensor *const *y);
bool traffic_of_reading(traffic *t, const nb_tensor *y);

/* NULL if that is what has been counted since the last reset, on the devices
 * that are here, or what is wrong. */
const char *traffic_check(const traffic *t, const nb_mesh *m);

/* NULL if every device that is here has the block of y that its layout says, of the value of
 * plain, and reading y gives it as well; or what is wrong.  Differences may be
 * `tolerance` of the greatest element. */
const char *blocks_check(nb_tensor *y, nb_tensor *plain, double tolerance);

/* For orders of summation. */
double dtype_tolerance(nb_dtype d);

#endif
