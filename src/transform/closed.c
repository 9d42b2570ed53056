/* closed.c - replacing stand-ins of a recording that is over.
 *
 * Only nodes that depend on one are recorded again; what they need besides is
 * as it was. */
#include "transform/closed.h"

static _Thread_local nb_closed *innermost;

void nb_closed_record(nb_closed *c, const nb_list *x)
{
    *c = (nb_closed){.around = innermost, .recorded = x};
    innermost = c;
}

void nb_closed_open(nb_closed *c, int n, nb_tensor *const *was,
                    nb_tensor *const *now)
{
    *c = (nb_closed){.around = innermost, .n = n, .was = was, .now = now};
    innermost = c;
}

void nb_closed_close(nb_closed *c)
{
    innermost = c->around;
}

bool nb_is_recording(void)
{
    return innermost;
}

static bool is_in(const nb_list *l, const nb_tensor *x)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == x) return true;
    return false;
}

static bool list(int n, nb_tensor *const *x, nb_tensor *const *y, nb_list *was,
                 nb_list *now)
{
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        if (!is_in(was, x[i]))
            ok = nb_list_add(was, x[i]) && nb_list_add(now, y[i]);
    return ok;
}

bool nb_closed_list(nb_list *was, nb_list *now)
{
    bool ok = true;
    for (const nb_closed *c = innermost; ok && c; c = c->around) {
        const nb_list *x = c->recorded;
        ok = x ? list(x->n, x->at, x->at, was, now)
               : list(c->n, c->was, c->now, was, now);
    }
    return ok;
}

/* A walk over what y needs, inputs before what uses them.  A node's slot says
 * what is known of it: it waits on the stack, its inputs do, or it is known
 * whether it moves. */
typedef enum state { WAITS, OPEN, FIXED, MOVES } state;
typedef struct walk {
    const nb_swap *s;
    uint32_t mark;
    uint64_t oldest; /* no node before it depends on a stand-in */
    nb_list stack, moved;
    nb_list fixed; /* what those that move need, and does not */
    nb_list out;   /* results that move */
} walk;

static void mark(const walk *w, int n, nb_tensor *const *x, state is)
{
    for (int i = 0; i < n; i++) {
        x[i]->mark = w->mark;
        x[i]->slot = is;
    }
}

/* One that waits already goes on top once more. */
static bool push(walk *w, nb_tensor *x)
{
    if (x->mark == w->mark && x->slot != WAITS) return true;
    bool inside = x->op && !nb_tensor_done(x) && x->serial > w->oldest;
    mark(w, 1, &x, inside ? WAITS : FIXED);
    return !inside || nb_list_add(&w->stack, x);
}

static bool visit(walk *w)
{
    nb_tensor *x = w->stack.at[w->stack.n - 1];
    if (x->slot == WAITS) {
        x->slot = OPEN;
        for (int i = 0; i < x->nin; i++)
            if (!push(w, nb_tensor_in(x)[i])) return false;
        return true;
    }
    w->stack.n--;
    if (x->slot != OPEN) return true;
    x->slot = FIXED;
    for (int i = 0; i < x->nin; i++)
        if (nb_tensor_in(x)[i]->slot == MOVES) x->slot = MOVES;
    return x->slot == FIXED || nb_list_add(&w->moved, x);
}

static bool find_fixed(walk *w)
{
    bool ok = true;
    for (int k = 0; ok && k < w->moved.n; k++) {
        nb_tensor *x = w->moved.at[k];
        for (int i = 0; ok && i < x->nin; i++) {
            nb_tensor *from = nb_tensor_in(x)[i];
            bool number = !from->op && !from->buffer && nb_tensor_done(from);
            if (number || from->slot != FIXED) continue;
            from->slot = OPEN; /* once */
            ok = nb_list_add(&w->fixed, from);
        }
    }
    return ok;
}

static bool find_moved(walk *w, int ny, nb_tensor *const *y)
{
    const nb_swap *s = w->s;
    nb_graph_lock();
    w->mark = nb_graph_mark();
    mark(w, s->ngiven, s->given, FIXED);
    mark(w, s->n, s->was, MOVES);
    bool ok = true;
    for (int k = 0; ok && k < ny; k++) {
        ok = !y[k] || push(w, y[k]);
        while (ok && w->stack.n)
            ok = visit(w);
        if (ok && y[k] && y[k]->slot == MOVES) ok = nb_list_add(&w->out, y[k]);
    }
    ok = ok && find_fixed(w);
    nb_graph_unlock();
    return ok;
}

/* Results that move, recorded again. */
static bool again(walk *w, int ny, nb_tensor **y)
{
    nb_list in = {0}, now = {0};
    nb_tensor **fresh = nb_array(w->out.n);
    nb_graph *g = NULL;
    bool ok = fresh;
    for (int i = 0; ok && i < w->s->n + w->fixed.n; i++) {
        bool moves = i < w->s->n;
        nb_tensor *x = moves ? w->s->was[i] : w->fixed.at[i - w->s->n];
        ok = nb_list_add(&in, x) && nb_list_add(&now, moves ? w->s->now[i] : x);
    }
    ok = ok && nb_graph_of(in.n, in.at, w->out.n, w->out.at, &g) == NB_OK &&
         nb_graph_run(g, in.n, now.at, fresh) == NB_OK;
    for (int k = 0, n = 0; ok && k < ny && n < w->out.n; k++)
        if (y[k] == w->out.at[n]) y[k] = fresh[n++];
    nb_graph_free(g);
    nb_free(fresh);
    nb_list_free(&in), nb_list_free(&now);
    return ok;
}

bool nb_closed_swap(const nb_swap *s, int ny, nb_tensor **y)
{
    walk w = {.s = s, .oldest = UINT64_MAX};
    bool other = false;
    for (int i = 0; i < s->n; i++) {
        other = other || s->was[i] != s->now[i];
        if (s->was[i]->serial < w.oldest) w.oldest = s->was[i]->serial;
    }
    if (!other) return true;
    bool ok = find_moved(&w, ny, y) && (!w.out.n || again(&w, ny, y));
    nb_list_free(&w.stack), nb_list_free(&w.moved);
    nb_list_free(&w.fixed), nb_list_free(&w.out);
    return ok;
}
