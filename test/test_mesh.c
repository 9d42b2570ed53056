/* test_mesh.c - meshes, specs, blocks, and their texts. */
#include "base/memory.h"
#include "shard/layout/spec.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const nb_mesh *mesh(const char *text)
{
    const nb_mesh *m = nb_mesh_parse(text);
    if (!m) fail_msg("%s", nb_error_message());
    return m;
}

static const nb_mesh *M24(void)
{
    return mesh("@m = <[\"dp\"=2, \"tp\"=4]>");
}

static const nb_spec *spec(const nb_mesh *m, const char *text)
{
    const nb_spec *s = nb_spec_parse(m, text);
    if (!s) fail_msg("%s", nb_error_message());
    return s;
}

/* The spec of a text prints as `wanted`, which is read as the same spec. */
static void prints(const nb_mesh *m, const char *text, const char *wanted)
{
    const nb_spec *s = spec(m, text);
    char *printed = nb_spec_text(s);
    assert_string_equal(printed, wanted);
    assert_ptr_equal(spec(m, printed), s);
    nb_text_release(printed);
}

static void refused(const char *part)
{
    assert_int_equal(nb_error_code(), NB_EVALUE);
    if (!strstr(nb_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", nb_error_message(), part);
    nb_error_clear();
}

static void wrong(const nb_mesh *m, const char *text, const char *part)
{
    assert_null(nb_spec_parse(m, text));
    refused(part);
}

static void wrong_mesh(const char *text, const char *part)
{
    assert_null(nb_mesh_parse(text));
    refused(part);
}

static void has(const char *m, const char *s, int position, int rank,
                const int64_t *sizes, const int64_t *starts,
                const int64_t *local)
{
    int64_t from[NB_MAX_DIMS], size[NB_MAX_DIMS];
    const nb_spec *x = spec(mesh(m), s);
    assert_int_equal(nb_spec_rank(x), rank);
    assert_int_equal(nb_spec_local_sizes(x, sizes, position, from, size),
                     NB_OK);
    for (int d = 0; d < rank; d++) {
        if (starts) assert_int_equal(from[d], starts[d]);
        assert_int_equal(size[d], local[d]);
    }
}

#define I(...) ((const int64_t[]){__VA_ARGS__})
#define MESH24 "@m = <[\"dp\"=2, \"tp\"=4]>"
#define MESH8  "@m = <[\"x\"=8]>"

/* T01, T02 */
static void local_sizes(void **state)
{
    (void)state;
    for (int p = 0; p < 8; p++) {
        has(MESH24, "[dp, .]", p, 2, I(32, 128), NULL, I(16, 128));
        has(MESH24, "[., tp]", p, 2, I(128, 256), NULL, I(128, 64));
    }
    for (int p = 0; p < 16; p++)
        has("@m = <[\"x\"=2, \"y\"=4, \"z\"=2]>", "[x, (z y)]", p, 2, I(4, 8),
            NULL, I(2, 1));
    has("@one = <[]>", "[., .]", 0, 2, I(3, 4), I(0, 0), I(3, 4));
}

/* T03 */
static void coordinates(void **state)
{
    (void)state;
    const nb_mesh *m = M24();
    assert_int_equal(nb_mesh_coordinate(m, 5, 0), 1);
    assert_int_equal(nb_mesh_coordinate(m, 5, 1), 1);
    assert_int_equal(nb_mesh_coordinate(m, 5, 2), -1);
    assert_int_equal(nb_mesh_coordinate(m, 8, 0), -1);
    has(MESH24, "[(dp tp)]", 5, 1, I(8), I(5), I(1));
    has(MESH24, "[(tp dp)]", 5, 1, I(8), I(3), I(1));
    const nb_mesh *turned =
        mesh("@m = <[\"dp\"=2, \"tp\"=2], device_ids=[7, 5, 3, 1]>");
    assert_int_equal(nb_mesh_device(turned, 1), 5);
    assert_int_equal(nb_mesh_position(turned, 5), 1);
    assert_int_equal(nb_mesh_position(turned, 0), -1);
    assert_int_equal(nb_mesh_device(turned, 4), -1);
}

/* T04 */
static void coordinates_on_parts(void **state)
{
    (void)state;
    const nb_mesh *m = mesh(MESH8);
    const struct {
        const char *text;
        int at;
    } rows[] = {{"x:(1)2", 1}, {"x:(2)2", 1}, {"x:(4)2", 0},
                {"x:(2)4", 2}, {"x", 6},      {"x:(1)8", 6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        nb_axis a;
        char text[16];
        assert_int_equal(nb_axis_parse(m, rows[i].text, &a), NB_OK);
        assert_int_equal(nb_axis_coordinate(m, a, 6), rows[i].at);
        int n = nb_axis_text(m, a, text, sizeof text);
        assert_int_equal(n, strlen(text));
        assert_string_equal(text, i == 5 ? "x" : rows[i].text);
    }
    const nb_axis none[] = {{0, 1, 0}, {0, 0, 2}, {0, 1, 16}, {7, 1, 2}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(nb_axis_coordinate(m, none[i], 6), -1);
    assert_int_equal(nb_axis_coordinate(m, (nb_axis){0, 1, 8}, 8), -1);
    assert_int_equal(nb_axis_coordinate(NULL, (nb_axis){0, 1, 8}, 0), -1);
}

/* T05 */
static void blocks(void **state)
{
    (void)state;
    static const int64_t start[] = {0, 2, 5, 7}, size[] = {2, 3, 2, 3};
    const char *m4 = "@m = <[\"x\"=4]>", *m32 = "@m = <[\"x\"=3, \"y\"=2]>";
    for (int i = 0; i < 4; i++) {
        has(m4, "[x]", i, 1, I(10), &start[i], &size[i]);
        has(m4, "[x]", i, 1, I(3), NULL, I(i > 0));
    }
    static const int64_t coarse[] = {2, 3, 3}, fine[] = {1, 1, 2, 1, 1, 2};
    for (int p = 0; p < 6; p++) {
        has(m32, "[x]", p, 1, I(8), NULL, &coarse[p / 2]);
        has(m32, "[(x y)]", p, 1, I(8), NULL, &fine[p]);
    }
}

/* The boundaries of n1 blocks are among those of n1 n2; sizes differ by at most
 * one, the largest is ceil(d / n), none is empty while d >= n. */
static void finer_blocks_refine(void **state)
{
    (void)state;
    for (int64_t d = 0; d < 40; d++)
        for (int64_t n = 1; n < 8; n++)
            for (int64_t k = 1; k < 5; k++) {
                int64_t low = d, high = 0;
                for (int64_t i = 0; i <= n; i++)
                    assert_int_equal(nb_block_start(d, n, i),
                                     nb_block_start(d, n * k, i * k));
                for (int64_t i = 0; i < n; i++) {
                    int64_t size =
                        nb_block_start(d, n, i + 1) - nb_block_start(d, n, i);
                    low = size < low ? size : low;
                    high = size > high ? size : high;
                }
                assert_true(high - low <= 1 && high == (d + n - 1) / n);
                assert_true(d < n || low > 0);
                assert_int_equal(nb_block_start(d, n, n), d);
            }
    int64_t huge = INT64_MAX;
    assert_int_equal(nb_block_start(huge, 7, 7), huge);
}

/* All positions together have every element of a tensor once for each position
 * of the axes that do not split it. */
static void blocks_cover(void **state)
{
    (void)state;
    const char *m = "@m = <[\"x\"=2, \"y\"=3, \"z\"=2]>";
    const char *specs[] = {"[x, y]", "[(y x), z]", "[., (z x y)]", "[(z y), .]",
                           "[., .]"};
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        const nb_spec *s = spec(mesh(m), specs[k]);
        int64_t times = 12 / (nb_spec_shards(s, 0) * nb_spec_shards(s, 1));
        int count[7][5] = {{0}};
        for (int p = 0; p < 12; p++) {
            int64_t from[2], size[2];
            assert_int_equal(nb_spec_local_sizes(s, I(7, 5), p, from, size),
                             NB_OK);
            for (int64_t i = from[0]; i < from[0] + size[0]; i++)
                for (int64_t j = from[1]; j < from[1] + size[1]; j++)
                    count[i][j]++;
        }
        for (int i = 0; i < 35; i++)
            assert_int_equal(count[i / 5][i % 5], times);
    }
}

static void global_sizes(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=3, \"y\"=2]>");
    const char *specs[] = {"[x, y]", "[(y x), .]", "[., (x y)]", "[., .]"};
    for (int k = 0; k < 4; k++)
        for (int64_t d = 0; d < 12; d++) {
            const nb_spec *s = spec(m, specs[k]);
            int64_t local[12], sizes[2];
            for (int p = 0; p < 6; p++)
                nb_spec_local_sizes(s, I(d, 7), p, NULL, local + 2 * p);
            assert_int_equal(nb_spec_global_sizes(s, local, sizes), NB_OK);
            assert_int_equal(sizes[0], d);
            assert_int_equal(sizes[1], 7);
            local[2 * (d % 6)]++;
            local[2 * ((d + 1) % 6)] -= k < 2;
            assert_int_equal(nb_spec_global_sizes(s, local, sizes), NB_EVALUE);
            refused("dim 0");
        }
    int64_t out[1];
    assert_int_equal(nb_spec_local_sizes(spec(m, "[x]"), I(8), 6, NULL, out),
                     NB_EVALUE);
    refused("no position 6");
    assert_int_equal(nb_spec_local_sizes(spec(m, "[x]"), I(-1), 0, NULL, out),
                     NB_EVALUE);
    refused("size -1");
}

/* Through every position, in the order of the axes listed. */
static void groups(void **state)
{
    (void)state;
    int member[12];
    const nb_mesh *m = mesh("@m = <[\"x\"=2, \"y\"=3, \"z\"=2]>");
    const nb_spec *s = spec(m, "[(z x), y]");
    static const int at7[] = {2, 8, 3, 9};
    assert_int_equal(nb_cut_group(m, &s->dim[0].axes, 8, member), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(member[i], at7[i]);
    for (int d = 0; d < 2; d++)
        for (int p = 0; p < 12; p++) {
            const nb_cut *l = &s->dim[d].axes, *other = &s->dim[!d].axes;
            int n = nb_cut_group(m, l, p, member);
            assert_int_equal(n, nb_cut_count(l));
            for (int i = 0; i < n; i++) {
                assert_int_equal(nb_cut_index(m, l, member[i]), i);
                assert_int_equal(nb_cut_index(m, other, member[i]),
                                 nb_cut_index(m, other, p));
            }
            assert_int_equal(member[nb_cut_index(m, l, p)], p);
        }
}

/* A group over a part of an axis agrees on the rest of it. */
static void groups_over_parts(void **state)
{
    (void)state;
    int member[12];
    const nb_mesh *m = mesh("@m = <[\"x\"=12]>");
    const nb_spec *s = spec(m, "[x:(2)3]");
    assert_int_equal(nb_cut_group(m, &s->dim[0].axes, 9, member), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(member[i], 7 + 2 * i);
}

/* T06 */
static void refuses(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=2, \"y\"=2, \"one\"=1]>");
    const nb_mesh *m8 = mesh(MESH8), *m12 = mesh("@m = <[\"x\"=12]>");
    wrong(m, "[x, x]", "\"[x, x]\", position 4: axis 'x' is used twice");
    wrong(m, "[x, .]P{x}", "position 8: axis 'x' is used twice");
    wrong(m, "[x, .]R{x}", "position 8: axis 'x' is used twice");
    wrong(m, "[.]R{x}P{x}", "axis 'x' is used twice");
    wrong(m, "[one, one]", "axis 'one' is used twice");
    wrong(m, "[x, nope]", "position 4: mesh @m has no axis 'nope'");
    wrong(m8, "[x:(1)4, x:(2)4]", "position 9: axis 'x' is used twice");
    wrong(m8, "[x, x:(1)2]", "axis 'x' is used twice");
    wrong(m12, "[x:(1)2, x:(3)2]",
          "x:(3)2 and x:(1)2 are not parts of one cut of axis 'x'");
    wrong(m8, "[x:(3)2]", "x:(3)2 is no part of axis 'x' of size 8");
    wrong(m8, "[x:(0)2]", "x:(0)2 is no part");
    wrong(m8, "[x:(2)1]", "a part of size 1");
    wrong(m8, "[x:(1)99999]", "\"99999]\" is more than 65535");
    wrong(m, "[.p1]", "position 2: dim 0 is closed and empty");
    wrong(m, "sharding<@m, [{}p1]>", "position 16: dim 0 is closed and empty");
    wrong(m, "[x?p256]", "more than 255");
    wrong(m, "sharding<@other, []>", "position 10: mesh @other, but it is @m");
    assert_null(nb_spec_fit(spec(m, "[x, y]"), 1, I(4)));
    refused("a spec of 2 dims for a tensor of 1 dims");
    assert_null(nb_spec_fit(spec(m, "[x, y]"), 2, I(4, -4)));
    refused("dim 1 has size -4");
}

/* Whatever is cut off, doubled or put out of place: an error that says where,
 * and nothing is made. */
static void refuses_broken_text(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=4, \"y\"=2, \"t\"=2, \"w\"=2]>");
    const char *bad[] = {"",
                         "[",
                         "[x",
                         "[x,",
                         "[x,]",
                         "[,]",
                         "[x y]",
                         "[(x y]",
                         "[(x,)]",
                         "[x]]",
                         "[x]P",
                         "[x]P{",
                         "[x]P{t",
                         "[x]Pmedian{t}",
                         "[x]P{t}P{w}",
                         "[x]R{t}R{w}",
                         "[x]Q{t}",
                         "[x:]",
                         "[x:(]",
                         "[x:(1]",
                         "[x:(1)]",
                         "[x:2]",
                         "[\"x]",
                         "[x\"]",
                         "sharding",
                         "sharding<@m>",
                         "sharding<m, []>",
                         "sharding<@m, [x]>",
                         "sharding<@m, [{x}]",
                         "sharding<@m, [{x,}]>",
                         "sharding<@m, [{?,x}]>",
                         "sharding<@m, [{x y}]>",
                         "sharding<@m, [{x}], >",
                         "sharding<@m, [{x}], partial={t}, replicated={w}>",
                         "sharding<@m, [{x}], partial={t}:median>",
                         "sharding<@m, [{x}], unreduced={t}>",
                         "sharding<@m, [{x}]> more",
                         "shardings<@m, []>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wrong(m, bad[i], "position");
    const char *good = "sharding<@m, [{\"x\":(1)2,\"y\"}, {?}p1], "
                       "replicated={\"w\"}, partial={\"t\"}:max>";
    char cut[128];
    for (size_t n = 0; n < strlen(good); n++) {
        memcpy(cut, good, n);
        cut[n] = '\0';
        wrong(m, cut, "position");
    }
    char many[200] = "[.";
    for (int d = 1; d <= NB_MAX_DIMS; d++)
        strcat(many, ", .");
    strcat(many, "]");
    wrong(m, many, "more than 32 dims");
}

/* Texts of random characters are refused or read, and what is read round-trips;
 * some of either happen. */
static void survives_noise(void **state)
{
    (void)state;
    static const char *const word[] = {
        "[",  "]", "(",   ")", "{", "}", ",", ".", "?",      "x", "y",
        "p1", "P", "max", ":", "1", "2", " ", "R", "x:(1)2", "\""};
    const nb_mesh *m = mesh("@m = <[\"x\"=4, \"y\"=2]>");
    unsigned seed = 1, read = 0;
    for (int i = 0; i < 20000; i++) {
        char text[128] = "[";
        for (int k = 0; k < 5; k++)
            if ((seed = seed * 1664525 + 1013904223) >> 30)
                strcat(text, word[(seed >> 8) % 21]);
        if (i % 2) strcat(text, "]");
        const nb_spec *s = nb_spec_parse(m, text);
        if (!s) {
            refused("position");
            continue;
        }
        char *printed = nb_spec_text(s);
        assert_ptr_equal(spec(m, printed), s);
        nb_text_release(printed);
        read++;
    }
    assert_in_range(read, 20, 19000);
}

/* T07, and the other forms */
static void round_trips(void **state)
{
    (void)state;
    const nb_mesh *m =
        mesh("@m = <[\"x\"=4, \"y\"=2, \"z\"=2, \"t\"=2, \"u\"=2]>");
    const char *same[] = {
        "sharding<@m, [{\"x\":(1)2,\"y\"}, {?}p1], replicated={\"z\"}, "
        "partial={\"t\"}:max>",
        "sharding<@m, [{\"x\",\"y\"}, {\"z\",?}p1, {}], "
        "partial={\"t\",\"u\"}:max>",
        "sharding<@m, []>", "sharding<@m, [{\"y\"}p255], partial={\"u\"}:prod>",
        "sharding<@m, [{?}], replicated={\"x\":(2)2}>"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        prints(m, same[i], same[i]);
    prints(m, "[x, ., (y z)]", "sharding<@m, [{\"x\"}, {}, {\"y\",\"z\"}]>");
    prints(m, "[x?,.?,?]", "sharding<@m, [{\"x\",?}, {?}, {?}]>");
    prints(m, "[x p2, (y z)?p1]",
           "sharding<@m, [{\"x\"}p2, {\"y\",\"z\",?}p1]>");
    prints(
        m, "[x] P{u t} R{z}",
        "sharding<@m, [{\"x\"}], replicated={\"z\"}, partial={\"t\",\"u\"}>");
    prints(m, "[()]Pmin{x:(2)2, t}R{x:(1)2}",
           "sharding<@m, [{}], replicated={\"x\":(1)2}, "
           "partial={\"x\":(2)2,\"t\"}:min>");
    prints(m, " sharding < @m , [ { 'x:(1)2' , ? } p3 ] , partial = { t } > ",
           "sharding<@m, [{\"x\":(1)2,?}p3], partial={\"t\"}>");
    prints(m, "[]Pmax{}", "sharding<@m, []>");
}

/* One form: neighbours are merged, all of an axis is the axis, axes of size one
 * go, sets are sorted. */
static void canonical_form(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=8, \"y\"=2, \"one\"=1]>");
    assert_ptr_equal(spec(m, "[(x:(1)2 x:(2)4)]"), spec(m, "[x]"));
    assert_ptr_equal(spec(m, "[x:(1)8]"), spec(m, "[x]"));
    assert_ptr_equal(spec(m, "[(x:(1)2 x:(2)2)]"), spec(m, "[x:(1)4]"));
    assert_ptr_not_equal(spec(m, "[(x:(2)2 x:(1)2)]"), spec(m, "[x:(1)4]"));
    assert_ptr_not_equal(spec(m, "[(x y)]"), spec(m, "[(y x)]"));
    assert_ptr_equal(spec(m, "[]P{y x}"), spec(m, "[]P{x y}"));
    assert_ptr_equal(spec(m, "[]P{x:(2)4 x:(1)2}"), spec(m, "[]P{x}"));
    assert_ptr_equal(spec(m, "[(one y), ?]"), spec(m, "[y, ?]"));
    assert_ptr_equal(spec(m, "[one p1]"), spec(m, "[.]"));
    assert_ptr_equal(spec(m, "[.]Pmax{one}"), spec(m, "[.]"));
    prints(m, "[one?p1]", "sharding<@m, [{?}p1]>");
}

/* A dim of size 0 or 1 cannot be split. */
static void fits_a_shape(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=2, \"y\"=2, \"z\"=2]>");
    const nb_spec *s = spec(m, "[x?p1, y p2, z]R{}P{}");
    assert_ptr_equal(nb_spec_fit(s, 3, I(2, 3, 4)), s);
    assert_ptr_equal(nb_spec_fit(s, 3, I(1, 0, 4)), spec(m, "[?p1, ., z]"));
    assert_ptr_equal(nb_spec_fit(spec(m, "[x]Pmax{y}R{z}"), 1, I(1)),
                     spec(m, "[.]Pmax{y}R{z}"));
}

static void types(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"dp\"=2, \"x\"=4, \"y\"=2, \"tp\"=2]>");
    const struct {
        const char *spec, *type;
    } rows[] = {{"[dp, (x y)]P{tp}", "f32[32@dp, 256@(x,y)]{P:tp}"},
                {"[x:(1)2, .]Pmax{dp tp}", "f32[32@x:(1)2, 256]{Pmax:(dp,tp)}"},
                {"[., ?]R{x}", "f32[32, 256]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text =
            nb_spec_type_text(spec(m, rows[i].spec), NB_F32, I(32, 256));
        assert_string_equal(text, rows[i].type);
        nb_text_release(text);
    }
}

static void meshes(void **state)
{
    (void)state;
    const char *texts[] = {"@pod = <[\"dp\"=2, \"tp\"=4]>", "@one = <[]>",
                           "@m = <[\"a\"=2], device_ids=[1, 0]>",
                           "@m = <[\"a\"=1], device_ids=[2147483647]>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *text = nb_mesh_text(mesh(texts[i]));
        assert_string_equal(text, texts[i]);
        nb_text_release(text);
    }
    const char *axes[] = {"dp", "tp"};
    const nb_mesh *m =
        mesh("@pod=<['dp'=2,'tp'=4],device_ids=[0,1,2,3,4,5,6,7]>");
    assert_ptr_equal(m, mesh(texts[0]));
    assert_ptr_equal(m, nb_mesh_new("pod", 2, axes, (int[]){2, 4}, NULL));
    assert_ptr_not_equal(m, nb_mesh_new("pod", 2, axes, (int[]){4, 2}, NULL));
    assert_string_equal(nb_mesh_name(m), "pod");
    assert_int_equal(nb_mesh_axes(m), 2);
    assert_int_equal(nb_mesh_devices(m), 8);
    assert_string_equal(nb_mesh_axis_name(m, 1), "tp");
    assert_null(nb_mesh_axis_name(m, 2));
    assert_int_equal(nb_mesh_axis_size(m, 1), 4);
    assert_int_equal(nb_mesh_axis_find(m, "tp"), 1);
    assert_int_equal(nb_mesh_axis_find(m, "t"), -1);
    assert_int_equal(nb_mesh_set_cost(m, 2, 0, 1), NB_EVALUE);
    refused("no axis 2");
    assert_int_equal(nb_mesh_set_cost(m, 0, -1, 1), NB_EVALUE);
    refused("below zero");
}

static void refuses_meshes(void **state)
{
    (void)state;
    wrong_mesh("@m = <[\"a\"=2, \"a\"=2]>", "axis 'a' twice");
    wrong_mesh("@m = <[\"a\"=0]>", "axis 'a' has size 0");
    wrong_mesh("@m = <[\"a\"=2], device_ids=[1]>",
               "1 device_ids for 2 devices");
    wrong_mesh("@m = <[\"a\"=2], device_ids=[1, 1]>", "device 1 twice");
    wrong_mesh("@m = <[\"a\"=300, \"b\"=300]>", "more than 65535 devices");
    wrong_mesh("@m = <[\"a\"=65536]>", "\"65536]>\" is more than 65535");
    wrong_mesh("@m = <[\"a\"=2], device_ids=[0, 2147483648]>", "more than");
    wrong_mesh("@m = <[\"a\"=1,\"b\"=1,\"c\"=1,\"d\"=1,\"e\"=1,\"f\"=1,"
               "\"g\"=1,\"h\"=1,\"i\"=1]>",
               "more than 8 axes");
    wrong_mesh("@m = <[\"a\"=2]> x", "\"x\" is left over");
    wrong_mesh("@2 = <[]>", "position 1: expected a name");
    const char *good = "@m = <[\"a\"=2], device_ids=[1, 0]>";
    char cut[64];
    for (size_t n = 0; n < strlen(good); n++) {
        memcpy(cut, good, n);
        cut[n] = '\0';
        wrong_mesh(cut, "position");
    }
    const char *axis[] = {"a b"};
    assert_null(nb_mesh_new("m", 1, axis, (int[]){2}, NULL));
    refused("'a b' is not a name");
    assert_null(nb_mesh_new("", 0, NULL, NULL, NULL));
    refused("'' is not a name");
    assert_null(nb_mesh_new("m", 9, axis, (int[]){2}, NULL));
    refused("9 axes");
    axis[0] = "a";
    assert_null(nb_mesh_new("m", 1, axis, (int[]){2}, (int[]){0, -1}));
    refused("device -1");
}

/* The largest axis there may be is split whole. */
static void largest_axis(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"a\"=65535]>");
    int64_t from, size;
    assert_int_equal(nb_spec_shards(spec(m, "[a]"), 0), 65535);
    nb_spec_local_sizes(spec(m, "[a]"), I(65536), 65534, &from, &size);
    assert_int_equal(from, 65534);
    assert_int_equal(size, 2);
}

/* Made of parts and asked for them. */
static void parts(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=4, \"y\"=2, \"z\"=2]>");
    const char *xy[] = {"x:(1)2", "y"}, *z[] = {"z"}, *rest[] = {"x:(2)2"};
    nb_dim_parts dim[] = {{2, xy, true, 3}, {0}};
    nb_spec_parts p = {2, dim, 1, 1, rest, z, "max"};
    const nb_spec *s = nb_spec_new(m, &p);
    assert_ptr_equal(s, spec(m, "[(x:(1)2 y)?p3, .]Pmax{z}R{x:(2)2}"));
    assert_ptr_equal(nb_spec_mesh(s), m);
    assert_int_equal(nb_spec_rank(s), 2);
    assert_int_equal(nb_spec_axes(s, 0), 2);
    assert_int_equal(nb_spec_axes(s, 1), 0);
    assert_int_equal(nb_spec_axes(s, 2), 0);
    assert_int_equal(nb_spec_axis(s, 0, 1).axis, 1);
    assert_int_equal(nb_spec_axis(s, 0, 2).size, 1);
    assert_int_equal(nb_spec_axis(s, NB_SPEC_REPLICATED, 0).pre, 2);
    assert_int_equal(nb_spec_axes(s, NB_SPEC_PARTIAL), 1);
    assert_int_equal(nb_spec_shards(s, 0), 4);
    assert_true(nb_spec_is_open(s, 0) && !nb_spec_is_open(s, 1));
    assert_int_equal(nb_spec_priority(s, 0), 3);
    assert_string_equal(nb_spec_kind(s), "max");
    const char *bad[] = {"nope", "x:(3)2", "", "x y", "z"};
    const char *why[] = {"no axis 'nope'", "no part of axis", "expected a name",
                         "left over", "used twice"};
    for (int i = 0; i < 5; i++) {
        xy[1] = bad[i];
        assert_null(nb_spec_new(m, &p));
        refused(why[i]);
    }
    xy[1] = "y";
    p.kind = "median";
    assert_null(nb_spec_new(m, &p));
    refused("no kind of reduction: 'median'");
    p.kind = NULL;
    dim[1].priority = 1;
    assert_null(nb_spec_new(m, &p));
    refused("dim 1 is closed and empty");
    dim[1].priority = 256;
    assert_null(nb_spec_new(m, &p));
    refused("priority 256");
    p.rank = 33;
    assert_null(nb_spec_new(m, &p));
    refused("33 dims");
}

static void layouts(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=2, \"y\"=2]>");
    const nb_spec *s = spec(m, "[x, .]");
    assert_true(nb_spec_same_layout(s, spec(m, "[x?p1, ?]R{y}")));
    assert_false(nb_spec_same_layout(s, spec(m, "[., x]")));
    assert_false(nb_spec_same_layout(s, spec(m, "[x, .]P{y}")));
    assert_false(
        nb_spec_same_layout(spec(m, "[x]P{y}"), spec(m, "[x]Pmax{y}")));
    assert_false(nb_spec_same_layout(s, spec(m, "[x]")));
    assert_true(nb_spec_is_whole(spec(m, "[., ?]R{x}")));
    assert_false(nb_spec_is_whole(s));
    assert_false(nb_spec_is_whole(spec(m, "[.]P{x}")));
}

/* Which parts of an axis of size 24 can be used together: those that belong to
 * one way of writing 24 as a product. */
static void parts_that_coexist(void **state)
{
    (void)state;
    const nb_mesh *m = mesh("@m = <[\"x\"=24]>");
    for (int a = 1; a <= 24; a++)
        for (int k = 2; a * k <= 24; k++)
            for (int b = 1; b <= 24; b++)
                for (int n = 2; b * n <= 24; n++) {
                    char text[64];
                    bool fits = 24 % (a * k) == 0 && 24 % (b * n) == 0 &&
                                (b % (a * k) == 0 || a % (b * n) == 0);
                    snprintf(text, sizeof text, "[x:(%d)%d, x:(%d)%d]", a, k, b,
                             n);
                    assert_int_equal(nb_spec_parse(m, text) != NULL, fits);
                    nb_error_clear();
                }
}

static const char *fault_mesh = "@f0 = <[\"x\"=2, \"y\"=2], "
                                "device_ids=[3, 2, 1, 0]>";

/* All that allocates, on things that were not there before. */
static bool attempt(void *ctx)
{
    int n = (int)((const faults *)ctx)->n;
    char text[64];
    const char *x[] = {"x"}, *y[] = {"y"};
    nb_dim_parts dim[] = {{1, x, false, n % 256}};
    nb_spec_parts p = {1, dim, 0, 1, NULL, y, "min"};
    snprintf(text, sizeof text, "%s", fault_mesh);
    text[2] = (char)('0' + n % 10);
    const nb_mesh *m = nb_mesh_parse(text);
    const nb_spec *s = nb_spec_parse(m, "[(x y), ?]R{}"),
                  *t = m ? nb_spec_new(m, &p) : NULL;
    char *of_mesh = m ? nb_mesh_text(m) : NULL;
    char *of_spec = s ? nb_spec_text(s) : NULL;
    char *type = s ? nb_spec_type_text(s, NB_F32, I(4, 4)) : NULL;
    int64_t sizes[2];
    bool ok =
        t && of_mesh && of_spec && type && nb_spec_fit(s, 2, I(1, n)) &&
        nb_spec_global_sizes(s, I(1, 4, 1, 4, 1, 4, 1, 4), sizes) == NB_OK;
    nb_text_release(of_mesh);
    nb_text_release(of_spec);
    nb_text_release(type);
    return ok;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults f = {.run = attempt, .bare = true, .fresh = true};
    f.ctx = &f;
    f.holds = attempt; /* what failed can be done again */
    assert_true(faults_survived(&f) && f.n > 5 && f.n < 100);
}

/* What failed to be made, handed on. */
static void null_means_failed(void **state)
{
    (void)state;
    nb_spec_parts p = {0};
    int64_t sizes[1];
    assert_null(nb_mesh_parse("@"));
    assert_null(nb_spec_parse(NULL, "[]"));
    assert_null(nb_spec_new(NULL, &p));
    assert_null(nb_spec_text(NULL));
    assert_null(nb_mesh_text(NULL));
    assert_null(nb_spec_fit(NULL, 0, NULL));
    assert_int_equal(nb_spec_local_sizes(NULL, NULL, 0, NULL, sizes),
                     NB_EVALUE);
    assert_null(nb_mesh_name(NULL));
    assert_null(nb_mesh_axis_name(NULL, 0));
    assert_null(nb_mesh_with(NULL, 0));
    assert_null(nb_mesh_on(NULL, NULL));
    assert_int_equal(nb_mesh_axes(NULL) + nb_mesh_axis_size(NULL, 0), 0);
    assert_int_equal(nb_mesh_devices(NULL), 0);
    assert_int_equal(nb_mesh_axis_find(NULL, "x"), -1);
    assert_int_equal(nb_mesh_device(NULL, 0), -1);
    assert_int_equal(nb_mesh_position(NULL, 0), -1);
    assert_int_equal(nb_mesh_coordinate(NULL, 0, 0), -1);
    assert_int_equal(nb_mesh_place(NULL, 0), -1);
    assert_false(nb_mesh_is_here(NULL, 0));
    assert_int_equal(nb_mesh_set_cost(NULL, 0, 1, 1), NB_EVALUE);
    assert_null(nb_spec_mesh(NULL));
    assert_null(nb_spec_kind(NULL));
    assert_int_equal(nb_spec_rank(NULL) + nb_spec_priority(NULL, 0), 0);
    for (int list = NB_SPEC_REPLICATED; list <= 0; list++) {
        assert_int_equal(nb_spec_axes(NULL, list), 0);
        assert_int_equal(nb_spec_axis(NULL, list, 0).size, 1);
        assert_int_equal(nb_spec_shards(NULL, list), 1);
    }
    assert_false(nb_spec_is_open(NULL, 0) || nb_spec_is_whole(NULL));
    const nb_spec *s = nb_spec_parse(mesh(MESH8), "[x]");
    assert_false(nb_spec_same_layout(NULL, s) || nb_spec_same_layout(s, NULL));
    refused("position 1: expected a name"); /* the first cause */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_sizes),
        cmocka_unit_test(coordinates),
        cmocka_unit_test(coordinates_on_parts),
        cmocka_unit_test(blocks),
        cmocka_unit_test(finer_blocks_refine),
        cmocka_unit_test(blocks_cover),
        cmocka_unit_test(global_sizes),
        cmocka_unit_test(groups),
        cmocka_unit_test(groups_over_parts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_broken_text),
        cmocka_unit_test(survives_noise),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(canonical_form),
        cmocka_unit_test(fits_a_shape),
        cmocka_unit_test(types),
        cmocka_unit_test(meshes),
        cmocka_unit_test(refuses_meshes),
        cmocka_unit_test(largest_axis),
        cmocka_unit_test(parts),
        cmocka_unit_test(layouts),
        cmocka_unit_test(parts_that_coexist),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(null_means_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
