/* listing.c - layouts as they stand in listings of programs. */
#include "core/graph.h"
#include "core/tensor.h"
#include "shard/layout/spec.h"

static void write_dim(nb_text *t, const void *sharding, int dim)
{
    nb_spec_write_dim(t, sharding, dim);
}

static void write_pending(nb_text *t, const void *sharding)
{
    nb_spec_write_partial(t, sharding);
}

/* mesh=@pod, spec=<dp, *> */
static void write_target(nb_text *t, const void *sharding)
{
    const nb_spec *s = sharding;
    nb_text_add(t, "mesh=@%s, spec=", s->mesh->name);
    nb_spec_write_dims(t, s, 0);
    nb_spec_write_partial(t, s);
}

/* @pod(shape=(2, 2), devices=[0, 1, 2, 3], axes=(dp, tp)) */
static void write_mesh(nb_text *t, const void *sharding)
{
    const nb_mesh *m = ((const nb_spec *)sharding)->mesh;
    const char *end = m->naxes == 1 ? ",)" : ")";
    nb_text_add(t, "@%s(shape=(", m->name);
    for (int k = 0; k < m->naxes; k++)
        nb_text_add(t, k ? ", %d" : "%d", m->size[k]);
    nb_text_add(t, "%s, devices=[", end);
    for (int i = 0; i < m->ndevices; i++)
        nb_text_add(t, i ? ", %d" : "%d", m->device[i]);
    nb_text_add(t, "], axes=(");
    for (int k = 0; k < m->naxes; k++)
        nb_text_add(t, k ? ", %s" : "%s", m->axis[k]);
    nb_text_add(t, "%s)\n", end);
}

static void write_name(nb_text *t, const void *sharding)
{
    nb_text_add(t, "@%s", ((const nb_spec *)sharding)->mesh->name);
}

static bool same_mesh(const void *a, const void *b)
{
    return ((const nb_spec *)a)->mesh == ((const nb_spec *)b)->mesh;
}

const nb_layout_words nb_layout_print = {
    write_dim, write_pending, write_target, write_mesh, write_name, same_mesh};

const nb_spec *nb_target_of(const nb_tensor *x)
{
    if (!x || !x->op || !x->op->places) return NULL;
    return (const nb_spec *)(intptr_t)nb_tensor_attr(x)[0];
}

const nb_spec *nb_graph_target(const nb_graph *g, int k)
{
    if (!g || k < 0 || k >= g->n || !g->line[k].op || !g->line[k].op->places)
        return NULL;
    return (const nb_spec *)(intptr_t)g->line[k].attr[0];
}
