/* block.c - which part of a tensor a device has. */
#include "base/error.h"
#include "base/memory.h"
#include "shard/layout/spec.h"

void nb_spec_box(const nb_spec *s, const int64_t *size, int position,
                 nb_box *box)
{
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *l = &s->dim[d].axes;
        int64_t n = nb_cut_count(l), i = nb_cut_index(s->mesh, l, position);
        box->start[d] = nb_block_start(size[d], n, i);
        box->size[d] = nb_block_start(size[d], n, i + 1) - box->start[d];
    }
}

int64_t nb_box_count(int rank, const nb_box *b)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= b->size[d];
    return n;
}

bool nb_box_meet(int rank, const nb_box *a, const nb_box *b, nb_box *common)
{
    for (int d = 0; d < rank; d++) {
        int64_t ea = a->start[d] + a->size[d], eb = b->start[d] + b->size[d];
        int64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        common->start[d] = start;
        common->size[d] = (ea < eb ? ea : eb) - start;
        if (common->size[d] <= 0) return false;
    }
    return true;
}

int64_t nb_spec_block(const nb_spec *s, int position)
{
    int64_t at = 0;
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *l = &s->dim[d].axes;
        at = at * nb_cut_count(l) + nb_cut_index(s->mesh, l, position);
    }
    return at;
}

/* The largest block of n is ceil(d / n). */
int64_t nb_spec_elements(const nb_spec *s, const int64_t *size)
{
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++) {
        int64_t n = nb_cut_count(&s->dim[d].axes);
        count *= size[d] / n + (size[d] % n != 0);
    }
    return count;
}

static bool check_sizes(const nb_spec *s, const int64_t *size)
{
    for (int d = 0; d < s->rank; d++)
        if (size[d] < 0)
            return nb_fail(NB_EVALUE, "sharding: dim %d has size %lld", d,
                           (long long)size[d]);
    return true;
}

const nb_spec *nb_spec_fit(const nb_spec *s, int rank, const int64_t *sizes)
{
    if (!s) return NB_STATUS(false), NULL;
    if (rank != s->rank)
        return nb_fail(NB_EVALUE,
                       "sharding: a spec of %d dims for a tensor of %d dims",
                       s->rank, rank);
    if (!check_sizes(s, sizes)) return NULL;
    nb_spec fit = {.mesh = s->mesh, .rank = rank, .kind = s->kind};
    bool same = true;
    fit.partial = s->partial;
    fit.replicated = s->replicated;
    for (int d = 0; d < rank; d++) {
        nb_dim_spec *to = &fit.dim[d];
        *to = s->dim[d];
        if (sizes[d] > 1 || !to->axes.n) continue;
        same = false;
        to->axes.n = 0;
        if (!to->open) to->priority = 0;
    }
    return same ? s : nb_spec_intern(&fit);
}

nb_status nb_spec_local_sizes(const nb_spec *s, const int64_t *sizes,
                              int position, int64_t *starts, int64_t *local)
{
    if (!s) return NB_STATUS(false);
    nb_box box;
    if (position < 0 || position >= s->mesh->ndevices)
        return nb_fail(NB_EVALUE, "sharding: mesh @%s has no position %d",
                       s->mesh->name, position),
               NB_EVALUE;
    if (!check_sizes(s, sizes)) return NB_EVALUE;
    nb_spec_box(s, sizes, position, &box);
    for (int d = 0; d < s->rank; d++) {
        if (starts) starts[d] = box.start[d];
        local[d] = box.size[d];
    }
    return NB_OK;
}

/* The blocks of a dim, one after the other, as the positions have them that are
 * at the beginning of all other axes. */
static bool sum_blocks(const nb_spec *s, int dim, const int64_t *locals,
                       int *member, int64_t *size)
{
    int n = nb_cut_group(s->mesh, &s->dim[dim].axes, 0, member);
    *size = 0;
    for (int i = 0; i < n; i++) {
        int64_t block = locals[(int64_t)member[i] * s->rank + dim];
        if (block < 0 || __builtin_add_overflow(*size, block, size))
            return nb_fail(NB_EVALUE,
                           "sharding: a block of size %lld in dim %d",
                           (long long)block, dim);
    }
    return true;
}

static bool check_block(const nb_spec *s, const int64_t *sizes, int position,
                        const int64_t *local)
{
    nb_box box;
    nb_spec_box(s, sizes, position, &box);
    for (int d = 0; d < s->rank; d++)
        if (box.size[d] != local[d])
            return nb_fail(NB_EVALUE,
                           "sharding: position %d has %lld of dim %d of size "
                           "%lld, not %lld",
                           position, (long long)box.size[d], d,
                           (long long)sizes[d], (long long)local[d]);
    return true;
}

nb_status nb_spec_global_sizes(const nb_spec *s, const int64_t *locals,
                               int64_t *sizes)
{
    if (!s) return NB_STATUS(false);
    int n = s->mesh->ndevices;
    int *member = nb_alloc((size_t)n * sizeof *member);
    bool ok = member != NULL;
    for (int d = 0; ok && d < s->rank; d++)
        ok = sum_blocks(s, d, locals, member, &sizes[d]);
    for (int p = 0; ok && p < n; p++)
        ok = check_block(s, sizes, p, locals + (int64_t)p * s->rank);
    nb_free(member);
    return NB_STATUS(ok);
}
