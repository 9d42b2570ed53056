/* family.c - finding what a program is at any sizes, and its members. */
#include "run/family.h"

#include "lower/numbers.h"
#include "lower/passes.h"
#include "lower/rewrite.h"
#include "run/card.h"

#include <string.h>

struct nb_family {
    nb_samples samples;
    nb_graph *recorded; /* at the first point, figures as inputs */
    nb_exec *exec;      /* at the first point, with the code of all */
    nb_formulas in_recorded, in_plan;
    uint64_t form;            /* of what is recorded, figures left out */
    int nlines;               /* of it */
    int nfigures, *figure_of; /* by line: its figure, -1: none */
    int64_t *number;          /* by line, of those that are numbers */
    nb_figure *figure;
};

void nb_family_free(nb_family *f)
{
    if (!f) return;
    nb_graph_free(f->recorded);
    nb_exec_drop(f->exec);
    nb_formulas_free(&f->in_recorded);
    nb_formulas_free(&f->in_plan);
    nb_free(f->figure_of), nb_free(f->number), nb_free(f->figure);
    nb_free(f);
}

void nb_member_free(nb_member *m)
{
    nb_exec_drop(m->exec);
    nb_graph_free(m->recorded);
    for (int i = 0; i < m->nfigures; i++)
        nb_drop(m->figure[i]);
    nb_free(m->figure);
    *m = (nb_member){0};
}

/* What is asked of all points. */
typedef struct survey {
    nb_family *f;
    int n;
    nb_numbers at[NB_MAX_POINTS];
    nb_plan *plan[NB_MAX_POINTS];
    nb_text why;
} survey;

static void clear(survey *s)
{
    for (int p = 0; p < NB_MAX_POINTS; p++)
        nb_numbers_free(&s->at[p]);
}

/* Whether all points have one form. */
static bool one_form(const survey *s)
{
    for (int p = 1; p < s->n; p++)
        if (s->at[p].form != s->at[0].form || s->at[p].n != s->at[0].n)
            return false;
    return true;
}

static bool fit(survey *s, nb_formulas *to, int *wrong)
{
    int64_t *value[NB_MAX_POINTS];
    for (int p = 0; p < s->n; p++)
        value[p] = s->at[p].at;
    return nb_formulas_fit(to, &s->f->samples, s->at[0].n, value, wrong);
}

/* Figures: numbers that stand as lines and vary.  Equal ones are one. */

static bool is_figure(const survey *s, nb_graph *const *g, int k)
{
    for (int p = 1; p < s->n; p++)
        if (g[p]->line[k].kind == NB_LINE_NUMBER &&
            g[p]->line[k].number != g[0]->line[k].number)
            return true;
    return false;
}

static bool add_figure(survey *s, const nb_figure *x, int k)
{
    nb_family *f = s->f;
    for (int i = 0; i < f->nfigures; i++)
        if (!memcmp(&f->figure[i], x, sizeof *x)) {
            f->figure_of[k] = i;
            return true;
        }
    size_t room = (size_t)(f->nfigures + 1) * sizeof *x;
    nb_figure *more = nb_resize(f->figure, room);
    if (!more) return false;
    f->figure = more;
    f->figure[f->nfigures] = *x;
    f->figure_of[k] = f->nfigures++;
    return true;
}

static bool find_figures(survey *s, nb_graph *const *g)
{
    nb_family *f = s->f;
    int64_t bits[NB_MAX_POINTS];
    nb_figure x;
    f->nlines = g[0]->n;
    f->figure_of = nb_alloc((size_t)(f->nlines + 1) * sizeof *f->figure_of);
    f->number = nb_alloc((size_t)(f->nlines + 1) * sizeof *f->number);
    if (!f->figure_of || !f->number) return false;
    for (int k = 0; k < f->nlines; k++) {
        f->figure_of[k] = -1;
        f->number[k] = g[0]->line[k].number;
        if (!is_figure(s, g, k)) continue;
        for (int p = 0; p < s->n; p++)
            bits[p] = g[p]->line[k].number;
        memset(&x, 0, sizeof x);
        if (!nb_figure_fit(&x, &f->samples, g[0]->line[k].dtype, bits)) {
            nb_text_add(&s->why,
                        "a number depends on the sizes in a way that is "
                        "neither a polynomial nor one in the denominator");
            return true;
        }
        if (!add_figure(s, &x, k)) return false;
    }
    return true;
}

/* Makes figures inputs, after those that there are, where the program is. */
static bool lift(const nb_family *f, nb_graph *g)
{
    int device = nb_graph_device(g);
    int *to = nb_alloc((size_t)(g->n + 1) * sizeof *to);
    size_t room = (size_t)(g->n + f->nfigures + 1) * sizeof *g->line;
    nb_line *line = nb_alloc_zero(room);
    int n = g->nx + f->nfigures;
    if (!to || !line) return nb_free(to), nb_free(line), false;
    for (int i = 0; i < f->nfigures; i++)
        line[g->nx + i] = (nb_line){.kind = NB_LINE_INPUT,
                                    .dtype = f->figure[i].dtype,
                                    .device = device > 0 ? (uint8_t)device : 0};
    for (int k = 0; k < g->n; k++) {
        bool goes = f->figure_of[k] >= 0;
        to[k] = goes ? g->nx + f->figure_of[k] : k < g->nx ? k : n++;
        nb_line *l = &g->line[k];
        for (int i = 0; i < l->nin; i++)
            l->in[i] = to[l->in[i]];
        if (goes)
            nb_line_free(l);
        else
            line[to[k]] = *l;
    }
    for (int i = 0; i < g->ny; i++)
        g->result[i] = to[g->result[i]];
    nb_free(to);
    nb_free(g->line);
    g->line = line;
    g->room = g->n + f->nfigures + 1;
    g->n = n;
    g->nx += f->nfigures;
    return true;
}

static bool survey_recorded(survey *s, nb_graph *const *g)
{
    nb_family *f = s->f;
    int wrong = -1;
    for (int p = 0; p < s->n; p++) {
        s->at[p].but_figures = true;
        if (!nb_numbers_graph(&s->at[p], g[p])) return false;
    }
    f->form = s->at[0].form;
    if (!one_form(s)) {
        nb_text_add(&s->why, "different ops are recorded at different sizes");
        return true;
    }
    if (!find_figures(s, g)) return false;
    if (s->why.n) return true;
    clear(s);
    for (int p = 0; p < s->n; p++)
        if (!lift(f, g[p]) || !nb_numbers_graph(&s->at[p], g[p])) return false;
    if (fit(s, &f->in_recorded, &wrong)) return true;
    if (wrong < 0) return false;
    nb_text_add(&s->why, "a size or an argument of an op is not a polynomial "
                         "of the sizes");
    return true;
}

static bool survey_plans(survey *s, nb_graph *const *g)
{
    nb_family *f = s->f;
    int wrong = -1;
    clear(s);
    for (int p = 0; p < s->n; p++) {
        nb_graph *copy = nb_graph_copy(g[p]);
        if (!copy) return false;
        if (!nb_lower_any_size(copy)) return nb_graph_free(copy), false;
        s->plan[p] = nb_plan_new_any_size(copy);
        if (!s->plan[p] || !nb_numbers_plan(&s->at[p], s->plan[p]))
            return false;
    }
    if (!one_form(s)) {
        nb_text_add(&s->why, "passes leave different programs at different "
                             "sizes");
        return true;
    }
    if (fit(s, &f->in_plan, &wrong)) return true;
    if (wrong < 0) return false;
    nb_text_add(&s->why, "a number of the plan is not a polynomial of the "
                         "sizes");
    return true;
}

/* Code with parameters for what varies. */
static bool make_code(survey *s)
{
    nb_family *f = s->f;
    nb_numbers marks = {.way = NB_NUMBERS_MARK, .formulas = &f->in_plan};
    nb_plan *p = s->plan[0];
    s->plan[0] = NULL;
    if (!nb_numbers_plan(&marks, p)) return nb_plan_free(p), false;
    f->exec = nb_exec_of(p);
    if (f->exec && *nb_exec_trouble(f->exec))
        nb_text_add(&s->why, "%s", nb_exec_trouble(f->exec));
    return f->exec;
}

bool nb_family_new(const nb_samples *samples, nb_graph *const *recorded,
                   nb_family **out, char **why)
{
    nb_family *f = nb_alloc_zero(sizeof *f);
    survey s = {.f = f, .n = samples->npoints};
    *out = NULL;
    *why = NULL;
    if (!f) return false;
    f->samples = *samples;
    bool ok = survey_recorded(&s, recorded);
    if (ok && !s.why.n) ok = survey_plans(&s, recorded);
    if (ok && !s.why.n) ok = make_code(&s);
    if (ok && !s.why.n) ok = (f->recorded = nb_graph_copy(recorded[0]));
    if (ok && s.why.n) ok = (*why = nb_copy_text(nb_text_get(&s.why)));
    clear(&s);
    for (int p = 0; p < s.n; p++)
        nb_plan_free(s.plan[p]);
    nb_text_free(&s.why);
    if (ok && !*why)
        *out = f;
    else
        nb_family_free(f);
    return ok;
}

/* Members */

static int64_t *numbers_at(const nb_formulas *x, const nb_samples *s,
                           const int64_t *term)
{
    int64_t *at = nb_alloc((size_t)(x->n + 1) * sizeof *at);
    if (at) nb_formulas_at(x, s, term, at);
    return at;
}

static nb_graph *recorded_at(const nb_family *f, const int64_t *term)
{
    nb_numbers v = {.way = NB_NUMBERS_WRITE};
    nb_graph *g = nb_graph_copy_whole(f->recorded);
    v.at = numbers_at(&f->in_recorded, &f->samples, term);
    bool ok = g && v.at && nb_numbers_graph(&v, g);
    nb_numbers_free(&v);
    if (ok) return g;
    nb_graph_free(g);
    return NULL;
}

static nb_exec *exec_at(const nb_family *f, const int64_t *term)
{
    nb_numbers v = {.way = NB_NUMBERS_WRITE};
    nb_plan *p = nb_plan_copy(nb_exec_plan(f->exec));
    v.at = numbers_at(&f->in_plan, &f->samples, term);
    bool ok = p && v.at && nb_numbers_plan(&v, p) && nb_plan_finish(p);
    nb_numbers_free(&v);
    if (ok) return nb_exec_like(f->exec, p);
    nb_plan_free(p);
    return NULL;
}

static bool add_figures(const nb_family *f, const int64_t *term, nb_member *to)
{
    to->figure = nb_alloc((size_t)(f->nfigures + 1) * sizeof *to->figure);
    if (!to->figure || nb_scope_open() != NB_OK) return false;
    bool ok = true;
    while (ok && to->nfigures < f->nfigures) {
        const nb_figure *x = &f->figure[to->nfigures];
        nb_line l = {.kind = NB_LINE_NUMBER,
                     .dtype = x->dtype,
                     .number = nb_figure_at(x, &f->samples, term)};
        nb_tensor *value = nb_line_number(&l);
        ok = value && nb_realize_now(1, &value);
        if (ok) to->figure[to->nfigures++] = nb_keep(value);
    }
    nb_scope_close(0, NULL);
    return ok;
}

bool nb_family_at(const nb_family *f, const int64_t *size, nb_member *to)
{
    int64_t term[NB_MAX_TERMS];
    *to = (nb_member){0};
    nb_terms_at(&f->samples, size, term);
    if ((to->recorded = recorded_at(f, term)) &&
        (to->exec = exec_at(f, term)) && add_figures(f, term, to))
        return true;
    nb_member_free(to);
    return false;
}

/* Whether the lines of g that are numbers are what the family has. */
static bool same_numbers(const nb_family *f, const int64_t *term,
                         const nb_graph *g)
{
    for (int k = 0; k < f->nlines; k++) {
        int i = f->figure_of[k];
        int64_t want = i < 0 ? f->number[k]
                             : nb_figure_at(&f->figure[i], &f->samples, term);
        if (g->line[k].kind == NB_LINE_NUMBER && g->line[k].number != want)
            return false;
    }
    return true;
}

bool nb_family_has(const nb_family *f, const int64_t *size, const nb_graph *g,
                   bool *has)
{
    int64_t term[NB_MAX_TERMS];
    nb_numbers is = {.but_figures = true}, lifted = {0};
    nb_graph *copy = nb_graph_copy(g);
    bool ok = copy && nb_numbers_graph(&is, copy);
    nb_terms_at(&f->samples, size, term);
    *has = ok && is.form == f->form && same_numbers(f, term, g);
    if (*has) {
        int64_t *want = numbers_at(&f->in_recorded, &f->samples, term);
        ok = want && lift(f, copy) && nb_numbers_graph(&lifted, copy);
        *has = ok && lifted.n == f->in_recorded.n &&
               !memcmp(lifted.at, want, (size_t)lifted.n * sizeof *want);
        nb_free(want);
    }
    nb_numbers_free(&is);
    nb_numbers_free(&lifted);
    nb_graph_free(copy);
    return ok;
}
