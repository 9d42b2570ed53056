/* test_reshard_plan.c - plans from one layout to another.
 *
 * First the plans of the specification, with their steps and bytes.  Then laws
 * on random pairs: a plan does what it says on numbers, moves what it was
 * priced at, and is no dearer than gathering all and slicing. */
#include "support/check.h"
#include "support/simulate.h"

#include "base/memory.h"
#include "nabla/reshard.h"
#include "shard/plan/deal.h"

#include <pthread.h>
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
    const nb_spec *a = nb_spec_parse(m, from), *b = nb_spec_parse(m, into);
    if (!expect(a && b, "%s and %s are specs", from, into)) return NULL;
    return nb_reshard_find(a, b, size, 4, options);
}

static void is_plan_with(const nb_plan_options *options, const nb_mesh *m,
                         const char *from, const char *into,
                         const int64_t *size, const char *steps, int64_t bytes)
{
    const nb_reshard_plan *p = plan(m, from, into, size, options);
    if (!expect(p != NULL, "%s -> %s has a plan", from, into)) return;
    expect((!steps || strcmp(kinds(p), steps) == 0) && p->bytes == bytes,
           "%s -> %s: %s, %lld; not %s, %lld", from, into,
           steps ? steps : "any", (long long)bytes, kinds(p),
           (long long)p->bytes);
}

/* steps NULL: any. */
static void is_plan(const nb_mesh *m, const char *from, const char *into,
                    const int64_t *size, const char *steps, int64_t bytes)
{
    is_plan_with(NULL, m, from, into, size, steps, bytes);
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
                    wide = {.wide = true, .collectives = true},
                    alone = {.collectives = true};
    is_plan_with(&alone, m, "[dp,tp]", "[tp,dp]", s,
                 "all_to_all permute all_to_all", 9216);
    is_plan(m, "[dp,tp]", "[tp,dp]", s, "exchange", 4096);
    is_plan_with(&alone, m42, "[y,.,x]", "[.,(x y),.]", cube,
                 "all_to_all all_to_all", 2560);
    is_plan(m42, "[y,.,x]", "[.,(x y),.]", cube, "exchange", 1792);
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
    p = plan(m222(), "[.,.]P{x,y}", "[x,y]", sq, NULL);
    expect(p && p->bytes == 768 && p->bound == 768, "also where z is idle");
    p = plan(m222(), "[.,.]P{x,y}", "[x,y]", sq, &idle);
    expect(p && p->bound == 512, "unless it need not be");
    p = plan(m222(), "[.,.]P{x}", "[.,.]", sq, NULL);
    expect(p && p->bound == 1024, "an all-reduce is minimal");
}

/* What is pending goes straight to where it is wanted.  Of [x,.]P{y} -> [y,.]
 * who has a half and wants it adds it up and sends it on: 512 bytes each, where
 * collectives take 768 (T50). */
static void test_settled(void)
{
    int64_t s[2] = {16, 16}, large[2] = {16, 160};
    const nb_mesh *m = mesh("xy", (int[]){2, 2});
    nb_plan_options direct = {.exchange = true};
    is_plan(m, "[x,.]P{y}", "[y,.]", s, NULL, 768);
    is_plan_with(&direct, m, "[x,.]P{y}", "[y,.]", s, "reduce_exchange", 512);
    is_plan(m, "[x,.]P{y}", "[y,.]", large, "reduce_exchange", 5120);
    const nb_reshard_plan *p = plan(m, "[x,.]P{y}", "[y,.]", s, &direct);
    expect(p && p->bound == 512 && p->step[0].messages == 1, "minimal");
    is_plan(m222(), "[x,.]P{y,z}", "[y,.]P{z}", large, "reduce_exchange", 5120);
    is_plan(m222(), "[(x y),.]P{z}", "[(y x),.]P{z}", large, "permute", 2560);
    p = plan(m24(), "[dp,.]P{tp}", "[tp,.]", large, NULL);
    expect(p && 4 * p->bytes <= 5 * p->bound && p->bytes >= p->bound,
           "four addends: %lld of %lld", p ? (long long)p->bytes : 0,
           p ? (long long)p->bound : 0);
}

static const char *run(const reshard_case *c, const nb_reshard_plan *p)
{
    int64_t *value = case_values(c);
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
static int64_t greedy(const reshard_case *c)
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
    int steps[NB_HOP_EXCHANGE + 1] = {0};
    for (int i = 0; i < 6000; i++) {
        reshard_case c = case_draw(i % 2);
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
    for (int k = 0; k <= NB_HOP_EXCHANGE; k++) {
        printf("%-15s %d steps\n", nb_hop_name(k), steps[k]);
        expect(steps[k] > 50, "%s was tried", nb_hop_name(k));
    }
}

/* Steps that would need more memory than there may be are not taken. */
static void test_memory(void)
{
    int64_t s[2] = {16, 16};
    const nb_mesh *m = mesh("xy", (int[]){2, 2});
    nb_plan_options tight = {.memory = 1024}, none = {.memory = 500};
    const nb_reshard_plan *p = plan(m, "[x,.]", "[y,.]", s, NULL);
    expect(p && p->n == 1 && p->peak == 1024, "a permutation: 512 and 512");
    p = plan(m, "[(x y),.]", "[.,.]", s, NULL);
    expect(p && p->peak == 256 + 1024, "a gather: 256 and 1024");
    expect(!plan(m, "[(x y),.]", "[.,.]", s, &tight) &&
               failed_with(NB_EVALUE, "within 1024 bytes"),
           "or nothing");
    p = plan(m, "[x,.]", "[.,x]", s, &tight);
    expect(p && p->peak <= 1024, "an all-to-all fits");
    expect(!plan(m, "[x,.]", "[.,x]", s, &none) &&
               failed_with(NB_EVALUE, "within 500 bytes"),
           "not everywhere");
}

/* Meshes that arrange the same devices differently. */
static void test_meshes(void)
{
    const char *xy[] = {"x", "y"}, *t[] = {"t"};
    reshard_case c = {.rank = 2, .size = {7, 6}, .elements = 42};
    c.mesh = nb_mesh_new("a", 2, xy, (int[]){2, 2}, (int[]){3, 1, 0, 2});
    const nb_mesh *b = nb_mesh_new("b", 1, t, (int[]){4}, NULL);
    const char *from[] = {"[x,y]", "[(y x),.]", "[x,.]P{y}", "[.,.]"};
    const char *into[] = {"[t,.]", "[.,t]", "[.,.]P{t}", "[.,.]"};
    for (int i = 0; i < 16; i++) {
        c.from = nb_spec_parse(c.mesh, from[i / 4]);
        c.into = nb_spec_parse(b, into[i % 4]);
        const nb_reshard_plan *p =
            nb_reshard_find(c.from, c.into, c.size, 4, NULL);
        const char *wrong = p ? run(&c, p) : "no plan";
        expect(!wrong, "@a %s -> @b %s: %s", from[i / 4], into[i % 4],
               wrong ? wrong : "");
    }
    const nb_mesh *other =
        nb_mesh_new("c", 1, t, (int[]){4}, (int[]){1, 2, 3, 4});
    const nb_mesh *small = nb_mesh_new("d", 1, t, (int[]){2}, NULL);
    c.from = nb_spec_parse(b, "[t,.]");
    expect(!nb_reshard_find(c.from, nb_spec_parse(other, "[t,.]"), c.size, 4,
                            NULL) &&
               failed_with(NB_EVALUE, "@b and @c have different devices"),
           "other devices");
    expect(!nb_reshard_find(c.from, nb_spec_parse(small, "[t,.]"), c.size, 4,
                            NULL) &&
               failed_with(NB_EVALUE, "@b and @d have different devices"),
           "fewer devices");
    expect(!nb_reshard_find(c.from, nb_spec_parse(b, "[t]"), c.size, 4, NULL) &&
               failed_with(NB_EVALUE, "from 2 dims to 1"),
           "another rank");
}

/* The same question has the same answer, and layouts are all that counts. */
static void test_remembered(void)
{
    int64_t s[2] = {64, 32}, other[2] = {64, 48};
    const nb_mesh *m = m24();
    const nb_reshard_plan *p = plan(m, "[dp,.]", "[tp,.]", s, NULL);
    nb_plan_options direct = {.exchange = true};
    expect(p && p == plan(m, "[dp,.]", "[tp,.]", s, NULL), "the same plan");
    expect(p == plan(m, "[dp ?,.]", "[tp p1,.]R{dp}", s, NULL),
           "open dims, priorities and vetoes do not count");
    expect(p != plan(m, "[dp,.]", "[tp,.]", other, NULL), "sizes do");
    expect(p != plan(m, "[dp,.]", "[tp,.]", s, &direct), "options do");
    expect(p != nb_reshard_find(nb_spec_parse(m, "[dp,.]"),
                                nb_spec_parse(m, "[tp,.]"), s, 2, NULL),
           "bytes of an element do");
    nb_mesh_set_cost(m, 0, 1, 2);
    const nb_reshard_plan *dear = plan(m, "[dp,.]", "[tp,.]", s, NULL);
    nb_mesh_set_cost(m, 0, 0, 1);
    expect(dear && dear != p && dear->seconds > p->seconds, "costs do");
    expect(p == plan(m, "[dp,.]", "[tp,.]", s, NULL), "old costs, old plan");
}

/* A slow axis is used while data is small. */
static void test_costs(void)
{
    int64_t s[2] = {16, 16};
    const nb_mesh *m =
        nb_mesh_new("slow", 2, (const char *[]){"x", "y"}, (int[]){2, 2}, NULL);
    nb_mesh_set_cost(m, 0, 5, 100);
    const nb_reshard_plan *p = plan(m, "[.,.]P{x,y}", "[.,.]", s, NULL);
    expect(p && strcmp(kinds(p), "all_reduce") != 0 && p->bytes >= p->bound,
           "not all of it over x: %s", p ? kinds(p) : "");
    p = plan(m, "[x,.]", "[.,.]", s, NULL);
    expect(p && p->seconds == 5 + 51200, "a message and 512 bytes");
    p = plan(m, "[y,.]", "[.,.]", s, NULL);
    expect(p && p->seconds == 512, "512 bytes");
}

/* Pieces of an axis that no one cut of it has, and more axes than a search can
 * look at: there still is a plan. */
static void test_wide(void)
{
    reshard_case c = {.rank = 2, .size = {12, 13}, .elements = 156};
    c.mesh = mesh("x", (int[]){12});
    nb_plan_options direct = {.exchange = true};
    const char *from[] = {"[x:(1)2,x:(2)2]", "[x:(1)6,.]",
                          "[x:(1)2,.]P{x:(2)2}", "[x,.]"};
    const char *into[] = {"[x:(1)3,x:(3)4]", "[.,x:(1)4]",
                          "[x:(3)2,.]P{x:(1)3}", "[x:(1)3,.]P{x:(3)4}"};
    for (int i = 0; i < 32; i++) {
        c.from = nb_spec_parse(c.mesh, from[i / 2 / 4]);
        c.into = nb_spec_parse(c.mesh, into[i / 2 % 4]);
        const nb_reshard_plan *p =
            nb_reshard_find(c.from, c.into, c.size, 4, i % 2 ? &direct : NULL);
        const char *wrong = p ? run(&c, p) : "no plan";
        expect(!wrong, "%s -> %s: %s", from[i / 2 / 4], into[i / 2 % 4],
               wrong ? wrong : "");
    }
    int64_t s[4] = {64, 64, 64, 64};
    const nb_mesh *m = mesh("abcdefgh", (int[]){2, 2, 2, 2, 2, 2, 2, 2});
    const nb_reshard_plan *p = plan(m, "[(a b g),(c d h),(e f),.]",
                                    "[h,(f e),(d c),(b a g)]", s, NULL);
    expect(p && p->bytes == p->bound, "eight axes: an exchange");
    nb_plan_options alone = {.collectives = true};
    p = plan(m, "[(a b g),(c d h),(e f),.]", "[h,(f e),(d c),(b a g)]", s,
             &alone);
    expect(p && p->bytes < 4 * p->bound, "eight axes: near the bound");
}

static void test_text(void)
{
    int64_t s[2] = {32, 256}, eight[2] = {8, 8};
    const nb_mesh *m = m24();
    const nb_spec *a = nb_spec_parse(m, "[dp,tp]");
    const nb_spec *b = nb_spec_parse(m, "[tp,dp]");
    const nb_reshard_plan *p =
        nb_reshard_plan_of(a, b, 2, s, NB_F32, NB_RESHARD_COLLECTIVES);
    char *text = p ? nb_reshard_plan_text(p) : NULL;
    expect(text && strcmp(text, "all_to_all dp: dim 0 to 1, 2048 B\n"
                                "permute dp,tp: dim 1, 4096 B\n"
                                "all_to_all tp: dim 1 to 0, 3072 B\n"
                                "total 9216 B, bound 4096 B\n") == 0,
           "%s", text ? text : "no text");
    nb_text_release(text);
    expect(p && nb_reshard_plan_steps(p) == 3 &&
               strcmp(nb_reshard_step_kind(p, 1), "permute") == 0 &&
               strcmp(nb_reshard_step_axes(p, 1), "dp,tp") == 0 &&
               nb_reshard_step_into(p, 2) == b &&
               nb_reshard_step_bytes(p, 2) == 3072,
           "step by step");
    expect(!nb_reshard_step_kind(p, 3) && failed_with(NB_EVALUE, "step 3"),
           "no step 3");
    p = nb_reshard_plan_of(a, b, 2, s, NB_F32, 0);
    expect(p && nb_reshard_plan_bytes(p) == 4096, "an exchange, if it may");
    p = nb_reshard_plan_of(nb_spec_parse(m, "[dp,.]"),
                           nb_spec_parse(m, "[tp,.]"), 2, eight, NB_F32, 0);
    text = p ? nb_reshard_plan_text(p) : NULL;
    expect(text && strstr(text, "total 64 B, bound 64 B: minimal\n"), "%s",
           text ? text : "no text");
    nb_text_release(text);
    expect(
        !nb_reshard_plan_of(a, b, 3, s, NB_F32, 0) &&
            failed_with(NB_EVALUE, "a spec of 2 dims for a tensor of 3 dims"),
        "wrong rank");
    expect(!nb_reshard_plan_of(a, b, 2, s, NB_NOTYPE, 0) &&
               failed_with(NB_EVALUE, "dtype"),
           "no dtype");
    expect(!nb_reshard_plan_of(a, b, 2, (int64_t[]){-1, 2}, NB_F32, 0) &&
               failed_with(NB_EVALUE, "size -1"),
           "no such size");
}

/* Memory runs out anywhere: an error, nothing is left behind, and the next
 * attempt finds the plan. */
static void test_faults(void)
{
    const nb_mesh *m = m222();
    const nb_spec *a = nb_spec_parse(m, "[x,y,.]P{z}");
    const nb_spec *b = nb_spec_parse(m, "[.,z,(y x)]");
    int64_t s[3] = {11, 13, 17}, live = nb_memory_live();
    for (int nth = 1; nth < 200; nth++) {
        nb_fault_set(nth);
        const nb_reshard_plan *p = nb_reshard_find(a, b, s, 4, NULL);
        bool struck = !nb_fault_is_set();
        nb_fault_set(0);
        bool failed = nb_error_code() != NB_OK;
        nb_error_clear();
        expect(p || failed, "fault %d: a plan or an error", nth);
        expect(nb_memory_live() == live, "fault %d: nothing is left", nth);
        if (p && !struck) return;
    }
    expect(false, "there is a plan in the end");
}

enum { ASKED = 200, ASKING = 4 };
static reshard_case asked[ASKED];

static void *ask(void *answer)
{
    const nb_reshard_plan **p = answer;
    for (int i = 0; i < ASKED; i++)
        p[i] = nb_reshard_find(asked[i].from, asked[i].into, asked[i].size, 16,
                               NULL);
    return NULL;
}

/* Threads that ask the same at the same time get the same plan. */
static void test_threads(void)
{
    static const nb_reshard_plan *answer[ASKING][ASKED];
    pthread_t thread[ASKING];
    for (int i = 0; i < ASKED; i++)
        asked[i] = case_draw(true);
    for (int k = 0; k < ASKING; k++)
        pthread_create(&thread[k], NULL, ask, answer[k]);
    for (int k = 0; k < ASKING; k++)
        pthread_join(thread[k], NULL);
    for (int i = 0; i < ASKED; i++)
        for (int k = 0; k < ASKING; k++)
            expect(answer[k][i] && answer[k][i] == answer[0][i],
                   "thread %d has the plan of case %d", k, i);
}

/* Bytes over the bound: sixty pairs each, as reshards do it by themselves, and
 * where exchanges may be taken everywhere.  Pairs of one axis have pieces of it
 * too, which are axes like others; whole ones reach the bound. */
static void test_ratios(void)
{
    nb_plan_options plain = {0}, direct = {.exchange = true};
    nb_plan_options any = {.exchange = true, .wide = true, .idle_axes = true};
    const struct {
        const char *name;
        bool one_axis, pending;
        const nb_plan_options *options;
        double most;
    } row[] = {{"one axis", true, false, &plain, 1.25},
               {"one axis, pending", true, true, &plain, 1.25},
               {"any mesh", false, false, &plain, 1.25},
               {"any mesh, pending", false, true, &plain, 1.25},
               {"any mesh, exchange", false, false, &direct, 1},
               {"any mesh, pending, exchange", false, true, &direct, 1.25},
               {"any mesh, pending, idle", false, true, &any, 1.25}};
    printf("%-27s %8s %8s %8s\n", "bytes / bound", "worst", "all", "minimal");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        ratios r =
            reshard_ratios(row[i].one_axis, row[i].pending, 60, row[i].options);
        printf("%-27s %8.3f %8.3f %5d/60\n", row[i].name, r.worst, r.all,
               r.minimal);
        expect(r.all > 0 && r.worst <= row[i].most, "%s: %g at worst",
               row[i].name, r.worst);
    }
}

/* All pairs of whole axes of one mesh axis, two dims. */
static void test_one_axis(void)
{
    const char *from[] = {"[x,.]", "[.,x]", "[.,.]", "[.,.]P{x}",
                          "[.,.]Pmax{x}"};
    int64_t size[2] = {64, 48};
    for (int n = 2; n <= 8; n *= 2) {
        const nb_mesh *m = mesh("x", &n);
        for (int i = 0; i < 15; i++) {
            const nb_reshard_plan *p =
                plan(m, from[i / 3], from[i % 3], size, NULL);
            expect(p && p->bytes == p->bound, "(%d) %s -> %s: minimal", n,
                   from[i / 3], from[i % 3]);
        }
    }
}

int main(void)
{
    void (*const all[])(void) = {
        test_specified,  test_common,  test_prices, test_bounds,
        test_settled,    test_random,  test_memory, test_meshes,
        test_remembered, test_costs,   test_wide,   test_text,
        test_faults,     test_threads, test_ratios, test_one_axis};
    none_leaks(sizeof all / sizeof all[0], all);
    return tally();
}
