/* tree.c - exact minimum by elimination.
 *
 * Each variable has a bucket: the pairs with variables eliminated later, and
 * the tables of earlier buckets in which it is next to go.  Its own table is
 * over all others that occur, its scope: the least sum over its options.  A
 * scope is ordered by elimination, the next to go last, so that in every input
 * of a bucket the options of its variable lie side by side.
 *
 * Tables stay until the end: going back through the buckets, the best option
 * is found again from the inputs, which needs no memory of its own. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

typedef struct input {
    const double *table; /* of a pair */
    double *turned;      /* ... owned, if it had to be */
    int bucket;          /* or of this bucket; -1 */
    int64_t *step;       /* along each of the scope; 0: not in it */
} input;

typedef struct bucket {
    int var, n, nin, room;
    int *scope;
    int64_t size;
    double *table;
    input *in;
} bucket;

struct nb_tree {
    const nb_net *g;
    int n;
    bucket *bucket;
    int *place; /* of a variable in the order; n: held */
    bool *held;
    double *cost, *sum; /* with pairs to held ones; of one point */
    int64_t *off;       /* where each input stands, room for the most */
    int *digit;
    int64_t largest;
    double work;
};

void nb_tree_free(nb_tree *t)
{
    if (!t) return;
    for (int b = 0; t->bucket && b < t->n; b++) {
        bucket *k = &t->bucket[b];
        for (int i = 0; i < k->nin; i++) {
            nb_free(k->in[i].turned);
            nb_free(k->in[i].step);
        }
        nb_free(k->in);
        nb_free(k->scope);
        nb_free(k->table);
    }
    nb_free(t->bucket);
    nb_free(t->place);
    nb_free(t->held);
    nb_free(t->cost);
    nb_free(t->sum);
    nb_free(t->off);
    nb_free(t->digit);
    nb_free(t);
}

static input *add_input(bucket *b)
{
    if (!nb_grow(&b->in, &b->room, b->nin + 1, sizeof *b->in)) return NULL;
    b->in[b->nin] = (input){.bucket = -1};
    return &b->in[b->nin++];
}

/* The table of a pair with v's options side by side. */
static bool add_pair(nb_tree *t, bucket *b, const nb_net_pair *p)
{
    input *in = add_input(b);
    if (!in) return false;
    if (p->v == b->var) return in->table = p->price, true;
    int nu = nb_net_count(t->g, p->u), nv = nb_net_count(t->g, p->v);
    in->turned = nb_alloc((size_t)nu * (size_t)nv * sizeof(double));
    if (!in->turned) return false;
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++)
            in->turned[j * nu + i] = p->price[i * nv + j];
    in->table = in->turned;
    return true;
}

/* Later variables first, so that the next to go is last; each once. */
static int put_scope(const nb_tree *t, int *scope, int n, int v)
{
    int k = n;
    for (int i = 0; i < n; i++)
        if (scope[i] == v) return n;
    for (; k > 0 && t->place[scope[k - 1]] < t->place[v]; k--)
        scope[k] = scope[k - 1];
    scope[k] = v;
    return n + 1;
}

/* Steps of an input over the variables `of`, then b's own. */
static bool set_steps(const nb_tree *t, bucket *b, input *in, const int *of,
                      int n)
{
    int64_t step = nb_net_count(t->g, b->var);
    in->step = nb_alloc_zero((size_t)(b->n + 1) * sizeof *in->step);
    if (!in->step) return false;
    for (int k = b->n - 1, j = n - 1; k >= 0 && j >= 0; k--) {
        if (b->scope[k] != of[j]) continue;
        in->step[k] = step;
        step *= nb_net_count(t->g, of[j--]);
    }
    return true;
}

static bool set_inputs(nb_tree *t, bucket *b)
{
    const nb_net *g = t->g;
    int at = 0;
    for (; at < b->nin && b->in[at].bucket >= 0; at++) {
        const bucket *from = &t->bucket[b->in[at].bucket];
        if (!set_steps(t, b, &b->in[at], from->scope, from->n - 1))
            return false;
    }
    for (int e = g->first[b->var]; e < g->first[b->var + 1]; e++) {
        const nb_net_pair *p = &g->pair[g->near[e]];
        int w = nb_net_other(p, b->var);
        if (t->held[w] || t->place[w] < t->place[b->var]) continue;
        if (!add_pair(t, b, p) || !set_steps(t, b, &b->in[b->nin - 1], &w, 1))
            return false;
    }
    return true;
}

/* Scope and size of a bucket all of whose messages have been announced. */
static bool fill_bucket(nb_tree *t, bucket *b, int *list)
{
    const nb_net *g = t->g;
    int n = 0;
    for (int i = 0; i < b->nin; i++) {
        const bucket *from = &t->bucket[b->in[i].bucket];
        for (int k = 0; k + 1 < from->n; k++)
            n = put_scope(t, list, n, from->scope[k]);
    }
    for (int e = g->first[b->var]; e < g->first[b->var + 1]; e++) {
        int w = nb_net_other(&g->pair[g->near[e]], b->var);
        if (!t->held[w] && t->place[w] > t->place[b->var])
            n = put_scope(t, list, n, w);
    }
    b->n = n;
    b->scope = nb_alloc((size_t)(n + 1) * sizeof *b->scope);
    if (!b->scope) return false;
    memcpy(b->scope, list, (size_t)n * sizeof *list);
    b->size = 1;
    for (int k = 0; k < n; k++)
        b->size *= nb_net_count(g, list[k]);
    if (b->size > t->largest) t->largest = b->size;
    t->work +=
        (double)b->size * nb_net_count(g, b->var) * (b->nin > 1 ? b->nin : 1);
    b->table = nb_alloc((size_t)b->size * sizeof *b->table);
    return b->table && set_inputs(t, b);
}

static bool build(nb_tree *t, const int *order)
{
    const nb_net *g = t->g;
    int *list = nb_alloc((size_t)(g->n + 1) * sizeof *list);
    int most = 1;
    bool ok = list != NULL;
    for (int i = 0; i < t->n; i++)
        t->place[order[i]] = i;
    for (int i = 0; i < t->n && ok; i++) {
        bucket *b = &t->bucket[i];
        b->var = order[i];
        if (!(ok = fill_bucket(t, b, list))) break;
        if (b->nin > most) most = b->nin;
        if (!b->n) continue;
        input *in = add_input(&t->bucket[t->place[b->scope[b->n - 1]]]);
        if (!(ok = in != NULL)) break;
        in->bucket = i;
    }
    nb_free(list);
    if (ok) t->off = nb_alloc((size_t)most * sizeof *t->off);
    return ok && t->off;
}

nb_tree *nb_tree_new(const nb_net *g, const bool *held, int n, const int *order)
{
    nb_tree *t = nb_alloc_zero(sizeof *t);
    if (!t) return NULL;
    size_t room = (size_t)g->n + 1, total = (size_t)g->at[g->n] + 1;
    t->g = g;
    t->n = n;
    t->bucket = nb_alloc_zero(room * sizeof *t->bucket);
    t->place = nb_alloc(room * sizeof *t->place);
    t->held = nb_alloc(room);
    t->digit = nb_alloc(room * sizeof *t->digit);
    t->cost = nb_alloc(total * sizeof *t->cost);
    t->sum = nb_alloc(2 * total * sizeof *t->sum);
    if (!t->bucket || !t->place || !t->held || !t->digit || !t->cost || !t->sum)
        return nb_tree_free(t), NULL;
    memcpy(t->held, held, (size_t)g->n);
    if (!build(t, order)) return nb_tree_free(t), NULL;
    return t;
}

int64_t nb_tree_largest(const nb_tree *t)
{
    return t->largest;
}

double nb_tree_work(const nb_tree *t)
{
    return t->work;
}

static const double *data_of(const nb_tree *t, const input *in)
{
    return in->bucket < 0 ? in->table : t->bucket[in->bucket].table;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* min over i of a[i] + b[i], in four chains. */
static double least_of(const double *a, const double *b, int n)
{
    double m0 = INFINITY, m1 = m0, m2 = m0, m3 = m0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        m0 = smaller(a[i] + b[i], m0);
        m1 = smaller(a[i + 1] + b[i + 1], m1);
        m2 = smaller(a[i + 2] + b[i + 2], m2);
        m3 = smaller(a[i + 3] + b[i + 3], m3);
    }
    for (; i < n; i++)
        m0 = smaller(a[i] + b[i], m0);
    return smaller(smaller(m0, m1), smaller(m2, m3));
}

static void add_to(double *sum, const double *x, int n)
{
    for (int i = 0; i < n; i++)
        sum[i] += x[i];
}

/* Along the last of the scope: the inputs that vary along it, on top of the
 * sum of those that do not. */
static void run_line(nb_tree *t, const bucket *b, const double *cost,
                     double *out)
{
    int nv = nb_net_count(t->g, b->var), last = b->n - 1, varying = 0;
    int nx = nb_net_count(t->g, b->scope[last]);
    double *base = t->sum, *sum = t->sum + nv;
    const input *one = NULL;
    int64_t at = 0;
    memcpy(base, cost, (size_t)nv * sizeof *base);
    for (int i = 0; i < b->nin; i++) {
        const input *in = &b->in[i];
        if (!in->step[last])
            add_to(base, data_of(t, in) + t->off[i], nv);
        else if (!varying++)
            one = in, at = t->off[i];
    }
    const double *first = data_of(t, one) + at;
    for (int x = 0; x < nx; x++, first += one->step[last]) {
        if (varying == 1) {
            out[x] = least_of(base, first, nv);
            continue;
        }
        memcpy(sum, base, (size_t)nv * sizeof *sum);
        for (int i = 0; i < b->nin; i++)
            if (b->in[i].step[last] && &b->in[i] != one)
                add_to(sum,
                       data_of(t, &b->in[i]) + t->off[i] +
                           x * b->in[i].step[last],
                       nv);
        out[x] = least_of(sum, first, nv);
    }
}

/* The next point of the scope without its last: counts as an odometer does. */
static void advance(nb_tree *t, const bucket *b)
{
    for (int k = b->n - 2; k >= 0; k--) {
        int n = nb_net_count(t->g, b->scope[k]);
        bool turns = ++t->digit[k] == n;
        for (int i = 0; i < b->nin; i++)
            t->off[i] += b->in[i].step[k] * (turns ? 1 - n : 1);
        if (!turns) return;
        t->digit[k] = 0;
    }
}

static void run_bucket(nb_tree *t, const bucket *b)
{
    const double *cost = t->cost + t->g->at[b->var];
    int nv = nb_net_count(t->g, b->var);
    for (int i = 0; i < b->nin; i++)
        t->off[i] = 0;
    if (!b->n) {
        memcpy(t->sum, cost, (size_t)nv * sizeof *cost);
        for (int i = 1; i < b->nin; i++)
            add_to(t->sum, data_of(t, &b->in[i]), nv);
        memset(t->sum + nv, 0, (size_t)nv * sizeof *cost);
        b->table[0] =
            least_of(t->sum, b->nin ? data_of(t, &b->in[0]) : t->sum + nv, nv);
        return;
    }
    int nx = nb_net_count(t->g, b->scope[b->n - 1]);
    memset(t->digit, 0, (size_t)b->n * sizeof *t->digit);
    for (int64_t at = 0; at < b->size; at += nx) {
        run_line(t, b, cost, b->table + at);
        advance(t, b);
    }
}

/* The best option of a bucket's variable, all of its scope being chosen. */
static void choose(nb_tree *t, const bucket *b, int *choice)
{
    int nv = nb_net_count(t->g, b->var), best = 0;
    memcpy(t->sum, t->cost + t->g->at[b->var], (size_t)nv * sizeof *t->sum);
    for (int i = 0; i < b->nin; i++) {
        int64_t at = 0;
        for (int k = 0; k < b->n; k++)
            at += b->in[i].step[k] * choice[b->scope[k]];
        add_to(t->sum, data_of(t, &b->in[i]) + at, nv);
    }
    for (int i = 1; i < nv; i++)
        if (t->sum[i] < t->sum[best]) best = i;
    choice[b->var] = best;
}

/* What held variables cost, and what they make the others cost. */
static double add_held(nb_tree *t, const double *cost, const int *choice)
{
    const nb_net *g = t->g;
    double sum = 0;
    memcpy(t->cost, cost, (size_t)g->at[g->n] * sizeof *cost);
    for (int v = 0; v < g->n; v++)
        if (t->held[v]) sum += cost[g->at[v] + choice[v]];
    for (int k = 0; k < g->npairs; k++) {
        const nb_net_pair *p = &g->pair[k];
        int nu = nb_net_count(g, p->u), nv = nb_net_count(g, p->v);
        const double *row = p->price + choice[p->u] * nv;
        if (t->held[p->u] && t->held[p->v])
            sum += row[choice[p->v]];
        else if (t->held[p->u])
            add_to(t->cost + g->at[p->v], row, nv);
        else if (t->held[p->v])
            for (int i = 0; i < nu; i++)
                t->cost[g->at[p->u] + i] += p->price[i * nv + choice[p->v]];
    }
    return sum;
}

bool nb_tree_run(nb_tree *t, const double *cost, int *choice, double *value)
{
    double sum = add_held(t, cost, choice);
    for (int i = 0; i < t->n; i++) {
        run_bucket(t, &t->bucket[i]);
        if (!t->bucket[i].n) sum += t->bucket[i].table[0];
    }
    for (int i = t->n - 1; i >= 0; i--)
        choose(t, &t->bucket[i], choice);
    *value = sum;
    return isfinite(sum);
}
