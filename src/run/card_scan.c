/* card_scan.c - scans of many kernels: turns that are known, and turns that the
 * card counts. */
#include "run/card_turns.h"

#include "backend/cuda/memory.h"

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

static size_t apart(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Steps of turn t, where they lie or moved. */
static bool place_steps(nb_loop_run *r, int64_t t, char **x, char **y)
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
        if (!lies) ok = nb_loop_add_move(r, in->move, x[i], from);
    }
    for (int k = 0; k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        char *to = r->out[out->to] + nb_loop_step(l, out->step, t);
        y[k] = out->lies && nb_card_takes(1, to) ? to : r->work + out->at;
    }
    return ok && nb_loop_move_now(r, NULL);
}

static bool give_steps(nb_loop_run *r, int64_t t, char *const *y)
{
    const nb_card_loop *l = r->l;
    const nb_loop_program *p = &l->side[0].program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        char *to = r->out[out->to] + nb_loop_step(l, out->step, t);
        if (y[k] != to) ok = nb_loop_add_move(r, out->move, to, y[k]);
    }
    return ok && nb_loop_move_now(r, NULL);
}

/* Turn t, by addresses that are known. */
static bool turn(nb_loop_run *r, int64_t t, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    char **y = x + s->nx + p->p.nbefore;
    nb_loop_addresses(r, s, p, r->half, x);
    nb_loop_carried_to(r, s, p, y);
    bool ok = place_steps(r, t, x, y) && nb_loop_enqueue(r, p, x, y) &&
              give_steps(r, t, y);
    r->half = 1 - r->half;
    return ok;
}

/* Steps of all turns that a count stands for, to their places or from there.
 * first: the turn that the count begins with. */
static bool move_steps_in(nb_loop_run *r, int64_t first)
{
    const nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        if (in->kind != NB_STEPS) continue;
        int64_t step = l->reverse ? -in->step : in->step;
        ok = nb_loop_add_move(
            r, by_turns(l, in->move, (int64_t)apart(in->bytes), step, 0, step),
            r->work + in->at[0],
            r->in[in->from] + nb_loop_step(l, in->step, first));
    }
    return ok;
}

static bool move_steps_out(nb_loop_run *r, int64_t first)
{
    const nb_card_loop *l = r->l;
    const nb_loop_program *p = &l->side[0].program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (!out->stacked) continue;
        int64_t step = l->reverse ? -out->step : out->step;
        ok = nb_loop_add_move(
            r,
            by_turns(l, out->move, step, (int64_t)apart(out->bytes), step, 0),
            r->out[out->to] + nb_loop_step(l, out->step, first),
            r->work + out->at);
    }
    return ok;
}

/* One of the turns that a count stands for. */
static bool counted_turn(nb_loop_run *r, int i, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    char **y = x + s->nx + p->p.nbefore;
    nb_loop_addresses(r, s, p, r->half, x);
    nb_loop_carried_to(r, s, p, y);
    for (int k = 0; k < s->nx; k++)
        if (s->in[k].kind == NB_STEPS)
            x[k] = r->work + s->in[k].at[0] + (size_t)i * apart(s->in[k].bytes);
    for (int k = 0; k < p->turn->plan->graph->ny; k++)
        if (p->out[k].stacked)
            y[k] = r->work + p->out[k].at + (size_t)i * apart(p->out[k].bytes);
    bool ok = nb_loop_enqueue(r, p, x, y);
    r->half = 1 - r->half;
    return ok;
}

/* Turns from `first` on, counted by the card. */
static bool counted(nb_loop_run *r, int64_t first, char **x)
{
    const nb_card_loop *l = r->l;
    nb_card_head *head = (nb_card_head *)(r->work + l->head);
    nb_moved then = {.head = head, .until = (l->length - first) / l->at_once};
    bool ok = nb_card_zero(l->card, head, sizeof *head) &&
              nb_card_condition_new(l->card, &then.yes) &&
              nb_loop_move_now(r, &then) &&
              nb_card_body_begin(l->card, then.yes, NB_CARD_WHILE);
    ok = ok && move_steps_in(r, first) && nb_loop_move_now(r, NULL);
    for (int i = 0; ok && i < l->at_once; i++)
        ok = counted_turn(r, i, x);
    then.by = 1;
    return ok && move_steps_out(r, first) && nb_loop_move_now(r, &then) &&
           nb_card_body_end(l->card);
}

bool nb_loop_run_scan(nb_loop_run *r)
{
    const nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    int64_t straight = l->length;
    char **x = nb_loop_room(s, &s->program[0]);
    bool ok = x && nb_loop_begin(r, s);
    if (l->conditions && nb_card_captures(l->card))
        straight = l->length % l->at_once;
    for (int64_t t = 0; ok && t < straight; t++)
        ok = turn(r, t, x);
    if (ok && straight < l->length) ok = counted(r, straight, x);
    ok = ok && nb_loop_end(r, s, &s->program[0]);
    nb_free(x);
    return ok;
}
