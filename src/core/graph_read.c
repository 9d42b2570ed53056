/* graph_read.c - a graph read from its listing.
 *
 * A text is read line by line into lines like those that were recorded; then
 * the whole is recorded on stand-ins, which finds what no grammar says: types
 * that are not what the ops give, calls that an op would refuse. */
#include "core/convert.h"
#include "core/graph.h"
#include "core/lanes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a name stands for: a line of one of the programs. */
typedef struct name {
    const nb_graph *g;
    int line;
} name;

typedef struct names {
    name *at;
    int n, room;
} names;

typedef struct reader {
    const char *at;
    int row, depth;
    nb_graph *g;         /* the program being read */
    names inputs, calls; /* %a<n>, %v<n> */
} reader;

enum { MAX_DEPTH = 64 };

static bool wrong(const reader *r, const char *what)
{
    char here[24];
    snprintf(here, sizeof here, "%s", r->at);
    here[strcspn(here, "\n")] = '\0';
    return nb_fail(NB_EVALUE, "graph text, line %d: expected %s at \"%s\"",
                   r->row, what, here);
}

static void blanks(reader *r)
{
    for (; *r->at == ' ' || *r->at == '\n' || *r->at == '#'; r->at++) {
        if (*r->at == '#') r->at += strcspn(r->at, "\n");
        if (!*r->at) return;
        r->row += *r->at == '\n';
    }
}

static bool take(reader *r, const char *text)
{
    blanks(r);
    size_t n = strlen(text);
    if (strncmp(r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static bool need(reader *r, const char *text)
{
    return take(r, text) || wrong(r, text);
}

static bool read_int(reader *r, int64_t *v)
{
    char *end;
    blanks(r);
    errno = 0;
    *v = strtoll(r->at, &end, 10);
    if (end == r->at) return wrong(r, "an integer");
    if (errno == ERANGE) return wrong(r, "an integer of 64 bits");
    r->at = end;
    return true;
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static nb_dtype read_dtype(reader *r)
{
    char text[16];
    blanks(r);
    size_t n = word_length(r->at);
    snprintf(text, sizeof text, "%.*s", (int)n, r->at);
    nb_dtype d = n < sizeof text ? nb_dtype_find(text) : NB_NOTYPE;
    if (d) r->at += n;
    return d;
}

/* Types */

typedef struct sizes {
    int n, lanes;
    struct {
        int64_t size, number;
        bool thin;
    } at[NB_MAX_DIMS];
} sizes;

static bool read_size(reader *r, sizes *s)
{
    if (s->n == NB_MAX_DIMS) return wrong(r, "at most 32 sizes");
    if (!read_int(r, &s->at[s->n].size)) return false;
    if (s->at[s->n].size < 0) return wrong(r, "a size");
    s->at[s->n].thin = take(r, "~");
    if (take(r, "'") && !read_int(r, &s->at[s->n].number)) return false;
    s->n++;
    return true;
}

static bool read_sizes(reader *r, sizes *s)
{
    while (!take(r, "]")) {
        if (take(r, ",")) continue;
        if (take(r, "|"))
            s->lanes = s->n;
        else if (!read_size(r, s))
            return false;
    }
    return (s->lanes <= NB_MAX_LANES && s->n - s->lanes <= NB_MAX_RANK) ||
           wrong(r, "at most 16 sizes");
}

static bool countable(const reader *r, const nb_line *l)
{
    char who[40];
    snprintf(who, sizeof who, "graph text, line %d", r->row);
    return nb_shape_check(&l->shape, l->dtype, who);
}

/* Lanes stand innermost first.  Those of inputs are the program's first ones
 * unless they say otherwise; those of calls get their numbers when the whole is
 * known. */
static bool read_type(reader *r, nb_line *l)
{
    sizes s = {0};
    l->dtype = read_dtype(r);
    if (!l->dtype) return wrong(r, "a dtype");
    if (!need(r, "[") || !read_sizes(r, &s)) return false;
    l->shape.rank = s.n - s.lanes;
    l->shape.nlanes = s.lanes;
    for (int d = 0; d < s.lanes; d++) {
        int from = s.lanes - 1 - d;
        int64_t number = s.at[from].number ? s.at[from].number : d + 1;
        if (number < 1 || number > NB_MAX_GRAPH_LANES)
            return wrong(r, "the number of a hidden axis");
        l->shape.lane[d] = (nb_lane){nb_extent_of(s.at[from].size),
                                     (int32_t)number, s.at[from].thin};
        if (d && l->kind == NB_LINE_INPUT &&
            l->shape.lane[d].id <= l->shape.lane[d - 1].id)
            return wrong(r, "hidden axes, the innermost first");
    }
    for (int d = 0; d < l->shape.rank; d++)
        l->shape.size[d] = nb_extent_of(s.at[s.lanes + d].size);
    return countable(r, l);
}

/* Names */

static bool read_name(reader *r, bool input, int line)
{
    names *all = input ? &r->inputs : &r->calls;
    int64_t number;
    if (!need(r, input ? "%a" : "%v") || !read_int(r, &number)) return false;
    if (number != all->n + 1) return wrong(r, "the next number");
    if (!nb_grow(&all->at, &all->room, all->n + 1, sizeof *all->at))
        return false;
    all->at[all->n++] = (name){r->g, line};
    return need(r, ":");
}

static bool read_number(reader *r, int *line)
{
    nb_line l = {.kind = NB_LINE_NUMBER};
    const char *text = r->at;
    char *end;
    double f = strtod(text, &end);
    if (end == text) return wrong(r, "a value");
    r->at = end;
    if (!need(r, ":")) return false;
    if (!(l.dtype = read_dtype(r))) return wrong(r, "a dtype");
    if (nb_dtype_is_float(l.dtype))
        nb_write_f64(&l.number, l.dtype, f);
    else if (l.dtype == NB_U64)
        l.number = (int64_t)strtoull(text, NULL, 10);
    else
        nb_write_i64(&l.number, l.dtype, strtoll(text, NULL, 10));
    *line = r->g->n;
    return nb_graph_add(r->g, l);
}

/* A reference, or a number, which becomes a line. */
static bool read_ref(reader *r, int *line)
{
    int64_t n;
    bool input = take(r, "%a");
    if (!input && !take(r, "%v")) return read_number(r, line);
    const names *all = input ? &r->inputs : &r->calls;
    if (!read_int(r, &n)) return false;
    bool known = n >= 1 && n <= all->n && all->at[n - 1].g == r->g &&
                 all->at[n - 1].line >= 0;
    if (!known) return wrong(r, "an earlier line of this program");
    *line = all->at[n - 1].line;
    return true;
}

/* Static arguments */

typedef struct values {
    words w;
    bool given[NB_MAX_PARAMS];
    words at[NB_MAX_PARAMS]; /* as they are read, in any order */
} values;

static bool add_word(const reader *r, words *w, int64_t word)
{
    if (w->n == NB_MAX_WORDS) return wrong(r, "fewer values");
    w->at[w->n++] = word;
    return true;
}

static bool read_list(reader *r, words *w)
{
    int64_t v;
    if (!add_word(r, w, 0)) return false;
    while (!take(r, ")")) {
        if (take(r, ",")) continue;
        if (!read_int(r, &v) || !add_word(r, w, v)) return false;
        w->at[0]++;
    }
    return true;
}

static bool read_float(reader *r, words *w)
{
    char *end;
    double f = strtod(r->at, &end);
    int64_t v;
    memcpy(&v, &f, sizeof v);
    if (end == r->at) return wrong(r, "a number");
    r->at = end;
    return add_word(r, w, v);
}

static bool read_text(reader *r, words *w)
{
    const char *close = *r->at == '"' ? strchr(r->at + 1, '"') : NULL;
    if (!close) return wrong(r, "a quoted text");
    const char *text = nb_intern(r->at + 1, (size_t)(close - r->at - 1));
    r->at = close + 1;
    return text && add_word(r, w, (int64_t)(intptr_t)text);
}

static bool read_value(reader *r, const nb_param *p, words *w)
{
    bool list = p->kind == NB_P_AXES || p->kind == NB_P_INTS;
    int64_t v = 0;
    blanks(r);
    if (take(r, "None")) {
        bool may = p->nullable || (p->has_default && p->value[0] == NB_NONE);
        return may ? add_word(r, w, NB_NONE) : wrong(r, "a value, not None");
    }
    if (p->kind == NB_P_BOOL) {
        bool yes = take(r, "True");
        return yes || take(r, "False") ? add_word(r, w, yes)
                                       : wrong(r, "True or False");
    }
    if (p->kind == NB_P_FLOAT) return read_float(r, w);
    if (p->kind == NB_P_TEXT) return read_text(r, w);
    if (p->kind == NB_P_DTYPE) {
        if (!need(r, "@")) return false;
        v = read_dtype(r);
        return v ? add_word(r, w, v) : wrong(r, "a dtype");
    }
    if (list && take(r, "(")) return read_list(r, w);
    if (!read_int(r, &v) || (list && !add_word(r, w, 1))) return false;
    return add_word(r, w, v);
}

static bool read_attribute(reader *r, const nb_op *op, values *all)
{
    const nb_params *ps = op->parsed;
    size_t n = word_length(r->at);
    for (int k = 0; k < ps->n; k++) {
        const nb_param *p = &ps->param[k];
        if (p->kind <= NB_P_TENSORS || strlen(p->name) != n ||
            strncmp(p->name, r->at, n) != 0)
            continue;
        if (all->given[k]) return wrong(r, "each argument once");
        all->given[k] = true;
        r->at += n;
        return need(r, "=") && read_value(r, p, &all->at[k]);
    }
    return wrong(r, "an argument of the op");
}

/* Those that are not there have their default, or are None. */
static bool pack(const reader *r, nb_line *l, values *all)
{
    const nb_params *ps = l->op->parsed;
    words *w = &all->w;
    for (int k = 0; k < ps->n; k++) {
        const nb_param *p = &ps->param[k];
        words *v = &all->at[k];
        if (p->kind <= NB_P_TENSORS) continue;
        if (!all->given[k]) {
            if (!p->has_default && !p->nullable) return wrong(r, p->name);
            v->n = p->has_default ? p->ndefault : 1;
            v->at[0] = NB_NONE;
            if (p->has_default)
                memcpy(v->at, p->value, (size_t)v->n * sizeof v->at[0]);
        }
        if (w->n + v->n > NB_MAX_WORDS) return wrong(r, "fewer values");
        memcpy(w->at + w->n, v->at, (size_t)v->n * sizeof v->at[0]);
        w->n += v->n;
    }
    l->attr = nb_alloc((size_t)(w->n + 1) * sizeof *l->attr);
    if (!l->attr) return false;
    memcpy(l->attr, w->at, (size_t)w->n * sizeof *l->attr);
    l->nattr = w->n;
    return true;
}

static bool is_attribute(const char *s)
{
    size_t n = word_length(s);
    return n && s[n] == '=';
}

static bool read_arguments(reader *r, nb_line *l)
{
    int room = 0, line;
    bool ok = true;
    values *all = nb_alloc_zero(sizeof *all);
    if (!all) return false;
    while (ok && !take(r, ")")) {
        if (take(r, ",")) continue;
        blanks(r);
        if (is_attribute(r->at)) {
            ok = read_attribute(r, l->op, all);
            continue;
        }
        ok = read_ref(r, &line) &&
             nb_grow(&l->in, &room, l->nin + 1, sizeof line);
        if (ok) l->in[l->nin++] = line;
    }
    ok = ok && pack(r, l, all);
    nb_free(all);
    return ok;
}

/* Ops */

static nb_op *find_op(const char *text)
{
    static nb_op *const core[] = {&nb_op_detach, &nb_op_again, &nb_op_after,
                                  &nb_op_hide,   &nb_op_show,  &nb_op_spread,
                                  NULL};
    nb_op *op = nb_op_find(text);
    for (int i = 0; !op && core[i]; i++)
        if (!strcmp(core[i]->name, text)) op = core[i];
    for (int i = 0; !op && nb_forms[i]; i++)
        if (!strcmp(nb_forms[i]->name, text)) op = nb_forms[i];
    return op;
}

static nb_op *read_op(reader *r)
{
    char text[64];
    blanks(r);
    size_t n = word_length(r->at);
    snprintf(text, sizeof text, "%.*s", (int)n, r->at);
    nb_op *op = n < sizeof text ? find_op(text) : NULL;
    if (!op || op->compose) return wrong(r, "an op"), NULL;
    r->at += n;
    return nb_op_ready(op) ? op : NULL;
}

static bool is_form(const nb_op *op)
{
    return op->result;
}

static bool read_program(reader *r, const char *head, nb_graph **out);

/* The programs of a form, in an op of the line's own. */
static bool read_regions(reader *r, nb_line *l, int nout)
{
    nb_op *form = l->op;
    if (!(l->op = nb_op_holding(form, nout)) || !need(r, "{")) return false;
    for (int i = 0; i < 2 && form->region_name[i]; i++)
        if (!read_program(r, form->region_name[i], &l->op->region[i]))
            return false;
    return need(r, "}");
}

/* Lines */

/* What stands before =: the types of results, and which have names. */
typedef struct heads {
    nb_line *at; /* those without a name have no dtype */
    int n, room;
    int name; /* the first of them among all */
} heads;

static bool read_heads(reader *r, heads *h)
{
    h->name = r->calls.n;
    do {
        nb_line l = {.kind = NB_LINE_CALL};
        if (!take(r, "_") && (!read_name(r, false, -1) || !read_type(r, &l)))
            return false;
        if (!nb_grow(&h->at, &h->room, h->n + 1, sizeof l)) return false;
        h->at[h->n++] = l;
    } while (take(r, ","));
    return need(r, "=");
}

/* A line for each result that has a name. */
static bool add_parts(reader *r, const heads *h)
{
    int all = r->g->n - 1, at = h->name;
    for (int k = 0; k < h->n; k++) {
        nb_line l = h->at[k];
        if (!l.dtype) continue;
        l.op = &nb_op_part;
        l.nin = l.nattr = 1;
        l.in = nb_alloc(sizeof *l.in);
        l.attr = nb_alloc(sizeof *l.attr);
        if (!l.in || !l.attr) {
            nb_free(l.in), nb_free(l.attr);
            return false;
        }
        l.in[0] = all;
        l.attr[0] = k;
        r->calls.at[at++].line = r->g->n;
        if (!nb_graph_add(r->g, l)) return false;
    }
    return true;
}

static bool add_line(reader *r, nb_line *l, const heads *h)
{
    int nout = l->op->nout > 1 ? l->op->nout : 1;
    l->multi = nout > 1 || is_form(l->op);
    if (h->n != nout) return wrong(r, "as many results as the op has");
    if (!l->multi && !h->at[0].dtype) return wrong(r, "a name");
    if (!l->multi) {
        l->dtype = h->at[0].dtype;
        l->shape = h->at[0].shape;
        r->calls.at[h->name].line = r->g->n;
    }
    int *in = l->in;
    int64_t *attr = l->attr;
    l->in = NULL, l->attr = NULL; /* the graph's from here on */
    nb_line line = *l;
    line.in = in, line.attr = attr;
    return nb_graph_add(r->g, line) && (!l->multi || add_parts(r, h));
}

static bool lane_fits(const reader *r, const nb_line *l)
{
    bool fits = !nb_op_moves_lanes(l->op) ||
                (l->attr[1] >= 1 && l->attr[1] <= NB_MAX_GRAPH_LANES);
    return fits || wrong(r, "the id of a hidden axis from 1 on");
}

static void count_lanes(nb_graph *g, const nb_line *l)
{
    if (nb_op_moves_lanes(l->op) && l->attr[1] > g->nlanes)
        g->nlanes = (int)l->attr[1];
    for (int d = 0; l->kind == NB_LINE_INPUT && d < l->shape.nlanes; d++)
        if (l->shape.lane[d].id > g->nlanes) g->nlanes = l->shape.lane[d].id;
}

static bool read_line(reader *r)
{
    nb_line l = {.kind = NB_LINE_CALL, .device = nb_device_in_force()};
    heads h = {0};
    bool form = false;
    bool ok = read_heads(r, &h) && (l.op = read_op(r)) && need(r, "(") &&
              read_arguments(r, &l) && lane_fits(r, &l);
    if (ok) count_lanes(r->g, &l);
    if (ok && is_form(l.op)) {
        form = true;
        ok = read_regions(r, &l, h.n);
    }
    ok = ok && add_line(r, &l, &h);
    if (form) nb_op_leave(l.op);
    nb_free(l.in), nb_free(l.attr), nb_free(h.at);
    return ok;
}

/* Programs */

static bool read_results(reader *r)
{
    int room = 0;
    bool many = take(r, "(");
    do {
        int line;
        if (many && take(r, ")")) return need(r, "}");
        if (!read_ref(r, &line) ||
            !nb_grow(&r->g->result, &room, r->g->ny + 1, sizeof line))
            return false;
        r->g->result[r->g->ny++] = line;
        take(r, ",");
    } while (many);
    return need(r, "}");
}

static bool read_graph(reader *r, const char *head)
{
    if (!need(r, head) || !need(r, "(")) return false;
    while (!take(r, ")")) {
        nb_line l = {.kind = NB_LINE_INPUT, .device = nb_device_in_force()};
        if (!read_name(r, true, r->g->n) || !read_type(r, &l)) return false;
        take(r, ",");
        count_lanes(r->g, &l);
        if (!nb_graph_add(r->g, l)) return false;
        r->g->nx++;
    }
    if (!need(r, "{")) return false;
    while (!take(r, "return"))
        if (!read_line(r)) return false;
    return read_results(r);
}

static bool read_program(reader *r, const char *head, nb_graph **out)
{
    nb_graph *outer = r->g, *g = nb_alloc_zero(sizeof *g);
    if (r->depth == MAX_DEPTH) nb_free(g), g = NULL;
    if (!g) return r->depth == MAX_DEPTH ? wrong(r, "fewer braces") : false;
    r->g = g;
    r->depth++;
    bool ok = read_graph(r, head) && nb_graph_settle(g);
    r->depth--;
    r->g = outer;
    if (!ok) nb_graph_free(g);
    if (ok) *out = g;
    return ok;
}

nb_status nb_graph_parse(const char *text, nb_graph **out)
{
    reader r = {.at = text, .row = 1};
    bool ok = read_program(&r, "fn", out);
    blanks(&r);
    if (ok && *r.at) {
        ok = wrong(&r, "the end");
        nb_graph_free(*out);
        *out = NULL;
    }
    nb_free(r.inputs.at);
    nb_free(r.calls.at);
    return NB_STATUS(ok);
}
