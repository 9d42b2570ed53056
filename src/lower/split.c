/* split.c - a reduction with few results as two nests: parts of it, then the
 * parts together.
 *
 * Where a nest has fewer units than a machine has threads and each is long, or
 * where it sums what lies far apart, an inner axis is cut into chunks, which
 * become an outer axis.  The first nest leaves one total a chunk; the second
 * adds these up and goes on.  How many
 * chunks there are depends on the extents alone, so the sums do not depend on
 * the machine. */
#include "lower/split.h"

#include <limits.h>
#include <string.h>

enum {
    FEW_UNITS = 32,
    MANY_POINTS = 1 << 16,
    SOME_POINTS = 1 << 12, /* of those that may become many */
    CHUNK = 1 << 14,
    MAX_CHUNKS = 64,
    CARD_UNITS = 1 << 11, /* of a card's work: a few for each processor */
    CARD_CHUNK = 1 << 11,
    CARD_ACROSS = 1 << 8, /* the least, where columns of vectors are summed */
    CARD_SIDE = 32,
    CARD_VECTOR = 8,
    FAR = 1 << 13,
    FEW_PAGES = 8,
    LARGE = 1 << 23
};

/* Which values wait for a reduction. */
static void find_late(const nb_nest *x, bool *late)
{
    for (int k = 0; k < x->n; k++) {
        late[k] = false;
        for (int i = 0; i < nb_nest_args(&x->value[k]); i++) {
            int a = x->value[k].arg[i];
            late[k] |= late[a] || x->value[a].kind == NB_NEST_REDUCE;
        }
    }
}

/* The inner axis to cut: the longest. */
static int longest(const nb_nest *x)
{
    int best = -1;
    for (int a = 0; a < x->naxes; a++)
        if (x->inner >> a & 1 && (best < 0 || x->size[a] > x->size[best]))
            best = a;
    return best;
}

/* Whether what is summed lies far apart and is more than caches hold.  Memory is
 * read ahead along a few pages at a time: then a unit is to walk over so many
 * only, and the next goes on in them. */
static bool is_scattered(const nb_nest *x)
{
    int a = longest(x);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        int64_t step = v->stride[a] * (int64_t)nb_dtype_size(v->stored);
        if (v->kind != NB_NEST_LOAD || step < FAR || step * x->size[a] < LARGE)
            continue;
        for (int o = 0; o < x->naxes; o++)
            if (!(x->inner >> o & 1) && v->stride[o] == 1) return true;
    }
    return false;
}

/* Accesses that run along the axis without gaps, less those that jump. */
static int liking(const nb_nest *x, int a)
{
    int n = 0;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (!nb_nest_in_memory(v) || !v->stride[a]) continue;
        n += v->stride[a] == 1 ? 1 : -1;
    }
    return n;
}

/* Whether sums go across the memory that units lie along: then a card takes so
 * many of these side by side. */
static bool goes_across(const nb_nest *x)
{
    int side = -1, inner = INT_MIN;
    for (int a = 0; a < x->naxes; a++)
        if (!(x->inner >> a & 1))
            side = a;
        else if (liking(x, a) > inner)
            inner = liking(x, a);
    return side >= 0 && liking(x, side) > inner;
}

/* Units of the work that a card would share out. */
static int64_t card_units(const nb_nest *x)
{
    int64_t units = nb_nest_units(x);
    return goes_across(x) ? (units + CARD_SIDE - 1) / CARD_SIDE : units;
}

static bool are_few(const nb_nest *x, bool any_size, bool card)
{
    int64_t units = nb_nest_units(x), each = nb_nest_points(x) / units;
    if (card) return card_units(x) < CARD_UNITS / 2 && each >= 2 * CARD_CHUNK;
    return units < FEW_UNITS && each >= (any_size ? SOME_POINTS : MANY_POINTS);
}

bool nb_nest_splits(const nb_nest *x, bool any_size, bool card)
{
    int64_t units = nb_nest_units(x);
    bool late[NB_MAX_SPLIT_VALUES], reduces = false;
    if (!x->inner || x->n > NB_MAX_SPLIT_VALUES) return false;
    if (x->naxes == NB_MAX_NEST_AXES || x->cut) return false;
    if (units == 0 || x->size[longest(x)] < 4) return false;
    bool scattered = !any_size && !card && is_scattered(x);
    if (!are_few(x, any_size, card) && !scattered) return false;
    find_late(x, late);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (v->kind == NB_NEST_CARRY || v->kind == NB_NEST_SCAN) return false;
        reduces = reduces || v->kind == NB_NEST_REDUCE;
        if (late[k] && (v->axes & x->inner || v->kind == NB_NEST_REDUCE))
            return false;
    }
    return reduces;
}

static int64_t pieces(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* So many that a card has all its blocks at work. */
static int64_t card_chunks(const nb_nest *x, int a, int64_t *size)
{
    int64_t each = nb_nest_points(x) / nb_nest_units(x);
    int64_t n = CARD_UNITS / card_units(x);
    int64_t least = goes_across(x) ? CARD_ACROSS : CARD_CHUNK;
    if (n > each / least) n = each / least;
    if (n > x->size[a]) n = x->size[a];
    *size = pieces(x->size[a], n);
    if (*size >= CARD_VECTOR || x->size[a] % CARD_VECTOR == 0)
        *size = pieces(*size, CARD_VECTOR) * CARD_VECTOR; /* whole vectors */
    return pieces(x->size[a], *size);
}

static int64_t chunks_of(const nb_nest *x, int a, bool any_size, bool card,
                         int64_t *size)
{
    if (card && !any_size) return card_chunks(x, a, size);
    *size = pieces(x->size[a], MAX_CHUNKS);
    if (any_size) return MAX_CHUNKS;
    if (is_scattered(x)) {
        *size = FEW_PAGES;
        return pieces(x->size[a], FEW_PAGES);
    }
    int64_t points = nb_nest_points(x) / nb_nest_units(x);
    int64_t n = points / CHUNK;
    if (n > MAX_CHUNKS) n = MAX_CHUNKS;
    if (n > x->size[a]) n = x->size[a];
    *size = pieces(x->size[a], n);
    return pieces(x->size[a], *size);
}

bool nb_slot_is_cut(const nb_nest *x, int slot)
{
    if (!x->cut || slot < NB_SLOT_VALUES) return x->cut && slot == x->cut;
    int k = (slot - NB_SLOT_VALUES) / NB_VALUE_SLOTS;
    return slot == nb_slot_stride(k, 0) && x->value[k].stride[x->cut];
}

void nb_nest_settle_cut(nb_nest *x)
{
    if (!x->cut) return;
    x->size[x->cut] = pieces(x->cut_size, x->size[0]);
    for (int k = 0; k < x->n; k++)
        if (x->value[k].stride[x->cut])
            x->value[k].stride[0] =
                x->value[k].stride[x->cut] * x->size[x->cut];
}

/* The value in a nest with one more axis in front: chunks of axis a. */
static nb_nest_value moved(const nb_nest_value *v, int a, int64_t size)
{
    nb_nest_value m = *v;
    memmove(m.stride + 1, v->stride,
            (NB_MAX_NEST_AXES - 1) * sizeof *v->stride);
    m.stride[0] = v->stride[a] * size;
    m.axes = v->axes << 1 | (v->axes >> a & 1);
    return m;
}

/* Where the total of outer points lies: strides along x's outer axes. */
static void total_strides(const nb_nest *x, int64_t *stride)
{
    int64_t step = 1;
    for (int a = x->naxes - 1; a >= 0; a--) {
        stride[a] = 0;
        if (x->inner >> a & 1) continue;
        stride[a] = step;
        step *= x->size[a];
    }
}

static bool first_nest(const nb_nest *x, int a, int64_t chunks, int64_t size,
                       const bool *late, nb_nest *to)
{
    int64_t stride[NB_MAX_NEST_AXES], units = nb_nest_units(x);
    int at[NB_MAX_SPLIT_VALUES], buffer = x->nbuffers;
    to->naxes = x->naxes + 1;
    memcpy(to->size + 1, x->size, (size_t)x->naxes * sizeof *x->size);
    to->size[0] = chunks;
    to->size[a + 1] = size;
    to->inner = x->inner << 1;
    to->cut = a + 1;
    to->cut_size = x->size[a];
    total_strides(x, stride);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (late[k]) continue;
        nb_nest_value m = moved(v, a, size);
        for (int i = 0; i < nb_nest_args(v); i++)
            m.arg[i] = at[v->arg[i]];
        if (v->kind == NB_NEST_REDUCE) m.axes |= 1;
        at[k] = to->n;
        if (!nb_nest_add(to, m)) return false;
        if (v->kind != NB_NEST_REDUCE) continue;
        nb_nest_value s = {.kind = NB_NEST_STORE,
                           .stored = v->dtype,
                           .dtype = v->dtype,
                           .axes = m.axes,
                           .buffer = buffer++,
                           .arg = {at[k], at[k], at[k]}};
        memcpy(s.stride + 1, stride, (size_t)x->naxes * sizeof *stride);
        s.stride[0] = units;
        if (!nb_nest_add(to, s)) return false;
    }
    to->nbuffers = buffer;
    return true;
}

/* Outer axes as they were, and one inner axis of chunks at the end. */
static bool second_nest(const nb_nest *x, int64_t chunks, nb_nest *to)
{
    int64_t stride[NB_MAX_NEST_AXES], units = nb_nest_units(x);
    int at[NB_MAX_SPLIT_VALUES], outer[NB_MAX_NEST_AXES];
    int buffer = x->nbuffers;
    total_strides(x, stride);
    for (int a = 0; a < x->naxes; a++) {
        if (x->inner >> a & 1) continue;
        outer[to->naxes] = a;
        to->size[to->naxes++] = x->size[a];
    }
    to->size[to->naxes] = chunks;
    to->inner = 1u << to->naxes++;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (v->axes & x->inner) continue;
        nb_nest_value m = *v;
        m.axes = 0;
        memset(m.stride, 0, sizeof m.stride);
        bool sums = v->kind == NB_NEST_REDUCE;
        for (int o = 0; o < to->naxes - 1; o++) {
            m.stride[o] = sums ? stride[outer[o]] : v->stride[outer[o]];
            m.axes |= (v->axes >> outer[o] & 1) << o;
        }
        if (sums) {
            nb_nest_value l = {.kind = NB_NEST_LOAD,
                               .dtype = v->dtype,
                               .stored = v->dtype,
                               .buffer = buffer++,
                               .axes = m.axes | to->inner};
            memcpy(l.stride, m.stride, sizeof l.stride);
            l.stride[to->naxes - 1] = units;
            /* A total may vary along fewer axes than it is stored along. */
            for (int o = 0; o < to->naxes - 1; o++)
                if (!(m.axes >> o & 1)) l.stride[o] = 0;
            if (!nb_nest_add(to, l)) return false;
        }
        for (int i = 0; i < nb_nest_args(v); i++)
            m.arg[i] = sums ? to->n - 1 : at[v->arg[i]];
        at[k] = to->n;
        if (!nb_nest_add(to, m)) return false;
    }
    to->nbuffers = buffer;
    return true;
}

/* Leaves out what no store needs. */
static void prune(nb_nest *x)
{
    bool need[2 * NB_MAX_SPLIT_VALUES];
    int at[2 * NB_MAX_SPLIT_VALUES], n = 0;
    for (int k = x->n - 1; k >= 0; k--)
        need[k] = x->value[k].kind == NB_NEST_STORE;
    for (int k = x->n - 1; k >= 0; k--)
        for (int i = 0; need[k] && i < nb_nest_args(&x->value[k]); i++)
            need[x->value[k].arg[i]] = true;
    for (int k = 0; k < x->n; k++) {
        nb_nest_value v = x->value[k];
        if (!need[k]) continue;
        for (int i = 0; i < nb_nest_args(&v); i++)
            v.arg[i] = at[v.arg[i]];
        at[k] = n;
        x->value[n++] = v;
    }
    x->n = n;
}

static int64_t total_bytes(const nb_nest *x, int64_t chunks, int64_t *bytes)
{
    int n = 0;
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_REDUCE)
            bytes[n++] = chunks * nb_nest_units(x) *
                         (int64_t)nb_dtype_size(x->value[k].dtype);
    return n;
}

bool nb_nest_split(const nb_nest *x, bool any_size, bool card, nb_nest **first,
                   nb_nest **second, int64_t *bytes)
{
    bool late[NB_MAX_SPLIT_VALUES];
    int a = longest(x);
    int64_t size, chunks = chunks_of(x, a, any_size, card, &size);
    find_late(x, late);
    *first = nb_alloc_zero(sizeof **first);
    *second = nb_alloc_zero(sizeof **second);
    bool ok = *first && *second &&
              first_nest(x, a, chunks, size, late, *first) &&
              second_nest(x, chunks, *second);
    if (ok) {
        total_bytes(x, chunks, bytes);
        prune(*first);
        prune(*second);
        return true;
    }
    nb_nest_free(*first);
    nb_nest_free(*second);
    return false;
}
