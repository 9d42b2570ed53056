/* executable.c - functions that were recorded and compiled, called. */
#include "nabla/compile.h"
#include "nabla/device.h"

#include "lower/passes.h"
#include "lower/rewrite.h"
#include "nabla/random.h"
#include "run/dynamic.h"
#include "run/explain.h"
#include "run/realize.h"
#include "run/spmd.h"
#include "transform/region.h"

#include <math.h>
#include <string.h>

struct nb_executable {
    atomic_int refs;
    nb_member one;       /* for the sizes that it was compiled for, */
    nb_dynamic *dynamic; /* or those for any; NULL: that one */
    char *fixed;         /* why not for any; or NULL */
    nb_spmd *spmd;       /* if it runs on a mesh, what runs: `one` is what a
                            device does */
    int nx, nkeys, ncaptured;
    nb_tensor **captured; /* kept, realised: inputs after the caller's */
};

/* The member for x, or the one used last; left after use. */
static const nb_member *enter(const nb_executable *e, nb_tensor *const *x)
{
    return !e->dynamic ? &e->one
           : x         ? nb_dynamic_enter(e->dynamic, e->nx, x)
                       : nb_dynamic_last(e->dynamic);
}

static void leave(const nb_executable *e, const nb_member *m)
{
    if (e->dynamic) nb_dynamic_leave(e->dynamic, m);
}

nb_executable *nb_executable_keep(nb_executable *e)
{
    if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void nb_executable_drop(nb_executable *e)
{
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    nb_member_free(&e->one);
    nb_spmd_drop(e->spmd);
    nb_dynamic_free(e->dynamic);
    nb_free(e->fixed);
    for (int i = 0; i < e->ncaptured; i++)
        nb_drop(e->captured[i]);
    nb_free(e->captured);
    nb_free(e);
}

static bool build_one(nb_executable *e, nb_recording *r)
{
    nb_graph *g = nb_graph_copy(r->graph);
    e->one.recorded = r->graph;
    r->graph = NULL;
    if (!g || !nb_graph_is_sharded(g))
        return g && (e->one.exec = nb_exec_lower(g));
    e->spmd = nb_spmd_new(g, true);
    if (!e->spmd || !nb_spmd_compile(e->spmd)) return false;
    e->one.exec = nb_exec_keep(nb_spmd_exec(e->spmd));
    return true;
}

static const char on_mesh[] = "its tensors lie on a mesh";

static bool build(nb_executable *e, nb_func *f, int nx, nb_tensor *const *x,
                  int ndims, const nb_dynamic_dim *dims)
{
    nb_recording r;
    e->nx = nx;
    if (!nb_recording_make(&r, f, nx, x, NULL)) return false;
    bool open = ndims && !nb_graph_is_sharded(r.graph);
    bool ok = !ndims || open || (e->fixed = nb_copy_text(on_mesh));
    ok = ok && (!open || nb_dynamic_new(f, nx, x, ndims, dims, &r, &e->dynamic,
                                        &e->fixed));
    ok = ok && (e->dynamic || build_one(e, &r));
    e->nkeys = r.nkeys;
    e->ncaptured = r.ncaptured;
    e->captured = r.captured;
    r.ncaptured = 0;
    r.captured = NULL;
    nb_recording_free(&r);
    return ok;
}

nb_status nb_executable_lower(nb_func *f, int nx, nb_tensor *const *x,
                              int ndims, const nb_dynamic_dim *dims,
                              nb_executable **out)
{
    nb_executable *e = nb_alloc_zero(sizeof *e);
    bool ok = e && nb_scope_open() == NB_OK;
    if (ok) {
        e->refs = 1;
        ok = build(e, f, nx, x, ndims, dims);
        nb_scope_close(0, NULL);
    }
    if (ok)
        *out = e;
    else
        nb_executable_drop(e);
    return NB_STATUS(ok);
}

nb_status nb_executable_load(nb_executable *e)
{
    return NB_STATUS(e && (e->dynamic || nb_exec_load(e->one.exec)));
}

nb_status nb_executable_new_dynamic(nb_func *f, int nx, nb_tensor *const *x,
                                    int ndims, const nb_dynamic_dim *dims,
                                    nb_executable **out)
{
    nb_executable *e;
    nb_status s = nb_executable_lower(f, nx, x, ndims, dims, &e);
    if (s == NB_OK && (s = nb_executable_load(e)) != NB_OK)
        nb_executable_drop(e);
    if (s == NB_OK) *out = e;
    return s;
}

nb_status nb_executable_new(nb_func *f, int nx, nb_tensor *const *x,
                            nb_executable **out)
{
    return nb_executable_new_dynamic(f, nx, x, 0, NULL, out);
}

const char *nb_executable_fixed(const nb_executable *e)
{
    return e && e->fixed ? e->fixed : "";
}

/* Whether x is what argument i was compiled for, open sizes aside. */
static bool fits(const nb_executable *e, int i, const nb_line *l,
                 const nb_tensor *x)
{
    bool same = l->dtype == x->dtype && l->shape.rank == x->rank &&
                l->shape.nlanes == x->nlanes && l->sharding == x->sharding &&
                l->device == x->device;
    for (int d = 0; same && d < x->rank; d++)
        same = nb_extent_same(l->shape.size[d], nb_tensor_size(x)[d]) ||
               (e->dynamic && nb_dynamic_is(e->dynamic, i, d));
    for (int d = 0; same && d < x->nlanes; d++)
        same =
            nb_extent_same(l->shape.lane[d].size, nb_tensor_lane(x)[d].size) &&
            l->shape.lane[d].thin == nb_tensor_lane(x)[d].thin;
    return same;
}

static bool misfit(const nb_line *l, const nb_tensor *x, int i)
{
    nb_shape s = nb_tensor_shape(x);
    if (l->sharding != x->sharding)
        return nb_fail(NB_EVALUE,
                       "executable: argument %d lies on devices otherwise than "
                       "what it was compiled for",
                       i);
    if (l->device != x->device)
        return nb_fail(NB_EVALUE,
                       "executable: argument %d is on %s, it was compiled for "
                       "%s",
                       i, nb_device_name(x->device), nb_device_name(l->device));
    return nb_fail(NB_EVALUE,
                   "executable: argument %d is %s%s, it was compiled for %s%s",
                   i, nb_dtype_brief((nb_dtype)x->dtype), nb_shape_text(&s),
                   nb_dtype_brief(l->dtype), nb_shape_text(&l->shape));
}

bool nb_executable_takes(const nb_executable *e, int i, const nb_tensor *x)
{
    if (!e || i < 0 || i >= e->nx || !x) return false;
    const nb_member *m = enter(e, NULL);
    bool yes = fits(e, i, &m->recorded->line[i], x);
    leave(e, m);
    return yes;
}

static bool check_types(const nb_executable *e, nb_tensor *const *x)
{
    const nb_member *m = enter(e, NULL);
    bool ok = true;
    for (int i = 0; ok && i < e->nx; i++) {
        const nb_line *l = &m->recorded->line[i];
        ok = x[i] && (fits(e, i, l, x[i]) || misfit(l, x[i], i));
    }
    leave(e, m);
    return ok;
}

static bool check(const nb_executable *e, int nx, nb_tensor *const *x, int room)
{
    int ny = nb_executable_results(e);
    if (nx != e->nx)
        return nb_fail(NB_EVALUE, "executable: takes %d arguments, not %d",
                       e->nx, nx);
    if (room < ny)
        return nb_fail(NB_EVALUE, "executable: has %d results, room for %d", ny,
                       room);
    return check_types(e, x);
}

/* All inputs of the program, realised. */
static bool gather(nb_executable *e, const nb_member *m, nb_tensor *const *x,
                   nb_tensor **in)
{
    int n = e->nx;
    if (n) memcpy(in, x, (size_t)n * sizeof *in);
    for (int i = 0; i < e->nkeys; i++)
        if (!(in[n++] = nb_to_device(nb_next_key(),
                                     m->recorded->line[e->nx + i].device)))
            return false;
    for (int i = 0; i < e->ncaptured; i++)
        in[n++] = e->captured[i];
    for (int i = 0; i < m->nfigures; i++)
        in[n++] = m->figure[i];
    return nb_realize_now(e->nx + e->nkeys, in);
}

/* Keys are drawn in a scope of their own, so that only results are lent. */
static bool run_in(nb_executable *e, const nb_member *m, nb_tensor *const *x,
                   nb_tensor **in, nb_tensor **y)
{
    if (e->nkeys && nb_scope_open() != NB_OK) return false;
    bool ok = gather(e, m, x, in) &&
              (e->spmd ? nb_spmd_run(e->spmd, in, y)
                       : nb_exec_run_as(m->exec, m->recorded, in, y));
    int ny = ok ? m->recorded->ny : 0;
    if (!e->nkeys) return ok;
    nb_scope_close(ny, y);
    for (int k = 0; ok && k < ny; k++)
        ok = y[k];
    return ok;
}

static bool run(nb_executable *e, const nb_member *m, nb_tensor *const *x,
                nb_tensor **y)
{
    nb_tensor *few[16], **in = few;
    int n = e->nx + e->nkeys + e->ncaptured + m->nfigures;
    if (n > 16 && !(in = nb_array(n))) return false;
    bool ok = run_in(e, m, x, in, y);
    if (in != few) nb_free(in);
    return ok;
}

nb_status nb_executable_run(nb_executable *e, int nx, nb_tensor *const *x,
                            int *ny, nb_tensor **y)
{
    bool ok = e && check(e, nx, x, *ny);
    const nb_member *m = ok ? enter(e, x) : NULL;
    if (!m) return NB_STATUS(false);
    *ny = m->recorded->ny;
    ok = run(e, m, x, y);
    leave(e, m);
    return NB_STATUS(ok);
}

nb_status nb_executable_donate(nb_executable *e, int n, const int *arguments)
{
    if (!e) return NB_STATUS(false);
    for (int i = 0; i < n; i++)
        if (arguments[i] < 0 || arguments[i] >= e->nx)
            return NB_STATUS(nb_fail(NB_EVALUE,
                                     "executable: argument %d is donated, "
                                     "there are %d",
                                     arguments[i], e->nx));
    if (e->spmd) return NB_STATUS(nb_spmd_donate(e->spmd, n, arguments));
    return NB_STATUS(e->dynamic ? nb_dynamic_donate(e->dynamic, n, arguments)
                                : nb_exec_donate(e->one.exec, n, arguments));
}

nb_tensor *nb_donated(const nb_tensor *x)
{
    if (!x) return NULL;
    nb_shape s = nb_tensor_shape(x);
    nb_tensor *y = nb_stand_in_on(x->device, (nb_dtype)x->dtype, &s);
    if (y) y->flags |= NB_DONATED;
    return y;
}

/* Texts are made when they are asked for, by running the passes again. */
static char *text_after(const nb_graph *recorded, const char *pass)
{
    nb_graph *g = nb_graph_copy(recorded);
    char *text = g && nb_lower_until(g, pass) ? nb_graph_text(g) : NULL;
    nb_graph_free(g);
    return text;
}

static char *text_of(const nb_member *m, int nx, const char *stage)
{
    if (!stage || !strcmp(stage, "graph")) return nb_graph_text(m->recorded);
    if (!strcmp(stage, "plan")) return nb_plan_text(nb_exec_plan(m->exec));
    if (!strcmp(stage, "memory")) return nb_exec_alive(m->exec, nx);
    const nb_pass *pass = nb_pass_find(stage);
    if (pass && pass->run) return text_after(m->recorded, stage);
    return nb_fail(NB_EVALUE,
                   "executable: no stage is called %s: graph, a pass over it, "
                   "plan or memory",
                   stage);
}

char *nb_executable_text(const nb_executable *e, const char *stage)
{
    if (!e) return NB_STATUS(false), NULL;
    const nb_member *m = enter(e, NULL);
    char *text = text_of(m, e->nx, stage);
    leave(e, m);
    return text;
}

nb_status nb_executable_explain(const nb_executable *e, nb_explanation **out)
{
    if (!e) return NB_STATUS(false);
    const nb_member *m = enter(e, NULL);
    *out = nb_graph_explain(m->recorded, true);
    leave(e, m);
    return NB_STATUS(*out);
}

nb_status nb_executable_budget(const nb_executable *e, int64_t max)
{
    nb_explanation *of = NULL;
    if (!e) return NB_STATUS(false);
    if (!max || !e->spmd) return NB_OK;
    bool ok = nb_executable_explain(e, &of) == NB_OK &&
              nb_explanation_within(of, "compile", max);
    nb_explanation_drop(of);
    return NB_STATUS(ok);
}

/* Members for other sizes have code where the first one had. */
const char *nb_executable_trouble(const nb_executable *e)
{
    return !e || e->dynamic ? "" : nb_exec_trouble(e->one.exec);
}

int nb_executable_results(const nb_executable *e)
{
    if (!e) return 0;
    const nb_member *m = enter(e, NULL);
    int n = m->recorded->ny;
    leave(e, m);
    return n;
}

int nb_executable_steps(const nb_executable *e, int *loops)
{
    *loops = 0;
    if (!e) return 0;
    const nb_member *m = enter(e, NULL);
    const nb_plan *p = nb_exec_plan(m->exec);
    int n = p->nsteps;
    for (int s = 0; s < n; s++)
        *loops += p->step[s].nest != NULL;
    leave(e, m);
    return n;
}

/* A loop or branch counts nothing for itself, but its program for one run. */
double nb_executable_flops(const nb_executable *e)
{
    if (!e) return NB_STATUS(false), NAN;
    const nb_member *m = enter(e, NULL);
    double flops = nb_graph_flops(nb_exec_plan(m->exec)->graph);
    leave(e, m);
    return flops;
}

/* Of those for any sizes nobody knows. */
bool nb_executable_is_small(const nb_executable *e)
{
    enum { FLOPS = 20000, BYTES = 1 << 16 };
    if (!e || e->dynamic) return false;
    const nb_plan *p = nb_exec_plan(e->one.exec);
    nb_memory_plan m = nb_executable_memory(e);
    if (m.peak > BYTES || *nb_exec_trouble(e->one.exec)) return false;
    for (int s = 0; s < p->nsteps; s++)
        if (!p->step[s].nest && p->graph->line[p->step[s].line].op->execute)
            return false;
    return nb_graph_flops(p->graph) < FLOPS;
}

nb_memory_plan nb_executable_memory(const nb_executable *e)
{
    if (!e) return (nb_memory_plan){0};
    const nb_member *at = enter(e, NULL);
    const nb_plan *p = nb_exec_plan(at->exec);
    nb_memory_plan m = {.temporaries = nb_exec_temporaries(at->exec)};
    for (int k = 0; k < p->graph->n; k++) {
        if (k < e->nx)
            m.arguments += p->bytes[k];
        else if (p->home[k] == NB_HOME_GIVEN)
            m.constants += p->bytes[k];
        if (p->home[k] == NB_HOME_RESULT) m.results += p->bytes[k];
    }
    m.donated = nb_exec_donated_bytes(at->exec);
    m.peak = m.arguments + m.results + m.temporaries + m.constants - m.donated;
    leave(e, at);
    return m;
}
