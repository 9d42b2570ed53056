/* gemm.c - products as matrices: which axes are whose, and what is copied. */
#include "lower/gemm.h"

#include "base/half.h"
#include "lower/look.h"
#include "lower/loop.h"

#include <string.h>

enum { M, N, K, OUTER };

enum { A, B, C, PARTS };

/* Axes of the product, each of a kind, with the strides of all parts.  A part
 * that is copied lies as it will then. */
typedef struct form {
    int n, kind[NB_MAX_DIMS];
    int64_t size[NB_MAX_DIMS], stride[PARTS][NB_MAX_DIMS];
    bool copied[PARTS];
} form;

/* A copy pays for products of so many operations; and several calls do, where
 * they are few or large. */
static const double worth_copying = 1 << 23, worth_calling = 1 << 28;
enum { FEW_CALLS = 4 };

nb_lies nb_matrix_lies(int64_t r, int64_t c, int64_t row, int64_t column)
{
    if ((row == 1 || r == 1) && (c == 1 || column >= r))
        return NB_LIES_BY_COLUMNS;
    if ((column == 1 || c == 1) && (r == 1 || row >= c)) return NB_LIES_BY_ROWS;
    return NB_LIES_BADLY;
}

int64_t nb_matrix_leap(int64_t r, int64_t c, int64_t row, int64_t column)
{
    return nb_matrix_lies(r, c, row, column) == NB_LIES_BY_COLUMNS
               ? (c == 1 ? r : column)
               : (r == 1 ? c : row);
}

double nb_gemm_flops(const nb_gemm *g)
{
    double n = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    for (int i = 0; i < g->nouter; i++)
        n *= (double)g->outer[i];
    return n;
}

void nb_gemm_print(const nb_gemm *g, nb_text *t)
{
    for (int i = 0; i < g->nouter; i++)
        nb_text_add(t, "%lld of ", (long long)g->outer[i]);
    nb_text_add(t, "%lld x %lld x %lld ", (long long)g->m, (long long)g->n,
                (long long)g->k);
}

/* An axis along which only one operand is summed is none of a product. */
static bool classify(const nb_loop *l, form *f)
{
    *f = (form){.n = l->naxes};
    for (int i = 0; i < l->naxes; i++) {
        int64_t a = l->stride[A][i], b = l->stride[B][i];
        if (l->reduced[i] && (!a || !b)) return false;
        f->kind[i] = l->reduced[i] ? K : !a == !b ? OUTER : a ? M : N;
        f->size[i] = l->size[i];
        for (int t = 0; t < PARTS; t++)
            f->stride[t][i] = l->stride[t][i];
    }
    return !l->empty;
}

static bool joins(const form *f, int x, int y)
{
    if (x == y || f->kind[x] != f->kind[y]) return false;
    for (int t = 0; t < PARTS; t++)
        if (f->stride[t][x] != f->stride[t][y] * f->size[y]) return false;
    return true;
}

static void remove_axis(form *f, int x)
{
    f->n--;
    for (int i = x; i < f->n; i++) {
        f->kind[i] = f->kind[i + 1];
        f->size[i] = f->size[i + 1];
        for (int t = 0; t < PARTS; t++)
            f->stride[t][i] = f->stride[t][i + 1];
    }
}

/* Axis x goes through y again and again: they become one. */
static void merge(form *f)
{
    for (int x = 0; x < f->n; x++)
        for (int y = 0; y < f->n; y++) {
            if (!joins(f, x, y)) continue;
            f->size[y] *= f->size[x];
            remove_axis(f, x);
            x = -1;
            break;
        }
}

static bool has(int t, int kind)
{
    return kind == OUTER ||
           kind == (t == A   ? M
                    : t == B ? K
                             : M) ||
           kind == (t == A ? K : N);
}

/* Part t as it is once copied: matrices in order, rows first, without the
 * outer axes along which it is the same. */
static void copy_part(form *f, int t)
{
    int rows = t == B ? K : M, columns = t == A ? K : N;
    int order[] = {OUTER, rows, columns};
    int64_t step = 1;
    for (int o = 2; o >= 0; o--)
        for (int i = f->n - 1; i >= 0; i--) {
            if (f->kind[i] != order[o] || !has(t, f->kind[i])) continue;
            if (t != C && !f->stride[t][i]) continue;
            f->stride[t][i] = step;
            step *= f->size[i];
        }
    f->copied[t] = true;
}

static int64_t extent(const form *f, int x)
{
    return x < 0 ? 1 : f->size[x];
}

static int64_t stride(const form *f, int t, int x)
{
    return x < 0 ? 0 : f->stride[t][x];
}

static bool lies(const form *f, int t, int x, int y)
{
    return nb_matrix_lies(extent(f, x), extent(f, y), stride(f, t, x),
                          stride(f, t, y)) != NB_LIES_BADLY;
}

/* The next axis of a kind after x; one, -1, if there is none of it. */
static bool next_axis(const form *f, int kind, int *x)
{
    bool any = false;
    for (int i = 0; i < f->n; i++) {
        any = any || f->kind[i] == kind;
        if (f->kind[i] == kind && i > *x) {
            *x = i;
            return true;
        }
    }
    bool once = !any && *x == -2;
    *x = -1;
    return once;
}

/* The axes of the largest matrices that lie as such; products with vectors read
 * all of a matrix once, which loops do as fast as memory is. */
static bool choose(const form *f, int *m, int *n, int *k)
{
    double best = 0;
    int x = -2, y, z = -2, more = -1;
    if (!next_axis(f, K, &z)) return false;
    more = z;
    if (z >= 0 && next_axis(f, K, &more)) return false;
    for (; next_axis(f, M, &x);) {
        for (y = -2; next_axis(f, N, &y);) {
            double size = (double)extent(f, x) * (double)extent(f, y);
            bool fits = extent(f, x) > 1 && extent(f, y) > 1 &&
                        lies(f, A, x, z) && lies(f, B, z, y) &&
                        lies(f, C, x, y);
            if (fits && size > best) best = size, *m = x, *n = y, *k = z;
            if (y < 0) break;
        }
        if (x < 0) break;
    }
    return best > 0;
}

static void fill_part(const form *f, int t, int x, int y, nb_gemm_part *p)
{
    p->row = stride(f, t, x);
    p->column = stride(f, t, y);
    p->buffer = f->copied[t] ? -1 : t;
}

static void fill(const form *f, int m, int n, int k, nb_gemm *g)
{
    nb_gemm_part *part[] = {&g->a, &g->b, &g->c};
    nb_gemm_beside none = {.buffer = -1};
    *g = (nb_gemm){.m = extent(f, m),
                   .n = extent(f, n),
                   .k = extent(f, k),
                   .scale = 1,
                   .add = none,
                   .bias = none,
                   .kept = none};
    fill_part(f, A, m, k, &g->a);
    fill_part(f, B, k, n, &g->b);
    fill_part(f, C, m, n, &g->c);
    for (int i = 0; i < f->n; i++) {
        if (i == m || i == n || i == k) continue;
        int at = g->nouter++;
        while (at > 0 && g->outer[at - 1] > f->size[i])
            at--;
        for (int j = g->nouter - 1; j > at; j--) {
            g->outer[j] = g->outer[j - 1];
            for (int t = 0; t < PARTS; t++)
                part[t]->step[j] = part[t]->step[j - 1];
        }
        g->outer[at] = f->size[i];
        for (int t = 0; t < PARTS; t++)
            part[t]->step[at] = f->stride[t][i];
    }
}

/* A call for each point of the outer axes but the last. */
static bool calls_pay(const nb_gemm *g)
{
    double calls = 1;
    for (int i = 0; i < g->nouter - 1; i++)
        calls *= (double)g->outer[i];
    return calls <= FEW_CALLS || nb_gemm_flops(g) / calls >= worth_calling;
}

/* As it lies, else with as few parts copied as make it one. */
static bool settle(const form *given, nb_gemm *g)
{
    static const unsigned tries[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int i = 0; i < 8; i++) {
        form f = *given;
        int m = -1, n = -1, k = -1;
        for (int t = 0; t < PARTS; t++)
            if (tries[i] >> t & 1) copy_part(&f, t);
        merge(&f);
        if (!choose(&f, &m, &n, &k)) continue;
        fill(&f, m, n, k, g);
        if (i && nb_gemm_flops(g) < worth_copying) return false;
        if (calls_pay(g)) return true;
    }
    return false;
}

static bool loop_of(const nb_plan *p, int k, nb_loop *l)
{
    const nb_line *line = &p->graph->line[k];
    nb_call c = nb_call_of(p->node[k]);
    nb_tensor *in[2] = {nb_line_laid_out(p, line->in[0]),
                        nb_line_laid_out(p, line->in[1])};
    nb_tensor *out = nb_line_laid_out(p, k);
    c.in = in;
    return in[0] && in[1] && out && nb_loop_build(l, &c, out);
}

static bool form_of(const nb_plan *p, int k, form *f, bool *found)
{
    nb_loop l;
    if (nb_scope_open() != NB_OK) return false;
    bool ok = loop_of(p, k, &l);
    nb_scope_close(0, NULL);
    *found = ok && classify(&l, f);
    return ok;
}

static void find_types(const nb_plan *p, int k, nb_gemm *g)
{
    const nb_line *l = &p->graph->line[k];
    g->a.dtype = p->graph->line[l->in[0]].dtype;
    g->b.dtype = p->graph->line[l->in[1]].dtype;
    g->c.dtype = l->dtype;
    g->a.offset = g->a.buffer < 0 ? 0 : p->place[l->in[0]].offset;
    g->b.offset = g->b.buffer < 0 ? 0 : p->place[l->in[1]].offset;
}

bool nb_gemm_find(const nb_plan *p, int k, nb_gemm *g, bool *found)
{
    form f;
    if (!form_of(p, k, &f, found)) return false;
    *found = *found && settle(&f, g);
    if (*found) find_types(p, k, g);
    return true;
}

/* Steps */

static nb_step *add_step(nb_plan *p, int line, int nbuffers)
{
    if (!nb_grow(&p->step, &p->room, p->nsteps + 1, sizeof *p->step))
        return NULL;
    nb_step *s = &p->step[p->nsteps++];
    *s = (nb_step){.line = line, .nbuffers = nbuffers};
    s->buffer = nb_alloc((size_t)nbuffers * sizeof *s->buffer);
    return s->buffer ? s : NULL;
}

/* The elements of part t of line k, from its strides to those of a copy, or
 * back. */
static nb_nest *copy_nest(const form *from, const form *to, int t, nb_dtype d,
                          int64_t offset)
{
    nb_nest *x = nb_alloc_zero(sizeof *x);
    nb_dtype bits = nb_dtype_is_half(d) ? NB_U16 : d;
    nb_nest_value load = {.kind = NB_NEST_LOAD, .dtype = bits, .stored = bits};
    nb_nest_value store = {
        .kind = NB_NEST_STORE, .dtype = bits, .stored = bits, .buffer = 1};
    if (!x) return NULL;
    x->nbuffers = 2;
    load.offset = t == C ? 0 : offset;
    store.offset = t == C ? offset : 0;
    for (int i = 0; i < from->n; i++) {
        if (!to->stride[t][i] || !has(t, from->kind[i])) continue;
        int64_t here = from->stride[t][i], there = to->stride[t][i];
        load.stride[x->naxes] = t == C ? there : here;
        store.stride[x->naxes] = t == C ? here : there;
        x->size[x->naxes++] = from->size[i];
    }
    load.axes = store.axes = (1u << x->naxes) - 1;
    if (!nb_nest_add(x, load) || !nb_nest_add(x, store)) {
        nb_nest_free(x);
        return NULL;
    }
    nb_nest_merge(x);
    return x;
}

static int64_t elements(const form *f, int t)
{
    int64_t n = 1;
    for (int i = 0; i < f->n; i++)
        if (f->stride[t][i] && has(t, f->kind[i])) n *= f->size[i];
    return n;
}

/* A step that copies part t of line k between its block and one beside, which
 * it makes for operands; the number of that, or -1. */
static int copy_step(nb_plan *p, int k, const form *f, int t, int extra)
{
    const nb_line *l = &p->graph->line[k];
    int line = t == C ? k : l->in[t];
    nb_dtype d = p->graph->line[line].dtype;
    form to = *f;
    copy_part(&to, t);
    int64_t bytes = elements(&to, t) * (int64_t)nb_dtype_size(d);
    if (extra < 0) extra = nb_plan_extra(p, bytes);
    nb_step *s = extra < 0 ? NULL : add_step(p, k, 2);
    if (!s) return -1;
    s->buffer[t == C] = p->place[line].root;
    s->buffer[t != C] = extra;
    s->nest = copy_nest(f, &to, t, d, p->place[line].offset);
    return s->nest ? extra : -1;
}

bool nb_gemm_steps(nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    nb_gemm g;
    form f;
    bool found;
    int block[PARTS] = {p->place[l->in[0]].root, p->place[l->in[1]].root, k};
    if (!form_of(p, k, &f, &found) || !nb_gemm_find(p, k, &g, &found))
        return false;
    nb_gemm_part *part[] = {&g.a, &g.b, &g.c};
    for (int t = 0; t < PARTS; t++) {
        if (part[t]->buffer >= 0) continue;
        int64_t bytes =
            elements(&f, C) * (int64_t)nb_dtype_size(part[C]->dtype);
        block[t] =
            t == C ? nb_plan_extra(p, bytes) : copy_step(p, k, &f, t, -1);
        if (block[t] < 0) return false;
    }
    bool copies = g.c.buffer < 0;
    nb_step *s = add_step(p, k, PARTS);
    if (!s || !(s->gemm = nb_alloc(sizeof g))) return false;
    for (int t = 0; t < PARTS; t++) {
        s->buffer[t] = block[t];
        part[t]->buffer = t;
    }
    *s->gemm = g;
    return !copies || copy_step(p, k, &f, C, block[C]) >= 0;
}
