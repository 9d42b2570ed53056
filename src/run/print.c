/* print.c - tensors as text, and the figures of the process. */
#include "core/format.h"
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "run/realize.h"
#include "shard/decide/factors.h"
#include "shard/decide/place.h"

#include <stdio.h>

static void type_text(nb_text *t, nb_dtype dtype, const nb_shape *s)
{
    nb_text_add(t, "%s[", nb_dtype_brief(dtype));
    nb_shape_list(t, s);
    nb_text_add(t, "]");
}

/* Hidden axes are stored outermost first and shown innermost first. */
static void turn(int n, int64_t *v)
{
    for (int d = 0; d < n / 2; d++) {
        int64_t swap = v[d];
        v[d] = v[n - 1 - d];
        v[n - 1 - d] = swap;
    }
}

/* Elements that are shown, hidden axes first. */
typedef struct shown {
    int n;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
} shown;

static shown shown_of(const nb_tensor *x)
{
    shown s;
    s.n = nb_tensor_strides(x, s.size, s.stride);
    for (int l = 0; l < x->nlanes; l++) {
        s.size[l] = nb_extent_get(nb_tensor_lane(x)[l].size);
        if (nb_tensor_lane(x)[l].thin) s.stride[l] = 0;
    }
    turn(x->nlanes, s.size);
    turn(x->nlanes, s.stride);
    return s;
}

static bool has_rows(const shown *s)
{
    for (int d = 0; d < s->n - 1; d++)
        if (s->size[d] > 1) return true;
    return false;
}

/* The type of x and, if it lies on a mesh, how. */
static void types_text(nb_text *t, const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    const nb_spec *spec = x->sharding;
    int64_t size[NB_MAX_DIMS];
    nb_box box;
    type_text(t, (nb_dtype)x->dtype, &s);
    if (!spec) return;
    nb_spec_write_layout(t, spec, x->nlanes);
    for (int l = 0; l < x->nlanes; l++)
        size[l] = nb_extent_get(s.lane[l].size);
    nb_sizes(x, size + x->nlanes);
    nb_spec_box(spec, size, 0, &box);
    for (int l = 0; l < x->nlanes; l++)
        s.lane[l].size = nb_extent_of(box.size[l]);
    for (int d = 0; d < x->rank; d++)
        s.size[d] = nb_extent_of(box.size[x->nlanes + d]);
    nb_text_add(t, "(local=[");
    nb_shape_list(t, &s);
    nb_text_add(t, "])");
}

/* Several rows stand on their own lines between "Tensor(" and ")". */
static void whole_text(nb_text *t, const nb_tensor *x, const nb_tensor *value)
{
    shown s = shown_of(value);
    bool rows = has_rows(&s);
    nb_text_add(t, rows ? "Tensor(\n  " : "Tensor(");
    nb_format(t, (nb_dtype)value->dtype, s.n, s.size, s.stride, value->data,
              rows ? "  " : "");
    nb_text_add(t, " : ");
    types_text(t, x);
    nb_text_add(t, rows ? "\n)" : ")");
}

/* A value on the CPU. */
static nb_tensor *here(nb_tensor *x)
{
    return x && x->device ? nb_on_card.fetch(x) : x;
}

/* The block that a device has, whose first dims are hidden ones of x. */
static bool shard_text(nb_text *t, nb_tensor *x, int position)
{
    char name[32], indent[32];
    const nb_mesh *m = ((const nb_spec *)x->sharding)->mesh;
    int n = snprintf(name, sizeof name, "  shard(%d): ", position);
    snprintf(indent, sizeof indent, "%*s", n, "");
    nb_text_add(t, "%s", name);
    if (!nb_mesh_is_here(m, position))
        return nb_text_add(t, "in another process\n");
    nb_tensor *block = here(nb_shard_at(x, position));
    if (!block) return false;
    shown s = shown_of(block);
    turn(x->nlanes, s.size);
    turn(x->nlanes, s.stride);
    nb_format(t, (nb_dtype)block->dtype, s.n, s.size, s.stride, block->data,
              indent);
    return nb_text_add(t, "\n");
}

/* x as devices have it, nothing pending. */
static nb_tensor *settled(nb_tensor *x)
{
    nb_spec s = nb_spec_draft(x->sharding);
    if (!s.partial.n) return x;
    s.partial.n = 0;
    const nb_spec *spec = nb_spec_intern(&s);
    nb_tensor *y = spec ? nb_lay(x, spec) : NULL;
    return y && nb_realize_now(1, &y) ? y : NULL;
}

/* Devices in the middle are left out, as elements are. */
static bool shards_text(nb_text *t, const nb_tensor *x, nb_tensor *value)
{
    enum { EDGE = 3 };
    int n = ((const nb_spec *)x->sharding)->mesh->ndevices;
    bool ok = nb_text_add(t, "Tensor([\n");
    for (int p = 0; ok && p < n; p++) {
        if (p == EDGE && n > 2 * EDGE) {
            p = n - EDGE;
            nb_text_add(t, "  ...\n");
        }
        ok = shard_text(t, value, p);
    }
    nb_text_add(t, "] : ");
    types_text(t, x);
    return nb_text_add(t, ")") && ok;
}

/* What every device has is written once. */
static bool text_of(nb_text *t, nb_tensor *x)
{
    if (!x->sharding) {
        nb_tensor *own = here(x);
        if (own) whole_text(t, x, own);
        return own;
    }
    nb_tensor *value = settled(x);
    if (!value) return false;
    if (!nb_spec_is_whole(value->sharding)) return shards_text(t, x, value);
    value = here(nb_gatherer(value));
    if (value) whole_text(t, x, value);
    return value;
}

char *nb_tensor_text(nb_tensor *x)
{
    nb_text t = {0};
    if (!x || !nb_realize_now(1, &x) || nb_scope_open() != NB_OK) return NULL;
    bool ok = text_of(&t, x);
    nb_scope_close(0, NULL);
    if (ok && !t.failed) return t.data;
    nb_text_free(&t);
    return NULL;
}

nb_stats nb_stats_get(void)
{
    return (nb_stats){.nodes_live = nb_nodes_live(),
                      .steps_run = nb_steps_run(),
                      .allocations_live = nb_memory_live(),
                      .bytes_allocated = nb_memory_bytes(),
                      .bytes_in_use = nb_block_bytes()};
}
