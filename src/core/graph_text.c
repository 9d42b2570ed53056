/* graph_text.c - the listing of a graph.
 *
 * Programs inside ops are listed with them, so names are counted over the whole
 * listing: those of a call before those of its programs. */
#include "core/convert.h"
#include "core/graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    nb_text *t;
    int what;          /* NB_TEXT_... */
    int inputs, calls; /* names given so far */
    int depth;         /* of indentation */
    bool on_mesh;      /* in a block of calls on a mesh */
} printer;

/* A program being printed. */
typedef struct page {
    const nb_graph *g;
    int *number; /* in the names of its lines */
    int *taken;  /* the end of the last block that takes it */
} page;

static const char bold[] = "\033[1m", cyan[] = "\033[36m", grey[] = "\033[90m";

static void colour(printer *p, const char *code)
{
    if (p->what & NB_TEXT_COLOURS) nb_text_add(p->t, "%s", code);
}

static void plain(printer *p)
{
    colour(p, "\033[0m");
}

static void keyword(printer *p, const char *word)
{
    colour(p, bold);
    nb_text_add(p->t, "%s", word);
    plain(p);
}

static void indent(printer *p)
{
    nb_text_add(p->t, "%*s", 2 * p->depth, "");
}

/* Types */

static void print_lanes(printer *p, const nb_line *l)
{
    const nb_shape *s = &l->shape;
    if (!s->nlanes) return;
    colour(p, grey);
    for (int d = s->nlanes - 1; d >= 0; d--) {
        nb_lane lane = s->lane[d];
        nb_text_add(p->t, "%lld%s", (long long)nb_extent_get(lane.size),
                    lane.thin ? "~" : "");
        if (l->sharding) nb_layout_print.dim(p->t, l->sharding, d);
        if (l->kind == NB_LINE_INPUT && lane.id != d + 1)
            nb_text_add(p->t, "'%d", lane.id);
        if (d) nb_text_add(p->t, ",");
    }
    nb_text_add(p->t, " |");
    plain(p);
    if (s->rank) nb_text_add(p->t, " ");
}

static void print_type(printer *p, const nb_line *l)
{
    nb_text_add(p->t, "%s[", nb_dtype_brief(l->dtype));
    print_lanes(p, l);
    for (int d = 0; d < l->shape.rank; d++) {
        nb_text_add(p->t, "%s%lld", d ? "," : "",
                    (long long)nb_extent_get(l->shape.size[d]));
        if (l->sharding)
            nb_layout_print.dim(p->t, l->sharding, l->shape.nlanes + d);
    }
    nb_text_add(p->t, "]");
    if (l->sharding) nb_layout_print.pending(p->t, l->sharding);
}

/* Numbers: as short as reads back the same, floats with a point. */

static void shortest(const nb_line *l, char *to, size_t room)
{
    double f = nb_read_f64(&l->number, l->dtype);
    int least = fabs(f) >= 10 && fabs(f) < 1e6 ? 1 + (int)log10(fabs(f)) : 1;
    int64_t back;
    for (int digits = least; digits <= 17; digits++) {
        back = 0;
        snprintf(to, room, "%.*g", digits, f);
        nb_write_f64(&back, l->dtype, strtod(to, NULL));
        if (!memcmp(&back, &l->number, nb_dtype_size(l->dtype))) break;
    }
    if (!strpbrk(to, ".en")) strcat(to, ".0"); /* n: nan, inf */
}

static void print_number(nb_text *t, const nb_line *l)
{
    char text[48];
    if (nb_dtype_is_float(l->dtype))
        shortest(l, text, sizeof text - 3);
    else if (l->dtype == NB_U64)
        snprintf(text, sizeof text, "%llu", (unsigned long long)l->number);
    else
        snprintf(text, sizeof text, "%lld",
                 (long long)nb_read_i64(&l->number, l->dtype));
    nb_text_add(t, "%s:%s", text, nb_dtype_brief(l->dtype));
}

/* Names */

static void print_name(printer *p, char kind, int number)
{
    colour(p, cyan);
    nb_text_add(p->t, "%%%c%d", kind, number);
    plain(p);
}

/* %a1 for inputs, %v1 for calls, a number as itself, ? for what is captured. */
static void print_ref(printer *p, const page *g, int k)
{
    const nb_line *l = &g->g->line[k];
    if (l->kind == NB_LINE_CAPTURED)
        nb_text_add(p->t, "?");
    else if (l->kind == NB_LINE_NUMBER)
        print_number(p->t, l);
    else
        print_name(p, l->kind == NB_LINE_INPUT ? 'a' : 'v', g->number[k]);
}

static void print_result(printer *p, page *g, int k)
{
    g->number[k] = ++p->calls;
    print_name(p, 'v', p->calls);
    nb_text_add(p->t, ": ");
    print_type(p, &g->g->line[k]);
}

/* The results of call k; returns the line after them. */
static int print_results(printer *p, page *g, int k)
{
    const nb_line *l = &g->g->line[k];
    if (!l->multi) {
        print_result(p, g, k);
        return k + 1;
    }
    int part = k + 1, n = l->op->nout > 1 ? l->op->nout : 1;
    for (int i = 0; i < n; i++) {
        if (i) nb_text_add(p->t, ", ");
        bool used = part < g->g->n && g->g->line[part].op == &nb_op_part &&
                    g->g->line[part].in[0] == k &&
                    g->g->line[part].attr[0] == i;
        if (used)
            print_result(p, g, part++);
        else
            nb_text_add(p->t, "_");
    }
    return part;
}

/* Static arguments by name, without those that are None unasked. */

typedef struct argument {
    const nb_param *param;
    const int64_t *at;
} argument;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const argument *)a)->param->name,
                  ((const argument *)b)->param->name);
}

static bool unasked(const argument *a)
{
    const nb_param *p = a->param;
    return *a->at == NB_NONE &&
           (p->has_default ? p->value[0] == NB_NONE : p->nullable);
}

static int arguments(const nb_line *l, argument *all)
{
    nb_call c = {.op = l->op, .attr = l->attr, .nattr = l->nattr};
    int n = 0;
    for (int k = 0; k < NB_MAX_PARAMS; k++) {
        argument a = {0};
        if (!(a.at = nb_arg_find(&c, k, &a.param))) break;
        if (!unasked(&a)) all[n++] = a;
    }
    qsort(all, (size_t)n, sizeof *all, by_name);
    return n;
}

/* A layout is an argument as itself. */
static void print_target(printer *p, const nb_line *l)
{
    nb_text_add(p->t, ", ");
    nb_layout_print.target(p->t, (const void *)(intptr_t)l->attr[0]);
}

static void print_call(printer *p, const page *g, const nb_line *l)
{
    argument all[NB_MAX_PARAMS];
    int n = l->op->places ? 0 : arguments(l, all);
    nb_text_add(p->t, "%s(", l->op->name);
    for (int i = 0; i < l->nin; i++) {
        if (i) nb_text_add(p->t, ", ");
        print_ref(p, g, l->in[i]);
    }
    for (int i = 0; i < n; i++) {
        nb_text_add(p->t, l->nin || i ? ", %s=" : "%s=", all[i].param->name);
        nb_arg_value(p->t, all[i].param, all[i].at);
    }
    if (l->op->places) print_target(p, l);
    nb_text_add(p->t, ")");
}

static void print_source(printer *p, const nb_line *l)
{
    const char *source = nb_source_text(l->source, l->source_line);
    if (!(p->what & NB_TEXT_SOURCES) || !*source) return;
    colour(p, grey);
    nb_text_add(p->t, "  # %s", source);
    plain(p);
}

/* Programs */

static bool print_graph(printer *p, const nb_graph *g, const char *name);

static bool print_regions(printer *p, const nb_line *l)
{
    bool ok = true;
    p->depth++;
    for (int i = 0; ok && i < 2 && l->op->region[i]; i++) {
        const char *name = l->op->region_name[i];
        indent(p);
        ok = print_graph(p, l->op->region[i], name ? name : "body");
    }
    p->depth--;
    indent(p);
    nb_text_add(p->t, "}\n");
    return ok;
}

static int print_line(printer *p, page *g, int k)
{
    const nb_line *l = &g->g->line[k];
    if (l->kind != NB_LINE_CALL) return k + 1;
    indent(p);
    int next = print_results(p, g, k);
    nb_text_add(p->t, " = ");
    print_call(p, g, l);
    if (l->op->region[0]) nb_text_add(p->t, " {");
    print_source(p, l);
    nb_text_add(p->t, "\n");
    if (l->op->region[0] && !print_regions(p, l)) return -1;
    return next;
}

/* One input a line for the whole, all on one for a program inside. */
static void print_inputs(printer *p, page *g)
{
    bool whole = p->depth == 1;
    nb_text_add(p->t, whole ? "(\n" : "(");
    for (int k = 0; k < g->g->nx; k++) {
        if (whole) indent(p);
        g->number[k] = ++p->inputs;
        print_name(p, 'a', p->inputs);
        nb_text_add(p->t, ": ");
        print_type(p, &g->g->line[k]);
        nb_text_add(p->t, whole ? ",\n" : k + 1 < g->g->nx ? ", " : "");
    }
    nb_text_add(p->t, ") {\n");
}

static void print_return(printer *p, const page *g)
{
    bool one = g->g->ny == 1;
    indent(p);
    keyword(p, "return");
    nb_text_add(p->t, one ? " " : " (");
    for (int i = 0; i < g->g->ny; i++) {
        if (i) nb_text_add(p->t, ", ");
        print_ref(p, g, g->g->result[i]);
    }
    nb_text_add(p->t, one ? "\n" : ")\n");
}

/* How the first result of call k lies; NULL for one that lies on no mesh, and
 * for one that moves its operand. */
static const void *layout_of(const nb_graph *g, int k)
{
    const nb_line *l = &g->line[k];
    if (l->op->places) return NULL;
    return l->multi && k + 1 < g->n ? g->line[k + 1].sharding : l->sharding;
}

/* The line after the last of a run of calls that lie on one mesh. */
static int run_end(const nb_graph *g, int k)
{
    const void *first = layout_of(g, k);
    for (; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (l->kind != NB_LINE_CALL || l->op == &nb_op_part) continue;
        const void *own = layout_of(g, k);
        if (!own || !nb_layout_print.same_mesh(first, own)) break;
    }
    return k;
}

/* What lines from .. end - 1 take of those before them. */
static void print_taken(printer *p, page *g, int from, int end)
{
    int n = 0;
    for (int k = from; k < end; k++)
        for (int i = 0; i < g->g->line[k].nin; i++) {
            int in = g->g->line[k].in[i];
            nb_line_kind kind = g->g->line[in].kind;
            bool named = kind == NB_LINE_INPUT || kind == NB_LINE_CALL;
            if (in >= from || !named || g->taken[in] == end) continue;
            g->taken[in] = end;
            if (n++) nb_text_add(p->t, ", ");
            print_ref(p, g, in);
        }
}

/* Calls on one mesh, which each of its devices runs on its own: spmd @pod(%a1)
 * { ... }. */
static int print_run(printer *p, page *g, int k)
{
    int end = run_end(g->g, k);
    indent(p);
    keyword(p, "spmd");
    nb_text_add(p->t, " ");
    nb_layout_print.name(p->t, layout_of(g->g, k));
    nb_text_add(p->t, "(");
    print_taken(p, g, k, end);
    nb_text_add(p->t, ") {\n");
    p->depth++;
    p->on_mesh = true;
    while (k >= 0 && k < end)
        k = print_line(p, g, k);
    p->on_mesh = false;
    p->depth--;
    indent(p);
    nb_text_add(p->t, "}\n");
    return k;
}

static bool print_graph(printer *p, const nb_graph *graph, const char *name)
{
    page g = {.g = graph};
    g.number = nb_alloc_zero(2 * (size_t)(graph->n + 1) * sizeof *g.number);
    if (!g.number) return false;
    g.taken = g.number + graph->n + 1;
    keyword(p, name);
    p->depth++;
    print_inputs(p, &g);
    int k = graph->nx;
    while (k >= 0 && k < graph->n) {
        bool call = graph->line[k].kind == NB_LINE_CALL;
        bool run = call && !p->on_mesh && layout_of(graph, k);
        k = run ? print_run(p, &g, k) : print_line(p, &g, k);
    }
    if (k >= 0) print_return(p, &g);
    p->depth--;
    indent(p);
    nb_text_add(p->t, "}\n");
    nb_free(g.number);
    return k >= 0;
}

/* A line for each mesh. */
static void print_meshes(printer *p, const nb_graph *g)
{
    for (int k = 0; k < g->n; k++) {
        const void *own = g->line[k].sharding;
        bool known = !own;
        for (int i = 0; i < k && !known; i++)
            known = g->line[i].sharding &&
                    nb_layout_print.same_mesh(g->line[i].sharding, own);
        if (!known) nb_layout_print.mesh(p->t, own);
    }
}

static char *finished(nb_text *t, bool ok)
{
    if (ok && !t->failed) return t->data;
    nb_text_free(t);
    return NULL;
}

char *nb_graph_text_with(const nb_graph *g, int what)
{
    if (!g) return NB_STATUS(false), NULL;
    nb_text t = {0};
    printer p = {.t = &t, .what = what};
    print_meshes(&p, g);
    return finished(&t, print_graph(&p, g, "fn"));
}

char *nb_graph_text(const nb_graph *g)
{
    return nb_graph_text_with(g, NB_TEXT_PLAIN);
}

char *nb_graph_type_text(const nb_graph *g, int k)
{
    if (!g) return NB_STATUS(false), NULL;
    nb_text t = {0};
    printer p = {.t = &t};
    if (k < 0 || k >= g->n) return nb_fail(NB_EVALUE, "graph: no line %d", k);
    if (g->line[k].multi)
        nb_text_add(&t, "tuple");
    else
        print_type(&p, &g->line[k]);
    return finished(&t, true);
}

char *nb_graph_number_text(const nb_graph *g, int k)
{
    if (!g) return NB_STATUS(false), NULL;
    nb_text t = {0};
    if (k < 0 || k >= g->n || g->line[k].kind != NB_LINE_NUMBER)
        return nb_fail(NB_EVALUE, "graph: line %d is no number", k);
    print_number(&t, &g->line[k]);
    return finished(&t, true);
}
