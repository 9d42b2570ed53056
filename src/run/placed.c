/* placed.c - what moves from device to device is moved first; the rest falls
 * into programs, each on one device.  Single elements that only such a program
 * wants on a card are inputs of it, where they are. */
#include "run/placed.h"

#include "core/lanes.h"
#include "run/card.h"
#include "run/check.h"
#include "run/lazy.h"
#include "run/realize.h"
#include "run/sharded.h"

bool nb_placed_any(int n, nb_tensor *const *node)
{
    for (int k = 0; k < n; k++)
        if (node[k]->device || (node[k]->op && node[k]->op->lands)) return true;
    return false;
}

/* What is done about a node that moves: nothing, its input is computed, or it
 * is copied. */
typedef enum fate { LEFT, FETCHED, COPIED } fate;

static bool settle(nb_tensor *x, nb_tensor *from)
{
    if (nb_scope_open() != NB_OK) return false;
    nb_tensor *whole = from->sharding ? nb_gatherer(from) : from;
    nb_tensor *y = whole ? nb_tensor_on(whole, x->device) : NULL;
    bool ok = y && nb_lazy_settle(x, y);
    nb_scope_close(0, NULL);
    return ok;
}

/* The input is held: another thread may settle x meanwhile, and drop it. */
static bool move(nb_tensor *x, fate to_be)
{
    nb_graph_lock();
    bool todo = !nb_tensor_done(x);
    nb_tensor *from = todo ? nb_keep(nb_tensor_in(x)[0]) : NULL;
    nb_graph_unlock();
    if (!todo) return true;
    bool ok = nb_realize_now(1, &from);
    if (to_be == COPIED) ok = ok && settle(x, from);
    nb_drop(from);
    return ok;
}

/* Under the graph lock: whether x moves one element of the CPU to a card, and
 * nobody but these nodes, which its slot counts, wants it there.  Then nothing
 * has to be copied: kernels are given the value. */
static bool is_number_moved(const nb_tensor *x)
{
    if (nb_tensor_done(x) || !x->op || !x->op->lands || !x->device)
        return false;
    const nb_tensor *from = nb_tensor_in(x)[0];
    return !from->device && !from->sharding && !from->rank && !from->nlanes &&
           (int)x->slot >= atomic_load(&x->refs);
}

static void count_uses(int n, nb_tensor **node)
{
    for (int k = 0; k < n; k++)
        node[k]->slot = 1; /* held by the list of nodes */
    for (int k = 0; k < n; k++)
        for (int i = 0; i < node[k]->nin && !nb_tensor_done(node[k]); i++)
            nb_tensor_in(node[k])[i]->slot++;
}

/* Who holds another name of a tensor wants the tensor. */
static void see_through_aliases(int n, nb_tensor **node)
{
    for (int k = n - 1; k >= 0; k--)
        if (node[k]->op == &nb_op_alias && !nb_tensor_done(node[k]) &&
            (int)node[k]->slot < atomic_load(&node[k]->refs))
            nb_tensor_in(node[k])[0]->slot = 0;
}

static fate fate_of(const nb_tensor *x, bool whole)
{
    if (!x->op || !x->op->lands) return LEFT;
    if (whole || !is_number_moved(x)) return COPIED;
    return nb_tensor_done(nb_tensor_in(x)[0]) ? LEFT : FETCHED;
}

/* Of all nodes, allocated.  Roots are copied, and so is all that a mesh or
 * someone who compares asks for. */
static fate *fates(int n, nb_tensor **node, int nroots, nb_tensor *const *root)
{
    fate *f = nb_alloc((size_t)(n + 1) * sizeof *f);
    bool whole = nb_check_get() || nb_sharded_any(n, node);
    nb_graph_lock();
    count_uses(n, node);
    for (int i = 0; i < nroots; i++)
        root[i]->slot = 0;
    see_through_aliases(n, node);
    for (int k = 0; f && k < n; k++)
        f[k] = fate_of(node[k], whole);
    nb_graph_unlock();
    return f;
}

static bool move_all(int n, nb_tensor **node, const fate *f, bool *moved)
{
    for (int k = 0; k < n; k++) {
        if (f[k] == LEFT) continue;
        *moved = true;
        if (!move(node[k], f[k])) return false;
    }
    return true;
}

static bool is_moving(int n, nb_tensor *const *node)
{
    for (int k = 0; k < n; k++)
        if (node[k]->op && node[k]->op->lands) return true;
    return false;
}

static bool move_what_moves(int n, nb_tensor **node, int nroots,
                            nb_tensor *const *root, bool *moved)
{
    if (!is_moving(n, node)) return true;
    fate *f = fates(n, node, nroots, root);
    bool ok = f && move_all(n, node, f, moved);
    nb_free(f);
    return ok;
}

/* Roots of one device at a time. */
static bool run_apart(int n, nb_tensor *const *root)
{
    nb_tensor **some = nb_alloc((size_t)(n + 1) * sizeof *some);
    bool ok = some;
    for (int d = 0; ok && d < 256; d++) {
        int m = 0;
        for (int i = 0; i < n; i++)
            if (root[i]->device == d) some[m++] = root[i];
        if (m) ok = nb_realize_now(m, some);
    }
    nb_free(some);
    return ok;
}

bool nb_placed_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root,
                   bool *again)
{
    if (!move_what_moves(n, node, nroots, root, again)) return false;
    if (*again) return true;
    if (nb_sharded_any(n, node)) return nb_sharded_run(n, node, nroots, root);
    for (int i = 1; i < nroots; i++)
        if (root[i]->device != root[0]->device) return run_apart(nroots, root);
    return nb_lazy_run_whole(n, node, nroots, root);
}
