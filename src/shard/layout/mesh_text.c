/* mesh_text.c - meshes as text, written and read:
 * @pod = <["dp"=2, "tp"=4], device_ids=[...]> */
#include "base/text.h"
#include "shard/layout/mesh.h"
#include "shard/layout/reader.h"

#include <limits.h>

static bool is_counted(const nb_mesh *m)
{
    for (int i = 0; i < m->ndevices; i++)
        if (m->device[i] != i) return false;
    return true;
}

char *nb_mesh_text(const nb_mesh *m)
{
    if (!m) return NB_STATUS(false), NULL;
    nb_text t = {0};
    nb_text_add(&t, "@%s = <[", m->name);
    for (int k = 0; k < m->naxes; k++)
        nb_text_add(&t, "%s\"%s\"=%d", k ? ", " : "", m->axis[k], m->size[k]);
    nb_text_add(&t, "]");
    if (!is_counted(m)) {
        nb_text_add(&t, ", device_ids=");
        for (int i = 0; i < m->ndevices; i++)
            nb_text_add(&t, "%s%d", i ? ", " : "[", m->device[i]);
        nb_text_add(&t, "]");
    }
    nb_text_add(&t, ">");
    if (t.failed) nb_text_free(&t);
    return t.data;
}

/* What was read.  Names lie in `copy`, which is the text with names ended. */
typedef struct draft {
    nb_reader r;
    char *copy;
    const char *name, *axis[NB_MESH_AXES];
    int naxes, size[NB_MESH_AXES];
    int *device, ndevices, room;
} draft;

/* The name is not yet ended in the copy: what follows may still be read. */
static bool read_name(draft *d, const char **name, char **end)
{
    const char *from;
    int n;
    if (!nb_reader_name(&d->r, &from, &n)) return false;
    char *at = d->copy + (from - d->r.text);
    *name = at;
    *end = at + n;
    return true;
}

static bool read_axis(draft *d)
{
    char *end;
    if (d->naxes == NB_MESH_AXES)
        return nb_reader_wrong(&d->r, "more than %d axes", NB_MESH_AXES);
    const char *quote = nb_reader_takes(&d->r, "'") ? "'" : "\"";
    if (*quote == '"' && !nb_reader_needs(&d->r, quote)) return false;
    if (!read_name(d, &d->axis[d->naxes], &end) ||
        !nb_reader_needs(&d->r, quote) || !nb_reader_needs(&d->r, "=") ||
        !nb_reader_number(&d->r, UINT16_MAX, &d->size[d->naxes]))
        return false;
    *end = '\0';
    d->naxes++;
    return true;
}

static bool read_device(draft *d)
{
    int n = d->ndevices + 1;
    if (!nb_grow(&d->device, &d->room, n, sizeof *d->device) ||
        !nb_reader_number(&d->r, INT_MAX, &d->device[d->ndevices]))
        return false;
    d->ndevices = n;
    return true;
}

/* [a, b, c] */
static bool read_list(draft *d, bool (*item)(draft *))
{
    if (!nb_reader_needs(&d->r, "[")) return false;
    if (nb_reader_takes(&d->r, "]")) return true;
    do
        if (!item(d)) return false;
    while (nb_reader_takes(&d->r, ","));
    return nb_reader_needs(&d->r, "]");
}

static bool check_count(draft *d)
{
    int64_t n = 1;
    for (int k = 0; k < d->naxes; k++)
        n *= n > UINT16_MAX ? 1 : d->size[k];
    return n == d->ndevices ||
           nb_reader_wrong(&d->r, "%d device_ids for %lld devices", d->ndevices,
                           (long long)n);
}

static bool read_mesh(draft *d)
{
    char *end;
    if (!nb_reader_needs(&d->r, "@") || !read_name(d, &d->name, &end) ||
        !nb_reader_needs(&d->r, "="))
        return false;
    *end = '\0';
    if (!nb_reader_needs(&d->r, "<") || !read_list(d, read_axis)) return false;
    if (nb_reader_takes(&d->r, ",") &&
        (!nb_reader_needs(&d->r, "device_ids") ||
         !nb_reader_needs(&d->r, "=") || !read_list(d, read_device) ||
         !check_count(d)))
        return false;
    return nb_reader_needs(&d->r, ">") && nb_reader_ends(&d->r);
}

const nb_mesh *nb_mesh_parse(const char *text)
{
    if (!text) return NB_STATUS(false), NULL;
    draft d = {.r = {"mesh", text, text}};
    d.copy = nb_copy_text(text);
    const nb_mesh *m = NULL;
    if (d.copy && read_mesh(&d))
        m = nb_mesh_new(d.name, d.naxes, d.axis, d.size, d.device);
    nb_free(d.copy);
    nb_free(d.device);
    return m;
}
