/* test_rule.c - the language of axes: what is refused and where, what prints
 * and parses back, sizes of factors, rules of reshapes, and that what the
 * catalogue says of its axes is so. */
#include "core/reshape_rule.h"
#include "ops/view.h"
#include "shard/decide/factors.h"
#include "shard/rule/rule.h"
#include "support/faults.h"
#include "support/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open();
}

static int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_error_clear();
    return nb_stats_get().nodes_live != 0;
}

#define L(...)   ((int64_t[]){__VA_ARGS__})
#define LEN(...) ((int)(sizeof(L(__VA_ARGS__)) / sizeof(int64_t)))
#define S(...)                           \
    {                                    \
        LEN(__VA_ARGS__), L(__VA_ARGS__) \
    }
#define SHAPES(...)                                                        \
    (int)(sizeof((nb_rule_shape[]){__VA_ARGS__}) / sizeof(nb_rule_shape)), \
        (nb_rule_shape[])                                                  \
    {                                                                      \
        __VA_ARGS__                                                        \
    }

static void refused(const char *part)
{
    if (nb_error_code() != NB_EVALUE || !strstr(nb_error_message(), part))
        fail_msg("\"%s\" is not in: %s", part, nb_error_message());
    nb_error_clear();
}

static const nb_rule_template *parsed(const char *text)
{
    const nb_rule_template *t = nb_rule_parse(text);
    if (!t) fail_msg("%s", nb_error_message());
    return t;
}

static nb_rule *made(const char *text, int nin, const nb_rule_shape *in,
                     int nout, const nb_rule_shape *out)
{
    nb_rule *r = nb_rule_new(parsed(text), nin, in, nout, out);
    if (!r) fail_msg("%s", nb_error_message());
    return r;
}

static nb_rule_factor_info asked(const nb_rule *r, const char *name)
{
    nb_rule_factor_info info;
    int f = nb_rule_factor_find(r, name);
    if (f < 0) fail_msg("no factor %s", name);
    assert_true(nb_rule_factor(r, f, &info));
    return info;
}

static int reduced(const nb_rule *r)
{
    int n = 0;
    for (int f = 0; f < nb_rule_factors(r); f++)
        n += nb_rule_is_reduced(r, f);
    return n;
}

/* Text */

static void test_wrong_texts_are_refused_where_they_are_wrong(void **s)
{
    (void)s;
    static const struct {
        const char *text, *where;
    } is[] = {
        /* E1 */
        {"m k, k n", "at 8: end of text: -> is expected"},
        {"a -> b -> c", "at 7: \"->\": -> stands once"},
        {"m - n", "at 2: \"-\": -> is expected"},
        /* E2 */
        {"2m -> m", "at 0: \"2m\": a factor begins with a letter"},
        {"m, 1k -> m", "at 3: \"1k\": a factor begins with a letter"},
        {"m $ -> m", "at 2: \"$\": a factor begins with a letter"},
        {"_m -> m", "at 0: \"_m\": a factor begins with a letter"},
        {"m .. -> m", "at 2: \".\": a factor begins with a letter"},
        /* E3 */
        {"(m k, n -> m", "at 0: \"(m k\": a group is not closed"},
        {"m (k", "at 2: \"(k\": a group is not closed"},
        {"m) -> m", "at 1: \")\": no group is open"},
        {"((a b) c) -> a", "at 1: \"(\": a group inside a group"},
        /* E4 */
        {"(a) -> a", "at 0: \"(a)\": a group has at least two factors"},
        {"a () -> a", "at 2: \"()\": a group has at least two factors"},
        /* E5 */
        {"a ... b -> a", "at 2: \"...\": dots come first"},
        {"... ... -> ...", "at 4: \"...\": dots come first"},
        {"(... a) -> a", "at 1: \"...\": dots inside a group"},
        {"...12345 -> ...", "at 0: \"...12345\": the number of a batch"},
        {"...1, ...2, ...3, ...4, ...5 -> ", "at 24: \"...5\": more than 4"},
        /* E6 */
        {"m m -> m", "at 2: \"m\": a factor stands twice in one operand"},
        {"m (k m) -> m", "at 5: \"m\": a factor stands twice in one operand"},
        {"(k k) -> k", "at 3: \"k\": a factor stands twice in one operand"},
        /* E13 */
        {"m -> m ; max{q}", "at 13: \"q\": no operand has such a factor"},
        {"m -> m; q=3", "at 8: \"q\": no operand has such a factor"},
        {"k -> ; max{k}, min{k}", "at 19: \"k\": a factor is of one kind"},
        {"k -> ; replicate{k}, max{k}", "at 25: \"k\": a factor is of one"},
        {"k -> k; permute{k}, scan{k}", "at 25: \"k\": a factor is of one"},
        {"m -> m; max{m}", "at 12: \"m\": a factor of the result is not"},
        {"(a b) -> a b; permute{a}", "at 22: \"a\": a factor of a group"},
        {"m -> m; m=3, m=4", "at 13: \"m\": a size twice"},
        /* E14 */
        {"m -> m p", "at 7: \"p\": a factor of the result that no input has"},
        {"m -> (m p)", "at 5: \"(m p)\": a factor of the result that no"},
        /* E15 */
        {"? -> m", "at 0: \"?\": ? stands in results only"},
        {"m, a ? -> m", "at 5: \"?\": ? stands in results only"},
        /* E18 */
        {"m -> m; split{m}", "at 8: \"split\": no such kind"},
        {"m -> m; m", "at 9: end of text: kind{factors} or factor=size"},
        {"m -> m; max{m", "at 12: \"m\": a factor of the result"},
        {"k ->; max{k", "at 9: \"{\": { is not closed"},
        {"m -> m; m=x", "at 10: \"x\": a size is a number"},
        {"m -> m; m=-1", "at 10: \"-\": a size is a number"},
        {"m -> m; m=99999999999999999999", "at 10: \"99999999999999999999\": "
                                           "a size is a 64-bit number"},
        {"m -> m; replicate{m} x", "at 21: \"x\": the attributes have ended"},
    };
    for (size_t k = 0; k < sizeof is / sizeof is[0]; k++) {
        char part[200];
        assert_null(nb_rule_parse(is[k].text));
        snprintf(part, sizeof part, "signature \"%s\": %s", is[k].text,
                 is[k].where);
        refused(part);
    }
    assert_null(nb_rule_parse(NULL));
    refused("no text");
}

static void prints(const char *text, const char *as)
{
    char *is = nb_rule_template_text(parsed(text));
    assert_string_equal(is, as);
    nb_text_release(is);
}

static void test_a_template_has_one_form(void **s)
{
    (void)s;
    prints("  m   k,k n->m n", "m k, k n -> m n");
    prints("->", "->");
    prints("-> ? ?", "-> ? ?");
    prints(", a -> a", ", a -> a");
    prints("a ->", "a ->");
    prints("a -> a, ", "a -> a,");
    prints("...0 a -> ...", "... a -> ...");
    prints("...1 a, ...2 (a b) -> ...2 1 ; b = 4,a=3",
           "...1 a, ...2 (a b) -> ...2 1; a=3, b=4");
    prints("a b c d -> a; min{c}, blocked{b}; mask{a}, or{d}",
           "a b c d -> a; mask{a}, blocked{b}, min{c}, or{d}");
}

static int below(int n)
{
    return (int)uniform(0, n) % n;
}

/* Random texts: dims of up to three factors, each of at most one kind. */
typedef struct drawn {
    nb_text text;
    bool taken[10]; /* in this tensor */
    bool in[10], out[10], grouped[10];
} drawn;

static void draw_dim(drawn *d, bool result)
{
    int n = below(5), free[10], nfree = 0;
    for (int f = 0; f < 10; f++)
        if (!d->taken[f]) free[nfree++] = f;
    n = n == 4 ? 2 : n == 3 ? 1 : n;
    if (n > nfree) n = 0;
    if (n == 0) nb_text_add(&d->text, result && below(2) ? " ?" : " 1");
    if (n > 1) nb_text_add(&d->text, " (");
    for (int k = 0; k < n; k++) {
        int at = below(nfree), f = free[at];
        free[at] = free[--nfree];
        d->taken[f] = true;
        *(result ? &d->out[f] : &d->in[f]) = true;
        d->grouped[f] = d->grouped[f] || n > 1;
        nb_text_add(&d->text, "%sf%d", k || n == 1 ? " " : "", f);
    }
    if (n > 1) nb_text_add(&d->text, ")");
}

static void draw_side(drawn *d, bool result)
{
    int n = 1 + below(3);
    for (int t = 0; t < n; t++) {
        nb_text_add(&d->text, t ? ", " : " ");
        memset(d->taken, 0, sizeof d->taken);
        if (below(2)) nb_text_add(&d->text, "...");
        if (below(2) && d->text.data[d->text.n - 1] == '.')
            nb_text_add(&d->text, "%d", below(3));
        for (int k = below(4); k > 0; k--)
            draw_dim(d, result);
    }
}

static void draw_attributes(drawn *d)
{
    static const char *const kind[] = {"replicate", "scan", "mask", "blocked",
                                       "permute"};
    static const char *const reduce[] = {"max", "min", "prod", "and", "or"};
    const char *before = ";";
    for (int f = 9; f >= 0; f--) {
        if (!d->in[f] && !d->out[f]) continue;
        bool sized = !d->in[f] || below(4) == 0;
        if (below(3) == 0) {
            int k = below(d->grouped[f] ? 4 : 5);
            bool red = !d->out[f] && below(2);
            nb_text_add(&d->text, "%s %s{f%d}", before,
                        red ? reduce[k] : kind[k], f);
            before = ",";
        }
        if (!sized) continue;
        nb_text_add(&d->text, "%s f%d=%d", before, f, below(100));
        before = ",";
    }
}

static bool same_sig(const nb_sig *a, const nb_sig *b)
{
    bool same = a->nin == b->nin && a->nout == b->nout &&
                a->nfactors == b->nfactors && a->nbatches == b->nbatches &&
                a->pointwise == b->pointwise;
    for (int f = 0; same && f < a->nfactors; f++) {
        const nb_factor *x = &a->factor[f], *y = &b->factor[f];
        same = x->name == y->name && x->kind == y->kind &&
               x->reduce == y->reduce && x->size == y->size &&
               x->in_result == y->in_result;
    }
    for (int t = 0; same && t < a->nin + a->nout; t++) {
        const nb_term *x = &a->term[t], *y = &b->term[t];
        same = x->dots == y->dots && x->n == y->n && x->batch == y->batch;
        for (int d = 0; same && d < x->n; d++)
            same = x->dim[d].n == y->dim[d].n &&
                   !memcmp(x->dim[d].factor, y->dim[d].factor,
                           (size_t)x->dim[d].n * sizeof(int16_t));
    }
    return same;
}

static void test_what_prints_parses_to_the_same(void **s)
{
    (void)s;
    for (int k = 0; k < 2000; k++) {
        drawn d = {.text = {0}};
        draw_side(&d, false);
        nb_text_add(&d.text, " ->");
        draw_side(&d, true);
        draw_attributes(&d);
        const nb_sig *a = parsed(nb_text_get(&d.text));
        char *once = nb_rule_template_text(a);
        const nb_sig *b = parsed(once);
        char *twice = nb_rule_template_text(b);
        assert_string_equal(once, twice);
        if (!same_sig(a, b)) fail_msg("%s | %s", a->text, once);
        nb_text_release(once);
        nb_text_release(twice);
        nb_text_free(&d.text);
    }
}

/* Sizes */

static void test_sizes_follow_from_shapes(void **s)
{
    (void)s;
    nb_rule *r = made("(a b) c -> a (b c)", SHAPES(S(8, 4)), SHAPES(S(2, 16)));
    assert_int_equal(asked(r, "a").size, 2);
    assert_int_equal(asked(r, "b").size, 4);
    assert_int_equal(asked(r, "c").size, 4);
    assert_int_equal(reduced(r), 0);
    nb_rule_free(r);
    r = made("(a b), (b c) -> a c", SHAPES(S(6), S(8)), SHAPES(S(3, 4)));
    assert_int_equal(asked(r, "a").size, 3);
    assert_int_equal(asked(r, "b").size, 2);
    assert_int_equal(asked(r, "c").size, 4);
    assert_string_equal(asked(r, "b").kind, "reduce");
    assert_string_equal(asked(r, "b").reduce, "sum");
    assert_string_equal(asked(r, "a").kind, "pass");
    assert_null(asked(r, "a").reduce);
    nb_rule_free(r);
    r = made("(a b) -> b; a=3, max{a}", SHAPES(S(12)), 0, NULL);
    assert_int_equal(nb_rule_size(r, 1, 0), 4);
    assert_string_equal(asked(r, "a").reduce, "max");
    nb_rule_free(r);
}

static void test_dots_are_aligned_from_the_right(void **s)
{
    (void)s;
    nb_rule *r = made("... m k, ... k n -> ... m n",
                      SHAPES(S(2, 3, 4, 5), S(5, 6)), 0, NULL);
    assert_int_equal(nb_rule_factors(r), 5);
    assert_int_equal(asked(r, ".0_0").size, 2);
    assert_int_equal(asked(r, ".0_1").size, 3);
    assert_int_equal(asked(r, "k").size, 5);
    assert_int_equal(reduced(r), 1);
    assert_int_equal(nb_rule_rank(r, 2), 4);
    assert_int_equal(nb_rule_size(r, 2, 3), 6);
    int f = nb_rule_factor_find(r, ".0_1");
    assert_int_equal(nb_rule_dim_factor(r, 0, 1, 0), f);
    assert_int_equal(nb_rule_dim_factor(r, 2, 1, 0), f);
    char *text = nb_rule_text(r);
    assert_string_equal(text, "b0 b1 m k, k n -> b0 b1 m n");
    nb_text_release(text);
    nb_rule_free(r);
    r = made("..., ... -> ...", SHAPES(S(4, 1, 3), S(2, 3)), 0, NULL);
    assert_int_equal(nb_rule_dim_factors(r, 0, 1), 0);
    assert_int_equal(nb_rule_dim_factors(r, 1, 0), 1);
    assert_int_equal(nb_rule_size(r, 2, 1), 2);
    text = nb_rule_text(r);
    assert_string_equal(text, "b0 1 b2, b1 b2 -> b0 b1 b2");
    nb_text_release(text);
    nb_rule_free(r);
    r = made("...1 b, ... b0 -> ...1 b0", SHAPES(S(7, 3), S(2, 5, 9)), 0, NULL);
    assert_int_equal(asked(r, ".1_0").size, 7);
    assert_int_equal(asked(r, ".0_0").size, 2);
    assert_string_equal(asked(r, ".0_1").kind, "reduce");
    text = nb_rule_text(r);
    assert_string_equal(text, "b_0 b, b_1 b_2 b0 -> b_0 b0");
    nb_text_release(text);
    nb_rule_free(r);
}

static void test_kinds_are_told(void **s)
{
    (void)s;
    nb_rule *r =
        made("v d, i -> i d ?; mask{v}", SHAPES(S(9, 4), S(5)), 0, NULL);
    assert_string_equal(asked(r, "v").kind, "mask");
    assert_string_equal(asked(r, "v").reduce, "sum");
    assert_int_equal(asked(r, "?0").size, -1);
    assert_string_equal(asked(r, "?0").kind, "pass");
    assert_int_equal(nb_rule_size(r, 2, 2), -1);
    nb_rule_free(r);
    r = made("a b, a b -> a b; permute{a}", SHAPES(S(3, 4), S(5, 4)),
             SHAPES(S(8, 4)));
    assert_int_equal(nb_rule_size(r, 2, 0), 8);
    assert_int_equal(asked(r, "a").size, 3);
    assert_string_equal(asked(r, "a").kind, "permute");
    nb_rule_free(r);
    r = made("a b -> ; replicate{a}", SHAPES(S(3, 4)), 0, NULL);
    assert_int_equal(reduced(r), 1);
    assert_null(asked(r, "a").reduce);
    nb_rule_free(r);
}

static void test_members_of_size_one_leave_their_group(void **s)
{
    (void)s;
    nb_rule *r = made("(a b) c -> a (b c)", SHAPES(S(4, 3)), SHAPES(S(1, 12)));
    assert_int_equal(nb_rule_dim_factors(r, 0, 0), 1);
    assert_string_equal(nb_rule_note(r),
                        "rule \"(a b) c -> a (b c)\": at 0: \"(a b)\": the "
                        "other factors have size 1: read as b");
    char *text = nb_rule_text(r);
    assert_string_equal(text, "b c -> a (b c); a=1");
    nb_text_release(text);
    nb_rule_free(r);
    r = made("(a b) -> a b", SHAPES(S(12)), SHAPES(S(3, 4)));
    assert_null(nb_rule_note(r));
    nb_rule_free(r);
}

static void test_no_elements_are_a_size(void **s)
{
    (void)s;
    nb_rule *r = made("m k, k n -> m n", SHAPES(S(0, 3), S(3, 4)), 0, NULL);
    assert_int_equal(nb_rule_size(r, 2, 0), 0);
    nb_rule_free(r);
    r = made("-> ?", 0, NULL, SHAPES(S(4)));
    assert_int_equal(asked(r, "?0").size, 4);
    nb_rule_free(r);
}

typedef struct misfit {
    const char *text;
    int nin;
    const nb_rule_shape *in;
    int nout;
    const nb_rule_shape *out;
    const char *part;
} misfit;

static void misfits(const misfit *m)
{
    nb_rule *r = nb_rule_new(parsed(m->text), m->nin, m->in, m->nout, m->out);
    if (r) fail_msg("%s is taken", m->text);
    refused(m->part);
}

static void test_shapes_that_do_not_fit_are_refused(void **s)
{
    (void)s;
    /* E7 */
    misfits(&(misfit){"m k, k n -> m n", SHAPES(S(2, 3)), 0, NULL,
                      "at 0: 2 inputs are written, 1 given"});
    misfits(&(misfit){"m -> m", SHAPES(S(2)), SHAPES(S(2), S(2)),
                      "at 5: 1 results are written, 2 given"});
    /* E8 */
    misfits(&(misfit){"m k, k n -> m n", SHAPES(S(2, 3), S(3)), 0, NULL,
                      "at 5: \"k n\": input 1 has rank 1, not 2"});
    misfits(&(misfit){"m -> m", SHAPES(S(2)), SHAPES(S(2, 1)),
                      "at 5: \"m\": result 0 has rank 2, not 1"});
    /* E9 */
    misfits(&(misfit){"m k, k n -> m n", SHAPES(S(2, 8), S(9, 4)), 0, NULL,
                      "at 5: \"k\": dim 0 of input 1 has size 9, but k is 8 "
                      "by dim 1 of input 0"});
    misfits(&(misfit){"(a b), (b c) -> a c", SHAPES(S(6), S(8)),
                      SHAPES(S(3, 2)),
                      "at 7: \"(b c)\": dim 0 of input 1 has size 8, but b is "
                      "2 by dim 0 of input 0, c is 2 by dim 1 of result 0"});
    misfits(&(misfit){"..., ... -> ...", SHAPES(S(2, 3), S(4)), 0, NULL,
                      "at 5: \"...\": dim 0 of input 1 has size 4, but it is 3 "
                      "by dim 1 of input 0"});
    /* E10 */
    misfits(&(misfit){"(a b) -> b; a=2", SHAPES(S(7)), 0, NULL,
                      "at 0: \"(a b)\": dim 0 of input 0 has size 7, which its "
                      "factors do not divide: a=2 is written"});
    misfits(&(misfit){"(a b), a -> b", SHAPES(S(7), S(3)), 0, NULL,
                      "a is 3 by dim 0 of input 1"});
    /* E11 */
    misfits(&(misfit){"(a b) -> (b a)", SHAPES(S(12)), SHAPES(S(12)),
                      "at 0: \"(a b)\": no shape tells the size of a"});
    misfits(&(misfit){"(a b) -> b a", SHAPES(S(12)), 0, NULL,
                      "no shape tells the size of a"});
    /* E16 */
    misfits(&(misfit){"m -> m; m=4", SHAPES(S(5)), 0, NULL,
                      "at 0: \"m\": dim 0 of input 0 has size 5, but m=4 is "
                      "written"});
    /* E17 */
    misfits(&(misfit){"... m k -> m", SHAPES(S(5)), 0, NULL,
                      "at 0: \"... m k\": input 0 has rank 1: dots would stand "
                      "for -1 dims"});
    int64_t many[17] = {0};
    misfits(&(misfit){"... -> ...", SHAPES({17, many}), 0, NULL, "rank 17"});
    misfits(&(misfit){"a -> a", SHAPES(S(-3)), 0, NULL, "-3 is not a size"});
}

static void test_a_template_is_made_of_mappings(void **s)
{
    (void)s;
    static const char *const m[] = {"m"}, *const ab[] = {"a", "b"};
    static const char *const odd[] = {"a b"};
    nb_rule_names in[] = {{1, m}, {2, ab}, {0, NULL}}, out[] = {{1, m}};
    nb_rule_mapping x = {3, in}, y = {1, out};
    const nb_rule_template *t = nb_rule_map(1, &x, 1, &y);
    char *text = nb_rule_template_text(t);
    assert_string_equal(text, "m (a b) 1 -> m");
    nb_text_release(text);
    in[0].name = odd;
    assert_null(nb_rule_map(1, &x, 1, &y));
    refused("\"a b\" is not a factor");
}

/* Reshapes */

static const char *reshape(int n, const int64_t *from, int m, const int64_t *to)
{
    const nb_rule_template *t = nb_rule_reshape(n, from, m, to);
    if (!t) fail_msg("%s", nb_error_message());
    return t->text;
}

#define RESHAPE(from, to)                         \
    reshape(sizeof(from) / sizeof(int64_t), from, \
            sizeof(to) / sizeof(int64_t), to)

static void test_reshapes_share_factors(void **s)
{
    (void)s;
    int64_t abc[] = {2, 4, 32}, ab[] = {8, 32};
    int64_t p[] = {8, 4}, q[] = {2, 16}, u[] = {1, 8}, v[] = {8, 1};
    int64_t f[] = {6, 4}, g[] = {8, 3}, none[] = {0, 3}, also[] = {3, 0, 2};
    assert_string_equal(RESHAPE(abc, ab), "i j k -> (i j) k");
    assert_string_equal(RESHAPE(ab, abc), "(i j) k -> i j k");
    assert_string_equal(RESHAPE(p, q), "(i j) k -> i (j k)");
    assert_string_equal(RESHAPE(u, v), "1 i -> i 1");
    assert_string_equal(
        RESHAPE(f, g), "(i a) b -> (i c) d; replicate{a b c d}, i=2, c=4, d=3");
    assert_string_equal(RESHAPE(none, also), "1 1 -> 1 1 1");
    assert_null(nb_rule_reshape(2, f, 2, p));
    refused("24 elements are not reshaped to 32");
    int64_t two[16], many = 1 << 16;
    for (int d = 0; d < 16; d++)
        two[d] = 2;
    assert_string_equal(reshape(16, two, 1, &many),
                        "i j k l m n o p q r s t u v w x -> "
                        "(i j k l m n o p q r s t u v w x)");
}

static int draw_shape(int64_t n, int64_t *size)
{
    int rank = 0;
    while (n > 1 && rank < 6) {
        int64_t d = 1 + below(12);
        if (n % d) continue;
        size[rank++] = d;
        n /= d;
    }
    if (n > 1 || below(4) == 0) size[rank++] = n;
    return rank;
}

/* Coordinates along all factors of the element with a linear index, in tensor
 * t; -1 where it has no such factor. */
static void coordinates(const nb_rule *r, int t, int64_t at, int64_t *along)
{
    for (int f = 0; f < nb_rule_factors(r); f++)
        along[f] = -1;
    for (int d = nb_rule_rank(r, t) - 1; d >= 0; d--) {
        int64_t x = at % nb_rule_size(r, t, d);
        at /= nb_rule_size(r, t, d);
        for (int k = nb_rule_dim_factors(r, t, d) - 1; k >= 0; k--) {
            int f = nb_rule_dim_factor(r, t, d, k);
            along[f] = x % r->factor[f].size;
            x /= r->factor[f].size;
        }
        assert_true(x == 0 || nb_rule_dim_factors(r, t, d) == 0);
    }
}

static void holds(const nb_rule *r, int64_t n)
{
    int64_t x[NB_MAX_FACTORS], y[NB_MAX_FACTORS], shared = 1;
    bool whole = true;
    for (int64_t at = 0; at < n; at++) {
        coordinates(r, 0, at, x);
        coordinates(r, 1, at, y);
        for (int f = 0; f < nb_rule_factors(r); f++)
            if (x[f] != y[f] && r->factor[f].kind != NB_REPLICATE)
                fail_msg("%s: element %lld", r->sig->text, (long long)at);
    }
    for (int f = 0; f < nb_rule_factors(r); f++) {
        if (r->factor[f].kind == NB_REPLICATE)
            whole = false;
        else
            shared *= r->factor[f].size;
    }
    assert_true(whole ? shared == n : n % shared == 0);
}

static void test_factors_of_a_reshape_run_along_both(void **s)
{
    static const int64_t count[] = {1, 12, 24, 36, 48, 60, 64, 72, 96, 120};
    int private = 0;
    (void)s;
    for (int k = 0; k < 3000; k++) {
        int64_t n = count[below(10)], from[8], to[8];
        int a = draw_shape(n, from), b = draw_shape(n, to);
        const nb_rule_template *t = nb_rule_reshape(a, from, b, to);
        nb_rule_shape x = {a, from}, y = {b, to};
        nb_rule *r = t ? nb_rule_new(t, 1, &x, 1, &y) : NULL;
        if (!r) fail_msg("%s", nb_error_message());
        holds(r, n);
        private += strstr(t->text, "replicate") != NULL;
        nb_rule_free(r);
    }
    assert_true(private > 100 && private < 2900);
}

/* The catalogue */

/* A part of x along dim d, or all of it if d < 0. */
static nb_tensor *part(nb_tensor *x, int d, int64_t from, int64_t n)
{
    nb_window w = nb_window_of(x);
    if (d < 0) return x;
    w.start[d] = from;
    w.size[d] = n;
    return nb_slice(x, w.start, w.size, w.step);
}

/* The dim that is f alone; -1: none has it, -2: it is in a group. */
static int dim_along(const nb_rule *r, int t, int f)
{
    for (int d = 0; d < r->tensor[t].rank; d++)
        for (int k = 0; k < r->tensor[t].dim[d].n; k++)
            if (r->tensor[t].dim[d].factor[k] == f)
                return r->tensor[t].dim[d].n == 1 ? d : -2;
    return -1;
}

static nb_tensor *merged(nb_reduce kind, nb_tensor *a, nb_tensor *b)
{
    switch (kind) {
    case NB_MAX: return nb_maximum(a, b);
    case NB_MIN: return nb_minimum(a, b);
    case NB_PROD: return nb_mul(a, b);
    case NB_AND: return nb_logical_and(a, b);
    case NB_OR: return nb_logical_or(a, b);
    default: return nb_add(a, b);
    }
}

/* The call on one half of factor f.  Of operands that do not have it, an op
 * that is linear in all together sees the value in the first half only. */
static int half_call(const sample *s, const nb_rule *r, int f, bool second,
                     nb_tensor **out)
{
    int64_t n = r->factor[f].size, h = n / 2;
    nb_tensor *in[MAX_IN];
    bool once = nb_rule_is_reduced(r, f) && s->op->kind == NB_LINEAR;
    for (int i = 0; i < s->nin; i++) {
        int d = dim_along(r, i, f);
        bool zero = once && second && d < 0 && sample_smooth(s, i);
        in[i] = zero ? nb_sub(s->in[i], s->in[i])
                     : part(s->in[i], d, second ? h : 0, second ? n - h : h);
    }
    return sample_call(s, in, out);
}

/* Whether cutting factor f in halves gives what it says. */
static bool cuts(const sample *s, const nb_rule *r, int f, int nout,
                 nb_tensor *const *y)
{
    nb_tensor *a[MAX_OUT], *b[MAX_OUT];
    int64_t n = r->factor[f].size, h = n / 2;
    bool ok = half_call(s, r, f, false, a) == nout &&
              half_call(s, r, f, true, b) == nout;
    for (int k = 0; ok && k < nout; k++) {
        int d = dim_along(r, r->nin + k, f);
        if (nb_rule_is_reduced(r, f))
            ok = near(merged(r->factor[f].reduce, a[k], b[k]), y[k], 1e-9);
        else
            ok = near(a[k], part(y[k], d, 0, h), 1e-9) &&
                 near(b[k], part(y[k], d, h, n - h), 1e-9);
    }
    return ok;
}

/* Whether an attribute holds sizes, so that halves need other ones. */
static bool says_sizes(const nb_op *op)
{
    static const char *const names[] = {"reshape",     "broadcast_to", "slice",
                                        "embed",       "random_bits",  "update",
                                        "index_prior", "cholesky"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (!strcmp(op->name, names[k])) return true;
    return false;
}

static int try_factors(const sample *s, const nb_rule *r, int nout,
                       nb_tensor *const *y)
{
    int tried = 0;
    for (int f = 0; f < r->nfactors; f++) {
        bool plain = r->factor[f].size > 1 && r->in_input[f] &&
                     r->factor[f].kind == NB_PASS;
        for (int t = 0; t < r->nin + r->nout; t++)
            plain = plain && dim_along(r, t, f) > -2;
        if (!plain || says_sizes(s->op)) continue;
        if (!cuts(s, r, f, nout, y))
            fail_msg("%s, factor %d of %s: %s", s->op->name, f, r->sig->text,
                     nb_error_message());
        tried++;
    }
    return tried;
}

/* The signature of a call on the shapes of its tensors, which have no lanes. */
static nb_rule *rule_of_call(const nb_call *c, int nout, nb_tensor *const *y)
{
    nb_rule_shape *shape = calloc((size_t)(c->nin + nout), sizeof *shape);
    int64_t *size = calloc((size_t)(c->nin + nout) * NB_MAX_RANK, sizeof *size);
    for (int t = 0; t < c->nin + nout; t++) {
        int64_t *of = size + t * NB_MAX_RANK;
        int n = nb_stored_sizes(t < c->nin ? c->in[t] : y[t - c->nin], of);
        shape[t] = (nb_rule_shape){n, of};
    }
    nb_rule *r = nb_rule_new(c->sig, c->nin, shape, nout, shape + c->nin);
    free(shape);
    free(size);
    return r;
}

static void test_factors_that_pass_can_be_cut(void **s)
{
    int tried = 0, ops = 0;
    (void)s;
    for (int i = 0; nb_op_at(i); i++) {
        sample x;
        nb_tensor *y[MAX_OUT];
        nb_op *op = nb_op_at(i);
        if (op->compose || op->shape || op->result || !op->example) continue;
        nb_scope_open();
        assert_true(sample_random(&x, op));
        int n = sample_call(&x, x.in, y);
        if (n == 0) fail_msg("%s: %s", op->name, nb_error_message());
        nb_tensor *node = op->nout > 1 ? nb_tensor_in(y[0])[0] : y[0];
        nb_call c = nb_call_of(node);
        if (c.op == op && c.sig) {
            nb_rule *r = rule_of_call(&c, n, y);
            if (!r) fail_msg("%s: %s", op->name, nb_error_message());
            bool typed = c.nin == x.nin;
            tried += typed ? try_factors(&x, r, n, y) : 0;
            nb_rule_free(r);
            ops++;
        }
        nb_scope_close(0, NULL);
    }
    print_message("%d factors of %d ops\n", tried, ops);
    assert_true(ops > 100 && tried > 100);
}

/* Lanes of a call are factors too, before those behind dots. */
static void test_lanes_are_factors(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(2, L(3, 4), NB_F32), *y = nb_neg(x);
    nb_call c = nb_call_of(y);
    nb_factors f;
    assert_true(nb_factors_of(&f, &c, 1, &y));
    assert_int_equal(f.n, 2);
    nb_factors_free(&f);
    nb_lane lane[] = {{.size = nb_extent_of(5), .id = 7},
                      {.size = nb_extent_of(6), .id = 9, .thin = true}};
    nb_shape shape = nb_tensor_shape(x);
    assert_true(nb_shape_add_lane(&shape, lane[0]));
    assert_true(nb_shape_add_lane(&shape, lane[1]));
    nb_tensor *hidden =
        nb_node_new(y->op, y->sig, NB_F32, &shape, 1, &x, 0, NULL);
    c.in = &hidden;
    assert_true(nb_factors_of(&f, &c, 1, &hidden));
    const nb_factored *t = &f.tensor[0];
    assert_int_equal(t->rank, 4);
    assert_int_equal(f.size[t->dim[0].factor[0]], 5);
    assert_int_equal(t->size[1], 1);
    assert_int_equal(f.size[t->dim[3].factor[0]], 4);
    nb_factors_free(&f);
}

/* Faults */

static bool rule_made(void *unused)
{
    nb_rule *r = nb_rule_new(parsed("(a b) c -> a (b c)"), SHAPES(S(4, 3)),
                             SHAPES(S(1, 12)));
    char *text = r ? nb_rule_text(r) : NULL;
    bool ok = text;
    (void)unused;
    nb_text_release(text);
    nb_rule_free(r);
    return ok;
}

static bool rule_parsed(void *unused)
{
    (void)unused;
    return nb_rule_parse("fresh (fault1 fault2) -> fresh ?") != NULL;
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    faults parse = {.run = rule_parsed, .bare = true, .keeps = true};
    parse.fresh = true; /* it is kept once it is read */
    (void)s;
    assert_true(faults_survived(&(faults){.run = rule_made, .bare = true}));
    assert_true(faults_survived(&parse) && parse.failed > 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_wrong_texts_are_refused_where_they_are_wrong),
        TEST(test_a_template_has_one_form),
        TEST(test_what_prints_parses_to_the_same),
        TEST(test_sizes_follow_from_shapes),
        TEST(test_dots_are_aligned_from_the_right),
        TEST(test_kinds_are_told),
        TEST(test_members_of_size_one_leave_their_group),
        TEST(test_no_elements_are_a_size),
        TEST(test_shapes_that_do_not_fit_are_refused),
        TEST(test_a_template_is_made_of_mappings),
        TEST(test_reshapes_share_factors),
        TEST(test_factors_of_a_reshape_run_along_both),
        TEST(test_factors_that_pass_can_be_cut),
        TEST(test_lanes_are_factors),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
