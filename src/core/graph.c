/* graph.c - collecting what was recorded, checking, hashing, recording again.
 */
#include "core/graph.h"

#include "core/lanes.h"

#include <math.h>
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

void nb_graph_free(nb_graph *g)
{
    if (!g) return;
    for (int k = 0; k < g->n; k++) {
        nb_free(g->line[k].in);
        nb_free(g->line[k].attr);
        nb_drop(g->line[k].captured);
        nb_op_leave(g->line[k].op);
    }
    nb_free(g->line);
    nb_free(g->result);
    nb_free(g->lane_id);
    nb_free(g);
}

/* Collecting.  Under the graph lock, so a node's slot is its line. */

typedef struct collector {
    nb_graph *g;
    uint32_t mark;
    int id[NB_MAX_GRAPH_LANES];
    nb_tensor **stack;
    int depth, room;
} collector;

static int lane_number(collector *c, int id)
{
    for (int l = 0; l < c->g->nlanes; l++)
        if (c->id[l] == id) return l + 1;
    if (c->g->nlanes == (int)(sizeof c->id / sizeof c->id[0])) return 0;
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
    nb_line line = {.kind = kind, .dtype = (nb_dtype)x->dtype};
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
                    .op = x->op,
                    .multi = x->flags & NB_MULTI,
                    .nin = x->nin,
                    .nattr = x->nattr};
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
        ok = c.g->result && collect(&c, nx, x, ny, y);
    }
    nb_free(c.stack);
    if (ok && c.g->nlanes) {
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

int nb_graph_calls(const nb_graph *g)
{
    int n = 0;
    for (int k = 0; k < g->n; k++)
        n += g->line[k].kind == NB_LINE_CALL;
    return n;
}

int nb_graph_inputs(const nb_graph *g)
{
    return g->nx;
}

int nb_graph_results(const nb_graph *g)
{
    return g->ny;
}

/* Hashing: names and values, never addresses. */

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
    for (int k = 0; k < 2; k++)
        if (l->op->region[k])
            h ^= nb_graph_hash(l->op->region[k]) + (uint64_t)k;
    return h;
}

uint64_t nb_graph_hash(const nb_graph *g)
{
    uint64_t h = nb_hash(7, &g->nx, sizeof g->nx);
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        h = hash_type(h ^ (uint64_t)l->kind, l);
        if (l->kind == NB_LINE_NUMBER)
            h = nb_hash(h, &l->number, sizeof l->number);
        if (l->kind == NB_LINE_CALL) h = hash_call(h, l);
    }
    return nb_hash(h, g->result, (size_t)g->ny * sizeof *g->result);
}

/* Recording again. */

static nb_tensor *number_of(const nb_line *l)
{
    nb_tensor *x = nb_scalar_int(0, l->dtype);
    if (x) memcpy(x->data, &l->number, nb_dtype_size(l->dtype));
    return x;
}

/* The node with several results that the parts of `op` refer to. */
static nb_tensor *all_results(nb_op *op, nb_tensor **in, const nb_line *l)
{
    nb_tensor **part = nb_alloc((size_t)op->nout * sizeof *part), *all = NULL;
    nb_results r = {.room = op->nout, .out = part};
    if (part && nb_record_many(op, l->nin, in, l->nattr, l->attr, &r))
        all = nb_tensor_in(part[0])[0];
    nb_free(part);
    return all;
}

static nb_tensor *part_of(nb_tensor *all, const nb_line *l)
{
    nb_call c = nb_call_of(all);
    nb_shape shape;
    nb_dtype dtype;
    if (!nb_call_infer(&c, (int)l->attr[0], &shape, &dtype)) return NULL;
    return nb_node_new(&nb_op_part, NULL, dtype, &shape, 1, &all, 1, l->attr);
}

static nb_tensor *call_of(const nb_line *l, nb_tensor **value, const int *id)
{
    nb_tensor *few[8], **in = few, *y;
    int64_t attr[NB_MAX_WORDS];
    if (l->nin > 8 && !(in = nb_alloc((size_t)l->nin * sizeof *in)))
        return NULL;
    for (int i = 0; i < l->nin; i++)
        in[i] = value[l->in[i]];
    if (l->nattr) memcpy(attr, l->attr, (size_t)l->nattr * sizeof *attr);
    if (nb_op_moves_lanes(l->op)) attr[1] = id[attr[1]];
    if (l->op == &nb_op_part)
        y = part_of(in[0], l);
    else if (l->multi)
        y = all_results(l->op, in, l);
    else
        y = nb_record(l->op, l->nin, in, l->nattr, attr);
    if (in != few) nb_free(in);
    return y;
}

static bool has_lane(const nb_graph *g, nb_tensor *const *x, int id)
{
    for (int i = 0; i < g->nx; i++)
        for (int l = 0; l < x[i]->nlanes; l++)
            if (nb_tensor_lane(x[i])[l].id == id) return true;
    return false;
}

void nb_graph_match(const nb_graph *g, nb_tensor *const *x, int *id)
{
    bool settled[NB_MAX_GRAPH_LANES + 1] = {false};
    for (int n = 1; n <= g->nlanes; n++) {
        settled[n] = g->lane_id && has_lane(g, x, g->lane_id[n - 1]);
        id[n] = g->lane_id ? g->lane_id[n - 1] : nb_lane_fresh();
    }
    for (int i = 0; i < g->nx; i++)
        for (int l = 0; l < x[i]->nlanes && l < g->line[i].shape.nlanes; l++) {
            int n = g->line[i].shape.lane[l].id;
            if (!settled[n]) id[n] = nb_tensor_lane(x[i])[l].id;
            settled[n] = true;
        }
}

static bool record_all(const nb_graph *g, nb_tensor *const *x,
                       nb_tensor **value)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_graph_match(g, x, id);
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        value[k] = l->kind == NB_LINE_INPUT      ? x[k]
                   : l->kind == NB_LINE_NUMBER   ? number_of(l)
                   : l->kind == NB_LINE_CAPTURED ? l->captured
                                                 : call_of(l, value, id);
        if (!value[k]) return false;
    }
    return true;
}

static bool same_type(const nb_line *l, const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    bool same = l->multi || (l->dtype == x->dtype && l->shape.rank == s.rank &&
                             l->shape.nlanes == s.nlanes);
    for (int d = 0; same && !l->multi && d < s.rank; d++)
        same = nb_extent_same(l->shape.size[d], s.size[d]);
    for (int d = 0; same && !l->multi && d < s.nlanes; d++)
        same = nb_extent_same(l->shape.lane[d].size, s.lane[d].size) &&
               l->shape.lane[d].thin == s.lane[d].thin;
    return same;
}

/* Lanes may come and go: the ops of the graph carry what they are given. */
static bool same_visible(const nb_line *l, const nb_tensor *x)
{
    bool same = l->dtype == x->dtype && l->shape.rank == x->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = nb_extent_same(l->shape.size[d], nb_tensor_size(x)[d]);
    return same;
}

nb_status nb_graph_run(const nb_graph *g, int nx, nb_tensor *const *x,
                       nb_tensor **y)
{
    bool ok = nx == g->nx;
    if (!ok) nb_fail(NB_EVALUE, "graph: takes %d inputs, not %d", g->nx, nx);
    for (int i = 0; ok && i < nx; i++) {
        ok = x[i] && same_visible(&g->line[i], x[i]);
        if (!ok && x[i])
            nb_fail(NB_EVALUE, "graph: input %d has another type", i);
    }
    nb_tensor **value =
        ok ? nb_alloc((size_t)(g->n + 1) * sizeof *value) : NULL;
    ok = value && record_all(g, x, value);
    for (int i = 0; ok && i < g->ny; i++)
        y[i] = value[g->result[i]];
    nb_free(value);
    return NB_STATUS(ok);
}

static nb_tensor *placeholder(const nb_line *l, const int *id)
{
    nb_shape s = l->shape;
    for (int d = 0; d < s.nlanes; d++)
        s.lane[d].id = id[s.lane[d].id];
    return nb_node_new(NULL, NULL, l->dtype, &s, 0, NULL, 0, NULL);
}

static bool check(const nb_graph *g, nb_tensor **value)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    for (int n = 1; n <= g->nlanes; n++)
        id[n] = nb_lane_fresh();
    for (int i = 0; i < g->nx; i++)
        if (!(value[i] = placeholder(&g->line[i], id))) return false;
    if (!record_all(g, value, value)) return false;
    for (int k = 0; k < g->n; k++)
        if (!same_type(&g->line[k], value[k]))
            return nb_fail(NB_EVALUE,
                           "graph: line %d (%s) says %s%s, its op gives %s%s",
                           k, g->line[k].op ? g->line[k].op->name : "value",
                           nb_dtype_brief(g->line[k].dtype),
                           nb_shape_text(&g->line[k].shape),
                           nb_dtype_brief((nb_dtype)value[k]->dtype),
                           nb_shape_text(&(nb_shape){.rank = value[k]->rank}));
    return true;
}

/* The nodes of the graph on stand-ins, in a scope that the caller closes. */
static nb_tensor **stand_ins(const nb_graph *g)
{
    nb_tensor **value = nb_alloc((size_t)(g->n + 1) * sizeof *value);
    if (!value || nb_scope_open() != NB_OK) return nb_free(value), NULL;
    return value;
}

double nb_graph_flops(const nb_graph *g)
{
    nb_tensor **value = stand_ins(g);
    double total = NAN;
    if (!value) return NAN;
    if (check(g, value)) {
        total = 0;
        for (int k = 0; k < g->n; k++)
            if (g->line[k].kind == NB_LINE_CALL)
                total += nb_call_flops(value[k]);
    }
    nb_scope_close(0, NULL);
    nb_free(value);
    return total;
}

nb_status nb_graph_check(const nb_graph *g)
{
    nb_tensor **value = stand_ins(g);
    bool ok = value;
    if (ok) {
        ok = check(g, value);
        nb_scope_close(0, NULL);
    }
    nb_free(value);
    return NB_STATUS(ok);
}
