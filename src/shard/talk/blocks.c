/* blocks.c - talking between blocks: a dim that is split in n is n blocks, one
 * behind the other, so that ordinary ops can combine and move them.
 *
 * This is about visible dims: of a tensor in a vmap, each lane is one that lies
 * on the mesh as what is seen of it. */
#include "shard/talk/blocks.h"

#include "nabla/nabla.h"
#include "ops/ops.h"
#include "ops/view.h"
#include "shard/talk/between.h"
#include "shard/talk/seen.h"

/* How many blocks dim d is split into by the first n axes of its list. */
static int64_t blocks(const nb_spec *s, int d, int n)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++)
        count *= s->dim[d].axes.at[i].size;
    return count;
}

bool nb_blocks_check(const char *who, const nb_tensor *x, const nb_cut *axes)
{
    nb_spec s;
    if (!nb_seen(x, &s)) return true;
    for (int d = 0; d < s.rank; d++) {
        int n = s.dim[d].axes.n;
        while (n && !nb_cut_has(axes, s.dim[d].axes.at[n - 1]))
            n--;
        if (!nb_dim_check(who, x, d, blocks(&s, d, n))) return false;
    }
    return true;
}

/* Dim d as (what splits it before axis i, axis i, the rest), without the
 * second. */
static nb_tensor *combine(nb_tensor *x, const nb_spec *s, int d, int i,
                          nb_reduce kind)
{
    int64_t before = blocks(s, d, i);
    bool inner = before > 1;
    if (inner) x = nb_dim_cut(x, d, before);
    x = nb_dim_cut(x, d + inner, s->dim[d].axes.at[i].size);
    x = nb_dim_reduce(x, d + inner, kind);
    return inner ? nb_dim_fold(x, d) : x;
}

/* Devices along the axes that have the same block. */
static int64_t replicas(const nb_spec *s, const nb_cut *axes)
{
    int64_t n = nb_cut_count(axes);
    for (int d = 0; d < s->rank; d++)
        for (int i = 0; i < s->dim[d].axes.n; i++)
            if (nb_cut_has(axes, s->dim[d].axes.at[i]))
                n /= s->dim[d].axes.at[i].size;
    for (int i = 0; i < s->partial.n; i++)
        if (nb_cut_has(axes, s->partial.at[i])) n /= s->partial.at[i].size;
    return n;
}

nb_tensor *nb_blocks_reduce(nb_tensor *x, const nb_cut *axes, nb_reduce kind)
{
    nb_spec s;
    if (!nb_seen(x, &s)) return x;
    int64_t same = replicas(&s, axes);
    x = nb_lay_settled(x, axes);
    for (int d = 0; d < s.rank; d++)
        for (int i = s.dim[d].axes.n - 1; i >= 0; i--)
            if (nb_cut_has(axes, s.dim[d].axes.at[i]))
                x = combine(x, &s, d, i, kind);
    if (same == 1 || kind == NB_MAX || kind == NB_MIN) return x;
    nb_tensor *n = nb_count(same);
    return kind == NB_PROD ? nb_pow(x, n) : nb_mul(x, n);
}

/* Number of the block that a position has, and how many there are. */
static int64_t block_at(const nb_spec *s, int position, int64_t *count)
{
    int64_t at = 0;
    *count = 1;
    for (int d = 0; d < s->rank; d++) {
        int64_t n = blocks(s, d, s->dim[d].axes.n);
        at = at * n + nb_cut_index(s->mesh, &s->dim[d].axes, position);
        *count *= n;
    }
    return at;
}

/* Where each block comes from: devices with the same block must agree. */
static bool by_block(const nb_spec *s, const int64_t *from, int64_t *block)
{
    enum { UNKNOWN = -2 };
    int64_t n;
    for (int p = 0; p < s->mesh->ndevices; p++)
        block[p] = UNKNOWN;
    for (int p = 0; p < s->mesh->ndevices; p++) {
        int64_t to = block_at(s, p, &n);
        int64_t src = from[p] < 0 ? -1 : block_at(s, (int)from[p], &n);
        if (block[to] == UNKNOWN) block[to] = src;
        if (block[to] != src)
            return nb_fail(NB_EVALUE,
                           "ppermute: device %d would get another value than "
                           "one that has the same block: split the tensor on "
                           "the axis first",
                           p);
    }
    return true;
}

/* Dims that are split as (blocks, rest), the blocks moved to the front. */
static nb_tensor *to_front(nb_tensor *x, const nb_spec *s, int *nfront)
{
    int64_t from[NB_MAX_RANK], to[NB_MAX_RANK];
    int n = 0;
    for (int d = 0; d < s->rank; d++) {
        if (!s->dim[d].axes.n) continue;
        x = nb_dim_cut(x, d + n, blocks(s, d, s->dim[d].axes.n));
        from[n] = d + n;
        to[n] = n;
        n++;
    }
    *nfront = n;
    return n > 1 || (n && from[0]) ? nb_moveaxis(x, n, from, to) : x;
}

static nb_tensor *from_front(nb_tensor *x, const nb_spec *s)
{
    int64_t from[NB_MAX_RANK], to[NB_MAX_RANK], size[NB_MAX_RANK];
    int n = 0;
    if (!x) return NULL;
    for (int d = 0; d < s->rank; d++) {
        if (!s->dim[d].axes.n) continue;
        from[n] = n;
        to[n] = d + n;
        n++;
    }
    if (n > 1 || (n && to[0])) x = nb_moveaxis(x, n, from, to);
    if (!x) return NULL;
    nb_sizes(x, size);
    for (int d = 0, k = 0; d < s->rank; d++) {
        bool split = s->dim[d].axes.n;
        size[d] = split ? nb_size(x, d + k) * nb_size(x, d + k + 1)
                        : nb_size(x, d + k);
        k += split;
    }
    return nb_reshape(x, s->rank, size);
}

/* n dims in front as one, selected from, and as they were. */
static nb_tensor *select_front(nb_tensor *x, int n, const int64_t *block)
{
    int64_t size[NB_MAX_RANK], count = 1;
    if (!x) return NULL;
    nb_sizes(x, size);
    for (int d = 0; d < n; d++)
        count *= size[d];
    nb_tensor *y = n > 1 ? nb_flatten(x, 0, n - 1) : x;
    y = nb_select(y, 0, (int)count, block);
    return n > 1 ? nb_reshape(y, x->rank, size) : y;
}

static bool may_move(const nb_tensor *x, const nb_spec *s)
{
    int dims = s->rank;
    for (int d = 0; d < s->rank; d++) {
        if (!nb_dim_check("ppermute", x, d, blocks(s, d, s->dim[d].axes.n)))
            return false;
        dims += s->dim[d].axes.n > 0;
    }
    return dims <= NB_MAX_RANK ||
           nb_fail(NB_EVALUE, "ppermute: too many dims are split");
}

/* No block to move: all or nothing. */
static nb_tensor *one_block(nb_tensor *x, int64_t from)
{
    return from < 0 ? nb_fill_like(x, 0) : x;
}

nb_tensor *nb_blocks_permute(nb_tensor *x, const int64_t *from)
{
    nb_spec s;
    int n;
    if (!nb_seen(x, &s)) return one_block(x, from[0]);
    if (!may_move(x, &s)) return NULL;
    int64_t *block = nb_alloc((size_t)s.mesh->ndevices * sizeof *block);
    if (!block || !by_block(&s, from, block)) return nb_free(block), NULL;
    x = to_front(x, &s, &n);
    x = n ? select_front(x, n, block) : one_block(x, block[0]);
    nb_free(block);
    x = from_front(x, &s);
    return x ? nb_lay_as(x, &s) : NULL;
}
