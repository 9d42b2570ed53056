/* pass_inline.c - programs that run once stand in the place of their call.
 *
 * The graph is recorded again with them, and collected.  What a program is
 * given goes through `again`: the program may be one that computes over what
 * was computed before, in order that it need not be kept, and would not be
 * there if the two became one.  It begins when all that it is given is there,
 * or it would run, and its results be kept, long before they are needed. */
#include "core/lanes.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

typedef struct recording {
    const nb_graph *g;
    int id[NB_MAX_GRAPH_LANES + 1]; /* of lanes: as they were recorded */
    nb_tensor **value;              /* by line */
    nb_tensor **inside; /* results of the program that stands for call `of` */
    int of, room;
} recording;

static bool is_number(const nb_tensor *x)
{
    return !x->op && !x->buffer && nb_tensor_done(x);
}

static nb_tensor *again(int n, nb_tensor *const *x)
{
    return nb_record(&nb_op_again, n, x, 0, NULL);
}

/* Something that is there when all computed ones of x are; NULL if none is
 * computed. */
static bool all_there(int n, nb_tensor *const *x, nb_tensor **computed,
                      nb_tensor **out)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (x[i]->op) computed[m++] = x[i];
    *out = m > 1 ? again(m, computed) : m ? computed[0] : NULL;
    return *out || !m;
}

static bool hold_apart(int n, nb_tensor **x)
{
    nb_tensor **computed = nb_alloc((size_t)(n + 1) * sizeof *x), *all = NULL;
    bool ok = computed && all_there(n, x, computed, &all);
    for (int i = 0; ok && i < n; i++) {
        bool alone = !all || all == x[i];
        if (is_number(x[i])) continue;
        x[i] = again(alone ? 1 : 2, (nb_tensor *[]){x[i], all});
        ok = x[i];
    }
    nb_free(computed);
    return ok;
}

static bool run_inside(recording *r, const nb_line *l, nb_tensor **in)
{
    const nb_graph *program = l->op->region[0];
    for (int i = 0; i < l->nin; i++)
        in[i] = r->value[l->in[i]];
    for (int k = 0; !program && k < l->op->nout; k++)
        r->inside[k] = in[k];
    return !program || (hold_apart(l->nin, in) &&
                        nb_graph_run(program, l->nin, in, r->inside) == NB_OK);
}

static bool inline_call(recording *r, int k)
{
    const nb_line *l = &r->g->line[k];
    int n = l->op->region[0] ? l->op->region[0]->ny : l->op->nout;
    nb_tensor **in = nb_alloc((size_t)(l->nin + 1) * sizeof *in);
    bool ok = in && nb_grow(&r->inside, &r->room, n + 1, sizeof *in) &&
              run_inside(r, l, in);
    r->of = k;
    nb_free(in);
    return ok;
}

/* Result k of the program, in the lanes that the call gives it. */
static nb_tensor *part(recording *r, const nb_line *l)
{
    nb_tensor *x = r->inside[l->attr[0]];
    for (int d = 0; x && d < l->shape.nlanes; d++) {
        nb_lane lane = l->shape.lane[d];
        lane.id = r->id[lane.id];
        x = nb_spread(x, lane);
    }
    return x;
}

static bool record(recording *r)
{
    const nb_graph *g = r->g;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        nb_shape s = l->shape;
        for (int d = 0; d < s.nlanes; d++)
            s.lane[d].id = r->id[s.lane[d].id];
        if (l->op && l->op->inlines) {
            if (!inline_call(r, k)) return false;
            continue;
        }
        if (l->kind == NB_LINE_INPUT)
            r->value[k] =
                nb_leaf_on(l->device, nb_node_new(NULL, NULL, l->dtype, &s, 0,
                                                  NULL, 0, NULL));
        else if (l->op == &nb_op_part && l->in[0] == r->of)
            r->value[k] = part(r, l);
        else
            r->value[k] = nb_line_record(l, r->value, r->id);
        if (!r->value[k]) return false;
    }
    return true;
}

/* Results, and effects that no result comes after. */
static bool collect(recording *r, nb_graph **out)
{
    const nb_graph *g = r->g;
    nb_tensor **y = nb_alloc((size_t)(g->ny + g->n + 1) * sizeof *y);
    int n = g->ny;
    for (int i = 0; y && i < g->ny; i++)
        y[i] = r->value[g->result[i]];
    for (int k = 0; y && !g->ny && k < g->n; k++)
        if (g->line[k].op && g->line[k].op->effect) y[n++] = r->value[k];
    bool ok = y && nb_graph_of(g->nx, r->value, n, y, out) == NB_OK;
    if (ok) (*out)->ny = g->ny;
    nb_free(y);
    return ok;
}

static bool record_again(nb_graph *g)
{
    recording r = {.g = g, .of = -1};
    nb_graph *is = NULL;
    nb_graph_name_lanes(g, r.id);
    r.value = nb_alloc_zero((size_t)(g->n + 1) * sizeof *r.value);
    bool ok = r.value && nb_scope_open() == NB_OK;
    if (ok) {
        ok = record(&r) && collect(&r, &is);
        nb_scope_close(0, NULL);
    }
    if (ok) {
        nb_graph was = *g;
        *g = *is;
        *is = was;
        nb_graph_free(is);
    }
    nb_free(r.value);
    nb_free(r.inside);
    return ok;
}

/* Programs may hold others. */
bool nb_pass_inline(nb_graph *g)
{
    for (int k = 0; k < g->n; k++) {
        if (!g->line[k].op || !g->line[k].op->inlines) continue;
        if (!record_again(g)) return false;
        k = -1;
    }
    return true;
}
