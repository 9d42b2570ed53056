/* operation_body.c - described ops that are made of other ops.
 *
 * Without rules such an op is what its body records, derivatives and all.  With
 * them the body runs on arguments without history; its results y0 and the
 * arguments x are the inputs of a node that is y0 by value and varies with x as
 * the rules say. */
#include "transform/operation.h"

#include "core/axes.h"
#include "core/lanes.h"
#include "ops/ops.h"
#include "ops/rows.h"

#include <string.h>

/* The node: y0, then x. */
typedef struct settled {
    nb_op op; /* first: nodes point to it */
    nb_operation *of;
} settled;

static const settled *settled_of(const nb_call *c)
{
    return (const settled *)c->op;
}

static void release(nb_op *op)
{
    nb_op_leave(&((settled *)op)->of->op);
    nb_free(op);
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    *out = nb_tensor_shape(c->in[k]);
    *dtype = (nb_dtype)c->in[k]->dtype;
    return true;
}

static bool execute(const nb_call *c, char *const *to)
{
    for (int k = 0; k < c->op->nout; k++) {
        nb_shape s = nb_tensor_shape(c->in[k]);
        if (!nb_copy_into(to[k], &s, c->in[k])) return false;
    }
    return true;
}

/* The parts of a node, as nodes. */
static bool parts_of(const nb_call *c, nb_tensor **y)
{
    for (int k = 0; k < c->op->nout; k++) {
        nb_shape s = nb_tensor_shape(c->in[k]);
        y[k] = nb_part_new(c->out, k, (nb_dtype)c->in[k]->dtype, &s);
        if (!y[k]) return false;
    }
    return true;
}

typedef bool rule(const nb_usage *u, nb_tensor *const *from, nb_tensor **to);

static bool by(rule *r, const nb_call *c, nb_tensor *const *from,
               nb_tensor **to)
{
    int ny = c->op->nout;
    nb_usage u;
    nb_tensor **y = nb_array(ny);
    bool ok = y && parts_of(c, y);
    if (ok) {
        nb_usage_of(&u, settled_of(c)->of, c, c->nin - ny, c->in + ny, ny, y);
        ok = r(&u, from, to);
    }
    nb_free(y);
    return ok;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    bool any = false;
    for (int i = c->op->nout; i < c->nin; i++)
        any = any || u[i];
    return !any || by(nb_operation_push, c, u + c->op->nout, uy);
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    return by(nb_operation_pull, c, ct, cx + c->op->nout);
}

static nb_op *settled_new(nb_operation *of, int nout)
{
    settled *s = nb_alloc_zero(sizeof *s);
    if (!s) return NULL;
    s->op = (nb_op){.name = of->op.name,
                    .kind = NB_RULE,
                    .nout = nout,
                    .result = result,
                    .execute = execute,
                    .anywhere = true,
                    .push = push,
                    .pull = pull,
                    .release = release,
                    .inlines = true,
                    .uses = 1,
                    .ready = true,
                    .params = of->op.params,
                    .parsed = of->op.parsed};
    s->of = of;
    nb_op_use(&of->op);
    return &s->op;
}

/* One call on its way: arguments as the body sees them. */
typedef struct passage {
    const nb_call *c;
    nb_operation *o;
    int nx, ny;
    nb_tensor **x;  /* what the op is applied to */
    nb_tensor **in; /* what the body is given */
    nb_tensor **y;
    nb_shape lanes; /* those that the body sees as axes */
} passage;

static bool brought_together(passage *p)
{
    nb_tensor **to = nb_array(p->nx);
    bool ok = to && nb_broadcast_arrays(p->nx, p->x, to) == NB_OK;
    if (ok) memcpy(p->x, to, (size_t)p->nx * sizeof *to);
    nb_free(to);
    return ok;
}

/* Whether hidden axes can stand in front of what every term begins with. */
static bool takes_axes(const nb_operation *o)
{
    const nb_sig *sig = o->op.static_sig;
    bool takes = o->spec.whole && sig;
    for (int t = 0; takes && t < sig->nin + sig->nout; t++)
        takes = sig->term[t].dots;
    return takes;
}

static void unite_lanes(passage *p)
{
    for (int i = 0; i < p->nx; i++) {
        nb_shape s = nb_tensor_shape(p->x[i]);
        nb_lanes_widen(&p->lanes, &s);
    }
}

/* Lanes in front, the outermost first; then ones, so that what stands behind
 * "..." is as long for every argument; then the rest. */
static nb_tensor *shown(const passage *p, int i, int ndots)
{
    const nb_sig *sig = p->o->op.static_sig;
    nb_tensor *x = p->in[i];
    int own = x->rank - sig->term[i].n;
    for (; x && own < ndots; own++)
        x = nb_unsqueeze(x, 0);
    for (int l = p->lanes.nlanes - 1; x && l >= 0; l--)
        x = nb_show(x, 0, p->lanes.lane[l]);
    return x;
}

static bool show_lanes(passage *p, const nb_axes *a)
{
    unite_lanes(p);
    for (int i = 0; p->lanes.nlanes && i < p->nx; i++)
        if (!(p->in[i] = shown(p, i, a->ndots))) return false;
    return true;
}

static bool hide_lanes(passage *p)
{
    for (int k = 0; k < p->ny; k++)
        for (int l = 0; l < p->lanes.nlanes; l++) {
            nb_tensor *y = p->y[k];
            nb_lane lane = p->lanes.lane[l];
            if (y->rank == 0 ||
                !nb_extent_same(nb_tensor_size(y)[0], lane.size))
                return nb_fail(NB_EVALUE,
                               "%s: result %d of the kernel lacks the hidden "
                               "axes in front that its inputs have",
                               p->o->op.name, k);
            if (!(p->y[k] = nb_hide(y, 0, lane.id))) return false;
        }
    return true;
}

/* Results against the signature, before the axes go. */
static bool check_results(const passage *p, const nb_axes *a)
{
    const nb_sig *sig = p->o->op.static_sig;
    if (p->ny != sig->nout)
        return nb_fail(NB_EVALUE, "%s: %d results, not %d (%s)", p->o->op.name,
                       p->ny, sig->nout, sig->text);
    for (int k = 0; k < p->ny; k++) {
        nb_shape be, is = nb_tensor_shape(p->y[k]);
        if (!nb_axes_result(a, sig, k, &be)) return false;
        bool same = is.rank == be.rank;
        for (int d = 0; same && d < be.rank; d++)
            same = nb_extent_is(be.size[d], -1) ||
                   nb_extent_same(be.size[d], is.size[d]);
        if (!same)
            return nb_fail(NB_EVALUE, "%s: result %d has shape %s, not %s (%s)",
                           p->o->op.name, k, nb_shape_text(&is),
                           nb_shape_text(&be), sig->text);
    }
    return true;
}

/* The body, in a scope of its own. */
static bool run(passage *p, int room)
{
    nb_usage u;
    nb_usage_of(&u, p->o, p->c, p->nx, p->in, 0, NULL);
    if (nb_scope_open() != NB_OK) return false;
    const nb_sig *was = nb_rows_within(p->o->op.static_sig);
    p->ny = room;
    bool ok = p->o->spec.body(&u.c, &p->ny, p->y) == NB_OK;
    nb_rows_within(was);
    for (int k = 0; ok && k < p->ny; k++)
        ok = p->y[k];
    nb_scope_close(ok ? p->ny : 0, p->y);
    if (!ok && !nb_failed())
        nb_fail(NB_ERUNTIME, "%s: the body gave a result that is NULL",
                p->o->op.name);
    return ok;
}

static bool run_by_signature(passage *p, int room)
{
    nb_axes a;
    if (!nb_axes_align(&a, &p->o->op, p->o->op.static_sig, p->nx, p->x))
        return false;
    bool ok = (!takes_axes(p->o) || show_lanes(p, &a)) && run(p, room) &&
              hide_lanes(p) && check_results(p, &a);
    nb_axes_free(&a);
    return ok;
}

static bool count_results(const passage *p)
{
    int want = p->o->spec.nout ? p->o->spec.nout : 1;
    return want < 0 || want == p->ny ||
           nb_fail(NB_EVALUE, "%s: the body has %d results, not %d",
                   p->o->op.name, p->ny, want);
}

static bool add_all(nb_results *r, int n, nb_tensor *const *y)
{
    for (int k = 0; k < n; k++)
        if (!nb_results_add(r, y[k])) return false;
    return true;
}

static bool settle(passage *p, nb_results *r)
{
    nb_tensor **in = nb_array(p->ny + p->nx);
    nb_op *op = in ? settled_new(p->o, p->ny) : NULL;
    for (int k = 0; op && k < p->ny; k++)
        in[k] = p->y[k];
    for (int i = 0; op && i < p->nx; i++)
        in[p->ny + i] = p->x[i];
    bool ok =
        op && nb_record_many(op, p->ny + p->nx, in, p->c->nattr, p->c->attr, r);
    nb_op_leave(op);
    nb_free(in);
    return ok;
}

bool nb_operation_compose(const nb_call *c, nb_results *r)
{
    passage p = {.c = c, .o = (nb_operation *)c->op, .nx = c->nin};
    int room = r->room - r->n;
    bool rules = nb_operation_varies(p.o);
    p.x = nb_array(p.nx);
    p.in = nb_array(p.nx);
    p.y = nb_array(room);
    bool ok = p.x && p.in && p.y;
    for (int i = 0; ok && i < p.nx; i++)
        p.x[i] = c->in[i];
    if (ok && p.o->spec.broadcast && p.nx) ok = brought_together(&p);
    for (int i = 0; ok && i < p.nx; i++)
        ok = (p.in[i] = rules ? nb_detach(p.x[i]) : p.x[i]);
    ok =
        ok && (p.o->op.static_sig ? run_by_signature(&p, room) : run(&p, room));
    ok = ok && count_results(&p);
    if (ok) ok = rules ? settle(&p, r) : add_all(r, p.ny, p.y);
    nb_free(p.x), nb_free(p.in), nb_free(p.y);
    return ok;
}
