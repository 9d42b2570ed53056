/* price.c - what a step moves, and what every plan must.
 *
 * A device has a box of the tensor and wants another.  What it receives is what
 * of the second is not in the first; of boxes that are pending it receives one
 * of each other member of the group, in a reduce-scatter directly, in an
 * all-reduce piece by piece: block i of n of what it has is reduced by member
 * i, which sends it to all. */
#include "shard/plan/deal.h"
#include "shard/plan/settle.h"

enum { FEW_DEVICES = 1024 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static int64_t common_elements(const nb_box *a, const nb_box *b, int rank)
{
    nb_box common;
    return nb_box_meet(rank, a, b, &common) ? nb_box_count(rank, &common) : 0;
}

/* Positions are those of the first mesh; the second may number the same
 * devices otherwise. */
static void boxes(const nb_spec *from, const nb_spec *into, const int64_t *size,
                  int position, nb_box *has, nb_box *wants)
{
    int there = position;
    if (from->mesh != into->mesh)
        there = nb_mesh_position(into->mesh, from->mesh->device[position]);
    nb_spec_box(from, size, position, has);
    nb_spec_box(into, size, there, wants);
}

/* Elements that some device lacks, at most.  Which block of a dim one has does
 * not depend on the other dims, so a dim that is split the same before and
 * after only multiplies: by its largest block. */
static int64_t lacking(const nb_spec *from, const nb_spec *into,
                       const int64_t *size)
{
    bool across = from->mesh != into->mesh;
    int64_t most = 0, times = 1;
    nb_spec a = {.mesh = from->mesh}, b = {.mesh = into->mesh};
    int64_t sizes[NB_MAX_DIMS];
    for (int d = 0; d < from->rank; d++) {
        const nb_cut *x = &from->dim[d].axes, *y = &into->dim[d].axes;
        if (!across && nb_cut_equal(x, y)) {
            times *= ceil_div(size[d], nb_cut_count(x));
            continue;
        }
        a.dim[a.rank++].axes = *x;
        b.dim[b.rank].axes = *y;
        sizes[b.rank++] = size[d];
    }
    for (int p = 0; p < from->mesh->ndevices; p++) {
        nb_box has, wants;
        boxes(&a, &b, sizes, p, &has, &wants);
        int64_t n = nb_box_count(a.rank, &wants) -
                    common_elements(&has, &wants, a.rank);
        if (n > most) most = n;
    }
    return most * times;
}

static bool is_even(const nb_spec *s, const int64_t *size)
{
    for (int d = 0; d < s->rank; d++)
        if (size[d] % nb_cut_count(&s->dim[d].axes)) return false;
    return true;
}

/* Elements that a device surely keeps where lists only grow or shrink. */
static int64_t least_kept(const nb_spec *from, const nb_spec *into,
                          const int64_t *size)
{
    int64_t n = 1;
    for (int d = 0; d < from->rank; d++) {
        int64_t a = nb_cut_count(&from->dim[d].axes);
        int64_t b = nb_cut_count(&into->dim[d].axes);
        n *= size[d] / (a > b ? a : b);
    }
    return n;
}

/* For moves within a group.  Exact if all blocks are equal or there are not too
 * many devices to look at each; else it may be a block's edge too much. */
static int64_t moved(const nb_hop *s, const int64_t *size)
{
    bool even = is_even(s->from, size) && is_even(s->into, size);
    int64_t all = nb_spec_elements(s->into, size);
    if (!even && s->from->mesh->ndevices <= FEW_DEVICES)
        return lacking(s->from, s->into, size);
    if (s->kind == NB_HOP_PERMUTE) return all;
    return all - least_kept(s->from, s->into, size);
}

/* Number of the block that has element e; empty ones are passed over. */
static int64_t block_of(int64_t d, int64_t n, int64_t e)
{
    return (int64_t)(((__int128)(e + 1) * n - 1) / d);
}

/* Devices from which one receives in an exchange: the owners of other blocks
 * that meet what it wants. */
static int sources(const nb_spec *from, const nb_box *has, const nb_box *wants,
                   const int64_t *size)
{
    int64_t n = 1;
    if (!nb_box_count(from->rank, wants)) return 0;
    for (int d = 0; d < from->rank; d++) {
        int64_t k = nb_cut_count(&from->dim[d].axes), w = wants->size[d];
        int64_t met = block_of(size[d], k, wants->start[d] + w - 1) -
                      block_of(size[d], k, wants->start[d]) + 1;
        n *= met < w ? met : w;
    }
    return (int)(n - (common_elements(has, wants, from->rank) > 0));
}

static int exchange_messages(const nb_hop *s, const int64_t *size)
{
    int most = 0;
    for (int p = 0; p < s->from->mesh->ndevices; p++) {
        nb_box has, wants;
        boxes(s->from, s->into, size, p, &has, &wants);
        int n = sources(s->from, &has, &wants, size);
        if (n > most) most = n;
    }
    return most;
}

/* Of the slowest of the axes. */
static double slowest(const double *cost, const nb_cut *l)
{
    double most = 0;
    for (int i = 0; i < l->n; i++)
        if (cost[l->at[i].axis] > most) most = cost[l->at[i].axis];
    return most;
}

bool nb_hop_price(nb_hop *s, const int64_t *size, int item)
{
    const nb_mesh *m = s->from->mesh;
    int64_t n = nb_cut_count(&s->axes), elements = 0, local = 0;
    s->messages = 0;
    switch (s->kind) {
    case NB_HOP_SLICE:
    case NB_HOP_UNREDUCE: break;
    case NB_HOP_ALL_GATHER:
    case NB_HOP_ALL_TO_ALL:
        elements = moved(s, size);
        s->messages = (int)n - 1;
        break;
    case NB_HOP_PERMUTE:
        elements = moved(s, size);
        s->messages = 1;
        break;
    case NB_HOP_REDUCE_SCATTER:
        elements = (n - 1) * nb_spec_elements(s->into, size);
        s->messages = (int)n - 1;
        break;
    case NB_HOP_ALL_REDUCE:
        local = nb_spec_elements(s->into, size);
        elements = local + (n - 2) * ceil_div(local, n);
        s->messages = 2 * ((int)n - 1);
        break;
    case NB_HOP_EXCHANGE:
        elements = lacking(s->from, s->into, size);
        s->messages = exchange_messages(s, size);
        break;
    case NB_HOP_REDUCE_EXCHANGE:
        elements = nb_settling_price(s, size, &s->messages);
        break;
    }
    if (elements < 0) return false;
    s->bytes = elements * item;
    /* Of a few elements one device has more to do than the others; that is no
     * reason to reduce over fewer devices at a time. */
    double paid = s->kind == NB_HOP_ALL_REDUCE
                      ? 2.0 * (double)(local * (n - 1)) / (double)n * item
                      : (double)s->bytes;
    s->seconds = s->messages * slowest(m->message, &s->axes) +
                 paid * slowest(m->byte, &s->axes);
    return true;
}

int64_t nb_hop_memory(const nb_hop *s, const int64_t *size, int item)
{
    return item *
           (nb_spec_elements(s->from, size) + nb_spec_elements(s->into, size));
}

/* Whether all that a has is in b: both are merged, so piece by piece. */
static bool is_within(const nb_cut *a, const nb_cut *b)
{
    for (int i = 0; i < a->n; i++) {
        nb_axis x = a->at[i];
        bool found = false;
        for (int k = 0; k < b->n && !found; k++) {
            nb_axis y = b->at[k];
            found = x.axis == y.axis && x.pre >= y.pre &&
                    (int64_t)x.pre * x.size <= (int64_t)y.pre * y.size;
        }
        if (!found) return false;
    }
    return true;
}

/* Where there are too many to look at each: every element that is wanted must
 * come, and n addends took n - 1 receives before one had the sum (settle.c). */
static int64_t reduced_bound(const nb_spec *into, const int64_t *size,
                             int64_t n)
{
    __int128 total = 0;
    int64_t most = nb_spec_elements(into, size), all = 1;
    int devices = into->mesh->ndevices;
    for (int d = 0; d < into->rank; d++)
        all *= size[d];
    for (int p = 0; p < devices; p++) {
        nb_box wants;
        nb_spec_box(into, size, p, &wants);
        total += nb_box_count(into->rank, &wants);
    }
    total += (__int128)all * (n - 2) * nb_cut_count(&into->partial);
    int64_t mean = (int64_t)((total + devices - 1) / devices);
    return most > mean ? most : mean;
}

/* Where the target wants addends that were none before, anybody may have them:
 * nothing need move. */
int64_t nb_reshard_bound(const nb_reshard_task *t)
{
    const nb_spec *from = t->from, *into = t->into;
    nb_hop all = {.from = from, .into = into};
    int64_t n = nb_cut_count(&from->partial);
    if (into->partial.n &&
        (from->mesh != into->mesh || from->kind != into->kind ||
         !is_within(&into->partial, &from->partial)))
        return 0;
    n /= nb_cut_count(&into->partial);
    if (n == 1) return t->item * lacking(from, into, t->size);
    bool few = nb_reshard_all_axes(t, &all.axes) &&
               nb_cut_count(&all.axes) <= NB_SETTLING_DEVICES;
    return t->item * (few ? nb_settling_bound(&all, t->size)
                          : reduced_bound(into, t->size, n));
}
