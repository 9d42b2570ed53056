/* spmd.c - running a program on all devices of a mesh at once. */
#include "run/spmd.h"

#include "comm/comm.h"
#include "nabla/device.h"
#include "ops/print.h"
#include "run/card.h"
#include "run/donate.h"
#include "run/exec.h"
#include "run/exec_parts.h"
#include "run/shards.h"
#include "run/shelf.h"
#include "run/spmd_local.h"
#include "shard/decide/resolve.h"

#include <pthread.h>
#include <string.h>

/* Devices that do the same. */
typedef struct family {
    nb_graph *graph;
    uint64_t hash;
    _Atomic(nb_exec *) exec; /* once it is compiled */
} family;

/* A result as a whole. */
typedef struct result {
    nb_dtype dtype;
    nb_shape shape;
    const nb_spec *spec; /* NULL: it lies on no mesh, but is on */
    int device;
} result;

struct nb_spmd {
    const nb_mesh *mesh;
    int nx, ny, nfamilies, ncaptured;
    nb_tensor **captured; /* kept */
    result *result;
    family *family;      /* room for one a device */
    int *family_of;      /* by position; -1: the device is elsewhere */
    nb_tensor ***number; /* by position: inputs of its own, kept */
    int nnumbers;
    bool *donated; /* by input; NULL: none is */
    pthread_mutex_t lock;
    atomic_bool ran;
};

void nb_spmd_drop(nb_spmd *s)
{
    if (!s) return;
    for (int k = 0; k < s->nfamilies; k++) {
        nb_graph_free(s->family[k].graph);
        nb_exec_drop(s->family[k].exec);
    }
    for (int i = 0; i < s->ncaptured; i++)
        nb_drop(s->captured[i]);
    nb_free(s->captured);
    nb_free(s->result);
    nb_free(s->family);
    nb_free(s->family_of);
    for (int p = 0; s->number && p < s->mesh->ndevices; p++) {
        for (int i = 0; s->number[p] && i < s->nnumbers; i++)
            nb_drop(s->number[p][i]);
        nb_free(s->number[p]);
    }
    nb_free(s->number);
    nb_free(s->donated);
    pthread_mutex_destroy(&s->lock);
    nb_free(s);
}

static bool capture(nb_spmd *s, const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        s->ncaptured += g->line[k].kind == NB_LINE_CAPTURED;
    s->captured = nb_alloc((size_t)(s->ncaptured + 1) * sizeof *s->captured);
    if (!s->captured) return s->ncaptured = 0, false;
    for (int k = 0, n = 0; k < g->n; k++)
        if (g->line[k].kind == NB_LINE_CAPTURED)
            s->captured[n++] = nb_keep(g->line[k].captured);
    return nb_realize_now(s->ncaptured, s->captured);
}

/* What was recorded on no device ends there, unless all lines are asked for. */
static void describe(nb_spmd *s, const nb_graph *g, nb_tensor *const *node,
                     const nb_layouts *lay, bool inside)
{
    for (int i = 0; i < g->ny; i++) {
        const nb_tensor *y = node[g->result[i]];
        bool laid = y->sharding || inside;
        s->result[i] = (result){.dtype = (nb_dtype)y->dtype,
                                .shape = nb_tensor_shape(y),
                                .device = y->device,
                                .spec = laid ? lay->spec[g->result[i]] : NULL};
    }
}

static bool add_numbers(nb_spmd *s, int position, const nb_local *of)
{
    nb_tensor **x = nb_alloc_zero((size_t)(of->nnumbers + 1) * sizeof *x);
    bool ok = x;
    int device = nb_mesh_place(s->mesh, position);
    s->nnumbers = of->nnumbers;
    s->number[position] = x;
    for (int i = 0; ok && i < of->nnumbers; i++)
        ok = (x[i] = nb_keep(nb_on_at_once(
                  nb_constant(NB_I64, 0, NULL, &of->number[i]), device)));
    return ok;
}

static bool add_device(nb_spmd *s, const nb_graph *g, nb_tensor *const *node,
                       const nb_layouts *lay, int position)
{
    nb_local made;
    if (!nb_spmd_local(g, node, lay, position, &made)) return false;
    bool ok = add_numbers(s, position, &made);
    nb_free(made.number);
    nb_graph *local = made.graph;
    if (!ok) return nb_graph_free(local), false;
    uint64_t hash;
    if (!nb_graph_known_by(local, &hash)) return nb_graph_free(local), false;
    int k = 0;
    while (k < s->nfamilies && s->family[k].hash != hash)
        k++;
    s->family_of[position] = k;
    if (k < s->nfamilies)
        nb_graph_free(local);
    else
        s->family[s->nfamilies++] = (family){.graph = local, .hash = hash};
    return true;
}

/* What is made, and lines that are its results instead of those of the graph;
 * NULL: none. */
typedef struct order {
    nb_spmd *s;
    int ny;
    int *line;
} order;

static bool make_devices(nb_spmd *s, const nb_graph *g, nb_tensor *const *node,
                         const nb_layouts *lay, bool inside)
{
    size_t n = (size_t)lay->mesh->ndevices;
    s->mesh = lay->mesh;
    s->family = nb_alloc_zero(n * sizeof *s->family);
    s->family_of = nb_alloc(n * sizeof *s->family_of);
    s->result = nb_alloc((size_t)(g->ny + 1) * sizeof *s->result);
    s->number = nb_alloc_zero(n * sizeof *s->number);
    if (!s->number || !s->family || !s->family_of || !s->result ||
        !capture(s, g))
        return false;
    describe(s, g, node, lay, inside);
    for (int p = 0; p < s->mesh->ndevices; p++) {
        s->family_of[p] = -1;
        if (nb_device_is_here(s->mesh, p) && !add_device(s, g, node, lay, p))
            return false;
    }
    return true;
}

static bool make(void *ctx, const nb_graph *g, nb_tensor *const *node,
                 const nb_layouts *lay)
{
    const order *o = ctx;
    nb_graph with = *g; /* looked at, no more */
    if (o->line) {
        with.ny = o->ny;
        with.result = o->line;
    }
    o->s->nx = g->nx;
    o->s->ny = with.ny;
    return make_devices(o->s, &with, node, lay, o->line);
}

static bool lay_out(const nb_graph *g, bool whole, nb_tensor **node,
                    nb_layouts_use *use, void *ctx)
{
    nb_layouts lay;
    if (!nb_graph_nodes(g, node) || !(whole ? nb_layouts_solve(g, node, &lay)
                                            : nb_layouts_of(g, node, &lay)))
        return false;
    bool ok = use(ctx, g, node, &lay);
    nb_layouts_free(&lay);
    return ok;
}

bool nb_spmd_layouts(const nb_graph *g, bool whole, nb_layouts_use *use,
                     void *ctx)
{
    nb_tensor **node = nb_alloc((size_t)(g->n + 1) * sizeof *node);
    bool ok = node && nb_scope_open() == NB_OK;
    if (ok) {
        ok = lay_out(g, whole, node, use, ctx);
        nb_scope_close(0, NULL);
    }
    nb_free(node);
    return ok;
}

static nb_spmd *spmd_new(const nb_graph *g, bool whole, order o)
{
    o.s = nb_alloc_zero(sizeof *o.s);
    if (!o.s) return NULL;
    pthread_mutex_init(&o.s->lock, NULL);
    if (nb_spmd_layouts(g, whole, make, &o)) return o.s;
    nb_spmd_drop(o.s);
    return NULL;
}

nb_spmd *nb_spmd_new(nb_graph *g, bool whole)
{
    nb_spmd *s = spmd_new(g, whole, (order){0});
    nb_graph_free(g);
    return s;
}

nb_spmd *nb_spmd_inside(const nb_graph *g, bool whole, int n, int *line)
{
    return spmd_new(g, whole, (order){.ny = n, .line = line});
}

/* The graphs stay: another thread may be running them. */
static bool compile(nb_spmd *s)
{
    bool ok = true;
    for (int k = 0; ok && k < s->nfamilies; k++) {
        family *f = &s->family[k];
        nb_graph *g = f->exec ? NULL : nb_graph_copy(f->graph);
        if (g) f->exec = nb_exec_lower(g);
        ok = f->exec;
    }
    return ok;
}

bool nb_spmd_compile(nb_spmd *s)
{
    pthread_mutex_lock(&s->lock);
    bool ok = compile(s);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

bool nb_spmd_donate(nb_spmd *s, int n, const int *inputs)
{
    bool ok = s->donated || (s->donated = nb_alloc_zero((size_t)s->nx + 1));
    for (int k = 0; ok && k < s->nfamilies; k++)
        ok = nb_exec_donate(s->family[k].exec, n, inputs);
    for (int i = 0; ok && i < n; i++)
        s->donated[inputs[i]] = true;
    return ok;
}

nb_exec *nb_spmd_exec(const nb_spmd *s)
{
    return s->family[0].exec;
}

int nb_spmd_programs(const nb_spmd *s)
{
    return s->nfamilies;
}

bool nb_graph_is_sharded(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].sharding ||
            (g->line[k].op && g->line[k].op->places && !g->line[k].op->asks))
            return true;
    return false;
}

/* Running */

typedef struct run {
    nb_spmd *s;
    nb_tensor *const *x; /* inputs and captured; lanes shown if on no device */
    nb_tensor **y;       /* by position and result, kept */
    bool *holds;         /* by input: its blocks are not to be taken */
} run;

static bool run_family(family *f, nb_tensor *const *x, int nx, nb_tensor **y,
                       int ny)
{
    nb_exec *e = f->exec;
    if (e) return nb_exec_run(e, x, y);
    return nb_graph_run(f->graph, nx, x, y) == NB_OK && nb_realize_now(ny, y);
}

/* Whether nobody but who calls has x: results may be written over it. */
static bool is_free(const run *r, int i)
{
    const nb_tensor *x = r->x[i];
    bool once = true;
    for (int k = 0; k < r->s->nx; k++)
        once = once && (k == i || r->x[k] != x);
    return once && x->sharding && x->refs == 1 && x->buffer->refs == 1 &&
           !nb_shards_of(x)->whole;
}

/* Of a tensor whose blocks hold results now nothing is left. */
static void mark_donated(const run *r)
{
    for (int i = 0; r->s->donated && i < r->s->nx; i++) {
        const nb_shards *of = r->holds[i] ? NULL : nb_shards_of(r->x[i]);
        bool taken = false;
        for (int p = 0; of && p < of->n; p++)
            taken = taken || (of->at[p] && of->at[p]->flags & NB_DONATED);
        if (taken) nb_donate_mark(r->x[i]);
    }
}

/* Holds what is not to be taken while the device runs. */
static void hold(const run *r, nb_tensor *const *x, bool holds)
{
    for (int i = 0; r->s->donated && i < r->s->nx; i++) {
        if (!r->holds[i]) continue;
        if (holds)
            nb_keep(x[i]);
        else
            nb_drop(x[i]);
    }
}

static bool run_blocks(run *r, int position, nb_tensor **x, nb_tensor **y)
{
    nb_spmd *s = r->s;
    int nx = s->nx + s->ncaptured;
    int device = nb_mesh_place(s->mesh, position);
    bool ok = true;
    for (int i = 0; i < nx; i++)
        x[i] =
            r->x[i]->sharding ? nb_shards_of(r->x[i])->at[position] : r->x[i];
    for (int i = 0; i < s->nnumbers; i++)
        x[nx++] = s->number[position][i];
    for (int i = 0; ok && i < nx; i++)
        if (x[i]->device != device) ok = (x[i] = nb_tensor_on(x[i], device));
    if (!ok) return false;
    family *f = &s->family[s->family_of[position]];
    hold(r, x, true);
    ok = run_family(f, x, nx, y, s->ny + 1);
    hold(r, x, false);
    if (!ok) return false;
    for (int i = 0; i < s->ny; i++) {
        nb_tensor *packed = nb_tensor_on(y[i], device);
        if (!packed) return false;
        r->y[position * s->ny + i] = nb_keep(packed);
    }
    return true;
}

static bool run_device(void *ctx, int position)
{
    run *r = ctx;
    const nb_spmd *s = r->s;
    int nx = s->nx + s->ncaptured + s->nnumbers;
    size_t n = (size_t)(nx + s->ny + 2);
    nb_tensor **x = nb_alloc(n * sizeof *x);
    bool ok = x && nb_scope_open() == NB_OK, quiet = nb_print_quiet;
    if (ok) {
        nb_print_quiet = quiet || position > 0; /* one speaks for all */
        ok = run_blocks(r, position, x, x + nx);
        nb_print_quiet = quiet;
        nb_scope_close(0, NULL);
    }
    nb_free(x);
    return ok;
}

/* Result i as a tensor: its blocks, or if it lies on no device the value that
 * each of them has. */
static nb_tensor *collect(const run *r, int i)
{
    const nb_spmd *s = r->s;
    const result *of = &s->result[i];
    nb_tensor **at = nb_alloc((size_t)s->mesh->ndevices * sizeof *at);
    nb_tensor *y = NULL, *first = NULL;
    nb_buffer *b = NULL;
    for (int p = 0; at && p < s->mesh->ndevices; p++) {
        at[p] = r->y[p * s->ny + i];
        if (!first) first = at[p];
    }
    if (at && of->spec && (b = nb_shards_new(s->mesh->ndevices, at)))
        y = nb_leaf_on(nb_mesh_home(s->mesh),
                       nb_leaf_new(of->dtype, &of->shape, b, b->data, NULL));
    else if (at && !of->spec && first &&
             (first = nb_tensor_on(first, of->device)))
        y = nb_leaf_on(of->device,
                       nb_leaf_new(of->dtype, &of->shape, first->buffer,
                                   first->data, NULL));
    if (y) y->sharding = of->spec;
    nb_buffer_drop(b);
    nb_free(at);
    return y;
}

static bool run_all(nb_spmd *s, nb_tensor *const *x, nb_tensor **y)
{
    size_t nx = (size_t)(s->nx + s->ncaptured);
    int n = s->mesh->ndevices * s->ny;
    nb_tensor **in = nb_alloc((nx + 1) * sizeof *in);
    run r = {.s = s, .x = in};
    r.y = nb_alloc_zero((size_t)(n + 1) * sizeof *r.y);
    r.holds = nb_alloc_zero(nx + 1);
    bool ok = in && r.y && r.holds;
    for (int i = 0; ok && i < (int)nx; i++) {
        nb_tensor *from = i < s->nx ? x[i] : s->captured[i - s->nx];
        in[i] = from->sharding ? from : nb_stored_leaf(from);
        ok = in[i];
    }
    for (int i = 0; ok && s->donated && i < s->nx; i++)
        r.holds[i] = !s->donated[i] || !is_free(&r, i);
    bool ran = ok;
    ok = ok && nb_devices_run(s->mesh, run_device, &r);
    if (ran) mark_donated(&r);
    for (int i = 0; ok && i < s->ny; i++)
        ok = (y[i] = collect(&r, i)) != NULL;
    for (int k = 0; r.y && k < n; k++)
        nb_drop(r.y[k]);
    nb_free(r.y);
    nb_free(r.holds);
    nb_free(in);
    return ok;
}

bool nb_spmd_run(nb_spmd *s, nb_tensor *const *x, nb_tensor **y)
{
    bool again = atomic_exchange(&s->ran, true);
    if ((again || nb_mesh_home(s->mesh)) && !nb_spmd_compile(s)) return false;
    return run_all(s, x, y);
}
