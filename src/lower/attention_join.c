/* attention_join.c - see attention_join.h.
 *
 * From each result a chain of views leads to the sum: dims are turned, run
 * together, and one dim grows to three times itself.  Followed by names (those
 * of the rule, and z for which of the three) it says how the sum lies; all
 * three have to say the same.  Views of the sum that nobody sees but the next
 * one go on with it: the last of them is what is written. */
#include "lower/attention_join.h"

#include "core/axes.h"
#include "lower/attention.h"
#include "lower/plan.h"
#include "lower/turn.h"

#include <string.h>

enum { NAMES = 12, INPUTS = 6, THREE = 3 };

/* The dims of a line, each some of the names in a row, or none. */
typedef struct chain {
    int back, which; /* the call, and its result */
    int place;       /* in the sum; -1: not known yet */
    int ndims, n;
    int count[NB_MAX_DIMS]; /* names in a dim */
    char name[NAMES + 1];
    int64_t size[NAMES];
} chain;

typedef struct joint {
    int at; /* the sum, or the last view of it */
    chain c;
} joint;

typedef struct joining {
    const nb_graph *was;
    nb_tensor *const *node;
    int *only; /* by line: the one that has it, or less than 0 */
    joint *all;
    int n, room;
    int *to; /* by line as it was: what it is now */
    int next;
} joining;

/* Following */

static const nb_line *line(const joining *u, int k)
{
    return &u->was->line[k];
}

static bool is_call(const nb_line *l, const char *name)
{
    return l->kind == NB_LINE_CALL && l->op && !strcmp(l->op->name, name);
}

/* Rows of all three are t, columns d. */
static char common(char name)
{
    return name == 's' ? 't' : name == 'e' ? 'd' : name;
}

static bool start(const joining *u, int part, chain *c)
{
    int back = line(u, part)->in[0], which = (int)line(u, part)->attr[0];
    if (line(u, back)->op != &nb_op_attention_back) return false;
    const nb_sig *s = nb_call_of(u->node[back]).sig;
    const nb_shape *shape = &line(u, part)->shape;
    const nb_term *t = &s->term[INPUTS + which];
    if (shape->nlanes || shape->rank != t->n || t->n > NAMES) return false;
    *c = (chain){
        .back = back, .which = which, .place = -1, .ndims = t->n, .n = t->n};
    for (int d = 0; d < t->n; d++) {
        c->count[d] = 1;
        c->name[d] = common(*s->factor[t->dim[d].factor[0]].name);
        c->size[d] = nb_extent_get(shape->size[d]);
    }
    return true;
}

/* The same names, run together to other sizes. */
static bool regroup(chain *c, const nb_shape *to)
{
    int at = 0;
    c->ndims = to->rank;
    for (int d = 0; d < to->rank; d++) {
        int64_t want = nb_extent_get(to->size[d]), have = 1;
        int from = at;
        while (at < c->n && (have < want || (at == from && c->size[at] == 1)))
            have *= c->size[at++];
        if (have != want) return false;
        c->count[d] = at - from;
    }
    return at == c->n;
}

static bool turn(chain *c, const int64_t *order, int n)
{
    chain was = *c;
    int first[NB_MAX_DIMS] = {0}, at = 0;
    if (n != c->ndims) return false;
    for (int d = 1; d < n; d++)
        first[d] = first[d - 1] + was.count[d - 1];
    for (int d = 0; d < n; d++) {
        int from = first[order[d]], count = was.count[order[d]];
        memcpy(c->name + at, was.name + from, (size_t)count);
        memcpy(c->size + at, was.size + from, (size_t)count * sizeof *c->size);
        c->count[d] = count;
        at += count;
    }
    return true;
}

/* The dim that at `first` becomes three times what it is. */
static bool grow(chain *c, int dim, int first, int64_t place)
{
    if (c->place >= 0 || c->n == NAMES) return false;
    memmove(c->name + first + 1, c->name + first, (size_t)(c->n - first));
    memmove(c->size + first + 1, c->size + first,
            (size_t)(c->n - first) * sizeof *c->size);
    c->name[first] = 'z';
    c->size[first] = THREE;
    c->count[dim]++;
    c->n++;
    c->place = (int)place;
    return true;
}

static bool widen(const joining *u, int k, chain *c)
{
    enum { START, SIZE, STEP };
    nb_call call = nb_call_of(u->node[k]);
    const nb_shape *from = &line(u, line(u, k)->in[0])->shape;
    const nb_shape *to = &line(u, k)->shape;
    int n, first = 0, grown = 0;
    const int64_t *begin = nb_arg_list(&call, START, &n);
    const int64_t *step = nb_arg_list(&call, STEP, &n);
    if (n != from->rank || n != c->ndims) return false;
    for (int d = 0; d < n; d++) {
        int64_t x = nb_extent_get(from->size[d]);
        int64_t y = nb_extent_get(to->size[d]);
        int count = c->count[d];
        if (step[d] != 1) return false;
        if (x != y) {
            if (y != THREE * x || begin[d] % x || grown++ ||
                !grow(c, d, first, begin[d] / x))
                return false;
            count++;
        }
        first += count;
    }
    return grown == 1;
}

/* One more view. */
static bool go_on(const joining *u, int k, chain *c)
{
    const nb_line *l = line(u, k);
    int n;
    if (is_call(l, "reshape")) return regroup(c, &l->shape);
    if (is_call(l, "embed")) return widen(u, k, c);
    if (!is_call(l, "permute")) return false;
    nb_call call = nb_call_of(u->node[k]);
    const int64_t *order = nb_arg_list(&call, 0, &n);
    return turn(c, order, n);
}

/* What leads to line k; whatever is on the way leads nowhere else. */
static bool follow(const joining *u, int k, chain *c)
{
    const nb_line *l = line(u, k);
    if (u->only[k] < 0 || l->kind != NB_LINE_CALL || l->nin != 1) return false;
    if (l->op == &nb_op_part) return start(u, k, c);
    return follow(u, l->in[0], c) && go_on(u, k, c);
}

/* Sums */

/* What is added up in line k, at most three lines: their number. */
static int terms(const joining *u, int k, bool top, int *to, int n)
{
    const nb_line *l = line(u, k);
    bool adds = l->kind == NB_LINE_CALL && nb_line_scalar(l) == NB_S_add &&
                l->nin == 2 && (top || u->only[k] >= 0);
    if (n > THREE || (!adds && n == THREE)) return THREE + 1;
    if (!adds) return to[n] = k, n + 1;
    return terms(u, l->in[1], false, to, terms(u, l->in[0], false, to, n));
}

static bool same(const chain *a, const chain *b)
{
    return a->back == b->back && a->ndims == b->ndims && a->n == b->n &&
           !memcmp(a->count, b->count, sizeof a->count) &&
           !memcmp(a->name, b->name, (size_t)a->n) &&
           !memcmp(a->size, b->size, (size_t)a->n * sizeof *a->size);
}

static bool find_at(const joining *u, int k, joint *j)
{
    int term[THREE + 1];
    unsigned seen = 0;
    if (nb_line_scalar(line(u, k)) != NB_S_add ||
        terms(u, k, true, term, 0) != THREE)
        return false;
    for (int i = 0; i < THREE; i++) {
        chain c;
        if (!follow(u, term[i], &c) || c.place != c.which) return false;
        if (i && !same(&c, &j->c)) return false;
        j->c = c;
        seen |= 1u << c.which;
    }
    j->at = k;
    return seen == 7;
}

/* To the last view that is the only one of the one before. */
static void follow_views(const joining *u, joint *j)
{
    chain c = j->c;
    for (int k = u->only[j->at]; k >= 0 && go_on(u, k, &c); k = u->only[k])
        *j = (joint){k, c};
}

static bool find_all(joining *u)
{
    u->only = nb_lines_only(u->was);
    bool ok = u->only;
    for (int k = u->was->nx; ok && k < u->was->n; k++) {
        joint j;
        if (!find_at(u, k, &j)) continue;
        follow_views(u, &j);
        ok = nb_grow(&u->all, &u->room, u->n + 1, sizeof *u->all);
        if (ok) u->all[u->n++] = j;
    }
    return ok;
}

/* Rewriting */

/* The call that gives the sum, with one dim for each name: its line. */
static int insert_call(nb_rewrite *r, const joining *u, const joint *j)
{
    nb_call call = nb_call_of(u->node[j->c.back]);
    const char *rule = nb_arg_text(&call, 0), *results = strstr(rule, "->");
    nb_text text = {0};
    words w;
    int in[INPUTS], to = -1;
    nb_text_put(&text, rule, (size_t)(results - rule) + 2);
    for (int i = 0; i < j->c.n; i++)
        nb_text_add(&text, " %c", j->c.name[i]);
    nb_text_add(&text, "; z=%d", THREE);
    for (int i = 0; i < INPUTS; i++)
        in[i] = u->to[line(u, j->c.back)->in[i]];
    bool ok =
        !text.failed &&
        nb_attention_attr(&nb_op_attention_back_one, nb_text_get(&text),
                          nb_arg_float(&call, 1), nb_arg_int(&call, 2), &w);
    nb_text_free(&text);
    if (!ok || nb_scope_open() != NB_OK) return -1;
    ok = nb_attention_insert(r, &nb_op_attention_back_one, &w, INPUTS, in, &to);
    nb_scope_close(0, NULL);
    return ok ? to : -1;
}

static int insert_reshape(nb_rewrite *r, int x, const nb_shape *to)
{
    nb_op *op = nb_op_find("reshape");
    int64_t size[NB_MAX_DIMS];
    words w = {0};
    int y = -1;
    for (int d = 0; d < to->rank; d++)
        size[d] = nb_extent_get(to->size[d]);
    nb_value v = NB_V_LIST(to->rank, size);
    bool ok = op && nb_op_ready(op) && nb_pack(op, 1, &v, &w);
    if (!ok || nb_scope_open() != NB_OK) return -1;
    ok = nb_attention_insert(r, op, &w, 1, &x, &y);
    nb_scope_close(0, NULL);
    return ok ? y : -1;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    joining *u = ctx;
    int k = u->next++;
    const joint *j = NULL;
    for (int i = 0; i < u->n; i++)
        if (u->all[i].at == k) j = &u->all[i];
    if (j) {
        r->is = insert_call(r, u, j);
        if (r->is >= 0 && j->c.n != j->c.ndims)
            r->is = insert_reshape(r, r->is, &line(u, k)->shape);
        if (r->is < 0) return false;
    }
    u->to[k] = j ? r->is : r->at;
    return true;
}

static bool rewrite(nb_graph *g, joining *u)
{
    u->to = nb_alloc((size_t)(g->n + 1) * sizeof *u->to);
    if (!u->to) return false;
    for (int k = 0; k < g->nx; k++)
        u->to[k] = k;
    u->next = g->nx;
    return nb_graph_rewrite(g, visit, u);
}

bool nb_attention_join(nb_graph *g)
{
    nb_plan *p = nb_plan_draft(g);
    joining u = {.was = p ? p->graph : NULL, .node = p ? p->node : NULL};
    bool ok = p && find_all(&u);
    if (ok && u.n) ok = rewrite(g, &u);
    nb_plan_free(p);
    nb_free(u.only), nb_free(u.all), nb_free(u.to);
    return ok;
}
