/* laid.c - layouts drawn, operands laid out, blocks compared. */
#include "support/laid.h"

#include "nabla/device.h"
#include "shard/decide/factors.h"
#include "support/ranks.h"
#include "support/there.h"
#include "support/vary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char wrong[400];

#define WRONG(...) (snprintf(wrong, sizeof wrong, __VA_ARGS__), wrong)

const nb_mesh *mesh_there(const nb_mesh *m)
{
    enum { MOST = 64 };
    const char *told = getenv("NABLA_SHARD_CARDS");
    int on[MOST], cards = told ? atoi(told) : 0;
    if (!m || cards < 1 || m->ndevices > MOST) return m;
    for (int i = 0; i < m->ndevices; i++)
        on[i] = 1 + i % cards;
    m = nb_mesh_on(m, on);
    if (!m) printf("FAIL %s\n", nb_error_message());
    there_move(1); /* what has no layout is on the first of them */
    return m;
}

const nb_mesh *mesh_sized(const char *sizes)
{
    static const char *const name[] = {"x", "y", "z", "w"};
    int size[4], n = 0;
    char *end;
    for (const char *s = sizes; *s && n < 4; s = *end ? end + 1 : end)
        size[n++] = (int)strtol(s, &end, 10);
    return mesh_there(nb_mesh_new("m", n, name, size, NULL));
}

double dtype_tolerance(nb_dtype d)
{
    return d == NB_F64    ? 1e-11
           : d == NB_F32  ? 2e-5
           : d == NB_F16  ? 1e-2
           : d == NB_BF16 ? 6e-2
                          : 0;
}

/* Layouts */

static const char *kind_draw(nb_dtype d)
{
    static const char *const real[] = {"", "", "", "max", "min", "prod"};
    if (d == NB_BOOL) return pick(2) ? "and" : "or";
    if (nb_dtype_is_float(d)) return real[pick(6)];
    return d == NB_I64 ? real[pick(5)] : real[3 + pick(2)];
}

/* The axes and pieces of axes of a mesh, in any order. */
static int pieces(const nb_mesh *m, nb_axis *piece)
{
    int n = 0;
    for (int k = 0; k < m->naxes; k++) {
        nb_axis a = nb_axis_full(m, k);
        if (a.size == 4 && pick(4) == 0) {
            piece[n++] = (nb_axis){a.axis, 1, 2};
            piece[n++] = (nb_axis){a.axis, 2, 2};
        } else
            piece[n++] = a;
    }
    for (int i = n - 1; i > 0; i--) {
        int j = (int)pick(i + 1);
        nb_axis t = piece[i];
        piece[i] = piece[j];
        piece[j] = t;
    }
    return n;
}

static void write_cut(nb_text *t, const nb_mesh *m, const nb_cut *l, char end)
{
    char name[32];
    for (int i = 0; i < l->n; i++) {
        nb_axis_text(m, l->at[i], name, sizeof name);
        nb_text_add(t, "%s%s", i ? end == '}' ? "," : " " : "", name);
    }
}

static void write_layout(char *text, const nb_spec *s)
{
    nb_text t = {0};
    nb_text_add(&t, "[");
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *l = &s->dim[d].axes;
        nb_text_add(&t, "%s%s", d ? ", " : "",
                    l->n > 1 ? "("
                    : l->n   ? ""
                             : ".");
        write_cut(&t, s->mesh, l, ' ');
        nb_text_add(&t, "%s", l->n > 1 ? ")" : "");
        if (s->dim[d].priority) nb_text_add(&t, " p%d", s->dim[d].priority);
    }
    nb_text_add(&t, "]");
    if (s->partial.n) {
        nb_text_add(&t, "P%s{",
                    s->kind == NB_SUM ? "" : nb_reduce_name(s->kind));
        write_cut(&t, s->mesh, &s->partial, '}');
        nb_text_add(&t, "}");
    }
    if (s->replicated.n) {
        nb_text_add(&t, "R{");
        write_cut(&t, s->mesh, &s->replicated, '}');
        nb_text_add(&t, "}");
    }
    snprintf(text, LAYOUT, "%s", nb_text_get(&t));
    nb_text_free(&t);
}

void layout_draw(char *text, const nb_mesh *m, int rank, nb_dtype dtype)
{
    nb_spec s = {.mesh = m, .rank = rank};
    nb_axis piece[2 * NB_MESH_AXES];
    const char *kind = kind_draw(dtype);
    bool pending = pick(3) == 0, moved = pick(4) == 0;
    strcpy(text, "-");
    if (pick(5) == 0) return;
    if (*kind) nb_kind_find(kind, strlen(kind), &s.kind);
    for (int i = 0, n = pieces(m, piece); i < n; i++) {
        int64_t where = pick(rank + 2);
        if (where < rank)
            nb_cut_add(&s.dim[where].axes, piece[i]);
        else if (where == rank && pending)
            nb_cut_add(&s.partial, piece[i]);
        else if (where == rank && pick(4) == 0)
            nb_cut_add(&s.replicated, piece[i]);
    }
    for (int d = 0; d < rank; d++)
        if (s.dim[d].axes.n && pick(8) == 0) s.dim[d].priority = 1;
    if (!s.partial.n) s.kind = NB_SUM;
    write_layout(text, &s);
    if (s.partial.n && moved) strcat(text, "!");
}

static const nb_spec *read_layout(const nb_mesh *m, const char *text)
{
    char plain[LAYOUT];
    snprintf(plain, sizeof plain, "%s", text);
    plain[strcspn(plain, "!")] = 0;
    return nb_spec_parse(m, plain);
}

int layout_axes(const char *text)
{
    int n = 0;
    for (const char *s = text; *s; s++)
        n += strchr("xyzw", *s) && !(s > text && s[-1] == 'a');
    return n;
}

static bool cut_without(nb_cut *l, int *k)
{
    if (*k >= l->n) {
        *k -= l->n;
        return false;
    }
    memmove(l->at + *k, l->at + *k + 1,
            (size_t)(l->n - *k - 1) * sizeof l->at[0]);
    l->n--;
    return true;
}

bool layout_without(char *text, const nb_mesh *m, int k)
{
    bool moved = strchr(text, '!'), found = false;
    if (*text == '-') return false;
    nb_spec s = nb_spec_draft(read_layout(m, text));
    for (int d = 0; !found && d < s.rank; d++) {
        found = cut_without(&s.dim[d].axes, &k);
        if (!s.dim[d].axes.n) s.dim[d].priority = 0;
    }
    found = found || cut_without(&s.partial, &k);
    found = found || cut_without(&s.replicated, &k);
    if (!s.partial.n) s.kind = NB_SUM;
    write_layout(text, &s);
    if (moved && s.partial.n) strcat(text, "!");
    return found;
}

/* Operands */

/* n values that make v by `kind`. */
static void share(nb_reduce kind, double grain, double v, int64_t n,
                  int64_t stride, double *to)
{
    int64_t whole = pick(n);
    double left = v;
    for (int64_t i = 0; i < n; i++) {
        double r = grain * (double)(pick(33) - 16), part = 0;
        if (kind == NB_SUM && isfinite(v))
            left -= part = r;
        else if (kind == NB_MAX)
            part = v - fabs(r);
        else if (kind == NB_MIN)
            part = v + fabs(r);
        else if (kind == NB_PROD || kind == NB_AND)
            part = 1;
        to[i * stride] = part;
    }
    if (kind == NB_SUM && isfinite(v))
        to[whole * stride] += left;
    else
        to[whole * stride] = v;
}

static nb_tensor *reduced(nb_tensor *x, nb_reduce kind)
{
    int64_t first = 0;
    switch (kind) {
    case NB_MAX: return nb_reduce_max(x, 1, &first, false);
    case NB_MIN: return nb_reduce_min(x, 1, &first, false);
    case NB_PROD: return nb_prod(x, 1, &first, false);
    case NB_AND: return nb_all(x, 1, &first, false);
    case NB_OR: return nb_any(x, 1, &first, false);
    default: return nb_reduce_sum(x, 1, &first, false);
    }
}

static nb_tensor *pending(nb_tensor *x, const nb_spec *s)
{
    int64_t size[NB_MAX_RANK], n = nb_elements(x);
    int64_t rows = nb_cut_count(&s->partial) + pick(3);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    double *w = malloc((size_t)(n * rows + 1) * sizeof *w);
    nb_spec over = {.mesh = s->mesh, .rank = s->rank + 1};
    over.dim[0].axes = s->partial;
    memcpy(over.dim + 1, s->dim, (size_t)s->rank * sizeof s->dim[0]);
    nb_read(x, NB_F64, v);
    nb_sizes(x, size + 1);
    size[0] = rows;
    for (int64_t i = 0; i < n; i++)
        share(s->kind, dtype_grain(nb_dtype_of(x)), v[i], rows, n, w + i);
    nb_tensor *y =
        nb_cast(nb_constant(NB_F64, nb_rank(x) + 1, size, w), nb_dtype_of(x));
    free(v);
    free(w);
    return reduced(nb_reshard(y, nb_spec_intern(&over)), s->kind);
}

nb_tensor *lay(nb_tensor *x, const nb_mesh *m, const char *layout)
{
    if (*layout == '-') return x;
    const nb_spec *s = read_layout(m, layout);
    nb_tensor *y =
        s && s->partial.n && !strchr(layout, '!') ? pending(x, s) : x;
    /* What is replicated and priorities are said here. */
    if (s && y && (y == x || nb_spec_same_layout(nb_sharding(y), s)))
        y = nb_reshard(y, s);
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

/* Blocks */

static double combined(nb_reduce kind, double a, double b)
{
    switch (kind) {
    case NB_MAX: return a > b || isnan(a) ? a : b;
    case NB_MIN: return a < b || isnan(a) ? a : b;
    case NB_PROD: return a * b;
    case NB_AND: return a && b;
    case NB_OR: return a || b;
    default: return a + b;
    }
}

typedef struct blocks {
    nb_tensor *y;
    const nb_spec *spec;
    int rank;
    int64_t size[NB_MAX_DIMS];
    double **at; /* by position */
    const double *value;
    double slack;
} blocks;

static const char *block_read(blocks *b, int p)
{
    nb_box box;
    nb_tensor *x = nb_shard_at(b->y, p);
    if (!x) return WRONG("device %d: %s", p, nb_error_message());
    nb_spec_box(b->spec, b->size, p, &box);
    if (nb_rank(x) != b->rank || nb_dtype_of(x) != nb_dtype_of(b->y))
        return WRONG("device %d has %d dims, not %d", p, nb_rank(x), b->rank);
    for (int d = 0; d < b->rank; d++)
        if (nb_size(x, d) != box.size[d])
            return WRONG("device %d has %lld elements of dim %d, not %lld", p,
                         (long long)nb_size(x, d), d, (long long)box.size[d]);
    if (nb_read(x, NB_F64, b->at[p]) != NB_OK)
        return WRONG("device %d: %s", p, nb_error_message());
    return NULL;
}

static bool close_to(const blocks *b, double v, double value)
{
    return v == value || (isnan(v) && isnan(value)) ||
           fabs(v - value) <= b->slack;
}

/* Where element k of a block is in the whole. */
static int64_t place(const blocks *b, const nb_box *box, int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = b->rank - 1; d >= 0; d--) {
        at += (box->start[d] + k % box->size[d]) * stride;
        k /= box->size[d];
        stride *= b->size[d];
    }
    return at;
}

static const char *block_check(const blocks *b, int p)
{
    nb_box box;
    int member[64], n;
    int64_t count = 1;
    n = nb_cut_group(b->spec->mesh, &b->spec->partial, p, member);
    nb_spec_box(b->spec, b->size, p, &box);
    for (int d = 0; d < b->rank; d++)
        count *= box.size[d];
    for (int64_t k = 0; k < count; k++) {
        double v = b->at[member[0]][k];
        for (int i = 1; i < n; i++)
            v = combined(b->spec->kind, v, b->at[member[i]][k]);
        double value = b->value[place(b, &box, k)];
        if (n > 1 && !b->slack && fabs(v) > 1e15) continue; /* it wraps */
        if (!close_to(b, v, value))
            return WRONG("device %d has %.9g, not %.9g, at %lld of its block",
                         p, v, value, (long long)k);
    }
    return NULL;
}

static const char *read_check(const blocks *b, int64_t n, const double *v)
{
    for (int64_t i = 0; i < n; i++)
        if (!close_to(b, v[i], b->value[i]))
            return WRONG("element %lld is %.9g, not %.9g", (long long)i, v[i],
                         b->value[i]);
    return NULL;
}

/* Each rank those that it has.  Addends of what is pending may lie with others,
 * which give them away. */
static const char *blocks_read(blocks *b, int n)
{
    size_t *bytes = calloc((size_t)n + 1, sizeof *bytes);
    const char *bad = NULL;
    for (int p = 0; p < n; p++) {
        nb_box box;
        nb_spec_box(b->spec, b->size, p, &box);
        bytes[p] = sizeof(double);
        for (int d = 0; d < b->rank; d++)
            bytes[p] *= (size_t)box.size[d];
        b->at[p] = malloc(bytes[p] + 1);
    }
    for (int p = 0; !bad && p < n; p++)
        if (nb_device_is_here(b->spec->mesh, p)) bad = block_read(b, p);
    if (!bad && n && b->spec->partial.n &&
        !ranks_spread(b->spec->mesh, (void **)b->at, bytes))
        bad = WRONG("addends: %s", nb_error_message());
    free(bytes);
    return bad;
}

static const char *blocks_compare(const blocks *b, int n)
{
    const char *bad = NULL;
    for (int p = 0; !bad && p < n; p++)
        if (nb_device_is_here(b->spec->mesh, p)) bad = block_check(b, p);
    return bad;
}

static bool same_type(nb_tensor *x, nb_tensor *y)
{
    bool same = nb_rank(x) == nb_rank(y) && nb_dtype_of(x) == nb_dtype_of(y);
    for (int d = 0; same && d < nb_rank(x); d++)
        same = nb_size(x, d) == nb_size(y, d);
    return same;
}

const char *blocks_check(nb_tensor *y, nb_tensor *plain, double tolerance)
{
    blocks b = {.y = y, .spec = nb_sharding(y)};
    int n = b.spec ? b.spec->mesh->ndevices : 0;
    int64_t count = nb_elements(plain);
    const char *bad = NULL;
    double *value = malloc((size_t)(count + 1) * sizeof *value);
    double *read = malloc((size_t)(count + 1) * sizeof *read);
    if (!same_type(y, plain)) bad = WRONG("the shape or dtype is another");
    if (!bad && nb_read(plain, NB_F64, value) != NB_OK)
        bad = WRONG("the plain value: %s", nb_error_message());
    b.slack = tolerance;
    for (int64_t i = 0; !bad && i < count; i++)
        if (isfinite(value[i]) && fabs(value[i]) * tolerance > b.slack)
            b.slack = fabs(value[i]) * tolerance;
    b.value = value;
    b.rank = nb_stored_sizes(y, b.size);
    b.at = calloc((size_t)n + 1, sizeof *b.at);
    /* First what ranks do together, so that all do it whatever one finds. */
    if (!bad && nb_read(y, NB_F64, read) != NB_OK)
        bad = WRONG("reading: %s", nb_error_message());
    if (!bad) bad = blocks_read(&b, n);
    if (!bad) bad = blocks_compare(&b, n);
    if (!bad) bad = read_check(&b, count, read);
    for (int p = 0; p < n; p++)
        free(b.at[p]);
    free(b.at);
    free(read);
    free(value);
    return bad;
}
