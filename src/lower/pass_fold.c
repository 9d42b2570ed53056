/* pass_fold.c - what depends on nothing but numbers and small known tensors is
 * computed now, once, by the executor of single ops.
 *
 * Results of more than a few elements stay calls, and so do views, which cost
 * nothing: a number repeated over a shape remains that.  A call that cannot be
 * computed is left as it is, to fail when it is run. */
#include "core/lanes.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <string.h>

enum { FEW = 4096 }; /* elements */

typedef struct fold {
    nb_tensor **value; /* by line: of those that are known */
    bool *wanted;      /* by what is not known, or stays */
    bool *folds;
    int next;
} fold;

static bool is_small(const nb_line *l)
{
    int64_t n;
    return l->multi ||
           (!l->shape.nlanes && nb_shape_count(&l->shape, &n) && n <= FEW);
}

static bool is_known(const nb_graph *g, const fold *f, int k)
{
    const nb_line *l = &g->line[k];
    bool known = l->kind == NB_LINE_NUMBER ||
                 (l->kind == NB_LINE_CAPTURED && !l->captured->device);
    if (l->kind == NB_LINE_CALL)
        known = !l->op->execute && !l->op->effect && !l->op->lands &&
                l->op != &nb_op_again;
    for (int i = 0; known && i < l->nin; i++)
        known = f->value[l->in[i]];
    return known && is_small(l);
}

static bool record(const nb_graph *g, fold *f)
{
    int id[NB_MAX_GRAPH_LANES + 1] = {0};
    for (int k = g->nx; k < g->n; k++) {
        if (!is_known(g, f, k)) continue;
        nb_line here = g->line[k]; /* wherever it will be needed */
        here.device = 0;
        f->value[k] = nb_line_record(&here, f->value, id);
        if (!f->value[k]) return false;
    }
    return true;
}

static bool is_repeated(const nb_graph *g, int k)
{
    double value;
    return g->line[k].shape.rank && nb_line_repeats(g, k, &value);
}

static void choose(const nb_graph *g, fold *f)
{
    for (int i = 0; i < g->ny; i++)
        f->wanted[g->result[i]] = true;
    for (int k = g->n - 1; k >= 0; k--) {
        const nb_line *l = &g->line[k];
        if (l->kind != NB_LINE_CALL || (f->value[k] && !f->wanted[k])) continue;
        f->folds[k] =
            f->value[k] && !l->multi && !nb_line_views(l) && !is_repeated(g, k);
        for (int i = 0; !f->folds[k] && i < l->nin; i++)
            f->wanted[l->in[i]] = true;
    }
}

/* One line after the other, so that none is large enough to be compiled. */
static bool compute(const nb_graph *g, fold *f)
{
    bool *needed = nb_alloc_zero((size_t)g->n + 1);
    if (!needed) return false;
    for (int k = g->n - 1; k >= 0; k--) {
        needed[k] = needed[k] || f->folds[k];
        for (int i = 0; needed[k] && i < g->line[k].nin; i++)
            needed[g->line[k].in[i]] = true;
    }
    for (int k = 0; k < g->n; k++) {
        if (!needed[k] || nb_realize_now(1, &f->value[k])) continue;
        nb_error_clear();
        f->folds[k] = false;
    }
    nb_free(needed);
    return true;
}

static nb_tensor *leaf_of(const nb_tensor *x, const nb_shape *s)
{
    nb_tensor *y = x->buffer ? nb_leaf_new((nb_dtype)x->dtype, s, x->buffer,
                                           x->data, x->strides)
                             : NULL;
    return nb_keep(y);
}

static bool visit(nb_rewrite *r, void *ctx)
{
    fold *f = ctx;
    nb_line *l = nb_rewrite_line(r), known;
    int k = f->next++;
    if (!f->folds[k]) return true;
    const nb_tensor *x = f->value[k];
    known =
        (nb_line){.dtype = l->dtype, .shape = l->shape, .device = l->device};
    known.kind = l->shape.rank ? NB_LINE_CAPTURED : NB_LINE_NUMBER;
    if (!l->shape.rank)
        memcpy(&known.number, x->data, nb_dtype_size(l->dtype));
    else if (!(known.captured = leaf_of(x, &l->shape)))
        return false;
    nb_line_free(l);
    *l = known;
    return true;
}

static bool fold_all(nb_graph *g, fold *f)
{
    if (!record(g, f)) return false;
    choose(g, f);
    return compute(g, f) && nb_graph_rewrite(g, visit, f);
}

bool nb_pass_fold(nb_graph *g)
{
    size_t n = (size_t)g->n + 1;
    fold f = {.value = nb_alloc_zero(n * sizeof *f.value),
              .wanted = nb_alloc_zero(n),
              .folds = nb_alloc_zero(n),
              .next = g->nx};
    bool ok = f.value && f.wanted && f.folds && nb_scope_open() == NB_OK;
    if (ok) {
        ok = fold_all(g, &f);
        nb_scope_close(0, NULL);
    }
    nb_free(f.value), nb_free(f.wanted), nb_free(f.folds);
    return ok;
}
