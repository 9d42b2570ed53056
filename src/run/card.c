/* card.c - programs on a card: their code, and launches of it. */
#include "run/card_parts.h"

#include "lower/passes.h"

#include <stdio.h>
#include <string.h>

int nb_graph_device(const nb_graph *g)
{
    int device = -1;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (l->kind == NB_LINE_NUMBER) continue;
        if (device >= 0 && device != l->device) return -1;
        device = l->device;
        if (l->op && l->op->lands) return -1;
    }
    return device < 0 ? 0 : device;
}

static size_t args_of(const nb_nest *x)
{
    int np = x->param ? x->nparams : 0, nb = x->nbuffers;
    return (size_t)((nb ? nb : 1) + (np ? np : 1)) * 8;
}

static bool find_params(nb_card_step *k, const nb_nest *x)
{
    int64_t *param;
    k->args = nb_alloc_zero(args_of(x));
    if (!k->args) return false;
    param = (int64_t *)k->args + (x->nbuffers ? x->nbuffers : 1);
    for (int slot = 0; x->param && slot < nb_nest_slots(x); slot++)
        if (nb_nest_varies(x, slot))
            param[x->param[slot]] = *nb_nest_number(x, slot);
    return true;
}

static void name_step(const nb_plan *p, int s, char *name, size_t room)
{
    int line = p->step[s].line, group = p->group[line];
    size_t n = 0;
    for (int k = 0; k < p->graph->n && n < room; k++)
        if (p->group[k] == group && p->graph->line[k].op)
            n += (size_t)snprintf(name + n, room - n, "%s%s", n ? "+" : "",
                                  p->graph->line[k].op->name);
}

bool nb_card_print_nest(nb_exec *e, int s, nb_card_texts *to)
{
    nb_card_step *k = &e->on_card[s];
    const nb_nest *x = e->plan->step[s].nest;
    nb_text_add(&to->text[to->n], "%s", NB_CARD_JOINS);
    if (!nb_print_nest(&to->text[to->n], x, "kernel", &k->how)) return false;
    if (!find_params(k, x)) return false;
    k->blocks = nb_printed_blocks(&k->how, x);
    to->step[to->n++] = s;
    return true;
}

static bool print_all(nb_exec *e, nb_card_texts *to)
{
    const nb_plan *p = e->plan;
    for (int s = 0; s < p->nsteps; s++) {
        nb_card_step *k = &e->on_card[s];
        if (!p->step[s].nest) continue;
        name_step(p, s, k->what, sizeof k->what);
        bool first = nb_plan_with(p, s).first == s;
        if (p->step[s].batch && first && !nb_card_print_batch(e, s, to))
            return false;
        if (!p->step[s].batch && !nb_card_print_nest(e, s, to)) return false;
    }
    return true;
}

static bool build_all(nb_exec *e, const nb_card_texts *x)
{
    size_t n = (size_t)x->n + 1;
    nb_card_source *source = nb_alloc_zero(n * sizeof *source);
    nb_card_code **code = nb_alloc_zero(n * sizeof *code);
    bool ok = source && code;
    for (int i = 0; ok && i < x->n; i++) {
        const char *text = nb_text_get(&x->text[i]);
        if (nb_pass_is_dumped("code")) nb_pass_dump("code", text);
        source[i] = (nb_card_source){.text = text, .name = "kernel"};
    }
    ok = ok && nb_card_build(nb_card_at(e->device - 1), x->n, source, code);
    for (int i = 0; ok && i < x->n; i++)
        e->on_card[x->step[i]].code = code[i];
    nb_free(source), nb_free(code);
    return ok;
}

bool nb_card_load(nb_exec *e)
{
    size_t most = (size_t)e->plan->nsteps + 1;
    nb_card_texts x = {.step = nb_alloc(most * sizeof *x.step),
                       .text = nb_alloc_zero(most * sizeof *x.text)};
    if (!e->on_card) e->on_card = nb_alloc_zero(most * sizeof *e->on_card);
    nb_card_builds all = nb_card_builds_open();
    bool ok = nb_card_at(e->device - 1) && x.step && x.text && e->on_card &&
              nb_card_find_by_value(e) && nb_card_find_calls(e) &&
              print_all(e, &x) && build_all(e, &x);
    for (size_t i = 0; x.text && i < most; i++)
        nb_text_free(&x.text[i]);
    nb_free(x.text), nb_free(x.step);
    ok = nb_card_builds_close(all, ok) && nb_card_settle_calls(e) &&
         nb_card_cut(e);
    if (ok) nb_card_find_workspace(e);
    if (!ok) nb_card_unload(e);
    return ok;
}

static bool like(nb_exec *e, const nb_card_step *from, int s)
{
    const nb_nest *x = e->plan->step[s].nest;
    nb_card_step *k = &e->on_card[s];
    if (!x) return true;
    k->how = from->how;
    k->blocks = nb_printed_blocks(&k->how, x);
    k->code = nb_card_code_keep(from->code);
    memcpy(k->what, from->what, sizeof k->what);
    return find_params(k, x);
}

bool nb_card_load_like(nb_exec *e, const nb_exec *from)
{
    size_t n = (size_t)e->plan->nsteps + 1;
    e->on_card = nb_alloc_zero(n * sizeof *e->on_card);
    nb_card_builds all = nb_card_builds_open();
    bool ok = e->on_card && nb_card_find_by_value(e) && nb_card_find_calls(e);
    for (int s = 0; ok && s < e->plan->nsteps; s++)
        ok = like(e, &from->on_card[s], s);
    ok = nb_card_builds_close(all, ok) && nb_card_settle_calls(e) &&
         nb_card_cut(e);
    if (ok) nb_card_find_workspace(e);
    if (!ok) nb_card_unload(e);
    return ok;
}

void nb_card_unload(nb_exec *e)
{
    for (int s = 0; e->on_card && s < e->plan->nsteps; s++) {
        nb_card_code_drop(e->on_card[s].code);
        nb_card_job_free(e->on_card[s].job);
        nb_free(e->on_card[s].args), nb_free(e->on_card[s].with);
    }
    nb_free(e->on_card);
    nb_card_pieces_free(e->pieces);
    nb_free(e->by_value);
    e->by_value = NULL;
    e->on_card = NULL;
    e->pieces = NULL;
}

size_t nb_card_args_bytes(const nb_exec *e, int s)
{
    const nb_nest *x = e->plan->step[s].nest;
    const nb_card_step *k = &e->on_card[s];
    return k->nwith ? nb_members_bytes(&k->how, x) : args_of(x);
}

void nb_card_put_blocks(const nb_exec *e, int s, char *const *block, char *args)
{
    const nb_card_step *k = &e->on_card[s];
    for (int i = 0; i < (k->nwith ? k->nwith : 1); i++) {
        const nb_step *step = &e->plan->step[k->nwith ? k->with[i] : s];
        char **to = (char **)(args + i * nb_member_bytes(step->nest));
        for (int b = 0; b < step->nbuffers; b++)
            to[b] = block[step->buffer[b]];
    }
}

/* A kernel over the blocks of a frame; args has room for `few`, or is freed by
 * who asked. */
typedef struct nest_call {
    nb_card_launching l;
    void *list[1];
    char few[4096], *args;
} nest_call;

static bool make_call(nest_call *c, const nb_exec *e, int s,
                      char *const *block_of)
{
    const nb_card_step *k = &e->on_card[s];
    size_t bytes = nb_card_args_bytes(e, s);
    c->args = bytes > sizeof c->few ? nb_alloc(bytes) : c->few;
    if (!c->args) return false;
    memcpy(c->args, k->args, bytes);
    nb_card_put_blocks(e, s, block_of, c->args);
    c->list[0] = c->args;
    c->l = (nb_card_launching){.code = k->code,
                               .grid = {(unsigned)k->blocks, 1, 1},
                               .block = {(unsigned)k->how.threads, 1, 1},
                               .args = c->list};
    return true;
}

static void end_call(nest_call *c)
{
    if (c->args != c->few) nb_free(c->args);
}

bool nb_card_run_nest(nb_exec *e, int s, char *const *block_of)
{
    const nb_card_step *k = &e->on_card[s];
    nest_call c;
    if (!k->blocks || k->follows) return true;
    if (!make_call(&c, e, s, block_of)) return false;
    bool ok = nb_card_launch(nb_card_at(e->device - 1), k->code, c.l.grid,
                             c.l.block, 0, c.list, k->what);
    end_call(&c);
    return ok;
}

bool nb_card_change_nest(nb_exec *e, int s, char *const *block,
                         nb_card_graph *g, void *node)
{
    nest_call c;
    if (!make_call(&c, e, s, block)) return false;
    bool ok = nb_card_graph_change(g, node, &c.l);
    end_call(&c);
    return ok;
}
