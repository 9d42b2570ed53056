/* placed.c - what moves from device to device is moved first; the rest falls
 * into programs, each on one device. */
#include "run/placed.h"

#include "run/card.h"
#include "run/lazy.h"
#include "run/realize.h"
#include "run/sharded.h"

bool nb_placed_any(int n, nb_tensor *const *node)
{
    for (int k = 0; k < n; k++)
        if (node[k]->device || (node[k]->op && node[k]->op->lands)) return true;
    return false;
}

/* The input is held: another thread may settle x meanwhile, and drop it. */
static bool move(nb_tensor *x)
{
    nb_graph_lock();
    bool todo = !nb_tensor_done(x);
    nb_tensor *from = todo ? nb_keep(nb_tensor_in(x)[0]) : NULL;
    nb_graph_unlock();
    if (!todo) return true;
    bool ok = nb_realize_now(1, &from) && nb_scope_open() == NB_OK;
    if (ok) {
        nb_tensor *whole = from->sharding ? nb_gatherer(from) : from;
        nb_tensor *y = whole ? nb_tensor_on(whole, x->device) : NULL;
        ok = y && nb_lazy_settle(x, y);
        nb_scope_close(0, NULL);
    }
    nb_drop(from);
    return ok;
}

static bool move_all(int n, nb_tensor **node, bool *moved)
{
    for (int k = 0; k < n; k++) {
        if (!node[k]->op || !node[k]->op->lands) continue;
        *moved = true;
        if (!move(node[k])) return false;
    }
    return true;
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

bool nb_placed_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root)
{
    bool moved = false;
    for (int k = 0; k < n; k++)
        if (!node[k]->op && !nb_tensor_done(node[k]))
            return nb_no_value(node[k]);
    if (!move_all(n, node, &moved)) return false;
    if (moved) return nb_realize_now(nroots, root);
    if (nb_sharded_any(n, node)) return nb_sharded_run(n, node, nroots, root);
    for (int i = 1; i < nroots; i++)
        if (root[i]->device != root[0]->device) return run_apart(nroots, root);
    return nb_lazy_run_whole(n, node, nroots, root);
}
