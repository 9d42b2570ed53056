/* cheaper.c - what would have to be otherwise for a value to move less. */
#include "shard/graph/reason.h"

#include "shard/decide/place.h"
#include "shard/graph/scene.h"

static int64_t price(const nb_occasion *o, const nb_spec *from,
                     const nb_spec *into)
{
    const nb_reshard_plan *p =
        from && into
            ? nb_reshard_find(from, into, o->plan->size, o->plan->item, NULL)
            : NULL;
    return p ? p->bytes : INT64_MAX;
}

/* What makes the value, for the names of its dims. */
static void write_made(nb_text *t, const nb_occasion *o, const nb_scene *user,
                       int d)
{
    nb_scene v;
    const nb_dim *dim = &user->f.tensor[o->operand].dim[d];
    bool own = dim->n == 1 && nb_scene_named(user, dim->factor[0]);
    bool open =
        !own && !o->g->line[o->line].multi && nb_scene_open(&v, o, o->line);
    if (open && o->g->line[o->line].op != &nb_op_part)
        nb_scene_write_dim(t, &v, v.f.nin, d);
    else
        nb_scene_write_dim(t, user, o->operand, d);
    if (open) nb_scene_close(&v);
}

/* Whether the user could take dim d in blocks along these axes as well. */
static bool takes(const nb_occasion *o, const nb_scene *v, int d,
                  const nb_cut *axes)
{
    const nb_decision *of = o->lay->decision[o->user];
    const nb_dim *dim = &v->f.tensor[o->operand].dim[d];
    int64_t size = v->f.tensor[o->operand].size[d];
    if (dim->n != 1 || of->need[o->operand]->dim[d].axes.n ||
        size < nb_cut_count(axes) ||
        nb_work_kind(&v->w, dim->factor[0]) != NB_PASS ||
        v->f.reduced[dim->factor[0]])
        return false;
    for (int i = 0; i < v->call.nin; i++)
        for (int k = 0; k < v->f.tensor[i].rank; k++)
            for (int a = 0; a < axes->n; a++)
                if (nb_cut_has(&of->need[i]->dim[k].axes, axes->at[a]) ||
                    nb_cut_has(&of->need[i]->replicated, axes->at[a]))
                    return false;
    return true;
}

/* A sum that everybody gets whole: its blocks would do. */
static int64_t by_blocks(nb_text *t, const nb_occasion *o, const nb_scene *v,
                         const nb_cut *axes)
{
    int64_t least = o->plan->bytes, bytes;
    int best = -1;
    for (int d = 0; d < o->plan->into->rank; d++) {
        nb_spec s = nb_spec_draft(o->plan->into);
        if (!takes(o, v, d, axes)) continue;
        s.dim[d].axes = *axes;
        bytes = price(o, o->plan->from, nb_spec_intern(&s));
        if (bytes < least || (bytes == least && best >= 0)) {
            least = bytes;
            best = d;
        }
    }
    if (best < 0) return -1;
    nb_text_add(t, "reduce_scatter possible if ");
    write_made(t, o, v, best);
    nb_text_add(t, " is split on ");
    nb_scene_write_cut(t, o->lay->mesh, axes);
    return least;
}

/* What another operand forbids. */
static int64_t by_leave(nb_text *t, const nb_occasion *o, const nb_scene *v)
{
    const nb_spec *from = o->plan->from;
    int d = nb_scene_moved_dim(from, o->plan->into);
    const nb_dim *dim = d < 0 ? NULL : &v->f.tensor[o->operand].dim[d];
    for (int i = 0; dim && i < dim->n; i++) {
        const nb_cut *l = &from->dim[d].axes;
        int bar = nb_scene_barred_by(o, v, dim->factor[i], l);
        if (bar < 0) continue;
        nb_text_add(t, "nothing if operand %d may be split on ", bar);
        nb_scene_write_cut(t, from->mesh, l);
        return 0;
    }
    return -1;
}

static int64_t by_call(nb_text *t, const nb_occasion *o)
{
    nb_scene v;
    nb_cut axes =
        nb_scene_without(&o->plan->from->partial, &o->plan->into->partial);
    if (!o->lay->decision[o->user] || !nb_scene_open(&v, o, o->user)) return -1;
    int64_t bytes = axes.n ? by_blocks(t, o, &v, &axes) : by_leave(t, o, &v);
    nb_scene_close(&v);
    return bytes;
}

int64_t nb_cheaper_write(nb_text *t, const nb_occasion *o)
{
    const nb_line *l = &o->g->line[o->line];
    if (o->user < 0 || o->reach || !o->plan->bytes ||
        o->g->line[o->user].op->places)
        return -1;
    int64_t bytes = by_call(t, o);
    if (bytes >= 0 || l->kind == NB_LINE_CALL || o->plan->from->partial.n)
        return bytes;
    char *type = nb_spec_type_text(o->plan->into, l->dtype, o->plan->size);
    nb_text_add(t, "nothing if it comes as %s", type ? type : "?");
    nb_text_release(type);
    return 0;
}
