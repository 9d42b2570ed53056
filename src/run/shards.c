/* shards.c - blocks of one tensor, in buffers of their own. */
#include "run/shards.h"

#include "comm/comm.h"
#include "shard/decide/factors.h"
#include "shard/decide/place.h"

#include <string.h>

static void release(void *owner)
{
    nb_shards *s = owner;
    for (int i = 0; i < s->n; i++)
        nb_drop(s->at[i]);
    nb_drop(s->whole);
    nb_free(s);
}

nb_buffer *nb_shards_new(int n, nb_tensor *const *at)
{
    nb_shards *s = nb_alloc_zero(sizeof *s + (size_t)n * sizeof s->at[0]);
    nb_buffer *b = s ? nb_alloc_zero(sizeof *b) : NULL;
    if (!b) {
        nb_free(s);
        return NULL;
    }
    s->n = n;
    for (int i = 0; i < n; i++)
        s->at[i] = nb_keep(at[i]);
    b->refs = 1;
    b->data = (char *)s; /* never read: it only says that there is data */
    b->release = release;
    b->owner = s;
    return b;
}

nb_shards *nb_shards_of(const nb_tensor *x)
{
    return x->buffer->owner;
}

nb_tensor *nb_stored_leaf(nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_shape s = {.rank = nb_tensor_strides(x, size, stride)};
    if (s.rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE,
                       "a tensor of %d dims, hidden ones among "
                       "them, cannot lie on devices",
                       s.rank);
    if (!x->nlanes) return x;
    for (int d = 0; d < s.rank; d++)
        s.size[d] = nb_extent_of(size[d]);
    return nb_leaf_on(x->device, nb_leaf_new((nb_dtype)x->dtype, &s, x->buffer,
                                             x->data, stride));
}

/* The block of a device that has all of it, as a leaf of x's own shape. */
static nb_tensor *unsharded(const nb_tensor *x, const nb_tensor *of)
{
    nb_shape s = nb_tensor_shape(x);
    const nb_shards *parts = nb_shards_of(of);
    for (int i = 0; i < parts->n; i++)
        if (parts->at[i])
            return nb_leaf_on(parts->at[i]->device,
                              nb_leaf_new((nb_dtype)x->dtype, &s,
                                          parts->at[i]->buffer,
                                          parts->at[i]->data, NULL));
    return nb_fail(NB_ERUNTIME, "no device of this process has the value");
}

/* The same shards, lanes shown. */
static nb_tensor *with_lanes_shown(const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS];
    nb_shape s = {.rank = nb_stored_sizes(x, size)};
    for (int d = 0; d < s.rank; d++)
        s.size[d] = nb_extent_of(size[d]);
    nb_tensor *y =
        nb_leaf_new((nb_dtype)x->dtype, &s, x->buffer, x->data, NULL);
    if (y) y->sharding = x->sharding;
    return nb_leaf_on(x->device, y);
}

static nb_tensor *gathered(nb_tensor *x)
{
    const nb_spec *s = x->sharding, *whole;
    if (nb_spec_is_whole(s)) return unsharded(x, x);
    whole = nb_spec_whole(s->mesh, s->rank, false);
    nb_tensor *y = whole ? nb_lay(with_lanes_shown(x), whole) : NULL;
    return y && nb_realize_now(1, &y) ? unsharded(x, y) : NULL;
}

/* Kept with the shards, so that it lasts as long as they do. */
static nb_tensor *gather(nb_tensor *x)
{
    nb_shards *s = nb_shards_of(x);
    nb_graph_lock();
    nb_tensor *whole = s->whole;
    nb_graph_unlock();
    if (whole) return whole;
    if (nb_scope_open() != NB_OK) return NULL;
    nb_tensor *y = gathered(x);
    nb_graph_lock();
    if (y && !s->whole) s->whole = nb_keep(y);
    whole = s->whole;
    nb_graph_unlock();
    nb_scope_close(0, NULL);
    return whole;
}

nb_tensor *nb_shard_at(nb_tensor *x, int position)
{
    if (!x || !nb_realize_now(1, &x)) return NULL;
    if (!x->sharding)
        return nb_fail(NB_EVALUE, "shard: the tensor lies on no mesh");
    const nb_shards *s = nb_shards_of(x);
    if (position < 0 || position >= s->n)
        return nb_fail(NB_EVALUE, "shard: there is no device %d among %d",
                       position, s->n);
    if (!s->at[position])
        return nb_fail(NB_EVALUE, "shard: device %d is another process's",
                       position);
    return nb_give(nb_keep(s->at[position]));
}

bool nb_mesh_is_here(const nb_mesh *m, int position)
{
    return m && position >= 0 && position < m->ndevices &&
           nb_device_is_here(m, position);
}

static bool can_run(const nb_mesh *m)
{
    return nb_devices_here(m) > 0;
}

bool (*const nb_mesh_checker)(const nb_mesh *m) = can_run;
void (*const nb_mesh_locator)(const nb_mesh *m, int *place) = nb_devices_locate;
nb_tensor *(*const nb_gatherer)(nb_tensor *x) = gather;
