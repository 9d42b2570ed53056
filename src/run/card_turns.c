/* card_turns.c - loops and branches of many kernels: what their runs share. */
#include "run/card_turns.h"

#include "backend/cuda/memory.h"

/* Whether something goes by the count of turns. */
static bool is_counted(const nb_loop_run *r)
{
    for (int i = 0; i < r->nmoves; i++)
        if (r->move[i].to_step || r->move[i].from_step) return true;
    return false;
}

bool nb_loop_move_now(nb_loop_run *r, const nb_moved *then)
{
    int n = r->nmoves;
    nb_moved count = {.head = (nb_card_head *)(r->work + r->l->head)};
    if (!then && is_counted(r)) then = &count;
    r->nmoves = 0;
    return (!n && !then) ||
           nb_moves_launch(r->l->card, r->l->moves, n, r->move, then, r->what);
}

bool nb_loop_add_move(nb_loop_run *r, nb_move m, char *to, const char *from)
{
    m.to = to;
    m.from = from;
    if (!m.count) return true;
    if (r->nmoves == NB_LOOP_MOVES && !nb_loop_move_now(r, NULL)) return false;
    r->move[r->nmoves++] = m;
    return true;
}

/* Places */

/* What a program is given, its steps left out; x has room for what was
 * computed before. */
void nb_loop_addresses(const nb_loop_run *r, const nb_loop_side *s,
                       const nb_loop_program *p, int half, char **x)
{
    for (int i = 0; i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        x[i] = in->kind == NB_CARRIED ? r->work + in->at[half]
               : in->kind == NB_STEPS ? NULL
               : in->kind == NB_KEPT  ? r->record + in->at[0]
               : in->lies             ? r->in[in->from]
                                      : r->work + in->at[0];
    }
    for (int i = 0; i < p->p.nbefore; i++)
        x[s->nx + i] = r->work + p->kept[i].at;
}

/* Runs a program to places, and brings there what it has left elsewhere. */
bool nb_loop_enqueue(nb_loop_run *r, const nb_loop_program *p, char *const *x,
                     char *const *y)
{
    int n = p->turn->plan->graph->ny;
    char **at = nb_alloc((size_t)(n + 1) * sizeof *at);
    bool ok = at && nb_exec_enqueue(p->turn, x, y, r->work + r->l->room, at);
    for (int i = 0; ok && i < n; i++)
        if (!p->out[i].lands)
            ok = nb_loop_add_move(r, p->out[i].bring, y[i], at[i]);
    nb_free(at);
    return ok && nb_loop_move_now(r, NULL);
}

static bool compute_before(nb_loop_run *r, const nb_loop_side *s,
                           const nb_loop_program *p)
{
    int n = p->p.nbefore;
    if (!p->before) return true;
    char **x = nb_alloc_zero((size_t)(s->nx + 2 * n + 1) * sizeof *x);
    if (!x) return false;
    nb_loop_addresses(r, s, p, 0, x);
    char **at = x + s->nx + n;
    bool ok =
        nb_exec_enqueue(p->before, x, x + s->nx, r->work + r->l->room, at);
    for (int i = 0; ok && i < n; i++)
        if (!p->kept[i].lands)
            ok = nb_loop_add_move(r, p->kept[i].bring, x[s->nx + i], at[i]);
    nb_free(x);
    return ok && nb_loop_move_now(r, NULL);
}

/* Before the first turn: what is carried begins, what does not lie in order is
 * put in order. */
bool nb_loop_begin(nb_loop_run *r, const nb_loop_side *s)
{
    bool ok = true;
    for (int i = 0; ok && i < s->nx; i++) {
        const nb_loop_input *in = &s->in[i];
        bool moves =
            in->kind == NB_CARRIED || (in->kind == NB_STAYS && !in->lies);
        if (moves)
            ok = nb_loop_add_move(r, in->move, r->work + in->at[0],
                                  r->in[in->from]);
    }
    ok = ok && nb_loop_move_now(r, NULL);
    for (int i = 0; ok && i < s->n; i++)
        ok = compute_before(r, s, &s->program[i]);
    return ok;
}

/* After the last. */
bool nb_loop_end(nb_loop_run *r, const nb_loop_side *s,
                 const nb_loop_program *p)
{
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
char **nb_loop_room(const nb_loop_side *s, const nb_loop_program *p)
{
    int n = s->nx + p->p.nbefore + p->turn->plan->graph->ny;
    return nb_alloc_zero((size_t)(n + 1) * sizeof(char *));
}

void nb_loop_carried_to(const nb_loop_run *r, const nb_loop_side *s,
                        const nb_loop_program *p, char **y)
{
    for (int k = 0; k < p->turn->plan->graph->ny; k++) {
        const nb_loop_output *out = &p->out[k];
        if (out->feeds < 0) continue;
        const nb_loop_input *in = &s->in[out->feeds];
        y[k] = in->kind == NB_CARRIED ? r->work + in->at[1 - r->half]
               : r->record            ? r->record + in->at[0]
                                      : r->work + out->at;
    }
}

/* A turn of a program that has no steps. */
bool nb_loop_turn(nb_loop_run *r, const nb_loop_program *p, char **x)
{
    const nb_loop_side *s = &r->l->side[0];
    char **y = x + s->nx + p->p.nbefore;
    nb_loop_addresses(r, s, p, r->half, x);
    nb_loop_carried_to(r, s, p, y);
    return nb_loop_enqueue(r, p, x, y);
}

bool nb_card_loop_run(nb_card_job *j, char *const *in, char *const *out,
                      char *workspace, const char *what)
{
    nb_card_loop *l = (nb_card_loop *)j;
    nb_loop_run *r = nb_alloc_zero(sizeof *r);
    if (!r) return false;
    *r = (nb_loop_run){
        .l = l, .in = in, .out = out, .work = workspace, .what = what};
    bool ok = l->kind == NB_LOOP_SCAN   ? nb_loop_run_scan(r)
              : l->kind == NB_LOOP_COND ? nb_loop_run_cond(r)
              : l->job.alone            ? nb_loop_run_passes(r)
                                        : nb_loop_run_while(r);
    if (ok) l->warm = true;
    nb_free(r);
    return ok;
}
