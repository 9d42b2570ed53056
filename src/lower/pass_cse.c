/* pass_cse.c - equal calls become one: the same op on the same lines with the
 * same attributes.  So do equal numbers and small known tensors, which fold has
 * made of equal calls.
 *
 * An op that was made for a call is equal to itself alone.  Of a call with
 * several results all that are needed must have been needed before, for results
 * stand right behind their call. */
#include "core/lanes.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <stdlib.h>
#include <string.h>

enum { FEW_BYTES = 1 << 15 };

typedef struct table {
    int *line; /* by hash; -1: none */
    uint64_t *hash;
    size_t mask;
} table;

static const bool commutes[NB_S_count] = {
#define COMMUTES(name) [NB_S_##name] = true,
#include "lower/facts.def"
};

/* Bytes of a known tensor that are worth comparing; 0: it is itself alone. */
static size_t content(const nb_line *l)
{
    const nb_tensor *x = l->captured;
    int64_t n;
    if (!nb_tensor_done(x) || x->device || l->shape.nlanes ||
        !nb_tensor_is_packed(x) || !nb_shape_count(&l->shape, &n))
        return 0;
    size_t bytes = (size_t)n * nb_dtype_size(l->dtype);
    return bytes <= FEW_BYTES ? bytes : 0;
}

/* The inputs of a call that may take them either way, in one order. */
static const int *inputs(const nb_line *l, int *two)
{
    nb_scalar s = nb_line_scalar(l);
    if (l->nin != 2 || !commutes[s] || l->in[0] <= l->in[1]) return l->in;
    two[0] = l->in[1];
    two[1] = l->in[0];
    return two;
}

static uint64_t hash_of(const nb_line *l)
{
    int two[2];
    uint64_t h = nb_hash((uint64_t)l->kind, &l->dtype, sizeof l->dtype);
    if (l->kind == NB_LINE_NUMBER)
        return nb_hash(h, &l->number, sizeof l->number);
    if (l->kind == NB_LINE_CAPTURED && content(l))
        return nb_hash(h, l->captured->data, content(l));
    if (l->kind == NB_LINE_CAPTURED)
        return nb_hash(h, &l->captured, sizeof l->captured);
    h = nb_hash(h, &l->op, sizeof l->op);
    if (l->nin) h = nb_hash(h, inputs(l, two), (size_t)l->nin * sizeof *l->in);
    if (l->nattr) h = nb_hash(h, l->attr, (size_t)l->nattr * sizeof *l->attr);
    return h;
}

static bool same_tensor(const nb_line *a, const nb_line *b)
{
    if (a->captured == b->captured) return true;
    size_t bytes = content(a);
    return bytes && bytes == content(b) && nb_line_alike(a, b) &&
           !memcmp(a->captured->data, b->captured->data, bytes);
}

static bool same_call(const nb_line *a, const nb_line *b)
{
    int x[2], y[2];
    if (a->op != b->op || a->nin != b->nin || a->nattr != b->nattr)
        return false;
    size_t in = (size_t)a->nin * sizeof *a->in;
    size_t attr = (size_t)a->nattr * sizeof *a->attr;
    return (!in || !memcmp(inputs(a, x), inputs(b, y), in)) &&
           (!attr || !memcmp(a->attr, b->attr, attr));
}

static bool same(const nb_line *a, const nb_line *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype) return false;
    if (a->device != b->device && a->kind != NB_LINE_NUMBER) return false;
    if (a->kind == NB_LINE_NUMBER) return a->number == b->number;
    if (a->kind == NB_LINE_CAPTURED) return same_tensor(a, b);
    return same_call(a, b);
}

/* Whether line k, which has several results, has those of the line that is
 * looked at; these are still to be read. */
static bool has_parts(const nb_rewrite *r, int k)
{
    const nb_line *line = r->graph->line;
    int had = k + 1;
    for (int p = r->read + 1; p < r->end && line[p].op == &nb_op_part; p++) {
        while (had < r->at && line[had].op == &nb_op_part &&
               line[had].in[0] == k && line[had].attr[0] < line[p].attr[0])
            had++;
        if (had == r->at || line[had].op != &nb_op_part ||
            line[had].in[0] != k || line[had].attr[0] != line[p].attr[0])
            return false;
    }
    return true;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    table *t = ctx;
    const nb_line *l = nb_rewrite_line(r);
    if (l->op == &nb_op_again || (l->op && l->op->effect)) return true;
    uint64_t h = hash_of(l);
    size_t at = (size_t)h & t->mask;
    for (; t->line[at] >= 0; at = (at + 1) & t->mask) {
        int k = t->line[at];
        if (t->hash[at] != h || !same(&r->graph->line[k], l)) continue;
        if (!l->multi || has_parts(r, k)) r->is = k;
        return true;
    }
    t->line[at] = r->at;
    t->hash[at] = h;
    return true;
}

bool nb_pass_cse(nb_graph *g)
{
    size_t room = 16;
    while (room < 2 * (size_t)g->n)
        room *= 2;
    table t = {.line = nb_alloc(room * sizeof *t.line),
               .hash = nb_alloc(room * sizeof *t.hash),
               .mask = room - 1};
    bool ok = t.line && t.hash;
    if (ok) memset(t.line, -1, room * sizeof *t.line);
    ok = ok && nb_graph_rewrite(g, visit, &t);
    nb_free(t.line);
    nb_free(t.hash);
    return ok;
}
