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
} grid;

static bool leaves(const grid *m, int64_t t, int64_t s, bool *known)
{
    nb_dtype d = (nb_dtype)m->x->dtype;
    int64_t at = t * m->row + s * m->column;
    double v = nb_read_f64(m->x->data + at * (int64_t)nb_dtype_size(d), d);
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
static bool look(const grid *m, const nb_shape *scores, int t_dim, int s_dim,
                 int64_t *ahead)
{
    int64_t nt = nb_extent_get(scores->size[t_dim]), first = 0, taken = 0;
    int64_t ns = nb_extent_get(scores->size[s_dim]);
    bool known = true;
    while (first < ns && leaves(m, 0, first, &known))
        first++;
    for (int64_t t = 0; known && t < nt; t++) {
        int64_t end = first + t < ns ? first + t : ns;
        for (int64_t s = 0; known && s < ns; s++) {
            bool left = leaves(m, t, s, &known);
            known = known && left == (s < end);
            taken += !left;
        }
    }
    *ahead = taken ? first - 1 : NB_NONE;
    return known && first > 0;
}

static bool look_at(const nb_graph *g, nb_attention_mask mask,
                    const nb_attention_found *f, int64_t *ahead, bool *needed,
                    nb_tensor **value)
{
    if (!mark(g, mask.line, needed)) return false;
    grid m = {.x = compute(g, mask.line, needed, value), .how = mask};
    return m.x && open_grid(&m, f) &&
           look(&m, &g->line[f->scores].shape, f->t, f->s, ahead);
}

bool nb_attention_mask_ahead(const nb_graph *g, nb_attention_mask mask,
                             const nb_attention_found *f, int64_t *ahead)
{
    size_t n = (size_t)g->n + 1;
    bool *needed = nb_alloc_zero(n);
    nb_tensor **value = nb_alloc_zero(n * sizeof *value);
    bool is = false;
    if (needed && value && nb_scope_open() == NB_OK) {
        is = look_at(g, mask, f, ahead, needed, value);
        nb_scope_close(0, NULL);
    }
    if (!is) nb_error_clear();
    nb_free(needed), nb_free(value);
    return is;
}
