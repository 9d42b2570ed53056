/* kept.c - programs of turns: making, keeping and running them. */
#include "transform/kept.h"

#include <string.h>

struct nb_kept {
    nb_kept *next;
    int slot;
    int nx, varying; /* inputs of the graph */
    int device;
    nb_turn_programs p;
};

void nb_turn_free(nb_turn_programs *t)
{
    nb_programs_run.drop(t->turn);
    nb_programs_run.drop(t->before);
    nb_free(t->bytes);
    *t = (nb_turn_programs){0};
}

static void kept_free(nb_kept *k)
{
    if (!k) return;
    nb_turn_free(&k->p);
    nb_free(k);
}

static void forget(nb_op *op)
{
    for (nb_kept *k = op->kept, *next; k; k = next) {
        next = k->next;
        kept_free(k);
    }
}

const nb_kept *nb_kept_peek(const nb_op *op, int slot)
{
    nb_kept *k = atomic_load_explicit(&op->kept, memory_order_acquire);
    while (k && k->slot != slot)
        k = k->next;
    return k;
}

static bool in_lanes(int n, nb_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (x[i]->nlanes) return true;
    return false;
}

const nb_kept *nb_kept_find(const nb_call *c, int slot)
{
    const nb_kept *k = nb_kept_peek(c->op, slot);
    if (!k || in_lanes(c->nin, c->in) || !nb_programs_run.ready(k->p.turn) ||
        (k->p.before && !nb_programs_run.ready(k->p.before)))
        return NULL;
    return k;
}

int64_t nb_kept_bytes(const nb_kept *k)
{
    int64_t bytes = 0, before = 0;
    if (!k) return 0;
    for (int i = 0; i < k->p.nbefore; i++)
        bytes += (int64_t)k->p.bytes[i];
    if (k->p.before) before = nb_programs_run.bytes(k->p.before);
    int64_t turn = nb_programs_run.bytes(k->p.turn);
    return bytes + (turn > before ? turn : before);
}

/* Making */

/* Lines that change from turn to turn, with their inputs or by themselves. */
static bool *find_varying(const nb_turn_of *of)
{
    const nb_graph *g = of->graph;
    bool *varies = nb_alloc((size_t)g->n + 1);
    for (int k = 0; varies && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        varies[k] = of->once || k < of->varying || (l->op && l->op->effect);
        for (int i = 0; i < l->nin; i++)
            varies[k] = varies[k] || varies[l->in[i]];
    }
    return varies;
}

/* Whether a line that does not vary is worth a place in memory: it computes
 * something from an input, and is no look that costs nothing. */
static bool is_work(const nb_graph *g, int k)
{
    const nb_line *l = &g->line[k];
    if (l->kind != NB_LINE_CALL || l->multi || l->op->view || l->op->view_only)
        return false;
    for (int i = 0; i < l->nin; i++)
        if (g->line[l->in[i]].kind != NB_LINE_NUMBER) return true;
    return false;
}

/* The lines that turns need of those that do not vary. */
static bool *find_before(const nb_turn_of *of, const bool *varies)
{
    const nb_graph *g = of->graph;
    bool *before = nb_alloc_zero((size_t)g->n + 1);
    bool *needed = before ? nb_alloc_zero((size_t)g->n + 1) : NULL;
    if (!needed) return nb_free(before), NULL;
    for (int k = 0; k < of->n; k++)
        needed[g->result[of->which ? of->which[k] : k]] = true;
    for (int k = g->n - 1; k >= g->nx; k--) {
        if (!needed[k]) continue;
        before[k] = !varies[k] && is_work(g, k);
        for (int i = 0; !before[k] && i < g->line[k].nin; i++)
            needed[g->line[k].in[i]] = true;
    }
    nb_free(needed);
    return before;
}

static size_t bytes_of(const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    int64_t n;
    nb_shape_count(&s, &n);
    return (size_t)n * nb_dtype_size((nb_dtype)x->dtype);
}

static bool fill(nb_turn_programs *t, const nb_turn_of *of, const bool *before,
                 nb_tensor *const *node, nb_tensor *const *y)
{
    const nb_graph *g = of->graph;
    nb_list in = {0}, out = {0};
    bool ok = true, failed = nb_failed();
    for (int i = 0; ok && i < g->nx; i++)
        ok = nb_list_add(&in, node[i]);
    for (int i = g->nx; ok && i < g->n; i++) {
        if (!before[i]) continue;
        t->bytes[t->nbefore++] = bytes_of(node[i]);
        ok = nb_list_add(&in, node[i]);
    }
    for (int i = 0; ok && i < of->n; i++)
        ok = nb_list_add(
            &out, y ? y[i] : node[g->result[of->which ? of->which[i] : i]]);
    if (ok) t->turn = nb_programs_run.make(in.n, in.at, out.n, out.at, true);
    if (t->turn && t->nbefore)
        t->before =
            nb_programs_run.make(g->nx, in.at, t->nbefore, in.at + g->nx, true);
    nb_list_free(&in), nb_list_free(&out);
    return ok && nb_failed() == failed;
}

bool nb_turn_make(nb_turn_programs *t, nb_turn_of of, nb_tensor *const *node,
                  nb_tensor *const *y)
{
    size_t n = (size_t)of.graph->n + 1;
    if (!of.which) of.n = of.graph->ny;
    *t = (nb_turn_programs){.bytes = nb_alloc_zero(n * sizeof *t->bytes)};
    bool *varies = find_varying(&of);
    bool *before = varies ? find_before(&of, varies) : NULL;
    bool ok = t->bytes && before && fill(t, &of, before, node, y);
    if (!ok || !t->turn || (t->nbefore && !t->before)) nb_turn_free(t);
    nb_free(varies), nb_free(before);
    return ok;
}

static nb_kept *kept_new(const nb_turn_of *of, bool *ok)
{
    const nb_graph *g = of->graph;
    nb_tensor **node = nb_array(g->n);
    nb_kept *k = nb_alloc_zero(sizeof *k);
    *ok = node && k && nb_graph_nodes(g, node) &&
          nb_turn_make(&k->p, *of, node, NULL);
    bool made = *ok && k->p.turn;
    if (made) k->nx = g->nx, k->varying = of->varying;
    if (!made) kept_free(k);
    nb_free(node);
    return made ? k : NULL;
}

static bool has_lanes(const nb_turn_of *of)
{
    const nb_graph *g = of->graph;
    bool any = false;
    for (int i = 0; i < g->nx; i++)
        any = any || g->line[i].shape.nlanes;
    for (int k = 0; k < of->n; k++)
        any = any ||
              nb_region_result(g, of->which ? of->which[k] : k)->shape.nlanes;
    return any;
}

bool nb_kept_make(const nb_call *c, int slot, nb_turn_of of)
{
    nb_op *op = (nb_op *)c->op;
    bool ok;
    if (!of.which) of.n = of.graph->ny;
    if (has_lanes(&of) || nb_kept_peek(op, slot)) return true;
    if (nb_scope_open() != NB_OK) return false;
    nb_kept *k = kept_new(&of, &ok);
    nb_scope_close(0, NULL);
    if (!k) return ok;
    k->slot = slot;
    k->device = c->out ? c->out->device : 0;
    op->forget = forget;
    k->next = atomic_load(&op->kept);
    while (!atomic_compare_exchange_weak(&op->kept, &k->next, k))
        continue;
    return true;
}

/* Running */

/* Memory of the turning, held to its end. */
static char *hold(nb_turning *t, int device, size_t bytes)
{
    nb_buffer *b = nb_buffer_on(device, bytes);
    if (!b) return NULL;
    t->held[t->nheld++] = b;
    return b->data;
}

static char *packed(nb_turning *t, nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    int64_t n;
    if (nb_tensor_is_packed(x)) return x->data;
    nb_shape_count(&s, &n);
    char *to =
        hold(t, x->device, (size_t)n * nb_dtype_size((nb_dtype)x->dtype));
    return to && nb_copy_into(to, &s, x) ? to : NULL;
}

bool nb_turning_begin(nb_turning *t, const nb_kept *k, nb_tensor *const *x)
{
    size_t n = (size_t)(k->nx + k->p.nbefore) + 1;
    *t = (nb_turning){.kept = k};
    t->in = nb_alloc_zero(n * sizeof *t->in);
    t->held = nb_alloc_zero(n * sizeof *t->held);
    bool ok = t->in && t->held;
    for (int i = k->varying; ok && i < k->nx; i++)
        ok = (t->in[i] = packed(t, x[i]));
    for (int i = 0; ok && i < k->p.nbefore; i++)
        ok = (t->in[k->nx + i] = hold(t, k->device, k->p.bytes[i]));
    return ok && (!k->p.before ||
                  nb_programs_run.run_at(k->p.before, t->in, t->in + k->nx));
}

bool nb_turning_run(nb_turning *t, char *const *out)
{
    return nb_programs_run.run_at(t->kept->p.turn, t->in, out);
}

void nb_turning_end(nb_turning *t)
{
    for (int i = 0; i < t->nheld; i++)
        nb_buffer_drop(t->held[i]);
    nb_free(t->held), nb_free(t->in);
}
