/* nest.c - building, simplifying, naming loop programs. */
#include "lower/nest.h"

#include <math.h>
#include <string.h>

enum { MAX_PASSED = 256 };

static const struct {
    const char *name;
    int cost;
} scalars[] = {
    {"none", 0},
#define SCALAR(name, form, types, cost, f, i) {#name, cost},
#include "core/scalars.def"
};

int nb_scalar_cost(nb_scalar s)
{
    return scalars[s].cost;
}

const char *nb_scalar_name(nb_scalar s)
{
    return scalars[s].name;
}

nb_scalar nb_reduce_scalar(nb_reduce r)
{
    static const nb_scalar by[] = {
        [NB_SUM] = NB_S_add,  [NB_MAX] = NB_S_max, [NB_MIN] = NB_S_min,
        [NB_PROD] = NB_S_mul, [NB_AND] = NB_S_min, [NB_OR] = NB_S_max};
    return by[r];
}

double nb_reduce_neutral(nb_reduce r)
{
    static const double by[] = {
        [NB_SUM] = 0,  [NB_MAX] = -INFINITY, [NB_MIN] = INFINITY,
        [NB_PROD] = 1, [NB_AND] = INFINITY,  [NB_OR] = -INFINITY};
    return by[r];
}

nb_nest_value *nb_nest_add(nb_nest *x, nb_nest_value v)
{
    if (!nb_grow(&x->value, &x->room, x->n + 1, sizeof v)) return NULL;
    x->value[x->n] = v;
    return &x->value[x->n++];
}

void nb_nest_free(nb_nest *x)
{
    if (!x) return;
    nb_free(x->value);
    nb_free(x->param);
    nb_free(x);
}

nb_nest *nb_nest_copy(const nb_nest *x)
{
    nb_nest *y = nb_alloc(sizeof *y);
    size_t params = (size_t)nb_nest_slots(x) * sizeof *x->param;
    if (!y) return NULL;
    *y = *x;
    y->room = x->n;
    y->value = nb_alloc((size_t)(x->n + 1) * sizeof *x->value);
    y->param = x->param ? nb_alloc(params) : NULL;
    if (!y->value || (x->param && !y->param)) return nb_nest_free(y), NULL;
    memcpy(y->value, x->value, (size_t)x->n * sizeof *x->value);
    if (x->param) memcpy(y->param, x->param, params);
    return y;
}

int nb_nest_slots(const nb_nest *x)
{
    return nb_slot_offset(x->n);
}

int64_t *nb_nest_number(const nb_nest *x, int slot)
{
    nb_nest *y = (nb_nest *)x;
    if (slot < NB_SLOT_CUT) return &y->size[slot];
    if (slot == NB_SLOT_CUT) return &y->cut_size;
    nb_nest_value *v = &y->value[(slot - NB_SLOT_VALUES) / NB_VALUE_SLOTS];
    int at = (slot - NB_SLOT_VALUES) % NB_VALUE_SLOTS;
    if (at > NB_MAX_NEST_AXES) return &v->bits;
    return at ? &v->stride[at - 1] : &v->offset;
}

bool nb_nest_is_whole(const nb_nest_value *v)
{
    return v->kind == NB_NEST_CONST && v->dtype != NB_BOOL &&
           !nb_dtype_is_float(v->dtype);
}

int nb_nest_args(const nb_nest_value *v)
{
    static const int n[] = {
        [NB_NEST_LOAD] = 0,    [NB_NEST_CONST] = 0,  [NB_NEST_SCALAR] = 3,
        [NB_NEST_CONVERT] = 1, [NB_NEST_REDUCE] = 1, [NB_NEST_CARRY] = 1,
        [NB_NEST_LAST] = 1,    [NB_NEST_STORE] = 1,  [NB_NEST_INDEX] = 0,
        [NB_NEST_SCAN] = 1,    [NB_NEST_PICK] = 2,   [NB_NEST_WORD] = 3};
    return n[v->kind];
}

bool nb_nest_reads(const nb_nest_value *v)
{
    return v->kind == NB_NEST_LOAD || v->kind == NB_NEST_PICK;
}

bool nb_nest_in_memory(const nb_nest_value *v)
{
    return nb_nest_reads(v) || v->kind == NB_NEST_STORE;
}

bool nb_nest_strides(const nb_nest_value *v)
{
    return nb_nest_in_memory(v) || v->kind == NB_NEST_INDEX;
}

bool nb_nest_computes(const nb_nest_value *v)
{
    return v->kind == NB_NEST_SCALAR || v->kind == NB_NEST_WORD ||
           v->kind == NB_NEST_SCAN;
}

/* Of ten rounds a word has its share. */
int nb_nest_cost(const nb_nest_value *v)
{
    return v->kind == NB_NEST_SCALAR ? nb_scalar_cost(v->scalar)
           : v->kind == NB_NEST_WORD ? 16
           : v->kind == NB_NEST_SCAN ? 4
                                     : 1;
}

static unsigned without_bit(unsigned bits, int a)
{
    unsigned low = bits & ((1u << a) - 1);
    return low | (bits >> 1 & ~((1u << a) - 1));
}

static void drop_axis(nb_nest *x, int a)
{
    size_t after = (size_t)(x->naxes - a - 1);
    memmove(x->size + a, x->size + a + 1, after * sizeof *x->size);
    x->inner = without_bit(x->inner, a);
    for (int k = 0; k < x->n; k++) {
        nb_nest_value *v = &x->value[k];
        v->axes = without_bit(v->axes, a);
        memmove(v->stride + a, v->stride + a + 1, after * sizeof *v->stride);
        v->stride[x->naxes - 1] = 0; /* for an axis that is added */
    }
    x->naxes--;
}

/* Whether axis a and the next are walked as one by all. */
static bool as_one(const nb_nest *x, int a)
{
    if ((x->inner >> a & 1) != (x->inner >> (a + 1) & 1)) return false;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (nb_nest_strides(v) &&
            v->stride[a] != v->stride[a + 1] * x->size[a + 1])
            return false;
    }
    return true;
}

/* A reduction over one element is that element. */
static void drop_reductions(nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_REDUCE) {
            x->value[k].kind = NB_NEST_SCALAR;
            x->value[k].scalar = NB_S_copy;
        }
}

void nb_nest_merge(nb_nest *x)
{
    for (int a = x->naxes - 1; a >= 0; a--)
        if (x->size[a] == 1) drop_axis(x, a);
    for (int a = x->naxes - 2; a >= 0; a--) {
        if (!as_one(x, a)) continue;
        for (int k = 0; k < x->n; k++)
            x->value[k].axes |= (x->value[k].axes >> a & 1) << (a + 1);
        x->size[a + 1] *= x->size[a];
        drop_axis(x, a);
    }
    if (!x->inner) drop_reductions(x);
}

bool nb_nest_can_lead(const nb_nest *x, int64_t rows, int *lead, int64_t *low)
{
    int64_t left = rows;
    int a = 0;
    *low = 1;
    for (; a < x->naxes && left > 1; a++) {
        int64_t part = x->size[a] < left ? x->size[a] : left;
        if (x->inner >> a & 1 || left % part || x->size[a] % part) return false;
        *low = x->size[a] / part;
        left /= part;
    }
    *lead = a;
    return left == 1 && !x->cut && (*low == 1 || x->naxes < NB_MAX_NEST_AXES);
}

static unsigned twice_bit(unsigned bits, int a)
{
    unsigned low = bits & ((2u << a) - 1);
    return low | (bits & ~((1u << a) - 1)) << 1;
}

/* Axis a as two, the second of extent low. */
static void split_axis(nb_nest *x, int a, int64_t low)
{
    size_t after = (size_t)(x->naxes - a);
    memmove(x->size + a + 1, x->size + a, after * sizeof *x->size);
    x->size[a] /= low;
    x->size[a + 1] = low;
    x->inner = twice_bit(x->inner, a);
    for (int k = 0; k < x->n; k++) {
        nb_nest_value *v = &x->value[k];
        v->axes = twice_bit(v->axes, a);
        memmove(v->stride + a + 1, v->stride + a, after * sizeof *v->stride);
        v->stride[a] *= low;
    }
    x->naxes++;
}

bool nb_nest_lead(nb_nest *x, int64_t rows)
{
    int64_t low;
    int lead;
    if (!nb_nest_can_lead(x, rows, &lead, &low)) return false;
    if (low > 1) split_axis(x, lead - 1, low);
    x->lead = lead;
    return true;
}

void nb_nest_mirror(nb_nest *x, int a)
{
    for (int k = 0; k < x->n; k++) {
        nb_nest_value *v = &x->value[k];
        if (!nb_nest_strides(v)) continue;
        v->offset += v->stride[a] * (x->size[a] - 1);
        v->stride[a] = -v->stride[a];
    }
}

/* A number, or that it is a parameter. */
static int64_t as_hashed(const nb_nest *x, int slot)
{
    return nb_nest_varies(x, slot) ? INT64_MIN : *nb_nest_number(x, slot);
}

static uint64_t hash_access(const nb_nest *x, int k, uint64_t h)
{
    int64_t word[NB_VALUE_SLOTS];
    for (int i = 0; i <= x->naxes; i++)
        word[i] = as_hashed(x, nb_slot_offset(k) + i);
    return nb_hash(h, word, (size_t)(x->naxes + 1) * sizeof *word);
}

uint64_t nb_nest_hash(const nb_nest *x)
{
    int64_t size[NB_MAX_NEST_AXES + 1];
    for (int a = 0; a < x->naxes; a++)
        size[a] = as_hashed(x, a);
    uint64_t h = nb_hash(11, size, (size_t)x->naxes * sizeof *size);
    int64_t about[] = {x->inner, x->nbuffers, x->cut, as_hashed(x, NB_SLOT_CUT),
                       x->lead};
    h = nb_hash(h, about, sizeof about);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        int64_t bits = as_hashed(x, nb_slot_bits(k));
        int64_t word[14] = {v->kind,   v->dtype,  v->compute, v->scalar,
                            v->reduce, v->arg[0], v->arg[1],  v->arg[2],
                            v->axes,   bits,      v->buffer,  v->stored,
                            x->naxes,  v->next};
        h = nb_hash(h, word, sizeof word);
        if (nb_nest_strides(v)) h = hash_access(x, k, h);
    }
    return h;
}

bool nb_nest_same_value(int naxes, const nb_nest_value *v,
                        const nb_nest_value *w)
{
    size_t strides = (size_t)naxes * sizeof *v->stride;
    if (v->kind != w->kind || v->dtype != w->dtype || v->axes != w->axes ||
        v->compute != w->compute || v->scalar != w->scalar ||
        v->reduce != w->reduce || v->bits != w->bits || v->next != w->next)
        return false;
    for (int i = 0; i < nb_nest_args(v); i++)
        if (v->arg[i] != w->arg[i]) return false;
    if (!nb_nest_strides(v)) return true;
    return v->buffer == w->buffer && v->stored == w->stored &&
           v->offset == w->offset && !memcmp(v->stride, w->stride, strides);
}

static void print_access(const nb_nest *x, const nb_nest_value *v, nb_text *t)
{
    if (v->kind == NB_NEST_INDEX)
        nb_text_add(t, "[");
    else
        nb_text_add(t, "%s b%d[", nb_dtype_brief(v->stored), v->buffer);
    bool any = v->offset;
    if (any) nb_text_add(t, "%lld", (long long)v->offset);
    for (int a = 0; a < x->naxes; a++) {
        if (!v->stride[a]) continue;
        nb_text_add(t, "%s%lld*i%d", any ? " + " : "", (long long)v->stride[a],
                    a);
        any = true;
    }
    nb_text_add(t, any ? "]" : "0]");
}

static void print_value(const nb_nest *x, int k, nb_text *t)
{
    static const char *const reduce[] = {"sum",  "max", "min",
                                         "prod", "and", "or"};
    const nb_nest_value *v = &x->value[k];
    if (v->kind == NB_NEST_STORE) {
        nb_text_add(t, "  store ");
        print_access(x, v, t);
        nb_text_add(t, " = %%%d\n", v->arg[0]);
        return;
    }
    nb_text_add(t, "  %%%d: %s = ", k, nb_dtype_brief(v->dtype));
    if (v->kind == NB_NEST_LOAD) {
        nb_text_add(t, "load ");
        print_access(x, v, t);
    } else if (v->kind == NB_NEST_PICK) {
        nb_text_add(t, "pick ");
        print_access(x, v, t);
        nb_text_add(t, " + %%%d if %%%d", v->arg[0], v->arg[1]);
    } else if (v->kind == NB_NEST_INDEX) {
        nb_text_add(t, "index ");
        print_access(x, v, t);
    } else if (v->kind == NB_NEST_WORD) {
        nb_text_add(t, "word %%%d of %%%d, %%%d stream %lld", v->arg[0],
                    v->arg[1], v->arg[2], (long long)v->bits);
    } else if (v->kind == NB_NEST_CONST) {
        double d;
        memcpy(&d, &v->bits, sizeof d);
        nb_text_add(t, "0x%llx", (unsigned long long)v->bits);
        if (v->dtype == NB_F64) nb_text_add(t, " ; %g", d);
    } else if (v->kind == NB_NEST_CONVERT) {
        nb_text_add(t, "convert %%%d", v->arg[0]);
    } else if (v->kind == NB_NEST_CARRY) {
        nb_text_add(t, "carry %%%d, then %%%d", v->arg[0], v->next);
    } else if (v->kind == NB_NEST_LAST) {
        nb_text_add(t, "last %%%d", v->arg[0]);
    } else if (v->kind == NB_NEST_SCAN) {
        nb_text_add(t, "scan_%s %%%d%s", reduce[v->reduce], v->arg[0],
                    v->bits ? " before" : "");
    } else if (v->kind == NB_NEST_REDUCE) {
        nb_text_add(t, "reduce_%s %%%d", reduce[v->reduce], v->arg[0]);
    } else {
        nb_text_add(t, "%s", nb_scalar_name(v->scalar));
        for (int i = 0; i < 3 && (i == 0 || v->arg[i] != v->arg[i - 1]); i++)
            nb_text_add(t, "%s%%%d", i ? ", " : " ", v->arg[i]);
    }
    nb_text_add(t, "\n");
}

void nb_nest_print(const nb_nest *x, nb_text *t)
{
    nb_text_add(t, "nest");
    for (int a = 0; a < x->naxes; a++)
        nb_text_add(t, " i%d%s<%lld%s", a, x->inner >> a & 1 ? "'" : "",
                    (long long)x->size[a], a == x->lead - 1 ? " |" : "");
    if (x->cut)
        nb_text_add(t, " i%d+%lld*i0<%lld", x->cut, (long long)x->size[x->cut],
                    (long long)x->cut_size);
    nb_text_add(t, " {\n");
    for (int k = 0; k < x->n; k++)
        print_value(x, k, t);
    nb_text_add(t, "}\n");
}

int64_t nb_nest_points(const nb_nest *x)
{
    int64_t n = 1;
    for (int a = 0; a < x->naxes; a++)
        n *= x->size[a];
    return n;
}

int64_t nb_nest_units(const nb_nest *x)
{
    int64_t n = 1;
    for (int a = 0; a < x->naxes; a++)
        if (!(x->inner >> a & 1)) n *= x->size[a];
    return n;
}

/* Of each value the pass over the inner axes that has it, and the last that
 * uses it: what a reduction is needed for comes a pass later. */
static void find_passes(const nb_nest *x, int *has, int *uses)
{
    nb_nest_ready(x, has);
    for (int k = 0; k < x->n; k++)
        uses[k] = 0;
    for (int k = x->n - 1; k >= 0; k--) {
        const nb_nest_value *v = &x->value[k];
        int pass = v->kind == NB_NEST_REDUCE  ? has[v->arg[0]]
                   : v->kind == NB_NEST_STORE ? has[k]
                                              : uses[k];
        for (int i = 0; i < nb_nest_args(v); i++)
            if (pass > uses[v->arg[i]]) uses[v->arg[i]] = pass;
    }
}

static bool same_places(const nb_nest *x, const nb_nest_value *a,
                        const nb_nest_value *b)
{
    return a->offset == b->offset &&
           nb_dtype_size(a->stored) == nb_dtype_size(b->stored) &&
           !memcmp(a->stride, b->stride, (size_t)x->naxes * sizeof *a->stride);
}

bool nb_nest_in_place(const nb_nest *x, int from, int to, bool shared)
{
    int has[MAX_PASSED], uses[MAX_PASSED], store = -1;
    if (x->cut || x->n > MAX_PASSED) return false;
    find_passes(x, has, uses);
    for (int k = x->n - 1; k >= 0; k--) {
        const nb_nest_value *v = &x->value[k];
        if (v->kind == NB_NEST_CARRY || v->kind == NB_NEST_LAST) return false;
        if (!nb_nest_in_memory(v) || (v->buffer != from && v->buffer != to))
            continue;
        if (v->buffer == to) {
            if (store >= 0 || v->kind != NB_NEST_STORE) return false;
            store = k;
        } else if (store < 0 || v->kind != NB_NEST_LOAD ||
                   uses[k] > has[store] ||
                   (shared && x->inner && !(v->axes & x->inner)) ||
                   !same_places(x, v, &x->value[store])) {
            return false;
        }
    }
    return store >= 0;
}
