/* index_key.c - x[key] as NumPy reads it, and x[key] = value.
 *
 * A key is read into a plan of three steps.  First a window of x: slices as
 * they are, an int as one place, all else whole.  Then the window is seen in
 * another shape, the frame: ints take their axes away, new ones appear.  Last,
 * tensors pick along axes of the frame.  Reading goes through the steps down,
 * writing down and up again: pick or combine in the frame, then put the frame
 * back into the window. */
#include "nabla/device.h"
#include "nabla/index.h"

#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

typedef struct plan {
    nb_tensor *x;
    nb_window window;
    int rank; /* of the frame */
    int64_t frame[NB_MAX_RANK];
    unsigned picked; /* bit d: axis d of the frame is picked along */
    int ntensors;
    struct item {
        nb_tensor *tensor;
        int first; /* axis of the frame, of a mask the first of them */
        bool checked;
    } tensor[NB_MAX_RANK];
    int at; /* axes of the frame that stand before those of the tensors */
} plan;

static bool is_mask(const nb_tensor *t)
{
    return nb_dtype_of(t) == NB_BOOL;
}

/* Axes of x that an item speaks for. */
static int axes_of(const nb_key *k)
{
    switch (k->kind) {
    case NB_KEY_INT:
    case NB_KEY_SLICE: return 1;
    case NB_KEY_TENSOR: return is_mask(k->tensor) ? nb_rank(k->tensor) : 1;
    default: return 0;
    }
}

static bool check_items(const nb_tensor *x, int n, const nb_key *key, int *rest)
{
    int axes = 0, dots = 0;
    for (int k = 0; k < n; k++) {
        bool tensor = key[k].kind == NB_KEY_TENSOR;
        if (tensor && !key[k].tensor) return false;
        nb_dtype d = tensor ? nb_dtype_of(key[k].tensor) : NB_BOOL;
        if (d != NB_BOOL && !nb_dtype_is_integer(d))
            return nb_fail(NB_ETYPE,
                           "index: a tensor of %s is no index: integers or "
                           "bool are needed",
                           nb_dtype_name(d));
        dots += key[k].kind == NB_KEY_ELLIPSIS;
        axes += axes_of(&key[k]);
    }
    *rest = nb_rank(x) - axes;
    if (dots > 1)
        return nb_fail(NB_EINDEX, "index: %d ellipses: one at most", dots);
    if (*rest < 0)
        return nb_fail(NB_EINDEX,
                       "index: the key speaks for %d axes, rank is %d", axes,
                       nb_rank(x));
    return true;
}

static bool add_axis(plan *p, int64_t size)
{
    if (p->rank == NB_MAX_RANK)
        return nb_fail(NB_EINDEX, "index: a result of rank above %d",
                       NB_MAX_RANK);
    p->frame[p->rank++] = size;
    return true;
}

static bool add_int(plan *p, int d, int64_t i)
{
    int64_t n = nb_size(p->x, d);
    if (i < -n || i >= n)
        return nb_fail(NB_EINDEX,
                       "index: %lld is out of range for axis %d of size %lld",
                       (long long)i, d, (long long)n);
    p->window.start[d] = i < 0 ? i + n : i;
    p->window.size[d] = 1;
    return true;
}

/* An end of a slice, counted from the front and held between lo and hi. */
static int64_t end_of(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    if (i < 0) i += n;
    return i < lo ? lo : i > hi ? hi : i;
}

static bool add_slice(plan *p, int d, const nb_key *k)
{
    int64_t n = nb_size(p->x, d), step = k->step == NB_OPEN ? 1 : k->step;
    if (step == 0) return nb_fail(NB_EVALUE, "index: a slice of step 0");
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    int64_t from = k->start == NB_OPEN ? (step < 0 ? hi : lo)
                                       : end_of(k->start, n, lo, hi);
    int64_t to =
        k->stop == NB_OPEN ? (step < 0 ? lo : hi) : end_of(k->stop, n, lo, hi);
    int64_t way = step < 0 ? from - to : to - from;
    int64_t by = step < 0 ? -step : step;
    int64_t size = way > 0 ? (way - 1) / by + 1 : 0;
    p->window.start[d] = size ? from : 0;
    p->window.step[d] = size > 1 ? step : 1;
    p->window.size[d] = size;
    return add_axis(p, size);
}

/* A mask without axes picks from a new axis of one. */
static bool add_tensor(plan *p, int d, const nb_key *k)
{
    nb_tensor *t = k->tensor;
    int n = axes_of(k);
    if (p->ntensors == NB_MAX_RANK)
        return nb_fail(NB_EINDEX, "index: more than %d tensors", NB_MAX_RANK);
    p->tensor[p->ntensors++] = (struct item){t, p->rank, k->checked};
    for (int i = 0; is_mask(t) && i < n; i++)
        if (nb_size(t, i) != nb_size(p->x, d + i))
            return nb_fail(NB_EINDEX,
                           "index: a mask of size %lld along axis %d of size "
                           "%lld",
                           (long long)nb_size(t, i), d + i,
                           (long long)nb_size(p->x, d + i));
    for (int i = 0; i < (n ? n : 1); i++) {
        p->picked |= 1u << p->rank;
        if (!add_axis(p, n ? nb_size(p->x, d + i) : 1)) return false;
    }
    return true;
}

static bool add_item(plan *p, int d, const nb_key *k, int rest)
{
    bool ok = true;
    switch (k->kind) {
    case NB_KEY_INT: return add_int(p, d, k->at);
    case NB_KEY_SLICE: return add_slice(p, d, k);
    case NB_KEY_NEWAXIS: return add_axis(p, 1);
    case NB_KEY_TENSOR: return add_tensor(p, d, k);
    default:
        for (int i = 0; ok && i < rest; i++)
            ok = add_axis(p, nb_size(p->x, d + i));
        return ok;
    }
}

static int kept_axes(const plan *p)
{
    return p->rank - __builtin_popcount(p->picked);
}

/* Where the tensors' axes go: to the place of the first tensor or int if
 * nothing else is between these, else to the front. */
static bool read_key(plan *p, nb_tensor *x, int n, const nb_key *key)
{
    const nb_key all = {.kind = NB_KEY_ELLIPSIS};
    int rest = 0, d = 0, runs = 0;
    bool dots = false, inside = false;
    if (!x || !check_items(x, n, key, &rest)) return false;
    *p = (plan){.x = x, .window = nb_window_of(x)};
    for (int k = 0; k < n; k++) {
        nb_key_kind kind = key[k].kind;
        bool picks = kind == NB_KEY_INT || kind == NB_KEY_TENSOR;
        if (picks && !inside && runs++ == 0) p->at = kept_axes(p);
        inside = picks;
        if (!add_item(p, d, &key[k], rest)) return false;
        dots = dots || kind == NB_KEY_ELLIPSIS;
        d += kind == NB_KEY_ELLIPSIS ? rest : axes_of(&key[k]);
    }
    if (runs > 1) p->at = 0;
    return dots || add_item(p, d, &all, rest);
}

static bool is_whole(const plan *p)
{
    bool whole = true;
    for (int d = 0; d < nb_rank(p->x); d++)
        whole = whole && p->window.size[d] == nb_size(p->x, d) &&
                p->window.step[d] == 1;
    return whole;
}

static nb_tensor *open_frame(const plan *p)
{
    const nb_window *w = &p->window;
    nb_tensor *x = is_whole(p) ? nb_same(p->x)
                               : nb_slice(p->x, w->start, w->size, w->step);
    return nb_reshape(x, p->rank, p->frame);
}

/* x with the window replaced by what is in the frame. */
static nb_tensor *close_frame(const plan *p, nb_tensor *frame)
{
    if (!frame) return NULL;
    frame = nb_reshape(frame, nb_rank(p->x), p->window.size);
    if (is_whole(p)) return frame;
    return nb_update(p->x, frame, p->window.start, p->window.step);
}

/* Tensors as indices, one for each axis that is picked along, all of one
 * shape. */
typedef struct picks {
    int n, rank;
    nb_tensor *index[NB_MAX_RANK];
    int64_t axes[NB_MAX_RANK], size[NB_MAX_RANK];
    bool checked[NB_MAX_RANK];
} picks;

static int64_t count_true(const char *data, int rank, const int64_t *size,
                          const int64_t *stride, int64_t *to, int64_t room)
{
    int64_t at[NB_MAX_RANK] = {0}, n = 0;
    for (int d = 0; d < rank; d++)
        if (size[d] == 0) return 0;
    for (int d = 0; d >= 0;) {
        int64_t offset = 0;
        for (int k = 0; k < rank; k++)
            offset += at[k] * stride[k];
        for (int k = 0; to && data[offset] && k < rank; k++)
            to[k * room + n] = at[k];
        n += data[offset] != 0;
        for (d = rank - 1; d >= 0 && ++at[d] == size[d]; d--)
            at[d] = 0;
    }
    return n;
}

/* The places where the mask is true, axis by axis.  One without axes names
 * element 0 of its new axis, or nothing. */
static bool add_mask(picks *s, nb_tensor *mask, int first, int device)
{
    int64_t size[NB_MAX_RANK], stride[NB_MAX_RANK];
    int rank = nb_rank(mask);
    const char *data = nb_data(mask, stride);
    if (!data) return false;
    nb_sizes(mask, size);
    int64_t n = count_true(data, rank, size, stride, NULL, 0);
    int64_t *places =
        nb_alloc_zero((size_t)(n * (rank ? rank : 1) + 1) * sizeof *places);
    bool ok = places;
    if (ok) count_true(data, rank, size, stride, places, n);
    for (int d = 0; ok && d < (rank ? rank : 1); d++) {
        s->axes[s->n] = first + d;
        s->index[s->n] =
            nb_on_at_once(nb_constant(NB_I64, 1, &n, places + d * n), device);
        ok = s->index[s->n++];
    }
    nb_free(places);
    return ok;
}

static bool join_shapes(picks *s)
{
    for (int k = 0; k < s->n; k++)
        if (nb_rank(s->index[k]) > s->rank) s->rank = nb_rank(s->index[k]);
    for (int d = 0; d < s->rank; d++)
        s->size[d] = 1;
    for (int k = 0; k < s->n; k++) {
        int lead = s->rank - nb_rank(s->index[k]);
        for (int d = lead; d < s->rank; d++) {
            int64_t n = nb_size(s->index[k], d - lead);
            if (s->size[d] == 1) s->size[d] = n;
            if (n != 1 && n != s->size[d])
                return nb_fail(NB_EINDEX,
                               "index: tensors of sizes %lld and %lld do not "
                               "broadcast",
                               (long long)s->size[d], (long long)n);
        }
    }
    return true;
}

static bool check_range(const plan *p, const picks *s, int k)
{
    int64_t n = nb_elements(s->index[k]), size = p->frame[s->axes[k]];
    int64_t *value = nb_alloc((size_t)(n + 1) * sizeof *value);
    bool ok = value && nb_read(s->index[k], NB_I64, value) == NB_OK;
    bool big = nb_dtype_of(s->index[k]) == NB_U64;
    for (int64_t i = 0; ok && i < n; i++)
        if (value[i] < (big ? 0 : -size) || value[i] >= size)
            ok = nb_fail(NB_EINDEX,
                         "index: %lld is out of range for an axis of size "
                         "%lld",
                         (long long)value[i], (long long)size);
    nb_free(value);
    return ok;
}

/* Values at hand are where x is, and so is what has no axes. */
static int device_of(const plan *p, int k)
{
    const nb_tensor *t = p->tensor[k].tensor;
    bool follows = p->tensor[k].checked || nb_rank(t) == 0;
    return nb_device_of(follows ? p->x : t);
}

static bool find_picks(const plan *p, picks *s)
{
    bool ok = true;
    int64_t points = 1;
    *s = (picks){0};
    for (int k = 0; ok && k < p->ntensors; k++) {
        if (is_mask(p->tensor[k].tensor)) {
            ok = add_mask(s, p->tensor[k].tensor, p->tensor[k].first,
                          device_of(p, k));
            continue;
        }
        s->axes[s->n] = p->tensor[k].first;
        s->checked[s->n] = p->tensor[k].checked;
        s->index[s->n++] = p->tensor[k].tensor;
    }
    ok = ok && join_shapes(s);
    for (int d = 0; d < s->rank; d++)
        points *= s->size[d];
    for (int k = 0; ok && k < s->n; k++) {
        if (s->checked[k] && (points || nb_rank(s->index[k]) == 0))
            ok = check_range(p, s, k);
        if (s->checked[k])
            s->index[k] = nb_on_at_once(s->index[k], nb_device_of(p->x));
        s->index[k] = nb_broadcast_to(s->index[k], s->rank, s->size);
        ok = ok && s->index[k];
    }
    return ok;
}

static nb_pick pick_of(const plan *p, const picks *s, bool clamp)
{
    return (nb_pick){s->n, s->index, s->axes, p->at, clamp};
}

nb_tensor *nb_get(nb_tensor *x, int n, const nb_key *key)
{
    plan p;
    picks s;
    if (!read_key(&p, x, n, key)) return NULL;
    if (p.ntensors == 0) return open_frame(&p);
    if (!find_picks(&p, &s)) return NULL;
    nb_pick pick = pick_of(&p, &s, true);
    return nb_index(open_frame(&p), &pick);
}

static const struct mode {
    const char *name;
    nb_op *place;
    nb_tensor *(*combine)(nb_tensor *old, nb_tensor *value); /* NULL: value */
} modes[] = {
    {"set", &nb_op_index_set, NULL},
    {"add", &nb_op_index_add, nb_add},
    {"mul", &nb_op_index_mul, nb_mul},
    {"min", &nb_op_index_min, nb_minimum},
    {"max", &nb_op_index_max, nb_maximum},
};

static const struct mode *find_mode(const char *name)
{
    for (int k = 0; k < 5; k++)
        if (!strcmp(modes[k].name, name ? name : "set")) return &modes[k];
    return nb_fail(NB_EVALUE,
                   "index: mode \"%s\": one of set, add, mul, min, max is "
                   "needed",
                   name);
}

/* As an assignment does: leading ones that are too many go. */
static nb_tensor *trimmed(nb_tensor *value, int rank)
{
    int64_t size[NB_MAX_RANK];
    int n = nb_rank(value), drop = 0;
    nb_sizes(value, size);
    while (n - drop > rank && size[drop] == 1)
        drop++;
    return drop ? nb_reshape(value, n - drop, size + drop) : value;
}

static nb_tensor *fitted(nb_tensor *value, int rank, const int64_t *size)
{
    value = trimmed(value, rank);
    if (!value) return NULL;
    int lead = rank - nb_rank(value);
    bool fits = lead >= 0;
    for (int d = lead; fits && d < rank; d++)
        fits = nb_size(value, d - lead) == 1 ||
               nb_size(value, d - lead) == size[d];
    if (fits) return nb_broadcast_to(value, rank, size);
    nb_shape s = nb_tensor_shape(value);
    return nb_fail(NB_EVALUE,
                   "index: a value of shape %s does not broadcast to %s, the "
                   "shape of the key",
                   nb_shape_text(&s), nb_sizes_text(rank, size));
}

static nb_tensor *combined(const struct mode *m, nb_tensor *old,
                           nb_tensor *value)
{
    return m->combine ? m->combine(old, value) : value;
}

/* Sizes of the frame's axes that are not picked along, from the i-th on. */
static int kept_sizes(const plan *p, int i, int64_t *size)
{
    int n = 0;
    for (int d = 0; d < p->rank; d++)
        if (!(p->picked >> d & 1) && i-- <= 0) size[n++] = p->frame[d];
    return n;
}

/* A value that only runs along axes behind those of the one mask is chosen or
 * not at each place, whatever their number. */
static bool is_choice(const plan *p, nb_tensor *value)
{
    int64_t size[NB_MAX_RANK];
    return p->ntensors == 1 && is_mask(p->tensor[0].tensor) &&
           nb_rank(value) <= kept_sizes(p, p->at, size);
}

/* x along axes of the frame, where `along` has a bit for each of its own, with
 * ones for the others. */
static nb_tensor *spaced(const plan *p, nb_tensor *x, unsigned along)
{
    int64_t size[NB_MAX_RANK];
    for (int d = 0, k = 0; d < p->rank; d++)
        size[d] = along >> d & 1 ? nb_size(x, k++) : 1;
    return nb_reshape(x, p->rank, size);
}

static nb_tensor *choose(const plan *p, const struct mode *m, nb_tensor *old,
                         nb_tensor *value)
{
    int64_t size[NB_MAX_RANK];
    unsigned behind = 0;
    int rank = kept_sizes(p, p->at, size), kept = 0;
    nb_tensor *mask = p->tensor[0].tensor;
    if (p->tensor[0].checked) mask = nb_on_at_once(mask, device_of(p, 0));
    if (!mask) return NULL;
    for (int d = 0; d < p->rank; d++)
        if (!(p->picked >> d & 1) && kept++ >= p->at) behind |= 1u << d;
    if (!(value = fitted(value, rank, size)) || !old) return NULL;
    value = spaced(p, value, behind);
    mask = spaced(p, mask, nb_rank(mask) ? p->picked : 0);
    return nb_where(mask, combined(m, old, value), old);
}

static nb_tensor *place(const plan *p, const struct mode *m, nb_tensor *old,
                        nb_tensor *value)
{
    picks s;
    int64_t size[2 * NB_MAX_RANK], kept[NB_MAX_RANK];
    if (!find_picks(p, &s)) return NULL;
    int nkept = kept_sizes(p, 0, kept);
    if (nkept + s.rank > NB_MAX_RANK)
        return nb_fail(NB_EINDEX, "index: a result of rank above %d",
                       NB_MAX_RANK);
    for (int d = 0; d < nkept; d++)
        size[d < p->at ? d : d + s.rank] = kept[d];
    memcpy(size + p->at, s.size, (size_t)s.rank * sizeof *size);
    nb_pick pick = pick_of(p, &s, false);
    return nb_place(m->place, old, fitted(value, nkept + s.rank, size), &pick);
}

nb_tensor *nb_set(nb_tensor *x, int n, const nb_key *key, nb_tensor *value,
                  const char *mode)
{
    plan p;
    const struct mode *m = find_mode(mode);
    if (!m || !value || !read_key(&p, x, n, key)) return NULL;
    value = nb_cast(value, nb_dtype_of(x));
    if (nb_rank(value) == 0) value = nb_to_device(value, nb_device_of(x));
    if (!value) return NULL;
    if (p.ntensors == 0) {
        value = fitted(value, p.rank, p.frame);
        nb_tensor *old = m->combine ? open_frame(&p) : NULL;
        return close_frame(&p, value ? combined(m, old, value) : NULL);
    }
    nb_tensor *old = open_frame(&p);
    return close_frame(&p, is_choice(&p, value) ? choose(&p, m, old, value)
                                                : place(&p, m, old, value));
}
