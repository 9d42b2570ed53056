/* sharded.c - realising tensors that lie on devices.
 *
 * What lies on no device is computed first, once and in the usual way, but for
 * what devices want no more than parts of; that and the rest is a program over
 * the mesh.  Programs are told apart as in lazy.c, and kept.
 */
#include "run/sharded.h"

#include "run/lazy.h"
#include "run/shelf.h"
#include "run/spmd.h"
#include "shard/decide/resolve.h"
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

/* What is realised together.  Of those that lie on no device some join the
 * program all the same: devices make no more of them than they need. */
typedef struct task {
    int n, nroots;
    nb_tensor *const *node, *const *root;
    bool *joins,
        *feeds; /* feeds: is an input of one that does, or lies there */
    const nb_spec **want; /* by those that lie on devices; NULL: nobody yet */
    int *uses;            /* by whoever wants parts of it */
} task;

static void task_free(task *t)
{
    nb_free(t->joins);
    nb_free(t->feeds);
    nb_free(t->want);
    nb_free(t->uses);
}

static bool task_init(task *t)
{
    size_t n = (size_t)(t->n + 1);
    t->joins = nb_alloc_zero(n * sizeof *t->joins);
    t->feeds = nb_alloc_zero(n * sizeof *t->feeds);
    t->want = nb_alloc_zero(n * sizeof *t->want);
    t->uses = nb_alloc_zero(n * sizeof *t->uses);
    return t->joins && t->feeds && t->want && t->uses;
}

/* How a call that lies on devices wants its input i, if not whole; or NULL. */
static const nb_spec *wanted(nb_tensor *x, int i)
{
    nb_call c = nb_call_of(x);
    const nb_spec *s = x->sharding;
    if (x->flags & NB_MULTI || c.op == &nb_op_part || c.op->result) return NULL;
    if (!c.op->places) {
        const nb_decision *d = nb_decide(&c, 1, &x);
        s = d ? d->need[i] : NULL;
    }
    return s && !s->partial.n && !nb_spec_is_whole(s) ? s : NULL;
}

/* Element by element, so that a part takes a part of the time. */
static bool is_by_element(const nb_tensor *x)
{
    const nb_op *op = x->op;
    bool plain = true;
    for (int i = 0; i < x->nin; i++)
        plain = plain && !nb_tensor_in(x)[i]->sharding;
    return plain && !(x->flags & NB_MULTI) && op != &nb_op_part &&
           !op->release && !op->effect &&
           (op->scalar || op->body || op->point || op->view);
}

static void count_use(task *t, int k, nb_tensor *from, int i)
{
    nb_tensor *x = t->node[k];
    const nb_spec *s = x->sharding ? wanted(x, i) : NULL;
    const nb_spec **was = &t->want[from->slot];
    if (x->sharding || t->joins[k]) t->feeds[from->slot] = true;
    if (x->sharding ? !s || (*was && !nb_spec_same_layout(*was, s))
                    : !t->joins[k])
        return;
    if (s) *was = s;
    t->uses[from->slot]++;
}

/* Under the graph lock, from users to what they use.  What is wanted whole, or
 * held by somebody else, who may ask for its value, has it first. */
static void find_joining(task *t)
{
    uint32_t mark = nb_graph_mark();
    for (int k = 0; k < t->n; k++) {
        t->node[k]->mark = mark;
        t->node[k]->slot = (uint32_t)k;
    }
    for (int k = t->n - 1; k >= 0; k--) {
        nb_tensor *x = t->node[k];
        if (nb_tensor_done(x) || !x->op) continue;
        t->joins[k] = !x->sharding && is_by_element(x) &&
                      t->uses[k] + 1 == atomic_load(&x->refs);
        for (int i = 0; i < x->nin; i++) {
            nb_tensor *from = nb_tensor_in(x)[i];
            if (from->mark == mark && !from->sharding) count_use(t, k, from, i);
        }
    }
}

/* All others that lie on no device and are wanted, or are roots. */
static bool find_plain(const task *t, nb_list *plain)
{
    bool ok = true;
    for (int k = 0; ok && k < t->n; k++)
        if (t->feeds[k] && !t->joins[k] && !nb_tensor_done(t->node[k]))
            ok = nb_list_add(plain, t->node[k]);
    for (int i = 0; ok && i < t->nroots; i++)
        if (!t->root[i]->sharding && !nb_tensor_done(t->root[i]))
            ok = nb_list_add(plain, t->root[i]);
    return ok;
}

static bool add_kept(nb_list *l, nb_tensor *x)
{
    return nb_list_add(l, x) && nb_keep(x);
}

/* Under the graph lock.  A node that is held by more than the nodes and the
 * list of them is a result too. */
static bool find_ends(const task *t, nb_list *in, nb_list *out)
{
    uint32_t mark = nb_graph_mark(), input = nb_graph_mark();
    bool ok = true;
    for (int k = 0; k < t->n; k++) {
        t->node[k]->mark = mark;
        t->node[k]->slot = 1;
    }
    for (int k = 0; k < t->n; k++)
        for (int i = 0; ok && i < t->node[k]->nin; i++) {
            nb_tensor *x = nb_tensor_in(t->node[k])[i];
            if (nb_tensor_done(t->node[k]) ||
                !(t->node[k]->sharding || t->joins[k]))
                continue;
            if (!nb_tensor_done(x)) {
                x->slot++;
            } else if (x->mark != input) {
                x->mark = input;
                ok = add_kept(in, x);
            }
        }
    for (int k = 0; ok && k < t->n; k++) {
        nb_tensor *x = t->node[k];
        bool held = (int)x->slot < atomic_load(&x->refs);
        for (int i = 0; !held && i < t->nroots; i++)
            held = t->root[i] == x;
        if (held && x->sharding && !nb_tensor_done(x) && !(x->flags & NB_MULTI))
            ok = add_kept(out, x);
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

static bool realize_plain(const task *t)
{
    enum { DEEP = 64 }; /* programs within programs; more are none */
    static _Thread_local int depth;
    nb_list plain = {0};
    bool ok = find_plain(t, &plain);
    if (ok && depth == DEEP)
        ok = nb_fail(NB_ERUNTIME, "a value that lies on no device depends on "
                                  "one that does");
    depth++;
    ok = ok && nb_realize_now(plain.n, plain.at);
    depth--;
    nb_list_free(&plain);
    return ok;
}

bool nb_sharded_run(int n, nb_tensor *const *node, int nroots,
                    nb_tensor *const *root)
{
    task t = {.n = n, .nroots = nroots, .node = node, .root = root};
    nb_list in = {0}, out = {0};
    bool ok = task_init(&t);
    if (ok) {
        bool failed = nb_failed();
        nb_graph_lock();
        find_joining(&t);
        nb_graph_unlock();
        ok = nb_failed() == failed && realize_plain(&t);
    }
    if (ok) {
        nb_graph_lock();
        ok = find_ends(&t, &in, &out);
        nb_graph_unlock();
    }
    ok = ok && (!out.n || run(&in, &out));
    list_drop(&in);
    list_drop(&out);
    task_free(&t);
    return ok;
}
