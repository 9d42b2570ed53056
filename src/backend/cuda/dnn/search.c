/* search.c - plans that are looked for while other things are prepared: making
 * one takes the library some tenths of a second.
 *
 * One thread at a time is at it; the library is not given one handle by
 * several. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "base/memory.h"
#include "base/thread.h"

#include <string.h>

struct nb_dnn_search {
    nb_dnn_search *next;
    int users;
    nb_text key;
    nb_dnn_graph *graph;
    nb_dnn_wish wish;
    nb_dnn_plan *plan;
    bool threaded, done; /* for who holds the lock of those who wait */
    pthread_t thread;
};

static nb_dnn_search *searches;
static pthread_mutex_t waiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

/* Whatever goes wrong, there is no plan. */
static void *look(void *search)
{
    nb_dnn_search *s = search;
    pthread_mutex_lock(&looking);
    void *handle = nb_dnn_handle(s->graph->card, NB_DNN_MEANWHILE);
    if (handle) s->graph->handle = handle;
    if (!handle || !nb_dnn_plan_find(s->graph, &s->wish, &s->plan)) {
        s->plan = NULL;
        nb_error_clear();
    }
    pthread_mutex_unlock(&looking);
    return NULL;
}

static nb_dnn_search *find(const nb_text *key)
{
    nb_dnn_search *s = searches;
    while (s && (s->key.n != key->n ||
                 memcmp(s->key.data, key->data, (size_t)key->n)))
        s = s->next;
    return s;
}

static nb_dnn_search *make(nb_dnn_graph *g, const nb_dnn_wish *w)
{
    nb_dnn_search *s = nb_alloc_zero(sizeof *s);
    if (!s) return NULL;
    s->wish = *w;
    if (!nb_text_put(&s->key, g->key.data, (size_t)g->key.n)) {
        nb_free(s);
        return NULL;
    }
    s->graph = g;
    s->next = searches;
    searches = s;
    s->threaded = nb_thread_start(&s->thread, "nabla search", look, s);
    return s;
}

nb_dnn_search *nb_dnn_search_begin(nb_dnn_graph *g, const nb_dnn_wish *w)
{
    int64_t wish[] = {w->any_order, w->exact, w->skip,
                      w->tries,     w->same,  (int64_t)w->workspace};
    if (!nb_text_put(&g->key, (const char *)wish, sizeof wish))
        g->broken = true;
    nb_dnn_lock();
    nb_dnn_search *s = g->broken ? NULL : find(&g->key);
    bool shared = s;
    if (!s && !g->broken) s = make(g, w);
    if (s) s->users++;
    nb_dnn_unlock();
    if (!s || shared) nb_dnn_graph_free(g);
    return s;
}

nb_dnn_plan *nb_dnn_search_plan(nb_dnn_search *s)
{
    pthread_mutex_lock(&waiting);
    if (!s->done) {
        if (s->threaded)
            pthread_join(s->thread, NULL);
        else
            look(s);
        nb_dnn_graph_free(s->graph);
        s->graph = NULL;
        s->done = true;
    }
    pthread_mutex_unlock(&waiting);
    return s->plan;
}

void nb_dnn_search_drop(nb_dnn_search *s)
{
    if (!s) return;
    nb_dnn_lock();
    bool last = --s->users == 0;
    nb_dnn_search **at = &searches;
    while (last && *at != s)
        at = &(*at)->next;
    if (last) *at = s->next;
    nb_dnn_unlock();
    if (!last) return;
    nb_dnn_plan_drop(nb_dnn_search_plan(s));
    nb_text_free(&s->key);
    nb_free(s);
}
