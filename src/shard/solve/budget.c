/* budget.c - the best choice within budgets.
 *
 * A budget enters the cost with a price per byte: for any prices y >= 0,
 *
 *     min over choices of  cost + sum over rows of y (bytes - budget)
 *
 * is a bound for all choices within the budgets, and concave in y.  With one
 * row the best y is found by cutting two lines, with several by subgradient
 * steps; choices met on the way that fit are polished and the best is kept.
 * What is left between the two is closed by branching on variables in which a
 * choice that does not fit differs from the best that does, best bound first. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

/* A part of all choices: its parent's, with one variable decided. */
typedef struct part {
    double bound;
    int parent, var, option;
    bool is; /* the option, or not */
} part;

typedef struct solver {
    nb_relaxed *r;
    const nb_net *g;
    nb_found *f;
    double limit; /* of work */
    double *cost, *y, *best_y;
    bool *out;   /* options that the part does not have */
    int *choice; /* the last one */
    int *misfit; /* the one at the best bound of the part */
    int *polished;
    int64_t *bytes;
    double value; /* its cost, prices of bytes left out */
    /* Parts, and those not yet looked into, a heap by bound. */
    part *part;
    int nparts, room, *open, nopen, open_room;
    double *prices; /* of every part, at its best bound */
    int prices_room;
} solver;

static int64_t bytes_of(const nb_net *g, int r, int option)
{
    return g->bytes[(size_t)r * (size_t)g->at[g->n] + (size_t)option];
}

/* A choice that fits may be the best so far. */
static bool offer(solver *s)
{
    const nb_net *g = s->g;
    double value;
    memcpy(s->polished, s->choice, (size_t)g->n * sizeof *s->choice);
    if (g->nrows && !nb_polish(g, s->polished, &value)) return false;
    value = nb_net_cost(g, g->cost, s->polished);
    if (value >= s->f->value) return true;
    s->f->value = value;
    memcpy(s->f->choice, s->polished, (size_t)g->n * sizeof *s->choice);
    return true;
}

/* The bound at prices y, for the part that `out` describes. */
static bool evaluate(solver *s, const double *y, double *bound)
{
    const nb_net *g = s->g;
    double value;
    for (int i = 0; i < g->at[g->n]; i++) {
        s->cost[i] = s->out[i] ? INFINITY : g->cost[i];
        for (int r = 0; r < g->nrows; r++)
            s->cost[i] += y[r] * (double)bytes_of(g, r, i);
    }
    if (!nb_relaxed_run(s->r, s->cost, s->choice, &value, bound)) return false;
    for (int r = 0; r < g->nrows; r++)
        *bound -= y[r] * (double)g->budget[r];
    s->value = INFINITY;
    if (!isfinite(value)) return true;
    s->value = nb_net_cost(g, g->cost, s->choice);
    nb_net_bytes(g, s->choice, s->bytes);
    return !nb_net_fits(g, s->choice) || offer(s);
}

typedef struct point {
    double cost, bytes; /* bytes beyond the budget */
} point;

static point point_now(const solver *s)
{
    return (point){s->value, (double)(s->bytes[0] - s->g->budget[0])};
}

static void keep_best(solver *s, const double *y, double bound, double *best)
{
    if (bound <= *best) return;
    *best = bound;
    memcpy(s->best_y, y, (size_t)s->g->nrows * sizeof *y);
    memcpy(s->misfit, s->choice, (size_t)s->g->n * sizeof *s->choice);
}

/* A price at which the one row is kept to, from a guess upwards. */
static bool price_enough(solver *s, point lo, point *hi, double *best)
{
    double bound, y = (fabs(lo.cost) + 1) / (lo.bytes + 1) * 1e-3;
    for (int k = 0; k < 60; k++, y *= 8) {
        if (!evaluate(s, &y, &bound)) return false;
        keep_best(s, &y, bound, best);
        *hi = point_now(s);
        if (hi->bytes <= 0 || bound == INFINITY || bound >= s->f->value) break;
    }
    return true;
}

/* One row: the lines of a choice that does not fit and of one that does meet at
 * the next price; when nothing is below where they meet, that is the top. */
static bool cut_lines(solver *s, double *best)
{
    point lo = point_now(s), hi;
    if (lo.bytes <= 0) return true; /* what is left is a gap of the search */
    if (!price_enough(s, lo, &hi, best)) return false;
    for (int k = 0; k < 60 && hi.bytes <= 0 && lo.bytes > 0; k++) {
        double y = (hi.cost - lo.cost) / (lo.bytes - hi.bytes), bound;
        double meet = lo.cost + y * lo.bytes;
        if (!evaluate(s, &y, &bound)) return false;
        keep_best(s, &y, bound, best);
        if (bound >= meet - 1e-12 * fabs(meet)) return true;
        *(s->bytes[0] > s->g->budget[0] ? &lo : &hi) = point_now(s);
        if (s->r->work > s->limit && s->f->value < INFINITY) return true;
        if (!s->r->tree && k > 10) return true;
    }
    return true;
}

/* A step up: as far as the best known value would be reached if the bound were
 * as steep all the way. */
static bool step(const solver *s, double *y, double bound, double pace)
{
    const nb_net *g = s->g;
    double square = 0, above = s->f->value - bound;
    if (!isfinite(above)) above = fabs(bound) + 1;
    for (int r = 0; r < g->nrows; r++) {
        double d =
            (double)(s->bytes[r] - g->budget[r]) / (double)(g->budget[r] + 1);
        if (d > 0 || y[r] > 0) square += d * d;
    }
    if (square == 0) return false;
    for (int r = 0; r < g->nrows; r++) {
        double scale = (double)(g->budget[r] + 1);
        double d = (double)(s->bytes[r] - g->budget[r]) / scale;
        y[r] += pace * above / square * d / scale;
        if (y[r] < 0) y[r] = 0;
    }
    return true;
}

static bool climb(solver *s, int rounds, double *best)
{
    double pace = 1;
    int idle = 0;
    memcpy(s->y, s->best_y, (size_t)s->g->nrows * sizeof *s->y);
    for (int k = 0; k < rounds; k++) {
        double bound, before = *best;
        if (!evaluate(s, s->y, &bound)) return false;
        keep_best(s, s->y, bound, best);
        if (bound == INFINITY || *best >= s->f->value) return true;
        if (s->r->work > s->limit) return true;
        idle = *best > before ? 0 : idle + 1;
        if (idle == 4) {
            pace /= 2, idle = 0;
            memcpy(s->y, s->best_y, (size_t)s->g->nrows * sizeof *s->y);
        }
        if (!step(s, s->y, bound, pace)) return true;
    }
    return true;
}

static bool is_done(const solver *s, double bound)
{
    double value = s->f->value;
    return bound >= value - 1e-9 * (fabs(value) + 1e-300);
}

/* The bound of everything, with the prices at which it holds. */
static bool solve_root(solver *s, double *best)
{
    const nb_net *g = s->g;
    double bound;
    *best = -INFINITY;
    if (!evaluate(s, s->best_y, &bound)) return false;
    keep_best(s, s->best_y, bound, best);
    if (bound == INFINITY || is_done(s, *best) || !g->nrows) return true;
    if (g->nrows == 1) return cut_lines(s, best);
    /* A first choice that fits: bytes weigh more and more. */
    for (double y = 1e-6; y < 1e12 && s->f->value == INFINITY; y *= 30) {
        for (int r = 0; r < g->nrows; r++)
            s->y[r] = y * (fabs(*best) + 1) / (double)(g->budget[r] + 1);
        if (!evaluate(s, s->y, &bound)) return false;
        keep_best(s, s->y, bound, best);
    }
    return climb(s, 150, best);
}

static void push(solver *s, int p)
{
    int k = s->nopen++;
    for (; k > 0; k = (k - 1) / 2) {
        int up = s->open[(k - 1) / 2];
        if (s->part[up].bound <= s->part[p].bound) break;
        s->open[k] = up;
    }
    s->open[k] = p;
}

static int pop(solver *s)
{
    int top = s->open[0], last = s->open[--s->nopen], k = 0;
    for (int c; (c = 2 * k + 1) < s->nopen; k = c) {
        if (c + 1 < s->nopen &&
            s->part[s->open[c + 1]].bound < s->part[s->open[c]].bound)
            c++;
        if (s->part[last].bound <= s->part[s->open[c]].bound) break;
        s->open[k] = s->open[c];
    }
    s->open[k] = last;
    return top;
}

/* The part is kept if its bound leaves something to be found in it. */
static bool add_part(solver *s, part p)
{
    size_t rows = (size_t)(s->g->nrows ? s->g->nrows : 1);
    if (!nb_grow(&s->part, &s->room, s->nparts + 1, sizeof *s->part) ||
        !nb_grow(&s->open, &s->open_room, s->nopen + 1, sizeof *s->open) ||
        !nb_grow(&s->prices, &s->prices_room, s->nparts + 1,
                 rows * sizeof *s->prices))
        return false;
    memcpy(s->prices + (size_t)s->nparts * rows, s->best_y,
           rows * sizeof *s->prices);
    s->part[s->nparts] = p;
    push(s, s->nparts++);
    return true;
}

static void mark(const solver *s, int p)
{
    const nb_net *g = s->g;
    memset(s->out, 0, (size_t)g->at[g->n]);
    for (; p > 0; p = s->part[p].parent) {
        int v = s->part[p].var, at = g->at[v];
        for (int i = at; i < g->at[v + 1]; i++)
            if ((i - at == s->part[p].option) != s->part[p].is)
                s->out[i] = true;
    }
}

/* How much it matters which option v has: in bytes at the part's prices. */
static double stake(const solver *s, int v, const double *y)
{
    const nb_net *g = s->g;
    double least = INFINITY, most = -INFINITY;
    int left = 0;
    for (int i = g->at[v]; i < g->at[v + 1]; i++) {
        double x = 0;
        if (s->out[i]) continue;
        left++;
        for (int r = 0; r < g->nrows; r++)
            x += (y[r] + 1e-300) * (double)bytes_of(g, r, i);
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    if (left < 2) return -1;
    bool differs = s->f->value < INFINITY && s->misfit[v] != s->f->choice[v];
    return (most - least + 1e-200) * (differs ? 1 : 1e-6);
}

static int branch_variable(const solver *s, const double *y)
{
    int best = -1;
    double most = -1;
    for (int v = 0; v < s->g->n; v++) {
        double x = stake(s, v, y);
        if (x > most) most = x, best = v;
    }
    return best;
}

/* Whether each row has room for the least bytes of every variable. */
static bool has_room(const solver *s)
{
    const nb_net *g = s->g;
    for (int r = 0; r < g->nrows; r++) {
        int64_t sum = 0;
        for (int v = 0; v < g->n; v++) {
            int64_t least = INT64_MAX;
            for (int i = g->at[v]; i < g->at[v + 1]; i++)
                if (!s->out[i] && bytes_of(g, r, i) < least)
                    least = bytes_of(g, r, i);
            sum += least;
        }
        if (sum > g->budget[r]) return false;
    }
    return true;
}

static bool look_into(solver *s, int p)
{
    size_t rows = (size_t)(s->g->nrows ? s->g->nrows : 1);
    double bound = -INFINITY;
    mark(s, p);
    if (!has_room(s)) return true;
    memcpy(s->best_y, s->prices + (size_t)p * rows, rows * sizeof *s->best_y);
    if (!climb(s, p ? 5 : 1, &bound)) return false;
    if (bound == INFINITY || is_done(s, bound)) return true;
    if (bound < s->part[p].bound) bound = s->part[p].bound;
    int v = branch_variable(s, s->best_y);
    if (v < 0) return true;
    int option = s->misfit[v];
    if (s->out[s->g->at[v] + option]) return true;
    return add_part(s, (part){bound, p, v, option, true}) &&
           add_part(s, (part){bound, p, v, option, false});
}

static bool branch(solver *s)
{
    if (!add_part(s, (part){s->f->bound, -1, -1, -1, true})) return false;
    while (s->nopen && s->r->work < s->limit && s->nparts < 1 << 20) {
        if (is_done(s, s->part[s->open[0]].bound)) break;
        if (!look_into(s, pop(s))) return false;
        double low = s->nopen ? s->part[s->open[0]].bound : INFINITY;
        if (low > s->f->bound) s->f->bound = low;
    }
    if (s->f->bound > s->f->value) s->f->bound = s->f->value;
    return true;
}

static bool solver_open(solver *s)
{
    const nb_net *g = s->g;
    size_t n = (size_t)g->n + 1, total = (size_t)g->at[g->n] + 1;
    size_t rows = (size_t)g->nrows + 1;
    s->cost = nb_alloc(total * sizeof *s->cost);
    s->out = nb_alloc_zero(total);
    s->y = nb_alloc_zero(2 * rows * sizeof *s->y);
    s->bytes = nb_alloc_zero(rows * sizeof *s->bytes);
    s->choice = nb_alloc_zero(3 * n * sizeof *s->choice);
    if (!s->cost || !s->out || !s->y || !s->bytes || !s->choice) return false;
    s->best_y = s->y + rows;
    s->misfit = s->choice + n;
    s->polished = s->misfit + n;
    return true;
}

static void solver_close(solver *s)
{
    nb_free(s->cost);
    nb_free(s->out);
    nb_free(s->y);
    nb_free(s->bytes);
    nb_free(s->choice);
    nb_free(s->part);
    nb_free(s->open);
    nb_free(s->prices);
}

bool nb_budget_solve(nb_relaxed *r, double work, nb_found *f)
{
    solver s = {.r = r, .g = r->g, .f = f, .limit = work};
    bool ok = solver_open(&s) && solve_root(&s, &f->bound);
    if (ok && f->bound < INFINITY && !is_done(&s, f->bound) && r->tree)
        ok = branch(&s);
    solver_close(&s);
    return ok;
}

/* The net with bytes of a row as its costs, and of prices only whether they
 * are finite. */
static nb_net *bytes_net(const nb_net *g, int k)
{
    bool *none = nb_alloc_zero((size_t)g->at[g->n] + 1);
    nb_net *to = none ? nb_net_keep(g, none) : NULL;
    nb_free(none);
    if (!to) return NULL;
    for (int i = 0; i < g->at[g->n]; i++)
        to->cost[i] = (double)bytes_of(g, k, i);
    for (int e = 0; e < g->npairs; e++) {
        nb_net_pair *p = &to->pair[e];
        int n = nb_net_count(g, p->u) * nb_net_count(g, p->v);
        for (int i = 0; i < n; i++)
            p->price[i] = isinf(p->price[i]) ? INFINITY : 0;
    }
    return to;
}

static bool has_infinite(const nb_net *g)
{
    for (int e = 0; e < g->npairs; e++) {
        const nb_net_pair *p = &g->pair[e];
        int n = nb_net_count(g, p->u) * nb_net_count(g, p->v);
        for (int i = 0; i < n; i++)
            if (isinf(p->price[i])) return true;
    }
    return false;
}

bool nb_budget_least(const nb_net *g, int k, int64_t table, int *choice,
                     int64_t *least)
{
    *least = 0;
    for (int v = 0; v < g->n; v++) {
        choice[v] = 0;
        for (int i = 1; i < nb_net_count(g, v); i++)
            if (bytes_of(g, k, g->at[v] + i) <
                bytes_of(g, k, g->at[v] + choice[v]))
                choice[v] = i;
        *least += bytes_of(g, k, g->at[v] + choice[v]);
    }
    if (!has_infinite(g)) return true;
    nb_net *b = bytes_net(g, k);
    nb_relaxed r = {0};
    double value, bound;
    bool ok = b && nb_relaxed_open(&r, b, table) &&
              nb_relaxed_run(&r, b->cost, choice, &value, &bound);
    if (ok && isfinite(bound)) *least = (int64_t)ceil(bound - 0.5);
    nb_relaxed_close(&r);
    nb_net_free(b);
    return ok;
}
