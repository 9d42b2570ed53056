/* sharded.c - realising tensors that lie on devices.
 *
 * What lies on no device is computed first, once and in the usual way; the rest
 * is a program over the mesh.  Programs are told apart as in lazy.c, and kept.
 */
#include "run/sharded.h"

#include "run/lazy.h"
#include "run/shelf.h"
#include "run/spmd.h"
#include "transform/region.h"

static void drop(void *spmd)
{
    nb_spmd_drop(spmd);
}

static nb_shelf programs = {PTHREAD_MUTEX_INITIALIZER, NULL, 64, drop};

void nb_sharded_clear(void)
{
    nb_shelf_clear(&programs);
}

static nb_shelved *program_of(const nb_list *in, const nb_list *out)
{
    nb_graph *g;
    uint64_t hash;
    if (nb_graph_of(in->n, in->at, out->n, out->at, &g) != NB_OK) return NULL;
    if (!nb_graph_known_by(g, &hash)) return nb_graph_free(g), NULL;
    bool keep = nb_graph_is_closed(g);
    nb_shelved *p = keep ? nb_shelf_take(&programs, hash) : NULL;
    if (p) return nb_graph_free(g), p;
    nb_spmd *made = nb_spmd_new(g, false);
    return made ? nb_shelf_put(&programs, hash, made, keep) : NULL;
}

bool nb_sharded_any(int n, nb_tensor *const *node)
{
    for (int k = 0; k < n; k++)
        if (node[k]->sharding) return true;
    return false;
}

/* Nodes that lie on no device and are wanted by those that do, or are roots. */
static bool find_plain(int n, nb_tensor *const *node, int nroots,
                       nb_tensor *const *root, nb_list *plain)
{
    bool ok = true;
    for (int k = 0; ok && k < n; k++)
        for (int i = 0; ok && node[k]->sharding && i < node[k]->nin; i++) {
            nb_tensor *x = nb_tensor_in(node[k])[i];
            if (!x->sharding && !nb_tensor_done(x)) ok = nb_list_add(plain, x);
        }
    for (int i = 0; ok && i < nroots; i++)
        if (!root[i]->sharding && !nb_tensor_done(root[i]))
            ok = nb_list_add(plain, root[i]);
    return ok;
}

static bool add_kept(nb_list *l, nb_tensor *x)
{
    return nb_list_add(l, x) && nb_keep(x);
}

/* Under the graph lock.  A node that is held by more than the nodes and the
 * list of them is a result too. */
static bool find_ends(int n, nb_tensor *const *node, int nroots,
                      nb_tensor *const *root, nb_list *in, nb_list *out)
{
    uint32_t mark = nb_graph_mark(), input = nb_graph_mark();
    bool ok = true;
    for (int k = 0; k < n; k++) {
        node[k]->mark = mark;
        node[k]->slot = 1;
    }
    for (int k = 0; k < n; k++)
        for (int i = 0; ok && i < node[k]->nin; i++) {
            nb_tensor *x = nb_tensor_in(node[k])[i];
            if (!node[k]->sharding || nb_tensor_done(node[k])) continue;
            if (!nb_tensor_done(x)) {
                x->slot++;
            } else if (x->mark != input) {
                x->mark = input;
                ok = add_kept(in, x);
            }
        }
    for (int k = 0; ok && k < n; k++) {
        bool held = (int)node[k]->slot < atomic_load(&node[k]->refs);
        for (int i = 0; !held && i < nroots; i++)
            held = root[i] == node[k];
        if (held && node[k]->sharding && !nb_tensor_done(node[k]) &&
            !(node[k]->flags & NB_MULTI))
            ok = add_kept(out, node[k]);
    }
    return ok;
}

static void settle(nb_tensor *x, const nb_tensor *value)
{
    nb_tensor **old = NULL;
    nb_graph_lock();
    bool ours = !nb_tensor_done(x);
    if (ours) nb_tensor_settle(x, value->buffer, value->data, NULL);
    int n = ours ? nb_tensor_forget(x, &old) : 0;
    nb_graph_unlock();
    for (int i = 0; i < n; i++)
        nb_drop(old[i]);
}

static bool run(const nb_list *in, const nb_list *out)
{
    nb_shelved *p = program_of(in, out);
    nb_tensor **y = p ? nb_array(out->n) : NULL;
    bool ok = y && nb_scope_open() == NB_OK;
    if (ok) {
        ok = nb_spmd_run(p->it, in->at, y);
        for (int i = 0; ok && i < out->n; i++)
            settle(out->at[i], y[i]);
        nb_scope_close(0, NULL);
    }
    nb_free(y);
    nb_shelf_return(&programs, p);
    return ok;
}

static void list_drop(nb_list *l)
{
    for (int i = 0; i < l->n; i++)
        nb_drop(l->at[i]);
    nb_list_free(l);
}

bool nb_sharded_run(int n, nb_tensor *const *node, int nroots,
                    nb_tensor *const *root)
{
    enum { DEEP = 64 }; /* programs within programs; more are none */
    static _Thread_local int depth;
    nb_list plain = {0}, in = {0}, out = {0};
    bool ok = find_plain(n, node, nroots, root, &plain);
    if (ok && depth == DEEP)
        ok = nb_fail(NB_ERUNTIME, "a value that lies on no device depends on "
                                  "one that does");
    depth++;
    ok = ok && nb_realize_now(plain.n, plain.at);
    depth--;
    nb_list_free(&plain);
    if (!ok) return false;
    nb_graph_lock();
    ok = find_ends(n, node, nroots, root, &in, &out);
    nb_graph_unlock();
    ok = ok && (!out.n || run(&in, &out));
    list_drop(&in);
    list_drop(&out);
    return ok;
}
