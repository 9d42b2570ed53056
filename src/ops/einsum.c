/* einsum.c - sums of products by labels.
 *
 * Subscripts are read into one list of labels an operand; the axes behind an
 * ellipsis get labels of their own, counted from the right.  Then every operand
 * is made plain (a label that it repeats becomes a diagonal, one that nobody
 * else wants is summed, an axis of one that broadcasts is dropped) and pairs
 * are contracted until one operand is left. */
#include "ops/contract.h"

#include <ctype.h>
#include <string.h>

/* Labels in the order of ASCII, as a result that is left open sorts them. */
enum { LETTERS = 52, LABELS = LETTERS + NB_MAX_RANK };

typedef struct operand {
    nb_tensor *x;
    int n, label[NB_MAX_RANK];
} operand;

typedef struct sum {
    const char *text;
    int nops, nout, ndots; /* ndots: most axes behind an ellipsis */
    operand *op;
    int out[LABELS];
    int64_t size[LABELS];
    int uses[LABELS]; /* how often a label stands in the operands */
} sum;

static int label_of(char c)
{
    return c <= 'Z' ? c - 'A' : 26 + c - 'a';
}

static char char_of(int label)
{
    return (char)(label < 26 ? 'A' + label : 'a' + label - 26);
}

static void *wrong(const sum *s, const char *what)
{
    return nb_fail(NB_EVALUE, "einsum: \"%s\": %s", s->text, what);
}

/* One term, up to a comma, "->" or the end: letters and at most one ellipsis,
 * which stands for `dots` axes. */
static const char *read_term(const sum *s, const char *at, int dots, int *label,
                             int *n, int room)
{
    bool seen = false;
    *n = 0;
    for (; *at && *at != ',' && strncmp(at, "->", 2) != 0; at++) {
        if (*at == ' ') continue;
        bool dotted = !strncmp(at, "...", 3);
        if (dotted && seen) return wrong(s, "two ellipses in one term");
        if (!dotted && !isalpha((unsigned char)*at))
            return wrong(s, "only letters, commas, -> and ... stand here");
        if (*n + (dotted ? dots : 1) > room)
            return wrong(s, "a term has too many labels");
        for (int k = dots - 1; dotted && k >= 0; k--)
            label[(*n)++] = LETTERS + k;
        if (!dotted) label[(*n)++] = label_of(*at);
        seen = seen || dotted;
        at += dotted ? 2 : 0;
    }
    return at;
}

/* How many axes an ellipsis of the term at `at` stands for in x. */
static int dots_of(const char *at, const nb_tensor *x)
{
    int letters = 0;
    bool dotted = false;
    for (; *at && *at != ',' && strncmp(at, "->", 2) != 0; at++) {
        letters += isalpha((unsigned char)*at) != 0;
        dotted = dotted || *at == '.';
    }
    return dotted && nb_rank(x) > letters ? nb_rank(x) - letters : 0;
}

static const char *read_operand(sum *s, const char *at, int i)
{
    operand *o = &s->op[i];
    int dots = dots_of(at, o->x);
    nb_shape shape = nb_tensor_shape(o->x);
    at = read_term(s, at, dots, o->label, &o->n, NB_MAX_RANK);
    if (!at) return NULL;
    if (dots > s->ndots) s->ndots = dots;
    if (o->n == nb_rank(o->x)) return at;
    return nb_fail(NB_EVALUE,
                   "einsum: \"%s\": operand %d has shape %s but %d labels",
                   s->text, i, nb_shape_text(&shape), o->n);
}

static bool read_operands(sum *s, const char **text)
{
    const char *at = *text;
    for (int i = 0; i < s->nops; i++) {
        if (!(at = read_operand(s, at, i))) return false;
        bool last = i + 1 == s->nops;
        if (last ? *at == ',' : *at != ',')
            return nb_fail(NB_EVALUE,
                           "einsum: \"%s\" does not have a term for each of "
                           "%d operands",
                           s->text, s->nops);
        at += !last;
    }
    *text = at;
    return true;
}

/* Sizes of labels: all operands agree, or have one, which broadcasts. */
static bool measure(sum *s)
{
    for (int l = 0; l < LABELS; l++)
        s->size[l] = -1;
    for (int i = 0; i < s->nops; i++)
        for (int d = 0; d < s->op[i].n; d++) {
            int l = s->op[i].label[d];
            int64_t n = nb_size(s->op[i].x, d), *size = &s->size[l];
            s->uses[l]++;
            if (*size < 0 || *size == 1) *size = n;
            if (*size == n || n == 1) continue;
            nb_text name = {0};
            nb_text_add(&name, l < LETTERS ? "label %c" : "an ellipsis",
                        char_of(l));
            nb_fail(NB_EVALUE,
                    "einsum: \"%s\": %s has size %lld in operand %d and %lld "
                    "before",
                    s->text, nb_text_get(&name), (long long)n, i,
                    (long long)*size);
            nb_text_free(&name);
            return false;
        }
    return true;
}

/* The labels of the result, or, left open: the ellipsis, then every letter
 * that stands once. */
static bool read_result(sum *s, const char *at)
{
    bool seen[LABELS] = {false};
    if (!*at) {
        for (int k = s->ndots - 1; k >= 0; k--)
            s->out[s->nout++] = LETTERS + k;
        for (int l = 0; l < LETTERS; l++)
            if (s->uses[l] == 1) s->out[s->nout++] = l;
        return true;
    }
    if (!(at = read_term(s, at + 2, s->ndots, s->out, &s->nout, LABELS)))
        return false;
    if (*at) return wrong(s, "the result is one term");
    for (int k = 0; k < s->nout; k++) {
        int l = s->out[k];
        if (seen[l]) return wrong(s, "a label stands twice in the result");
        if (!s->uses[l])
            return wrong(s, "a label of the result stands in no operand");
        seen[l] = true;
    }
    for (int k = 0; k < s->ndots; k++)
        if (!seen[LETTERS + k])
            return wrong(s, "the result needs the ellipsis of the operands");
    return true;
}

/* Making operands plain */

static int find(const operand *o, int label)
{
    for (int d = 0; d < o->n; d++)
        if (o->label[d] == label) return d;
    return -1;
}

static void remove_label(operand *o, int d)
{
    o->n--;
    memmove(o->label + d, o->label + d + 1,
            (size_t)(o->n - d) * sizeof *o->label);
}

/* Axes a < b have one label: their diagonal, last, takes their place. */
static bool take_diagonal(sum *s, operand *o, int a, int b)
{
    int label = o->label[a];
    if (nb_size(o->x, a) != nb_size(o->x, b))
        return wrong(s, "a label repeated in one operand has two sizes");
    o->x = nb_diagonal(o->x, 0, a, b);
    remove_label(o, b);
    remove_label(o, a);
    o->label[o->n++] = label;
    return o->x;
}

static bool take_diagonals(sum *s, operand *o)
{
    for (int b = 1; b < o->n; b++) {
        int a = find(o, o->label[b]);
        if (a == b) continue;
        if (!take_diagonal(s, o, a, b)) return false;
        b = 0;
    }
    return true;
}

/* An axis of one meets a longer one of that label: it broadcasts, which in a
 * product means that it need not be there. */
static bool drop_ones(const sum *s, operand *o)
{
    int64_t size[NB_MAX_RANK];
    int n = 0, before = o->n;
    for (int d = 0; d < o->n;) {
        int64_t extent = nb_size(o->x, n + before - o->n);
        if (extent == 1 && s->size[o->label[d]] != 1) {
            remove_label(o, d);
            continue;
        }
        size[n++] = extent;
        d++;
    }
    if (o->n < before) o->x = nb_reshape(o->x, n, size);
    return o->x;
}

static bool is_wanted(const sum *s, int label, int i, int j)
{
    for (int k = 0; k < s->nout; k++)
        if (s->out[k] == label) return true;
    for (int k = 0; k < s->nops; k++)
        if (k != i && k != j && find(&s->op[k], label) >= 0) return true;
    return false;
}

/* Sums what only operand i has.  The dtype stays, as it does in products. */
static bool sum_lonely(sum *s, int i)
{
    operand *o = &s->op[i];
    int64_t axes[NB_MAX_RANK];
    int n = 0;
    nb_dtype dtype = nb_dtype_of(o->x);
    for (int d = 0; d < o->n; d++)
        if (!is_wanted(s, o->label[d], i, i)) axes[n++] = d;
    if (n == 0) return true;
    for (int k = n - 1; k >= 0; k--)
        remove_label(o, (int)axes[k]);
    o->x = nb_cast(nb_reduce_sum(o->x, n, axes, false), dtype);
    return o->x;
}

static bool make_plain(sum *s)
{
    for (int i = 0; i < s->nops; i++)
        if (!take_diagonals(s, &s->op[i]) || !drop_ones(s, &s->op[i]))
            return false;
    for (int i = 0; i < s->nops; i++)
        if (!sum_lonely(s, i)) return false;
    return true;
}

/* Contracting pairs */

/* What is left of operands i and j once they are multiplied. */
static operand joined(const sum *s, int i, int j)
{
    operand o = {0};
    const operand *part[] = {&s->op[i], &s->op[j]};
    if (s->nops == 2) {
        o.n = s->nout < NB_MAX_RANK ? s->nout : NB_MAX_RANK;
        memcpy(o.label, s->out, (size_t)o.n * sizeof *o.label);
        return o;
    }
    for (int p = 0; p < 2; p++)
        for (int d = 0; d < part[p]->n && o.n < NB_MAX_RANK; d++) {
            int l = part[p]->label[d];
            if (find(&o, l) < 0 && is_wanted(s, l, i, j)) o.label[o.n++] = l;
        }
    return o;
}

static double elements(const sum *s, const operand *o)
{
    double n = 1;
    for (int d = 0; d < o->n; d++)
        n *= (double)s->size[o->label[d]];
    return n;
}

/* The pair that leaves least behind, counting what it takes away. */
static void choose(const sum *s, int *i, int *j)
{
    double best = 0;
    *i = 0, *j = 1;
    for (int a = 0; a < s->nops; a++)
        for (int b = a + 1; s->nops > 2 && b < s->nops; b++) {
            operand o = joined(s, a, b);
            double grows = elements(s, &o) - elements(s, &s->op[a]) -
                           elements(s, &s->op[b]);
            if ((a || b != 1) && grows >= best) continue;
            best = grows;
            *i = a, *j = b;
        }
}

/* Labels are renamed by first use, so that equal products are equal rules. */
static void write_labels(nb_text *t, const operand *o, int *name, int *names)
{
    for (int d = 0; d < o->n; d++) {
        int l = o->label[d];
        if (name[l] < 0) name[l] = (*names)++;
        nb_text_add(t, " %c", nb_letter(name[l]));
    }
}

static bool join(sum *s, int i, int j)
{
    int name[LABELS], names = 0;
    nb_text rule = {0};
    operand o = joined(s, i, j);
    memset(name, -1, sizeof name);
    write_labels(&rule, &s->op[i], name, &names);
    nb_text_add(&rule, ",");
    write_labels(&rule, &s->op[j], name, &names);
    nb_text_add(&rule, " ->");
    write_labels(&rule, &o, name, &names);
    if (!rule.failed)
        o.x = nb_contract(s->op[i].x, s->op[j].x, nb_text_get(&rule));
    nb_text_free(&rule);
    s->op[i] = o;
    memmove(&s->op[j], &s->op[j + 1], (size_t)(--s->nops - j) * sizeof *s->op);
    return o.x;
}

static nb_tensor *in_order(const sum *s)
{
    int64_t order[NB_MAX_RANK];
    const operand *o = &s->op[0];
    bool sorted = true;
    for (int k = 0; k < s->nout; k++) {
        order[k] = find(o, s->out[k]);
        sorted = sorted && order[k] == k;
    }
    return sorted ? nb_lend(nb_keep(o->x)) : nb_permute(o->x, s->nout, order);
}

static nb_tensor *evaluate(sum *s)
{
    const char *at = s->text;
    if (!read_operands(s, &at) || !measure(s) || !read_result(s, at))
        return NULL;
    if (s->nout > NB_MAX_RANK)
        return nb_fail(NB_EVALUE,
                       "einsum: \"%s\" has a result of rank %d: at most %d",
                       s->text, s->nout, NB_MAX_RANK);
    if (!make_plain(s)) return NULL;
    while (s->nops > 1) {
        int i, j;
        choose(s, &i, &j);
        if (!join(s, i, j)) return NULL;
    }
    return in_order(s);
}

static bool einsum_compose(const nb_call *c, nb_results *r)
{
    sum s = {.text = nb_arg_text(c, 0), .nops = c->nin};
    s.op = nb_alloc_zero((size_t)c->nin * sizeof *s.op);
    if (!s.op) return false;
    for (int i = 0; i < c->nin; i++)
        s.op[i].x = c->in[i];
    bool ok = nb_results_add(r, evaluate(&s));
    nb_free(s.op);
    return ok;
}

nb_op nb_op_einsum = {
    .name = "einsum",
    .doc = "Sum of products of operands by labels of their axes, written as in "
           "NumPy: axes of one label run together, and those that the result "
           "lacks are summed.  A label twice in one operand is its diagonal; "
           "without -> the result has the labels that stand once, sorted; "
           "... stands for the other axes, which broadcast.",
    .example = "einsum(([[1, 2], [3, 4]], [[1, 0, 1], [2, 1, 0]], [1, 2]), "
               "subscripts=\"ij,jk,i->ki\") = [[5, 22], [2, 8], [1, 6]]",
    .params = "operands:tensors, subscripts:text",
    .kind = NB_COMPOSITE,
    .in = NB_IN_COMMON,
    .compose = einsum_compose,
};

nb_tensor *nb_einsum(const char *subscripts, int n, nb_tensor *const *operands)
{
    nb_value v[] = {NB_V_TEXT(subscripts)};
    return nb_apply(&nb_op_einsum, n, operands, 1, v, NB_CALLER);
}
