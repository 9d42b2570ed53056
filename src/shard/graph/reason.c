/* reason.c - why a value moves.
 *
 * Decisions say what is wanted; why follows from the factors of the call, from
 * how its other operands lie, and from where a reduction was left pending. */
#include "shard/graph/reason.h"

#include "shard/decide/place.h"
#include "shard/graph/scene.h"

#include <string.h>

/* Reductions that are pending */

static const char *op_name(const nb_occasion *o, int line)
{
    const nb_line *l = &o->g->line[line];
    return l->op ? l->op->name : "input";
}

/* The operand through which the reduction over an axis came into a line, or -1:
 * it arose there. */
static int came_by(const nb_occasion *o, int line, nb_axis a)
{
    const nb_line *l = &o->g->line[line];
    const nb_decision *d = o->lay->decision[line];
    if (l->kind != NB_LINE_CALL) return -1;
    if (l->op == &nb_op_part) return 0;
    if (l->op->places) {
        const nb_spec *s = o->lay->spec[l->in[0]];
        return nb_cut_has(&s->partial, a) ? 0 : -1;
    }
    for (int i = 0; d && i < l->nin; i++)
        if (nb_cut_has(&d->need[i]->partial, a)) return i;
    return -1;
}

static int origin(const nb_occasion *o, int line, nb_axis a)
{
    int by = came_by(o, line, a);
    while (by >= 0) {
        line = o->g->line[line].in[by];
        by = came_by(o, line, a);
    }
    return line;
}

/* Where a call reduces along an axis: operand and dim. */
static bool reduced_dim(const nb_scene *v, const nb_decision *d, nb_axis a,
                        int *tensor, int *dim)
{
    for (int t = 0; d && t < v->f.nin; t++)
        for (int k = 0; k < v->f.tensor[t].rank; k++)
            if (nb_cut_has(&d->need[t]->dim[k].axes, a)) {
                *tensor = t;
                *dim = k;
                return true;
            }
    return false;
}

/* "a split on dp and b split on tp": those of these axes that arose in a line;
 * returns how many dims. */
static int write_split(nb_text *t, const nb_occasion *o, int at,
                       const nb_cut *axes)
{
    nb_scene v;
    const nb_decision *d = o->lay->decision[at];
    nb_cut told = {0};
    int n = 0, tensor, dim;
    if (!nb_scene_open(&v, o, at)) return 0;
    for (int i = 0; i < axes->n; i++) {
        if (nb_cut_has(&told, axes->at[i]) ||
            origin(o, o->line, axes->at[i]) != at ||
            !reduced_dim(&v, d, axes->at[i], &tensor, &dim))
            continue;
        nb_text_add(t, n++ ? " and " : "");
        nb_scene_write_dim(t, &v, tensor, dim);
        nb_text_add(t, " split on ");
        const nb_cut *l = &d->need[tensor]->dim[dim].axes;
        nb_scene_write_cut(t, d->mesh, l);
        for (int k = 0; k < l->n; k++)
            nb_cut_add(&told, l->at[k]);
    }
    nb_scene_close(&v);
    return n;
}

/* "k split on tp leaves a sum pending over tp" */
static void write_pending(nb_text *t, const nb_occasion *o, const nb_cut *axes)
{
    const char *kind = nb_kind_name(o->plan->from->kind);
    int at = origin(o, o->line, axes->at[0]);
    const nb_line *l = &o->g->line[at];
    int n = write_split(t, o, at, axes);
    if (n && at != o->line) nb_text_add(t, " in %s", op_name(o, at));
    if (n)
        nb_text_add(t, n > 1 ? " leave a %s" : " leaves a %s", kind);
    else if (l->op && l->op->places)
        nb_text_add(t, "%s was asked to leave a %s", l->op->name, kind);
    else
        nb_text_add(t, "it comes with a %s", kind);
    nb_text_add(t, " pending over ");
    nb_scene_write_cut(t, o->plan->from->mesh, axes);
}

/* Dims */

/* A program that runs on whole values, for a reason. */
static bool by_program(nb_text *t, const nb_occasion *o)
{
    const nb_decision *d = o->lay->decision[o->user];
    if (!d || d->opens || !*d->reason || !o->g->line[o->user].multi)
        return false;
    nb_text_add(t, "%s needs all of it: %s", op_name(o, o->user), d->reason);
    return true;
}

/* What was decided between factors, if that is about one of these axes. */
static bool by_decision(nb_text *t, const nb_occasion *o, const nb_cut *lost)
{
    const nb_decision *d = o->lay->decision[o->user];
    for (int i = 0; d && *d->reason && i < lost->n; i++) {
        const char *name = o->lay->mesh->axis[lost->at[i].axis];
        size_t n = strlen(name);
        if (!strncmp(d->reason, name, n) && d->reason[n] == ' ')
            return nb_text_add(t, "%s", d->reason), true;
    }
    return false;
}

static int dim_with(const nb_factored *x, int factor)
{
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == factor) return d;
    return -1;
}

/* Another operand has the factor split in another way. */
static bool by_other(nb_text *t, const nb_occasion *o, const nb_scene *v,
                     int dim, int factor)
{
    const nb_spec *own = o->plan->from;
    for (int i = 0; i < v->call.nin; i++) {
        const nb_spec *s = nb_scene_lies(o, v, i);
        int d = dim_with(&v->f.tensor[i], factor);
        if (i == o->operand || !s || d < 0 || !s->dim[d].axes.n ||
            nb_cut_equal(&s->dim[d].axes, &own->dim[dim].axes))
            continue;
        nb_text_add(t, "operands of %s disagree: ", v->call.op->name);
        nb_scene_write_dim(t, v, o->operand, dim);
        nb_text_add(t, " is split on ");
        nb_scene_write_cut(t, own->mesh, &own->dim[dim].axes);
        nb_text_add(t, " here, on ");
        nb_scene_write_cut(t, s->mesh, &s->dim[d].axes);
        nb_text_add(t, " in operand %d", i);
        return true;
    }
    return false;
}

/* Which dim of which operand uses an axis in this call. */
static bool by_use(nb_text *t, const nb_occasion *o, const nb_scene *v,
                   const nb_cut *lost)
{
    const nb_decision *d = o->lay->decision[o->user];
    for (int i = 0; i < v->call.nin; i++)
        for (int k = 0; k < v->f.tensor[i].rank; k++) {
            const nb_cut *l = &d->need[i]->dim[k].axes;
            if (!l->n || !nb_cut_has(lost, l->at[0])) continue;
            nb_text_add(t, "%s splits ", v->call.op->name);
            nb_scene_write_dim(t, v, i, k);
            nb_text_add(t, " on ");
            nb_scene_write_cut(t, d->mesh, l);
            nb_text_add(t, " in operand %d", i);
            return true;
        }
    return false;
}

static bool by_factor(nb_text *t, const nb_occasion *o, const nb_scene *v,
                      int dim, const nb_cut *lost)
{
    const nb_dim *of = &v->f.tensor[o->operand].dim[dim];
    for (int i = 0; i < of->n; i++) {
        int k = of->factor[i], bar = nb_scene_barred_by(o, v, k, lost);
        if (bar >= 0) {
            nb_text_add(t, "operand %d of %s may not be split over ", bar,
                        v->call.op->name);
            nb_scene_write_cut(t, o->lay->mesh, lost);
            return true;
        }
        nb_factor_kind kind = nb_work_kind(&v->w, k);
        if (kind == NB_REPLICATE || kind == NB_BLOCKED) {
            nb_text_add(t, "%s needs all of ", v->call.op->name);
            nb_scene_write_dim(t, v, o->operand, dim);
            return true;
        }
        if (by_other(t, o, v, dim, k)) return true;
    }
    return by_use(t, o, v, lost);
}

/* No factor runs along it, or several do and blocks are no blocks of them. */
static bool by_shape(nb_text *t, const nb_occasion *o, const nb_scene *v,
                     int dim)
{
    const nb_dim *of = &v->f.tensor[o->operand].dim[dim];
    const nb_cut *l = &o->plan->from->dim[dim].axes;
    if (of->n == 0) {
        nb_text_add(t, "%s needs all of ", v->call.op->name);
        nb_scene_write_dim(t, v, o->operand, dim);
        return true;
    }
    nb_text_add(t, "blocks of ");
    nb_scene_write_dim(t, v, o->operand, dim);
    nb_text_add(t, " split on ");
    nb_scene_write_cut(t, o->plan->from->mesh, l);
    nb_text_add(t, " are no blocks of the result of %s", v->call.op->name);
    return true;
}

static bool write_dims(nb_text *t, const nb_occasion *o)
{
    nb_scene v;
    const nb_spec *from = o->plan->from, *into = o->plan->into;
    int d = nb_scene_moved_dim(from, into);
    if (d < 0) return false;
    nb_cut lost = from->dim[d].axes;
    nb_cut kept = nb_cut_common(&from->dim[d].axes, &into->dim[d].axes);
    if (kept.n < lost.n) {
        memmove(lost.at, lost.at + kept.n,
                (size_t)(lost.n - kept.n) * sizeof lost.at[0]);
        lost.n = (uint8_t)(lost.n - kept.n);
    }
    if (by_program(t, o) || by_decision(t, o, &lost)) return true;
    if (!nb_scene_open(&v, o, o->user)) return false;
    bool said = by_factor(t, o, &v, d, &lost) || by_shape(t, o, &v, d);
    nb_scene_close(&v);
    return said;
}

/* All of it */

static void write_use(nb_text *t, const nb_occasion *o)
{
    if (o->reading)
        nb_text_add(t, "reading the result adds it up");
    else if (o->user < 0 && o->within)
        nb_text_add(t, "%s hands it on whole", o->within->name);
    else if (o->user < 0)
        nb_text_add(t, "the result was said to have it whole");
    else if (o->g->line[o->user].op->places)
        nb_text_add(t, "asked for by %s", op_name(o, o->user));
    else
        nb_text_add(t, "%s needs the whole value", op_name(o, o->user));
}

static bool write_reach(nb_text *t, const nb_occasion *o)
{
    nb_scene v;
    int dim = -1;
    if (!nb_scene_open(&v, o, o->user)) return false;
    const nb_reach *parts = o->plan->step[0].reach;
    for (int d = 0; parts && d < o->plan->from->rank; d++)
        if (parts->range[d]) dim = d;
    if (!parts) dim = nb_scene_moved_dim(o->plan->from, o->plan->into);
    nb_text_add(t, "blocks of %s %s", op_name(o, o->user),
                parts ? "reach into others" : "tell what they come to");
    if (dim >= 0) {
        nb_text_add(t, " along ");
        nb_scene_write_dim(t, &v, o->operand, dim);
    }
    nb_scene_close(&v);
    return true;
}

bool nb_reason_write(nb_text *t, const nb_occasion *o)
{
    const nb_spec *from = o->plan->from, *into = o->plan->into;
    nb_cut axes = nb_scene_without(&from->partial, &into->partial);
    bool asked = o->user >= 0 && o->g->line[o->user].op->places;
    if (o->reach) return write_reach(t, o);
    if (axes.n) {
        write_pending(t, o, &axes);
        nb_text_add(t, "; ");
        write_use(t, o);
        return true;
    }
    if (asked) return write_use(t, o), true;
    if (o->user < 0 && o->within)
        nb_text_add(t, "%s hands it on laid out as before", o->within->name);
    else if (o->user < 0)
        nb_text_add(t, "the result was said to lie so");
    if (o->user < 0) return true;
    return write_dims(t, o);
}

int nb_reason_line(const nb_occasion *o)
{
    nb_cut axes =
        nb_scene_without(&o->plan->from->partial, &o->plan->into->partial);
    return !o->reach && axes.n ? origin(o, o->line, axes.at[0]) : o->user;
}
