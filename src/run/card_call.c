/* card_call.c - calls of ops in programs on a card: jobs of the card's own, or
 * the CPU's with copies. */
#include "run/card_parts.h"

#include "backend/ref/ref.h"
#include "run/card_loop.h"

#include <stdio.h>

static bool find_job(nb_exec *e, int s)
{
    const nb_plan *p = e->plan;
    nb_card_step *k = &e->on_card[s];
    const nb_line *l = &p->graph->line[p->step[s].line];
    nb_call c = nb_call_of(p->node[p->step[s].line]);
    nb_tensor **in = nb_alloc_zero((size_t)(l->nin + 1) * sizeof *in);
    bool ok = in;
    for (int i = 0; ok && i < l->nin; i++)
        ok = (in[i] = nb_line_laid_out(p, l->in[i]));
    c.in = in;
    ok = ok && nb_card_job_make(nb_card_at(e->device - 1), &c, c.out, &k->job);
    if (ok && !k->job) ok = nb_card_loop_make(e, s, &c, &k->job);
    nb_free(in);
    return ok;
}

bool nb_card_find_calls(nb_exec *e)
{
    const nb_plan *p = e->plan;
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int s = 0; ok && s < p->nsteps; s++) {
        nb_card_step *k = &e->on_card[s];
        if (p->step[s].nest) continue;
        snprintf(k->what, sizeof k->what, "%s",
                 p->graph->line[p->step[s].line].op->name);
        ok = p->step[s].gemm ? nb_card_find_product(e, s) : find_job(e, s);
    }
    nb_scope_close(0, NULL);
    return ok;
}

bool nb_card_settle_calls(nb_exec *e)
{
    bool ok = true;
    for (int s = 0; s < e->plan->nsteps; s++) {
        nb_card_job *j = e->on_card[s].job;
        if (j && j->settle) ok = j->settle(j) && ok;
    }
    return ok;
}

void nb_card_find_workspace(nb_exec *e)
{
    for (int s = 0; s < e->plan->nsteps; s++) {
        const nb_card_job *j = e->on_card[s].job;
        if (j && j->workspace > e->workspace) e->workspace = j->workspace;
    }
}

bool nb_card_is_job(const nb_exec *e, int s)
{
    return e->device && e->on_card[s].job;
}

bool nb_card_run_job(const nb_exec *e, int s, char *const *in, char *const *out,
                     char *workspace)
{
    nb_card_job *j = e->on_card[s].job;
    return j->run(j, in, out, workspace, e->on_card[s].what);
}

bool nb_card_run_call(const nb_call *c, nb_tensor *y, int nout,
                      const int64_t *bytes, char *const *to)
{
    int device = y->device;
    nb_call here = *c;
    nb_tensor **in = nb_alloc_zero((size_t)(c->nin + 1) * sizeof *in);
    char **at = nb_alloc_zero((size_t)(nout + 1) * sizeof *at);
    size_t *room = nb_alloc_zero((size_t)(nout + 1) * sizeof *room);
    bool ok = in && at && room;
    for (int i = 0; ok && i < c->nin; i++)
        ok = (in[i] = nb_tensor_on(c->in[i], 0));
    for (int i = 0; ok && i < nout; i++)
        ok = (at[i] = nb_block_new((size_t)bytes[i] + 1, &room[i]));
    here.in = in;
    if (ok) nb_card_was_elsewhere(nb_card_at(device - 1), c->op->name);
    ok = ok && nb_ref_compute(&here, y, at);
    for (int i = 0; ok && i < nout; i++)
        ok = nb_card_transfer(to[i], device, at[i], 0, (size_t)bytes[i]);
    for (int i = 0; at && room && i < nout; i++)
        if (at[i]) nb_block_free(at[i], room[i]);
    nb_free(in), nb_free(at), nb_free(room);
    return ok;
}
