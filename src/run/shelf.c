/* shelf.c - programs that are kept because they may come again. */
#include "run/shelf.h"

#include "base/error.h"
#include "base/memory.h"

void nb_shelf_return(nb_shelf *s, nb_shelved *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
    if (p->it) s->drop(p->it);
    nb_free(p);
}

static nb_shelved *find(nb_shelf *s, uint64_t hash)
{
    for (nb_shelved **at = &s->first; *at; at = &(*at)->next) {
        nb_shelved *p = *at;
        if (p->hash != hash) continue;
        *at = p->next;
        p->next = s->first;
        atomic_fetch_add(&p->refs, 1);
        return s->first = p;
    }
    return NULL;
}

/* Takes off all behind the first n. */
static nb_shelved *take_off(nb_shelf *s, int n)
{
    nb_shelved **at = &s->first;
    for (; n && *at; n--)
        at = &(*at)->next;
    nb_shelved *old = *at;
    *at = NULL;
    return old;
}

/* Not under the lock: programs hold tensors, and what these hold. */
static void let_go(nb_shelf *s, nb_shelved *old)
{
    for (nb_shelved *next; old; old = next) {
        next = old->next;
        nb_shelf_return(s, old);
    }
}

nb_shelved *nb_shelf_take(nb_shelf *s, uint64_t hash)
{
    pthread_mutex_lock(&s->lock);
    nb_shelved *p = find(s, hash);
    pthread_mutex_unlock(&s->lock);
    return p;
}

nb_shelved *nb_shelf_put(nb_shelf *s, uint64_t hash, void *it, bool keep)
{
    nb_shelved *p = nb_alloc_zero(sizeof *p), *old = NULL;
    if (!p && it) s->drop(it);
    if (!p) return NULL;
    p->hash = hash;
    p->it = it;
    p->refs = 1;
    if (!keep) return p;
    pthread_mutex_lock(&s->lock);
    nb_shelved *was = find(s, hash);
    if (!was) {
        p->refs = 2;
        p->next = s->first;
        s->first = p;
        old = take_off(s, s->room);
    }
    pthread_mutex_unlock(&s->lock);
    let_go(s, old);
    if (was) nb_shelf_return(s, p);
    return was ? was : p;
}

void nb_shelf_clear(nb_shelf *s)
{
    pthread_mutex_lock(&s->lock);
    nb_shelved *old = take_off(s, 0);
    pthread_mutex_unlock(&s->lock);
    let_go(s, old);
}

bool nb_graph_known_by(const nb_graph *g, uint64_t *hash)
{
    bool failed = nb_failed();
    *hash = nb_graph_hash(g);
    return nb_failed() == failed;
}
