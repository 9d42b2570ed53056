/* chain_rows.c - whether a step goes through blocks row by row. */
#include "lower/chain.h"

#include <string.h>

/* Nests */

/* Whether an access to a block with rows of c elements stays in the row that
 * the leading axes count. */
static bool access_keeps(const nb_nest *x, const nb_nest_value *v, int lead,
                         int64_t low, int64_t c)
{
    int64_t step = c, last = v->offset;
    for (int a = lead - 1; a >= 0; a--) {
        int64_t behind = a == lead - 1 ? low : 1;
        if (v->stride[a] * behind != step) return false;
        last += (behind - 1) * v->stride[a];
        step *= x->size[a] / behind;
    }
    for (int a = lead; a < x->naxes; a++) {
        if (v->stride[a] < 0) return false;
        last += (x->size[a] - 1) * v->stride[a];
    }
    return v->offset >= 0 && last < c;
}

static bool is_plain(const nb_nest_value *v)
{
    return v->kind == NB_NEST_LOAD || v->kind == NB_NEST_STORE ||
           v->kind == NB_NEST_CONST || v->kind == NB_NEST_SCALAR ||
           v->kind == NB_NEST_CONVERT || v->kind == NB_NEST_REDUCE;
}

bool nb_rows_nest(const nb_rows *r, const nb_step *s)
{
    const nb_nest *x = s->nest;
    int64_t low;
    int lead;
    if (s->nbuffers > NB_MAX_CHAIN_BUFFERS) return false;
    if (!nb_nest_can_lead(x, r->rows, &lead, &low)) return false;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (!is_plain(v)) return false;
        if (v->kind != NB_NEST_LOAD && v->kind != NB_NEST_STORE) continue;
        int block = s->buffer[v->buffer];
        if (block >= r->plan->graph->n) return false;
        int64_t c = r->row(r->ctx, block);
        if (c && !access_keeps(x, v, lead, low, c)) return false;
    }
    return true;
}

/* Products */

/* The axes of the product that are rows of operand t, as it begins at `offset`
 * of a block; the same for all operands that have rows. */
static bool find_rows(nb_row_product *p, int t, int64_t rows, int64_t c,
                      int64_t offset)
{
    const nb_loop *l = &p->loop;
    const int64_t *stride = l->stride[t];
    int row[NB_MAX_DIMS], n = 0;
    int64_t last = offset, step = c;
    for (int a = 0; a < l->naxes; a++) {
        if (stride[a] < 0) return false;
        if (stride[a] < c) {
            last += (l->size[a] - 1) * stride[a];
            continue;
        }
        int i = n++;
        for (; i > 0 && stride[row[i - 1]] < stride[a]; i--)
            row[i] = row[i - 1];
        row[i] = a;
    }
    if (offset < 0 || last >= c || !n) return false;
    for (int i = n - 1; i >= 0; i--) {
        if (stride[row[i]] != step) return false;
        step *= l->size[row[i]];
    }
    if (step != rows * c) return false;
    if (p->nrows)
        return p->nrows == n && !memcmp(p->row, row, (size_t)n * sizeof *row);
    p->nrows = n;
    memcpy(p->row, row, (size_t)n * sizeof *row);
    return true;
}

static bool is_row(const nb_row_product *p, int a)
{
    for (int i = 0; i < p->nrows; i++)
        if (p->row[i] == a) return true;
    return false;
}

static bool take(int *axis, int a)
{
    if (*axis >= 0) return false;
    *axis = a;
    return true;
}

/* Within a tile one axis each may be m, n and k; the rows around it are one
 * point. */
static bool find_axes(nb_row_product *p)
{
    const nb_loop *l = &p->loop;
    p->m = p->n = p->k = -1;
    for (int a = 0; a < l->naxes; a++) {
        bool first = l->stride[0][a], second = l->stride[1][a];
        if (is_row(p, a) && l->reduced[a]) p->sums = true;
        if (is_row(p, a) && a != p->row[p->nrows - 1]) continue;
        if (!l->reduced[a] && first && second) return false;
        if (!take(l->reduced[a] ? &p->k : second ? &p->n : &p->m, a))
            return false;
    }
    return p->m < 0 || p->n < 0 || l->stride[2][p->m] == 1 ||
           l->stride[2][p->n] == 1;
}

/* Products are recognised as the matrix library's in the same way. */
static bool build_loop(const nb_plan *plan, int line, nb_row_product *out,
                       bool *failed)
{
    const nb_line *l = &plan->graph->line[line];
    if (l->multi || l->nin != 2 || l->op->kernel || l->op->execute)
        return false;
    nb_call c = nb_call_of(plan->node[line]);
    if (!c.sig || c.op->scalar != NB_S_mul || c.sig->pointwise ||
        c.op->reduce != NB_SUM || (l->dtype != NB_F32 && l->dtype != NB_F64))
        return false;
    if (nb_scope_open() != NB_OK) return *failed = true, false;
    nb_tensor *in[2] = {nb_line_laid_out(plan, l->in[0]),
                        nb_line_laid_out(plan, l->in[1])};
    nb_tensor *y = nb_line_laid_out(plan, line);
    c.in = in;
    *out = (nb_row_product){.dtype = l->dtype};
    bool ok = in[0] && in[1] && y && nb_loop_build(&out->loop, &c, y);
    nb_scope_close(0, NULL);
    if (!ok) *failed = true;
    return ok && !out->loop.empty;
}

bool nb_rows_product(const nb_rows *r, const nb_step *s, nb_row_product *out,
                     bool *failed)
{
    const nb_line *l = &r->plan->graph->line[s->line];
    if (!build_loop(r->plan, s->line, out, failed)) return false;
    for (int t = 0; t < 3; t++) {
        int k = t < 2 ? l->in[t] : s->line;
        const nb_place *at = &r->plan->place[k];
        int64_t c = r->row(r->ctx, at->root);
        if (c && !find_rows(out, t, r->rows, c, at->offset)) return false;
    }
    return out->nrows && find_axes(out);
}
