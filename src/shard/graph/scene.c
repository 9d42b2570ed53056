/* scene.c - see scene.h. */
#include "shard/graph/scene.h"

/* The results of a call that has several have no nodes here: what its operands
 * share does not depend on them. */
bool nb_scene_open(nb_scene *v, const nb_occasion *o, int line)
{
    const nb_line *l = &o->g->line[line];
    v->call = nb_call_of(o->node[line]);
    int nout = l->multi ? 0 : 1;
    if (l->kind != NB_LINE_CALL || (!nout && v->call.op->shape) ||
        !nb_factors_of(&v->f, &v->call, nout, &v->call.out))
        return false;
    v->w = (nb_work){.call = &v->call, .f = &v->f, .mesh = o->lay->mesh};
    return true;
}

void nb_scene_close(nb_scene *v)
{
    nb_factors_free(&v->f);
}

void nb_scene_write_cut(nb_text *t, const nb_mesh *m, const nb_cut *l)
{
    char name[64];
    for (int i = 0; i < l->n; i++) {
        nb_axis_text(m, l->at[i], name, sizeof name);
        nb_text_add(t, "%s%s", i ? "," : "", name);
    }
}

const char *nb_scene_named(const nb_scene *v, int factor)
{
    const nb_sig *sig = v->call.sig;
    int first = v->f.n - (sig ? sig->nfactors : 0);
    if (!sig || v->call.op->shape || factor < first) return NULL;
    const char *name = sig->factor[factor - first].name;
    return name && *name && *name != '?' ? name : NULL;
}

void nb_scene_write_dim(nb_text *t, const nb_scene *v, int tensor, int d)
{
    const nb_dim *dim = &v->f.tensor[tensor].dim[d];
    const nb_tensor *x =
        tensor < v->call.nin ? v->call.in[tensor] : v->call.out;
    bool all = dim->n > 0;
    for (int i = 0; i < dim->n; i++)
        all = all && nb_scene_named(v, dim->factor[i]);
    if (!all && d < x->nlanes)
        nb_text_add(t, "a hidden dim");
    else if (!all)
        nb_text_add(t, "dim %d", d - x->nlanes);
    if (!all) return;
    if (dim->n > 1) nb_text_add(t, "(");
    for (int i = 0; i < dim->n; i++)
        nb_text_add(t, "%s%s", i ? " " : "", nb_scene_named(v, dim->factor[i]));
    if (dim->n > 1) nb_text_add(t, ")");
}

nb_cut nb_scene_without(const nb_cut *a, const nb_cut *b)
{
    nb_cut l = {0};
    for (int i = 0; i < a->n; i++)
        if (!nb_cut_has(b, a->at[i])) l.at[l.n++] = a->at[i];
    return l;
}

int nb_scene_moved_dim(const nb_spec *from, const nb_spec *into)
{
    for (int d = 0; d < from->rank; d++)
        if (!nb_cut_prefix(&from->dim[d].axes, &into->dim[d].axes)) return d;
    return -1;
}

const nb_spec *nb_scene_lies(const nb_occasion *o, const nb_scene *v, int i)
{
    return i < v->call.nin ? o->lay->spec[o->g->line[o->user].in[i]] : NULL;
}

int nb_scene_barred_by(const nb_occasion *o, const nb_scene *v, int factor,
                       const nb_cut *lost)
{
    for (int i = 0; i < v->call.nin; i++) {
        const nb_spec *s = nb_scene_lies(o, v, i);
        for (int k = 0; s && k < lost->n; k++)
            if (nb_cut_has(&s->replicated, lost->at[k]) &&
                nb_factored_has(&v->f.tensor[i], factor))
                return i;
    }
    return -1;
}
