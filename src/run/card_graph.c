/* card_graph.c - programs on a card as graphs.
 *
 * Steps in a row that do nothing but enqueue are a piece, and a piece becomes a
 * graph when it has run often enough to be worth it: to capture a step costs as
 * much as to launch it some times.  A graph holds addresses: of the arena,
 * of inputs, of results.  The allocator hands out the same few again and again,
 * so a frame keeps several takes of a program, each with the addresses that it
 * was captured with, and most runs find one of their own.  Kernels of ours can
 * be given other addresses later; what a library enqueued cannot, so that only
 * a take with the addresses it is to have will do.
 *
 * Nothing is kept for a take: its arena may be another's meanwhile.  Whoever
 * launches it has that memory again, and the stream's order is that of runs. */
#include "run/card_parts.h"

#include "backend/cuda/graph.h"

#include <stdio.h>
#include <string.h>

enum { TAKES = 4, WORTH = 16, NAMES = 1500 };

typedef enum reach { FREE, FIXED, NUMBER } reach;

/* A block from outside: of an input, or of a result; or a number, which stands
 * where its address would. */
typedef struct outside {
    int line;
    reach reach; /* FIXED: what cannot be changed reads or writes it */
} outside;

typedef struct piece {
    int first, last;
} piece;

struct nb_card_pieces {
    int n, nout, steps;
    piece *piece;
    outside *out;
    atomic_bool unfit; /* it could not be captured */
};

typedef struct take {
    char *arena, **at;     /* at: of the blocks from outside */
    nb_card_graph **graph; /* by piece */
    void **node;           /* by step: of kernels of ours */
    uint64_t turn;         /* of its last run */
} take;

struct nb_card_reel {
    int n;
    take *take[TAKES];
    uint64_t turn, runs;   /* runs: after the first */
    int64_t waited, worth; /* steps run without one of their own; how many of
                            * them another take is worth */
};

/* Pieces */

bool nb_card_only_enqueues(const nb_exec *e, int s)
{
    const nb_card_step *k = &e->on_card[s];
    return k->code || (k->job && !k->job->alone) || k->follows;
}

static int launches(const nb_card_step *k)
{
    if (k->follows) return 0;
    return k->job && k->job->launches ? k->job->launches : 1;
}

static void find_pieces(const nb_exec *e, nb_card_pieces *c)
{
    int n = e->plan->nsteps;
    for (int s = 0; s < n; s++) {
        int first = s;
        while (s < n && nb_card_only_enqueues(e, s))
            s++;
        if (s == first) continue;
        c->piece[c->n++] = (piece){first, s - 1};
        for (int k = first; k < s; k++)
            c->steps += launches(&e->on_card[k]);
    }
}

static bool is_outside(const nb_plan *p, int k)
{
    if (p->home[k] >= NB_HOME_RESULT) return true;
    return p->home[k] == NB_HOME_GIVEN && k < p->graph->n &&
           p->graph->line[k].kind == NB_LINE_INPUT;
}

/* Of all blocks: whether a library or a job has to do with them. */
static void find_fixed(const nb_exec *e, bool *fixed)
{
    const nb_plan *p = e->plan;
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        if (step->nest || !nb_card_only_enqueues(e, s)) continue;
        const nb_line *l = &p->graph->line[step->line];
        fixed[step->line] = true;
        for (int b = 0; step->gemm && b < step->nbuffers; b++)
            fixed[step->buffer[b]] = true;
        for (int i = 0; !step->gemm && i < l->nin; i++)
            fixed[p->place[l->in[i]].root] = true;
    }
}

static reach reach_of(const nb_exec *e, const bool *fixed, int k)
{
    return fixed[k] ? FIXED : nb_card_is_by_value(e, k) ? NUMBER : FREE;
}

bool nb_card_cut(nb_exec *e)
{
    int n = nb_plan_blocks(e->plan);
    size_t steps = (size_t)e->plan->nsteps + 1;
    nb_card_pieces *c = nb_alloc_zero(sizeof *c);
    bool *fixed = nb_alloc_zero((size_t)n + 1);
    if (c) {
        c->piece = nb_alloc(steps * sizeof *c->piece);
        c->out = nb_alloc(((size_t)n + 1) * sizeof *c->out);
    }
    e->pieces = c;
    bool ok = c && fixed && c->piece && c->out;
    if (ok) {
        find_pieces(e, c);
        find_fixed(e, fixed);
        for (int k = 0; k < n; k++)
            if (is_outside(e->plan, k))
                c->out[c->nout++] = (outside){k, reach_of(e, fixed, k)};
    }
    nb_free(fixed);
    return ok;
}

void nb_card_pieces_free(nb_card_pieces *c)
{
    if (!c) return;
    nb_free(c->piece), nb_free(c->out);
    nb_free(c);
}

/* Takes */

static void take_free(const nb_card_pieces *c, take *t)
{
    if (!t) return;
    for (int i = 0; t->graph && i < c->n; i++)
        nb_card_graph_free(t->graph[i]);
    nb_free(t->at), nb_free(t->graph), nb_free(t->node);
    nb_free(t);
}

void nb_card_reel_free(const nb_card_pieces *c, nb_card_reel *all)
{
    if (!all) return;
    for (int i = 0; i < all->n; i++)
        take_free(c, all->take[i]);
    nb_free(all);
}

static take *take_new(const nb_exec *e, const nb_frame *f)
{
    const nb_card_pieces *c = e->pieces;
    size_t steps = (size_t)e->plan->nsteps;
    take *t = nb_alloc_zero(sizeof *t);
    if (!t) return NULL;
    t->at = nb_alloc((size_t)(c->nout + 1) * sizeof *t->at);
    t->graph = nb_alloc_zero((size_t)c->n * sizeof *t->graph);
    t->node = nb_alloc_zero(steps * sizeof *t->node);
    if (!t->at || !t->graph || !t->node) return take_free(c, t), NULL;
    t->arena = f->arena->data;
    for (int i = 0; i < c->nout; i++)
        t->at[i] = f->block[c->out[i].line];
    return t;
}

static void name_piece(const nb_exec *e, const piece *x, char *text)
{
    size_t n = 0;
    for (int s = x->first; s <= x->last && n < NAMES; s++)
        n += (size_t)snprintf(text + n, NAMES - n, "%s%s", n ? "; " : "",
                              e->on_card[s].what);
}

static bool capture_steps(const nb_exec *e, const piece *x,
                          const nb_card_doing *d, void **node)
{
    nb_card *card = nb_card_at(e->device - 1);
    bool ok = true;
    for (int s = x->first; ok && s <= x->last; s++) {
        const nb_card_step *k = &e->on_card[s];
        ok = d->step(d->ctx, s);
        if (ok && node && k->code && k->blocks)
            ok = (node[s] = nb_card_capture_node(card)) ||
                 nb_fail(NB_ERUNTIME, "a graph without the kernel of a step");
    }
    return ok;
}

/* A graph is a line, in the order of the steps: where steps that could run side
 * by side did, it took longer to launch and no less to run. */
static nb_card_graph *capture_piece(const nb_exec *e, const piece *x,
                                    const nb_card_doing *d, void **node)
{
    nb_card *card = nb_card_at(e->device - 1);
    char names[NAMES];
    if (!nb_card_capture_begin(card)) return NULL;
    if (!capture_steps(e, x, d, node)) {
        nb_card_capture_give_up(card);
        return NULL;
    }
    name_piece(e, x, names);
    return nb_card_capture_end(card, names);
}

/* What cannot be captured runs step by step; a card that has failed will say so
 * then. */
static take *capture(nb_exec *e, const nb_frame *f, const nb_card_doing *d)
{
    nb_card_pieces *c = e->pieces;
    take *t = take_new(e, f);
    bool ok = t;
    for (int i = 0; ok && i < c->n; i++)
        ok = (t->graph[i] = capture_piece(e, &c->piece[i], d, t->node));
    if (ok) return t;
    if (nb_error_code() != NB_EMEMORY) c->unfit = true;
    nb_error_clear();
    take_free(c, t);
    return NULL;
}

/* What is otherwise than in a take: blocks, numbers; -1: a block that must not
 * be. */
typedef struct difference {
    int blocks, numbers;
} difference;

static difference differs(const nb_card_pieces *c, const nb_frame *f,
                          const take *t)
{
    difference d = {t->arena == f->arena->data ? 0 : -1, 0};
    for (int i = 0; i < c->nout && d.blocks >= 0; i++) {
        if (t->at[i] == f->block[c->out[i].line]) continue;
        if (c->out[i].reach == FIXED)
            d.blocks = -1;
        else if (c->out[i].reach == NUMBER)
            d.numbers++;
        else
            d.blocks++;
    }
    return d;
}

static bool step_moved(const nb_exec *e, const take *t, const nb_frame *f,
                       const int *out, int s)
{
    const nb_step *step = &e->plan->step[s];
    for (int b = 0; b < step->nbuffers; b++) {
        int i = out[step->buffer[b]];
        if (i >= 0 && t->at[i] != f->block[step->buffer[b]]) return true;
    }
    return false;
}

static bool has_moved(const nb_exec *e, const take *t, const nb_frame *f,
                      const int *out, int s)
{
    const nb_card_step *k = &e->on_card[s];
    bool moved = step_moved(e, t, f, out, s);
    for (int i = 0; !moved && i < k->nwith; i++)
        moved = step_moved(e, t, f, out, k->with[i]);
    return moved;
}

static bool change_piece(nb_exec *e, const take *t, const nb_frame *f,
                         const int *out, int i)
{
    const piece *x = &e->pieces->piece[i];
    bool ok = true;
    for (int s = x->first; ok && s <= x->last; s++)
        if (t->node[s] && has_moved(e, t, f, out, s))
            ok = nb_card_change_nest(e, s, f->block, t->graph[i], t->node[s]);
    return ok;
}

/* Kernels whose blocks have moved are told. */
static bool change(nb_exec *e, take *t, const nb_frame *f)
{
    const nb_card_pieces *c = e->pieces;
    size_t n = (size_t)nb_plan_blocks(e->plan) + 1;
    int *out = nb_alloc(n * sizeof *out); /* by block: its number outside */
    bool ok = out;
    if (ok) memset(out, -1, n * sizeof *out);
    for (int i = 0; ok && i < c->nout; i++)
        out[c->out[i].line] = i;
    for (int i = 0; ok && i < c->n; i++)
        ok = change_piece(e, t, f, out, i);
    for (int i = 0; ok && i < c->nout; i++)
        t->at[i] = f->block[c->out[i].line];
    nb_free(out);
    return ok;
}

static take *oldest(const nb_card_reel *all, int *at)
{
    *at = 0;
    for (int i = 1; i < all->n; i++)
        if (all->take[i]->turn < all->take[*at]->turn) *at = i;
    return all->take[*at];
}

/* The take that is nearest. */
static take *nearest(const nb_card_pieces *c, const nb_frame *f,
                     difference *least)
{
    take *best = NULL;
    *least = (difference){0};
    for (int i = 0; i < f->reel->n; i++) {
        difference d = differs(c, f, f->reel->take[i]);
        if (d.blocks < 0 || (best && d.blocks >= least->blocks)) continue;
        best = f->reel->take[i];
        *least = d;
    }
    return best;
}

/* Another take, if that is worth it by now, the less the more there are; where
 * there is no room it takes the place of the oldest. */
static take *add(nb_exec *e, nb_frame *f, const nb_card_doing *d)
{
    nb_card_reel *all = f->reel;
    int at = all->n;
    all->waited += e->pieces->steps;
    if (all->waited <= all->worth + at * e->pieces->steps) return NULL;
    take *t = capture(e, f, d);
    all->waited = 0;
    if (!t) return NULL;
    if (at == TAKES) {
        take_free(e->pieces, oldest(all, &at));
        all->n--;
        all->worth *= 4;
    }
    all->take[at] = t;
    all->n++;
    return t;
}

static take *find(nb_exec *e, nb_frame *f, const nb_card_doing *d)
{
    difference is;
    take *t = nearest(e->pieces, f, &is);
    if (t && !is.blocks && !is.numbers) return t;
    take *new = t && !is.blocks ? NULL : add(e, f, d);
    if (new || !t || change(e, t, f)) return new ? new : t;
    e->pieces->unfit = true;
    nb_error_clear();
    return NULL;
}

/* NULL: step by step. */
static take *take_for(nb_exec *e, nb_frame *f, const nb_card_doing *d)
{
    if (!e->pieces->n || e->pieces->unfit || !nb_card_graphs_wanted())
        return NULL;
    if (!f->reel) {
        if (!(f->reel = nb_alloc_zero(sizeof *f->reel)))
            return nb_error_clear(), NULL;
        f->reel->worth = WORTH;
        f->reel->waited = e->pieces->steps; /* libraries load code at first */
        return NULL;
    }
    f->reel->runs++;
    take *t = find(e, f, d);
    if (t) t->turn = ++f->reel->turn;
    return t;
}

/* A step that would wait is a graph for this once, if it can be one. */
static bool run_step(nb_exec *e, const nb_frame *f, const nb_card_doing *d,
                     int s)
{
    const nb_card_job *j = e->on_card[s].job;
    bool first = !f->reel || f->reel->runs == 0;
    if (!j || !j->waits || j->alone || first || e->pieces->unfit)
        return d->step(d->ctx, s);
    nb_card_graph *g = capture_piece(e, &(piece){s, s}, d, NULL);
    bool ok = g && nb_card_graph_launch(g);
    nb_card_graph_free(g);
    if (g) return ok;
    if (nb_error_code() != NB_EMEMORY) e->pieces->unfit = true;
    nb_error_clear();
    return d->step(d->ctx, s);
}

bool nb_card_run_steps(nb_exec *e, nb_frame *f, const nb_card_doing *d)
{
    const nb_card_pieces *c = e->pieces;
    const take *t = take_for(e, f, d);
    bool ok = true;
    for (int s = 0, i = 0; ok && s < e->plan->nsteps; s++) {
        if (t && i < c->n && s == c->piece[i].first) {
            ok = nb_card_graph_launch(t->graph[i]);
            s = c->piece[i++].last;
        } else {
            ok = run_step(e, f, d, s);
        }
    }
    return ok;
}
