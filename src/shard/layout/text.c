/* text.c - specs as text: the long form, and types of tensors that lie so. */
#include "shard/layout/spec.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"sum", "max", "min", "prod", "and", "or"};

const char *nb_kind_name(nb_reduce kind)
{
    return kinds[kind];
}

bool nb_kind_find(const char *name, size_t n, nb_reduce *kind)
{
    for (int k = NB_SUM; k <= NB_OR; k++)
        if (strlen(kinds[k]) == n && strncmp(kinds[k], name, n) == 0)
            return *kind = (nb_reduce)k, true;
    return false;
}

int nb_axis_text(const nb_mesh *m, nb_axis a, char *text, size_t room)
{
    if (a.pre == 1 && a.size == m->size[a.axis])
        return snprintf(text, room, "%s", m->axis[a.axis]);
    return snprintf(text, room, "%s:(%d)%d", m->axis[a.axis], a.pre, a.size);
}

static void add_axis(nb_text *t, const nb_mesh *m, nb_axis a, const char *quote)
{
    nb_text_add(t, "%s%s%s", quote, m->axis[a.axis], quote);
    if (a.pre != 1 || a.size != m->size[a.axis])
        nb_text_add(t, ":(%d)%d", a.pre, a.size);
}

/* "x","y" */
static void add_list(nb_text *t, const nb_mesh *m, const nb_cut *l)
{
    for (int i = 0; i < l->n; i++) {
        if (i) nb_text_add(t, ",");
        add_axis(t, m, l->at[i], "\"");
    }
}

/* x or (x,y) */
static void add_group(nb_text *t, const nb_mesh *m, const nb_cut *l)
{
    if (l->n > 1) nb_text_add(t, "(");
    for (int i = 0; i < l->n; i++) {
        if (i) nb_text_add(t, ",");
        add_axis(t, m, l->at[i], "");
    }
    if (l->n > 1) nb_text_add(t, ")");
}

static void add_dim(nb_text *t, const nb_mesh *m, const nb_dim_spec *d)
{
    nb_text_add(t, "{");
    add_list(t, m, &d->axes);
    if (d->open) nb_text_add(t, d->axes.n ? ",?" : "?");
    nb_text_add(t, "}");
    if (d->priority) nb_text_add(t, "p%d", d->priority);
}

static void add_set(nb_text *t, const nb_mesh *m, const char *name,
                    const nb_cut *l)
{
    if (!l->n) return;
    nb_text_add(t, ", %s={", name);
    add_list(t, m, l);
    nb_text_add(t, "}");
}

static char *finish(nb_text *t)
{
    if (t->failed) nb_text_free(t);
    return t->data;
}

char *nb_spec_text(const nb_spec *s)
{
    if (!s) return NB_STATUS(false), NULL;
    nb_text t = {0};
    nb_text_add(&t, "sharding<@%s, [", s->mesh->name);
    for (int d = 0; d < s->rank; d++) {
        if (d) nb_text_add(&t, ", ");
        add_dim(&t, s->mesh, &s->dim[d]);
    }
    nb_text_add(&t, "]");
    add_set(&t, s->mesh, "replicated", &s->replicated);
    add_set(&t, s->mesh, "partial", &s->partial);
    if (s->kind != NB_SUM) nb_text_add(&t, ":%s", kinds[s->kind]);
    nb_text_add(&t, ">");
    return finish(&t);
}

void nb_spec_write_dim(nb_text *t, const nb_spec *s, int dim)
{
    const nb_cut *l = &s->dim[dim].axes;
    if (!l->n) return;
    nb_text_add(t, "@");
    add_group(t, s->mesh, l);
}

void nb_spec_write_partial(nb_text *t, const nb_spec *s)
{
    if (!s->partial.n) return;
    nb_text_add(t, "{P%s:", s->kind == NB_SUM ? "" : kinds[s->kind]);
    add_group(t, s->mesh, &s->partial);
    nb_text_add(t, "}");
}

/* x, (x, y) or *. */
static void add_layout(nb_text *t, const nb_mesh *m, const nb_cut *l)
{
    if (!l->n) nb_text_add(t, "*");
    if (l->n > 1) nb_text_add(t, "(");
    for (int i = 0; i < l->n; i++) {
        if (i) nb_text_add(t, ", ");
        add_axis(t, m, l->at[i], "");
    }
    if (l->n > 1) nb_text_add(t, ")");
}

void nb_spec_write_dims(nb_text *t, const nb_spec *s, int hidden)
{
    nb_text_add(t, "<");
    for (int d = 0; d < s->rank; d++) {
        if (d) nb_text_add(t, d == hidden ? " | " : ", ");
        add_layout(t, s->mesh, &s->dim[d < hidden ? hidden - 1 - d : d].axes);
    }
    nb_text_add(t, hidden && hidden == s->rank ? " | >" : ">");
}

void nb_spec_write_layout(nb_text *t, const nb_spec *s, int hidden)
{
    nb_text_add(t, "(");
    nb_spec_write_dims(t, s, hidden);
    for (int i = 0; i < s->partial.n; i++) {
        nb_text_add(t, i ? ", " : " | partial={");
        add_axis(t, s->mesh, s->partial.at[i], "'");
    }
    if (s->partial.n) nb_text_add(t, "}");
    if (s->kind != NB_SUM) nb_text_add(t, ":%s", kinds[s->kind]);
    nb_text_add(t, ")");
}

char *nb_spec_type_text(const nb_spec *s, nb_dtype dtype, const int64_t *sizes)
{
    if (!s) return NB_STATUS(false), NULL;
    nb_text t = {0};
    nb_text_add(&t, "%s[", nb_dtype_brief(dtype));
    for (int d = 0; d < s->rank; d++) {
        nb_text_add(&t, "%s%lld", d ? ", " : "", (long long)sizes[d]);
        nb_spec_write_dim(&t, s, d);
    }
    nb_text_add(&t, "]");
    nb_spec_write_partial(&t, s);
    return finish(&t);
}
