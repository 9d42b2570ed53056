/* attention_match.c - from the exponential up to the product of q and k, then
 * down to all products that end in something else. */
#include "lower/attention_match.h"

#include "base/half.h"
#include "core/axes.h"
#include "core/convert.h"
#include "lower/attention_form.h"
#include "lower/look.h"
#include "lower/plan.h"
#include "lower/rewrite.h"

#include <math.h>
#include <string.h>

typedef struct match {
    nb_attention_lines *in;
    nb_attention_found *f;
    int exp;
    int dp;                 /* the line of g v^T, or -1 */
    nb_attention_mask mask; /* line -1: none */
} match;

static const nb_line *line(const match *m, int k)
{
    return &m->in->graph->line[k];
}

/* Lines */

static bool is_copy(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && l->nin == 1 && !l->op->body &&
           l->op->scalar == NB_S_copy && l->op->static_sig &&
           l->op->static_sig->pointwise;
}

/* What line k is in another dtype. */
static int behind(const match *m, int k)
{
    while (is_copy(line(m, k)))
        k = line(m, k)->in[0];
    return k;
}

static bool is_product(const match *m, int k)
{
    const nb_line *l = line(m, k);
    if (l->kind != NB_LINE_CALL || l->multi || l->nin != 2) return false;
    nb_call c = nb_call_of(m->in->node[k]);
    return c.sig && nb_call_is_product(&c, m->in->node[k]);
}

static bool number(const match *m, int k, double *value)
{
    int u = nb_line_uniform(m->in->graph, k);
    if (u < 0) return false;
    *value = nb_read_f64(&line(m, u)->number, line(m, u)->dtype);
    return true;
}

/* The axis that the call of line k adds up along, if it is one: a dim of its
 * operand; -1 if it does something else. */
static int summed(const match *m, int k)
{
    const nb_line *l = line(m, k);
    nb_axes a;
    int dim = -1, n = 0;
    if (l->kind != NB_LINE_CALL || l->multi || l->nin != 1 || l->op->body ||
        l->op->scalar != NB_S_copy || l->op->reduce != NB_SUM)
        return -1;
    nb_call c = nb_call_of(m->in->node[k]);
    if (!c.sig || c.sig->pointwise) return -1;
    if (!nb_axes_align(&a, c.op, c.sig, c.nin, c.in)) {
        nb_error_clear();
        return -1;
    }
    const nb_operand *x = &a.operand[0], *y = &a.operand[1];
    for (int d = 0; d < x->ndims; d++) {
        bool stays = false;
        for (int e = 0; e < y->ndims; e++)
            stays = stays || y->axis[e] == x->axis[d];
        if (!stays) dim = d - c.in[0]->nlanes, n++;
    }
    nb_axes_free(&a);
    return n == 1 ? dim : -1;
}

/* Products */

static bool give_roles(const match *m, const nb_axes *a, int operand,
                       const nb_line *l, int8_t *role, nb_attention_side *to)
{
    const nb_operand *o = &a->operand[operand];
    int lanes = o->ndims - l->shape.rank, own = -1;
    unsigned seen = 0;
    to->rank = l->shape.rank;
    for (int d = 0; d < to->rank; d++) {
        int axis = o->axis[lanes + d];
        if (axis < 0 || !nb_extent_same(a->size[axis], l->shape.size[d]))
            return false;
        to->role[d] = role[axis];
        if (role[axis] == NB_OWN) own = own < 0 ? axis : NB_MAX_AXES;
        if (seen >> role[axis] & 1) return false;
        seen |= 1u << role[axis];
    }
    return own >= 0 && own < NB_MAX_AXES && to->rank == m->f->rank;
}

/* Line k is a product, of which operand `whole` (2: the result) has the dims of
 * the scores: what the other two are, in order. */
static bool take_apart(const match *m, int k, int whole, nb_attention_side *two)
{
    nb_call c = nb_call_of(m->in->node[k]);
    int at[3] = {line(m, k)->in[0], line(m, k)->in[1], k}, n = 0;
    int8_t role[NB_MAX_AXES];
    nb_axes a;
    if (!nb_axes_align(&a, c.op, c.sig, c.nin, c.in))
        return nb_error_clear(), false;
    memset(role, NB_OWN, sizeof role);
    const nb_operand *o = &a.operand[whole];
    int lanes = o->ndims - m->f->rank;
    bool ok = line(m, at[whole])->shape.rank == m->f->rank;
    for (int d = 0; ok && d < m->f->rank; d++) {
        ok = o->axis[lanes + d] >= 0;
        if (ok) role[o->axis[lanes + d]] = (int8_t)d;
    }
    for (int i = 0; ok && i < 3; i++) {
        if (i == whole) continue;
        two[n].line = at[i];
        ok = give_roles(m, &a, i, line(m, at[i]), role, &two[n++]);
    }
    nb_axes_free(&a);
    return ok;
}

static bool has(const nb_attention_side *x, int role)
{
    for (int d = 0; d < x->rank; d++)
        if (x->role[d] == role) return true;
    return false;
}

static bool is_queries(const match *m, const nb_attention_side *x)
{
    return has(x, m->f->t) && !has(x, m->f->s);
}

static bool is_keys(const match *m, const nb_attention_side *x)
{
    return has(x, m->f->s) && !has(x, m->f->t);
}

static bool same_side(const nb_attention_side *a, const nb_attention_side *b)
{
    return a->line == b->line && a->rank == b->rank &&
           !memcmp(a->role, b->role, (size_t)a->rank);
}

/* x is that tensor, or nothing has been yet. */
static bool agree(nb_attention_side *is, const nb_attention_side *x)
{
    if (is->line < 0) *is = *x;
    return same_side(is, x);
}

/* Up: from the exponential to the scores. */

static bool mask_is(match *m, int k, bool adds, bool keeps)
{
    if (m->mask.line >= 0) return false;
    m->mask = (nb_attention_mask){.line = k, .adds = adds, .keeps = keeps};
    return true;
}

static bool far_below(const match *m, int k)
{
    double x;
    return number(m, k, &x) && x <= NB_FAR_BELOW;
}

/* Whether nothing but numbers and known tensors is behind line k, as far as
 * its first inputs tell. */
static bool seems_known(const match *m, int k)
{
    while (line(m, k)->kind == NB_LINE_CALL && line(m, k)->nin)
        k = line(m, k)->in[line(m, k)->nin - 1];
    return k >= m->in->graph->nx;
}

/* One step towards the product; -1 where that is not what it is. */
static int step_up(match *m, int k)
{
    const nb_line *l = line(m, k);
    nb_scalar s = nb_line_scalar(l);
    double x;
    if (s == NB_S_select && far_below(m, l->in[2]))
        return mask_is(m, l->in[0], false, true) ? l->in[1] : -1;
    if (s == NB_S_select && far_below(m, l->in[1]))
        return mask_is(m, l->in[0], false, false) ? l->in[2] : -1;
    if ((s == NB_S_mul || s == NB_S_div) && number(m, l->in[1], &x)) {
        m->f->scale *= s == NB_S_mul ? x : 1 / x;
        return l->in[0];
    }
    if (s == NB_S_mul && number(m, l->in[0], &x)) {
        m->f->scale *= x;
        return l->in[1];
    }
    if (s != NB_S_add) return -1;
    int i = seems_known(m, l->in[1]) ? 1 : 0;
    return mask_is(m, l->in[i], true, true) ? l->in[1 - i] : -1;
}

static bool same_sizes(const nb_line *a, const nb_line *b)
{
    bool same = a->shape.rank == b->shape.rank;
    for (int d = 0; same && d < a->shape.rank; d++)
        same = nb_extent_same(a->shape.size[d], b->shape.size[d]);
    return same;
}

static bool find_scores(match *m, int k)
{
    const nb_line *whole = line(m, m->exp);
    enum { STEPS = 8 };
    for (int n = 0; k >= 0 && n < STEPS; n++) {
        k = behind(m, k);
        if (!same_sizes(line(m, k), whole)) return false;
        m->f->scores = k;
        if (is_product(m, k)) return true;
        k = step_up(m, k);
    }
    return false;
}

/* What is taken off all scores of a query does not matter, whatever it is. */
static int past_peak(const match *m, int k)
{
    const nb_line *l = line(m, k);
    double x;
    if (nb_line_scalar(l) != NB_S_sub) return k;
    const nb_line *peak = line(m, l->in[1]);
    bool thin = peak->shape.rank == m->f->rank &&
                nb_extent_is(peak->shape.size[m->f->s], 1);
    return thin || number(m, l->in[1], &x) ? l->in[0] : k;
}

/* The dim of keys is what the first sum of the exponential is along. */
static bool find_keys(match *m)
{
    for (int k = m->exp + 1; k < m->in->graph->n; k++) {
        int dim = summed(m, k);
        if (dim < 0 || behind(m, line(m, k)->in[0]) != m->exp) continue;
        m->f->s = dim;
        return !nb_extent_is(line(m, m->exp)->shape.size[dim], 1);
    }
    return false;
}

static bool find_queries(match *m)
{
    nb_attention_side two[2];
    nb_attention_found *f = m->f;
    if (!take_apart(m, f->scores, 2, two)) return false;
    int k = has(&two[0], f->s) ? 0 : 1;
    f->k = two[k];
    f->q = two[1 - k];
    f->t = -1;
    for (int d = 0; d < f->rank; d++)
        if (!has(&f->k, d)) f->t = d;
    return f->t >= 0 && is_queries(m, &f->q) && is_keys(m, &f->k);
}

/* Down: what lines are made of. */

static bool spread_of(const match *m, int k, nb_spread *s)
{
    const nb_shape *x = &line(m, k)->shape, *whole = &line(m, m->exp)->shape;
    int skip = -1;
    bool thin = false;
    if (x->rank < whole->rank) skip = m->f->s;
    if (x->rank != whole->rank - (skip >= 0)) return false;
    for (int d = 0; d < x->rank; d++) {
        int e = skip >= 0 && d >= skip ? d + 1 : d;
        if (nb_extent_same(x->size[d], whole->size[e])) continue;
        if (skip >= 0 || d != m->f->s || !nb_extent_is(x->size[d], 1))
            return false;
        thin = true;
    }
    *s = skip >= 0 ? NB_FLAT : thin ? NB_ROW : NB_FULL;
    return true;
}

/* Whether line k is g v^T. */
static bool is_dp(match *m, int k)
{
    nb_attention_side two[2];
    nb_spread s;
    k = behind(m, k);
    if (k == m->dp) return true;
    if (m->dp >= 0 || k == m->f->scores || !is_product(m, k) ||
        !spread_of(m, k, &s) || s != NB_FULL || !take_apart(m, k, 2, two))
        return false;
    int v = has(&two[0], m->f->s) ? 0 : 1;
    if (!is_keys(m, &two[v]) || !is_queries(m, &two[1 - v]) ||
        !agree(&m->f->v, &two[v]) || !agree(&m->f->g, &two[1 - v]))
        return false;
    m->dp = k;
    return true;
}

/* An operand beside one whose form is known. */
static nb_form operand(match *m, int k)
{
    nb_form y = m->in->form[k];
    if (y.n) return y;
    y = (nb_form){.n = 1, .a = {1}};
    if (number(m, k, &y.a[0])) return y;
    y.spread = NB_FULL;
    y.p[0] = 1;
    if (!is_dp(m, k)) y.n = 0;
    return y;
}

/* Where the mask takes a score, w is 0: nothing is lost with it. */
static nb_form masked(match *m, const nb_line *l)
{
    nb_form x = m->in->form[l->in[m->mask.keeps ? 1 : 2]];
    double zero;
    if (l->in[0] != m->mask.line || m->mask.adds ||
        !number(m, l->in[m->mask.keeps ? 2 : 1], &zero) || zero != 0)
        return (nb_form){0};
    for (int k = 0; k < x.n; k++)
        if (x.e[k] < 1) return (nb_form){0};
    return x;
}

static nb_form calculated(match *m, const nb_line *l)
{
    const nb_form one = {.n = 1, .a = {1}};
    nb_form x, y;
    nb_scalar s = nb_line_scalar(l);
    if (s == NB_S_select) return masked(m, l);
    if (l->nin == 1 && s == NB_S_neg)
        return nb_form_plus((nb_form){0}, m->in->form[l->in[0]], -1);
    if (l->nin == 1 && s == NB_S_recip)
        return nb_form_times(one, m->in->form[l->in[0]], -1);
    if (l->nin != 2) return (nb_form){0};
    x = operand(m, l->in[0]), y = operand(m, l->in[1]);
    if (!x.n || !y.n || x.spread == NB_FLAT || y.spread == NB_FLAT)
        return (nb_form){0};
    switch (s) {
    case NB_S_mul: return nb_form_times(x, y, 1);
    case NB_S_div: return nb_form_times(x, y, -1);
    case NB_S_add: return nb_form_plus(x, y, 1);
    case NB_S_sub: return nb_form_plus(x, y, -1);
    default: return (nb_form){0};
    }
}

/* A view of what depends on queries alone: with or without the dim of keys, or
 * repeated along it. */
static nb_form viewed(match *m, int k, nb_spread to)
{
    const nb_line *l = line(m, k);
    nb_form x = m->in->form[l->in[0]];
    int dim[NB_MAX_DIMS], lanes = l->shape.nlanes;
    if (x.spread != NB_ROW && x.spread != NB_FLAT) return (nb_form){0};
    if (l->op->in_order && (to == NB_ROW || to == NB_FLAT)) return x;
    if (x.spread != NB_ROW || to != NB_FULL) return (nb_form){0};
    nb_call c = nb_call_of(m->in->node[k]);
    if (!nb_look_moves(&c, m->in->node[k], dim)) return (nb_form){0};
    for (int d = 0; d < l->shape.rank; d++)
        if (dim[lanes + d] >= 0 && dim[lanes + d] != lanes + d)
            return (nb_form){0};
    return x;
}

static bool any_form(const match *m, const nb_line *l)
{
    for (int i = 0; i < l->nin; i++)
        if (m->in->form[l->in[i]].n) return true;
    return false;
}

static void find_form(match *m, int k)
{
    const nb_line *l = line(m, k);
    nb_form x = {0};
    nb_spread s;
    if (l->kind != NB_LINE_CALL || l->multi || !any_form(m, l) ||
        !spread_of(m, k, &s))
        return;
    if (is_copy(l))
        x = m->in->form[l->in[0]];
    else if (nb_line_views(l))
        x = viewed(m, k, s);
    else if (nb_line_scalar(l))
        x = calculated(m, l);
    else if (m->in->form[l->in[0]].spread == NB_FULL && summed(m, k) == m->f->s)
        x = nb_form_added_up(m->in->form[l->in[0]]);
    x.spread = s;
    m->in->form[k] = x;
}

/* Products of forms: what comes out. */

/* The product of weights or of ds with `with` is `is`. */
static void ends_in(match *m, nb_form x, const nb_attention_side *with,
                    const nb_attention_side *is)
{
    nb_attention_found *f = m->f;
    bool weights = nb_form_is_weights(x), ds = nb_form_is_ds(x, m->f->scale);
    bool over_keys = is_keys(m, with) && is_queries(m, is);
    bool over_queries = is_queries(m, with) && is_keys(m, is);
    if (weights && over_keys && f->o.line < 0 && agree(&f->v, with)) f->o = *is;
    if (weights && over_queries && f->dv.line < 0 && agree(&f->g, with))
        f->dv = *is;
    if (ds && over_keys && f->dq.line < 0 && same_side(&f->k, with))
        f->dq = *is;
    if (ds && over_queries && f->dk.line < 0 && same_side(&f->q, with))
        f->dk = *is;
}

static void find_end(match *m, int k)
{
    nb_attention_side two[2];
    if (!is_product(m, k)) return;
    for (int i = 0; i < 2; i++) {
        nb_form x = m->in->form[line(m, k)->in[i]];
        if (x.n && x.spread == NB_FULL && take_apart(m, k, i, two))
            ends_in(m, x, &two[0], &two[1]);
    }
}

/* A tensor that is only looked at with its dims moved is made so. */
static void follow(const match *m, nb_attention_side *x)
{
    while (x->line >= 0 && m->in->uses[x->line] == 1) {
        int to = m->in->user[x->line], dim[NB_MAX_DIMS];
        if (to < 0 || !nb_line_views(line(m, to)) ||
            line(m, to)->shape.rank != x->rank)
            return;
        nb_call c = nb_call_of(m->in->node[to]);
        if (!nb_look_moves(&c, m->in->node[to], dim)) return;
        nb_attention_side y = {.line = to, .rank = x->rank};
        int lanes = line(m, to)->shape.nlanes;
        unsigned left = (1u << x->rank) - 1;
        for (int d = 0; d < x->rank; d++)
            if (dim[lanes + d] >= 0) left &= ~(1u << (dim[lanes + d] - lanes));
        for (int d = 0; d < x->rank; d++) { /* those of size one are alike */
            int from = dim[lanes + d] - lanes;
            if (dim[lanes + d] < 0) {
                if (!left) return;
                from = __builtin_ctz(left);
                left &= left - 1;
                if (!nb_extent_is(line(m, x->line)->shape.size[from], 1))
                    return;
            }
            y.role[d] = x->role[from];
        }
        if (left) return;
        *x = y;
    }
}

/* Whether it is all there */

static int earlier(int a, const nb_attention_side *x)
{
    return x->line >= 0 && (a < 0 || x->line < a) ? x->line : a;
}

static bool takes(const match *m, const nb_attention_side *x)
{
    nb_dtype d = line(m, m->f->q.line)->dtype;
    return x->line < 0 || (line(m, x->line)->dtype == d && nb_dtype_is_half(d));
}

static int64_t own_size(const match *m, const nb_attention_side *x)
{
    for (int d = 0; d < x->rank; d++)
        if (x->role[d] == NB_OWN)
            return nb_extent_get(line(m, x->line)->shape.size[d]);
    return 0;
}

/* One dtype of 16 bits; lengths that kernels have room for. */
static bool fits(const match *m)
{
    enum { LONGEST = 128 };
    const nb_attention_found *f = m->f;
    const nb_attention_side *all[] = {&f->q, &f->k,  &f->v,  &f->g,
                                      &f->o, &f->dq, &f->dk, &f->dv};
    int batch = f->rank - 2 + line(m, f->scores)->shape.nlanes;
    bool ok = batch <= 4 && f->scale > 0 && isfinite(f->scale) &&
              own_size(m, &f->q) == own_size(m, &f->v);
    for (int i = 0; ok && i < 8; i++) {
        const nb_attention_side *x = all[i];
        ok = takes(m, x);
        for (int d = 0; ok && x->line >= 0 && d < x->rank; d++) {
            int64_t n = nb_extent_get(line(m, x->line)->shape.size[d]);
            ok = n > 0 && n < INT32_MAX / 256 &&
                 (x->role[d] != NB_OWN || n <= LONGEST);
        }
    }
    return ok;
}

static bool is_end(const nb_attention_found *f, int k)
{
    return k == f->o.line || k == f->dq.line || k == f->dk.line ||
           k == f->dv.line;
}

/* Whether line k is there at line `at`, or can be with all behind it: that is
 * not one of the ends, but for o where it may be. */
static bool is_there(const match *m, int k, int at, bool after_o)
{
    const nb_graph *g = m->in->graph;
    bool *needed = m->in->needed;
    memset(needed, 0, (size_t)g->n);
    if (k >= 0) needed[k] = true;
    for (int j = k; j >= at; j--) {
        const nb_line *l = &g->line[j];
        if (!needed[j] || (after_o && j == m->f->o.line)) continue;
        if (is_end(m->f, j) || l->multi || l->op == &nb_op_part ||
            (l->op && l->op->effect))
            return false;
        for (int i = 0; i < l->nin; i++)
            needed[l->in[i]] = true;
    }
    return k >= 0;
}

static bool set_places(const match *m)
{
    nb_attention_found *f = m->f;
    f->back_at = earlier(earlier(earlier(-1, &f->dq), &f->dk), &f->dv);
    f->at = earlier(f->back_at, &f->o);
    return f->at >= 0 && is_there(m, f->q.line, f->at, false) &&
           is_there(m, f->k.line, f->at, false) &&
           is_there(m, f->v.line, f->at, false) &&
           (f->back_at < 0 || is_there(m, f->g.line, f->back_at, true));
}

/* Whether nobody needs the scores once its ends are made another way. */
static bool is_alone(const match *m)
{
    const nb_graph *g = m->in->graph;
    const nb_attention_found *f = m->f;
    bool *needed = m->in->needed;
    memset(needed, 0, (size_t)g->n);
    for (int i = 0; i < g->ny; i++)
        needed[g->result[i]] = true;
    for (int k = g->n - 1; k > f->scores; k--) {
        if (g->line[k].op && g->line[k].op->effect) needed[k] = true;
        for (int i = 0; needed[k] && !is_end(f, k) && i < g->line[k].nin; i++)
            needed[g->line[k].in[i]] = true;
    }
    return !needed[f->scores];
}

bool nb_attention_find(nb_attention_lines *l, int k, nb_attention_found *f)
{
    const nb_attention_side none = {.line = -1};
    match m = {.in = l, .f = f, .exp = k, .dp = -1, .mask = {.line = -1}};
    const nb_line *e = &l->graph->line[k];
    *f = (nb_attention_found){.rank = e->shape.rank,
                              .scale = 1,
                              .ahead = NB_NONE,
                              .q = none,
                              .k = none,
                              .v = none,
                              .g = none,
                              .o = none,
                              .dq = none,
                              .dk = none,
                              .dv = none};
    if (nb_line_scalar(e) != NB_S_exp || f->rank < 2 || !find_keys(&m) ||
        !find_scores(&m, past_peak(&m, behind(&m, e->in[0]))) ||
        !find_queries(&m))
        return false;
    memset(l->form, 0, (size_t)l->graph->n * sizeof *l->form);
    l->form[k] = (nb_form){.n = 1, .spread = NB_FULL, .a = {1}, .e = {1}};
    for (int j = k + 1; j < l->graph->n; j++) {
        find_form(&m, j);
        find_end(&m, j);
    }
    if (!set_places(&m) || !is_alone(&m)) return false;
    follow(&m, &f->o), follow(&m, &f->dq);
    follow(&m, &f->dk), follow(&m, &f->dv);
    return fits(&m) &&
           (m.mask.line < 0 || nb_attention_mask_ahead(l, m.mask, f));
}

/* Who uses what */

bool nb_attention_lines_open(nb_attention_lines *l, const nb_graph *g,
                             nb_tensor *const *node)
{
    size_t n = (size_t)g->n + 1;
    *l = (nb_attention_lines){.graph = g, .node = node};
    l->uses = nb_alloc_zero(n * sizeof *l->uses);
    l->user = nb_alloc_zero(n * sizeof *l->user);
    l->needed = nb_alloc_zero(n);
    l->form = nb_alloc_zero(n * sizeof *l->form);
    if (!l->uses || !l->user || !l->needed || !l->form) {
        nb_attention_lines_close(l);
        return false;
    }
    for (int k = 0; k < g->n; k++)
        for (int i = 0; i < g->line[k].nin; i++) {
            l->uses[g->line[k].in[i]]++;
            l->user[g->line[k].in[i]] = k;
        }
    for (int i = 0; i < g->ny; i++) {
        l->uses[g->result[i]]++;
        l->user[g->result[i]] = -1;
    }
    return true;
}

void nb_attention_lines_close(nb_attention_lines *l)
{
    nb_free(l->uses), nb_free(l->user);
    nb_free(l->needed), nb_free(l->form);
}
