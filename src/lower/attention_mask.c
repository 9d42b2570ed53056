/* attention_mask.c - what a mask is, if it depends on nothing: it is computed,
 * on the CPU and once, and looked at.  So it does not matter how it was
 * written. */
#include "core/convert.h"
#include "core/lanes.h"
#include "lower/attention_match.h"

enum { MOST = 1 << 26 }; /* elements */

static bool may_know(const nb_line *l)
{
    int64_t n;
    bool may = !l->multi && !l->shape.nlanes && nb_shape_count(&l->shape, &n) &&
               n <= MOST;
    if (l->kind != NB_LINE_CALL)
        return may &&
               (l->kind == NB_LINE_NUMBER || nb_tensor_done(l->captured));
    return may && !l->op->execute && !l->op->effect && !l->op->lands &&
           l->op != &nb_op_again;
}

/* Marks what line k depends on; false if that cannot be known. */
static bool mark(const nb_graph *g, int k, bool *needed)
{
    needed[k] = true;
    for (int j = k; j >= 0; j--) {
        const nb_line *l = &g->line[j];
        if (!needed[j]) continue;
        if (j < g->nx || !may_know(l)) return false;
        for (int i = 0; i < l->nin; i++)
            needed[l->in[i]] = true;
    }
    return true;
}

/* The value of line k, lent; line by line, so that nothing is compiled. */
static nb_tensor *compute(const nb_graph *g, int k, const bool *needed,
                          nb_tensor **value)
{
    int id[NB_MAX_GRAPH_LANES + 1] = {0};
    for (int j = g->nx; j <= k; j++) {
        if (!needed[j]) continue;
        nb_line here = g->line[j];
        here.device = 0;
        value[j] = nb_line_record(&here, value, id);
        if (!value[j] || !nb_realize_now(1, &value[j])) return NULL;
    }
    return value[k];
}

typedef struct grid {
    const nb_tensor *x;
    nb_attention_mask how;
    int64_t row, column; /* strides */
    double *v;           /* a row of it */
} grid;

static void read_row(grid *m, int64_t t, int64_t n)
{
    nb_dtype d = (nb_dtype)m->x->dtype;
    int64_t item = (int64_t)nb_dtype_size(d);
    nb_convert(m->v, NB_F64, 1, m->x->data + t * m->row * item, d, m->column,
               n);
}

static bool leaves(const grid *m, int64_t s, bool *known)
{
    double v = m->v[s];
    *known = *known && (!m->how.adds || v == 0 || v <= NB_FAR_BELOW);
    return m->how.adds ? v == 0 : (v != 0) == m->how.keeps;
}

/* Dims of x are the last of the scores'; only t and s matter. */
static bool open_grid(grid *m, const nb_attention_found *f)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int n = nb_tensor_strides(m->x, size, stride), skip = f->rank - n;
    if (f->t < skip || f->s < skip) return false;
    for (int d = 0; d < n; d++)
        if (d + skip != f->t && d + skip != f->s && size[d] != 1) return false;
    m->row = size[f->t - skip] == 1 ? 0 : stride[f->t - skip];
    m->column = size[f->s - skip] == 1 ? 0 : stride[f->s - skip];
    return true;
}

/* Whether query t is left the keys up to t + ahead and no other, for the ahead
 * that query 0 has. */
static bool look(grid *m, int64_t nt, int64_t ns, int64_t *ahead)
{
    int64_t first = 0, taken = 0;
    bool known = true;
    read_row(m, 0, ns);
    while (first < ns && leaves(m, first, &known))
        first++;
    for (int64_t t = 0; known && t < nt; t++) {
        int64_t end = first + t < ns ? first + t : ns;
        read_row(m, t, ns);
        for (int64_t s = 0; known && s < ns; s++) {
            bool left = leaves(m, s, &known);
            known = known && left == (s < end);
            taken += !left;
        }
    }
    *ahead = taken ? first - 1 : NB_NONE;
    return known && first > 0;
}

static bool look_at(const nb_graph *g, const nb_attention_found *f,
                    nb_attention_seen *to, bool *needed, nb_tensor **value)
{
    if (!mark(g, to->mask.line, needed)) return false;
    grid m = {.x = compute(g, to->mask.line, needed, value), .how = to->mask};
    if (!m.x || !open_grid(&m, f)) return false;
    m.v = nb_alloc((size_t)(to->keys + 1) * sizeof *m.v);
    bool is = m.v && look(&m, to->queries, to->keys, &to->ahead);
    nb_free(m.v);
    return is;
}

static bool see(const nb_graph *g, const nb_attention_found *f,
                nb_attention_seen *to)
{
    size_t n = (size_t)g->n + 1;
    bool *needed = nb_alloc_zero(n);
    nb_tensor **value = nb_alloc_zero(n * sizeof *value);
    bool is = false;
    if (needed && value && nb_scope_open() == NB_OK) {
        is = look_at(g, f, to, needed, value);
        nb_scope_close(0, NULL);
    }
    if (!is) nb_error_clear();
    nb_free(needed), nb_free(value);
    return is;
}

static bool is_again(const nb_attention_seen *a, const nb_attention_seen *b)
{
    return a->mask.line == b->mask.line && a->mask.adds == b->mask.adds &&
           a->mask.keeps == b->mask.keeps && a->rank == b->rank &&
           a->t == b->t && a->s == b->s && a->queries == b->queries &&
           a->keys == b->keys;
}

/* Layers have one mask between them. */
bool nb_attention_mask_ahead(nb_attention_lines *l, nb_attention_mask mask,
                             nb_attention_found *f)
{
    const nb_extent *size = l->graph->line[f->scores].shape.size;
    nb_attention_seen here = {.mask = mask,
                              .rank = f->rank,
                              .t = f->t,
                              .s = f->s,
                              .queries = nb_extent_get(size[f->t]),
                              .keys = nb_extent_get(size[f->s])};
    if (!is_again(&l->seen, &here)) {
        here.known = see(l->graph, f, &here);
        l->seen = here;
    }
    f->ahead = l->seen.ahead;
    return l->seen.known;
}
