/* backward.c - the imperative style: tensors that require grad, and backward.
 *
 * Gradients of C programs are kept in a table by node; a binding keeps its own
 * and is told of what was found.  The table keeps its nodes, so that they can
 * be told apart; those that nobody else holds any more go when the next
 * gradients come. */
#include "transform/derive.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <pthread.h>

typedef struct entry {
    struct entry *next;
    nb_tensor *x, *grad; /* kept */
} entry;
enum { BUCKETS = 1024 };
static struct {
    pthread_mutex_t lock;
    entry *bucket[BUCKETS];
} grads = {.lock = PTHREAD_MUTEX_INITIALIZER};

static entry **place(const nb_tensor *x)
{
    entry **at = &grads.bucket[x->serial % BUCKETS];
    while (*at && (*at)->x != x)
        at = &(*at)->next;
    return at;
}

nb_status nb_require_grad(nb_tensor *x)
{
    if (!x) return NB_STATUS(false);
    if (!nb_dtype_is_float((nb_dtype)x->dtype))
        return NB_STATUS(nb_fail(NB_ETYPE,
                                 "only floating tensors can require "
                                 "grad, not %s",
                                 nb_dtype_name((nb_dtype)x->dtype)));
    x->flags |= NB_REQUIRES;
    nb_set_traced(x, true);
    return NB_OK;
}

bool nb_requires_grad(const nb_tensor *x)
{
    return x && x->flags & NB_REQUIRES;
}

nb_tensor *nb_grad_of(nb_tensor *x)
{
    if (!x) return NULL;
    pthread_mutex_lock(&grads.lock);
    entry *e = *place(x);
    nb_tensor *g = e ? nb_keep(e->grad) : NULL;
    pthread_mutex_unlock(&grads.lock);
    return nb_lend(g);
}

static void discard(entry *e)
{
    if (!e) return;
    nb_drop(e->x);
    nb_drop(e->grad);
    nb_free(e);
}

void nb_grad_clear(nb_tensor *x)
{
    if (!x) return;
    pthread_mutex_lock(&grads.lock);
    entry **at = place(x), *e = *at;
    if (e) *at = e->next;
    pthread_mutex_unlock(&grads.lock);
    discard(e);
}

/* Entries of nodes that only the table still holds. */
static void sweep(void)
{
    entry *gone = NULL;
    pthread_mutex_lock(&grads.lock);
    for (int b = 0; b < BUCKETS; b++)
        for (entry **at = &grads.bucket[b], *e; (e = *at);) {
            bool alone = atomic_load(&e->x->refs) == 1;
            if (!alone) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            e->next = gone;
            gone = e;
        }
    pthread_mutex_unlock(&grads.lock);
    while (gone) {
        entry *next = gone->next;
        discard(gone);
        gone = next;
    }
}

static bool store(nb_tensor *x, nb_tensor *grad)
{
    entry *fresh = nb_alloc(sizeof *fresh);
    if (!fresh) return false;
    nb_grad_clear(x);
    *fresh = (entry){.x = nb_keep(x), .grad = nb_keep(grad)};
    pthread_mutex_lock(&grads.lock);
    entry **at = place(x);
    fresh->next = *at;
    *at = fresh;
    pthread_mutex_unlock(&grads.lock);
    return true;
}

nb_status nb_backward_each(int ny, nb_tensor *const *y, nb_tensor *const *ct,
                           nb_grad_found *found, void *ctx)
{
    nb_tensor **all = nb_alloc_zero((size_t)(ny + 1) * sizeof *all);
    bool ok = all;
    for (int i = 0; ok && i < ny; i++) {
        ok = y[i];
        if (!ok) break;
        all[i] = ct && ct[i] ? ct[i] : NULL;
        if (!all[i] && nb_elements(y[i]) != 1) {
            nb_shape s = nb_tensor_shape(y[i]);
            ok = nb_fail(NB_EVALUE,
                         "backward: a result of shape %s needs a cotangent of "
                         "that shape",
                         nb_shape_text(&s));
        } else if (!all[i])
            ok = (all[i] = nb_fill_like(y[i], 1));
    }
    ok = ok && nb_walk_back(NB_TRACE_KEPT, ny, y, all, found, ctx);
    nb_free(all);
    return NB_STATUS(ok);
}

/* Gradients as found, realised together before any is stored. */
typedef struct haul {
    nb_tensor **x, **grad;
    int n, room, grad_room;
    bool failed;
} haul;

static void take(void *ctx, nb_tensor *x, nb_tensor *grad)
{
    haul *h = ctx;
    if (h->failed || !nb_grow(&h->x, &h->room, h->n + 1, sizeof *h->x) ||
        !nb_grow(&h->grad, &h->grad_room, h->n + 1, sizeof *h->grad)) {
        h->failed = true;
        return;
    }
    h->x[h->n] = x;
    h->grad[h->n++] = grad;
}

nb_status nb_backward(nb_tensor *y, nb_tensor *ct, bool accumulate)
{
    haul h = {0};
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return nb_error_code();
    sweep();
    ok = nb_backward_each(1, &y, ct ? &ct : NULL, take, &h) == NB_OK &&
         !h.failed;
    for (int i = 0; ok && i < h.n; i++) {
        nb_tensor *old = accumulate ? nb_grad_of(h.x[i]) : NULL;
        nb_tensor *g = old ? nb_add(old, h.grad[i]) : h.grad[i];
        ok = (h.grad[i] = nb_detach(nb_laid_like(g, h.x[i])));
    }
    ok = ok && nb_realize_now(h.n, h.grad);
    for (int i = 0; ok && i < h.n; i++)
        ok = store(h.x[i], h.grad[i]);
    nb_free(h.x);
    nb_free(h.grad);
    nb_scope_close(0, NULL);
    return NB_STATUS(ok);
}

nb_tensor *nb_stop_gradient(nb_tensor *x)
{
    return nb_detach(x);
}
