/* resolve.c - COLLECT, RESOLVE, UPDATE. */
#include "shard/decide/resolve.h"

#include "shard/decide/factors.h"
#include "shard/decide/partial.h"
#include "shard/decide/work.h"
#include "shard/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* COLLECT */

static bool collect(nb_work *w)
{
    const nb_factors *f = w->f;
    int n = f->nin + f->nout;
    w->cand = nb_alloc_zero((size_t)(n * f->n + 1) * sizeof *w->cand);
    for (int t = 0; w->cand && t < n; t++)
        for (int d = 0; w->spec[t] && d < f->tensor[t].rank; d++)
            nb_factors_deal(f->size, &f->tensor[t].dim[d],
                            &w->spec[t]->dim[d].axes, w->cand + t * f->n);
    return w->cand;
}

/* RESOLVE within a factor */

/* Cut off at the first axis that one of the tensors must not be split on. */
static void bar(const nb_work *w, int k, nb_cut *l)
{
    for (int i = 0; i < l->n; i++)
        for (int t = 0; t < w->f->nin + w->f->nout; t++)
            if (w->spec[t] && nb_factored_has(&w->f->tensor[t], k) &&
                nb_cut_has(&w->spec[t]->replicated, l->at[i])) {
                l->n = (uint8_t)i;
                return;
            }
}

static int priority_of(const nb_work *w, int t, int k)
{
    const nb_factored *x = &w->f->tensor[t];
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == k) return w->spec[t]->dim[d].priority;
    return 0;
}

typedef struct choice {
    nb_cut longest, common;
    int64_t most;
    int priority;
    bool any, agree, unique;
} choice;

static void weigh(choice *c, const nb_cut *l, int priority)
{
    int64_t n = nb_cut_count(l);
    if (!c->any || priority < c->priority) {
        *c = (choice){*l, *l, n, priority, true, true, true};
        return;
    }
    if (priority > c->priority) return;
    if (nb_cut_prefix(&c->longest, l)) {
        if (c->agree) c->longest = *l;
    } else if (!nb_cut_prefix(l, &c->longest))
        c->agree = false;
    if (n > c->most) {
        c->most = n;
        c->common = *l;
        c->unique = true;
    } else if (n == c->most) {
        c->unique = c->unique && nb_cut_equal(l, &c->common);
        c->common = nb_cut_common(&c->common, l);
    }
}

static void settle_factor(nb_work *w, int k)
{
    choice c = {0};
    for (int t = 0; t < w->f->nin + w->f->nout; t++) {
        nb_cut *l = &w->cand[t * w->f->n + k];
        bar(w, k, l);
        if (l->n) weigh(&c, l, priority_of(w, t, k));
    }
    w->axes[k] = c.any ? c.agree ? c.longest : c.common : (nb_cut){0};
    /* Where it is a dim of its own, that is not split. */
    if (w->f->kind[k] != NB_PERMUTE && w->f->size[k] <= 1) w->axes[k].n = 0;
    w->priority[k] = c.priority;
}

/* At most as many blocks as there are elements; one element is not split. */
static void keep_full(nb_cut *l, int64_t size)
{
    while (l->n && size > 1 && nb_cut_count(l) > size)
        l->n--;
}

/* A dim that no operand has is made in parts by ops that are told the shape of
 * their result, and by those that say so. */
static bool is_made_whole(const nb_work *w, int k)
{
    const nb_op *op = w->call->op;
    bool given = false;
    for (int t = 0; t < w->f->nin; t++)
        given = given || nb_factored_has(&w->f->tensor[t], k);
    return !given && !op->sized && !(op->splits >> NB_PASS & 1);
}

/* The greatest of nothing is no number, windows have their least size,
 * nothing is picked from nothing and it comes to nothing: no block may be
 * empty. */
static void fill(nb_work *w, int k)
{
    const nb_factors *f = w->f;
    bool extreme = f->reduce[k] == NB_MAX || f->reduce[k] == NB_MIN;
    nb_factor_kind kind = nb_work_kind(w, k);
    if ((f->reduced[k] && extreme) || kind == NB_MASK || kind == NB_SCAN)
        keep_full(&w->axes[k], f->size[k]);
    for (int t = f->nin; f->kind[k] == NB_PERMUTE && t < f->nin + f->nout; t++)
        for (int d = 0; d < f->tensor[t].rank; d++)
            if (f->tensor[t].dim[d].n && f->tensor[t].dim[d].factor[0] == k)
                keep_full(&w->axes[k], f->tensor[t].size[d]);
}

/* RESOLVE between factors */

static int first_overlap(const nb_cut *a, const nb_cut *b)
{
    for (int i = 0; i < a->n; i++)
        if (nb_cut_has(b, a->at[i])) return i;
    return -1;
}

/* What tensor t costs if it lies so: what blocks reach for of it, and what they
 * tell each other of it. */
static bool talk_cost(const nb_work *w, int t, const nb_spec *lies,
                      const nb_spec *give, double *seconds)
{
    const nb_op *op = w->call->op;
    const nb_reshard_plan *reach = NULL, *share = NULL;
    if (op->reach && t < w->f->nin && !nb_reach_plan(w, t, lies, give, &reach))
        return false;
    if (t < 32 && op->shares >> t & 1 && !nb_share_plan(w, t, lies, &share))
        return false;
    *seconds += (reach ? reach->seconds : 0) + (share ? share->seconds : 0);
    return true;
}

/* What it would cost to have the operands lie as the factors say, to run so, and
 * to pay for the reductions that are left pending. */
static bool cost(nb_work *w, double *seconds)
{
    const nb_factors *f = w->f;
    const nb_spec *give = f->nout ? nb_work_need(w, f->nin) : NULL;
    *seconds = 0;
    if (f->nout && !give) return false;
    for (int t = 0; t < f->nin + f->nout; t++) {
        const nb_spec *lies = nb_work_need(w, t);
        if (!lies || !talk_cost(w, t, lies, give, seconds)) return false;
        if (t >= f->nin) continue;
        const nb_reshard_plan *p = nb_reshard_find(
            w->from[t], lies, f->tensor[t].size, w->item[t], NULL);
        if (!p) return false;
        *seconds += p->seconds;
    }
    for (int k = 0; k < f->n; k++)
        if (f->reduced[k]) *seconds += nb_work_debt(w, &w->axes[k]);
    return true;
}

static int rank_of(const nb_work *w, int k)
{
    return w->f->reduced[k]                   ? 1
           : nb_work_kind(w, k) == NB_PASS    ? 0
           : nb_work_kind(w, k) == NB_PERMUTE ? 2
                                              : 3;
}

static void yield(nb_cut *l, const nb_cut *to)
{
    int at = first_overlap(l, to);
    if (at >= 0) l->n = (uint8_t)at;
}

/* The cost if a factor keeps what it wants: the others yield to it, and what
 * more they want of each other goes to the first. */
static bool cost_of(nb_work *w, int winner, double *seconds)
{
    nb_cut was[NB_MAX_AXES];
    size_t bytes = (size_t)w->f->n * sizeof was[0];
    memcpy(was, w->axes, bytes);
    for (int k = 0; k < w->f->n; k++) {
        if (k == winner) continue;
        yield(&w->axes[k], &w->axes[winner]);
        for (int j = 0; j < k; j++)
            yield(&w->axes[k], &w->axes[j]);
    }
    for (int k = 0; k < w->f->n; k++)
        fill(w, k);
    bool ok = cost(w, seconds);
    memcpy(w->axes, was, bytes);
    return ok;
}

/* "tp goes to n (6144), not to k (36864)" */
static bool say(nb_work *w, int a, int b, bool first, const char *what,
                double for_a, double for_b)
{
    nb_axis x = w->axes[a].at[first_overlap(&w->axes[a], &w->axes[b])];
    snprintf(w->reason, sizeof w->reason,
             "%s goes to %s (%s%.10g), not to %s (%s%.10g)",
             w->mesh->axis[x.axis], nb_work_factor_name(w, first ? a : b), what,
             first ? for_a : for_b, nb_work_factor_name(w, first ? b : a), what,
             first ? for_b : for_a);
    return first;
}

/* Whether a keeps the axis that a and b both want. */
static bool keeps(nb_work *w, int a, int b, bool *ok)
{
    double for_a, for_b;
    int pa = w->priority[a], pb = w->priority[b];
    if (pa != pb) return say(w, a, b, pa < pb, "priority ", pa, pb);
    *ok = *ok && cost_of(w, a, &for_a) && cost_of(w, b, &for_b);
    if (!*ok) return true;
    bool first =
        for_a != for_b ? for_a < for_b : rank_of(w, a) <= rank_of(w, b);
    return say(w, a, b, first, "", for_a, for_b);
}

static bool settle_between(nb_work *w)
{
    bool ok = true;
    for (int a = 0; a < w->f->n; a++)
        for (int b = a + 1; b < w->f->n && ok; b++) {
            if (first_overlap(&w->axes[a], &w->axes[b]) < 0) continue;
            int loser = keeps(w, a, b, &ok) ? b : a;
            yield(&w->axes[loser], &w->axes[a + b - loser]);
            a = -1; /* from the beginning */
            break;
        }
    return ok;
}

/* Factors that must be whole: their axes may go to another dim of the same
 * tensors, which moves each block once instead of to everybody. */

static bool may_take(const nb_work *w, int from, int to, nb_axis a)
{
    const nb_factors *f = w->f;
    if (w->axes[to].n || nb_work_kind(w, to) != NB_PASS || f->reduced[to] ||
        f->size[to] % a.size || !f->size[to])
        return false;
    for (int t = 0; t < f->nin + f->nout; t++)
        if (nb_factored_has(&f->tensor[t], from) &&
            !nb_factored_has(&f->tensor[t], to))
            return false;
    return true;
}

static void spill(nb_work *w, int k)
{
    nb_cut was = w->axes[k];
    w->axes[k].n = 0;
    for (int i = 0; i < was.n; i++)
        for (int to = 0; to < w->f->n; to++) {
            bool used = false;
            for (int o = 0; o < w->f->n; o++)
                used = used || nb_cut_has(&w->axes[o], was.at[i]);
            if (used || to == k || !may_take(w, k, to, was.at[i])) continue;
            nb_cut_add(&w->axes[to], was.at[i]);
            break;
        }
}

/* The longest beginning whose count divides n. */
static void divide(nb_cut *l, int64_t n)
{
    while (l->n && (!n || n % nb_cut_count(l)))
        l->n--;
}

/* Inside (a b), a is split evenly, and b only where a is split to the last. */
static bool settle_group(nb_work *w, const nb_dim *dim)
{
    bool whole = false, changed = false;
    for (int i = 0; i < dim->n; i++) {
        nb_cut *l = &w->axes[dim->factor[i]];
        int n = l->n;
        if (whole) l->n = 0;
        if (i + 1 < dim->n) divide(l, w->f->size[dim->factor[i]]);
        whole = whole || nb_cut_count(l) != w->f->size[dim->factor[i]];
        changed = changed || l->n != n;
    }
    return changed;
}

static void settle_groups(nb_work *w)
{
    bool again = true;
    while (again) {
        again = false;
        for (int t = 0; t < w->f->nin + w->f->nout; t++)
            for (int d = 0; d < w->f->tensor[t].rank; d++)
                if (w->f->tensor[t].dim[d].n > 1)
                    again |= settle_group(w, &w->f->tensor[t].dim[d]);
    }
}

bool nb_work_resolve(nb_work *w)
{
    if (!collect(w)) return false;
    for (int k = 0; k < w->f->n; k++)
        settle_factor(w, k);
    bool ok = settle_between(w);
    for (int k = 0; ok && k < w->f->n; k++) {
        fill(w, k);
        if (w->axes[k].n && is_made_whole(w, k)) w->axes[k].n = 0;
        nb_factor_kind kind = nb_work_kind(w, k);
        bool whole = kind == NB_REPLICATE || kind == NB_BLOCKED;
        if (w->mesh->rules & NB_MESH_GATHER && (whole || kind == NB_MASK))
            w->axes[k].n = 0;
        else if (whole)
            spill(w, k);
    }
    settle_groups(w);
    nb_free(w->cand);
    w->cand = NULL;
    return ok;
}
