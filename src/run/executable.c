/* executable.c - a function recorded on stand-ins, and its executable.
 *
 * The inputs of the program are the arguments of the function, then the keys
 * that it draws from the generator of the process, which are drawn anew on each
 * run, then what it closes over. */
#include "nabla/compile.h"

#include "lower/passes.h"
#include "lower/rewrite.h"
#include "nabla/random.h"
#include "ops/random.h"
#include "run/exec.h"
#include "run/realize.h"
#include "transform/region.h"

#include <string.h>

struct nb_executable {
    atomic_int refs;
    nb_exec *exec;
    nb_graph *recorded;
    int nx, nkeys, ncaptured;
    nb_tensor **captured; /* kept, realised: inputs after the caller's */
};

/* What this thread is recording for an executable, the innermost. */
typedef struct recording {
    struct recording *around;
    nb_list *in;
    int nkeys;
} recording;
static _Thread_local recording *innermost;
static _Thread_local bool asked;

nb_executable *nb_executable_keep(nb_executable *e)
{
    if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void nb_executable_drop(nb_executable *e)
{
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    nb_exec_drop(e->exec);
    nb_graph_free(e->recorded);
    for (int i = 0; i < e->ncaptured; i++)
        nb_drop(e->captured[i]);
    nb_free(e->captured);
    nb_free(e);
}

static bool stand_ins(int nx, nb_tensor *const *x, nb_list *to)
{
    for (int i = 0; i < nx; i++) {
        if (!x[i]) return false;
        nb_shape s = nb_tensor_shape(x[i]);
        if (!nb_list_add(to, nb_stand_in((nb_dtype)x[i]->dtype, &s)))
            return false;
    }
    return true;
}

/* A key as one more input; the scope in which it is drawn may end before the
 * recording does, so the list has a reference of its own. */
static nb_tensor *key_input(void)
{
    nb_shape pair = {.rank = 1, .size = {nb_extent_of(2)}};
    nb_tensor *key = nb_stand_in(NB_U32, &pair);
    if (!key || !nb_list_add(innermost->in, key)) return NULL;
    innermost->nkeys++;
    return nb_keep(key);
}

static bool record(nb_executable *e, nb_region *r, nb_func *f, nb_list *in)
{
    nb_tensor *(*source)(void) = nb_key_source;
    recording now = {.around = innermost, .in = in};
    innermost = &now;
    nb_key_source = key_input;
    nb_asked_take();
    bool ok = nb_region_record(r, f, in);
    asked = !ok && nb_asked_take();
    nb_key_source = source;
    innermost = now.around;
    e->nkeys = now.nkeys;
    return ok;
}

static bool build(nb_executable *e, nb_func *f, int nx, nb_tensor *const *x)
{
    nb_region r = {0};
    nb_list in = {0};
    asked = false;
    bool ok = stand_ins(nx, x, &in) && record(e, &r, f, &in);
    if (ok) {
        nb_graph *g = r.graph;
        e->nx = nx;
        e->ncaptured = r.ncaptured;
        e->captured = r.captured;
        r = (nb_region){0};
        ok = nb_realize_now(e->ncaptured, e->captured) &&
             (e->recorded = nb_graph_copy(g));
        if (ok)
            ok = (e->exec = nb_exec_new(g));
        else
            nb_graph_free(g);
    }
    nb_region_free(&r);
    for (int i = in.n - e->nkeys; i < in.n; i++)
        nb_drop(in.at[i]);
    nb_list_free(&in);
    return ok;
}

nb_status nb_executable_new(nb_func *f, int nx, nb_tensor *const *x,
                            nb_executable **out)
{
    nb_executable *e = nb_alloc_zero(sizeof *e);
    bool ok = e && nb_scope_open() == NB_OK;
    if (ok) {
        e->refs = 1;
        ok = build(e, f, nx, x);
        nb_scope_close(0, NULL);
    }
    if (ok)
        *out = e;
    else
        nb_executable_drop(e);
    return NB_STATUS(ok);
}

bool nb_value_asked(void)
{
    return asked;
}

/* Whether x is computed from a stand-in, whose value does not exist. */
static bool is_recorded(nb_tensor *x)
{
    nb_tensor **stack = NULL;
    int depth = 0, room = 0;
    bool found = false;
    if (nb_tensor_done(x)) return false;
    nb_graph_lock();
    uint32_t mark = nb_graph_mark();
    while (x && !found) {
        x->mark = mark;
        found = !x->op && !(x->flags & NB_DONATED);
        for (int i = 0; i < x->nin && !found; i++) {
            nb_tensor *in = nb_tensor_in(x)[i];
            if (nb_tensor_done(in) || in->mark == mark) continue;
            found = !nb_grow(&stack, &room, depth + 1, sizeof *stack);
            if (!found) stack[depth++] = in;
        }
        x = depth ? stack[--depth] : NULL;
    }
    nb_graph_unlock();
    nb_free(stack);
    return found;
}

bool nb_is_watched(int nx, nb_tensor *const *x)
{
    int lanes;
    nb_lanes_open(&lanes);
    if (innermost || lanes || nb_traces_open()) return true;
    for (int i = 0; i < nx; i++)
        if (x[i]->nlanes || is_recorded(x[i])) return true;
    return false;
}

static bool fits(const nb_line *l, const nb_tensor *x)
{
    bool same = l->dtype == x->dtype && l->shape.rank == x->rank &&
                l->shape.nlanes == x->nlanes;
    for (int d = 0; same && d < x->rank; d++)
        same = nb_extent_same(l->shape.size[d], nb_tensor_size(x)[d]);
    for (int d = 0; same && d < x->nlanes; d++)
        same =
            nb_extent_same(l->shape.lane[d].size, nb_tensor_lane(x)[d].size) &&
            l->shape.lane[d].thin == nb_tensor_lane(x)[d].thin;
    return same;
}

static bool misfit(const nb_line *l, const nb_tensor *x, int i)
{
    nb_shape s = nb_tensor_shape(x);
    return nb_fail(NB_EVALUE,
                   "executable: argument %d is %s%s, it was compiled for %s%s",
                   i, nb_dtype_brief((nb_dtype)x->dtype), nb_shape_text(&s),
                   nb_dtype_brief(l->dtype), nb_shape_text(&l->shape));
}

bool nb_executable_takes(const nb_executable *e, int i, const nb_tensor *x)
{
    return i >= 0 && i < e->nx && x &&
           fits(&nb_exec_plan(e->exec)->graph->line[i], x);
}

static bool check(const nb_executable *e, int nx, nb_tensor *const *x, int room)
{
    const nb_graph *g = nb_exec_plan(e->exec)->graph;
    if (nx != e->nx)
        return nb_fail(NB_EVALUE, "executable: takes %d arguments, not %d",
                       e->nx, nx);
    if (room < g->ny)
        return nb_fail(NB_EVALUE, "executable: has %d results, room for %d",
                       g->ny, room);
    for (int i = 0; i < nx; i++) {
        if (!x[i]) return false;
        if (!fits(&g->line[i], x[i])) return misfit(&g->line[i], x[i], i);
    }
    return true;
}

/* All inputs of the program, realised. */
static bool gather(nb_executable *e, nb_tensor *const *x, nb_tensor **in)
{
    int n = e->nx;
    if (n) memcpy(in, x, (size_t)n * sizeof *in);
    for (int i = 0; i < e->nkeys; i++)
        if (!(in[n++] = nb_next_key())) return false;
    for (int i = 0; i < e->ncaptured; i++)
        in[n++] = e->captured[i];
    return nb_realize_now(e->nx + e->nkeys, in);
}

nb_status nb_executable_run(nb_executable *e, int nx, nb_tensor *const *x,
                            int *ny, nb_tensor **y)
{
    nb_tensor *few[16], **in = few;
    int n = e->nx + e->nkeys + e->ncaptured;
    bool ok = check(e, nx, x, *ny);
    if (ok && n > 16) ok = (in = nb_array(n));
    if (ok && gather(e, x, in)) {
        *ny = nb_exec_plan(e->exec)->graph->ny;
        ok = nb_exec_run_as(e->exec, e->recorded, in, y);
    } else {
        ok = false;
    }
    if (in != few) nb_free(in);
    return NB_STATUS(ok);
}

nb_status nb_executable_donate(nb_executable *e, int n, const int *arguments)
{
    for (int i = 0; i < n; i++)
        if (arguments[i] < 0 || arguments[i] >= e->nx)
            return NB_STATUS(nb_fail(NB_EVALUE,
                                     "executable: argument %d is donated, "
                                     "there are %d",
                                     arguments[i], e->nx));
    return NB_STATUS(nb_exec_donate(e->exec, n, arguments));
}

nb_tensor *nb_donated(const nb_tensor *x)
{
    if (!x) return NULL;
    nb_shape s = nb_tensor_shape(x);
    nb_tensor *y = nb_stand_in((nb_dtype)x->dtype, &s);
    if (y) y->flags |= NB_DONATED;
    return y;
}

/* Texts are made when they are asked for, by running the passes again. */
static char *text_after(const nb_executable *e, const char *pass)
{
    nb_graph *g = nb_graph_copy(e->recorded);
    char *text = g && nb_lower_until(g, pass) ? nb_graph_text(g) : NULL;
    nb_graph_free(g);
    return text;
}

char *nb_executable_text(const nb_executable *e, const char *stage)
{
    const nb_plan *p = nb_exec_plan(e->exec);
    if (!stage || !strcmp(stage, "graph")) return nb_graph_text(e->recorded);
    if (!strcmp(stage, "plan")) return nb_plan_text(p);
    const nb_pass *pass = nb_pass_find(stage);
    if (pass && pass->run) return text_after(e, stage);
    return nb_fail(NB_EVALUE,
                   "executable: no stage is called %s: graph, a pass over it, "
                   "or plan",
                   stage);
}

const char *nb_executable_trouble(const nb_executable *e)
{
    return nb_exec_trouble(e->exec);
}

int nb_executable_results(const nb_executable *e)
{
    return nb_exec_plan(e->exec)->graph->ny;
}

int nb_executable_steps(const nb_executable *e, int *loops)
{
    const nb_plan *p = nb_exec_plan(e->exec);
    for (int s = *loops = 0; s < p->nsteps; s++)
        *loops += p->step[s].nest != NULL;
    return p->nsteps;
}

/* A loop or branch counts nothing for itself, but its program for one run. */
double nb_executable_flops(const nb_executable *e)
{
    const nb_graph *g = nb_exec_plan(e->exec)->graph;
    return nb_graph_flops(g);
}

bool nb_executable_is_small(const nb_executable *e)
{
    enum { FLOPS = 20000, BYTES = 1 << 16 };
    const nb_plan *p = nb_exec_plan(e->exec);
    nb_memory_plan m = nb_executable_memory(e);
    if (m.peak > BYTES || *nb_exec_trouble(e->exec)) return false;
    for (int s = 0; s < p->nsteps; s++)
        if (!p->step[s].nest && p->graph->line[p->step[s].line].op->execute)
            return false;
    return nb_graph_flops(p->graph) < FLOPS;
}

nb_memory_plan nb_executable_memory(const nb_executable *e)
{
    const nb_plan *p = nb_exec_plan(e->exec);
    nb_memory_plan m = {.temporaries = p->arena};
    for (int k = 0; k < p->graph->n; k++) {
        if (k < e->nx)
            m.arguments += p->bytes[k];
        else if (p->home[k] == NB_HOME_GIVEN)
            m.constants += p->bytes[k];
        if (p->home[k] == NB_HOME_RESULT) m.results += p->bytes[k];
    }
    m.donated = nb_exec_donated_bytes(e->exec);
    m.peak = m.arguments + m.results + m.temporaries + m.constants - m.donated;
    return m;
}
