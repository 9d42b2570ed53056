/* card_tests.c - loops that end by a test, and branches, of many kernels. */
#include "run/card_turns.h"

#include "backend/cuda/memory.h"

bool nb_loop_test(nb_loop_run *r, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    char *flag = r->work + r->l->flag;
    nb_loop_addresses(r, s, &s->program[1], r->half, x);
    return nb_loop_enqueue(r, &s->program[1], x, &flag);
}

bool nb_loop_read(const nb_loop_run *r, nb_loop_head *head)
{
    return nb_card_get(r->l->card, head, r->work + r->l->head, sizeof *head);
}

static bool add_bytes(nb_loop_run *r, size_t bytes, char *to, const char *from,
                      int64_t to_step)
{
    int64_t n = (int64_t)bytes, one = 1;
    nb_move m;
    if (!nb_move_over(&m, 1, 1, &n, &one, &one)) return false;
    m.to_step = to_step;
    return nb_loop_add_move(r, m, to, from);
}

/* What is carried goes back to where a turn reads it, what is kept to the record
 * of the turn. */
static bool carry_back(nb_loop_run *r, char *records, const nb_moved *then)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[0];
    bool ok = true;
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        const nb_loop_input *in = &s->in[out->feeds];
        if (in->kind == NB_CARRIED && in->at[0] == in->at[1]) continue;
        ok = in->kind == NB_CARRIED
                 ? add_bytes(r, in->bytes, r->work + in->at[0],
                             r->work + in->at[1], 0)
                 : add_bytes(r, in->bytes, records + in->at[0],
                             r->work + out->at, (int64_t)r->l->record);
    }
    return ok && nb_loop_move_now(r, then);
}

static bool capture_turn(nb_loop_run *r, char *records, const nb_moved *then,
                         char **x, char **tested)
{
    bool ok = nb_loop_turn(r, &r->l->side[0].program[0], x);
    r->half = 1;
    ok = ok && nb_loop_test(r, tested);
    r->half = 0;
    return ok && carry_back(r, records, then);
}

bool nb_loop_capture(nb_loop_run *r, int64_t until, bool tested)
{
    nb_card_loop *l = r->l;
    const nb_loop_side *s = &l->side[0];
    nb_card_head *head = (nb_card_head *)(r->work + l->head);
    char **x = nb_loop_room(s, &s->program[0]);
    char **y = nb_loop_room(s, &s->program[1]), *records = r->record;
    nb_moved then = {.head = head, .flag = r->work + l->flag, .until = until};
    r->record = NULL; /* moved there */
    bool ok = x && y && nb_card_zero(l->card, head, sizeof *head) &&
              nb_card_condition_new(l->card, &then.yes) &&
              (tested || nb_loop_test(r, y)) && nb_loop_move_now(r, &then) &&
              nb_card_body_begin(l->card, then.yes, NB_CARD_WHILE);
    then.by = 1;
    ok = ok && capture_turn(r, records, &then, x, y) &&
         nb_card_body_end(l->card);
    nb_free(x), nb_free(y);
    return ok;
}

/* The host reads every test. */
static bool read_tests(nb_loop_run *r)
{
    const nb_loop_side *s = &r->l->side[0];
    char **x = nb_loop_room(s, &s->program[0]);
    char **tested = nb_loop_room(s, &s->program[1]);
    bool ok = x && tested;
    while (ok) {
        nb_loop_head head;
        ok = nb_loop_test(r, tested) && nb_loop_read(r, &head);
        if (!ok || !head.flag[0]) break;
        ok = nb_loop_turn(r, &s->program[0], x);
        r->half = 1 - r->half;
    }
    nb_free(x), nb_free(tested);
    return ok;
}

bool nb_loop_run_while(nb_loop_run *r)
{
    const nb_loop_side *s = &r->l->side[0];
    return nb_loop_begin(r, s) &&
           (nb_card_captures(r->l->card) ? nb_loop_capture(r, INT64_MAX, false)
                                         : read_tests(r)) &&
           nb_loop_end(r, s, &s->program[0]);
}

/* Branches */

static bool run_side(nb_loop_run *r, int side)
{
    const nb_loop_side *s = &r->l->side[side];
    const nb_loop_program *p = &s->program[0];
    char **x = nb_loop_room(s, p), **y = x ? x + s->nx + p->p.nbefore : NULL;
    bool ok = x && nb_loop_begin(r, s);
    if (ok) nb_loop_addresses(r, s, p, 0, x);
    for (int k = 0; ok && k < p->turn->plan->graph->ny; k++)
        y[k] = r->out[p->out[k].to];
    ok = ok && nb_loop_enqueue(r, p, x, y);
    nb_free(x);
    return ok;
}

static bool cond_captured(nb_loop_run *r)
{
    nb_card *card = r->l->card;
    nb_card_head *head = (nb_card_head *)(r->work + r->l->head);
    nb_moved then = {.head = head, .flag = r->in[0], .until = INT64_MAX};
    return nb_card_zero(card, head, sizeof *head) &&
           nb_card_condition_new(card, &then.yes) &&
           nb_card_condition_new(card, &then.no) &&
           nb_loop_move_now(r, &then) &&
           nb_card_body_begin(card, then.yes, NB_CARD_IF) && run_side(r, 0) &&
           nb_card_body_end(card) &&
           nb_card_body_begin(card, then.no, NB_CARD_IF) && run_side(r, 1) &&
           nb_card_body_end(card);
}

bool nb_loop_run_cond(nb_loop_run *r)
{
    char on;
    if (nb_card_captures(r->l->card)) return cond_captured(r);
    return nb_card_get(r->l->card, &on, r->in[0], 1) && run_side(r, on ? 0 : 1);
}
