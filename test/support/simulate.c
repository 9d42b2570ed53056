/* simulate.c - plans carried out on numbers, the slow way. */
#include "support/simulate.h"
#include "support/steps.h"

#include <stdlib.h>

unsigned below(unsigned n)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static int64_t elements(const nb_box *b, int rank)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= b->size[d];
    return n;
}

/* Where element i of a box is in the whole tensor. */
static int64_t global_of(const world *w, const nb_box *b, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = w->spec->rank - 1; d >= 0; d--) {
        at += (b->start[d] + i % b->size[d]) * stride;
        i /= b->size[d];
        stride *= w->size[d];
    }
    return at;
}

/* The element of the whole tensor that a device has, or NULL. */
static int64_t *find(const world *w, int p, int64_t at)
{
    const nb_box *b = &w->box[p];
    int64_t i = 0, stride = 1;
    for (int d = w->spec->rank - 1; d >= 0; d--) {
        int64_t x = at % w->size[d] - b->start[d];
        if (x < 0 || x >= b->size[d]) return NULL;
        i += x * stride;
        at /= w->size[d];
        stride *= b->size[d];
    }
    return &w->block[p][i];
}

static int64_t neutral(nb_reduce kind)
{
    return kind == NB_MAX ? -1000000 : kind == NB_MIN ? 1000000 : 0;
}

static int64_t reduce(nb_reduce kind, int64_t a, int64_t b)
{
    if (kind == NB_SUM) return a + b;
    return (kind == NB_MAX) == (a > b) ? a : b;
}

/* One of n addends of v. */
static int64_t addend(nb_reduce kind, int64_t v, int64_t at, int64_t i,
                      int64_t n)
{
    int64_t off = (at * 31 + i * 7) % 11 + 1, sum = 0;
    if (kind == NB_MAX) return at % n == i ? v : v - off;
    if (kind == NB_MIN) return at % n == i ? v : v + off;
    for (int64_t k = 0; k + 1 < n; k++)
        sum += (at * 31 + k * 7) % 11 + 1;
    return i + 1 < n ? off : v - sum;
}

static void lay_out(world *w)
{
    for (int p = 0; p < w->spec->mesh->ndevices; p++) {
        nb_spec_box(w->spec, w->size, p, &w->box[p]);
        int64_t n = elements(&w->box[p], w->spec->rank);
        w->block[p] = calloc((size_t)n + 1, sizeof(int64_t));
    }
}

world world_new(const nb_spec *spec, const int64_t *size, const int64_t *value)
{
    world w = {spec, size, value, {{{0}, {0}}}, {NULL}};
    int64_t n = nb_cut_count(&spec->partial);
    lay_out(&w);
    for (int p = 0; p < spec->mesh->ndevices; p++) {
        int64_t i = nb_cut_index(spec->mesh, &spec->partial, p);
        for (int64_t k = 0; k < elements(&w.box[p], spec->rank); k++) {
            int64_t at = global_of(&w, &w.box[p], k);
            w.block[p][k] = addend(spec->kind, value[at], at, i, n);
        }
    }
    return w;
}

void world_free(world *w)
{
    for (int p = 0; p < w->spec->mesh->ndevices; p++)
        free(w->block[p]);
}

/* Who takes part in a step with p: all, by device, if the mesh changes. */
static int group_of(const nb_hop *s, int p, int *member)
{
    return nb_cut_group(s->from->mesh, &s->axes, p, member);
}

/* An element that p has not: all of the group that have it agree on it. */
static const char *fetch(const world *w, int n, const int *member, int64_t at,
                         int64_t *v)
{
    bool found = false;
    for (int i = 0; i < n; i++) {
        const int64_t *x = find(w, member[i], at);
        if (x && found && *x != *v) return "two have different values";
        if (x) found = true, *v = *x;
    }
    return found ? NULL : "nobody has what is wanted";
}

static const char *collect(const world *w, int n, const int *member, int64_t at,
                           int64_t *v)
{
    *v = neutral(w->spec->kind);
    for (int i = 0; i < n; i++) {
        const int64_t *x = find(w, member[i], at);
        if (!x) return "an addend is missing";
        *v = reduce(w->spec->kind, *v, *x);
    }
    return NULL;
}

/* The same of those that have different addends. */
static const char *collect_addends(const world *w, int n, const int *member,
                                   int64_t at, int64_t *v)
{
    const nb_cut *l = &w->spec->partial;
    int64_t met = 0, all = 0;
    *v = neutral(w->spec->kind);
    for (int i = 0; i < n; i++) {
        const int64_t *x = find(w, member[i], at);
        int64_t bit = 1 << nb_cut_index(w->spec->mesh, l, member[i]);
        if (x && !(met & bit)) *v = reduce(w->spec->kind, *v, *x);
        if (x) met |= bit;
        all |= bit;
    }
    return met == all ? NULL : "an addend is missing";
}

/* One element of what p has after the step; *got counts what it received. */
static const char *element(const world *w, const nb_hop *s, int p, int64_t at,
                           int64_t *v, int64_t *got)
{
    int member[MAX_DEVICES], n = group_of(s, p, member);
    const int64_t *own = find(w, p, at);
    switch (s->kind) {
    case NB_HOP_SLICE:
        if (!own) return "a slice of what is not there";
        *v = *own;
        return NULL;
    case NB_HOP_UNREDUCE:
        if (s->dim < 0 && nb_cut_index(s->from->mesh, &s->axes, p)) own = NULL;
        *v = own ? *own : neutral(s->into->kind);
        return NULL;
    case NB_HOP_REDUCE_SCATTER:
    case NB_HOP_ALL_REDUCE:
        *got += s->kind == NB_HOP_REDUCE_SCATTER ? n - 1 : 0;
        return collect(w, n, member, at, v);
    case NB_HOP_REDUCE_EXCHANGE: return collect_addends(w, n, member, at, v);
    default:
        if (own) return *v = *own, NULL;
        *got += 1;
        return fetch(w, n, member, at, v);
    }
}

/* Member i of n reduces block i, and gets the others. */
static int64_t all_reduced(const nb_hop *s, int p, int64_t local)
{
    int64_t n = nb_cut_count(&s->axes);
    int64_t i = nb_cut_index(s->from->mesh, &s->axes, p);
    int64_t piece =
        nb_block_start(local, n, i + 1) - nb_block_start(local, n, i);
    return (n - 1) * piece + local - piece;
}

const char *world_step(world *w, const nb_hop *s, int64_t *received)
{
    world next = {s->into, w->size, w->value, {{{0}, {0}}}, {NULL}};
    const char *wrong = NULL;
    *received = 0;
    lay_out(&next);
    for (int q = 0; q < s->into->mesh->ndevices && !wrong; q++) {
        int p = nb_mesh_position(s->from->mesh, s->into->mesh->device[q]);
        int64_t n = elements(&next.box[q], s->into->rank), got = 0;
        if (s->kind == NB_HOP_ALL_REDUCE) got = all_reduced(s, p, n);
        if (s->kind == NB_HOP_REDUCE_EXCHANGE)
            got = hop_bytes(s, w->size, 1, p);
        for (int64_t k = 0; k < n && !wrong; k++)
            wrong = element(w, s, p, global_of(&next, &next.box[q], k),
                            &next.block[q][k], &got);
        if (got > *received) *received = got;
    }
    world_free(w);
    *w = next;
    return wrong;
}

/* Replicas have the same, and all addends of an element together make it. */
const char *world_check(const world *w)
{
    const nb_mesh *m = w->spec->mesh;
    const nb_cut *l = &w->spec->partial;
    for (int p = 0; p < m->ndevices; p++) {
        int member[MAX_DEVICES], n = nb_cut_group(m, l, p, member);
        int64_t i = nb_cut_index(m, l, p);
        for (int64_t k = 0; k < elements(&w->box[p], w->spec->rank); k++) {
            int64_t at = global_of(w, &w->box[p], k), v;
            const char *wrong = collect(w, n, member, at, &v);
            if (wrong) return wrong;
            if (v != w->value[at]) return "an element has the wrong value";
            for (int q = 0; q < p; q++) {
                const int64_t *x = find(w, q, at);
                if (x && nb_cut_index(m, l, q) == i && *x != w->block[p][k])
                    return "replicas differ";
            }
        }
    }
    return NULL;
}

/* Pieces of the axes in random order. */
static int pieces(const nb_mesh *m, nb_axis *piece)
{
    int n = 0;
    for (int k = 0; k < m->naxes; k++) {
        nb_axis a = nb_axis_full(m, k);
        if (a.size == 4 && below(3) == 0) {
            piece[n++] = (nb_axis){a.axis, 1, 2};
            piece[n++] = (nb_axis){a.axis, 2, 2};
        } else {
            piece[n++] = a;
        }
    }
    for (int i = n - 1; i > 0; i--) {
        int j = (int)below((unsigned)i + 1);
        nb_axis t = piece[i];
        piece[i] = piece[j];
        piece[j] = t;
    }
    return n;
}

const nb_spec *spec_draw(const nb_mesh *m, int rank, nb_reduce kind,
                         bool pending)
{
    nb_spec s = {.mesh = m, .rank = rank, .kind = kind};
    nb_axis piece[2 * NB_MESH_AXES];
    for (int i = 0, n = pieces(m, piece); i < n; i++) {
        unsigned where = below((unsigned)rank + 1 + pending);
        if (where < (unsigned)rank)
            nb_cut_add(&s.dim[where].axes, piece[i]);
        else if (where > (unsigned)rank)
            nb_cut_add(&s.partial, piece[i]);
    }
    return nb_spec_intern(&s);
}

static const struct {
    int naxes, size[3];
} shapes[] = {{1, {2}},    {1, {4}},    {2, {2, 2}},
              {2, {2, 4}}, {2, {3, 2}}, {3, {2, 2, 2}}};

const nb_mesh *mesh_draw(bool one_axis)
{
    unsigned k = below(one_axis ? 2 : 6);
    return nb_mesh_new("m", shapes[k].naxes, (const char *[]){"x", "y", "z"},
                       shapes[k].size, NULL);
}

reshard_case case_draw(bool pending)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12};
    reshard_case c = {.mesh = mesh_draw(false), .elements = 1};
    nb_reduce kind = (nb_reduce[]){NB_SUM, NB_MAX, NB_MIN}[below(3)];
    c.rank = 1 + (int)below(3);
    for (int d = 0; d < c.rank; d++) {
        c.size[d] = sizes[below(5) ? 2 + below(9) : below(11)];
        c.elements *= c.size[d];
    }
    c.from = spec_draw(c.mesh, c.rank, kind, pending);
    c.into = spec_draw(c.mesh, c.rank, below(4) ? kind : NB_SUM,
                       pending && below(3) == 0);
    return c;
}

int64_t *case_values(const reshard_case *c)
{
    int64_t *value = calloc((size_t)c->elements + 1, sizeof *value);
    for (int64_t i = 0; i < c->elements; i++)
        value[i] = below(1000);
    return value;
}

ratios reshard_ratios(bool one_axis, bool pending, int pairs,
                      const nb_plan_options *options)
{
    ratios r = {0, 0, 0};
    int64_t bytes = 0, bound = 0;
    for (int i = 0; i < pairs; i++) {
        const nb_mesh *m = mesh_draw(one_axis);
        int rank = 1 + (int)below(3);
        int64_t size[3] = {480, 48, 24};
        const nb_spec *from = spec_draw(m, rank, NB_SUM, pending);
        const nb_spec *into = spec_draw(m, rank, NB_SUM, false);
        const nb_reshard_plan *p =
            nb_reshard_find(from, into, size, 4, options);
        if (!p) return r;
        double ratio = p->bound ? (double)p->bytes / (double)p->bound : 1;
        if (ratio > r.worst) r.worst = ratio;
        r.minimal += p->bytes == p->bound;
        bytes += p->bytes;
        bound += p->bound;
    }
    r.all = bound ? (double)bytes / (double)bound : 1;
    return r;
}
