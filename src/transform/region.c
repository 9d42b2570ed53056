/* region.c - recording a function into a program, and running one. */
#include "transform/region.h"

#include "core/convert.h"

#include <string.h>

void nb_op_without_params(nb_op *op)
{
    static nb_params none;
    op->parsed = &none;
    op->ready = true;
    op->uses = 1;
}

nb_tensor *nb_stand_in(nb_dtype dtype, const nb_shape *shape)
{
    return nb_node_new(NULL, NULL, dtype, shape, 0, NULL, 0, NULL);
}

void nb_region_free(nb_region *r)
{
    nb_graph_free(r->graph);
    for (int i = 0; i < r->ncaptured; i++)
        nb_drop(r->captured[i]);
    nb_free(r->captured);
    *r = (nb_region){0};
}

/* What y needs that is neither a stand-in nor computed from one here: nodes
 * older than the stand-ins, and data made inside. */
typedef struct search {
    nb_region *r;
    nb_tensor **stack, **seen;
    int depth, room, nseen, seen_room, captured_room;
    uint64_t since;
} search;

static bool was_seen(const search *s, const nb_tensor *x)
{
    for (int i = s->nseen - 1; i >= 0; i--)
        if (s->seen[i] == x) return true;
    return false;
}

static bool capture(search *s, nb_tensor *x)
{
    nb_region *r = s->r;
    if (!nb_grow(&r->captured, &s->captured_room, r->ncaptured + 1,
                 sizeof *r->captured))
        return false;
    r->captured[r->ncaptured++] = nb_keep(x);
    return true;
}

static bool look(search *s, nb_tensor *x, int nx, nb_tensor *const *in)
{
    bool number = !x->op && !x->buffer && nb_tensor_done(x);
    for (int i = 0; i < nx; i++)
        if (in[i] == x) return true;
    if (number || was_seen(s, x)) return true;
    if (!nb_grow(&s->seen, &s->seen_room, s->nseen + 1, sizeof *s->seen))
        return false;
    s->seen[s->nseen++] = x;
    if (!x->op || x->serial < s->since) return capture(s, x);
    if (!nb_grow(&s->stack, &s->room, s->depth + 1, sizeof *s->stack))
        return false;
    s->stack[s->depth++] = x;
    return true;
}

static bool find_captured(nb_region *r, int nx, nb_tensor *const *x, int ny,
                          nb_tensor *const *y, uint64_t since)
{
    search s = {.r = r, .since = since};
    bool ok = true;
    for (int i = 0; ok && i < ny; i++)
        ok = look(&s, y[i], nx, x);
    while (ok && s.depth) {
        nb_tensor *node = s.stack[--s.depth];
        for (int i = 0; ok && i < node->nin; i++)
            ok = look(&s, nb_tensor_in(node)[i], nx, x);
    }
    nb_free(s.stack);
    nb_free(s.seen);
    return ok;
}

static bool collect(nb_region *r, int nx, nb_tensor *const *x, int ny,
                    nb_tensor *const *y, uint64_t since)
{
    if (!find_captured(r, nx, x, ny, y, since)) return false;
    nb_tensor **all = nb_array(nx + r->ncaptured);
    if (!all) return false;
    memcpy(all, x, (size_t)nx * sizeof *all);
    if (r->ncaptured)
        memcpy(all + nx, r->captured, (size_t)r->ncaptured * sizeof *all);
    nb_status s = nb_graph_of(nx + r->ncaptured, all, ny, y, &r->graph);
    nb_free(all);
    return s == NB_OK;
}

bool nb_region_record(nb_region *r, nb_func *f, int nx, nb_tensor *const *x)
{
    int ny = NB_MAX_RESULTS;
    nb_tensor **y = nb_array(ny);
    nb_shape none = {0};
    nb_tensor *first = nb_stand_in(NB_BOOL, &none); /* newer than all so far */
    *r = (nb_region){.nx = nx};
    uint64_t since = first ? first->serial : 0;
    for (int i = 0; i < nx; i++)
        if (x[i]->serial < since) since = x[i]->serial;
    bool ok = y && first && nb_run(f, nx, x, &ny, y) &&
              collect(r, nx, x, ny, y, since);
    r->ny = ny;
    nb_free(y);
    if (!ok) nb_region_free(r);
    return ok;
}

const nb_line *nb_region_result(const nb_graph *g, int k)
{
    return &g->line[g->result[k]];
}

bool nb_region_run(const nb_graph *g, int nx, nb_tensor *const *x,
                   nb_tensor **y)
{
    return nb_graph_run(g, nx, x, y) == NB_OK && nb_realize_now(g->ny, y);
}

static bool copy_dims(char *to, const nb_shape *s, nb_tensor *x,
                      const int64_t *size, const int64_t *step)
{
    int n = s->nlanes + s->rank;
    int64_t at[NB_MAX_DIMS] = {0}, row = n ? size[n - 1] : 1;
    int64_t item = (int64_t)nb_dtype_size((nb_dtype)x->dtype), count = 1;
    for (int d = 0; d < n; d++)
        count *= size[d];
    for (int64_t done = 0; done < count; done += row) {
        int64_t from = 0;
        for (int d = 0; d < n - 1; d++)
            from += at[d] * step[d];
        nb_convert(to + done * item, (nb_dtype)x->dtype, 1,
                   x->data + from * item, (nb_dtype)x->dtype,
                   n ? step[n - 1] : 1, row);
        for (int d = n - 2; d >= 0 && ++at[d] == size[d]; d--)
            at[d] = 0;
    }
    return true;
}

bool nb_copy_into(char *to, const nb_shape *s, nb_tensor *x)
{
    int64_t own[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int64_t size[NB_MAX_DIMS], step[NB_MAX_DIMS];
    nb_tensor_strides(x, own, stride);
    for (int l = 0; l < s->nlanes; l++) {
        size[l] = nb_extent_get(nb_lane_stored(s->lane[l]));
        step[l] = 0;
        for (int k = 0; k < x->nlanes; k++)
            if (nb_tensor_lane(x)[k].id == s->lane[l].id && own[k] != 1)
                step[l] = stride[k];
    }
    for (int d = 0; d < s->rank; d++) {
        size[s->nlanes + d] = nb_extent_get(s->size[d]);
        step[s->nlanes + d] = stride[x->nlanes + d];
    }
    return copy_dims(to, s, x, size, step);
}

bool nb_lanes_widen(nb_shape *a, const nb_shape *b)
{
    bool changed = false;
    for (int l = 0; l < b->nlanes; l++) {
        int at = nb_shape_find_lane(a, b->lane[l].id);
        if (at < 0) {
            nb_shape_add_lane(a, b->lane[l]);
            changed = true;
        } else if (a->lane[at].thin && !b->lane[l].thin) {
            a->lane[at].thin = false;
            changed = true;
        }
    }
    return changed;
}
