/* card_loop.c - jobs of loops and branches of many kernels: making them. */
#include "run/card_loop.h"

#include "core/joints.h"
#include "lower/look.h"
#include "run/donate.h"
#include "run/lazy.h"

#include <stddef.h>
#include <string.h>

enum {
    ALIGN = 256,
    MANY = 64,            /* turns that a loop is taken for that may end */
    STRAIGHT = 256,       /* launches that a graph has one by one, at most */
    AT_ONCE = 64,         /* launches between tests, about, */
    TURNS = 32,           /* and turns, at most */
    STAGED_MOST = 1 << 26 /* bytes of steps, in their places, if it can be */
};

/* A loop in the making; unfit: it is left to others. */
typedef struct making {
    nb_card_loop *l;
    const nb_exec *e;
    int line;
    const nb_call *c;
    nb_joints j;
    int region;
    nb_tensor **node; /* by line of the program */
    bool unfit;
} making;

static bool unfit(making *m)
{
    m->unfit = true;
    return true;
}

static size_t take(making *m, size_t bytes)
{
    size_t at = m->l->job.workspace;
    m->l->job.workspace += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* Shapes as dims */

typedef struct dims {
    int n;
    int64_t size[NB_MAX_DIMS], packed[NB_MAX_DIMS];
} dims;

static dims dims_of(const nb_shape *s)
{
    dims d = {.n = s->nlanes + s->rank};
    for (int l = 0; l < s->nlanes; l++)
        d.size[l] = s->lane[l].thin ? 1 : nb_extent_get(s->lane[l].size);
    for (int a = 0; a < s->rank; a++)
        d.size[s->nlanes + a] = nb_extent_get(s->size[a]);
    nb_packed_strides(d.n, d.size, d.packed);
    return d;
}

static size_t bytes_of(const nb_shape *s, nb_dtype t)
{
    dims d = dims_of(s);
    int64_t n = 1;
    for (int k = 0; k < d.n; k++)
        n *= d.size[k];
    return (size_t)n * nb_dtype_size(t);
}

/* Strides of a value of shape `is`, which lies by `stride`, over the dims of
 * another, which may have more lanes; `skip` of its axes are left out. */
static void strides_in(const nb_shape *is, const int64_t *stride, int skip,
                       const nb_shape *s, int64_t *to)
{
    for (int l = 0; l < s->nlanes; l++) {
        int at = nb_shape_find_lane(is, s->lane[l].id);
        to[l] = at < 0 || is->lane[at].thin ? 0 : stride[at];
    }
    for (int a = 0; a < s->rank; a++)
        to[s->nlanes + a] = stride[is->nlanes + skip + a];
}

static bool is_packed(const dims *d, const int64_t *stride)
{
    bool ok = true;
    for (int k = 0; k < d->n; k++)
        ok = ok && (d->size[k] == 1 || stride[k] == d->packed[k]);
    return ok;
}

/* A move of steps, so many at once: the turns are one more dim. */
static bool move_over(making *m, nb_move *move, nb_dtype t, const dims *d,
                      const int64_t *to, const int64_t *from)
{
    if (!nb_move_over(move, nb_dtype_size(t), d->n, d->size, to, from) ||
        move->n == NB_MOVE_DIMS)
        unfit(m);
    return true;
}

/* Inputs */

static bool is_fed(const nb_joints *j, int i)
{
    for (int k = 0; k < j->ny; k++)
        if (j->feeds[k] == i) return true;
    return false;
}

/* Blocks begin at multiples of what kernels read at once. */
static bool is_aligned(const making *m, int i)
{
    const nb_plan *p = m->e->plan;
    const nb_line *l = &p->graph->line[m->line];
    int64_t item = (int64_t)nb_dtype_size((nb_dtype)m->c->in[i]->dtype);
    return p->place[l->in[i]].offset * item % 16 == 0;
}

/* What turns keep for later passes is in a record of the turn. */
static bool make_kept(making *m, int i, nb_loop_input *in)
{
    nb_dtype t = m->c->op->region[m->region]->line[i].dtype;
    size_t *record = &m->l->record;
    *in = (nb_loop_input){.kind = NB_KEPT,
                          .from = -1,
                          .bytes = bytes_of(&m->j.shape[i], t),
                          .at = {*record}};
    *record += (in->bytes + ALIGN - 1) / ALIGN * ALIGN;
    return m->l->kind == NB_LOOP_WHILE || unfit(m);
}

static bool make_input(making *m, int i, nb_loop_input *in)
{
    const nb_joints *j = &m->j;
    if (j->from[i] < 0) return make_kept(m, i, in);
    const nb_tensor *x = m->c->in[j->from[i]];
    nb_dtype t = (nb_dtype)x->dtype;
    nb_shape is = nb_tensor_shape(x);
    dims d = dims_of(&j->shape[i]);
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], from[NB_MAX_DIMS];
    int skip = j->step[i];
    nb_tensor_strides(x, size, stride);
    strides_in(&is, stride, skip, &j->shape[i], from);
    *in =
        (nb_loop_input){.from = j->from[i], .bytes = bytes_of(&j->shape[i], t)};
    in->kind = skip ? NB_STEPS : is_fed(j, i) ? NB_CARRIED : NB_STAYS;
    if (skip) in->step = stride[is.nlanes] * (int64_t)nb_dtype_size(t);
    in->lies = is_packed(&d, from) && is_aligned(m, j->from[i]);
    if (in->kind == NB_CARRIED || (in->kind == NB_STAYS && !in->lies))
        in->at[0] = take(m, in->bytes);
    return move_over(m, &in->move, t, &d, d.packed, from);
}

/* Results */

/* The shape that result k has to have. */
static bool wanted_shape(making *m, int k, nb_shape *s)
{
    nb_dtype d;
    if (m->j.feeds[k] >= 0) {
        *s = m->j.shape[m->j.feeds[k]];
        return true;
    }
    *s = (nb_shape){0}; /* a test */
    if (m->j.to[k] < 0) return true;
    if (!m->c->op->result(m->c, m->j.to[k], s, &d)) return false;
    if (m->j.stacked[k])
        memmove(s->size, s->size + 1, (size_t)--s->rank * sizeof s->size[0]);
    return true;
}

/* A result that lies as the program leaves it, in the shape that is wanted. */
static bool find_landing(making *m, const nb_exec *e, int i, const nb_shape *s,
                         const nb_tensor *y, nb_loop_output *out)
{
    const nb_plan *p = e->plan;
    int k = p->graph->result[i];
    nb_shape is = nb_tensor_shape(y);
    dims d = dims_of(s);
    int64_t from[NB_MAX_DIMS];
    bool same = is.nlanes == s->nlanes;
    strides_in(&is, p->place[k].stride, 0, s, from);
    for (int l = 0; same && l < s->nlanes; l++)
        same = is.lane[l].id == s->lane[l].id &&
               is.lane[l].thin == s->lane[l].thin;
    out->lands = same && p->place[k].root == k && e->result[k] == i &&
                 p->home[k] == NB_HOME_RESULT;
    return out->lands ||
           move_over(m, &out->bring, (nb_dtype)y->dtype, &d, d.packed, from);
}

/* Where a step of a result goes: among those of the other turns. */
static bool find_steps(making *m, int k, const nb_shape *s, nb_dtype t,
                       nb_loop_output *out)
{
    nb_shape all;
    nb_dtype unused;
    int64_t to[NB_MAX_DIMS];
    if (!m->c->op->result(m->c, m->j.to[k], &all, &unused)) return false;
    dims d = dims_of(s), whole = dims_of(&all);
    strides_in(&all, whole.packed, 1, s, to);
    out->step = whole.packed[all.nlanes] * (int64_t)nb_dtype_size(t);
    out->lies = is_packed(&d, to);
    return move_over(m, &out->move, t, &d, to, d.packed);
}

static bool make_output(making *m, const nb_exec *e, int i, int k,
                        const nb_tensor *y, nb_loop_output *out)
{
    nb_shape s;
    if (!wanted_shape(m, k, &s)) return false;
    nb_dtype t = (nb_dtype)y->dtype;
    *out = (nb_loop_output){.feeds = m->j.feeds[k],
                            .to = m->j.to[k],
                            .stacked = m->j.stacked[k],
                            .bytes = bytes_of(&s, t)};
    return find_landing(m, e, i, &s, y, out) &&
           (!out->stacked || find_steps(m, k, &s, t, out));
}

/* Programs */

static nb_exec *exec_of(making *m, nb_program *p)
{
    nb_exec *e = nb_programs_run.ready(p) ? nb_program_exec(p) : NULL;
    if (e && e->device == m->e->device && nb_exec_only_enqueues(e)) return e;
    unfit(m);
    return NULL;
}

/* Those results that a run of the program makes, in all lanes. */
static int results_of(making *m, int run, int *which, nb_tensor **y, bool *ok)
{
    const nb_graph *g = m->c->op->region[m->region];
    int n = 0;
    for (int k = 0; *ok && k < g->ny; k++) {
        nb_shape s;
        if (m->j.run[k] != run) continue;
        *ok = wanted_shape(m, k, &s) &&
              (y[n] = nb_spread_over(m->node[g->result[k]], &s));
        if (*ok) {
            nb_shape is = nb_tensor_shape(y[n]);
            if (bytes_of(&is, NB_U8) != bytes_of(&s, NB_U8)) unfit(m);
        }
        which[n++] = k;
    }
    return n;
}

static int varying(const making *m)
{
    int n = 0;
    while (n < m->j.nx && (m->j.step[n] || is_fed(&m->j, n)))
        n++;
    return n;
}

/* What is carried has a second place, unless it can be written where it was
 * read; what is kept goes by way of a place. */
static bool make_carry(making *m, const nb_exec *e, int i, nb_loop_output *out)
{
    nb_loop_input *in = &m->l->side[m->region].in[out->feeds];
    bool over = false;
    if (in->kind == NB_KEPT) {
        out->at = take(m, out->bytes);
        return true;
    }
    if (out->lands &&
        !nb_donate_fits(e->plan, out->feeds, e->plan->graph->result[i], &over))
        return false;
    in->at[1] = over ? in->at[0] : take(m, in->bytes);
    return true;
}

/* What is computed before may be a look at an input or a number. */
static bool make_before(making *m, nb_loop_program *p)
{
    bool ok = true;
    for (int i = 0; ok && i < p->p.nbefore; i++) {
        const nb_plan *plan = p->before->plan;
        const nb_tensor *y = plan->node[plan->graph->result[i]];
        nb_shape s = nb_tensor_shape(y);
        ok = find_landing(m, p->before, i, &s, y, &p->kept[i]);
    }
    return ok;
}

static void make_room(making *m, nb_loop_program *p)
{
    size_t *room = &m->l->room;
    size_t turn = nb_exec_room(p->turn);
    size_t before = p->before ? nb_exec_room(p->before) : 0;
    if (turn > *room) *room = turn;
    if (before > *room) *room = before;
    for (int i = 0; i < p->p.nbefore; i++)
        p->kept[i].at = take(m, p->p.bytes[i]);
}

static bool fill_program(making *m, nb_loop_program *p, int run, int *which,
                         nb_tensor **y)
{
    bool ok = true;
    nb_turn_of of = {.graph = m->c->op->region[m->region],
                     .varying = varying(m),
                     .which = which,
                     .once = m->l->kind == NB_LOOP_COND};
    of.n = results_of(m, run, which, y, &ok);
    if (!ok || m->unfit) return ok;
    if (!nb_turn_make(&p->p, of, m->node, y)) return false;
    if (!p->p.turn) return unfit(m);
    p->turn = exec_of(m, p->p.turn);
    if (p->turn && p->p.before) p->before = exec_of(m, p->p.before);
    if (m->unfit) return true;
    p->out = nb_alloc_zero((size_t)(of.n + 1) * sizeof *p->out);
    p->kept = nb_alloc_zero((size_t)(p->p.nbefore + 1) * sizeof *p->kept);
    ok = p->out && p->kept;
    for (int i = 0; ok && i < of.n; i++) {
        nb_loop_output *out = &p->out[i];
        ok = make_output(m, p->turn, i, which[i], y[i], out);
        if (ok && out->feeds >= 0) ok = make_carry(m, p->turn, i, out);
    }
    ok = ok && make_before(m, p);
    if (ok) make_room(m, p);
    return ok;
}

static bool make_program(making *m, nb_loop_program *p, int run)
{
    size_t n = (size_t)m->j.ny + 1;
    int *which = nb_alloc_zero(n * sizeof *which);
    nb_tensor **y = nb_alloc_zero(n * sizeof *y);
    bool ok = which && y && fill_program(m, p, run, which, y);
    nb_free(which), nb_free(y);
    return ok;
}

/* What a loop has that counts its turns: places for steps of several. */
static void make_places(making *m)
{
    nb_card_loop *l = m->l;
    nb_loop_side *s = &l->side[0];
    nb_loop_program *p = &s->program[0];
    size_t all = 0;
    int n = TURNS, ny = p->turn->plan->graph->ny;
    for (int i = 0; i < s->nx; i++)
        if (s->in[i].kind == NB_STEPS) all += s->in[i].bytes;
    for (int k = 0; k < ny; k++)
        if (p->out[k].stacked) all += p->out[k].bytes;
    while (n > 2 &&
           (all * (size_t)n > STAGED_MOST || l->per_turn * n > AT_ONCE))
        n /= 2;
    l->at_once = n;
    for (int i = 0; i < s->nx; i++)
        if (s->in[i].kind == NB_STEPS)
            s->in[i].at[0] = take(m, (s->in[i].bytes + ALIGN) * (size_t)n);
    for (int k = 0; k < ny; k++)
        if (p->out[k].stacked)
            p->out[k].at = take(m, (p->out[k].bytes + ALIGN) * (size_t)n);
}

static int64_t launches_of(const nb_exec *e)
{
    int64_t n = 0;
    for (int s = 0; s < e->plan->nsteps; s++) {
        const nb_card_job *j = e->on_card[s].job;
        n += j && j->launches ? j->launches : 1;
    }
    return n;
}

static bool waits(const nb_exec *e)
{
    for (int s = 0; s < e->plan->nsteps; s++)
        if (e->on_card[s].job && e->on_card[s].job->waits) return true;
    return false;
}

/* The first pass comes before the test. */
static int run_at(const making *m, int r)
{
    return m->j.nruns > 1 && r < 2 ? 1 - r : r;
}

static bool make_side(making *m, int region)
{
    nb_loop_side *s = &m->l->side[region];
    const nb_graph *g = m->c->op->region[region];
    m->region = region;
    if (!nb_joints_of(m->c, region, &m->j))
        return nb_failed() ? false : unfit(m);
    m->node = nb_alloc_zero((size_t)(g->n + 1) * sizeof *m->node);
    s->in = nb_alloc_zero((size_t)(m->j.nx + 1) * sizeof *s->in);
    s->nx = m->j.nx;
    bool ok = m->node && s->in &&
              nb_joints_nodes(m->c, region, &m->j, m->e->device, m->node);
    for (int i = 0; ok && !m->unfit && i < s->nx; i++)
        ok = make_input(m, i, &s->in[i]);
    s->program = nb_alloc_zero((size_t)m->j.nruns * sizeof *s->program);
    ok = ok && s->program;
    for (int r = 0; ok && !m->unfit && r < m->j.nruns; r++)
        ok = make_program(m, &s->program[s->n++], run_at(m, r));
    nb_free(m->node);
    nb_joints_free(&m->j);
    return ok;
}

static int clamp(int64_t n)
{
    return n < 1 << 20 ? (int)n : 1 << 20;
}

static bool make_all(making *m)
{
    nb_card_loop *l = m->l;
    int sides = l->kind == NB_LOOP_COND ? 2 : 1;
    bool ok = true;
    l->head = take(m, sizeof(nb_loop_head));
    l->flag = l->head + offsetof(nb_loop_head, flag);
    for (int r = 0; ok && !m->unfit && r < sides; r++)
        ok = make_side(m, r);
    if (!ok || m->unfit) return ok;
    l->per_turn = 1;
    for (int r = 0; r < sides; r++)
        for (int i = 0; i < l->side[r].n; i++)
            l->per_turn += launches_of(l->side[r].program[i].turn);
    bool known = l->kind == NB_LOOP_SCAN;
    if (known && l->length <= STRAIGHT / l->per_turn) l->conditions = false;
    if (known) make_places(m);
    l->room = take(m, l->room);
    l->job.waits = !known;
    for (int r = 0; r < sides; r++)
        for (int i = 0; i < l->side[r].n; i++)
            if (waits(l->side[r].program[i].turn)) l->job.waits = true;
    l->job.launches = clamp((known ? l->length : MANY) * l->per_turn);
    l->job.alone = l->side[0].n > 2;
    return (l->moves = nb_moves_code(l->card, l->conditions));
}

static void release(nb_card_job *j)
{
    nb_card_loop *l = (nb_card_loop *)j;
    for (int r = 0; r < 2; r++) {
        nb_loop_side *s = &l->side[r];
        for (int i = 0; i < s->n; i++) {
            nb_turn_free(&s->program[i].p);
            nb_free(s->program[i].out), nb_free(s->program[i].kept);
        }
        nb_free(s->in), nb_free(s->program);
    }
    nb_card_code_drop(l->moves);
    nb_free(l);
}

/* Branches on one byte; loops of known length; loops of one pass. */
static bool find_kind(const nb_call *c, nb_card_loop *l)
{
    nb_turns r;
    if (!c->op->region[0] || !c->op->join) return false;
    nb_shape first = c->nin ? nb_tensor_shape(c->in[0]) : (nb_shape){0};
    if (c->op->region[1]) {
        l->kind = NB_LOOP_COND;
        return bytes_of(&first, (nb_dtype)c->in[0]->dtype) == 1;
    }
    l->kind = NB_LOOP_WHILE;
    if (!c->op->repeats || !c->op->repeats(c, &r)) return true;
    l->kind = NB_LOOP_SCAN;
    l->length = r.length;
    l->reverse = r.reverse;
    return true;
}

bool nb_card_loop_make(nb_exec *e, int s, const nb_call *c, nb_card_job **job)
{
    nb_card_loop *l = nb_alloc_zero(sizeof *l);
    making m = {.l = l, .e = e, .line = e->plan->step[s].line, .c = c};
    if (!l) return false;
    l->job = (nb_card_job){.run = nb_card_loop_run, .free = release};
    l->card = nb_card_at(e->device - 1);
    l->conditions = nb_card_conditions_there();
    bool fits = find_kind(c, l) && (l->conditions || l->kind == NB_LOOP_SCAN);
    bool ok = l->card && (!fits || make_all(&m));
    if (ok && fits && !m.unfit)
        *job = &l->job;
    else
        release(&l->job);
    return ok;
}
