/* counted.c - a while loop whose turns can be counted beforehand, as a scan.
 *
 * So they can if the test compares an integer state with a number, the state
 * begins with a number, and every turn adds one and the same to it.  Then nobody
 * has to ask before each turn, and what turns leave behind has its place in the
 * plan.  A state that only counts is not even carried: what it ends with is
 * known. */
#include "transform/passes.h"

#include "core/convert.h"
#include "ops/ops.h"

typedef __int128 wide;

/* The test is `first + t step < end` before turn t; or `!=`. */
typedef struct counter {
    const nb_region *r;
    int states, state; /* all; the one that counts */
    nb_tensor *const *init;
    bool differs;
    wide first, step, end;
    int64_t turns, last; /* what the state ends with */
    bool carried;
} counter;

bool nb_known_whole(nb_tensor *x, int64_t *value)
{
    if (!nb_tensor_done(x) || x->nlanes) return false;
    return nb_elements(x) == 1 && nb_read(x, NB_I64, value) == NB_OK;
}

nb_tensor *nb_number_like(int64_t value, nb_tensor *x)
{
    nb_tensor *y = nb_strong(nb_count(value), x);
    return x->device ? nb_to_device(y, x->device) : y;
}

/* An integer that an int64 holds. */
static bool fits(nb_dtype d, int64_t v, wide *value)
{
    *value = v;
    return nb_dtype_is_integer(d) && (v >= 0 || !nb_dtype_is_unsigned(d));
}

/* What goes to the device that x is on, or x; lent, as another thread may move
 * it meanwhile, and let go of what it came from. */
static nb_tensor *origin(nb_tensor *x)
{
    nb_graph_lock();
    while (x->op == &nb_op_to_device && !nb_tensor_done(x))
        x = nb_tensor_in(x)[0];
    nb_keep(x);
    nb_graph_unlock();
    return nb_give(x);
}

/* A tensor that need not be waited for; a number on a card is one that goes
 * there. */
static bool known(nb_tensor *x, wide *value)
{
    int64_t v;
    x = origin(x);
    return x && !nb_rank(x) && (nb_tensor_is_number(x) || !x->device) &&
           nb_known_whole(x, &v) && fits((nb_dtype)x->dtype, v, value);
}

static bool known_line(const counter *c, int k, wide *value)
{
    const nb_line *l = &c->r->graph->line[k];
    if (l->kind == NB_LINE_INPUT)
        return k >= c->states && known(c->r->captured[k - c->states], value);
    return l->kind == NB_LINE_NUMBER &&
           fits(l->dtype, nb_read_i64(&l->number, l->dtype), value);
}

/* The one instruction that the node is, of two inputs, each used once. */
static bool instruction(nb_tensor *y, nb_instr *is)
{
    nb_call c = nb_call_of(y);
    nb_gen g;
    if (!c.op || c.nin != 2 || y->rank || y->nlanes || !c.op->static_sig ||
        !c.op->static_sig->pointwise || !(c.op->scalar || c.op->body))
        return false;
    nb_val v = nb_gen_body(&g, &c);
    *is = g.code[0];
    return g.n == 1 && v.id == NB_MAX_SCALAR_IN && is->arg[0] != is->arg[1];
}

/* Finds the state that line `test` compares.  One that has to stay above
 * something is taken with its sign turned. */
static bool compares(counter *c, nb_tensor *const *node, int test, int *sign)
{
    const nb_line *l = &c->r->graph->line[test];
    nb_instr is;
    if (!instruction(node[test], &is)) return false;
    for (int side = 0; side < 2; side++) {
        int s = l->in[is.arg[side]];
        if (s >= c->states ||
            !nb_dtype_is_integer(c->r->graph->line[s].dtype) ||
            !known_line(c, l->in[is.arg[1 - side]], &c->end))
            continue;
        c->state = s;
        *sign = side ? -1 : 1;
        c->end = *sign * c->end + (is.scalar == NB_S_le);
        c->differs = is.scalar == NB_S_ne;
        return c->differs || is.scalar == NB_S_lt || is.scalar == NB_S_le;
    }
    return false;
}

static bool steps(counter *c, nb_tensor *const *node, int next)
{
    const nb_line *l = &c->r->graph->line[next];
    nb_instr is;
    if (!instruction(node[next], &is)) return false;
    bool less = is.scalar == NB_S_sub;
    for (int side = 0; side < (less ? 1 : 2); side++) {
        if (l->in[is.arg[side]] != c->state ||
            !known_line(c, l->in[is.arg[1 - side]], &c->step))
            continue;
        if (less) c->step = -c->step;
        return less || is.scalar == NB_S_add;
    }
    return false;
}

/* Whether v is a number of the dtype. */
static bool holds(nb_dtype d, wide v)
{
    int bits = 8 * (int)nb_dtype_size(d) - !nb_dtype_is_unsigned(d);
    wide room = (wide)1 << bits;
    return v < room && v >= (nb_dtype_is_unsigned(d) ? 0 : -room);
}

/* False if there is no end to them. */
static bool count(counter *c)
{
    wide way = c->end - c->first, turns = 0;
    if (c->differs ? way != 0 : way > 0) {
        if (!c->step || (way > 0) != (c->step > 0) ||
            (c->differs && way % c->step))
            return false;
        turns = way / c->step + (way % c->step != 0);
    }
    c->turns = (int64_t)turns;
    return turns <= INT64_MAX;
}

/* Whether a state other than the counter is made of it.  Effects need not be
 * asked: states come after those, and then none is a plain sum. */
static bool is_read(const counter *c, bool *made)
{
    const nb_graph *g = c->r->graph;
    bool read = false;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        made[k] = k == c->state;
        for (int i = 0; i < l->nin; i++)
            made[k] = made[k] || made[l->in[i]];
    }
    for (int k = 0; k < c->states; k++)
        read = read || (k != c->state && made[g->result[k]]);
    return read;
}

static bool find(counter *c, nb_tensor **node, bool *made, bool *found)
{
    const nb_graph *g = c->r->graph;
    int sign;
    if (!nb_graph_nodes(g, node)) return false;
    *found = compares(c, node, g->result[c->states], &sign) &&
             steps(c, node, g->result[c->state]) &&
             known(c->init[c->state], &c->first);
    if (!*found) return true;
    c->first *= sign;
    c->step *= sign;
    *found = count(c);
    wide last = sign * (c->first + c->step * c->turns);
    *found = *found && holds(g->line[c->state].dtype, last);
    c->last = (int64_t)last;
    c->carried = is_read(c, made);
    return true;
}

static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const counter *c = ctx;
    const nb_graph *g = c->r->graph;
    nb_tensor **in = nb_array(g->nx), **out = nb_array(g->ny);
    bool ok = in && out;
    for (int i = 0; ok && i < g->nx; i++)
        in[i] = i >= c->states                 ? c->r->captured[i - c->states]
                : i == c->state && !c->carried ? c->init[i]
                                               : *x++;
    ok = ok && nb_graph_run(g, g->nx, in, out) == NB_OK;
    for (int k = 0; ok && k < c->states; k++)
        if (k != c->state || c->carried) *y++ = out[k];
    *ny = nx;
    nb_free(in), nb_free(out);
    return NB_STATUS(ok);
}

static bool record(counter *c, nb_results *r)
{
    nb_list init = {0};
    nb_tensor **y = nb_array(c->states), *const *at = y;
    bool ok = y;
    for (int k = 0; ok && k < c->states; k++)
        if (k != c->state || c->carried) ok = nb_list_add(&init, c->init[k]);
    int ny = init.n;
    ok = ok && (!ny || nb_scan(nb_func_new(turn, c), ny, init.at, 0, NULL,
                               c->turns, false, &ny, y) == NB_OK);
    for (int k = 0; ok && k < c->states; k++) {
        bool carried = k != c->state || c->carried;
        ok = nb_results_add(r, carried ? *at++
                                       : nb_number_like(c->last, c->init[k]));
    }
    nb_list_free(&init);
    nb_free(y);
    return ok;
}

bool nb_counted_record(const nb_region *region, int states,
                       nb_tensor *const *init, nb_results *r, bool *done)
{
    counter c = {.r = region, .states = states, .init = init};
    nb_tensor **node = nb_array(region->graph->n);
    bool *made = nb_alloc((size_t)region->graph->n + 1);
    bool ok = node && made && find(&c, node, made, done);
    nb_free(node), nb_free(made);
    return ok && (!*done || record(&c, r));
}
