/* numbers.c - going through the numbers of programs and plans. */
#include "lower/numbers.h"

#include "lower/split.h"

#include <string.h>

void nb_numbers_free(nb_numbers *v)
{
    nb_free(v->at);
    *v = (nb_numbers){0};
}

static void number(nb_numbers *v, int64_t *x)
{
    if (v->way == NB_NUMBERS_WRITE) *x = v->at[v->n];
    if (v->way == NB_NUMBERS_READ) {
        if (!nb_grow(&v->at, &v->room, v->n + 1, sizeof *v->at)) {
            v->failed = true;
            return;
        }
        v->at[v->n] = *x;
    }
    v->n++;
}

static void fact(nb_numbers *v, int64_t x)
{
    v->form = nb_hash(v->form, &x, sizeof x);
}

static void facts(nb_numbers *v, const int *x, int n)
{
    fact(v, n);
    if (n) v->form = nb_hash(v->form, x, (size_t)n * sizeof *x);
}

static void text(nb_numbers *v, const char *x)
{
    v->form = nb_hash(v->form, x, strlen(x) + 1);
}

/* Graphs */

static void type(nb_numbers *v, nb_line *l)
{
    fact(v, l->dtype);
    fact(v, l->shape.rank);
    fact(v, l->shape.nlanes);
    for (int d = 0; d < l->shape.rank; d++)
        number(v, &l->shape.size[d].code);
    for (int d = 0; d < l->shape.nlanes; d++) {
        fact(v, l->shape.lane[d].id);
        fact(v, l->shape.lane[d].thin);
        number(v, &l->shape.lane[d].size.code);
    }
}

static bool content(nb_numbers *v, const nb_tensor *x, size_t bytes)
{
    char *copy = x->device ? nb_alloc(bytes + 1) : NULL;
    bool ok =
        !x->device || (copy && nb_bytes_read(x->device, copy, x->data, bytes));
    if (ok) v->form = nb_hash(v->form, copy ? copy : x->data, bytes);
    nb_free(copy);
    return ok;
}

/* Small tensors that passes made are known by what is in them. */
static void captured(nb_numbers *v, nb_tensor *x)
{
    int64_t n;
    nb_shape s = nb_tensor_shape(x);
    if (v->way != NB_NUMBERS_READ || !nb_shape_count(&s, &n)) return;
    v->failed = v->failed || !nb_realize_now(1, &x);
    if (v->failed) return;
    if (nb_tensor_is_packed(x) && x->data)
        v->failed =
            !content(v, x, (size_t)n * nb_dtype_size((nb_dtype)x->dtype));
    else
        fact(v, (int64_t)(intptr_t)x);
}

static void line(nb_numbers *v, nb_line *l)
{
    fact(v, l->kind);
    fact(v, l->multi);
    type(v, l);
    if (l->kind == NB_LINE_CAPTURED) captured(v, l->captured);
    bool aside = v->but_figures && v->depth == 1;
    if (l->kind == NB_LINE_NUMBER && !aside) fact(v, l->number);
    if (l->kind != NB_LINE_CALL) return;
    text(v, l->op->name);
    fact(v, (int64_t)l->op->told);
    facts(v, l->in, l->nin);
    fact(v, l->nattr);
    for (int i = 0; i < l->nattr; i++)
        number(v, &l->attr[i]);
    for (int k = 0; k < 2; k++)
        if (l->op->region[k]) nb_numbers_graph(v, l->op->region[k]);
}

bool nb_numbers_graph(nb_numbers *v, nb_graph *g)
{
    fact(v, g->nx);
    fact(v, g->n);
    fact(v, g->nlanes);
    facts(v, g->result, g->ny);
    v->depth++;
    for (int k = 0; k < g->n; k++)
        line(v, &g->line[k]);
    v->depth--;
    return !v->failed;
}

/* Plans */

/* The slots of a nest that are in use, but for those that follow from others,
 * in order; -1 ends. */
static int next_slot(const nb_nest *x, int slot)
{
    for (slot++; slot < nb_nest_slots(x); slot++) {
        if (nb_slot_is_cut(x, slot)) continue;
        if (slot < x->naxes || (slot == NB_SLOT_CUT && x->cut)) return slot;
        if (slot < NB_SLOT_VALUES) continue;
        int k = (slot - NB_SLOT_VALUES) / NB_VALUE_SLOTS;
        int at = (slot - NB_SLOT_VALUES) % NB_VALUE_SLOTS;
        if (nb_nest_strides(&x->value[k]) && at <= x->naxes) return slot;
        if (nb_nest_is_whole(&x->value[k]) && slot == nb_slot_bits(k))
            return slot;
    }
    return -1;
}

static void nest_facts(nb_numbers *v, const nb_nest *x)
{
    fact(v, x->naxes);
    fact(v, x->inner);
    fact(v, x->cut);
    fact(v, x->nbuffers);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *a = &x->value[k];
        int64_t bits = nb_nest_is_whole(a) ? 0 : a->bits;
        int64_t about[] = {a->kind,   a->dtype,  a->compute, a->scalar,
                           a->reduce, a->arg[0], a->arg[1],  a->arg[2],
                           a->next,   a->axes,   bits,       a->buffer,
                           a->stored};
        v->form = nb_hash(v->form, about, sizeof about);
    }
}

/* Whether the next number varies. */
static bool varies(nb_numbers *v)
{
    const nb_formulas *f = v->formulas;
    while (v->next < f->nvary && f->which[v->next] < v->n)
        v->next++;
    return v->next < f->nvary && f->which[v->next] == v->n;
}

static void mark(nb_numbers *v, nb_nest *x, int slot)
{
    if (!x->param) {
        size_t n = (size_t)nb_nest_slots(x) * sizeof *x->param;
        if (!(x->param = nb_alloc(n))) {
            v->failed = true;
            return;
        }
        memset(x->param, -1, n);
    }
    x->param[slot] = x->nparams++;
}

/* What follows from others varies with them; so does nothing where none do. */
static void mark_cut(nb_numbers *v, nb_nest *x)
{
    for (int s = 0; x->param && s < nb_nest_slots(x) && !v->failed; s++)
        if (nb_slot_is_cut(x, s)) mark(v, x, s);
}

static void nest(nb_numbers *v, nb_nest *x)
{
    nest_facts(v, x);
    for (int s = -1; (s = next_slot(x, s)) >= 0 && !v->failed;) {
        if (v->way == NB_NUMBERS_MARK && varies(v)) mark(v, x, s);
        number(v, nb_nest_number(x, s));
    }
    if (v->way == NB_NUMBERS_MARK) mark_cut(v, x);
    if (v->way == NB_NUMBERS_WRITE) nb_nest_settle_cut(x);
}

static void place(nb_numbers *v, nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    fact(v, p->place[k].root);
    fact(v, p->group[k]);
    number(v, &p->place[k].offset);
    for (int d = 0; d < l->shape.rank + l->shape.nlanes; d++)
        number(v, &p->place[k].stride[d]);
    for (int i = 0; p->parts[k] && i <= l->op->nout; i++)
        number(v, &p->parts[k][i]);
}

bool nb_numbers_plan(nb_numbers *v, nb_plan *p)
{
    nb_numbers_graph(v, p->graph);
    for (int k = 0; k < p->graph->n && !v->failed; k++)
        place(v, p, k);
    fact(v, p->nextra);
    for (int i = 0; i < p->nextra; i++)
        number(v, &p->extra[i]);
    fact(v, p->nsteps);
    for (int s = 0; s < p->nsteps && !v->failed; s++) {
        nb_step *step = &p->step[s];
        fact(v, step->line);
        facts(v, step->buffer, step->nbuffers);
        fact(v, step->nest != NULL);
        if (step->nest) nest(v, step->nest);
    }
    return !v->failed;
}
