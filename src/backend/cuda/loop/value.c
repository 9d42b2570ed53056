/* value.c - slots, values that lie in them, nests and copies of values. */
#include "backend/cuda/loop/build.h"

#include "lower/look.h"

#include <string.h>

bool nb_solo_unfit(nb_solo *s)
{
    s->fits = false;
    return true;
}

/* Slots */

static int slot_new(nb_solo *s, nb_solo_slot slot)
{
    if (!nb_grow(&s->slot, &s->slot_room, s->nslots + 1, sizeof slot))
        return -1;
    s->slot[s->nslots] = slot;
    return s->nslots++;
}

bool nb_solo_memory(nb_solo *s, int64_t bytes, int loop, nb_solo_at *at)
{
    *at = (nb_solo_at){0};
    at->slot = slot_new(
        s,
        (nb_solo_slot){.space = NB_SOLO_SHARED, .bytes = bytes, .loop = loop});
    return at->slot >= 0;
}

bool nb_solo_given(nb_solo *s, bool constant, nb_solo_at *at)
{
    *at = (nb_solo_at){0};
    at->slot = slot_new(s, (nb_solo_slot){.space = NB_SOLO_GIVEN,
                                          .given = s->ngiven++,
                                          .loop = -1,
                                          .constant = constant});
    return at->slot >= 0;
}

nb_solo_at nb_solo_further(nb_solo_at at, int64_t bytes)
{
    at.from += bytes;
    return at;
}

nb_solo_at nb_solo_moving(nb_solo *s, nb_solo_at at, const nb_solo_item *loop,
                          int64_t bytes, int ring)
{
    if (at.nmoves == NB_SOLO_MOVES) {
        nb_solo_unfit(s);
        return at;
    }
    if (loop->reverse && !ring) {
        at.from += (loop->length - 1) * bytes;
        bytes = -bytes;
    }
    at.move[at.nmoves].loop = loop->loop;
    at.move[at.nmoves].bytes = bytes;
    at.move[at.nmoves++].ring = ring;
    return at;
}

/* Values */

int64_t nb_solo_item_bytes(const nb_solo_value *v)
{
    return (int64_t)nb_dtype_size(v->dtype);
}

int64_t nb_solo_bytes(const nb_solo_value *v)
{
    int64_t n = nb_solo_item_bytes(v);
    for (int d = 0; d < v->n; d++)
        n *= v->size[d];
    return n;
}

bool nb_solo_is_packed(const nb_solo_value *v)
{
    int64_t step = 1;
    for (int d = v->n - 1; d >= 0; d--) {
        if (v->size[d] != 1 && v->stride[d] != step) return false;
        step *= v->size[d];
    }
    return true;
}

nb_solo_value nb_solo_packed(nb_solo_at at, nb_dtype d, const nb_shape *s)
{
    nb_solo_value v = {.at = at, .dtype = d, .n = s->nlanes + s->rank};
    for (int l = 0; l < s->nlanes; l++)
        v.size[l] = nb_extent_get(nb_lane_stored(s->lane[l]));
    for (int a = 0; a < s->rank; a++)
        v.size[s->nlanes + a] = nb_extent_get(s->size[a]);
    nb_packed_strides(v.n, v.size, v.stride);
    return v;
}

nb_solo_value nb_solo_of_tensor(nb_solo_at at, const nb_tensor *x)
{
    nb_solo_value v = {.at = at, .dtype = (nb_dtype)x->dtype};
    v.n = nb_tensor_strides(x, v.size, v.stride);
    return v;
}

nb_solo_value nb_solo_without(nb_solo_value v, int d)
{
    v.n--;
    for (int k = d; k < v.n; k++) {
        v.size[k] = v.size[k + 1];
        v.stride[k] = v.stride[k + 1];
    }
    return v;
}

nb_solo_value nb_solo_spread(nb_solo_value v, const nb_tensor *x,
                             const nb_shape *to)
{
    nb_shape is = nb_tensor_shape(x);
    nb_solo_value y = nb_solo_packed(v.at, v.dtype, to);
    for (int d = 0; d < y.n; d++) {
        bool lane = d < to->nlanes;
        int at = lane ? nb_shape_find_lane(&is, to->lane[d].id)
                      : d - to->nlanes + is.nlanes;
        bool has = at >= 0 && v.size[at] == y.size[d];
        y.stride[d] = has ? v.stride[at] : 0;
    }
    return y;
}

/* Nests */

static double cycles_of(const nb_nest *x)
{
    double all = 0, outer = (double)nb_nest_units(x);
    for (int k = 0; k < x->n; k++)
        all +=
            nb_nest_cost(&x->value[k]) *
            (x->value[k].axes & x->inner ? (double)nb_nest_points(x) : outer);
    return all;
}

nb_solo_item *nb_solo_add(nb_solo_list *l, nb_solo_item i)
{
    if (!nb_grow(&l->item, &l->room, l->n + 1, sizeof i)) return NULL;
    l->item[l->n] = i;
    return &l->item[l->n++];
}

bool nb_solo_add_nest(nb_solo *s, nb_solo_list *to, nb_nest *x,
                      const nb_solo_at *block)
{
    size_t n = x ? (size_t)x->nbuffers : 0;
    nb_solo_item i = {.kind = NB_SOLO_NEST, .nest = x, .number = s->nnests++};
    i.block = x ? nb_alloc((n + 1) * sizeof *i.block) : NULL;
    if (i.block) {
        memcpy(i.block, block, n * sizeof *block);
        i.cycles = cycles_of(x);
        if (nb_solo_add(to, i)) return true;
    }
    nb_free(i.block);
    nb_nest_free(x);
    return false;
}

static bool fill_copy(nb_nest *x, const nb_solo_value *from,
                      const nb_solo_value *to)
{
    nb_dtype d = nb_dtype_size(to->dtype) == 2 ? NB_U16 : to->dtype;
    nb_nest_value load = {.kind = NB_NEST_LOAD, .dtype = d, .stored = d};
    nb_nest_value store = {
        .kind = NB_NEST_STORE, .dtype = d, .stored = d, .buffer = 1};
    x->nbuffers = 2;
    for (int a = 0; a < to->n; a++) {
        if (to->size[a] == 1) continue;
        x->size[x->naxes] = to->size[a];
        load.stride[x->naxes] = from->size[a] == 1 ? 0 : from->stride[a];
        store.stride[x->naxes++] = to->stride[a];
    }
    load.axes = store.axes = (1u << x->naxes) - 1;
    if (!nb_nest_add(x, load) || !nb_nest_add(x, store)) return false;
    nb_nest_merge(x);
    return true;
}

bool nb_solo_add_copy(nb_solo *s, nb_solo_list *list, const nb_solo_value *from,
                      const nb_solo_value *to)
{
    int axes = 0;
    for (int d = 0; d < to->n; d++)
        axes += to->size[d] != 1;
    if (axes > NB_MAX_NEST_AXES || from->n != to->n) return nb_solo_unfit(s);
    if (nb_solo_bytes(to) == 0) return true;
    nb_nest *x = nb_alloc_zero(sizeof *x);
    if (!x || !fill_copy(x, from, to)) return nb_nest_free(x), false;
    nb_solo_at block[2] = {from->at, to->at};
    return nb_solo_add_nest(s, list, x, block);
}

bool nb_solo_settle_value(nb_solo *s, nb_solo_list *list, nb_solo_value v,
                          nb_solo_value *is)
{
    *is = v;
    if (nb_solo_is_packed(&v)) return true;
    nb_packed_strides(v.n, v.size, is->stride);
    return nb_solo_memory(s, nb_solo_bytes(&v), -1, &is->at) &&
           nb_solo_add_copy(s, list, &v, is);
}

void nb_solo_list_free(nb_solo_list *l)
{
    for (int k = 0; k < l->n; k++) {
        nb_solo_item *i = &l->item[k];
        nb_nest_free(i->nest);
        if (i->walked) nb_cuda_walk_free(&i->w);
        nb_free(i->block), nb_free(i->held), nb_free(i->all);
        nb_free(i->ahead);
        nb_solo_list_free(&i->first), nb_solo_list_free(&i->second);
    }
    nb_free(l->item);
}
