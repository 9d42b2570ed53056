/* test_collective.c - what devices and lanes say to each other.
 *
 * Sentences with the expected value on the page; then every collective against
 * finite differences, its own transpose and a loop over lanes.  Bodies place
 * their arguments themselves, so that the slow ways run on plain tensors. */
#include "support/check.h"
#include "support/laid.h"
#include "support/ranks.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "nabla/collective.h"
#include "shard/plan/plan.h"
#include "transform/func.h"

#include <stdio.h>
#include <string.h>

#define NAMES(...)                                                 \
    (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
        (const char *[])                                           \
    {                                                              \
        __VA_ARGS__                                                \
    }
#define PAIRS(...)                                                      \
    (int)(sizeof((int64_t[][2]){__VA_ARGS__}) / (2 * sizeof(int64_t))), \
        (const int64_t[][2])                                            \
    {                                                                   \
        __VA_ARGS__                                                     \
    }

static const nb_mesh *line(const char *axis, int size)
{
    return mesh_there(nb_mesh_new("line", 1, &axis, &size, NULL));
}

static const nb_mesh *grid(const char *a, int m, const char *b, int n)
{
    return mesh_there(
        nb_mesh_new("grid", 2, (const char *[]){a, b}, (int[]){m, n}, NULL));
}

static nb_tensor *on(const nb_mesh *m, const char *spec, nb_tensor *x)
{
    return nb_reshard(x, nb_spec_parse(m, spec));
}

static nb_tensor *count(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    return nb_reshape(nb_arange_int(1, n + 1, 1, NB_F64), rank, shape);
}
#define COUNTING(...)                                                \
    count((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
          (int64_t[]){__VA_ARGS__})

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

static nb_tensor *call(nb_func *f, nb_tensor *x)
{
    return nb_func_call1(f, 1, &x);
}

static nb_func *grad(nb_func *f)
{
    return nb_grad(f, 1, (int[]){0});
}

static nb_tensor *grad_of(nb_body *f, void *ctx, nb_tensor *x)
{
    return call(grad(nb_func_new(f, ctx)), x);
}

/* What is pulled back to x by ct. */
static nb_tensor *pulled(nb_func *f, nb_tensor *x, nb_tensor *ct)
{
    nb_tensor *y[2];
    int n = 2;
    nb_status s = nb_func_call(nb_vjp(f, 1), 2, (nb_tensor *[]){x, ct}, &n, y);
    return s == NB_OK ? y[1] : NULL;
}

static nb_tensor *pushed(nb_func *f, nb_tensor *x, nb_tensor *u)
{
    nb_tensor *y[2];
    int n = 2;
    nb_status s = nb_func_call(nb_jvp(f), 2, (nb_tensor *[]){x, u}, &n, y);
    return s == NB_OK ? y[1] : NULL;
}

static bool lies(const nb_tensor *x, const char *spec)
{
    if (!x || !nb_sharding(x)) return false;
    const nb_spec *s = nb_sharding(x);
    if (nb_spec_same_layout(s, nb_spec_parse(nb_spec_mesh(s), spec)))
        return true;
    char *text = nb_spec_text(s);
    printf("  it lies %s\n", text);
    nb_text_release(text);
    return false;
}

static bool equal(nb_tensor *x, nb_tensor *y)
{
    nb_tensor *most = nb_reduce_max(nb_abs(nb_sub(x, y)), -1, NULL, false);
    bool same = most && nb_rank(x) == nb_rank(y) && nb_item(most) <= 1e-12;
    for (int d = 0; same && d < nb_rank(x); d++)
        same = nb_size(x, d) == nb_size(y, d);
    return same;
}

static bool has_local(nb_tensor *x, int position, int rank, const int64_t *size)
{
    nb_tensor *b = shard_anywhere(x, position);
    bool same = b && nb_rank(b) == rank;
    for (int d = 0; same && d < rank; d++)
        same = nb_size(b, d) == size[d];
    return same;
}

/* Derivatives are finite differences, vjp is jvp transposed, a batch a loop. */
static void holds(const char *what, nb_func *f, nb_tensor *x)
{
    static const way ways[] = {VJP, JVP, VMAP};
    task g = {.fn = f, .nin = 1, .nout = 1, .x = {x}};
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        task t = task_transform(ways[k], &g, 1, 0);
        expect(task_agrees(ways[k], &g, &t), "%s: %s", what, way_name[ways[k]]);
        if (ways[k] == VJP)
            expect(task_is_transposed(&g, &t, 1e-9), "%s: transposed", what);
    }
}

static nb_tensor *wave(int64_t n)
{
    return nb_sin(
        nb_arange_float(0.3, 0.3 + (double)n * 0.7 - 0.1, 0.7, NB_F64));
}

/* ppermute */

static const int64_t ring[][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};

FN(shift_lanes, nb_ppermute(x[0], 3, ring, "stage"))
FN(ring_lanes, nb_ppermute(x[0], 4, ring, NULL))
FN(shift_blocks,
   nb_ppermute(on(line("stage", 4), "[stage]", x[0]), 3, ring, "stage"))
FN(ring_sum,
   total(nb_ppermute(on(line("stage", 4), "[stage]", x[0]), 4, ring, NULL)))

static nb_func *staged(nb_body *f)
{
    return nb_vmap(nb_func_new(f, NULL),
                   &(nb_vmap_options){.spmd_axis_name = "stage",
                                      .mesh = line("stage", 4)});
}

static void rings(void)
{
    const nb_mesh *m = line("stage", 4), *g = grid("a", 2, "b", 4);
    nb_tensor *x = VEC(10, 20, 30, 40), *ct = VEC(1, 2, 3, 4);
    nb_tensor *s = on(m, "[stage]", x);
    SAYS("blocks go round", nb_ppermute(s, 4, ring, NULL), 40, 10, 20, 30);
    SAYS("by name", nb_ppermute(s, 4, ring, "stage"), 40, 10, 20, 30);
    SAYS("who gets nothing has zeros", nb_ppermute(s, 3, ring, NULL), 0, 10, 20,
         30);
    expect(lies(nb_ppermute(s, 3, ring, NULL), "[stage]"),
           "they lie as before");
    SAYS("back go the inverse pairs",
         pulled(nb_func_new(shift_blocks, NULL), x, ct), 2, 3, 4, 0);
    SAYS("the gradient of the sum of a ring", grad_of(ring_sum, NULL, x), 1, 1,
         1, 1);
    SAYS("lanes go round", call(staged(ring_lanes), x), 40, 10, 20, 30);
    SAYS("and stop", call(staged(shift_lanes), x), 0, 10, 20, 30);
    SAYS("and back", pulled(staged(shift_lanes), x, ct), 2, 3, 4, 0);
    expect(lies(call(staged(ring_lanes), x), "[stage]"), "at home");

    nb_tensor *b = on(m, "[stage]", COUNTING(8));
    SAYS("a ring is a roll by one block", nb_ppermute(b, 4, ring, NULL), 7, 8,
         1, 2, 3, 4, 5, 6);
    nb_tensor *w = on(g, "[a, b]", COUNTING(2, 4));
    SAYS("along one axis of two", nb_ppermute(w, 4, ring, "b"), 4, 1, 2, 3, 8,
         5, 6, 7);
    SAYS("among all devices",
         nb_ppermute(w, PAIRS({0, 7}, {7, 0}, {1, 2}), NULL), 8, 0, 2, 0, 0, 0,
         0, 1);
    nb_tensor *v = on(g, "[., (b a)]", COUNTING(2, 8));
    SAYS("along the minor axis of a dim",
         nb_ppermute(v, PAIRS({0, 1}, {1, 0}), "a"), 2, 1, 4, 3, 6, 5, 8, 7, 10,
         9, 12, 11, 14, 13, 16, 15);
    nb_tensor *r = on(g, "[., b]", COUNTING(1, 4));
    SAYS("devices with the same block may agree",
         nb_ppermute(r, PAIRS({0, 1}, {4, 5}), NULL), 0, 1, 0, 0);
    FAILS("or not", nb_ppermute(r, PAIRS({0, 1}), NULL), NB_EVALUE,
          "device 5 would get another value than one that has the same block");
    FAILS("a target twice", nb_ppermute(s, PAIRS({0, 1}, {2, 1}), NULL),
          NB_EVALUE, "ppermute: device 1 is a target twice");
    FAILS("one that is not there", nb_ppermute(s, PAIRS({0, 4}), "stage"),
          NB_EVALUE, "ppermute: pair (0, 4) of 4 devices");
    FAILS("no such axis", nb_ppermute(s, 4, ring, "nope"), NB_EVALUE,
          "ppermute: mesh @line has no axis 'nope'");
    FAILS("blocks of two sizes",
          nb_ppermute(on(m, "[stage]", COUNTING(6)), 4, ring, NULL), NB_EVALUE,
          "divisible");
    SAYS("on no mesh there is one device", nb_ppermute(x, PAIRS({0, 0}), NULL),
         10, 20, 30, 40);
    SAYS("which may get nothing", nb_ppermute(x, 0, NULL, NULL), 0, 0, 0, 0);
    FAILS("and no other", nb_ppermute(x, 4, ring, NULL), NB_EVALUE,
          "of 1 devices");
}

/* all_reduce, pmean */

FN(reduced_square,
   total(nb_square(nb_all_reduce(on(line("tp", 2), "[tp]", x[0]), "sum", -1,
                                 NULL))))
FN(reduced, nb_all_reduce(on(line("tp", 2), "[tp]", x[0]), "sum", -1, NULL))
FN(greatest, nb_all_reduce(on(line("tp", 2), "[tp]", x[0]), "max", -1, NULL))
FN(product, nb_all_reduce(on(line("tp", 2), "[tp]", x[0]), "prod", -1, NULL))
FN(averaged, nb_pmean(on(line("tp", 2), "[tp]", x[0]), -1, NULL))
FN(counted, nb_all_reduce(on(line("tp", 2), "[.]", x[0]), "sum", NAMES("tp")))
FN(tripled, nb_mul(x[0], nb_num(3)))

static nb_func *mapped(nb_func *f)
{
    return nb_vmap(f, NULL);
}

static void reductions(void)
{
    const nb_mesh *t = line("tp", 2), *g = grid("dp", 2, "tp", 4);
    nb_tensor *u = VEC(1, 2, 3, 5), *s = on(t, "[tp]", u);
    nb_tensor *r = nb_all_reduce(s, "sum", -1, NULL);
    SAYS("the sum of the halves", r, 4, 7);
    expect(lies(r, "[.]"), "all of it on each device");
    SAYS("as the map of tangents",
         pushed(nb_func_new(reduced, NULL), u, VEC(1, 0, 2, 1)), 3, 1);
    SAYS("the gradient of its square", grad_of(reduced_square, NULL, u), 8, 14,
         8, 14);
    nb_tensor *two = nb_stack(2, (nb_tensor *[]){u, nb_neg(u)}, 0);
    nb_tensor *four = nb_stack(2, (nb_tensor *[]){two, two}, 1);
    SAYS("in a vmap", call(mapped(nb_func_new(reduced, NULL)), two), 4, 7, -4,
         -7);
    SAYS("in two", call(mapped(mapped(nb_func_new(reduced, NULL))), four), 4, 7,
         4, 7, -4, -7, -4, -7);
    SAYS("gradients in two",
         call(mapped(mapped(grad(nb_func_new(reduced_square, NULL)))), four), 8,
         14, 8, 14, 8, 14, 8, 14, -8, -14, -8, -14, -8, -14, -8, -14);

    nb_tensor *w = on(t, "[tp, .]", COUNTING(4, 2));
    SAYS("a product of halves", nb_all_reduce(w, "prod", -1, NULL), 5, 12, 21,
         32);
    SAYS("the greater", nb_all_reduce(s, "max", -1, NULL), 3, 5);
    SAYS("the lesser", nb_all_reduce(s, "min", -1, NULL), 1, 2);
    nb_tensor *whole = on(t, "[.]", u);
    SAYS("the greatest of what all have", nb_all_reduce(whole, "max", -1, NULL),
         1, 2, 3, 5);
    SAYS("the least of it", nb_all_reduce(whole, "min", NAMES("tp")), 1, 2, 3,
         5);
    SAYS("the sum counts each device", nb_all_reduce(whole, "sum", -1, NULL), 2,
         4, 6, 10);
    expect(nb_dtype_of(nb_all_reduce(on(t, "[.]", nb_cast(u, NB_I32)), "sum",
                                     -1, NULL)) == NB_I32,
           "in its own dtype");
    SAYS("so does the product", nb_all_reduce(whole, "prod", -1, NULL), 1, 4, 9,
         25);
    SAYS("one dim on both axes",
         nb_all_reduce(on(g, "[(dp tp)]", COUNTING(16)), "sum", -1, NULL), 64,
         72);
    nb_tensor *both = on(g, "[(dp tp)]", COUNTING(16));
    SAYS("over the major one", nb_all_reduce(both, "sum", NAMES("dp")), 10, 12,
         14, 16, 18, 20, 22, 24);
    SAYS("over the minor one", nb_all_reduce(both, "sum", NAMES("tp")), 16, 20,
         48, 52);
    expect(lies(nb_all_reduce(both, "sum", NAMES("tp")), "[dp]"),
           "the other stays");
    expect(lies(nb_all_reduce(both, "sum", NAMES("dp")), "[tp]"), "or this");

    nb_tensor *p = nb_matmul(on(g, "[., tp]", COUNTING(2, 4)),
                             on(g, "[tp, .]", COUNTING(4, 1)));
    expect(lies(p, "[., .]P{tp}"), "a sum is pending");
    SAYS("which is settled", nb_all_reduce(p, "sum", -1, NULL), 30, 70);
    expect(lies(nb_all_reduce(p, "sum", -1, NULL), "[., .]"), "then");
    SAYS("over the other axis it counts", nb_all_reduce(p, "sum", NAMES("dp")),
         60, 140);

    SAYS("the mean of what all have", nb_pmean(whole, NAMES("tp")), 1, 2, 3, 5);
    SAYS("the mean of blocks", nb_pmean(s, -1, NULL), 2, 3.5);
    SAYS("on no mesh there is one device", nb_all_reduce(u, "sum", -1, NULL), 1,
         2, 3, 5);
    FAILS(
        "which has no axes", nb_all_reduce(u, "sum", NAMES("tp")), NB_EVALUE,
        "no open vmap has an axis named 'tp', and the tensor lies on no mesh");
    FAILS("no such kind", nb_all_reduce(s, "mean", -1, NULL), NB_EVALUE,
          "'mean' is not sum, max, min or prod");
    FAILS("no such axis", nb_all_reduce(s, "sum", NAMES("nope")), NB_EVALUE,
          "all_reduce: mesh @line has no axis 'nope'");
    FAILS("twice", nb_all_reduce(s, "sum", NAMES("tp", "tp")), NB_EVALUE,
          "axis 'tp' is named twice");
    FAILS("blocks of two sizes",
          nb_all_reduce(on(t, "[tp]", COUNTING(3)), "sum", -1, NULL), NB_EVALUE,
          "all_reduce: dim 0 of size 3 is not divisible by 2");
}

/* Placing */

FN(gathered, nb_all_gather(on(line("tp", 2), "[tp]", x[0]), 0, NULL, true))
FN(scattered, nb_reduce_scatter(on(line("tp", 2), "[.]", x[0]), 0, NULL))
FN(scattered_blocks,
   nb_reduce_scatter(on(line("tp", 2), "[tp]", x[0]), 0, NULL))
FN(exchanged, nb_all_to_all(on(line("tp", 2), "[tp]", x[0]), 0, 0, NULL, true))
FN(spread_square,
   total(nb_square(nb_distributed_broadcast(x[0], line("dp", 4)))))
FN(exchanged_square,
   total(nb_square(nb_all_to_all(on(line("tp", 2), "[tp]", x[0]), 0, 0, NULL,
                                 true))))

static void placing(void)
{
    const nb_mesh *t = line("tp", 2), *g = grid("dp", 2, "tp", 4);
    const nb_mesh *q = grid("x", 2, "y", 2);
    nb_tensor *x = COUNTING(4, 8), *s = on(g, "[dp, tp]", x);
    nb_tensor *y = nb_all_gather(s, 1, NULL, true);
    expect(lies(y, "[dp, .]") && equal(y, x), "one axis is gathered");
    y = nb_all_gather(s, -2, NULL, true);
    expect(lies(y, "[., tp]") && equal(y, x), "or the other");
    y = nb_all_gather(s, NB_ALL_DIMS, NULL, true);
    expect(lies(y, "[., .]") && equal(y, x), "or all");
    y = nb_all_gather(on(g, "[(dp tp), .]", COUNTING(8, 2)), 0, "tp", true);
    expect(lies(y, "[dp, .]"), "or a mesh axis of a dim");
    expect(nb_all_gather(x, 0, NULL, true) == x, "what is not split passes");
    y = nb_gather_all_axes(on(q, "[x, y]", x));
    expect(lies(y, "[., .]") && equal(y, x), "all axes at once");
    y = on(g, "[., tp]", on(g, "[dp, .]", x));
    expect(lies(y, "[., tp]") && equal(y, x), "moved to another");

    y = nb_reduce_scatter(on(t, "[.]", COUNTING(4)), 0, NULL);
    SAYS("scattered replicas are counted", y, 2, 4, 6, 8);
    expect(lies(y, "[tp]"), "and split");
    y = nb_reduce_scatter(on(q, "[x, .]", COUNTING(8, 1)), 0, NULL);
    SAYS("scattered blocks are added up", y, 6, 8, 10, 12);
    expect(lies(y, "[x, .]"), "over that axis alone");
    y = nb_reduce_scatter(on(q, "[., (x y)]", COUNTING(1, 8)), 1, "y");
    SAYS("or over one that is named", y, 4, 6, 12, 14);
    expect(nb_size(y, 1) == 4, "of half the size");
    nb_tensor *p = nb_matmul(on(g, "[., tp]", COUNTING(4, 4)),
                             on(g, "[tp, .]", COUNTING(4, 1)));
    y = nb_reduce_scatter(p, 0, NULL);
    SAYS("a sum that is pending", y, 30, 70, 110, 150);
    expect(lies(y, "[tp, .]"), "settled in parts");
    FAILS("not divisible",
          nb_reduce_scatter(on(t, "[.]", COUNTING(3)), 0, NULL), NB_EVALUE,
          "reduce_scatter: dim 0 of size 3 is not divisible by 2");
    FAILS("nor by twice that",
          nb_reduce_scatter(on(t, "[tp]", COUNTING(6)), 0, NULL), NB_EVALUE,
          "not divisible by 4");
    FAILS("no such dim", nb_reduce_scatter(on(t, "[.]", COUNTING(4)), 1, NULL),
          NB_EAXIS, "reduce_scatter: axis 1 is out of range");

    nb_tensor *z = COUNTING(4, 2);
    y = nb_all_to_all(on(t, "[tp, .]", z), 1, 0, NULL, true);
    expect(lies(y, "[., tp]") && equal(y, z), "another dim is split");
    y = nb_all_to_all(on(t, "[tp, .]", z), -1, -2, NULL, true);
    expect(lies(y, "[., tp]"), "counted from the end");
    SAYS("the same dim: a gradient",
         grad_of(exchanged_square, NULL, VEC(1, 2, 3, 4, 5, 6, 7, 8)), 2, 4, 6,
         8, 10, 12, 14, 16);
    FAILS("not divisible",
          nb_all_to_all(on(t, "[tp]", COUNTING(3)), 0, 0, NULL, true),
          NB_EVALUE, "all_to_all: dim 0 of size 3 is not divisible by 2");
    FAILS("nor the other",
          nb_all_to_all(on(t, "[tp, .]", COUNTING(4, 3)), 1, 0, NULL, true),
          NB_EVALUE, "dim 1 of size 3 is not divisible");

    nb_tensor *u = VEC(1, 2, 3);
    SAYS("one for all", nb_distributed_broadcast(u, line("dp", 4)), 1, 2, 3);
    SAYS("each counts", grad_of(spread_square, NULL, u), 8, 16, 24);
    expect(nb_distributed_broadcast(u, NULL) == u, "one device");
    const nb_mesh *far = nb_mesh_new("far", 1, (const char *[]){"tp"},
                                     (int[]){2}, (int[]){4, 5});
    FAILS("other devices",
          nb_distributed_broadcast(on(t, "[tp]", COUNTING(4)), far), NB_EVALUE,
          "mesh");
    y = nb_broadcast_on_mesh(on(t, "[tp]", COUNTING(4)), NULL, 1);
    expect(lies(y, "[.]"), "placed whole");
    FAILS("no such root", nb_broadcast_on_mesh(u, t, 2), NB_EVALUE,
          "mesh @line has no device 2");

    y = nb_axis_index(g, "tp");
    SAYS("where devices are", y, 0, 1, 2, 3);
    expect(lies(y, "[tp]") && nb_dtype_of(y) == NB_I32, "each its own");
    FAILS("no such axis", nb_axis_index(g, "nope"), NB_EVALUE,
          "axis_index: mesh @grid has no axis 'nope'");
}

/* Devices: what each of them has afterwards, from what they had. */

static unsigned seed = 1;

static unsigned draw_below(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 16) % n;
}

/* A layout of three dims over the axes x, y, z, each on one of them or on none,
 * in any order. */
static void draw_layout(char *text)
{
    static const char order[][4] = {"xyz", "xzy", "yxz", "yzx", "zxy", "zyx"};
    const char *axes = order[draw_below(6)];
    char dim[3][8] = {"", "", ""};
    for (int k = 0; k < 3; k++) {
        unsigned d = draw_below(4);
        size_t n = d < 3 ? strlen(dim[d]) : 0;
        if (d < 3) snprintf(dim[d] + n, 8 - n, " %c", axes[k]);
    }
    for (int d = 0; d < 3; d++)
        text += sprintf(text, "%s%s%s%s", d ? ", " : "[", *dim[d] ? "(" : ".",
                        dim[d], *dim[d] ? ")" : "");
    strcpy(text, "]");
}

/* Whether each device has the sum of what those had that differ from it along
 * the axes. */
static bool is_sum(nb_tensor *y, nb_tensor *x, const nb_mesh *m,
                   const nb_cut *axes)
{
    bool same = true;
    for (int p = 0; same && p < nb_mesh_devices(m); p++) {
        int member[8], n = nb_cut_group(m, axes, p, member);
        nb_tensor *sum = shard_anywhere(x, member[0]);
        for (int i = 1; i < n; i++)
            sum = nb_add(sum, shard_anywhere(x, member[i]));
        same = equal(shard_anywhere(y, p), sum);
    }
    return same;
}

static void sums_of_blocks(void)
{
    static const char *const name[] = {"x", "y", "z"};
    const nb_mesh *m =
        mesh_there(nb_mesh_new("cube", 3, name, (const int[]){2, 2, 2}, NULL));
    nb_tensor *x = COUNTING(8, 16, 8);
    for (int k = 0; k < 60; k++) {
        char text[40];
        const char *over[3];
        nb_cut axes = {0};
        int n = 0;
        nb_scope_open();
        draw_layout(text);
        for (int a = 0; a < 3; a++)
            if (draw_below(2)) {
                axes.at[axes.n++] = nb_axis_full(m, a);
                over[n++] = name[a];
            }
        nb_tensor *s = on(m, text, x);
        nb_tensor *y = nb_all_reduce(s, "sum", n, over);
        expect(y && is_sum(y, s, m, &axes), "devices add up %s over %d", text,
               n);
        nb_scope_close(0, NULL);
    }
}

static bool is_moved(nb_tensor *y, nb_tensor *x, const int64_t *from)
{
    bool same = true;
    for (int p = 0; same && p < 8; p++) {
        nb_tensor *had = shard_anywhere(x, from[p] < 0 ? p : (int)from[p]);
        if (from[p] < 0) had = nb_mul(had, nb_num(0));
        same = equal(shard_anywhere(y, p), had);
    }
    return same;
}

/* Any of the devices to any other, or none; what cannot be is refused. */
static void moves_of_blocks(void)
{
    static const char *const name[] = {"x", "y", "z"};
    const nb_mesh *m =
        mesh_there(nb_mesh_new("cube", 3, name, (const int[]){2, 2, 2}, NULL));
    nb_tensor *x = COUNTING(8, 16, 8);
    int moved = 0;
    for (int k = 0; k < 120; k++) {
        char text[40];
        int64_t pairs[8][2], from[8];
        int n = 0;
        nb_scope_open();
        draw_layout(text);
        unsigned turn = draw_below(8), left_out = draw_below(12);
        for (unsigned p = 0; p < 8; p++) {
            from[p] = p == left_out ? -1 : (int64_t)(p ^ turn);
            pairs[n][0] = p ^ turn;
            pairs[n][1] = p;
            n += p != left_out;
        }
        nb_tensor *s = on(m, text, x);
        nb_tensor *y = nb_ppermute(s, n, pairs, NULL);
        moved += y != NULL;
        if (y)
            expect(is_moved(y, s, from), "devices turn %s by %u", text, turn);
        else
            expect(failed_with(NB_EVALUE, "has the same block") && left_out < 8,
                   "%s is refused", text);
        nb_scope_close(0, NULL);
    }
    expect(moved > 60, "most can be moved: %d", moved);
}

static void block_laws(void)
{
    holds("a shift of blocks", nb_func_new(shift_blocks, NULL), wave(8));
    holds("a sum of blocks", nb_func_new(reduced, NULL), wave(6));
    holds("a maximum of blocks", nb_func_new(greatest, NULL), wave(6));
    holds("a product of blocks", nb_func_new(product, NULL), wave(6));
    holds("a mean of blocks", nb_func_new(averaged, NULL), wave(6));
    holds("a sum of replicas", nb_func_new(counted, NULL), wave(4));
    holds("a gather", nb_func_new(gathered, NULL), wave(4));
    holds("a scatter of replicas", nb_func_new(scattered, NULL), wave(4));
    holds("a scatter of blocks", nb_func_new(scattered_blocks, NULL), wave(8));
    holds("an exchange", nb_func_new(exchanged, NULL), wave(4));
}

/* vmap */

FN(psum, nb_all_reduce(x[0], "sum", NAMES("i")))
FN(pmax, nb_all_reduce(x[0], "max", NAMES("i")))
FN(pprod, nb_all_reduce(x[0], "prod", NAMES("i")))
FN(pmean, nb_pmean(x[0], NAMES("i")))
FN(place, nb_axis_index(NULL, "i"))
FN(psum_of_thin, nb_all_reduce(c[0], "sum", NAMES("i")))
FN(shard_gather, nb_all_gather(on(line("tp", 2), "[tp]", x[0]), 0, NULL, true))
FN(name_both, nb_all_reduce(x[0], "sum", NAMES("i", "j")))
FN(lane_and_mesh,
   nb_all_reduce(on(line("tp", 2), "[tp]", x[0]), "sum", NAMES("i", "tp")))
FN(gather_tiled, nb_all_gather(x[0], 0, "i", true))
FN(gather_new, nb_all_gather(x[0], 1, "i", false))
FN(scatter_sum, nb_reduce_scatter(x[0], 0, "i"))
FN(scatter_own, nb_pscatter(nb_all_reduce(x[0], "sum", NAMES("i")), 0, "i"))
FN(exchange_tiled, nb_all_to_all(x[0], 0, 1, "i", true))
FN(exchange_same, nb_all_to_all(x[0], 0, 0, "i", true))
FN(exchange_back, nb_all_to_all(x[0], 1, 0, "i", true))
FN(exchange_new, nb_all_to_all(x[0], 0, 1, "i", false))
FN(exchange_new_same, nb_all_to_all(x[0], 0, 0, "i", false))
FN(from_second, nb_pbroadcast(x[0], 1, "i"))

static nb_func *lanes(nb_body *f, void *ctx)
{
    return nb_vmap(nb_func_new(f, ctx), &(nb_vmap_options){.axis_name = "i"});
}

/* The same with lanes on a mesh axis of as many devices. */
static nb_func *lanes_on(nb_body *f, int n)
{
    return nb_vmap(
        nb_func_new(f, NULL),
        &(nb_vmap_options){.spmd_axis_name = "i", .mesh = line("i", n)});
}

static void algebra_over_lanes(void)
{
    nb_tensor *x = VEC(1, 2, 3), *two = COUNTING(2, 4);
    nb_tensor *scalar = nb_scalar_float(5, NB_F64);
    SAYS("a sum", call(lanes(psum, NULL), x), 6, 6, 6);
    SAYS("a maximum", call(lanes(pmax, NULL), x), 3, 3, 3);
    SAYS("a product", call(lanes(pprod, NULL), x), 6, 6, 6);
    SAYS("a mean", call(lanes(pmean, NULL), x), 2, 2, 2);
    SAYS("equal maxima get all of a gradient, as those of a reduction",
         pulled(lanes(pmax, NULL), VEC(3, 1, 3), VEC(1, 1, 2)), 4, 0, 4);
    SAYS("a place", call(lanes(place, NULL), x), 0, 1, 2);
    SAYS("a sum of what is the same for all",
         call(lanes(psum_of_thin, &scalar), x), 15, 15, 15);
    SAYS("one behind the other", call(lanes(gather_tiled, NULL), two), 1, 2, 3,
         4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8);
    SAYS("along a new axis", call(lanes(gather_new, NULL), two), 1, 5, 2, 6, 3,
         7, 4, 8, 1, 5, 2, 6, 3, 7, 4, 8);
    SAYS("each its part of the sum", call(lanes(scatter_sum, NULL), two), 6, 8,
         10, 12);
    SAYS("or its block", call(lanes(scatter_own, NULL), two), 6, 8, 10, 12);
    nb_tensor *z = COUNTING(2, 2, 2);
    SAYS("split here, put together there", call(lanes(exchange_tiled, NULL), z),
         1, 2, 5, 6, 3, 4, 7, 8);
    SAYS("both the same", call(lanes(exchange_same, NULL), two), 1, 2, 5, 6, 3,
         4, 7, 8);
    SAYS("the other way", call(lanes(exchange_back, NULL), z), 1, 3, 5, 7, 2, 4,
         6, 8);
    SAYS("without folding", call(lanes(exchange_new, NULL), z), 1, 5, 2, 6, 3,
         7, 4, 8);
    SAYS("nor moving the dim", call(lanes(exchange_new_same, NULL), z), 1, 2, 5,
         6, 3, 4, 7, 8);
    SAYS("from one", call(lanes(from_second, NULL), two), 5, 6, 7, 8, 5, 6, 7,
         8);
    nb_func *both =
        nb_vmap(lanes(name_both, NULL), &(nb_vmap_options){.axis_name = "j"});
    SAYS("over two names", call(both, COUNTING(2, 2)), 10, 10, 10, 10);
    SAYS("over a lane and a mesh axis", call(lanes(lane_and_mesh, NULL), two),
         16, 20, 16, 20);
    FAILS("a name that nobody has",
          call(nb_vmap(nb_func_new(psum, NULL),
                       &(nb_vmap_options){.axis_name = "k"}),
               x),
          NB_EVALUE, "all_reduce: no open vmap has an axis named 'i'");
    FAILS("not divisible", call(lanes(scatter_sum, NULL), COUNTING(2, 3)),
          NB_EVALUE, "dim 0 of size 3 is not divisible by 2");
    FAILS("nor to exchange",
          call(lanes(exchange_tiled, NULL), COUNTING(2, 3, 2)), NB_EVALUE,
          "not divisible");
}

static void lane_laws(void)
{
    static const struct {
        const char *what;
        nb_body *f;
        int64_t shape[3];
    } all[] = {
        {"psum", psum, {2, 4, 1}},
        {"pmax", pmax, {2, 4, 1}},
        {"pprod", pprod, {2, 4, 1}},
        {"pmean", pmean, {2, 4, 1}},
        {"gather", gather_tiled, {2, 2, 2}},
        {"gather to a new axis", gather_new, {2, 2, 2}},
        {"reduce_scatter", scatter_sum, {2, 4, 1}},
        {"own block", scatter_own, {2, 4, 1}},
        {"all_to_all", exchange_tiled, {2, 4, 3}},
        {"all_to_all of one dim", exchange_same, {2, 4, 3}},
        {"all_to_all back", exchange_back, {2, 3, 4}},
        {"all_to_all, not tiled", exchange_new, {2, 2, 3}},
        {"all_to_all of one dim, not tiled", exchange_new_same, {2, 2, 3}},
        {"broadcast", from_second, {2, 4, 1}},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        const int64_t *s = all[k].shape;
        nb_tensor *x = nb_reshape(wave(s[0] * s[1] * s[2]), 3, s);
        nb_func *plain = lanes(all[k].f, NULL), *laid = lanes_on(all[k].f, 2);
        holds(all[k].what, plain, x);
        holds(all[k].what, laid, x);
        expect(equal(call(plain, x), call(laid, x)), "%s on a mesh",
               all[k].what);
        expect(nb_spec_axes(nb_sharding(call(laid, x)), 0) == 1,
               "%s: the lanes of the result are at home", all[k].what);
        expect(equal(call(plain, x),
                     call(plain, on(line("i", 2), "[., i, .]", x))),
               "%s of lanes that are split themselves", all[k].what);
    }
}

/* T56 */
static void gathers_in_vmaps(void)
{
    const nb_mesh *t = line("tp", 2);
    nb_tensor *x = nb_cast(COUNTING(4, 16), NB_F32);
    nb_func *f = nb_vmap(nb_func_new(shard_gather, NULL), NULL);
    nb_tensor *placed = on(t, "[., tp]", x);
    nb_realize(placed);
    nb_comm_stats_reset(t);
    nb_tensor *y = call(f, placed);
    expect(lies(y, "[., .]"), "fully replicated");
    nb_realize(y);
    nb_comm_stats s = stats_anywhere(t, NB_HOP_ALL_GATHER);
    expect(s.calls == 1 && s.bytes == 128, "one gather of 128 bytes, not %lld",
           (long long)s.bytes);
    expect(equal(y, x), "equal to the input");
    nb_func *other = nb_vmap(nb_func_new(shard_gather, NULL),
                             &(nb_vmap_options){.nin = 1,
                                                .in_axes = (int[]){1},
                                                .nout = 1,
                                                .out_axes = (int[]){1}});
    y = call(other, x);
    expect(lies(y, "[., .]") && equal(y, x), "along the other axis");
    nb_tensor *z = COUNTING(2, 3, 4);
    y = call(mapped(f), z);
    expect(lies(y, "[., ., .]") && equal(y, z), "in two");
}

FN(weigh, nb_add(x[0], nb_mul(nb_num(2), x[1])))
FN(inner_spec, on(line("stage", 2), "[stage]", x[0]))
FN(inner_other, on(grid("a", 2, "b", 2), "[b]", x[0]))
FN(sum_named, nb_all_reduce(x[0], "sum", NAMES("stage")))

static void lanes_on_a_mesh(void)
{
    const nb_mesh *m = line("stage", 2), *g = grid("a", 2, "b", 2);
    int none[] = {NB_UNMAPPED, NB_UNMAPPED};
    nb_tensor *two[] = {VEC(1, 2, 3), VEC(10, 20, 30)};
    nb_func *f = nb_vmap(nb_func_new(weigh, NULL),
                         &(nb_vmap_options){.nin = 2,
                                            .in_axes = none,
                                            .axis_size = 2,
                                            .spmd_axis_name = "stage",
                                            .mesh = m});
    nb_tensor *y = nb_func_call1(f, 2, two);
    SAYS("what is not mapped is stacked", y, 21, 42, 63, 21, 42, 63);
    expect(lies(y, "[stage, .]"), "one on each device");

    f = nb_vmap(nb_func_new(weigh, NULL),
                &(nb_vmap_options){.nin = 2,
                                   .in_axes = (int[]){0, NB_UNMAPPED},
                                   .spmd_axis_name = "a",
                                   .mesh = g});
    nb_tensor *some[] = {on(g, "[., b]", COUNTING(4, 2)), VEC(10, 20)};
    y = nb_func_call1(f, 2, some);
    SAYS("some are mapped", y, 21, 42, 23, 44, 25, 46, 27, 48);
    expect(lies(y, "[a, b]"), "and keep what splits them");
    expect(has_local(y, 0, 2, (int64_t[]){2, 1}), "in blocks");
    f = nb_vmap(nb_func_new(tripled, NULL),
                &(nb_vmap_options){.spmd_axis_name = "a"});
    expect(lies(call(f, some[0]), "[a, b]"), "the mesh of the arguments");
    expect(!nb_sharding(call(f, COUNTING(4, 2))), "none without one");
    y = call(f, on(g, "[b, a]", COUNTING(4, 2)));
    expect(lies(y, "[(a b), .]"), "an axis moves from where it was");
    y = call(f, on(g, "[., .]P{b}", COUNTING(4, 2)));
    expect(equal(y, nb_mul(COUNTING(4, 2), nb_num(3))),
           "what is pending stays");
    f = nb_vmap(nb_func_new(tripled, NULL),
                &(nb_vmap_options){.nin = 1,
                                   .in_axes = (int[]){1},
                                   .nout = 1,
                                   .out_axes = (int[]){1},
                                   .spmd_axis_name = "a"});
    expect(lies(call(f, on(g, "[b, .]", COUNTING(4, 2))), "[b, a]"),
           "of any axis");
    expect(lies(call(nb_vmap(nb_func_new(tripled, NULL), NULL),
                     on(g, "[a, .]", COUNTING(4, 2))),
                "[a, .]"),
           "a vmap over a dim that is split leaves it so");

    nb_func *outer =
        nb_vmap(nb_vmap(nb_func_new(tripled, NULL),
                        &(nb_vmap_options){.spmd_axis_name = "b", .mesh = g}),
                &(nb_vmap_options){.spmd_axis_name = "a", .mesh = g});
    y = call(outer, COUNTING(4, 2, 3));
    expect(lies(y, "[a, b, .]"), "two vmaps, two axes");
    expect(equal(y, nb_mul(COUNTING(4, 2, 3), nb_num(3))), "and the value");
    y = call(f = nb_vmap(nb_func_new(tripled, NULL),
                         &(nb_vmap_options){.spmd_axis_name = "a", .mesh = g}),
             COUNTING(5));
    SAYS("lanes that the axis does not divide", y, 3, 6, 9, 12, 15);
    f = nb_vmap(nb_func_new(inner_other, NULL),
                &(nb_vmap_options){.spmd_axis_name = "a", .mesh = g});
    expect(lies(call(f, COUNTING(2, 4)), "[a, b]"), "others are free inside");
    f = nb_vmap(
        nb_func_new(sum_named, NULL),
        &(nb_vmap_options){.axis_name = "i", .spmd_axis_name = "stage"});
    SAYS("a name without a mesh", call(f, VEC(1, 2, 3)), 6, 6, 6);
    f = nb_vmap(nb_func_new(inner_spec, NULL),
                &(nb_vmap_options){.spmd_axis_name = "stage", .mesh = m});
    FAILS("a spec inside cannot name the axis", call(f, COUNTING(2, 2)),
          NB_EVALUE, "axis 'stage' is that of a vmap or shard_map around");
    f = nb_vmap(nb_func_new(tripled, NULL),
                &(nb_vmap_options){.spmd_axis_name = "nope", .mesh = m});
    FAILS("no such axis", call(f, COUNTING(2, 2)), NB_EVALUE,
          "vmap: mesh @line has no axis 'nope'");
}

/* A pipeline: S stages on as many devices, M microbatches. */
enum { S = 4, M = 8, WIDTH = 3 };

static nb_tensor *layer(nb_tensor *w, nb_tensor *x)
{
    return nb_tanh(nb_matmul(x, w));
}
FN(stage_body, layer(x[0], x[1]))
FN(pass_on, nb_ppermute(x[0], 3, ring, "stage"))

static nb_tensor *row(nb_tensor *x, int64_t i)
{
    return nb_get(x, 1, (nb_key[]){NB_AT(i)});
}

/* x (M, 2, WIDTH) through w (S, WIDTH, WIDTH); what leaves the last stage. */
static nb_tensor *pipeline(nb_tensor *w, nb_tensor *x)
{
    const nb_mesh *m = line("stage", S);
    nb_vmap_options o = {.spmd_axis_name = "stage", .mesh = m};
    nb_func *step = nb_vmap(nb_func_new(stage_body, NULL), &o);
    nb_func *pass = nb_vmap(nb_func_new(pass_on, NULL), &o);
    nb_tensor *first = nb_equal(nb_axis_index(m, "stage"), nb_num(0));
    nb_tensor *mask = nb_reshape(first, 3, (int64_t[]){S, 1, 1});
    nb_tensor *state = nb_zeros(3, (int64_t[]){S, 2, WIDTH}, NB_F64);
    nb_tensor *out[M + S - 1];
    state = on(m, "[stage, ., .]", state);
    for (int t = 0; t < M + S - 1; t++) {
        nb_tensor *fresh = row(x, t < M ? t : 0);
        state = nb_where(mask, nb_unsqueeze(fresh, 0), state);
        state = nb_func_call1(step, 2, (nb_tensor *[]){w, state});
        out[t] = row(state, S - 1);
        state = call(pass, state);
        if (!lies(state, "[stage, ., .]")) return NULL;
    }
    return nb_stack(M, out + S - 1, 0);
}

static nb_tensor *sequence(nb_tensor *w, nb_tensor *x)
{
    for (int s = 0; s < S; s++)
        x = layer(row(w, s), x);
    return x;
}
FN(pipeline_loss, total(nb_square(pipeline(x[0], x[1]))))
FN(sequence_loss, total(nb_square(sequence(x[0], x[1]))))

static void pipelines(void)
{
    nb_tensor *w =
        nb_reshape(wave(S * WIDTH * WIDTH), 3, (int64_t[]){S, WIDTH, WIDTH});
    nb_tensor *x = nb_reshape(wave(M * 2 * WIDTH), 3, (int64_t[]){M, 2, WIDTH});
    const nb_mesh *m = line("stage", S);
    expect(equal(pipeline(w, x), sequence(w, x)),
           "outputs leave at ticks 3 to 10");
    nb_tensor *in[] = {w, x}, *a[2], *b[2];
    int na = 2, nb = 2;
    nb_func *f = nb_grad(nb_func_new(pipeline_loss, NULL), 2, (int[]){0, 1});
    nb_func *g = nb_grad(nb_func_new(sequence_loss, NULL), 2, (int[]){0, 1});
    bool ok = nb_func_call(f, 2, in, &na, a) == NB_OK &&
              nb_func_call(g, 2, in, &nb, b) == NB_OK;
    expect(ok && equal(a[0], b[0]), "weights get the same gradients");
    expect(ok && equal(a[1], b[1]), "and so do inputs");
    /* A state is passed on after each tick but the last, and what leaves is
     * read by all: blocks of 2 x WIDTH. */
    in[0] = on(m, "[stage, ., .]", w);
    nb_realize(in[0]);
    nb_comm_stats_reset(m);
    nb_realize(pipeline(in[0], x));
    int64_t bytes = 0, steps = M + S - 2 + M;
    for (int k = 0; k <= NB_HOP_EXCHANGE; k++)
        bytes += stats_anywhere(m, (nb_hop_kind)k).bytes;
    expect(bytes == steps * 2 * WIDTH * 8, "no more moves: %lld bytes",
           (long long)bytes);
    ok = nb_func_call(f, 2, in, &na, a) == NB_OK;
    expect(ok && lies(a[0], "[stage, ., .]"), "where the weights lie");
}

/* shard_map */

typedef struct shards {
    nb_body *f;
    void *ctx;
    const nb_mesh *mesh;
    const char *in[3], *out[2];
    const char *manual[2];
} shards;

static nb_func *map_over(const shards *s, bool unsafe)
{
    const nb_spec *in[3], *out[2];
    nb_shard_map_options o = {.in_specs = in,
                              .out_specs = out,
                              .manual = (const char *const *)s->manual,
                              .unsafe = unsafe};
    for (; o.nin < 3 && s->in[o.nin]; o.nin++)
        in[o.nin] = nb_spec_parse(s->mesh, s->in[o.nin]);
    for (; o.nout < 2 && s->out[o.nout]; o.nout++)
        out[o.nout] = nb_spec_parse(s->mesh, s->out[o.nout]);
    while (o.nmanual < 2 && s->manual[o.nmanual])
        o.nmanual++;
    return nb_shard_map(nb_func_new(s->f, s->ctx), s->mesh, &o);
}

static nb_func *over(const shards *s)
{
    return map_over(s, false);
}

/* A body that remembers what it saw: sizes, and whether it varies before and
 * after. */
typedef struct seen {
    nb_body *f;
    int64_t in[2], out[2];
    bool before, after;
} seen;

static nb_status look(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    seen *s = ctx;
    nb_open_lane l;
    nb_status status = s->f(NULL, nx, x, ny, y);
    if (status != NB_OK || !y[0] || !nb_lane_at(0, &l)) return status;
    for (int d = 0; d < 2; d++) {
        s->in[d] = d < nb_rank(x[0]) ? nb_size(x[0], d) : 0;
        s->out[d] = d < nb_rank(y[0]) ? nb_size(y[0], d) : 0;
    }
    s->before = nb_lane_has(x[0], l.id);
    s->after = nb_lane_has(y[0], l.id);
    return status;
}

FN(itself, nb_mul(x[0], nb_num(1)))
FN(index_along, nb_add(nb_mul(x[0], nb_num(0)), nb_axis_index(NULL, "i")))
FN(shift_i, nb_ppermute(x[0], 1, ring, "i"))
FN(vary, nb_pvary(x[0], NAMES("i")))
FN(vary_sum, nb_all_reduce(nb_pvary(x[0], NAMES("i")), "sum", NAMES("i")))

/* 5.2: x (4, 4), on two devices, blocks (2, 4). */
static void manual_collectives(void)
{
    static const struct {
        const char *what;
        nb_body *f;
        const char *in, *out;
        bool before, after;
        int64_t local[2];
    } all[] = {
        {"psum", psum, "[i, .]", "[., .]", true, false, {2, 4}},
        {"psum of what all have",
         psum,
         "[., .]",
         "[., .]",
         false,
         false,
         {4, 4}},
        {"pvary", vary, "[., .]", "[i, .]", false, true, {4, 4}},
        {"pvary of what varies", vary, "[i, .]", "[i, .]", true, true, {2, 4}},
        {"pmean", pmean, "[i, .]", "[., .]", true, false, {2, 4}},
        {"pmax", pmax, "[i, .]", "[., .]", true, false, {2, 4}},
        {"all_gather", gather_tiled, "[i, .]", "[., .]", true, false, {4, 4}},
        {"all_gather, split again",
         gather_tiled,
         "[i, .]",
         "[., i]",
         true,
         false,
         {4, 4}},
        {"reduce_scatter", scatter_sum, "[i, .]", "[i, .]", true, true, {1, 4}},
        {"own block", scatter_own, "[., i]", "[i, .]", true, true, {2, 2}},
        {"all_to_all", exchange_back, "[i, .]", "[., i]", true, true, {4, 2}},
        {"ppermute", shift_i, "[i, .]", "[i, .]", true, true, {2, 4}},
        {"broadcast", from_second, "[i, .]", "[., .]", true, false, {2, 4}},
        {"nothing", itself, "[i, .]", "[i, .]", true, true, {2, 4}},
        {"axis_index", index_along, "[i, .]", "[i, .]", true, true, {2, 4}},
    };
    const nb_mesh *m = line("i", 2);
    nb_tensor *x = nb_reshape(wave(16), 2, (int64_t[]){4, 4});
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        seen s = {.f = all[k].f};
        shards o = {look, &s, m, {all[k].in}, {all[k].out}, {"i"}};
        nb_func *f = over(&o);
        nb_tensor *y = call(f, x);
        expect(y && lies(y, all[k].out), "%s: lies as out_specs say",
               all[k].what);
        expect(s.before == all[k].before && s.after == all[k].after,
               "%s: varies %d, then %d", all[k].what, s.before, s.after);
        expect(s.out[0] == all[k].local[0] && s.out[1] == all[k].local[1],
               "%s: sees (%lld, %lld)", all[k].what, (long long)s.out[0],
               (long long)s.out[1]);
        holds(all[k].what, f, x);
    }
}

FN(affine, nb_tanh(nb_matmul(x[0], x[1])))
FN(row_parallel, nb_all_reduce(nb_matmul(x[0], x[1]), "sum", NAMES("a")))
FN(minor_first, nb_sub(x[0], nb_pmean(x[0], NAMES("a", "b"))))
FN(inner_manual, nb_sub(x[0], nb_all_reduce(x[0], "sum", NAMES("b"))))
FN(inner_spec_a, on(grid("a", 2, "b", 2), "[a, .]", x[0]))
FN(inner_spec_b, on(grid("a", 2, "b", 2), "[., b]", x[0]))

static nb_status nested_maps(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    shards inner = {inner_manual, NULL,       grid("a", 2, "b", 2),
                    {"[., b]"},   {"[., b]"}, {"b"}};
    (void)ctx, (void)nx;
    y[0] = nb_all_reduce(call(over(&inner), x[0]), "sum", NAMES("a"));
    return *ny = 1, NB_OK;
}

static nb_status nested_same(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    shards inner = {itself,     NULL,       grid("a", 2, "b", 2),
                    {"[., b]"}, {"[., b]"}, {"a"}};
    (void)ctx, (void)nx;
    y[0] = call(over(&inner), x[0]);
    return *ny = 1, NB_OK;
}

/* Warnings: the last text, how many, and whether they are to be errors. */
typedef struct heard {
    char text[256];
    int count;
    bool refuses;
} heard;

static bool hear(void *ctx, const char *text)
{
    heard *h = ctx;
    h->count++;
    snprintf(h->text, sizeof h->text, "%s", text);
    return !h->refuses;
}

static void warnings(void)
{
    static const struct {
        const char *what;
        nb_body *f;
        const char *in, *out;
        bool warns;
    } all[] = {
        {"a sum of what differs", psum, "[i, .]", "[., .]", false},
        {"a sum of what is the same", psum, "[., .]", "[., .]", true},
        {"a product", pprod, "[., .]", "[., .]", true},
        {"a scattered sum", scatter_sum, "[., .]", "[i, .]", true},
        {"a sum that is meant", vary_sum, "[., .]", "[., .]", false},
        {"a mean", pmean, "[., .]", "[., .]", false},
        {"the greatest", pmax, "[., .]", "[., .]", false},
    };
    const nb_mesh *m = line("i", 2);
    nb_tensor *x = COUNTING(4, 2);
    heard h = {.count = 0};
    nb_warning_set(hear, &h);
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        shards o = {all[k].f, NULL, m, {all[k].in}, {all[k].out}, {"i"}};
        h.count = 0;
        expect(call(over(&o), x), "%s: works", all[k].what);
        expect(h.count == all[k].warns, "%s: %d warnings", all[k].what,
               h.count);
    }
    h.count = 0;
    call(nb_vmap(nb_func_new(psum, NULL),
                 &(nb_vmap_options){.nin = 1,
                                    .in_axes = (int[]){NB_UNMAPPED},
                                    .axis_size = 3,
                                    .axis_name = "i"}),
         x);
    expect(h.count == 0, "lanes of a vmap are no devices");
    shards same = {psum, NULL, m, {"[., .]"}, {"[., .]"}, {"i"}};
    SAYS("counted twice", call(over(&same), COUNTING(1, 2)), 2, 4);
    h.refuses = true;
    FAILS("a warning that is an error", call(over(&same), x), NB_EVALUE,
          "all_reduce: no device along 'i' differs in the value, which is "
          "counted 2 times: pvary says that this is meant");
    nb_warning_set(NULL, NULL);
}

static void maps(void)
{
    const nb_mesh *g = grid("a", 2, "b", 2);
    nb_tensor *x = COUNTING(4, 4), *w = nb_mul(COUNTING(4, 2), nb_num(0.01));
    nb_tensor *xw[] = {x, w};
    shards placed = {affine, NULL, g, {"[a, .]", "[., b]"}, {"[., b]"}, {0}};
    nb_tensor *y = nb_func_call1(over(&placed), 2, xw);
    expect(lies(y, "[., b]") && equal(y, nb_tanh(nb_matmul(x, w))),
           "without manual axes, placed");

    shards rows = {row_parallel,         NULL,       g,
                   {"[., a]", "[a, .]"}, {"[., .]"}, {"a"}};
    y = nb_func_call1(over(&rows), 2, xw);
    expect(lies(y, "[., .]") && equal(y, nb_matmul(x, w)),
           "a matmul by rows, added up by hand");
    task t = {.fn = over(&rows), .nin = 2, .nout = 1, .x = {x, w}};
    task vjp = task_transform(VJP, &t, 1, 0);
    expect(task_agrees(VJP, &t, &vjp), "and its gradient");

    shards left = {affine, NULL, g, {"[a, .]", "[., b]"}, {"[a, b]"}, {"a"}};
    y = nb_func_call1(over(&left), 2, xw);
    expect(lies(y, "[a, b]") && equal(y, nb_tanh(nb_matmul(x, w))),
           "axes that are not manual stay");
    shards minor = {itself, NULL, g, {"[(a b), .]"}, {"[(a b), .]"}, {"a"}};
    expect(lies(call(over(&minor), x), "[(a b), .]"), "below manual ones");
    shards both = {minor_first,    NULL,           g,
                   {"[(b a), .]"}, {"[(b a), .]"}, {"a", "b"}};
    y = call(over(&both), x);
    expect(lies(y, "[(b a), .]"), "two manual axes on one dim");
    SAYS("and the mean over both", y, -6, -6, -6, -6, -2, -2, -2, -2, 2, 2, 2,
         2, 6, 6, 6, 6);
    holds("two manual axes", over(&both), nb_sin(x));
    shards nest = {nested_maps, NULL, g, {"[a, .]"}, {"[., .]"}, {"a"}};
    y = call(over(&nest), x);
    SAYS("one in the other", y, -14, -16, -10, -12, -22, -24, -18, -20);
    expect(lies(y, "[., .]"), "and out again");
    holds("one in the other", over(&nest), nb_sin(x));
    shards spec = {inner_spec_b, NULL, g, {"[a, .]"}, {"[a, b]"}, {"a"}};
    expect(lies(call(over(&spec), x), "[a, b]"), "other axes are free inside");
}

static void misuse_of_maps(void)
{
    const nb_mesh *g = grid("a", 2, "b", 2);
    nb_tensor *x = COUNTING(4, 4);
    shards omits = {itself, NULL, g, {"[a, .]"}, {"[., .]"}, {"a"}};
    FAILS("a result that varies", call(over(&omits), x), NB_EVALUE,
          "out_specs omits an axis along which the value varies, 'a'");
    nb_tensor *y = call(map_over(&omits, true), x);
    SAYS("that of the first device", y, 1, 2, 3, 4, 5, 6, 7, 8);
    expect(lies(y, "[., .]"), "everywhere");
    shards uneven = {itself, NULL, g, {"[a, .]"}, {"[a, .]"}, {"a"}};
    FAILS("not divisible", call(over(&uneven), COUNTING(3, 4)), NB_EVALUE,
          "shard_map: dim 0 of size 3 is not divisible by 2");
    shards rank = {itself, NULL, g, {"[a]"}, {"[a, .]"}, {"a"}};
    FAILS("another rank", call(over(&rank), x), NB_EVALUE,
          "shard_map: a spec of 1 dims for a tensor of 2 dims");
    shards order = {itself, NULL, g, {"[(b a), .]"}, {"[(b a), .]"}, {"a"}};
    FAILS("a manual axis behind another", call(over(&order), x), NB_EVALUE,
          "manual axes must come first in a dim, 'a' in dim 0 does not");
    shards names = {inner_spec_a, NULL, g, {"[a, .]"}, {"[a, .]"}, {"a"}};
    FAILS("a spec inside names it", call(over(&names), x), NB_EVALUE,
          "axis 'a' is that of a vmap or shard_map around");
    shards twice = {nested_same, NULL, g, {"[a, .]"}, {"[a, .]"}, {"a"}};
    FAILS("manual twice", call(over(&twice), x), NB_EVALUE,
          "shard_map: axis 'a' is that of a vmap or shard_map around");
    shards unknown = {itself, NULL, g, {"[a, .]"}, {"[a, .]"}, {"c"}};
    FAILS("no such axis", call(over(&unknown), x), NB_EVALUE,
          "shard_map: mesh @grid has no axis 'c'");
    shards pending = {itself, NULL, g, {"[., .]P{a}"}, {"[., .]"}, {"a"}};
    FAILS("pending on it", call(over(&pending), x), NB_EVALUE,
          "the manual axis 'a' can only split dims");
    shards none = {itself, NULL, g, {"[a, .]"}, {0}, {"a"}};
    FAILS("no out_specs", over(&none), NB_EVALUE, "manual axes need out_specs");
    int open;
    nb_lanes_open(&open);
    expect(open == 0, "no lane stays open");
}

/* Memory that runs out, while recording: devices have theirs. */

static bool a_shard_map(void)
{
    const nb_mesh *g = grid("a", 2, "b", 2);
    shards nest = {nested_maps, NULL, g, {"[a, .]"}, {"[., .]"}, {"a"}};
    nb_func *f = over(&nest), *h = f ? mapped(f) : NULL;
    return h && call(h, COUNTING(2, 4, 4)) && call(grad(f), COUNTING(4, 4));
}

static bool lanes_that_move(void)
{
    nb_tensor *x = COUNTING(4, 4);
    nb_func *f = staged(ring_lanes), *h = lanes_on(exchange_same, 4);
    return f && h && call(f, x) && call(h, x) && call(grad(f), x);
}

static bool blocks_that_move(void)
{
    const nb_mesh *g = grid("a", 2, "b", 4);
    nb_tensor *x = on(g, "[a, b]", COUNTING(4, 8));
    return nb_ppermute(x, PAIRS({0, 7}, {7, 0}), NULL) &&
           nb_reduce_scatter(x, 1, "a") && nb_all_reduce(x, "sum", -1, NULL) &&
           nb_gather_all_axes(x) && nb_distributed_broadcast(x, NULL);
}

static void faults(void)
{
    expect_survival("a shard_map", a_shard_map);
    expect_survival("lanes that move", lanes_that_move);
    expect_survival("blocks that move", blocks_that_move);
}

/* Each with the number of devices of its smallest mesh, which ranks have to be
 * able to share. */
static const struct {
    void (*test)(void);
    int devices;
} all[] = {
    {rings, 4},
    {reductions, 2},
    {placing, 2},
    {sums_of_blocks, 8},
    {moves_of_blocks, 8},
    {block_laws, 2},
    {algebra_over_lanes, 2},
    {lane_laws, 2},
    {gathers_in_vmaps, 2},
    {lanes_on_a_mesh, 2},
    {pipelines, 4},
    {manual_collectives, 2},
    {warnings, 2},
    {maps, 4},
    {misuse_of_maps, 4},
};

int main(void)
{
    int ranks = nb_distributed_size();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].devices % ranks) continue;
        nb_scope_open();
        all[i].test();
        nb_scope_close(0, NULL);
    }
    nb_caches_clear();
    int64_t nodes = nb_stats_get().nodes_live;
    expect(nodes == 0, "%lld nodes are still alive", (long long)nodes);
    if (ranks == 1) faults(); /* test_mpi.c has those of a rank */
    return tally();
}
