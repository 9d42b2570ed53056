/* contract.c - products summed over shared axes.
 *
 * There are two primitives.  `contract` is any sum of products of two operands,
 * told by its signature; `matmul` is the one that everybody knows, with its
 * signature chosen by the ranks.  Both are transposed by rearranging their
 * signature: what is pulled back is a contraction again. */
#include "ops/contract.h"

#include <string.h>

char nb_letter(int i)
{
    return (char)(i < 26 ? 'a' + i : 'A' + i - 26);
}

/* Transposing */

static bool has(const nb_term *t, int factor)
{
    for (int d = 0; d < t->n; d++)
        if (t->dim[d].factor[0] == factor) return true;
    return false;
}

/* The factors of t that a or b has, or all without them. */
static void write_term(nb_text *to, const nb_sig *s, const nb_term *t,
                       const nb_term *a, const nb_term *b)
{
    for (int d = 0; d < t->n; d++) {
        int f = t->dim[d].factor[0];
        if (!a || has(a, f) || has(b, f))
            nb_text_add(to, " %s", s->factor[f].name);
    }
}

/* g lacks the axes of x that only x has: its elements along them move the
 * result alike, so g is repeated there. */
static nb_tensor *repeat_along(const nb_call *c, int i, const nb_term *out,
                               const nb_term *other, nb_tensor *g)
{
    const nb_term *t = &c->sig->term[i];
    int64_t one[NB_MAX_RANK], whole[NB_MAX_RANK];
    int from = 0, rank = 0, kept = 0;
    for (int d = 0; d < t->n; d++)
        kept +=
            has(out, t->dim[d].factor[0]) || has(other, t->dim[d].factor[0]);
    if (!g || kept == t->n) return g;
    for (; from < nb_rank(g) - kept; from++, rank++)
        one[rank] = whole[rank] = nb_size(g, from);
    for (int d = 0; d < t->n; d++, rank++) {
        int f = t->dim[d].factor[0];
        whole[rank] = SIZE(i, RANK(i) - t->n + d);
        one[rank] = has(out, f) || has(other, f) ? whole[rank] : 1;
    }
    return nb_broadcast_to(nb_reshape(g, rank, one), rank, whole);
}

/* Whether the axes behind the dots of o* are not x's, and y has those of them
 * that it has at full size: then they are summed with the rest, and no product
 * is kept for each of them. */
static bool sums_dots(const nb_call *c, int i, const nb_tensor *ct)
{
    const nb_sig *s = c->sig;
    const nb_tensor *y = c->in[1 - i];
    int dots = ct->rank - s->term[2].n, own = y->rank - s->term[1 - i].n;
    bool so = s->term[2].dots && RANK(i) == s->term[i].n && dots > 0 &&
              dots + s->nfactors <= 26;
    for (int d = 0; so && d < own; d++)
        so = nb_size(y, d) == nb_size(ct, dots - own + d);
    return so;
}

/* Names for n axes, the last of so many, that no factor has. */
static void write_names(nb_text *to, const nb_sig *s, int n, int of)
{
    for (int letter = 0, k = 0; k < of; letter++) {
        char name[] = {nb_letter(letter), 0};
        bool taken = false;
        for (int f = 0; f < s->nfactors; f++)
            taken = taken || !strcmp(s->factor[f].name, name);
        if (!taken && k++ >= of - n) nb_text_add(to, " %s", name);
    }
}

/* o = sum x y.  Writing x* for the cotangent of x: x* = sum o* y, summed over
 * what x does not have. */
static nb_tensor *product_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    const nb_sig *s = c->sig;
    const nb_term *x = &s->term[i], *y = &s->term[1 - i], *o = &s->term[2];
    nb_text rule = {0};
    if (!ct) return NULL;
    bool sums = sums_dots(c, i, ct);
    int dots = sums ? ct->rank - o->n : 0;
    nb_text_add(&rule, o->dots && !sums ? "..." : "");
    write_names(&rule, s, dots, dots);
    write_term(&rule, s, o, NULL, NULL);
    nb_text_add(&rule, y->dots && !sums ? ", ..." : ",");
    if (sums) write_names(&rule, s, c->in[1 - i]->rank - y->n, dots);
    write_term(&rule, s, y, NULL, NULL);
    nb_text_add(&rule, o->dots && !sums ? " -> ..." : " ->");
    write_term(&rule, s, x, o, y);
    nb_tensor *g =
        rule.failed ? NULL : nb_contract(ct, c->in[1 - i], nb_text_get(&rule));
    nb_text_free(&rule);
    return repeat_along(c, i, o, y, g);
}

/* contract */

static bool is_plain(const nb_term *t)
{
    for (int d = 0; d < t->n; d++)
        if (t->dim[d].n != 1) return false;
    return true;
}

/* What the dots stand for reaches the result, so that it is never summed. */
static bool contract_check(nb_call *c)
{
    const char *rule = nb_arg_text(c, 0);
    const nb_sig *s = nb_sig_parse(rule);
    if (!s) return false;
    bool fits = s->nin == 2 && s->nout == 1;
    for (int t = 0; fits && t < 3; t++)
        fits = is_plain(&s->term[t]);
    fits = fits && (s->term[2].dots || (!s->term[0].dots && !s->term[1].dots));
    return fits || nb_fail(NB_EVALUE,
                           "contract: rule \"%s\" is not of the form "
                           "\"... i j, ... j k -> ... i k\"",
                           rule);
}

static bool contract_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "%s", nb_arg_text(c, 0));
}

nb_op nb_op_contract = {
    .name = "contract",
    .doc = "Sum of products of two operands along the axes that a rule names: "
           "what the result lacks is summed.",
    .example = "contract([[[1, 2], [3, 4]]], [[1, 2], [0, 1], [2, 0]], "
               "rule=\"a k s, b k -> b a\") = [[17], [7], [6]]",
    .params = "x, y, rule:text",
    .check = contract_check,
    .sign = contract_sign,
    .kind = NB_MULTILINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_mul,
    .transpose = product_transpose,
};

nb_tensor *nb_contract(nb_tensor *x, nb_tensor *y, const char *rule)
{
    nb_tensor *in[] = {x, y};
    nb_value v[] = {NB_V_TEXT(rule)};
    return nb_apply(&nb_op_contract, 2, in, 1, v, NB_CALLER);
}

/* matmul */

static bool matmul_check(nb_call *c)
{
    nb_shape x = nb_tensor_shape(c->in[0]), y = nb_tensor_shape(c->in[1]);
    return (RANK(0) && RANK(1)) ||
           nb_fail(NB_EVALUE,
                   "matmul: shapes %s and %s: a scalar has no axis to sum "
                   "over, use mul",
                   nb_shape_text(&x), nb_shape_text(&y));
}

/* A vector is a row on the left and a column on the right, and leaves no axis
 * behind. */
static bool matmul_sign(const nb_call *c, nb_text *t)
{
    bool row = RANK(0) == 1, column = RANK(1) == 1;
    return nb_text_add(t, "%s, %s -> ...%s%s", row ? "k" : "... m k",
                       column ? "k" : "... k n", row ? "" : " m",
                       column ? "" : " n");
}

nb_op nb_op_matmul = {
    .name = "matmul",
    .doc = "Matrix product over the last two axes; leading axes broadcast.  A "
           "vector on the left is a row, one on the right a column, and the "
           "axis that this adds is dropped from the result.",
    .example = "matmul([[1, 2, 0], [3, 4, 1]], [[5, 1], [6, 0], [0, 2]]) = "
               "[[17, 1], [39, 5]]",
    .params = "x, y",
    .check = matmul_check,
    .sign = matmul_sign,
    .kind = NB_MULTILINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_mul,
    .transpose = product_transpose,
};

/* outer, vecdot, trace */

static nb_tensor *column(nb_tensor *x)
{
    return nb_reshape(x, 2, (int64_t[]){nb_size(x, 0), 1});
}

static bool outer_check(nb_call *c)
{
    nb_shape x = nb_tensor_shape(c->in[0]), y = nb_tensor_shape(c->in[1]);
    return (RANK(0) == 1 && RANK(1) == 1) ||
           nb_fail(NB_EVALUE,
                   "outer: shapes %s and %s: two vectors are needed (m, n -> "
                   "m n)",
                   nb_shape_text(&x), nb_shape_text(&y));
}

COMPOSE(outer, nb_mul(column(c->in[0]), c->in[1]))

nb_op nb_op_outer = {
    .name = "outer",
    .doc = "All products of an element of vector x and one of vector y.",
    .example = "outer([1, 2], [3, 4, 5]) = [[3, 4, 5], [6, 8, 10]]",
    .params = "x, y",
    .kind = NB_COMPOSITE,
    .in = NB_IN_COMMON,
    .check = outer_check,
    .compose = outer_compose,
};

/* Input i with the axis that the op sums last; each counts it for itself. */
static nb_tensor *summed_last(const nb_call *c, int i)
{
    int64_t axis = nb_arg_int(c, 0), rank = RANK(i);
    if (axis < -rank || axis >= rank)
        return nb_fail(NB_EAXIS, "%s: axis %lld is out of range for rank %d",
                       c->op->name, (long long)axis, (int)rank);
    if (axis == -1 || axis == rank - 1) return c->in[i];
    return nb_moveaxis(c->in[i], 1, &axis, (int64_t[]){-1});
}

static bool vecdot_compose(const nb_call *c, nb_results *r)
{
    nb_tensor *x = summed_last(c, 0), *y = summed_last(c, 1);
    if (!x || !y) return false;
    nb_shape a = nb_tensor_shape(x), b = nb_tensor_shape(y);
    if (nb_size(x, -1) != nb_size(y, -1))
        return nb_fail(NB_EVALUE,
                       "vecdot: shapes %s and %s: axis of size %lld meets "
                       "axis of size %lld (... i, ... i -> ...)",
                       nb_shape_text(&a), nb_shape_text(&b),
                       (long long)nb_size(x, -1), (long long)nb_size(y, -1));
    return nb_results_add(r, nb_contract(x, y, "... i, ... i -> ..."));
}

nb_op nb_op_vecdot = {
    .name = "vecdot",
    .doc = "Sum of products of x and y along an axis of both; the others "
           "broadcast.",
    .example = "vecdot([[1, 2, 3], [0, 1, 0]], [[3], [4]], axis=0) = "
               "[3, 10, 9]",
    .params = "x, y, axis:int=-1",
    .kind = NB_COMPOSITE,
    .in = NB_IN_COMMON,
    .compose = vecdot_compose,
};

nb_tensor *nb_vecdot(nb_tensor *x, nb_tensor *y, int64_t axis)
{
    nb_tensor *in[] = {x, y};
    nb_value v[] = {NB_V_INT(axis)};
    return nb_apply(&nb_op_vecdot, 2, in, 1, v, NB_CALLER);
}

static bool trace_check(nb_call *c)
{
    return RANK(0) >= 2 ||
           nb_fail(NB_EVALUE, "trace: rank %d: matrices have at least 2",
                   RANK(0));
}

COMPOSE(trace, nb_reduce_sum(nb_diagonal(c->in[0], nb_arg_int(c, 0), -2, -1), 1,
                             (int64_t[]){-1}, false))

nb_op nb_op_trace = {
    .name = "trace",
    .doc = "Sum of a diagonal of the matrices of the last two axes: where "
           "column - row = offset.",
    .example = "trace([[1, 2, 3], [4, 5, 6]], offset=1) = 8",
    .params = "x, offset:int=0",
    .check = trace_check,
    .kind = NB_COMPOSITE,
    .compose = trace_compose,
};

nb_tensor *nb_trace(nb_tensor *x, int64_t offset)
{
    return CALL1(trace, x, NB_V_INT(offset));
}

/* tensordot */

typedef struct pairs {
    int n;
    int64_t x[NB_MAX_RANK], y[NB_MAX_RANK]; /* axes that are summed together */
} pairs;

static bool settle_axis(const nb_call *c, int i, int64_t *axis)
{
    int rank = RANK(i);
    if (*axis < -rank || *axis >= rank)
        return nb_fail(NB_EAXIS,
                       "tensordot: axis %lld is out of range for operand %d "
                       "of rank %d",
                       (long long)*axis, i, rank);
    if (*axis < 0) *axis += rank;
    return true;
}

static bool is_twice(const int64_t *axes, int k)
{
    for (int j = 0; j < k; j++)
        if (axes[j] == axes[k]) return true;
    return false;
}

static bool check_pair(const nb_call *c, const pairs *p, int k)
{
    nb_shape x = nb_tensor_shape(c->in[0]), y = nb_tensor_shape(c->in[1]);
    if (is_twice(p->x, k) || is_twice(p->y, k))
        return nb_fail(NB_EVALUE, "tensordot: an axis is given twice");
    return SIZE(0, p->x[k]) == SIZE(1, p->y[k]) ||
           nb_fail(NB_EVALUE,
                   "tensordot: shapes %s and %s: axis %lld of size %lld meets "
                   "axis %lld of size %lld",
                   nb_shape_text(&x), nb_shape_text(&y), (long long)p->x[k],
                   (long long)SIZE(0, p->x[k]), (long long)p->y[k],
                   (long long)SIZE(1, p->y[k]));
}

/* One number: that many last axes of x and first axes of y.  Otherwise the
 * axes of x, then as many of y. */
static bool read_pairs(const nb_call *c, pairs *p)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    bool count = n == 1;
    int64_t k = count ? axes[0] : n / 2;
    if (k < 0 || k > RANK(0) || k > RANK(1) || (!count && n % 2))
        return nb_fail(NB_EVALUE,
                       "tensordot: %lld axes of operands of rank %d and %d "
                       "cannot be summed in pairs",
                       count ? (long long)k : (long long)n, RANK(0), RANK(1));
    p->n = (int)k;
    for (int j = 0; j < p->n; j++) {
        p->x[j] = count ? RANK(0) - k + j : axes[j];
        p->y[j] = count ? j : axes[k + j];
        if (!settle_axis(c, 0, &p->x[j]) || !settle_axis(c, 1, &p->y[j]) ||
            !check_pair(c, p, j))
            return false;
    }
    return true;
}

/* Axes of x are the first letters, free ones of y the next. */
static bool tensordot_compose(const nb_call *c, nb_results *r)
{
    pairs p;
    nb_text rule = {0}, out = {0};
    if (!read_pairs(c, &p)) return false;
    for (int d = 0; d < RANK(0); d++) {
        bool summed = false;
        for (int k = 0; k < p.n; k++)
            summed = summed || p.x[k] == d;
        nb_text_add(&rule, "%c ", nb_letter(d));
        if (!summed) nb_text_add(&out, " %c", nb_letter(d));
    }
    nb_text_add(&rule, ",");
    for (int d = 0; d < RANK(1); d++) {
        int with = -1;
        for (int k = 0; k < p.n; k++)
            if (p.y[k] == d) with = (int)p.x[k];
        char name = nb_letter(with < 0 ? RANK(0) + d : with);
        nb_text_add(&rule, " %c", name);
        if (with < 0) nb_text_add(&out, " %c", name);
    }
    nb_text_add(&rule, " ->%s", nb_text_get(&out));
    bool ok =
        !rule.failed && !out.failed &&
        nb_results_add(r, nb_contract(c->in[0], c->in[1], nb_text_get(&rule)));
    nb_text_free(&rule);
    nb_text_free(&out);
    return ok;
}

nb_op nb_op_tensordot = {
    .name = "tensordot",
    .doc = "Sum of products over pairs of axes.  axes is how many last axes of "
           "x and first axes of y go together, or the axes of x followed by "
           "as many of y.",
    .example = "tensordot([[1, 2], [3, 4], [5, 6]], [[1, 0, 2], [0, 1, 1]], "
               "axes=(0, 1)) = [[11, 8], [14, 10]]",
    .params = "x, y, axes:ints=2",
    .kind = NB_COMPOSITE,
    .in = NB_IN_COMMON,
    .compose = tensordot_compose,
};

nb_tensor *nb_tensordot(nb_tensor *x, nb_tensor *y, int n,
                        const int64_t *x_axes, const int64_t *y_axes)
{
    int64_t axes[2 * NB_MAX_RANK];
    nb_tensor *in[] = {x, y};
    if (n < 0 || n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "tensordot: %d pairs of axes: at most %d", n,
                       NB_MAX_RANK);
    for (int k = 0; k < n; k++) {
        axes[k] = x_axes[k];
        axes[n + k] = y_axes[k];
    }
    nb_value v[] = {NB_V_LIST(2 * n, axes)};
    return nb_apply(&nb_op_tensordot, 2, in, 1, v, NB_CALLER);
}
