/* plan.c - the passes in order, and what a line is. */
#include "lower/plan.h"

#include "lower/chain.h"
#include "lower/gemm.h"
#include "lower/look.h"
#include "lower/passes.h"
#include "lower/rewrite.h"
#include "lower/turn.h"

#include <string.h>

void nb_step_free(nb_step *s)
{
    nb_nest_free(s->nest);
    nb_free(s->buffer), nb_free(s->product), nb_free(s->gemm);
}

void nb_plan_free(nb_plan *p)
{
    if (!p) return;
    int lines = p->graph ? p->graph->n : 0;
    for (int k = 0; p->node && k < lines; k++)
        nb_drop(p->node[k]);
    for (int k = 0; p->parts && k < lines; k++)
        nb_free(p->parts[k]);
    for (int s = 0; s < p->nsteps; s++)
        nb_step_free(&p->step[s]);
    nb_graph_free(p->graph);
    nb_free(p->node), nb_free(p->place), nb_free(p->step), nb_free(p->home);
    nb_free(p->at), nb_free(p->bytes), nb_free(p->group), nb_free(p->parts);
    nb_free(p->extra), nb_free(p->chain), nb_free(p->row);
    nb_free(p->library), nb_free(p->batch);
    nb_free(p);
}

static bool dump(const nb_plan *p, const char *pass)
{
    if (!nb_pass_is_dumped(pass)) return true;
    char *text = nb_plan_text(p);
    if (text) nb_pass_dump(pass, text);
    nb_free(text);
    return text;
}

static int device_of(const nb_graph *g)
{
    for (int k = g->n - 1; k >= 0; k--)
        if (g->line[k].device) return g->line[k].device;
    return 0;
}

static nb_plan *plan_new(nb_graph *g, bool any_size, int alone)
{
    nb_plan *p = nb_alloc_zero(sizeof *p);
    if (!p) return nb_graph_free(g), NULL;
    p->graph = g;
    p->any_size = any_size;
    p->alone = alone;
    p->device = alone ? alone : device_of(g);
    p->no_code = !p->device && !nb_pass_is_on("code");
    if (nb_plan_nodes(p) && nb_plan_fuse(p) && dump(p, "fuse") &&
        nb_plan_bytes(p) && nb_plan_chain(p) && dump(p, "chain") &&
        nb_plan_batch(p) && dump(p, "batch") && nb_plan_memory(p) &&
        dump(p, "memory"))
        return p;
    nb_plan_free(p);
    return NULL;
}

nb_plan *nb_plan_new(nb_graph *g)
{
    return plan_new(g, false, 0);
}

nb_plan *nb_plan_new_any_size(nb_graph *g)
{
    return plan_new(g, true, 0);
}

nb_plan *nb_plan_new_alone(nb_graph *g, int device)
{
    return plan_new(g, false, device);
}

nb_plan *nb_plan_draft(const nb_graph *g)
{
    nb_plan *p = nb_alloc_zero(sizeof *p);
    if (p) p->device = device_of(g);
    if (p && (p->graph = nb_graph_copy(g)) && nb_plan_nodes(p)) return p;
    nb_plan_free(p);
    return NULL;
}

static bool reduces(const nb_call *c)
{
    for (int a = 0; a < c->sig->nfactors; a++)
        if (!c->sig->factor[a].in_result) return true;
    return false;
}

/* Products summed over shared axes are the matrix library's. */
bool nb_call_is_product(const nb_call *c, const nb_tensor *y)
{
    return c->op->scalar == NB_S_mul && c->nin == 2 && reduces(c) &&
           nb_dtype_is_float((nb_dtype)y->dtype) && c->op->reduce == NB_SUM;
}

bool nb_line_loops(const nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    if (l->kind != NB_LINE_CALL || l->multi || l->op->kernel || l->op->execute)
        return false;
    if (p->no_code) return false;
    if (!l->op->scalar && !l->op->body) return false;
    nb_call c = nb_call_of(p->node[k]);
    return c.sig && c.nin <= NB_MAX_SCALAR_IN &&
           !(p->device ? p->library[k] : nb_call_is_product(&c, p->node[k]));
}

nb_tensor *nb_line_laid_out(const nb_plan *p, int k)
{
    const nb_tensor *form = p->node[k];
    nb_shape shape = nb_tensor_shape(form);
    size_t n = (size_t)(form->nlanes + form->rank) + 1;
    nb_tensor *x = nb_node_new(NULL, NULL, (nb_dtype)form->dtype, &shape, 0,
                               NULL, 0, NULL);
    if (!x || !(x->strides = nb_alloc(n * sizeof *x->strides))) return NULL;
    memcpy(x->strides, p->place[k].stride, (n - 1) * sizeof *x->strides);
    return x;
}

bool nb_line_looks(const nb_plan *p, int k)
{
    return p->place[k].root != k;
}

int nb_line_behind(const nb_plan *p, int k, int *dim)
{
    int n = p->node[k]->nlanes + p->node[k]->rank, step[NB_MAX_DIMS];
    for (int d = 0; d < n; d++)
        dim[d] = d;
    while (nb_line_looks(p, k) && p->graph->line[k].op != &nb_op_part) {
        nb_call c = nb_call_of(p->node[k]);
        if (!nb_look_moves(&c, p->node[k], step)) break;
        for (int d = 0; d < n; d++)
            if (dim[d] >= 0) dim[d] = step[dim[d]];
        k = p->graph->line[k].in[0];
    }
    return k;
}

/* Offsets of the results of a call with several, in bytes. */
static bool find_parts(nb_plan *p, int k)
{
    nb_call c = nb_call_of(p->node[k]);
    p->parts[k] = nb_alloc((size_t)(c.op->nout + 1) * sizeof *p->parts[k]);
    if (!p->parts[k]) return false;
    int64_t *total = &p->parts[k][c.op->nout];
    return p->any_size ? nb_look_parts_any_size(&c, p->parts[k], total)
                       : nb_look_parts(&c, p->parts[k], total);
}

/* Lines in blocks of their own lie row-major, or turned; a line that can look
 * does. */
static bool place_line(nb_plan *p, int k, int only)
{
    const nb_line *l = &p->graph->line[k];
    nb_place *at = &p->place[k];
    int64_t size[NB_MAX_DIMS];
    int n = nb_tensor_strides(p->node[k], size, at->stride);
    at->root = k;
    nb_packed_strides(n, size, at->stride);
    if (l->multi) return find_parts(p, k);
    if (l->kind != NB_LINE_CALL || !l->nin) return true;
    int64_t offset, stride[NB_MAX_DIMS];
    const nb_place *from = &p->place[l->in[0]];
    if (l->op == &nb_op_part) {
        at->root = l->in[0];
        at->offset =
            p->parts[l->in[0]][l->attr[0]] / (int64_t)nb_dtype_size(l->dtype);
        return true;
    }
    nb_call c = nb_call_of(p->node[k]);
    if (!nb_look(&c, p->node[k], from->stride, stride, &offset))
        return nb_line_turn(p, k, only, at->stride);
    memcpy(at->stride, stride, (size_t)n * sizeof *stride);
    at->root = from->root;
    at->offset = from->offset + offset;
    return true;
}

bool nb_plan_stand_ins(nb_plan *p)
{
    p->node = nb_alloc_zero((size_t)(p->graph->n + 1) * sizeof *p->node);
    if (!p->node || nb_scope_open() != NB_OK) return false;
    bool ok = nb_graph_nodes(p->graph, p->node);
    for (int k = 0; k < p->graph->n; k++)
        p->node[k] = ok ? nb_keep(p->node[k]) : NULL;
    nb_scope_close(0, NULL);
    return ok;
}

/* Products at sizes that are not known are loops. */
static bool find_library(nb_plan *p)
{
    if (!p->device) return true;
    p->library = nb_alloc_zero((size_t)p->graph->n + 1);
    bool ok = p->library;
    for (int k = 0; ok && !p->any_size && !p->alone && k < p->graph->n; k++) {
        const nb_line *l = &p->graph->line[k];
        nb_gemm g;
        bool found;
        if (l->kind != NB_LINE_CALL || l->multi || l->nin != 2) continue;
        nb_call c = nb_call_of(p->node[k]);
        if (!c.sig || !nb_call_is_product(&c, p->node[k])) continue;
        ok = nb_gemm_find(p, k, &g, &found);
        p->library[k] = ok && found && nb_card_multiplies(p->device, &g);
    }
    return ok;
}

bool nb_plan_nodes(nb_plan *p)
{
    size_t n = (size_t)p->graph->n + 1;
    p->place = nb_alloc_zero(n * sizeof *p->place);
    p->parts = nb_alloc_zero(n * sizeof *p->parts);
    bool ok = p->place && p->parts && nb_plan_stand_ins(p);
    int *only = ok ? nb_lines_only(p->graph) : NULL;
    ok = only;
    for (int k = 0; ok && k < p->graph->n; k++)
        ok = place_line(p, k, only[k]);
    nb_free(only);
    return ok && find_library(p);
}

static void print_chain(const nb_chain *c, nb_text *t)
{
    nb_text_add(t, "chain of steps %d to %d: %lld rows, tiles of %lld",
                c->first, c->last, (long long)c->rows, (long long)c->tile);
    if (c->run > c->tile) nb_text_add(t, " in %lld", (long long)c->run);
    if (c->group) nb_text_add(t, ", groups of %lld", (long long)c->group);
    nb_text_add(t, "\n");
}

static void print_block(const nb_plan *p, int k, const nb_life *l, nb_text *t)
{
    static const char *const home[] = {"none", "given", "arena", "result",
                                       "tile"};
    nb_text_add(t, "  block %d: %lld bytes, %s", k, (long long)p->bytes[k],
                home[p->home[k]]);
    if (p->home[k] == NB_HOME_ARENA || p->home[k] == NB_HOME_TILE)
        nb_text_add(t, " at %lld", (long long)p->at[k]);
    nb_text_add(t, ", steps %d to %d", l[k].first, l[k].last);
    if (k < p->graph->n)
        nb_text_add(t, ", %s %s%s", p->graph->line[k].op->name,
                    nb_dtype_brief(p->graph->line[k].dtype),
                    nb_shape_text(&p->graph->line[k].shape));
    nb_text_add(t, "\n");
}

/* Blocks, then those of the arena that are alive when most of it is in use. */
static bool print_blocks(const nb_plan *p, nb_text *t)
{
    int n = nb_plan_blocks(p);
    nb_life *l = nb_alloc((size_t)(n + 1) * sizeof *l);
    int64_t bytes;
    if (!l) return false;
    nb_plan_lives(p, l);
    for (int k = 0; k < n; k++)
        if (p->home[k] > NB_HOME_GIVEN) print_block(p, k, l, t);
    nb_text_add(t, "arena: %lld bytes\n", (long long)p->arena);
    int step = nb_plan_fullest(p, l, &bytes);
    if (step >= 0)
        nb_text_add(t, "alive at step %d: %lld bytes\n", step,
                    (long long)bytes);
    for (int k = 0; k < n; k++)
        if (step >= 0 && nb_plan_is_alive(p, l, k, step))
            print_block(p, k, l, t);
    nb_free(l);
    return true;
}

static void print_call(const nb_plan *p, int k, nb_text *t)
{
    const nb_line *l = &p->graph->line[k];
    nb_text_add(t, "%s(", l->op->name);
    for (int i = 0; i < l->nin; i++)
        nb_text_add(t, "%s%d", i ? ", " : "", p->place[l->in[i]].root);
    nb_text_add(t, ") -> %d\n", k);
}

char *nb_plan_text(const nb_plan *p)
{
    nb_text t = {0};
    if (p->device) nb_text_add(&t, "on gpu:%d\n", p->device - 1);
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        int chain = step->chain;
        if (chain && p->chain[chain - 1].first == s)
            print_chain(&p->chain[chain - 1], &t);
        int batch = step->batch;
        if (batch && p->batch[batch - 1].first == s)
            nb_text_add(&t, "steps %d to %d side by side:\n", s,
                        p->batch[batch - 1].last);
        nb_text_add(&t, "step %d: ", s);
        if (step->gemm) nb_gemm_print(step->gemm, &t);
        if (!step->nest) {
            print_call(p, step->line, &t);
            continue;
        }
        for (int b = 0; b < step->nbuffers; b++)
            nb_text_add(&t, "b%d=%d ", b, step->buffer[b]);
        nb_nest_print(step->nest, &t);
    }
    bool ok = !p->home || print_blocks(p, &t);
    char *text = !ok || t.failed ? NULL : nb_copy_text(nb_text_get(&t));
    nb_text_free(&t);
    return text;
}
