/* test_shard_cases.c - worked cases of layouts: what a call gives, what it
 * moves, and what reading the result moves, by number on the page.
 *
 * Bytes are those that a device receives.  Every result is also compared with
 * that of the same program on no mesh, block by block. */
#include "support/check.h"
#include "support/laid.h"
#include "support/operands.h"
#include "support/ranks.h"

#include "base/memory.h"
#include "nabla/nabla.h"
#include "run/shards.h"
#include "run/spmd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define M24 "@m = <[\"dp\"=2, \"tp\"=4]>"
#define M22 "@m = <[\"x\"=2, \"y\"=2]>"
#define M4  "@m = <[\"x\"=4]>"
#define M42 "@m = <[\"x\"=4, \"y\"=2]>"
#define TP4 "@m = <[\"tp\"=4]>"
#define DP4 "@m = <[\"dp\"=4]>"

typedef nb_tensor *program(nb_tensor *const *x);

typedef struct worked {
    const char *name, *mesh;
    program *of;
    operand x[OPERANDS];
    const char *gives;
    int64_t bytes, calls; /* of the program */
    int64_t read;         /* bytes of reading the result */
} worked;

/* Programs */

#define PROGRAM(name, expression)               \
    static nb_tensor *name(nb_tensor *const *x) \
    {                                           \
        return expression;                      \
    }

#define SHAPE(...)                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) \
    {                                                               \
        __VA_ARGS__                                                 \
    }

#define H(where, ...)                                           \
    {                                                           \
        .layout = where, .size = {__VA_ARGS__}, .dtype = NB_F16 \
    }

PROGRAM(product, nb_matmul(x[0], x[1]))
PROGRAM(hidden, nb_relu(nb_matmul(x[0], x[1])))
PROGRAM(loss, nb_mean(nb_relu(nb_matmul(x[0], x[1])), -1, NULL, false))
PROGRAM(sum, nb_add(x[0], x[1]))
PROGRAM(scaled, nb_mul(x[0], x[1]))
PROGRAM(relu, nb_relu(x[0]))
PROGRAM(negative, nb_neg(x[0]))
PROGRAM(wave, nb_sin(x[0]))
PROGRAM(greater, nb_maximum(x[0], x[1]))
PROGRAM(rows, nb_reduce_sum(x[0], SHAPE(1), false))
PROGRAM(columns, nb_reduce_sum(x[0], SHAPE(0), false))
PROGRAM(total, nb_reduce_sum(x[0], -1, NULL, false))
PROGRAM(greatest, nb_reduce_max(x[0], SHAPE(1), false))
PROGRAM(softmax, nb_softmax(x[0], 1))
PROGRAM(scores, nb_einsum("bshe,bthe->bhst", 2, x))
PROGRAM(merged, nb_reshape(x[0], SHAPE(4, 16, 512)))
PROGRAM(apart, nb_reshape(merged(x), SHAPE(4, 16, 8, 64)))
PROGRAM(matrix, nb_reshape(x[0], SHAPE(2, 4)))
PROGRAM(again, nb_reshape(matrix(x), SHAPE(8)))
PROGRAM(flat, nb_reshape(x[0], SHAPE(32)))
PROGRAM(sorted, nb_sort(x[0], 1, false, true))
PROGRAM(turned, nb_swap_axes(x[0], 0, 1))
PROGRAM(repeated, nb_broadcast_to(x[0], SHAPE(4, 8)))
PROGRAM(raised, nb_unsqueeze(x[0], 0))
PROGRAM(halved, nb_cast(x[0], NB_F16))
PROGRAM(widened, nb_cast(x[0], NB_F32))
PROGRAM(joined, nb_concatenate(2, x, 0))

PROGRAM(convolved, nb_conv2d(x[0], x[1], &(nb_conv){.padding = {{1, 1}}}))
PROGRAM(strided,
        nb_conv2d(x[0], x[1], &(nb_conv){.stride = {2}, .padding = {{1, 1}}}))
PROGRAM(pooled, nb_max_pool2d(x[0], &(nb_pool){.kernel_size = {2, 2}}))
PROGRAM(updated,
        nb_slice_update(x[0], x[1], (int64_t[]){2, 0}, (int64_t[]){8, 4}))

/* Places from sines: some of them negative, so that they count from the end. */
static nb_tensor *places(nb_tensor *x, double n)
{
    return nb_cast(nb_mul(x, nb_num(n)), NB_I32);
}

PROGRAM(embedded, nb_gather(x[0], places(x[1], 1024), 0))
PROGRAM(scattered, nb_scatter(x[0], places(x[1], 20), x[2], 0))
PROGRAM(along, nb_take_along_axis(x[0], places(x[1], 20), 1))

PROGRAM(running, nb_cumsum(x[0], 1, false, false))
PROGRAM(argmax, nb_argmax(x[0], 1, false))

/* The same on the lanes of a vmap over the first axis. */
static nb_tensor *lanes(nb_body *body, int n, nb_tensor *const *x)
{
    return nb_func_call1(nb_vmap(nb_func_new(body, NULL), NULL), n, x);
}

FN(running_back, nb_cumprod(x[0], 0, true, true))
FN(place_of_least, nb_argmin(x[0], 0, false))
FN(picked, nb_gather(x[0], places(x[1], 20), 0))
FN(placed, nb_scatter(x[0], places(x[1], 20), x[2], 0))
FN(moved_in, nb_slice_update(x[0], x[1], (int64_t[]){3}, (int64_t[]){8}))
FN(filtered, nb_conv1d(x[0], x[1], &(nb_conv){.padding = {{2, 1}}}))
PROGRAM(lane_running, lanes(running_back, 1, x))
PROGRAM(lane_least, lanes(place_of_least, 1, x))
PROGRAM(lane_picked, lanes(picked, 2, x))
PROGRAM(lane_placed, lanes(placed, 3, x))
PROGRAM(lane_moved, lanes(moved_in, 2, x))
PROGRAM(lane_filtered, lanes(filtered, 2, x))

static nb_tensor *first_sixteen(nb_tensor *const *x)
{
    nb_tensor *y = nb_swap_axes(nb_neg(nb_matmul(x[0], x[1])), 0, 1);
    y = nb_reshape(y, SHAPE(256, 4, 8));
    return nb_slice_tensor(y, (int64_t[]){0, 0, 0}, (int64_t[]){16, 4, 8});
}

/* sum((x w)^2) of w. */
FN(square_of_product,
   nb_reduce_sum(nb_square(nb_matmul(c[0], x[0])), -1, NULL, false))

/* Gradients of the first result, left as they come. */
static bool pulled(nb_body *body, const void *ctx, int n, nb_tensor *const *x,
                   nb_tensor **y, nb_tensor **g)
{
    nb_tensor *in[4], *one = nb_scalar_float(1, NB_F32);
    int ny = 1;
    nb_tape *t = nb_tape_open(n, x, in);
    bool ok = t && body((void *)ctx, n, in, &ny, y) == NB_OK &&
              nb_tape_close(t, 1, y) == NB_OK &&
              nb_tape_pull(t, &one, g) == NB_OK;
    nb_tape_drop(t);
    return ok;
}

/* Those of two batches, added. */
static nb_tensor *accumulated(nb_tensor *const *x)
{
    nb_tensor *y, *g[2];
    for (int i = 0; i < 2; i++)
        if (!pulled(square_of_product, x + 1 + i, 1, x, &y, &g[i])) return NULL;
    return nb_add(g[0], g[1]);
}

/* sum((relu(x w1) w2)^2) of w1, w2, x. */
FN(two_layers,
   nb_reduce_sum(nb_square(nb_matmul(nb_relu(nb_matmul(x[2], x[0])), x[1])), -1,
                 NULL, false))

static const worked cases[] = {
    {"T14 a product of rows and columns",
     M24,
     product,
     {X("[dp, .]", 32, 128), X("[., tp]", 128, 256)},
     "[dp, tp]",
     0,
     0,
     ANY},
    {"T14 relu is local",
     M24,
     hidden,
     {X("[dp, .]", 32, 128), X("[., tp]", 128, 256)},
     "[dp, tp]",
     0,
     0,
     ANY},
    {"T14 a mean is pending until it is read",
     M24,
     loss,
     {X("[dp, .]", 32, 128), X("[., tp]", 128, 256)},
     "[]P{dp,tp}",
     0,
     0,
     28},
    {"T15",
     M24,
     product,
     {X("[dp, .]", 32, 128), X("[., .]", 128, 256)},
     "[dp, .]",
     0,
     0,
     ANY},
    {"T16",
     M24,
     product,
     {X("[dp, tp]", 32, 128), X("[tp, .]", 128, 256)},
     "[dp, .]P{tp}",
     0,
     0,
     ANY},
    {"T17 the whole operand is sliced",
     M24,
     product,
     {X("[., tp]", 32, 128), X("[., .]", 128, 256)},
     "[., .]P{tp}",
     0,
     0,
     ANY},
    {"T18 unless it may not be",
     M24,
     product,
     {X("[., tp]", 32, 128), X("[., .]R{tp}", 128, 256)},
     "[., .]",
     12288,
     1,
     ANY},
    {"T19 the stronger priority keeps the axis",
     TP4,
     product,
     {X("[tp p1, .]", 64, 32), X("[., tp p0]", 32, 16)},
     "[., tp]",
     6144,
     1,
     ANY},
    {"T20 of equal priorities the cheaper yields",
     TP4,
     product,
     {X("[tp, .]", 64, 32), X("[., tp]", 32, 16)},
     "[tp, .]",
     1536,
     1,
     ANY},
    {"T21 the larger axis splits",
     M24,
     product,
     {X("[., dp]", 32, 128), X("[tp, .]", 128, 256)},
     "[., .]P{tp}",
     4096,
     ANY,
     ANY},
    {"T22 a tie without a common beginning",
     M22,
     product,
     {X("[., x]", 8, 8), X("[y, .]", 8, 8)},
     "[., .]",
     256,
     2,
     ANY},
    {"T23 the finer split",
     M22,
     sum,
     {X("[(x y), .]", 8, 8), X("[x, .]", 8, 8)},
     "[(x y), .]",
     0,
     0,
     ANY},
    {"T24 a tie of costs goes to the first factor",
     M22,
     sum,
     {X("[x, .]", 8, 8), X("[., x]", 8, 8)},
     "[x, .]",
     64,
     1,
     ANY},
    {"what the blocks of a result reach for is paid by who splits it",
     M22,
     joined,
     {X("[x, .]", 16, 16), X("[., x]", 6, 16)},
     "[., x]",
     256,
     1,
     ANY},
    {"T25",
     M24,
     product,
     {X("[dp, tp]", 32, 128), X("[., tp]", 128, 256)},
     "[dp, tp]",
     6144,
     1,
     ANY},
    {"T26 weights are gathered",
     M24,
     product,
     {X("[dp, .]", 4096, 128), X("[dp, .]", 128, 256)},
     "[dp, .]",
     65536,
     1,
     ANY},
    {"T27 or activations move",
     M24,
     product,
     {X("[dp, .]", 8, 4096), X("[dp, .]", 4096, 4096)},
     "[., .]P{dp}",
     32768,
     1,
     ANY},
    {"T28 rows", M24, rows, {X("[dp, tp]", 32, 256)}, "[dp]P{tp}", 0, 0, ANY},
    {"T28 columns",
     M24,
     columns,
     {X("[dp, tp]", 32, 256)},
     "[tp]P{dp}",
     0,
     0,
     ANY},
    {"T28 all", M24, total, {X("[dp, tp]", 32, 256)}, "[]P{dp,tp}", 0, 0, ANY},
    {"N1 a maximum is pending as one",
     M24,
     greatest,
     {X("[dp, tp]", 32, 256)},
     "[dp]Pmax{tp}",
     0,
     0,
     ANY},
    {"T29 softmax: a maximum and a sum",
     TP4,
     softmax,
     {X("[., tp]", 8, 1024)},
     "[., tp]",
     96,
     2,
     ANY},
    {"T30",
     M24,
     scores,
     {X("[dp, ., tp, .]", 4, 16, 8, 64), X("[dp, ., tp, .]", 4, 16, 8, 64)},
     "[dp, tp, ., .]",
     0,
     0,
     ANY},
    {"T31 heads are merged",
     M24,
     merged,
     {X("[dp, ., tp, .]", 4, 16, 8, 64)},
     "[dp, ., tp]",
     0,
     0,
     ANY},
    {"T31 and taken apart",
     M24,
     apart,
     {X("[dp, ., tp, .]", 4, 16, 8, 64)},
     "[dp, ., tp, .]",
     0,
     0,
     ANY},
    {"T32 an axis in two parts",
     M4,
     matrix,
     {X("[x]", 8)},
     "[x:(1)2, x:(2)2]",
     0,
     0,
     ANY},
    {"T32 and together again", M4, again, {X("[x]", 8)}, "[x]", 0, 0, ANY},
    {"T32 two axes, one in two parts",
     M42,
     matrix,
     {X("[(x y)]", 8)},
     "[x:(1)2, (x:(2)2 y)]",
     0,
     0,
     ANY},
    {"T33 what would be strided is gathered",
     M4,
     flat,
     {X("[., x]", 8, 4)},
     "[.]",
     96,
     1,
     ANY},
    {"T34 a sort spills its axis",
     TP4,
     sorted,
     {X("[., tp]", 8, 16)},
     "[tp, .]",
     96,
     1,
     ANY},
    {"a convolution reaches into its neighbours",
     M4,
     convolved,
     {X("[., x, ., .]", 2, 16, 8, 4), X("[., ., ., .]", 3, 3, 4, 4)},
     "[., x, ., .]",
     512,
     1,
     ANY},
    {"every second place into one of them",
     M4,
     strided,
     {X("[., x, ., .]", 2, 16, 8, 4), X("[., ., ., .]", 3, 3, 4, 4)},
     "[., x, ., .]",
     256,
     1,
     ANY},
    {"windows that lie within blocks",
     M4,
     pooled,
     {X("[., x, ., .]", 2, 16, 8, 4)},
     "[., x, ., .]",
     0,
     0,
     ANY},
    {"each writes what falls into its block",
     M4,
     updated,
     {X("[x, .]", 16, 4), X("[., .]", 8, 4)},
     "[x, .]",
     0,
     0,
     ANY},
    {"and gets what it has to write",
     M4,
     updated,
     {X("[x, .]", 16, 4), X("[x, .]", 8, 4)},
     "[x, .]",
     32,
     1,
     ANY},
    {"T35 an embedding of rows that devices share out",
     M24,
     embedded,
     {X("[tp, .]", 1024, 64), X("[dp, .]", 8, 16)},
     "[dp, ., .]P{tp}",
     0,
     0,
     ANY},
    {"rows are scattered to those who have their place",
     M4,
     scattered,
     {X("[x, .]", 16, 4), X("[.]", 8), X("[., .]", 8, 4)},
     "[x, .]",
     0,
     0,
     ANY},
    {"elements along a split axis are picked where they are",
     M22,
     along,
     {X("[y, x]", 4, 16), X("[y, .]", 4, 8)},
     "[y, .]P{x}",
     0,
     0,
     ANY},
    {"running sums take one total from each block",
     TP4,
     running,
     {X("[., tp]", 8, 64)},
     "[., tp]",
     96,
     1,
     ANY},
    {"running sums that are pending stay so",
     M24,
     running,
     {X("[., dp]P{tp}", 8, 64)},
     "[., dp]P{tp}",
     32,
     1,
     ANY},
    {"the greatest of each block, and who has it says where",
     TP4,
     argmax,
     {X("[., tp]", 8, 64)},
     "[.]P{tp}",
     96,
     1,
     ANY},
    {"lanes of running products",
     M22,
     lane_running,
     {X("[y, x]", 4, 7)},
     "[y, x]",
     8,
     1,
     ANY},
    {"lanes of the least",
     M22,
     lane_least,
     {X("[y, x]", 4, 7)},
     "[y]P{x}",
     8,
     1,
     ANY},
    {"lanes of what is picked",
     M22,
     lane_picked,
     {X("[y, x]", 4, 16), X("[y, .]", 4, 8)},
     "[y, .]P{x}",
     0,
     0,
     ANY},
    {"lanes of what is placed",
     M22,
     lane_placed,
     {X("[y, x]", 4, 16), X("[y, .]", 4, 8), X("[y, .]", 4, 8)},
     "[y, x]",
     0,
     0,
     ANY},
    {"lanes of what is written",
     M22,
     lane_moved,
     {X("[y, x]", 4, 16), X("[y, .]", 4, 8)},
     "[y, x]",
     0,
     0,
     ANY},
    {"lanes of convolutions",
     M22,
     lane_filtered,
     {X("[y, ., x, .]", 4, 2, 16, 3), X("[y, ., ., .]", 4, 4, 3, 2)},
     "[y, ., x, .]",
     96,
     1,
     ANY},
    {"T36 transpose", M4, turned, {X("[x, .]", 4, 8)}, "[., x]", 0, 0, ANY},
    {"T36 broadcast", M4, repeated, {X("[x]", 8)}, "[., x]", 0, 0, ANY},
    {"T36 unsqueeze", M4, raised, {X("[x]", 8)}, "[., x]", 0, 0, ANY},
    {"T37 a sum comes before relu",
     M24,
     relu,
     {X("[dp, .]P{tp}", 32, 256)},
     "[dp, .]",
     24576,
     1,
     ANY},
    {"T38",
     TP4,
     sum,
     {X("[., .]P{tp}", 8, 8), X("[., .]P{tp}", 8, 8)},
     "[., .]P{tp}",
     0,
     0,
     ANY},
    {"T39 what is whole is not added to each part",
     TP4,
     sum,
     {X("[., .]P{tp}", 8, 8), X("[., .]", 8, 8)},
     "[., .]",
     384,
     1,
     ANY},
    {"a maximum goes through what never falls",
     TP4,
     relu,
     {X("[., .]Pmax{tp}", 8, 8)},
     "[., .]Pmax{tp}",
     0,
     0,
     384},
    {"and comes out of what never rises as a minimum",
     TP4,
     negative,
     {X("[., .]Pmax{tp}", 8, 8)},
     "[., .]Pmin{tp}",
     0,
     0,
     384},
    {"but not through what does both",
     TP4,
     wave,
     {X("[., .]Pmax{tp}", 8, 8)},
     "[., .]",
     384,
     1,
     ANY},
    {"the greater of two maxima",
     TP4,
     greater,
     {X("[., .]Pmax{tp}", 8, 8), X("[., .]Pmax{tp}", 8, 8)},
     "[., .]Pmax{tp}",
     0,
     0,
     384},
    {"the greater of two minima",
     TP4,
     greater,
     {X("[., .]Pmin{tp}", 8, 8), X("[., .]Pmin{tp}", 8, 8)},
     "[., .]",
     768,
     2,
     ANY},
    {"T40 of two sums one is taken",
     TP4,
     scaled,
     {X("[., .]P{tp}", 8, 8), X("[., .]P{tp}", 8, 8)},
     "[., .]P{tp}",
     384,
     1,
     ANY},
    {"T41 the axis is used elsewhere",
     TP4,
     product,
     {X("[., .]P{tp}", 32, 128), X("[., tp]", 128, 256)},
     "[., tp]",
     24576,
     1,
     ANY},
    {"T42 or by a factor of the carrier",
     TP4,
     product,
     {X("[., .]P{tp}", 32, 128), X("[tp, .]", 128, 256)},
     "[., .]P{tp}",
     12288,
     1,
     ANY},
    {"T43 one sum, at the end, of what is left",
     TP4,
     first_sixteen,
     {X("[., tp]", 32, 64), X("[tp, .]", 64, 256)},
     "[., ., .]P{tp}",
     0,
     0,
     3072},
    {"T44 rounding comes after",
     TP4,
     halved,
     {X("[., .]P{tp}", 8, 8)},
     "[., .]",
     384,
     1,
     ANY},
    {"T44 widening does not round",
     TP4,
     widened,
     {H("[., .]P{tp}", 8, 8)},
     "[., .]P{tp}",
     0,
     0,
     ANY},
    {"T44 concatenated sums",
     TP4,
     joined,
     {X("[., .]P{tp}", 8, 8), X("[., .]P{tp}", 8, 8)},
     "[., .]P{tp}",
     0,
     0,
     ANY},
    {"T44 one of them whole",
     TP4,
     joined,
     {X("[., .]P{tp}", 8, 8), X("[., .]", 8, 8)},
     "[., .]",
     384,
     1,
     ANY},
    {"T46 two axes, one sum",
     M24,
     product,
     {X("[., .]P{dp}", 32, 128), X("[., .]P{tp}", 128, 256)},
     "[., .]P{dp,tp}",
     0,
     0,
     57344},
};

static const worked gradients = {
    "T53 gradients of two batches, one sum",
    DP4,
    accumulated,
    {X("[., .]", 8, 4), X("[dp, .]", 16, 8), X("[dp, .]", 16, 8)},
    "[., .]P{dp}",
    0,
    0,
    192};

/* Running them */

static bool equal(nb_tensor *y, nb_tensor *plain)
{
    const char *bad = blocks_check(y, plain, 2e-3);
    if (bad) printf("  %s\n", bad);
    return !bad;
}

static void works(const worked *c)
{
    const nb_mesh *m = mesh_there(nb_mesh_parse(c->mesh));
    nb_tensor *x[OPERANDS], *plain[OPERANDS];
    if (operands_lay(c->name, c->x, m, plain, x) < 0) return;
    nb_comm_stats_reset(m);
    nb_tensor *y = c->of(x), *whole = c->of(plain);
    if (!expect(y && whole, "%s: the call", c->name)) return;
    expect(has_layout(y, m, c->gives), "%s: the layout", c->name);
    if (!expect(nb_realize(y) == NB_OK, "%s: the run", c->name)) return;
    expect(has_moved(m, c->bytes, c->calls), "%s: what moves", c->name);
    nb_comm_stats_reset(m);
    bool same = equal(y, whole);
    if (c->read != ANY)
        expect(has_moved(m, c->read, 1), "%s: what reading moves", c->name);
    expect(same, "%s: the value", c->name);
}

/* Meshes with rules of their own: T34 with spill off, T39 with the mask. */
static void rules_of_a_mesh(void)
{
    static const struct {
        int rules;
        program *of;
        operand x[2];
        const char *gives;
        int64_t bytes;
    } row[] = {{NB_MESH_GATHER, sorted, {X("[., tp]", 8, 16)}, "[., .]", 384},
               {NB_MESH_MASK,
                sum,
                {X("[., .]P{tp}", 8, 8), X("[., .]", 8, 8)},
                "[., .]P{tp}",
                0},
               {NB_MESH_MASK,
                sum,
                {X("[., .]", 8, 8), X("[., .]P{tp}", 8, 8)},
                "[., .]P{tp}",
                0},
               {NB_MESH_MASK,
                joined,
                {X("[., .]", 8, 8), X("[., .]P{tp}", 8, 8)},
                "[., .]P{tp}",
                0},
               {NB_MESH_MASK, relu, {X("[., .]P{tp}", 8, 8)}, "[., .]", 384}};
    const nb_mesh *plain = nb_mesh_parse(TP4);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const nb_mesh *m = nb_mesh_with(plain, row[i].rules);
        nb_tensor *x[2], *whole[2];
        for (int k = 0; k < 2 && row[i].x[k].layout; k++) {
            whole[k] = ramp(&row[i].x[k]);
            x[k] = lay(whole[k], m, row[i].x[k].layout);
        }
        nb_comm_stats_reset(m);
        nb_tensor *y = row[i].of(x), *want = row[i].of(whole);
        bool ok = y && want && has_layout(y, m, row[i].gives) &&
                  nb_realize(y) == NB_OK && has_moved(m, row[i].bytes, ANY);
        expect(ok && equal(y, want), "rules %d, row %zu", row[i].rules, i);
    }
    expect(nb_mesh_with(plain, 0) == plain &&
               nb_mesh_with(nb_mesh_with(plain, 3), 0) == plain,
           "without rules it is what it was");
    expect(!nb_mesh_with(plain, 4) && failed_with(NB_EVALUE, "no rules 4"),
           "there are two");
}

static void rows_of_a_table(void)
{
    static const double part[4][4] = {
        {10, 0, 0, 0}, {0, 40, 0, 30}, {0, 0, 0, 0}, {0, 0, 80, 0}};
    double row[] = {10, 20, 30, 40, 50, 60, 70, 80}, pick[] = {0, 3, 7, 2};
    double sum[] = {10, 40, 80, 30};
    const nb_mesh *m = nb_mesh_parse(M4);
    nb_tensor *table = lay(vec(8, row), m, "[x]");
    nb_tensor *y = nb_gather(table, nb_cast(vec(4, pick), NB_I64), 0);
    expect(has_layout(y, m, "[.]P{x}"), "T35 the picked rows are pending");
    if (!expect(nb_realize(y) == NB_OK, "T35 the pick runs")) return;
    for (int p = 0; p < 4; p++)
        expect(is(shard_anywhere(y, p), 4, part[p]), "T35 part %d", p);
    expect(is(y, 4, sum), "T35 the sum");
}

/* Derivatives */

static void gradients_of_two_layers(void)
{
    static const operand of[] = {X("[., tp]", 64, 256), X("[tp, .]", 256, 64),
                                 X("[., .]", 8, 64)};
    const nb_mesh *m = nb_mesh_parse(TP4);
    nb_tensor *x[3], *plain[3], *y[4], *whole[4];
    for (int i = 0; i < 3; i++) {
        plain[i] = ramp(&of[i]);
        x[i] = lay(plain[i], m, of[i].layout);
    }
    nb_comm_stats_reset(m);
    bool ok = pulled(two_layers, NULL, 3, x, y, y + 1) &&
              pulled(two_layers, NULL, 3, plain, whole, whole + 1);
    if (!expect(ok, "T54 gradients")) return;
    expect(has_layout(y[1], m, "[., tp]"), "T54 dw1 lies as w1");
    expect(has_layout(y[2], m, "[tp, .]"), "T54 dw2 lies as w2");
    expect(has_layout(y[3], m, "[., .]P{tp}"), "T54 dx is pending");
    expect(nb_realize_all(4, y) == NB_OK, "T54 the step runs");
    expect(has_moved(m, 3072, 1), "T54 one sum, in the forward pass");
    for (int i = 0; i < 3; i++)
        expect(equal(y[i], whole[i]), "T54 result %d", i);
    nb_comm_stats_reset(m);
    expect(equal(y[3], whole[3]), "T54 dx");
    expect(has_moved(m, 3072, 1), "T54 dx is summed when it is read");
}

/* Devices at the ends of a split dim do what all others do. */

PROGRAM(strided_twice,
        nb_conv2d(nb_conv2d(x[0], x[1],
                            &(nb_conv){.stride = {2, 1},
                                       .padding = {{1, 1}, {1, 1}}}),
                  x[1], &(nb_conv){.padding = {{1, 1}}}))
PROGRAM(padded, nb_pad(x[0], (int64_t[]){0, 0, 8, 8, 0, 0, 0, 0}, 0))
PROGRAM(mean_pooled, nb_avg_pool2d(x[0], &(nb_pool){.kernel_size = {9, 1},
                                                    .stride = {1, 1},
                                                    .padding = {{4, 4}}}))
PROGRAM(middle,
        nb_slice_tensor(x[0], (int64_t[]){0, 4, 0, 0}, (int64_t[]){1, 8, 4, 2}))
PROGRAM(backwards, nb_flip(x[0], 1, (int64_t[]){1}))

typedef struct shared {
    const char *name;
    program *of;
    int pulled; /* also what flows back to so many inputs */
} shared;

static nb_status squares(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const shared *s = ctx;
    (void)nx;
    y[0] = nb_reduce_sum(nb_square(s->of(x)), -1, NULL, false);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

/* How many programs it takes for all devices. */
static int programs(const shared *of, nb_tensor *const *x)
{
    nb_tensor *y[3];
    nb_graph *g;
    int ny = 1 + of->pulled, n = 0;
    bool ok = of->pulled ? pulled(squares, of, of->pulled, x, y, y + 1)
                         : (y[0] = of->of(x)) != NULL;
    if (!ok || nb_graph_of(2, x, ny, y, &g) != NB_OK) return 0;
    nb_spmd *s = nb_spmd_new(g, false);
    if (s) n = nb_spmd_programs(s);
    nb_spmd_drop(s);
    return n;
}

static void devices_share_a_program(void)
{
    static const shared same[] = {
        {"convolution", convolved, 0},
        {"gradients of a convolution", convolved, 2},
        {"strided convolutions", strided_twice, 2},
        {"zeros around an image", padded, 1},
        {"means of windows", mean_pooled, 1},
        {"the middle of an axis", middle, 0},
        {"an axis backwards", backwards, 1},
    };
    const nb_mesh *m = nb_mesh_parse("@m = <[\"x\"=8]>");
    nb_tensor *x[] = {
        lay(ramp(&(operand)X("", 1, 16, 4, 2)), m, "[., x, ., .]"),
        lay(ramp(&(operand)X("", 3, 3, 2, 2)), m, "[., ., ., .]")};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        int n = programs(&same[i], x);
        expect(n == 1, "%s: %d programs for 8 devices", same[i].name, n);
    }
}

/* Values that lie on no mesh */

enum { ROWS = 1024, COLUMNS = 512 };

static nb_tensor *drawn(nb_tensor *key)
{
    return nb_random_uniform(key, 2, (int64_t[]){ROWS, COLUMNS}, 0, 1, NB_F32);
}

static nb_tensor *counted(nb_tensor *key)
{
    (void)key;
    return nb_broadcast_to(nb_sin(nb_iota(COLUMNS, NB_F32)), 2,
                           (int64_t[]){ROWS, COLUMNS});
}

static nb_tensor *rolled_dice(nb_tensor *key)
{
    nb_tensor *i =
        nb_random_randint(key, 2, (int64_t[]){ROWS, COLUMNS}, 0, 1000, NB_I32);
    return nb_where(nb_less(i, nb_count(500)), nb_num(0), nb_cast(i, NB_F32));
}

/* Laid out, and nobody has the whole any more. */
static nb_tensor *laid_value(nb_tensor *(*of)(nb_tensor *), nb_tensor *key,
                             const nb_spec *s)
{
    nb_tensor *y = NULL;
    nb_scope_open();
    y = nb_reshard(of(key), s);
    nb_scope_close(y ? 1 : 0, &y);
    return y;
}

/* The third run is that of a compiled program. */
static void made_in_parts(nb_tensor *(*of)(nb_tensor *), nb_tensor *key,
                          const char *layout, size_t copies)
{
    const size_t bytes = (size_t)ROWS * COLUMNS * sizeof(float);
    const nb_spec *s = nb_spec_parse(nb_mesh_parse(M24), layout);
    for (int run = 0; run < 3; run++) {
        nb_scope_open();
        nb_memory_peak_reset();
        size_t before = nb_memory_in_use();
        nb_tensor *y = laid_value(of, key, s);
        expect(y && nb_realize(y) == NB_OK, "a value as %s", layout);
        size_t took = nb_memory_peak() - before;
        expect(run < 2 || took < bytes * copies + bytes / 2,
               "%s takes %zu bytes", layout, took);
        if (run == 2) expect(equal(y, of(key)), "its blocks as %s", layout);
        nb_scope_close(0, NULL);
    }
}

static void values_are_made_in_parts(void)
{
    static nb_tensor *(*const of[])(nb_tensor *) = {drawn, counted,
                                                    rolled_dice};
    nb_tensor *key = nb_random_key(7);
    for (int i = 0; i < 3; i++) {
        made_in_parts(of[i], key, "[dp, .]", 4);
        made_in_parts(of[i], key, "[., tp]", 2);
        made_in_parts(of[i], key, "[tp, dp]", 1);
        made_in_parts(of[i], key, "[(dp tp), .]", 1);
    }
}

/* Donation */

FN(stepped, nb_sub(x[0], nb_mul(x[1], nb_num(0.5))))

/* Where blocks are; of devices elsewhere, nowhere. */
static char *block(const nb_tensor *x, int position)
{
    const nb_tensor *at = nb_shards_of(x)->at[position];
    return at ? at->data : NULL;
}

static void remember(char **data, const nb_tensor *x)
{
    for (int p = 0; p < 8; p++)
        data[p] = block(x, p);
}

/* How many devices of this process have their block of y where that of x was,
 * less those that have it elsewhere. */
static int taken(char *const *was, const nb_tensor *y)
{
    int n = 0;
    for (int p = 0; p < 8; p++)
        if (was[p]) n += block(y, p) == was[p] ? 1 : -1;
    return n;
}

static void blocks_are_taken_over(void)
{
    const operand of = X("[dp, tp]", 256, 256);
    const nb_mesh *m = nb_mesh_parse(M24);
    nb_executable *e = NULL;
    nb_tensor *plain = ramp(&of), *y;
    nb_tensor *x[] = {lay(plain, m, of.layout), lay(plain, m, of.layout)};
    nb_func *f = nb_func_new(stepped, NULL);
    nb_tensor *half = nb_mul(plain, nb_num(0.5));
    char *was[8];
    int ny = 1;
    remember(was, x[0]);
    expect(nb_executable_new(f, 2, x, &e) == NB_OK &&
               nb_executable_donate(e, 1, (int[]){0}) == NB_OK,
           "a step that is given its parameters");
    nb_keep(x[0]);
    expect(nb_executable_run(e, 2, x, &ny, &y) == NB_OK && equal(y, half),
           "what others hold is left");
    int here = 8 / nb_distributed_size();
    expect(taken(was, y) == -here && equal(x[0], plain), "it stays as it is");
    nb_drop(x[0]);
    x[0] = lay(plain, m, of.layout);
    remember(was, x[0]);
    expect(nb_executable_run(e, 2, x, &ny, &y) == NB_OK && equal(y, half),
           "what nobody holds is written over");
    expect(taken(was, y) == here, "on all devices, not %d", taken(was, y));
    nb_tensor *gone = nb_neg(x[0]);
    expect(!gone && failed_with(NB_ERUNTIME, "donated"), "and is gone");
    expect(nb_executable_memory(e).donated == 256 * 256 * 4 / 8,
           "which the plan of memory knows");
    nb_executable_drop(e);
}

/* Memory gives out at one place after another. */

static bool attempt(const worked *c, nb_tensor *const *x)
{
    nb_caches_clear();
    nb_scope_open();
    nb_tensor *y = c->of(x);
    bool ok = y && nb_realize(y) == NB_OK;
    nb_scope_close(0, NULL);
    return ok;
}

static void allocations_may_fail(const worked *c)
{
    enum { EVERY = 7 };
    const nb_mesh *m = mesh_there(nb_mesh_parse(c->mesh));
    nb_tensor *x[OPERANDS];
    bool struck = true, said = true, ok = true;
    if (nb_distributed_size() > 1) return; /* test_mpi.c has those of a rank */
    for (int n = 0; n < OPERANDS && c->x[n].layout; n++)
        x[n] = lay(ramp(&c->x[n]), m, c->x[n].layout);
    for (int64_t n = 1; struck && said; n += EVERY) {
        nb_fault_set(n);
        ok = attempt(c, x);
        struck = !nb_fault_is_set();
        nb_fault_set(0);
        said = ok || nb_error_code() == NB_EMEMORY;
        nb_error_clear();
    }
    expect(said && ok, "%s: without memory", c->name);
}

static bool has_local_rule(const worked *c)
{
    static program *const of[] = {strided, updated,    embedded,
                                  running, lane_least, lane_placed};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (c->of == of[i]) return true;
    return false;
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nb_scope_open();
        works(&cases[i]);
        if (has_local_rule(&cases[i])) allocations_may_fail(&cases[i]);
        nb_scope_close(0, NULL);
    }
    nb_scope_open();
    rows_of_a_table();
    rules_of_a_mesh();
    works(&gradients);
    gradients_of_two_layers();
    devices_share_a_program();
    values_are_made_in_parts();
    blocks_are_taken_over();
    nb_scope_close(0, NULL);
    return tally();
}
