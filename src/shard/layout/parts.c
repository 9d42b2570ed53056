/* parts.c - specs from plain data, and back. */
#include "base/error.h"
#include "shard/layout/spec.h"

#include <string.h>

static bool add(const nb_mesh *m, nb_uses *u, nb_cut *l, int n,
                const char *const *axis)
{
    for (int i = 0; i < n; i++) {
        nb_axis a;
        if (nb_axis_parse(m, axis[i], &a) != NB_OK) return false;
        if (!nb_axis_use(m, u, a))
            return nb_fail(NB_EVALUE, "sharding: %s", u->why);
        if (!nb_cut_add(l, a))
            return nb_fail(NB_EVALUE, "sharding: more than %d axes in a list",
                           NB_MESH_AXES);
    }
    return true;
}

static bool add_dim(const nb_mesh *m, nb_uses *u, nb_dim_spec *d, int number,
                    const nb_dim_parts *from)
{
    if (!add(m, u, &d->axes, from->naxes, from->axis)) return false;
    if (from->priority < 0 || from->priority > UINT8_MAX)
        return nb_fail(NB_EVALUE,
                       "sharding: dim %d has priority %d, not 0 to "
                       "%d",
                       number, from->priority, UINT8_MAX);
    if (from->priority && !from->naxes && !from->open)
        return nb_fail(NB_EVALUE, "sharding: " NB_NO_PRIORITY, number);
    d->open = from->open;
    if (d->axes.n || d->open) d->priority = (uint8_t)from->priority;
    return true;
}

const nb_spec *nb_spec_new(const nb_mesh *m, const nb_spec_parts *parts)
{
    if (!m) return NB_STATUS(false), NULL;
    nb_spec s = {.mesh = m, .rank = parts->rank};
    nb_uses u = {0};
    const char *kind = parts->kind ? parts->kind : "sum";
    if (s.rank < 0 || s.rank > NB_MAX_DIMS)
        return nb_fail(NB_EVALUE, "sharding: %d dims", s.rank);
    if (!nb_kind_find(kind, strlen(kind), &s.kind))
        return nb_fail(NB_EVALUE, "sharding: no kind of reduction: '%s'", kind);
    for (int d = 0; d < s.rank; d++)
        if (!add_dim(m, &u, &s.dim[d], d, &parts->dim[d])) return NULL;
    if (!add(m, &u, &s.replicated, parts->nreplicated, parts->replicated) ||
        !add(m, &u, &s.partial, parts->npartial, parts->partial))
        return NULL;
    return nb_spec_intern(&s);
}

static const nb_cut *list_of(const nb_spec *s, int list)
{
    static const nb_cut none;
    if (!s) return &none;
    if (list == NB_SPEC_PARTIAL) return &s->partial;
    if (list == NB_SPEC_REPLICATED) return &s->replicated;
    return list >= 0 && list < s->rank ? &s->dim[list].axes : &none;
}

const nb_mesh *nb_spec_mesh(const nb_spec *s)
{
    return s ? s->mesh : NULL;
}

int nb_spec_rank(const nb_spec *s)
{
    return s ? s->rank : 0;
}

int nb_spec_axes(const nb_spec *s, int list)
{
    return list_of(s, list)->n;
}

nb_axis nb_spec_axis(const nb_spec *s, int list, int k)
{
    const nb_cut *l = list_of(s, list);
    return k >= 0 && k < l->n ? l->at[k] : (nb_axis){0, 1, 1};
}

int64_t nb_spec_shards(const nb_spec *s, int list)
{
    return nb_cut_count(list_of(s, list));
}

bool nb_spec_is_open(const nb_spec *s, int dim)
{
    return s && dim >= 0 && dim < s->rank && s->dim[dim].open;
}

int nb_spec_priority(const nb_spec *s, int dim)
{
    return s && dim >= 0 && dim < s->rank ? s->dim[dim].priority : 0;
}

const char *nb_spec_kind(const nb_spec *s)
{
    return s ? nb_kind_name(s->kind) : NULL;
}
