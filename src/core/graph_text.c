/* graph_text.c - the listing of a graph, and reading one. */
#include "core/convert.h"
#include "core/graph.h"
#include "core/lanes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Printing */

static void print_type(nb_text *t, const nb_line *l)
{
    if (l->multi) {
        nb_text_add(t, "tuple");
        return;
    }
    nb_text_add(t, "%s[", nb_dtype_brief(l->dtype));
    for (int d = 0; d < l->shape.nlanes; d++)
        nb_text_add(t, "%s%lld%s", d ? "," : "",
                    (long long)nb_extent_get(l->shape.lane[d].size),
                    l->shape.lane[d].thin ? "~" : "");
    if (l->shape.nlanes) nb_text_add(t, l->shape.rank ? " | " : " |");
    for (int d = 0; d < l->shape.rank; d++)
        nb_text_add(t, "%s%lld", d ? "," : "",
                    (long long)nb_extent_get(l->shape.size[d]));
    nb_text_add(t, "]");
}

/* %a1 for inputs, %v1 for calls, a number as itself, ? for what is captured. */
static void print_ref(nb_text *t, const nb_graph *g, const int *number, int k)
{
    const nb_line *l = &g->line[k];
    if (l->kind == NB_LINE_CAPTURED)
        nb_text_add(t, "?");
    else if (l->kind == NB_LINE_INPUT)
        nb_text_add(t, "%%a%d", number[k]);
    else if (l->kind == NB_LINE_CALL)
        nb_text_add(t, "%%v%d", number[k]);
    else if (nb_dtype_is_float(l->dtype))
        nb_text_add(t, "%.17g:%s", nb_read_f64(&l->number, l->dtype),
                    nb_dtype_brief(l->dtype));
    else
        nb_text_add(t, "%lld:%s", (long long)nb_read_i64(&l->number, l->dtype),
                    nb_dtype_brief(l->dtype));
}

static void print_call(nb_text *t, const nb_graph *g, const int *number,
                       const nb_line *l)
{
    nb_call c = {.op = l->op, .attr = l->attr, .nattr = l->nattr};
    nb_text_add(t, "%s(", l->op->name);
    for (int i = 0; i < l->nin; i++) {
        if (i) nb_text_add(t, ", ");
        print_ref(t, g, number, l->in[i]);
    }
    for (int k = 0;; k++) {
        nb_text one = {0};
        if (!nb_arg_print(&c, k, &one)) {
            nb_text_free(&one);
            break;
        }
        nb_text_add(t, l->nin || k ? ", %s" : "%s", nb_text_get(&one));
        nb_text_free(&one);
    }
    nb_text_add(t, ")");
}

static void print_lines(nb_text *t, const nb_graph *g, int *number)
{
    int inputs = 0, calls = 0;
    nb_text_add(t, "fn(\n");
    for (int k = 0; k < g->nx; k++) {
        number[k] = ++inputs;
        nb_text_add(t, "  %%a%d: ", inputs);
        print_type(t, &g->line[k]);
        nb_text_add(t, ",\n");
    }
    nb_text_add(t, ") {\n");
    for (int k = g->nx; k < g->n; k++) {
        if (g->line[k].kind != NB_LINE_CALL) continue;
        number[k] = ++calls;
        nb_text_add(t, "  %%v%d: ", calls);
        print_type(t, &g->line[k]);
        nb_text_add(t, " = ");
        print_call(t, g, number, &g->line[k]);
        nb_text_add(t, "\n");
    }
    nb_text_add(t, g->ny == 1 ? "  return " : "  return (");
    for (int i = 0; i < g->ny; i++) {
        if (i) nb_text_add(t, ", ");
        print_ref(t, g, number, g->result[i]);
    }
    nb_text_add(t, g->ny == 1 ? "\n}\n" : ")\n}\n");
}

char *nb_graph_text(const nb_graph *g)
{
    nb_text t = {0};
    int *number = nb_alloc_zero((size_t)(g->n + 1) * sizeof *number);
    if (!number) return NULL;
    print_lines(&t, g, number);
    nb_free(number);
    if (!t.failed) return t.data;
    nb_text_free(&t);
    return NULL;
}

/* Reading */

typedef struct reader {
    const char *at;
    int row;
    nb_graph *g;
    int *input, *call; /* line of %a<n>, %v<n> */
    int ninputs, ncalls, input_room, call_room;
} reader;

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
    for (; *r->at == ' ' || *r->at == '\n'; r->at++)
        r->row += *r->at == '\n';
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
    *v = strtoll(r->at, &end, 10);
    if (end == r->at) return wrong(r, "an integer");
    r->at = end;
    return true;
}

static nb_dtype read_dtype(reader *r)
{
    char name[16];
    size_t n = 0;
    blanks(r);
    while (n < sizeof name - 1 && isalnum((unsigned char)r->at[n])) {
        name[n] = r->at[n];
        n++;
    }
    name[n] = '\0';
    nb_dtype d = nb_dtype_find(name);
    if (d) r->at += n;
    return d;
}

/* Lanes of a type are numbered by the ops that make them; a type lists sizes
 * only, so inputs with lanes take the next numbers. */
static bool read_type(reader *r, nb_line *l)
{
    nb_extent size[NB_MAX_DIMS];
    bool thin[NB_MAX_DIMS] = {false};
    int n = 0, lanes = 0;
    if (take(r, "tuple")) return l->multi = true;
    l->dtype = read_dtype(r);
    if (!l->dtype) return wrong(r, "a dtype");
    if (!need(r, "[")) return false;
    while (!take(r, "]")) {
        int64_t v;
        if (take(r, ",")) continue;
        if (take(r, "|")) {
            lanes = n;
            continue;
        }
        if (n == NB_MAX_DIMS) return wrong(r, "at most 32 sizes");
        if (!read_int(r, &v)) return false;
        thin[n] = take(r, "~");
        size[n++] = nb_extent_of(v);
    }
    l->shape.rank = n - lanes;
    l->shape.nlanes = lanes;
    if (l->shape.rank > NB_MAX_RANK || lanes > NB_MAX_LANES)
        return wrong(r, "at most 16 sizes");
    for (int d = 0; d < lanes; d++)
        l->shape.lane[d] = (nb_lane){size[d], 0, thin[d]};
    memcpy(l->shape.size, size + lanes, (size_t)l->shape.rank * sizeof size[0]);
    return true;
}

static bool name_line(reader *r, bool input, int line)
{
    int **table = input ? &r->input : &r->call;
    int *n = input ? &r->ninputs : &r->ncalls;
    int *room = input ? &r->input_room : &r->call_room;
    int64_t number;
    if (!need(r, input ? "%a" : "%v") || !read_int(r, &number)) return false;
    if (number != *n + 1) return wrong(r, "the next number");
    if (!nb_grow(table, room, *n + 1, sizeof **table)) return false;
    (*table)[(*n)++] = line;
    return need(r, ":");
}

/* A reference, or a number, which becomes a line. */
static bool read_ref(reader *r, int *line)
{
    int64_t n;
    bool input = take(r, "%a");
    if (input || take(r, "%v")) {
        if (!read_int(r, &n)) return false;
        if (n < 1 || n > (input ? r->ninputs : r->ncalls))
            return wrong(r, "an earlier line");
        *line = (input ? r->input : r->call)[n - 1];
        return true;
    }
    char *end;
    double f = strtod(r->at, &end);
    int64_t i = strtoll(r->at, NULL, 10);
    if (end == r->at) return wrong(r, "a value");
    r->at = end;
    nb_line l = {.kind = NB_LINE_NUMBER};
    if (!need(r, ":") || !(l.dtype = read_dtype(r))) return wrong(r, "a dtype");
    if (nb_dtype_is_float(l.dtype))
        nb_write_f64(&l.number, l.dtype, f);
    else
        nb_write_i64(&l.number, l.dtype, i);
    *line = r->g->n;
    return nb_graph_add(r->g, l);
}

static bool add_word(nb_line *l, int *room, int64_t word)
{
    if (l->nattr == NB_MAX_WORDS - 1)
        return nb_fail(NB_EVALUE, "%s: too many attributes", l->op->name);
    if (!nb_grow(&l->attr, room, l->nattr + 1, sizeof word)) return false;
    l->attr[l->nattr++] = word;
    return true;
}

static bool read_value(reader *r, const nb_param *p, nb_line *l, int *room)
{
    bool list = p->kind == NB_P_AXES || p->kind == NB_P_INTS;
    int64_t v = 0;
    char *end;
    blanks(r);
    if (take(r, "None")) return add_word(l, room, NB_NONE);
    if (take(r, "True")) return add_word(l, room, 1);
    if (take(r, "False")) return add_word(l, room, 0);
    if (p->kind == NB_P_FLOAT) {
        double f = strtod(r->at, &end);
        memcpy(&v, &f, sizeof v);
        if (end == r->at) return wrong(r, "a number");
        r->at = end;
        return add_word(l, room, v);
    }
    if (p->kind == NB_P_DTYPE) {
        if (!need(r, "@")) return false;
        v = read_dtype(r);
        return v ? add_word(l, room, v) : wrong(r, "a dtype");
    }
    if (p->kind == NB_P_TEXT) {
        const char *close = *r->at == '"' ? strchr(r->at + 1, '"') : NULL;
        if (!close) return wrong(r, "a quoted text");
        const char *text = nb_intern(r->at + 1, (size_t)(close - r->at - 1));
        r->at = close + 1;
        return text && add_word(l, room, (int64_t)(intptr_t)text);
    }
    if (list && take(r, "(")) {
        int count = l->nattr;
        if (!add_word(l, room, 0)) return false;
        while (!take(r, ")")) {
            if (take(r, ",")) continue;
            if (!read_int(r, &v) || !add_word(l, room, v)) return false;
            l->attr[count]++;
        }
        return true;
    }
    if (!read_int(r, &v) || (list && !add_word(l, room, 1))) return false;
    return add_word(l, room, v);
}

static bool read_arguments(reader *r, nb_line *l)
{
    int in_room = 0, attr_room = 0, k = 0;
    const nb_params *p = l->op->parsed;
    while (!take(r, ")")) {
        if (take(r, ",")) continue;
        blanks(r);
        if (isalpha((unsigned char)*r->at)) {
            while (k < p->n && p->param[k].kind <= NB_P_TENSORS)
                k++;
            if (k == p->n) return wrong(r, "no more attributes");
            if (!need(r, p->param[k].name) || !need(r, "=") ||
                !read_value(r, &p->param[k], l, &attr_room))
                return false;
            k++;
            continue;
        }
        int line;
        if (!read_ref(r, &line) ||
            !nb_grow(&l->in, &in_room, l->nin + 1, sizeof line))
            return false;
        l->in[l->nin++] = line;
    }
    while (k < p->n && p->param[k].kind <= NB_P_TENSORS)
        k++;
    return k == p->n || wrong(r, p->param[k].name);
}

static nb_op *read_op(reader *r)
{
    char name[64];
    size_t n = 0;
    blanks(r);
    while (n < sizeof name - 1 &&
           (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')) {
        name[n] = r->at[n];
        n++;
    }
    name[n] = '\0';
    static nb_op *const core[] = {&nb_op_part, &nb_op_detach, &nb_op_hide,
                                  &nb_op_show, &nb_op_spread};
    nb_op *op = nb_op_find(name);
    for (size_t i = 0; !op && i < sizeof core / sizeof core[0]; i++)
        if (!strcmp(core[i]->name, name)) op = core[i];
    if (!op) return wrong(r, "an op"), NULL;
    r->at += n;
    return nb_op_ready(op) ? op : NULL;
}

/* Lanes that a line has and that none of the ops before named yet. */
static void number_lanes(reader *r, nb_line *l)
{
    if (nb_op_moves_lanes(l->op) && l->nattr > 1 && l->attr[1] > r->g->nlanes)
        r->g->nlanes = (int)l->attr[1];
    if (l->kind != NB_LINE_INPUT) return;
    for (int d = 0; d < l->shape.nlanes; d++)
        l->shape.lane[d].id = ++r->g->nlanes;
}

static bool read_line(reader *r)
{
    nb_line l = {.kind = NB_LINE_CALL};
    int before = r->ncalls;
    if (!name_line(r, false, 0) || !read_type(r, &l) || !need(r, "=")) {
        return false;
    }
    l.op = read_op(r);
    bool ok = l.op && need(r, "(") && read_arguments(r, &l);
    if (!ok) {
        nb_free(l.in);
        nb_free(l.attr);
        return false;
    }
    number_lanes(r, &l);
    r->call[before] = r->g->n; /* numbers it mentions are lines before it */
    return nb_graph_add(r->g, l);
}

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

static bool read_graph(reader *r)
{
    if (!need(r, "fn(")) return false;
    while (!take(r, ")")) {
        nb_line l = {.kind = NB_LINE_INPUT};
        if (!name_line(r, true, r->g->n) || !read_type(r, &l)) return false;
        take(r, ",");
        number_lanes(r, &l);
        if (!nb_graph_add(r->g, l)) return false;
        r->g->nx++;
    }
    if (!need(r, "{")) return false;
    while (!take(r, "return"))
        if (!read_line(r)) return false;
    return read_results(r);
}

nb_status nb_graph_parse(const char *text, nb_graph **out)
{
    reader r = {.at = text, .row = 1};
    r.g = nb_alloc_zero(sizeof *r.g);
    bool ok = r.g && read_graph(&r);
    nb_free(r.input);
    nb_free(r.call);
    if (ok && r.g->nlanes > 100) {
        nb_fail(NB_EVALUE, "graph text: more than 100 lanes");
        ok = false;
    }
    ok = ok && nb_graph_check(r.g) == NB_OK;
    if (!ok) {
        nb_graph_free(r.g);
        return nb_error_code();
    }
    *out = r.g;
    return NB_OK;
}
