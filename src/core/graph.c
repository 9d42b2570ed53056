/* graph.c - collecting what was recorded into lines; hashing them. */
#include "core/graph.h"

#include "core/lanes.h"

#include <string.h>

bool nb_op_moves_lanes(const nb_op *op)
{
    return op && op->dim_of;
}

nb_line *nb_graph_add(nb_graph *g, nb_line line)
{
    if (!nb_grow(&g->line, &g->room, g->n + 1, sizeof line)) {
        nb_free(line.in);
        nb_free(line.attr);
        return NULL;
    }
    g->line[g->n] = line;
    nb_op_use(line.op);
    return &g->line[g->n++];
}

void nb_line_free(nb_line *l)
{
    nb_free(l->in);
    nb_free(l->attr);
    nb_drop(l->captured);
    nb_op_leave(l->op);
}

void nb_graph_free(nb_graph *g)
{
    if (!g) return;
    for (int k = 0; k < g->n; k++)
        nb_line_free(&g->line[k]);
    nb_free(g->line);
    nb_free(g->result);
    nb_free(g->lane_id);
    nb_free(g);
}

/* Collecting.  Under the graph lock, so a node's slot is its line. */

typedef struct collector {
    nb_graph *g;
    uint32_t mark;
    int id[NB_MAX_GRAPH_LANES]; /* of lanes, in the order they were met */
    bool full;
    nb_tensor **stack;
    int depth, room;
} collector;

static int lane_number(collector *c, int id)
{
    for (int l = 0; l < c->g->nlanes; l++)
        if (c->id[l] == id) return l + 1;
    if (c->g->nlanes == NB_MAX_GRAPH_LANES) {
        nb_fail(NB_EVALUE, "graph: more than %d hidden axes",
                NB_MAX_GRAPH_LANES);
        c->full = true;
        return 1;
    }
    c->id[c->g->nlanes++] = id;
    return c->g->nlanes;
}

static nb_shape numbered(collector *c, const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    for (int l = 0; l < s.nlanes; l++)
        s.lane[l].id = lane_number(c, s.lane[l].id);
    return s;
}

/* Aliases are dropped, but for those that are inputs: two of one tensor are two
 * inputs. */
static nb_tensor *behind_alias(const collector *c, nb_tensor *x)
{
    while (x->op == &nb_op_alias && x->mark != c->mark)
        x = nb_tensor_in(x)[0];
    return x;
}

static bool add_leaf(collector *c, nb_tensor *x, nb_line_kind kind)
{
    nb_line line = {.kind = kind,
                    .dtype = (nb_dtype)x->dtype,
                    .sharding = x->sharding,
                    .device = x->device};
    line.shape = numbered(c, x);
    if (kind == NB_LINE_NUMBER)
        memcpy(&line.number, x->data, nb_dtype_size(line.dtype));
    if (kind == NB_LINE_CAPTURED) line.captured = nb_keep(x);
    x->mark = c->mark;
    x->slot = (uint32_t)c->g->n;
    if (nb_graph_add(c->g, line)) return true;
    nb_drop(line.captured);
    return false;
}

static bool is_number(const nb_tensor *x)
{
    return !x->op && !x->buffer && nb_tensor_done(x);
}

/* Numbers stand before each call that uses them, in its order, as they do in a
 * listing. */
static bool add_numbers(collector *c, nb_tensor *x, int *in)
{
    for (int i = 0; i < x->nin; i++) {
        nb_tensor *from = behind_alias(c, nb_tensor_in(x)[i]);
        bool input = from->mark == c->mark;
        in[i] = input ? (int)from->slot : c->g->n;
        if (input) continue;
        if (!add_leaf(c, from, NB_LINE_NUMBER)) return false;
        from->mark = 0;
    }
    return true;
}

static bool add_call(collector *c, nb_tensor *x)
{
    nb_line line = {.kind = NB_LINE_CALL,
                    .dtype = (nb_dtype)x->dtype,
                    .sharding = x->flags & NB_MULTI ? NULL : x->sharding,
                    .device = x->device,
                    .op = x->op,
                    .multi = x->flags & NB_MULTI,
                    .nin = x->nin,
                    .nattr = x->nattr,
                    .source = x->source,
                    .source_line = x->line,
                    .direction =
                        x->flags & (NB_BACKWARD | NB_TANGENT | NB_SILENT)};
    line.shape = numbered(c, x);
    line.in = nb_alloc((size_t)(x->nin + 1) * sizeof *line.in);
    line.attr = nb_alloc((size_t)(x->nattr + 1) * sizeof *line.attr);
    if (!line.in || !line.attr || !add_numbers(c, x, line.in)) {
        nb_free(line.in);
        nb_free(line.attr);
        return false;
    }
    for (int i = 0; i < x->nattr; i++)
        line.attr[i] = nb_tensor_attr(x)[i];
    if (nb_op_moves_lanes(x->op))
        line.attr[1] = lane_number(c, (int)line.attr[1]);
    x->mark = c->mark;
    x->slot = (uint32_t)c->g->n;
    return nb_graph_add(c->g, line);
}

static bool visit(collector *c, nb_tensor *root)
{
    if (!nb_grow(&c->stack, &c->room, 1, sizeof *c->stack)) return false;
    c->stack[0] = root;
    c->depth = 1;
    while (c->depth) {
        nb_tensor *x = c->stack[c->depth - 1];
        bool ready = true;
        if (x->mark == c->mark) {
            c->depth--;
            continue;
        }
        for (int i = x->op ? x->nin - 1 : -1; i >= 0; i--) {
            nb_tensor *in = behind_alias(c, nb_tensor_in(x)[i]);
            if (in->mark == c->mark || is_number(in)) continue;
            ready = false;
            if (!nb_grow(&c->stack, &c->room, c->depth + 1, sizeof *c->stack))
                return false;
            c->stack[c->depth++] = in;
        }
        if (!ready) continue;
        c->depth--;
        if (!(x->op
                  ? add_call(c, x)
                  : add_leaf(c, x,
                             is_number(x) ? NB_LINE_NUMBER : NB_LINE_CAPTURED)))
            return false;
    }
    return true;
}

static bool collect(collector *c, int nx, nb_tensor *const *x, int ny,
                    nb_tensor *const *y)
{
    bool ok = true;
    nb_graph_lock();
    c->mark = nb_graph_mark();
    for (int i = 0; ok && i < nx; i++)
        ok = add_leaf(c, x[i], NB_LINE_INPUT);
    for (int i = 0; ok && i < ny; i++) {
        nb_tensor *root = behind_alias(c, y[i]);
        ok = visit(c, root);
        c->g->result[i] = (int)root->slot;
    }
    nb_graph_unlock();
    return ok && !c->full;
}

/* Lanes by age, which is how tensors store them. */

static void renumber(collector *c)
{
    nb_graph *g = c->g;
    int to[NB_MAX_GRAPH_LANES + 1], sorted[NB_MAX_GRAPH_LANES];
    for (int l = 0; l < g->nlanes; l++) {
        int older = 0;
        for (int m = 0; m < g->nlanes; m++)
            older += c->id[m] < c->id[l];
        to[l + 1] = older + 1;
        sorted[older] = c->id[l];
    }
    memcpy(c->id, sorted, (size_t)g->nlanes * sizeof sorted[0]);
    for (int k = 0; k < g->n; k++) {
        nb_line *l = &g->line[k];
        for (int d = 0; d < l->shape.nlanes; d++)
            l->shape.lane[d].id = to[l->shape.lane[d].id];
        if (nb_op_moves_lanes(l->op)) l->attr[1] = to[l->attr[1]];
    }
}

/* Results of a call that has several move to it.  Each has one line, however
 * many nodes ask for it. */

typedef struct order {
    int *first, *next; /* parts of a line, by number; -1: none */
    int *to;           /* where a line goes */
    nb_line *line;
} order;

static void order_free(order *o)
{
    nb_free(o->first), nb_free(o->next), nb_free(o->to), nb_free(o->line);
}

static bool is_part(const nb_line *l)
{
    return l->op == &nb_op_part;
}

static void list_parts(const nb_graph *g, order *o)
{
    for (int k = 0; k < g->n; k++)
        o->first[k] = o->next[k] = -1;
    for (int k = g->n - 1; k >= 0; k--) {
        if (!is_part(&g->line[k])) continue;
        int *at = &o->first[g->line[k].in[0]];
        while (*at >= 0 && g->line[*at].attr[0] < g->line[k].attr[0])
            at = &o->next[*at];
        o->next[k] = *at;
        *at = k;
    }
}

static void place_lines(nb_graph *g, order *o)
{
    int n = 0;
    for (int k = 0; k < g->n; k++) {
        if (is_part(&g->line[k])) continue;
        o->to[k] = n;
        o->line[n++] = g->line[k];
        for (int p = o->first[k], last = -1; p >= 0; last = p, p = o->next[p]) {
            bool again =
                last >= 0 && g->line[last].attr[0] == g->line[p].attr[0];
            o->to[p] = again ? o->to[last] : n;
            if (!again) o->line[n++] = g->line[p];
        }
    }
    for (int k = 0; k < g->n; k++)
        if (o->line[o->to[k]].in != g->line[k].in) nb_line_free(&g->line[k]);
    memcpy(g->line, o->line, (size_t)n * sizeof *g->line);
    g->n = n;
}

static bool gather_parts(nb_graph *g)
{
    bool any = false;
    size_t n = (size_t)(g->n + 1);
    for (int k = 0; k < g->n; k++)
        any = any || g->line[k].multi;
    if (!any) return true;
    order o = {.first = nb_alloc(n * sizeof(int)),
               .next = nb_alloc(n * sizeof(int)),
               .to = nb_alloc(n * sizeof(int)),
               .line = nb_alloc(n * sizeof(nb_line))};
    bool ok = o.first && o.next && o.to && o.line;
    if (ok) {
        list_parts(g, &o);
        place_lines(g, &o);
    }
    for (int k = 0; ok && k < g->n; k++)
        for (int i = 0; i < g->line[k].nin; i++)
            g->line[k].in[i] = o.to[g->line[k].in[i]];
    for (int i = 0; ok && i < g->ny; i++)
        g->result[i] = o.to[g->result[i]];
    order_free(&o);
    return ok;
}

nb_status nb_graph_of(int nx, nb_tensor *const *x, int ny, nb_tensor *const *y,
                      nb_graph **out)
{
    collector c = {0};
    for (int i = 0; i < nx + ny; i++)
        if (!(i < nx ? x[i] : y[i - nx])) {
            nb_fail(NB_EVALUE, "graph: an input or result is NULL");
            return nb_error_code();
        }
    c.g = nb_alloc_zero(sizeof *c.g);
    bool ok = c.g;
    if (ok) {
        c.g->nx = nx;
        c.g->ny = ny;
        c.g->result = nb_alloc((size_t)(ny + 1) * sizeof *c.g->result);
        ok = c.g->result && collect(&c, nx, x, ny, y) && gather_parts(c.g);
    }
    nb_free(c.stack);
    if (ok && c.g->nlanes) {
        renumber(&c);
        size_t bytes = (size_t)c.g->nlanes * sizeof *c.g->lane_id;
        c.g->lane_id = nb_alloc(bytes);
        ok = c.g->lane_id;
        if (ok) memcpy(c.g->lane_id, c.id, bytes);
    }
    if (!ok) {
        nb_graph_free(c.g);
        return nb_error_code();
    }
    *out = c.g;
    return NB_OK;
}

/* Hashing: names and values, no addresses of what comes and goes. */

static uint64_t hash_type(uint64_t h, const nb_line *l)
{
    int64_t word[3 + NB_MAX_RANK + 3 * NB_MAX_LANES];
    int n = 0;
    word[n++] = l->dtype;
    word[n++] = l->shape.rank;
    word[n++] = l->shape.nlanes;
    for (int d = 0; d < l->shape.rank; d++)
        word[n++] = l->shape.size[d].code;
    for (int d = 0; d < l->shape.nlanes; d++) {
        word[n++] = l->shape.lane[d].id;
        word[n++] = l->shape.lane[d].size.code;
        word[n++] = l->shape.lane[d].thin;
    }
    return nb_hash(h, word, (size_t)n * sizeof word[0]);
}

static uint64_t hash_call(uint64_t h, const nb_line *l)
{
    nb_text t = {0};
    nb_call c = {.op = l->op, .attr = l->attr, .nattr = l->nattr};
    h = nb_hash(h, l->op->name, strlen(l->op->name));
    h = nb_hash(h, l->in, (size_t)l->nin * sizeof *l->in);
    for (int k = 0; nb_arg_print(&c, k, &t); k++)
        nb_text_add(&t, ",");
    h = nb_hash(h, nb_text_get(&t), (size_t)t.n);
    nb_text_free(&t);
    if (l->op == &nb_op_part || nb_op_moves_lanes(l->op))
        h = nb_hash(h, l->attr, (size_t)l->nattr * sizeof *l->attr);
    if (l->op->identity)
        h = nb_hash(h, &l->op->identity, sizeof l->op->identity);
    for (int k = 0; k < 2; k++)
        if (l->op->region[k]) {
            uint64_t inside = nb_graph_hash(l->op->region[k]);
            h = nb_hash(h, &inside, sizeof inside);
        }
    return h;
}

uint64_t nb_graph_hash(const nb_graph *g)
{
    if (!g) return 0;
    uint64_t h = nb_hash(7, &g->nx, sizeof g->nx);
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        h = hash_type(h ^ (uint64_t)l->kind, l);
        if (l->kind == NB_LINE_NUMBER)
            h = nb_hash(h, &l->number, sizeof l->number);
        if (l->kind == NB_LINE_CALL) h = hash_call(h, l);
        if (l->device) h = nb_hash(h, &l->device, sizeof l->device);
        if (l->given) h = nb_hash(h, &l->given, sizeof l->given);
        if (l->sharding) /* one of a kind, as long as the process */
            h = nb_hash(h, &l->sharding, sizeof l->sharding);
    }
    return nb_hash(h, g->result, (size_t)g->ny * sizeof *g->result);
}

bool nb_graph_has_effect(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].op && g->line[k].op->effect) return true;
    return false;
}

/* Ops that hold programs */

static void release(nb_op *op)
{
    for (int k = 0; k < 2; k++)
        nb_graph_free(op->region[k]);
    if (op->forget) op->forget(op);
    nb_free(op);
}

nb_op *nb_op_holding(nb_op *form, int nout)
{
    nb_op *op = nb_op_ready(form) ? nb_alloc_zero(sizeof *op) : NULL;
    if (!op) return NULL;
    op->name = form->name;
    op->params = form->params;
    op->parsed = form->parsed;
    op->kind = NB_RULE;
    op->nout = nout;
    op->check = form->check;
    op->result = form->result;
    op->execute = form->execute;
    op->anywhere = form->anywhere;
    op->prepare = form->prepare;
    op->needs = form->needs;
    op->repeats = form->repeats;
    op->join = form->join;
    op->widen = form->widen;
    op->push = form->push;
    op->pull = form->pull;
    op->inlines = form->inlines;
    op->release = release;
    for (int k = 0; k < 2; k++)
        op->region_name[k] = form->region_name[k];
    op->ready = true;
    op->uses = 1;
    return op;
}
