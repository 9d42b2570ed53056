/* card_turns.c - jobs of loops and branches of many kernels: running them. */
#include "run/card_loop.h"

#include "backend/cuda/memory.h"

enum { MOST_MOVES = 64 };

/* A run; what is moved is gathered and moved at once. */
typedef struct run {
    const nb_card_loop *l;
    char *const *in, *const *out;
    char *work;
    const char *what;
    int half; /* of what is carried, that the next turn reads */
    int nmoves;
    nb_move move[MOST_MOVES];
} run;

static bool move_now(run *r, const nb_moved *then)
{
    int n = r->nmoves;
    r->nmoves = 0;
    return (!n && !then) ||
           nb_moves_launch(r->l->card, r->l->moves, n, r->move, then, r->what);
}

static bool add_move(run *r, nb_move m, char *to, const char *from)
{
    m.to = to;
    m.from = from;
    if (!m.count) return true;
    if (r->nmoves == MOST_MOVES && !move_now(r, NULL)) return false;
    r->move[r->nmoves++] = m;
    return true;
}

/* The same for turns that are so many bytes apart, and go on with a count. */
static nb_move by_turns(const nb_card_loop *l, nb_move m, int64_t to,
                        int64_t from, int64_t to_step, int64_t from_step)
{
    int n = l->at_once;
    for (int64_t d = m.n; d > 0; d--) {
        m.size[d] = m.size[d - 1];
        m.to_by[d] = m.to_by[d - 1];
        m.from_by[d] = m.from_by[d - 1];
    }
    m.n++;
    m.size[0] = n;
    m.to_by[0] = to;
    m.from_by[0] = from;
    m.count *= n;
    m.to_step = to_step * n;
    m.from_step = from_step * n;
    return m;
}

/* Places */

static size_t apart(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* What a program is given, its steps left out; x has room for what was
 * computed before. */
static void addresses(const run *r, const nb_loop_side *s,
                      const nb_loop_program *p, int half, char **x)
{
    for (int i = 0; i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        x[i] = in->kind == NB_CARRIED ? r->work + in->at[half]
               : in->kind == NB_STEPS ? NULL
               : in->lies             ? r->in[in->from]
                                      : r->work + in->at[0];
    }
    for (int i = 0; i < p->p.nbefore; i++)
        x[s->nx + i] = r->work + p->kept[i];
}

/* Runs a program to places, and brings there what it has left elsewhere. */
static bool enqueue(run *r, const nb_loop_program *p, char *const *x,
                    char *const *y)
{
    int n = p->turn->plan->graph->ny;
    char **at = nb_alloc((size_t)(n + 1) * sizeof *at);
    bool ok = at && nb_exec_enqueue(p->turn, x, y, r->work + r->l->room, at);
    for (int i = 0; ok && i < n; i++)
        if (!p->out[i].lands) ok = add_move(r, p->out[i].bring, y[i], at[i]);
    nb_free(at);
    return ok && move_now(r, NULL);
}

static bool compute_before(run *r, const nb_loop_side *s,
                           const nb_loop_program *p)
{
    int n = p->p.nbefore;
    if (!p->before) return true;
    char **x = nb_alloc_zero((size_t)(s->nx + 2 * n + 1) * sizeof *x);
    if (!x) return false;
    addresses(r, s, p, 0, x);
    char **at = x + s->nx + n;
    bool ok =
        nb_exec_enqueue(p->before, x, x + s->nx, r->work + r->l->room, at);
    for (int i = 0; ok && i < n; i++)
        ok = at[i] == x[s->nx + i] ||
             nb_card_copy(r->l->card, x[s->nx + i], at[i], p->p.bytes[i]);
    nb_free(x);
    return ok;
}

/* Before the first turn: what is carried begins, what does not lie in order is
 * put in order. */
static bool begin(run *r, const nb_loop_side *s)
{
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        bool moves =
            in->kind == NB_CARRIED || (in->kind == NB_STAYS && !in->lies);
        if (moves)
            ok = add_move(r, in->move, r->work + in->at[0], r->in[in->from]);
    }
    ok = ok && move_now(r, NULL);
    for (int i = 0; ok && i < s->n; i++)
        ok = compute_before(r, s, &s->program[i]);
    return ok;
}

/* After the last. */
static bool end(run *r, const nb_loop_side *s)
{
    const nb_loop_program *p = &s->program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (out->feeds >= 0 && out->to >= 0)
            ok = nb_card_copy(r->l->card, r->out[out->to],
                              r->work + s->in[out->feeds].at[r->half],
                              out->bytes);
    }
    return ok;
}

/* Room for the addresses of a turn: inputs, then results. */
static char **room_for(const nb_loop_side *s, const nb_loop_program *p)
{
    int n = s->nx + p->p.nbefore + p->turn->plan->graph->ny;
    return nb_alloc_zero((size_t)(n + 1) * sizeof(char *));
}

static void carried_to(const run *r, const nb_loop_side *s,
                       const nb_loop_program *p, char **y)
{
    for (int k = 0; k < p->turn->plan->graph->ny; k++)
        if (p->out[k].feeds >= 0)
            y[k] = r->work + s->in[p->out[k].feeds].at[1 - r->half];
}

/* Scans */

/* Steps of turn t, where they lie or moved. */
static bool place_steps(run *r, int64_t t, char **x, char **y)
{
    const nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    const nb_loop_program *p = &s->program[0];
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        if (in->kind != NB_STEPS) continue;
        char *from = r->in[in->from] + nb_loop_step(l, in->step, t);
        bool lies = in->lies && nb_card_takes(1, from);
        x[i] = lies ? from : r->work + in->at[0];
        if (!lies) ok = add_move(r, in->move, x[i], from);
    }
    for (int k = 0; k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        char *to = r->out[out->to] + nb_loop_step(l, out->step, t);
        y[k] = out->lies && nb_card_takes(1, to) ? to : r->work + out->at;
    }
    return ok && move_now(r, NULL);
}

static bool give_steps(run *r, int64_t t, char *const *y)
{
    const nb_card_loop *l = r->l;
    const nb_loop_program *p = &l->side[0].program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        char *to = r->out[out->to] + nb_loop_step(l, out->step, t);
        if (y[k] != to) ok = add_move(r, out->move, to, y[k]);
    }
    return ok && move_now(r, NULL);
}

/* Turn t, by addresses that are known. */
static bool turn(run *r, int64_t t, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    char **y = x + s->nx + p->p.nbefore;
    addresses(r, s, p, r->half, x);
    carried_to(r, s, p, y);
    bool ok =
        place_steps(r, t, x, y) && enqueue(r, p, x, y) && give_steps(r, t, y);
    r->half = 1 - r->half;
    return ok;
}

/* Steps of all turns that a count stands for, to their places or from there.
 * first: the turn that the count begins with. */
static bool move_steps_in(run *r, int64_t first)
{
    const nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        if (in->kind != NB_STEPS) continue;
        int64_t step = l->reverse ? -in->step : in->step;
        ok = add_move(
            r, by_turns(l, in->move, (int64_t)apart(in->bytes), step, 0, step),
            r->work + in->at[0],
            r->in[in->from] + nb_loop_step(l, in->step, first));
    }
    return ok;
}

static bool move_steps_out(run *r, int64_t first)
{
    const nb_card_loop *l = r->l;
    const nb_loop_program *p = &l->side[0].program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        int64_t step = l->reverse ? -out->step : out->step;
        ok = add_move(
            r,
            by_turns(l, out->move, step, (int64_t)apart(out->bytes), step, 0),
            r->out[out->to] + nb_loop_step(l, out->step, first),
            r->work + out->at);
    }
    return ok;
}

/* One of the turns that a count stands for. */
static bool counted_turn(run *r, int i, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    char **y = x + s->nx + p->p.nbefore;
    addresses(r, s, p, r->half, x);
    carried_to(r, s, p, y);
    for (int k = 0; k < s->nx; k++)
        if (s->in[k].kind == NB_STEPS)
            x[k] = r->work + s->in[k].at[0] + (size_t)i * apart(s->in[k].bytes);
    for (int k = 0; k < p->turn->plan->graph->ny; k++)
        if (p->out[k].stacked)
            y[k] = r->work + p->out[k].at + (size_t)i * apart(p->out[k].bytes);
    bool ok = enqueue(r, p, x, y);
    r->half = 1 - r->half;
    return ok;
}

static bool has_steps(const nb_card_loop *l)
{
    bool any = false;
    for (int i = 0; i < l->side[0].nx; i++)
        any = any || l->side[0].in[i].kind == NB_STEPS;
    return any;
}

/* Turns from `first` on, counted by the card. */
static bool counted(run *r, int64_t first, char **x)
{
    const nb_card_loop *l = r->l;
    nb_card_head *head = (nb_card_head *)(r->work + l->head);
    nb_card_condition on;
    nb_moved then = {.head = head, .until = (l->length - first) / l->at_once};
    bool ok = nb_card_zero(l->card, head, sizeof *head) &&
              nb_card_condition_new(l->card, &on);
    then.yes = on;
    ok = ok && move_now(r, &then) &&
         nb_card_body_begin(l->card, on, NB_CARD_WHILE);
    nb_moved read = {.head = head};
    if (ok && has_steps(l)) ok = move_steps_in(r, first) && move_now(r, &read);
    for (int i = 0; ok && i < l->at_once; i++)
        ok = counted_turn(r, i, x);
    then.by = 1;
    return ok && move_steps_out(r, first) && move_now(r, &then) &&
           nb_card_body_end(l->card);
}

static bool run_scan(run *r)
{
    const nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    int64_t straight = l->length;
    char **x = room_for(s, &s->program[0]);
    bool ok = x && begin(r, s);
    if (l->conditions && nb_card_captures(l->card))
        straight = l->length % l->at_once;
    for (int64_t t = 0; ok && t < straight; t++)
        ok = turn(r, t, x);
    if (ok && straight < l->length) ok = counted(r, straight, x);
    ok = ok && end(r, s);
    nb_free(x);
    return ok;
}

/* Loops that end by a test */

static bool test(run *r, int half, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    char *flag = r->work + r->l->flag;
    addresses(r, s, &s->program[1], half, x);
    return enqueue(r, &s->program[1], x, &flag);
}

static bool open_turn(run *r, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    char **y = x + s->nx + p->p.nbefore;
    addresses(r, s, p, r->half, x);
    carried_to(r, s, p, y);
    return enqueue(r, p, x, y);
}

/* What is carried goes back to where a turn reads it. */
static bool carry_back(run *r, const nb_moved *then)
{
    const nb_loop_side *s = &r->l->side[0];
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        int64_t n = (int64_t)in->bytes, one = 1;
        nb_move m;
        if (in->kind != NB_CARRIED) continue;
        ok = nb_move_over(&m, 1, 1, &n, &one, &one) &&
             add_move(r, m, r->work + in->at[0], r->work + in->at[1]);
    }
    return ok && move_now(r, then);
}

static bool while_captured(run *r, char **x, char **tested)
{
    const nb_card_loop *l = r->l;
    nb_card_head *head = (nb_card_head *)(r->work + l->head);
    nb_moved then = {.head = head, .flag = r->work + l->flag};
    return nb_card_zero(l->card, head, sizeof *head) &&
           nb_card_condition_new(l->card, &then.yes) && test(r, 0, tested) &&
           move_now(r, &then) &&
           nb_card_body_begin(l->card, then.yes, NB_CARD_WHILE) &&
           open_turn(r, x) && test(r, 1, tested) && carry_back(r, &then) &&
           nb_card_body_end(l->card);
}

static bool read_flag(const run *r, const char *at, bool *on)
{
    char byte = 0;
    bool ok = nb_card_get(r->l->card, &byte, at, 1);
    *on = byte;
    return ok;
}

static bool while_read(run *r, char **x, char **tested)
{
    bool ok = true, on = true;
    while (ok && on) {
        ok =
            test(r, r->half, tested) && read_flag(r, r->work + r->l->flag, &on);
        if (!ok || !on) break;
        ok = open_turn(r, x);
        r->half = 1 - r->half;
    }
    return ok;
}

static bool run_while(run *r)
{
    const nb_loop_side *s = &r->l->side[0];
    char **x = room_for(s, &s->program[0]);
    char **tested = room_for(s, &s->program[1]);
    bool captures = nb_card_captures(r->l->card);
    bool ok = x && tested && begin(r, s) &&
              (captures ? while_captured : while_read)(r, x, tested) &&
              end(r, s);
    nb_free(x), nb_free(tested);
    return ok;
}

/* Branches */

static bool run_side(run *r, int side)
{
    const nb_loop_side *s = &r->l->side[side];
    const nb_loop_program *p = &s->program[0];
    char **x = room_for(s, p), **y = x ? x + s->nx + p->p.nbefore : NULL;
    bool ok = x && begin(r, s);
    if (ok) addresses(r, s, p, 0, x);
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++)
        y[k] = r->out[p->out[k].to];
    ok = ok && enqueue(r, p, x, y);
    nb_free(x);
    return ok;
}

static bool cond_captured(run *r)
{
    nb_card *card = r->l->card;
    nb_card_head *head = (nb_card_head *)(r->work + r->l->head);
    nb_moved then = {.head = head, .flag = r->in[0]};
    return nb_card_zero(card, head, sizeof *head) &&
           nb_card_condition_new(card, &then.yes) &&
           nb_card_condition_new(card, &then.no) && move_now(r, &then) &&
           nb_card_body_begin(card, then.yes, NB_CARD_IF) && run_side(r, 0) &&
           nb_card_body_end(card) &&
           nb_card_body_begin(card, then.no, NB_CARD_IF) && run_side(r, 1) &&
           nb_card_body_end(card);
}

static bool run_cond(run *r)
{
    bool on;
    if (nb_card_captures(r->l->card)) return cond_captured(r);
    return read_flag(r, r->in[0], &on) && run_side(r, on ? 0 : 1);
}

bool nb_card_loop_run(nb_card_job *j, char *const *in, char *const *out,
                      char *workspace, const char *what)
{
    const nb_card_loop *l = (nb_card_loop *)j;
    run *r = nb_alloc_zero(sizeof *r);
    if (!r) return false;
    *r = (run){.l = l, .in = in, .out = out, .work = workspace, .what = what};
    bool ok = l->kind == NB_LOOP_SCAN    ? run_scan(r)
              : l->kind == NB_LOOP_WHILE ? run_while(r)
                                         : run_cond(r);
    nb_free(r);
    return ok;
}
