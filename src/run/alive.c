/* alive.c - the list of what is in memory when the most is. */
#include "run/exec.h"

#include <stdlib.h>
#include <string.h>

/* What the op of a step needs inside. */
static int64_t inside(const nb_plan *p, int s)
{
    nb_tensor *node = p->node[p->step[s].line];
    nb_call c = nb_call_of(node);
    return !p->step[s].nest && node->op->needs ? node->op->needs(&c) : 0;
}

static bool lives(const nb_life *l, int s)
{
    return l->first >= 0 && l->first <= s && s <= l->last;
}

/* The step at which temporaries and what is inside take the most. */
static int peak_step(const nb_plan *p, const nb_life *l)
{
    int best = 0;
    int64_t most = -1;
    for (int s = 0; s < p->nsteps; s++) {
        int64_t bytes = inside(p, s);
        for (int k = 0; k < nb_plan_blocks(p); k++)
            if (p->home[k] == NB_HOME_ARENA && lives(&l[k], s))
                bytes += p->bytes[k];
        if (bytes > most) best = s, most = bytes;
    }
    return best;
}

typedef struct item {
    int64_t bytes;
    const char *what;
    int number; /* of an argument or a result, -1 */
    bool inside;
    const nb_line *line;
} item;

static int by_size(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static item item_of(const nb_exec *e, int nx, int k)
{
    const nb_plan *p = nb_exec_plan(e);
    item i = {.bytes = p->bytes[k], .what = "scratch", .number = -1};
    if (k >= p->graph->n) return i;
    i.line = &p->graph->line[k];
    i.what = p->home[k] == NB_HOME_RESULT ? "result"
             : k < nx                     ? "argument"
             : i.line->op                 ? i.line->op->name
                                          : "constant";
    if (k < nx) i.number = k;
    for (int r = p->graph->ny - 1; p->home[k] == NB_HOME_RESULT && r >= 0; r--)
        if (p->graph->result[r] == k) i.number = r;
    return i;
}

static void print(nb_text *t, const item *i)
{
    nb_text_add(t, "%lld %s%s", (long long)i->bytes, i->inside ? "inside " : "",
                i->what);
    if (i->number >= 0) nb_text_add(t, " %d", i->number);
    if (i->line && !i->line->multi && i->line->dtype) {
        nb_text_add(t, " %s[", nb_dtype_brief(i->line->dtype));
        nb_shape_list(t, &i->line->shape);
        nb_text_add(t, "]");
    }
    nb_text_add(t, "\n");
}

static int collect(const nb_exec *e, int nx, const nb_life *l, item *to)
{
    const nb_plan *p = nb_exec_plan(e);
    int n = 0, s = peak_step(p, l);
    for (int k = 0; k < nb_plan_blocks(p); k++) {
        bool here = p->home[k] == NB_HOME_ARENA ? lives(&l[k], s)
                                                : p->home[k] != NB_HOME_NONE;
        if (here && p->bytes[k]) to[n++] = item_of(e, nx, k);
    }
    if (p->nsteps && inside(p, s))
        to[n++] = (item){.bytes = inside(p, s),
                         .what = p->node[p->step[s].line]->op->name,
                         .number = -1,
                         .inside = true};
    qsort(to, (size_t)n, sizeof *to, by_size);
    return n;
}

char *nb_exec_alive(const nb_exec *e, int nx)
{
    size_t n = (size_t)nb_plan_blocks(nb_exec_plan(e)) + 2;
    nb_life *l = nb_alloc(n * sizeof *l);
    item *list = l ? nb_alloc(n * sizeof *list) : NULL;
    nb_text t = {0};
    if (list) {
        nb_plan_lives(nb_exec_plan(e), l);
        int count = collect(e, nx, l, list);
        for (int i = 0; i < count; i++)
            print(&t, &list[i]);
    }
    nb_free(l);
    nb_free(list);
    if (!list) return NULL;
    char *copy = t.failed ? NULL : nb_copy_text(nb_text_get(&t));
    nb_text_free(&t);
    return copy;
}
