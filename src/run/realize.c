/* realize.c - computing what was asked for, and only that.
 *
 * The needed nodes are collected in topological order and run by an executable
 * (lazy.c) or one by one.  A
 * node that has its data forgets its inputs unless it is traced; what nobody
 * else holds is freed there and then, so memory follows liveness by itself.
 * Collecting and settling happen under the graph lock, computing does not:
 * threads may realise overlapping graphs at once, the first to finish a node
 * settles it. */
#include "run/realize.h"

#include "backend/ref/ref.h"
#include "core/apply.h"
#include "core/debug.h"
#include "run/lazy.h"
#include "run/placed.h"
#include "run/profile.h"
#include "run/sharded.h"
#include "transform/closed.h"

#include <stdatomic.h>

static atomic_int_fast64_t steps;
static _Thread_local bool asked;

typedef struct plan {
    nb_tensor **node; /* kept, inputs first */
    int n, room;
    nb_tensor **stack;
    int depth, stack_room;
} plan;

/* A node's slot counts the inputs seen so far. */
static bool push(plan *p, nb_tensor *x, uint32_t mark)
{
    if (nb_tensor_done(x) || x->mark == mark) return true;
    x->mark = mark;
    x->slot = 0;
    if (!nb_grow(&p->stack, &p->stack_room, p->depth + 1, sizeof *p->stack))
        return false;
    p->stack[p->depth++] = x;
    return true;
}

static bool collect(plan *p, nb_tensor *root, uint32_t mark)
{
    if (!push(p, root, mark)) return false;
    while (p->depth) {
        nb_tensor *x = p->stack[p->depth - 1];
        if (x->slot < (uint32_t)x->nin) {
            if (!push(p, nb_tensor_in(x)[x->slot++], mark)) return false;
            continue;
        }
        p->depth--;
        if (!nb_grow(&p->node, &p->room, p->n + 1, sizeof *p->node))
            return false;
        p->node[p->n++] = nb_keep(x);
    }
    return true;
}

/* The call of x with inputs of our own, so that another thread may settle x
 * and drop them meanwhile.  False: it is done already. */
static bool snapshot(nb_tensor *x, nb_call *c, nb_tensor **few, bool *todo)
{
    bool ok = true;
    nb_tensor **in = few;
    nb_graph_lock();
    *todo = !nb_tensor_done(x);
    if (*todo) {
        *c = nb_call_of(x);
        if (c->nin > 4) in = nb_alloc((size_t)c->nin * sizeof *in);
        ok = in;
        for (int i = 0; ok && i < c->nin; i++)
            in[i] = nb_keep(c->in[i]);
        c->in = in;
    }
    nb_graph_unlock();
    return ok;
}

static void let_go(nb_call *c, nb_tensor *const *few)
{
    for (int i = 0; i < c->nin; i++)
        nb_drop(c->in[i]);
    if (c->in != few) nb_free((void *)c->in);
}

static void settle(nb_tensor *x, nb_placed *r)
{
    nb_tensor **old = NULL;
    nb_graph_lock();
    bool ours = !nb_tensor_done(x);
    if (ours) nb_tensor_settle(x, r->buffer, r->data, r->strides);
    /* A multi-result node is asked for its layout by its parts. */
    int n = ours && !(x->flags & NB_MULTI) ? nb_tensor_forget(x, &old) : 0;
    nb_graph_unlock();
    for (int i = 0; i < n; i++)
        nb_drop(old[i]);
    nb_buffer_drop(r->buffer);
    if (!ours) nb_free(r->strides);
}

bool nb_no_value(const nb_tensor *x)
{
    if (x->flags & NB_DONATED) return nb_fail_donated();
    asked = true;
    if (!nb_is_recording())
        return nb_fail(NB_ERUNTIME,
                       "a tensor is used that stands for values inside a "
                       "function that was compiled, or inside a loop or "
                       "branch: it cannot leave it but as a result");
    return nb_fail(NB_ERUNTIME,
                   "a value is asked for while a loop or branch is being "
                   "recorded: use where, cond or while_loop on it");
}

bool nb_asked_take(void)
{
    bool was = asked;
    asked = false;
    return was;
}

/* Fails if x, just computed, has a NaN that its inputs do not have.  A part is
 * of a node with several results, whose inputs count. */
static bool check_nans(nb_tensor *x, const nb_call *c)
{
    const nb_tensor *from = c->op == &nb_op_part ? c->in[0] : x;
    nb_tensor *const *in = from == x ? c->in : nb_tensor_in(from);
    int n = from == x ? c->nin : from->nin;
    if (!nb_has_nan(x)) return true;
    for (int i = 0; i < n; i++)
        if (nb_has_nan(in[i])) return true;
    nb_shape s = nb_tensor_shape(x);
    return nb_fail(NB_EFLOAT, "%s: makes NaN of inputs that have none (%s%s)%s",
                   from == x ? c->op->name : from->op->name,
                   nb_dtype_brief((nb_dtype)x->dtype), nb_shape_text(&s),
                   nb_debug_place(from));
}

/* Ops that run programs lend what they make on the way; nobody else may have a
 * scope open for that. */
static bool run_op(nb_call *c, nb_tensor *x, nb_placed *r)
{
    if (!c->op->execute) return nb_ref_run(c, x, r);
    if (nb_scope_open() != NB_OK) return false;
    bool ok = nb_ref_run(c, x, r);
    nb_scope_close(0, NULL);
    return ok;
}

static bool run_node(nb_tensor *x)
{
    nb_call c;
    nb_tensor *few[4];
    nb_placed r;
    int64_t attr[NB_MAX_WORDS];
    bool todo;
    if (!snapshot(x, &c, few, &todo)) return false;
    if (!todo) return true;
    if (!c.op) {
        let_go(&c, few);
        return nb_no_value(x);
    }
    for (int i = 0; i < c.nattr; i++)
        attr[i] = c.attr[i];
    c.attr = attr;
    int64_t began = nb_profile_begin();
    bool ok = run_op(&c, x, &r);
    if (began && c.op != &nb_op_part) nb_profile_end(began, "op", c.op->name);
    if (ok) settle(x, &r);
    nb_profile_memory(began);
    if (ok && nb_debug_flags & NB_DEBUG_NANS) ok = check_nans(x, &c);
    let_go(&c, few);
    atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
    return ok;
}

/* Whether all that has no value yet is computed by something. */
static bool all_computed(const plan *p)
{
    const nb_tensor *missing = NULL;
    nb_graph_lock();
    for (int i = 0; i < p->n && !missing; i++)
        if (!p->node[i]->op && !nb_tensor_done(p->node[i]))
            missing = p->node[i];
    nb_graph_unlock();
    return !missing || nb_no_value(missing);
}

/* Runs them, node by node where no program does, and lets each go as soon as it
 * has run; *again if some of what was needed has been moved, and no more. */
static bool run_plan(plan *p, int n, nb_tensor *const *x, bool *again)
{
    bool ok, done = false;
    *again = false;
    if (nb_placed_any(p->n, p->node))
        ok = done =
            all_computed(p) && nb_placed_run(p->n, p->node, n, x, again);
    else if (nb_sharded_any(p->n, p->node))
        ok = done = all_computed(p) && nb_sharded_run(p->n, p->node, n, x);
    else
        ok = nb_lazy_run(p->n, p->node, n, x, &done);
    for (int i = 0; i < p->n; i++) {
        if (ok && !done) ok = run_node(p->node[i]);
        nb_drop(p->node[i]);
    }
    p->n = 0;
    return ok;
}

static bool attempt(int n, nb_tensor *const *x, bool *again)
{
    plan p = {0};
    bool ok = true;
    nb_graph_lock();
    uint32_t mark = nb_graph_mark();
    for (int i = 0; ok && i < n; i++)
        ok = collect(&p, x[i], mark);
    nb_graph_unlock();
    unsigned direction = nb_direction_set(0); /* running is not deriving */
    ok = ok && run_plan(&p, n, x, again);
    for (int i = 0; i < p.n; i++)
        nb_drop(p.node[i]);
    nb_direction_set(direction);
    nb_free(p.node);
    nb_free(p.stack);
    return ok;
}

static bool realize(int n, nb_tensor *const *x)
{
    bool ok = true, needed = false;
    for (int i = 0; i < n; i++) {
        if (!x[i]) return false;
        needed = needed || !nb_tensor_done(x[i]);
    }
    while (ok && needed)
        ok = attempt(n, x, &needed);
    return ok;
}

int64_t nb_steps_run(void)
{
    return steps;
}

/* What core calls: linked in rather than set, so it is there from the start. */
bool (*nb_realizer)(int n, nb_tensor *const *x) = realize;
