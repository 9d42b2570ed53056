/* exec_run.c - running executables. */
#include "run/exec_parts.h"

#include "backend/cuda/build.h"
#include "backend/ref/ref.h"
#include "base/pool.h"
#include "core/convert.h"
#include "run/card.h"
#include "run/chain.h"
#include "run/check.h"
#include "run/donate.h"
#include "run/profile.h"
#include "transform/region.h"

#include <stdio.h>
#include <string.h>

enum { STACK_SCRATCH = 1 << 14 };

typedef struct run {
    nb_exec *e;
    nb_frame *f;
    nb_tensor *const *x; /* or, if these are NULL, memory: */
    char *const *in, *const *out;
    const nb_run_watch *watch; /* or NULL */
    char *spare;               /* for results that land nowhere, or NULL */
} run;

static nb_tensor *given(const run *r, int k)
{
    const nb_line *l = &r->e->plan->graph->line[k];
    return l->kind == NB_LINE_INPUT      ? r->x[k]
           : l->kind == NB_LINE_CAPTURED ? l->captured
                                         : r->e->plan->node[k];
}

/* Copies the elements of x in order. */
static void pack_into(char *to, const nb_tensor *x)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], at[NB_MAX_DIMS];
    int64_t item = (int64_t)nb_dtype_size(d), n = 1;
    int nd = nb_tensor_strides(x, size, stride);
    for (int k = 0; k < nd; k++) {
        n *= size[k];
        at[k] = 0;
    }
    int64_t row = nd ? size[nd - 1] : 1, step = nd ? stride[nd - 1] : 1;
    for (int64_t done = 0; done < n; done += row) {
        int64_t o = 0;
        for (int k = 0; k < nd - 1; k++)
            o += at[k] * stride[k];
        nb_convert(to + done * item, d, 1, x->data + o * item, d, step, row);
        for (int k = nd - 2; k >= 0 && ++at[k] == size[k]; k--)
            at[k] = 0;
    }
}

/* Inputs that are memory of the caller's. */
static bool is_alien(const run *r, int k)
{
    return r->in && r->e->plan->graph->line[k].kind == NB_LINE_INPUT;
}

static size_t spare_bytes(const nb_plan *p, int k)
{
    enum { ALIGN = 256 };
    return ((size_t)p->bytes[k] + ALIGN - 1) / ALIGN * ALIGN;
}

/* Where a result goes: memory of the caller's or of an input that is donated, or
 * a buffer of its own. */
static bool place_result(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    int first = r->out ? r->e->result[k] : -1;
    if (first >= 0 && nb_card_takes(r->e->device, r->out[first])) {
        r->f->block[k] = r->out[first];
        return true;
    }
    if (r->spare) {
        r->f->block[k] = r->spare;
        r->spare += spare_bytes(p, k);
        return true;
    }
    int i = r->e->take && r->x && !r->watch ? r->e->take[k] : -1;
    r->f->held[k] = i >= 0 && nb_donate_can(r->x[i])
                        ? nb_buffer_keep(r->x[i]->buffer)
                        : nb_buffer_on(r->e->device, (size_t)p->bytes[k]);
    if (!r->f->held[k]) return false;
    r->f->block[k] = r->f->held[k]->data;
    return true;
}

/* An input whose elements do not lie in order is copied to the frame's own
 * memory, which costs less than a tensor of its own. */
static bool place_given(run *r, int k)
{
    int device = r->e->device;
    size_t bytes = (size_t)r->e->plan->bytes[k];
    const nb_tensor *x = is_alien(r, k) ? NULL : given(r, k);
    char **block = &r->f->block[k];
    *block = x ? x->data : r->in[k];
    if (x && nb_card_is_by_value(r->e, k)) {
        *block = nb_card_value(x);
        return true;
    }
    if ((!x || nb_tensor_is_packed(x)) && nb_card_takes(device, *block))
        return true;
    if (!r->f->own[k]) r->f->own[k] = nb_buffer_on(device, bytes);
    if (!r->f->own[k]) return false;
    *block = r->f->own[k]->data;
    if (!x) return nb_card_transfer(*block, device, r->in[k], device, bytes);
    if (device) return nb_card_pack(device, *block, x);
    pack_into(*block, x);
    return true;
}

static bool place_blocks(run *r)
{
    const nb_plan *p = r->e->plan;
    for (int k = 0; k < p->graph->n + p->nextra; k++) {
        if (p->home[k] == NB_HOME_GIVEN && !place_given(r, k)) return false;
        if (p->home[k] == NB_HOME_ARENA)
            r->f->block[k] = r->f->arena->data + p->at[k];
        if (p->home[k] == NB_HOME_TILE && !r->watch) continue;
        if (p->home[k] >= NB_HOME_RESULT && !place_result(r, k)) return false;
    }
    return true;
}

typedef struct launch {
    const nb_step_kernel *k;
    void **buffer;
    const char *name; /* if times are taken; and whose thread this is */
    int thread;
    atomic_bool failed;
} launch;

static void run_chunk(void *ctx, int64_t i)
{
    launch *l = ctx;
    const nb_step_kernel *k = l->k;
    int64_t from = i * k->per_chunk, to = from + k->per_chunk;
    _Alignas(64) char room[STACK_SCRATCH];
    char *scratch = room, *block = NULL;
    size_t got = 0;
    int64_t began = l->name ? nb_profile_now() : 0;
    if (to > k->info.units) to = k->info.units;
    if (k->info.scratch > STACK_SCRATCH) {
        scratch = block = nb_block_new((size_t)k->info.scratch, &got);
        if (!block) {
            l->failed = true;
            return;
        }
    }
    k->fn(l->buffer, scratch, from, to);
    if (block) nb_block_free(block, got);
    if (began && nb_profile_thread() != l->thread)
        nb_profile_end(began, "kernel", l->name);
}

static bool run_nest(run *r, int s, const char *name)
{
    if (r->e->device) return nb_card_run_nest(r->e, s, r->f->block);
    const nb_step *step = &r->e->plan->step[s];
    const nb_step_kernel *k = &r->e->kernel[s];
    void *few[16], **buffer = few;
    if (step->nbuffers > 15)
        buffer = nb_alloc((size_t)(step->nbuffers + 1) * sizeof *buffer);
    if (!buffer) return false;
    buffer[step->nbuffers] = k->param;
    for (int b = 0; b < step->nbuffers; b++)
        buffer[b] = r->f->block[step->buffer[b]];
    launch l = {.k = k, .buffer = buffer, .name = name};
    if (name) l.thread = nb_profile_thread();
    double ns = k->info.cycles * (double)k->info.units / 3;
    if (k->chunks == 1)
        run_chunk(&l, 0);
    else
        nb_parallel_if(ns, k->chunks, run_chunk, &l);
    if (buffer != few) nb_free(buffer);
    return !l.failed;
}

static nb_buffer *buffer_of(const run *r, int root)
{
    nb_home home = r->e->plan->home[root];
    if (home == NB_HOME_ARENA) return r->f->arena;
    if (home == NB_HOME_GIVEN)
        return is_alien(r, root) ? r->f->alien : given(r, root)->buffer;
    return r->f->held[root] ? r->f->held[root] : r->f->alien;
}

/* A node over the memory of line k.  Lanes have the numbers that they have in
 * the plan, not those of a tensor that was given. */
static nb_tensor *node_over(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    const nb_place *at = &p->place[k];
    const nb_tensor *form = p->node[k];
    if (at->root == k && p->home[k] == NB_HOME_GIVEN && !is_alien(r, k) &&
        !form->nlanes)
        return given(r, k);
    nb_tensor *x = r->f->node[k];
    if (!x) {
        if (!(x = nb_line_laid_out(p, k))) return NULL;
        r->f->node[k] = nb_keep(x);
    }
    x->data = r->f->block[at->root] +
              at->offset * (int64_t)nb_dtype_size((nb_dtype)form->dtype);
    x->buffer = buffer_of(r, at->root);
    x->device = (uint8_t)r->e->device;
    return x;
}

static char *data_of(const run *r, int k)
{
    const nb_plan *p = r->e->plan;
    return r->f->block[p->place[k].root] +
           p->place[k].offset *
               (int64_t)nb_dtype_size((nb_dtype)p->node[k]->dtype);
}

static bool run_product(run *r, const nb_product *product, int k)
{
    const nb_line *l = &r->e->plan->graph->line[k];
    return nb_product_run(product, data_of(r, l->in[0]), data_of(r, l->in[1]),
                          r->f->block[k]);
}

/* Of a line with several results, where the parts begin tells their sizes. */
static bool call_there(run *r, int k, const nb_call *c, int nout,
                       char *const *to)
{
    const nb_plan *p = r->e->plan;
    int64_t *bytes = nb_alloc((size_t)(nout + 1) * sizeof *bytes);
    bool ok = bytes;
    for (int i = 0; ok && i < nout; i++) {
        nb_shape shape = p->graph->line[k].shape;
        nb_dtype d = p->graph->line[k].dtype;
        if (p->graph->line[k].multi) ok = nb_call_infer(c, i, &shape, &d);
        ok = ok && nb_shape_count(&shape, &bytes[i]);
        if (ok) bytes[i] *= (int64_t)nb_dtype_size(d);
    }
    ok = ok && nb_card_run_call(c, p->node[k], nout, bytes, to);
    nb_free(bytes);
    return ok;
}

static bool run_call(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    const nb_line *l = &p->graph->line[k];
    int64_t attr[NB_MAX_WORDS];
    nb_call c = nb_call_of(p->node[k]);
    int nout = l->multi ? l->op->nout : 1;
    nb_tensor **in = nb_alloc((size_t)(l->nin + 1) * sizeof *in);
    char **to = nb_alloc((size_t)(nout + 1) * sizeof *to);
    bool ok = in && to;
    for (int i = 0; ok && i < l->nin; i++)
        ok = (in[i] = node_over(r, l->in[i]));
    for (int i = 0; ok && i < nout; i++)
        to[i] = r->f->block[k] + (l->multi ? p->parts[k][i] : 0);
    if (ok) {
        if (c.nattr) memcpy(attr, c.attr, (size_t)c.nattr * sizeof *attr);
        c.in = in;
        c.attr = attr;
        ok = r->e->device && !l->op->anywhere
                 ? call_there(r, k, &c, nout, to)
                 : nb_ref_compute(&c, p->node[k], to);
    }
    nb_free(in);
    nb_free(to);
    return ok;
}

static char *workspace(const run *r)
{
    return r->f->arena->data + nb_frame_arena(r->e);
}

static bool run_job(run *r, int s)
{
    const nb_plan *p = r->e->plan;
    int k = p->step[s].line;
    const nb_line *l = &p->graph->line[k];
    int nout = l->multi ? l->op->nout : 1;
    char **at = nb_alloc((size_t)(l->nin + nout) * sizeof *at);
    if (!at) return false;
    for (int i = 0; i < l->nin; i++)
        at[i] = data_of(r, l->in[i]);
    for (int i = 0; i < nout; i++)
        at[l->nin + i] = r->f->block[k] + (l->multi ? p->parts[k][i] : 0);
    bool ok = nb_card_run_job(r->e, s, at, at + l->nin, workspace(r));
    nb_free(at);
    return ok;
}

static bool run_gemm(run *r, int s)
{
    enum { MOST = 8 };
    const nb_step *step = &r->e->plan->step[s];
    char *at[MOST];
    for (int b = 0; b < step->nbuffers; b++)
        at[b] = r->f->block[step->buffer[b]];
    return nb_card_run_job(r->e, s, at, NULL, workspace(r));
}

/* The value of line k, of a shape that is the line's but for the lanes. */
static nb_tensor *leaf_of(run *r, int k, const nb_shape *shape)
{
    const nb_plan *p = r->e->plan;
    const nb_place *at = &p->place[k];
    nb_dtype d = p->graph->line[k].dtype;
    if (at->root == k)
        return nb_leaf_on(r->e->device, nb_leaf_first(d, shape, r->f->held[k]));
    nb_buffer *b = p->home[at->root] == NB_HOME_GIVEN
                       ? given(r, at->root)->buffer
                       : r->f->held[at->root];
    char *data = r->f->block[at->root] + at->offset * (int64_t)nb_dtype_size(d);
    return nb_leaf_on(r->e->device, nb_leaf_new(d, shape, b, data, at->stride));
}

static nb_tensor *result_of(run *r, int k, const int *id)
{
    const nb_plan *p = r->e->plan;
    const nb_shape *form = &p->graph->line[k].shape;
    if (p->place[k].root == k && p->home[k] == NB_HOME_GIVEN)
        return given(r, k);
    if (!form->nlanes) return leaf_of(r, k, form);
    nb_shape shape = *form;
    for (int l = 0; l < shape.nlanes; l++)
        shape.lane[l].id = id[shape.lane[l].id];
    return leaf_of(r, k, &shape);
}

nb_tensor *nb_tensor_packed(nb_tensor *x)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t n;
    if (x->buffer && nb_tensor_is_packed(x)) return x;
    nb_shape shape = nb_tensor_shape(x);
    nb_shape_count(&shape, &n);
    nb_buffer *b = nb_buffer_new((size_t)n * nb_dtype_size(d));
    if (!b) return NULL;
    pack_into(b->data, x);
    nb_tensor *y = nb_leaf_first(d, &shape, b);
    nb_buffer_drop(b);
    return y;
}

static bool pack_inputs(const nb_exec *e, nb_tensor *const *x, nb_tensor **to)
{
    for (int i = 0; i < e->plan->graph->nx; i++) {
        to[i] = nb_card_is_by_value(e, i) ? x[i]
                : e->device               ? nb_tensor_on(x[i], e->device)
                                          : nb_tensor_packed(x[i]);
        if (!to[i]) return false;
    }
    return true;
}

static bool run_step(run *r, int s, const char *name)
{
    const nb_plan *p = r->e->plan;
    const nb_product *product = r->e->kernel[s].product;
    int line = p->step[s].line;
    if (p->step[s].gemm) return run_gemm(r, s);
    if (nb_card_is_job(r->e, s)) return run_job(r, s);
    return p->step[s].nest ? run_nest(r, s, name)
           : product       ? run_product(r, product, line)
                           : run_call(r, line);
}

/* The ops of a step, as far as there is room. */
static void name_step(const nb_plan *p, int s, char *name, size_t room)
{
    int line = p->step[s].line, group = p->step[s].nest ? p->group[line] : -1;
    size_t n = 0;
    for (int k = 0; k < p->graph->n && n < room; k++)
        if (group >= 0 ? p->group[k] == group : k == line)
            n += (size_t)snprintf(name + n, room - n, "%s%s", n ? "+" : "",
                                  p->graph->line[k].op->name);
}

static bool run_step_timed(run *r, int s, int64_t began)
{
    char name[256] = "";
    name_step(r->e->plan, s, name, sizeof name);
    bool ok = run_step(r, s, name);
    nb_profile_end(began, r->e->plan->step[s].nest ? "kernel" : "call", name);
    nb_profile_memory(began);
    return ok;
}

static bool run_chain(run *r, const nb_chain *c)
{
    nb_chain_code code[NB_MAX_CHAIN] = {0};
    for (int s = c->first; s <= c->last; s++) {
        const nb_step_kernel *k = &r->e->kernel[s];
        if (!r->e->plan->step[s].nest) continue;
        code[s - c->first] =
            (nb_chain_code){k->fn, k->info.units / c->rows, k->info.scratch};
    }
    return nb_chain_run(r->e->plan, c, code, r->f->block);
}

static bool run_chain_timed(run *r, const nb_chain *c, int64_t began)
{
    char name[256] = "";
    bool ok = run_chain(r, c);
    for (int s = c->first; s <= c->last; s++) {
        size_t n = strlen(name), room = sizeof name - n;
        if (n && room > 3) snprintf(name + n, room, ", ");
        name_step(r->e->plan, s, name + strlen(name),
                  sizeof name - strlen(name));
    }
    nb_profile_end(began, "chain", name);
    nb_profile_memory(began);
    return ok;
}

static nb_tensor *value_of(void *r, int k)
{
    return node_over(r, k);
}

static bool tell(run *r, int s, bool after)
{
    return !r->watch || r->watch->step(r->watch->ctx, s, after, value_of, r);
}

static bool writes_tiles(const nb_plan *p, int s)
{
    const nb_step *step = &p->step[s];
    if (!step->nest) return p->home[step->line] == NB_HOME_TILE;
    for (int k = 0; k < step->nest->n; k++) {
        const nb_nest_value *v = &step->nest->value[k];
        if (v->kind == NB_NEST_STORE &&
            p->home[step->buffer[v->buffer]] == NB_HOME_TILE)
            return true;
    }
    return false;
}

/* Who watches sees what a chain left, and what was only in its tiles by running
 * those steps once more, for all rows. */
static bool run_watched(run *r, int s)
{
    const nb_plan *p = r->e->plan;
    if (!tell(r, s, false)) return false;
    if ((!p->step[s].chain || writes_tiles(p, s)) && !run_step(r, s, NULL))
        return false;
    return tell(r, s, true);
}

static bool do_step(void *ctx, int s)
{
    return run_step(ctx, s, NULL);
}

static bool run_steps(run *r)
{
    const nb_plan *p = r->e->plan;
    if (!place_blocks(r)) return nb_exec_explain(r->e);
    if (r->e->device && !r->watch && !nb_profile_begin())
        return nb_card_run_steps(r->e, r->f, &(nb_card_doing){do_step, r});
    for (int s = 0; s < p->nsteps; s++) {
        int64_t began = nb_profile_begin();
        int chain = p->step[s].chain;
        const nb_chain *c = chain ? &p->chain[chain - 1] : NULL;
        bool ok = true;
        if (c && s == c->first)
            ok = began ? run_chain_timed(r, c, began) : run_chain(r, c);
        if (ok && r->watch)
            ok = run_watched(r, s);
        else if (c)
            s = c->last;
        else if (ok)
            ok = began ? run_step_timed(r, s, began) : run_step(r, s, NULL);
        if (!ok) return false;
    }
    return true;
}

/* Blocks that were taken hold results now. */
static void mark_donated(const run *r)
{
    for (int k = 0; r->f && k < r->e->plan->graph->n; k++) {
        int i = r->e->take[k];
        if (i >= 0 && r->f->held[k] && r->f->held[k] == r->x[i]->buffer)
            nb_donate_mark(r->x[i]);
    }
}

bool nb_exec_run_as(nb_exec *e, const nb_graph *recorded, nb_tensor *const *x,
                    nb_tensor **y)
{
    if (!nb_exec_load(e)) return false;
    if (e->trouble || (nb_runs_plainly() && !e->device))
        return nb_graph_run_plainly(recorded ? recorded : e->plan->graph, x, y);
    if (nb_check_get() && !e->device) return nb_check_run(e, recorded, x, y);
    return nb_exec_run_watched(e, x, y, NULL);
}

bool nb_exec_run(nb_exec *e, nb_tensor *const *x, nb_tensor **y)
{
    return nb_exec_run_as(e, NULL, x, y);
}

static void let_go(run *r)
{
    for (int k = 0; k < r->e->plan->graph->n; k++) {
        if (r->f->held[k]) nb_buffer_drop(r->f->held[k]);
        r->f->held[k] = NULL;
        if (!r->f->own[k] || r->f->own[k]->room <= NB_SMALL_ARENA) continue;
        nb_buffer_drop(r->f->own[k]);
        r->f->own[k] = NULL;
    }
    nb_frame_give(r->e, r->f);
}

static bool run_packed(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                       const nb_run_watch *watch)
{
    const nb_graph *g = e->plan->graph;
    int id[NB_MAX_GRAPH_LANES + 1];
    run r = {.e = e, .f = nb_frame_take(e), .x = x, .watch = watch};
    if (!r.f) return false;
    bool ok = run_steps(&r);
    if (ok && g->nlanes) nb_graph_match(g, x, id);
    for (int i = 0; ok && i < g->ny; i++)
        ok = (y[i] = result_of(&r, g->result[i], id));
    if (e->take) mark_donated(&r);
    let_go(&r);
    return ok;
}

/* Results that share memory with inputs, and whoever watches, want inputs that
 * are packed tensors. */
static bool run_scoped(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                       const nb_run_watch *watch)
{
    const nb_graph *g = e->plan->graph;
    nb_tensor *few[16], **in = few;
    if (g->nx > 16 && !(in = nb_alloc((size_t)g->nx * sizeof *in)))
        return false;
    bool ok = nb_scope_open() == NB_OK;
    if (ok) {
        ok = pack_inputs(e, x, in) && run_packed(e, in, y, watch);
        nb_scope_close(ok ? g->ny : 0, y);
    }
    for (int i = 0; ok && i < g->ny; i++)
        ok = y[i];
    if (in != few) nb_free(in);
    return ok;
}

/* Kernels that copy inputs stay until all are copied. */
static bool run_on_card(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                        const nb_run_watch *watch)
{
    nb_card_builds all = nb_card_builds_open();
    return nb_card_builds_close(all, run_scoped(e, x, y, watch));
}

/* Loops lend nothing but results, and need no scope. */
bool nb_exec_run_watched(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                         const nb_run_watch *watch)
{
    if (e->device) return run_on_card(e, x, y, watch);
    bool scoped = e->lends || e->echoes || watch;
    return scoped ? run_scoped(e, x, y, watch) : run_packed(e, x, y, NULL);
}

/* Copies results that did not land where they belong: looks, inputs, lines that
 * are several results, what a card cannot write there. */
static bool bring(run *r)
{
    const nb_graph *g = r->e->plan->graph;
    for (int i = 0; i < g->ny; i++) {
        int k = g->result[i];
        if (r->f->block[k] == r->out[i] && r->e->plan->place[k].root == k)
            continue;
        nb_shape shape = nb_tensor_shape(r->e->plan->node[k]);
        nb_tensor *x = node_over(r, k);
        if (!x || !nb_copy_into(r->out[i], &shape, x)) return false;
    }
    return true;
}

/* Inputs that nodes look into belong to nobody here. */
static bool has_alien(nb_frame *f)
{
    if (f->alien) return true;
    if (!(f->alien = nb_alloc(sizeof *f->alien))) return false;
    *f->alien = (nb_buffer){.refs = 1};
    return true;
}

bool nb_exec_run_at(nb_exec *e, char *const *in, char *const *out)
{
    run r = {.e = e, .f = nb_frame_take(e), .in = in, .out = out};
    if (!r.f) return false;
    bool looks = e->looks || e->device, scope = e->lends || looks;
    bool ok = has_alien(r.f) && (!scope || nb_scope_open() == NB_OK);
    if (ok) {
        ok = run_steps(&r) && (!looks || bring(&r));
        if (scope) nb_scope_close(0, NULL);
    }
    let_go(&r);
    return ok;
}

bool nb_exec_only_enqueues(const nb_exec *e)
{
    bool ok = e->device && e->loaded && !e->trouble;
    for (int s = 0; ok && s < e->plan->nsteps; s++)
        ok = nb_card_only_enqueues(e, s);
    return ok;
}

/* The arena, the workspace, results that are no one's. */
static size_t before_spare(const nb_exec *e)
{
    enum { ALIGN = 256 };
    return (nb_frame_arena(e) + e->workspace + ALIGN - 1) / ALIGN * ALIGN;
}

size_t nb_exec_room(const nb_exec *e)
{
    const nb_plan *p = e->plan;
    size_t bytes = before_spare(e);
    for (int k = 0; k < nb_plan_blocks(p); k++)
        if (p->home[k] == NB_HOME_RESULT && e->result[k] < 0)
            bytes += spare_bytes(p, k);
    return bytes;
}

bool nb_exec_enqueue(nb_exec *e, char *const *in, char *const *out, char *room,
                     char **at)
{
    const nb_graph *g = e->plan->graph;
    nb_buffer arena = {.refs = 1, .data = room};
    run r = {.e = e, .f = nb_frame_new(e), .in = in, .out = out};
    if (!r.f) return false;
    r.f->arena = &arena;
    r.spare = room + before_spare(e);
    bool ok = place_blocks(&r);
    for (int s = 0; ok && s < e->plan->nsteps; s++)
        ok = run_step(&r, s, NULL);
    for (int i = 0; ok && i < g->ny; i++)
        at[i] = data_of(&r, g->result[i]);
    r.f->arena = NULL;
    nb_frame_free(e, r.f);
    return ok;
}
