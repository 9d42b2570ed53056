/* plan.c - the passes in order, and what a line is. */
#include "lower/plan.h"

#include "lower/look.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <string.h>

void nb_plan_free(nb_plan *p)
{
    if (!p) return;
    for (int k = 0; p->node && k < p->graph->n; k++)
        nb_drop(p->node[k]);
    for (int k = 0; p->parts && k < p->graph->n; k++)
        nb_free(p->parts[k]);
    for (int s = 0; s < p->nsteps; s++) {
        nb_nest_free(p->step[s].nest);
        nb_free(p->step[s].buffer);
    }
    nb_graph_free(p->graph);
    nb_free(p->node), nb_free(p->place), nb_free(p->step), nb_free(p->home);
    nb_free(p->at), nb_free(p->bytes), nb_free(p->group), nb_free(p->parts);
    nb_free(p->extra);
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

static nb_plan *plan_new(nb_graph *g, bool any_size)
{
    nb_plan *p = nb_alloc_zero(sizeof *p);
    if (!p) return nb_graph_free(g), NULL;
    p->graph = g;
    p->any_size = any_size;
    p->no_code = !nb_pass_is_on("code");
    if (nb_plan_nodes(p) && nb_plan_fuse(p) && dump(p, "fuse") &&
        nb_plan_memory(p) && dump(p, "memory"))
        return p;
    nb_plan_free(p);
    return NULL;
}

nb_plan *nb_plan_new(nb_graph *g)
{
    return plan_new(g, false);
}

nb_plan *nb_plan_new_any_size(nb_graph *g)
{
    return plan_new(g, true);
}

static bool reduces(const nb_call *c)
{
    for (int a = 0; a < c->sig->nfactors; a++)
        if (!c->sig->factor[a].in_result) return true;
    return false;
}

/* Products summed over shared axes are the matrix library's. */
static bool is_product(const nb_call *c, const nb_tensor *y)
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
    return c.sig && c.nin <= NB_MAX_SCALAR_IN && !is_product(&c, p->node[k]);
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

/* Lines in blocks of their own lie row-major; a line that can look does. */
static bool place_line(nb_plan *p, int k)
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
    if (!nb_look(&c, p->node[k], from->stride, stride, &offset)) return true;
    memcpy(at->stride, stride, (size_t)n * sizeof *stride);
    at->root = from->root;
    at->offset = from->offset + offset;
    return true;
}

static bool make_nodes(nb_plan *p)
{
    p->node = nb_alloc_zero((size_t)(p->graph->n + 1) * sizeof *p->node);
    if (!p->node || nb_scope_open() != NB_OK) return false;
    bool ok = nb_graph_nodes(p->graph, p->node);
    for (int k = 0; k < p->graph->n; k++)
        p->node[k] = ok ? nb_keep(p->node[k]) : NULL;
    nb_scope_close(0, NULL);
    return ok;
}

bool nb_plan_nodes(nb_plan *p)
{
    size_t n = (size_t)p->graph->n + 1;
    p->place = nb_alloc_zero(n * sizeof *p->place);
    p->parts = nb_alloc_zero(n * sizeof *p->parts);
    bool ok = p->place && p->parts && make_nodes(p);
    for (int k = 0; ok && k < p->graph->n; k++)
        ok = place_line(p, k);
    return ok;
}

/* Copies */

static void *copied(const void *from, size_t bytes)
{
    void *to = nb_alloc(bytes + 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static bool copy_step(nb_step *to, const nb_step *from)
{
    *to = (nb_step){.line = from->line};
    to->buffer =
        copied(from->buffer, (size_t)from->nbuffers * sizeof *to->buffer);
    if (!to->buffer) return false;
    to->nbuffers = from->nbuffers;
    return !from->nest || (to->nest = nb_nest_copy(from->nest));
}

static bool copy_parts(nb_plan *to, const nb_plan *p)
{
    to->parts = nb_alloc_zero((size_t)(p->graph->n + 1) * sizeof *to->parts);
    if (!to->parts) return false;
    for (int k = 0; k < p->graph->n; k++) {
        if (!p->parts[k]) continue;
        size_t n = (size_t)p->graph->line[k].op->nout + 1;
        to->parts[k] = copied(p->parts[k], n * sizeof *p->parts[k]);
        if (!to->parts[k]) return false;
    }
    return true;
}

nb_plan *nb_plan_copy(const nb_plan *p)
{
    nb_plan *to = nb_alloc_zero(sizeof *to);
    if (!to) return NULL;
    size_t n = (size_t)p->graph->n;
    to->no_code = p->no_code;
    to->any_size = p->any_size;
    to->graph = nb_graph_copy_whole(p->graph);
    if (!to->graph) return nb_free(to), NULL;
    to->place = copied(p->place, n * sizeof *p->place);
    to->group = copied(p->group, n * sizeof *p->group);
    to->extra = copied(p->extra, (size_t)p->nextra * sizeof *p->extra);
    to->step = nb_alloc_zero((size_t)(p->nsteps + 1) * sizeof *to->step);
    bool ok = to->place && to->group && to->extra && to->step;
    to->nextra = ok ? p->nextra : 0;
    ok = ok && copy_parts(to, p);
    for (int s = 0; ok && s < p->nsteps; s++)
        ok = copy_step(&to->step[to->nsteps++], &p->step[s]);
    if (ok) return to;
    nb_plan_free(to);
    return NULL;
}

bool nb_plan_finish(nb_plan *p)
{
    return make_nodes(p) && nb_plan_memory(p);
}

static void print_block(const nb_plan *p, int k, nb_text *t)
{
    static const char *const home[] = {"none", "given", "arena", "result"};
    nb_text_add(t, "  block %d: %lld bytes, %s", k, (long long)p->bytes[k],
                home[p->home[k]]);
    if (p->home[k] == NB_HOME_ARENA)
        nb_text_add(t, " at %lld", (long long)p->at[k]);
    nb_text_add(t, "\n");
}

char *nb_plan_text(const nb_plan *p)
{
    nb_text t = {0};
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        nb_text_add(&t, "step %d: ", s);
        if (!step->nest) {
            nb_text_add(&t, "%s -> %d\n", p->graph->line[step->line].op->name,
                        step->line);
            continue;
        }
        for (int b = 0; b < step->nbuffers; b++)
            nb_text_add(&t, "b%d=%d ", b, step->buffer[b]);
        nb_nest_print(step->nest, &t);
    }
    for (int k = 0; p->home && k < p->graph->n + p->nextra; k++)
        if (p->home[k] > NB_HOME_GIVEN) print_block(p, k, &t);
    nb_text_add(&t, "arena: %lld bytes\n", (long long)p->arena);
    char *text = t.failed ? NULL : nb_copy_text(nb_text_get(&t));
    nb_text_free(&t);
    return text;
}
