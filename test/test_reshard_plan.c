/* test_reshard_plan.c - plans from one layout to another.
 *
 * First the plans of the specification, with their steps and bytes.  Then laws
 * on random pairs: a plan does what it says on numbers, moves what it was
 * priced at, and is no dearer than gathering all and slicing. */
#include "support/check.h"
#include "support/simulate.h"

#include "shard/deal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nb_mesh *mesh(const char *axes, const int *size)
{
    const char *name[NB_MESH_AXES];
    static char text[NB_MESH_AXES][2];
    int n = (int)strlen(axes);
    for (int i = 0; i < n; i++) {
        text[i][0] = axes[i];
        name[i] = text[i];
    }
    return nb_mesh_new("m", n, name, size, NULL);
}

static const nb_mesh *m24(void)
{
    return nb_mesh_new("m", 2, (const char *[]){"dp", "tp"}, (int[]){2, 4},
                       NULL);
}

static const nb_mesh *m222(void)
{
    return mesh("xyz", (int[]){2, 2, 2});
}

/* "slice all_gather ..." */
static const char *kinds(const nb_reshard_plan *p)
{
    static char text[200];
    text[0] = 0;
    for (int i = 0; i < p->n; i++) {
        if (i) strcat(text, " ");
        strcat(text, nb_hop_name(p->step[i].kind));
    }
    return text;
}

static const nb_reshard_plan *plan(const nb_mesh *m, const char *from,
                                   const char *into, const int64_t *size,
                                   const nb_plan_options *options)
{
    const nb_spec *a = spec_of(m, from), *b = spec_of(m, into);
    if (!expect(a && b, "%s and %s are specs", from, into)) return NULL;
    return nb_reshard_find(a, b, size, 4, options);
}

/* steps NULL: any. */
static void is_plan(const nb_mesh *m, const char *from, const char *into,
                    const int64_t *size, const char *steps, int64_t bytes)
{
    const nb_reshard_plan *p = plan(m, from, into, size, NULL);
    if (!expect(p != NULL, "%s -> %s has a plan", from, into)) return;
    expect((!steps || strcmp(kinds(p), steps) == 0) && p->bytes == bytes,
           "%s -> %s: %s, %lld; not %s, %lld", from, into,
           steps ? steps : "any", (long long)bytes, kinds(p),
           (long long)p->bytes);
}

/* T47 to T52. */
static void test_specified(void)
{
    int64_t s[2] = {16, 16}, eight[2] = {8, 8}, x[2] = {32, 128};
    const nb_mesh *m = m222(), *m22 = mesh("xy", (int[]){2, 2});
    is_plan(m, "[x,.]", "[.,.]", s, "all_gather", 512);
    is_plan(m, "[x,.]", "[.,x]", s, "all_to_all", 256);
    is_plan(m, "[.,.]", "[x,y]", s, "slice slice", 0);
    is_plan(m, "[(x y),.]", "[x,.]", s, "all_gather", 256);
    is_plan(m, "[(x y),.]", "[y,.]", s, "permute all_gather", 512);
    is_plan(m, "[.,.]P{x}", "[.,.]", s, "all_reduce", 1024);
    is_plan(m, "[.,.]P{x}", "[x,.]", s, "reduce_scatter", 512);
    is_plan(m, "[.,.]P{x,y}", "[x,y]", s, "reduce_scatter reduce_scatter", 768);
    is_plan(m, "[x,.]P{y}", "[y,.]", s, NULL, 768);
    is_plan(m, "[x,.]P{y}", "[.,y]", s, "reduce_scatter all_gather", 512);
    is_plan(m24(), "[dp,.]", "[tp,.]", eight, "slice permute all_gather", 64);
    is_plan(m22, "[x,y]", "[(x y),.]", s, "all_to_all", 128);
    is_plan(m22, "[x,y]", "[.,(y x)]", s, "all_to_all", 128);
    is_plan(m22, "[x,y]", "[.,(x y)]", s, "all_to_all permute", 384);
    is_plan(m24(), "[.,dp]", "[.,tp]", x, "slice permute all_gather", 4096);
}

/* The table of common cases. */
static void test_common(void)
{
    int64_t s[2] = {16, 16}, one[1] = {16};
    const nb_mesh *m = m222();
    is_plan(m, "[.]", "[x]", one, "slice", 0);
    is_plan(m, "[.]", "[(x y)]", one, "slice", 0);
    is_plan(m, "[x]", "[.]", one, "all_gather", 32);
    is_plan(m, "[x,.]", "[.,x]", s, "all_to_all", 256);
    is_plan(m, "[(x y)]", "[x]", one, "all_gather", 16);
    is_plan(m, "[(x y)]", "[y]", one, "permute all_gather", 32);
    is_plan(m, "[x]", "[y]", one, "permute", 32);
    is_plan(m24(), "[dp]", "[tp]", one, "slice permute all_gather", 16);
    is_plan(m, "[x,y]", "[y,x]", s, "permute", 256);
    is_plan(m, "[x,y]", "[(x y),.]", s, "all_to_all", 128);
    is_plan(m, "[.]P{x}", "[.]", one, "all_reduce", 64);
    is_plan(m, "[.]P{x}", "[x]", one, "reduce_scatter", 32);
    is_plan(m, "[y,.]P{x}", "[.,x]", s, "reduce_scatter all_gather", 512);
    is_plan(m, "[x]", "[.]P{x}", one, "unreduce", 0);
    is_plan(m, "[.]", "[.]P{x}", one, "unreduce", 0);
    is_plan(m, "[x]", "[x]", one, "", 0);
    is_plan(m, "[.]P{x,y,z}", "[.]", one, "all_reduce", 112);
    is_plan(m, "[.]P{x}", "[.]Pmax{x}", one, "all_reduce unreduce", 64);
}

/* Prices that the tests of propagation name. */
static void test_prices(void)
{
    const nb_mesh *m = m24(), *m22 = mesh("xy", (int[]){2, 2});
    const nb_mesh *m4 = mesh("x", (int[]){4});
#define SIZES(...) ((int64_t[]){__VA_ARGS__})
    is_plan(m, "[.,tp]", "[.,.]", SIZES(32, 128), "all_gather", 12288);
    is_plan(m, "[tp,.]", "[.,.]", SIZES(64, 32), "all_gather", 6144);
    is_plan(m, "[.,tp]", "[.,.]", SIZES(32, 16), "all_gather", 1536);
    is_plan(m22, "[.,x]", "[.,.]", SIZES(8, 8), "all_gather", 128);
    is_plan(m22, "[x,.]", "[(x y),.]", SIZES(8, 8), "slice", 0);
    is_plan(m22, "[.,x]", "[x,.]", SIZES(8, 8), "all_to_all", 64);
    is_plan(m, "[dp,tp]", "[dp,.]", SIZES(32, 128), "all_gather", 6144);
    is_plan(m, "[dp,.]", "[.,.]", SIZES(128, 256), "all_gather", 65536);
    is_plan(m, "[dp,.]", "[.,dp]", SIZES(8, 4096), "all_to_all", 32768);
    is_plan(m, "[.,.]P{tp}", "[.,.]", SIZES(8, 1), "all_reduce", 48);
    is_plan(m4, "[.,x]", "[.,.]", SIZES(8, 4), "all_gather", 96);
    is_plan(m, "[.,tp]", "[tp,.]", SIZES(8, 16), "all_to_all", 96);
    is_plan(m, "[.,tp]", "[.,.]", SIZES(8, 16), "all_gather", 384);
    is_plan(m, "[dp,.]P{tp}", "[dp,.]", SIZES(32, 256), "all_reduce", 24576);
    is_plan(m, "[.,.]P{tp}", "[.,.]", SIZES(8, 8), "all_reduce", 384);
    is_plan(m, "[.,.]P{tp}", "[.,tp]", SIZES(32, 128), "reduce_scatter", 12288);
    is_plan(m, "[.,.]P{dp,tp}", "[.,.]", SIZES(32, 256), "all_reduce", 57344);
}

/* Lower bounds, and plans that reach them. */
static void test_bounds(void)
{
    int64_t s[2] = {32, 256}, cube[3] = {16, 16, 16}, sq[2] = {16, 16};
    const nb_mesh *m = m24(), *m42 = mesh("xy", (int[]){4, 2});
    nb_plan_options direct = {.exchange = true}, idle = {.idle_axes = true},
                    wide = {.wide = true};
    is_plan(m, "[dp,tp]", "[tp,dp]", s, "all_to_all permute all_to_all", 9216);
    is_plan(m42, "[y,.,x]", "[.,(x y),.]", cube, "all_to_all all_to_all", 2560);
    const nb_reshard_plan *p = plan(m, "[dp,tp]", "[tp,dp]", s, &direct);
    expect(p && p->bytes == 4096 && p->bound == 4096 && p->n == 1 &&
               p->step[0].kind == NB_HOP_EXCHANGE,
           "an exchange is minimal");
    p = plan(m, "[dp,tp]", "[tp,dp]", s, &wide);
    expect(p && p->bytes == 7680, "three all-to-alls, one of two axes: 7680");
    p = plan(m42, "[y,.,x]", "[.,(x y),.]", cube, &direct);
    expect(p && p->bytes == 1792 && p->bound == 1792, "and here 1792");
    p = plan(m, "[dp,.]", "[tp,.]", (int64_t[]){8, 8}, &direct);
    expect(p && p->bytes == 64 && p->bound == 64, "T51 is minimal");
    p = plan(m222(), "[x,.]", "[.,x]", sq, &direct);
    expect(p && p->step[0].kind == NB_HOP_ALL_TO_ALL,
           "collectives are taken where an exchange is not better");
    p = plan(m222(), "[.,.]P{x,y}", "[x,y]", sq, &idle);
    expect(p && p->bytes == 640, "idle axes are wires: 640");
    p = plan(mesh("xy", (int[]){2, 2}), "[.,.]P{x,y}", "[x,y]", sq, NULL);
    expect(p && p->bytes == 768 && p->bound == 768, "two RS are minimal");
    p = plan(m222(), "[.,.]P{x}", "[.,.]", sq, NULL);
    expect(p && p->bound == 1024, "an all-reduce is minimal");
}

typedef struct kase {
    const nb_mesh *mesh;
    int rank;
    int64_t size[4], elements;
    const nb_spec *from, *into;
} kase;

static kase draw_case(int naxes_most, bool pending)
{
    static const struct {
        const char *axes;
        int size[3];
    } shapes[] = {{"x", {2}},     {"x", {4}},     {"xy", {2, 2}},
                  {"xy", {2, 4}}, {"xy", {3, 2}}, {"xyz", {2, 2, 2}}};
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12};
    unsigned n = naxes_most == 1 ? 2 : 6, k = below(n);
    kase c = {.mesh = mesh(shapes[k].axes, shapes[k].size), .elements = 1};
    nb_reduce kind = (nb_reduce[]){NB_SUM, NB_MAX, NB_MIN}[below(3)];
    c.rank = 1 + (int)below(3);
    for (int d = 0; d < c.rank; d++) {
        c.size[d] = sizes[below(5) ? 2 + below(9) : below(11)];
        c.elements *= c.size[d];
    }
    c.from = spec_draw(c.mesh, c.rank, kind, pending);
    c.into = spec_draw(c.mesh, c.rank, below(4) ? kind : NB_SUM,
                       pending && below(3) == 0);
    return c;
}

static const char *run(const kase *c, const nb_reshard_plan *p)
{
    int64_t *value = calloc((size_t)c->elements + 1, sizeof *value);
    for (int64_t i = 0; i < c->elements; i++)
        value[i] = below(1000);
    world w = world_new(c->from, c->size, value);
    const char *wrong = NULL;
    for (int i = 0; i < p->n && !wrong; i++) {
        const nb_hop *s = &p->step[i];
        int64_t received = 0;
        if (!nb_spec_same_layout(s->from, w.spec)) wrong = "steps do not join";
        if (!wrong) wrong = world_step(&w, s, &received);
        if (!wrong && received * p->item != s->bytes)
            wrong = "what is priced is not what is moved";
    }
    if (!wrong && !nb_spec_same_layout(w.spec, c->into))
        wrong = "it ends elsewhere";
    if (!wrong) wrong = world_check(&w);
    world_free(&w);
    free(value);
    return wrong;
}

/* Bytes of reducing all, gathering all, then slicing. */
static int64_t greedy(const kase *c)
{
    nb_spec s = {.mesh = c->mesh, .rank = c->rank};
    int64_t bytes = 0;
    for (int d = 0; d < c->rank; d++)
        s.dim[d].axes = c->from->dim[d].axes;
    const nb_spec *reduced = nb_spec_intern(&s);
    nb_hop step = {.kind = NB_HOP_ALL_REDUCE, .axes = c->from->partial};
    step.from = c->from;
    step.into = reduced;
    if (step.axes.n) nb_hop_price(&step, c->size, 4), bytes += step.bytes;
    for (int d = 0; d < c->rank; d++) {
        step.kind = NB_HOP_ALL_GATHER;
        step.from = nb_spec_intern(&s);
        step.axes = s.dim[d].axes;
        s.dim[d].axes.n = 0;
        step.into = nb_spec_intern(&s);
        if (step.axes.n) nb_hop_price(&step, c->size, 4), bytes += step.bytes;
    }
    return bytes;
}

static void test_random(void)
{
    int steps[8] = {0};
    for (int i = 0; i < 6000; i++) {
        kase c = draw_case(3, i % 2);
        nb_plan_options options = {.idle_axes = below(4) == 0,
                                   .wide = below(2),
                                   .exchange = below(4) == 0};
        const nb_reshard_plan *p =
            nb_reshard_find(c.from, c.into, c.size, 4, &options);
        if (!expect(p != NULL, "case %d has a plan", i)) return;
        const char *wrong = run(&c, p);
        expect(!wrong, "case %d (%s): %s", i, kinds(p), wrong ? wrong : "");
        expect(p->bytes >= p->bound, "case %d: %lld bytes, bound %lld", i,
               (long long)p->bytes, (long long)p->bound);
        bool same = nb_spec_same_layout(c.from, c.into);
        expect(same || p->bytes <= greedy(&c), "case %d: greedy is better", i);
        for (int k = 0; k < p->n; k++)
            steps[p->step[k].kind]++;
        if (wrong) return;
    }
    for (int k = 0; k < 8; k++) {
        printf("%-15s %d steps\n", nb_hop_name(k), steps[k]);
        expect(steps[k] > 50, "%s was tried", nb_hop_name(k));
    }
}

int main(void)
{
    void (*const all[])(void) = {test_specified, test_common, test_prices,
                                 test_bounds, test_random};
    none_leaks(sizeof all / sizeof all[0], all);
    return tally();
}
