/* dynamic.c - the sizes of a call, and the members made for them.
 *
 * A member is made from formulas, without recording.  But a function may look
 * at its sizes and record something else: so sizes beyond all that were seen
 * are recorded once, and where that is not the program of the family they get
 * one of their own. */
#include "run/dynamic.h"

#include "base/text.h"
#include "lower/rewrite.h"
#include "run/card.h"

#include <pthread.h>
#include <string.h>

enum { MAX_MEMBERS = 64 };

typedef struct open_dim {
    int argument, axis, symbol;
} open_dim;

typedef struct holder {
    nb_member member; /* first: a member is its holder */
    struct holder *next;
    int64_t size[NB_MAX_SYMBOLS];
    int uses; /* the list's, and one of each that runs it */
} holder;

/* Sizes, and differences between two. */
enum { MEASURES = NB_MAX_SYMBOLS * (NB_MAX_SYMBOLS + 1) / 2 };

struct nb_dynamic {
    nb_func *f;
    nb_family *family;
    nb_samples samples;
    int ndims;
    open_dim *dim;
    char *name[NB_MAX_SYMBOLS];
    nb_recording outside; /* no graph: what it draws and closes over */
    pthread_mutex_t lock; /* of what follows */
    holder *first;        /* the one used last */
    int64_t low[MEASURES], high[MEASURES]; /* seen */
    int ndonated, *donated;
};

static void holder_free(holder *h)
{
    nb_member_free(&h->member);
    nb_free(h);
}

void nb_dynamic_free(nb_dynamic *d)
{
    if (!d) return;
    for (holder *h = d->first, *next; h; h = next) {
        next = h->next;
        holder_free(h);
    }
    nb_family_free(d->family);
    for (int k = 0; k < NB_MAX_SYMBOLS; k++)
        nb_free(d->name[k]);
    nb_free(d->dim);
    nb_free(d->donated);
    nb_recording_free(&d->outside);
    nb_func_drop(d->f);
    pthread_mutex_destroy(&d->lock);
    nb_free(d);
}

bool nb_dynamic_is(const nb_dynamic *d, int i, int a)
{
    for (int k = 0; k < d->ndims; k++)
        if (d->dim[k].argument == i && d->dim[k].axis == a) return true;
    return false;
}

/* Names */

static int symbol_of(nb_dynamic *d, const char *name)
{
    int n = d->samples.nsymbols;
    for (int k = 0; k < n; k++)
        if (!strcmp(d->name[k], name)) return k;
    if (n == NB_MAX_SYMBOLS) {
        nb_fail(NB_EVALUE,
                "compile: %s is one name of a dimension too many, "
                "there may be %d",
                name, NB_MAX_SYMBOLS);
        return -1;
    }
    if (!(d->name[n] = nb_copy_text(name))) return -1;
    return d->samples.nsymbols++;
}

static bool add_dim(nb_dynamic *d, int nx, nb_tensor *const *x,
                    const nb_dynamic_dim *dim)
{
    if (dim->argument < 0 || dim->argument >= nx)
        return nb_fail(NB_EVALUE,
                       "compile: a dynamic dimension is of argument %d, there "
                       "are %d",
                       dim->argument, nx);
    int rank = x[dim->argument]->rank, axis = dim->axis;
    if (axis < -rank || axis >= rank)
        return nb_fail(NB_EVALUE,
                       "compile: a dynamic dimension is axis %d of argument "
                       "%d, which has %d",
                       axis, dim->argument, rank);
    if (axis < 0) axis += rank;
    int symbol = symbol_of(d, dim->name);
    if (symbol < 0) return false;
    if (nb_dynamic_is(d, dim->argument, axis))
        return nb_fail(NB_EVALUE,
                       "compile: axis %d of argument %d is named twice", axis,
                       dim->argument);
    d->dim[d->ndims++] = (open_dim){dim->argument, axis, symbol};
    return true;
}

/* Dims of one name have one size. */
static bool sizes_of(const nb_dynamic *d, nb_tensor *const *x, int64_t *size)
{
    for (int k = 0; k < d->samples.nsymbols; k++)
        size[k] = -1;
    for (int k = 0; k < d->ndims; k++) {
        const open_dim *o = &d->dim[k];
        int64_t n = nb_extent_get(nb_tensor_size(x[o->argument])[o->axis]);
        int64_t *is = &size[o->symbol];
        if (*is >= 0 && *is != n)
            return nb_fail(NB_EVALUE,
                           "compile: dimension '%s' is %lld and, in argument "
                           "%d, %lld",
                           d->name[o->symbol], (long long)*is, o->argument,
                           (long long)n);
        *is = n;
    }
    return true;
}

/* Recording at other sizes */

static bool record_at(const nb_dynamic *d, nb_func *f, int nx,
                      nb_tensor *const *x, const int64_t *size, nb_recording *r)
{
    nb_shape *shape = nb_alloc((size_t)(nx + 1) * sizeof *shape);
    if (!shape) return false;
    for (int i = 0; i < nx; i++)
        shape[i] = nb_tensor_shape(x[i]);
    for (int k = 0; k < d->ndims; k++)
        shape[d->dim[k].argument].size[d->dim[k].axis] =
            nb_extent_of(size[d->dim[k].symbol]);
    bool ok = nb_recording_make(r, f, nx, x, shape);
    nb_free(shape);
    return ok;
}

/* Elements that are not here, or out of order, are said to differ when they
 * cannot be brought here. */
static bool same_elements(nb_tensor *a, nb_tensor *b, int64_t n)
{
    size_t bytes = (size_t)n * nb_dtype_size((nb_dtype)a->dtype);
    if (nb_scope_open() != NB_OK) return nb_error_clear(), false;
    a = a->device ? nb_tensor_on(a, 0) : a;
    b = b->device ? nb_tensor_on(b, 0) : b;
    bool same = a && b && nb_tensor_is_packed(a) && nb_tensor_is_packed(b) &&
                !memcmp(a->data, b->data, bytes);
    if (!a || !b) nb_error_clear();
    nb_scope_close(0, NULL);
    return same;
}

/* One tensor, or two that were made while recording, of the same content. */
static bool same_tensor(nb_tensor *a, nb_tensor *b)
{
    nb_shape s = nb_tensor_shape(a), t = nb_tensor_shape(b);
    int64_t n;
    if (a == b) return true;
    if (a->dtype != b->dtype || a->device != b->device || s.rank != t.rank ||
        s.nlanes || t.nlanes)
        return false;
    for (int d = 0; d < s.rank; d++)
        if (!nb_extent_same(s.size[d], t.size[d])) return false;
    return nb_shape_count(&s, &n) && same_elements(a, b, n);
}

static bool same_outside(const nb_recording *a, const nb_recording *b)
{
    if (a->nkeys != b->nkeys || a->ncaptured != b->ncaptured) return false;
    for (int i = 0; i < a->ncaptured; i++)
        if (!same_tensor(a->captured[i], b->captured[i])) return false;
    return true;
}

static void say_sizes(const nb_dynamic *d, const int64_t *size, nb_text *t)
{
    for (int k = 0; k < d->samples.nsymbols; k++)
        nb_text_add(t, "%s%s = %lld", k ? ", " : "", d->name[k],
                    (long long)size[k]);
}

/* Records at all points; what is wrong goes to why. */
static bool record_points(nb_dynamic *d, nb_func *f, int nx,
                          nb_tensor *const *x, const nb_recording *own,
                          nb_graph **at, nb_text *why)
{
    for (int p = 0; p < d->samples.npoints && !why->n; p++) {
        const int64_t *size = d->samples.size[p];
        nb_recording r;
        if (!record_at(d, f, nx, x, size, &r)) {
            if (nb_error_code() == NB_EMEMORY || nb_value_asked()) return false;
            nb_text_add(why, "recorded at ");
            say_sizes(d, size, why);
            nb_text_add(why, " it fails: %s", nb_error_message());
            nb_error_clear();
            break;
        }
        if (!same_outside(&r, own))
            nb_text_add(why, "it closes over other tensors at other sizes");
        at[p] = r.graph;
        r.graph = NULL;
        nb_recording_free(&r);
    }
    return true;
}

static bool find_family(nb_dynamic *d, nb_func *f, int nx, nb_tensor *const *x,
                        const nb_recording *own, char **why)
{
    nb_graph *at[NB_MAX_POINTS] = {0};
    nb_text said = {0};
    bool ok = record_points(d, f, nx, x, own, at, &said);
    if (ok && said.n)
        ok = (*why = nb_copy_text(nb_text_get(&said)));
    else if (ok)
        ok = nb_family_new(&d->samples, at, &d->family, why);
    for (int p = 0; p < d->samples.npoints; p++)
        nb_graph_free(at[p]);
    nb_text_free(&said);
    return ok;
}

/* Members */

/* What a function may tell sizes apart by: each of them, and which of two is
 * larger, by how much. */
static int measure(const nb_dynamic *d, const int64_t *size, int64_t *out)
{
    int n = 0;
    for (int k = 0; k < d->samples.nsymbols; k++) {
        out[n++] = size[k];
        for (int j = 0; j < k; j++)
            out[n++] = size[k] - size[j];
    }
    return n;
}

static bool is_seen(const nb_dynamic *d, const int64_t *size)
{
    int64_t m[MEASURES];
    for (int k = measure(d, size, m) - 1; k >= 0; k--)
        if (m[k] < d->low[k] || m[k] > d->high[k]) return false;
    return true;
}

static void see(nb_dynamic *d, const int64_t *size)
{
    int64_t m[MEASURES];
    for (int k = measure(d, size, m) - 1; k >= 0; k--) {
        if (m[k] < d->low[k]) d->low[k] = m[k];
        if (m[k] > d->high[k]) d->high[k] = m[k];
    }
}

/* A program of its own. */
static bool make_own(const nb_graph *recorded, nb_member *to)
{
    nb_graph *g = nb_graph_copy(recorded);
    *to = (nb_member){.recorded = nb_graph_copy(recorded)};
    if (g && to->recorded && (to->exec = nb_exec_new(g))) return true;
    if (!to->recorded) nb_graph_free(g);
    nb_member_free(to);
    return false;
}

/* The member that what was recorded at those sizes has. */
static bool make_recorded(nb_dynamic *d, const int64_t *size,
                          const nb_graph *recorded, nb_member *to)
{
    bool has;
    if (!nb_family_has(d->family, size, recorded, &has)) return false;
    if (!has) return make_own(recorded, to);
    pthread_mutex_lock(&d->lock);
    see(d, size);
    pthread_mutex_unlock(&d->lock);
    return nb_family_at(d->family, size, to);
}

static bool make(nb_dynamic *d, int nx, nb_tensor *const *x,
                 const int64_t *size, nb_member *to)
{
    nb_recording r;
    pthread_mutex_lock(&d->lock);
    bool seen = is_seen(d, size);
    pthread_mutex_unlock(&d->lock);
    if (seen) return nb_family_at(d->family, size, to);
    if (nb_scope_open() != NB_OK) return false;
    bool ok = record_at(d, d->f, nx, x, size, &r);
    if (ok) {
        ok = same_outside(&r, &d->outside) ||
             nb_fail(NB_ERUNTIME, "compile: the function closes over other "
                                  "tensors at these sizes");
        ok = ok && make_recorded(d, size, r.graph, to);
        nb_recording_free(&r);
    }
    nb_scope_close(0, NULL);
    return ok;
}

/* Members beyond those that are kept, for the caller to free; those that run
 * go when they are left. */
static holder *cut(nb_dynamic *d)
{
    holder **at = &d->first, *gone = NULL;
    for (int i = 0; *at && i < MAX_MEMBERS; i++)
        at = &(*at)->next;
    while (*at) {
        holder *h = *at;
        *at = h->next;
        if (--h->uses) continue;
        h->next = gone;
        gone = h;
    }
    return gone;
}

static holder *find(nb_dynamic *d, const int64_t *size)
{
    size_t bytes = (size_t)d->samples.nsymbols * sizeof *size;
    for (holder **at = &d->first; *at; at = &(*at)->next) {
        holder *h = *at;
        if (memcmp(h->size, size, bytes)) continue;
        *at = h->next;
        h->next = d->first;
        d->first = h;
        h->uses++;
        return h;
    }
    return NULL;
}

static holder *add(nb_dynamic *d, const int64_t *size, nb_member member)
{
    holder *h = nb_alloc_zero(sizeof *h), *gone;
    if (!h) return nb_member_free(&member), NULL;
    h->member = member;
    h->uses = 2;
    memcpy(h->size, size, sizeof h->size);
    pthread_mutex_lock(&d->lock);
    bool ok =
        !d->ndonated || nb_exec_donate(member.exec, d->ndonated, d->donated);
    h->next = d->first;
    d->first = h;
    gone = cut(d);
    if (!ok) h->uses--;
    pthread_mutex_unlock(&d->lock);
    for (holder *next; gone; gone = next) {
        next = gone->next;
        holder_free(gone);
    }
    return ok ? h : NULL;
}

const nb_member *nb_dynamic_enter(nb_dynamic *d, int nx, nb_tensor *const *x)
{
    int64_t size[NB_MAX_SYMBOLS] = {0};
    nb_member made;
    if (!sizes_of(d, x, size)) return NULL;
    pthread_mutex_lock(&d->lock);
    holder *h = find(d, size);
    pthread_mutex_unlock(&d->lock);
    if (!h && make(d, nx, x, size, &made)) h = add(d, size, made);
    return h ? &h->member : NULL;
}

void nb_dynamic_leave(nb_dynamic *d, const nb_member *m)
{
    holder *h = (holder *)m;
    pthread_mutex_lock(&d->lock);
    bool gone = --h->uses == 0;
    pthread_mutex_unlock(&d->lock);
    if (gone) holder_free(h);
}

const nb_member *nb_dynamic_last(nb_dynamic *d)
{
    pthread_mutex_lock(&d->lock);
    holder *h = d->first;
    h->uses++;
    pthread_mutex_unlock(&d->lock);
    return &h->member;
}

bool nb_dynamic_donate(nb_dynamic *d, int n, const int *inputs)
{
    int *list = nb_alloc((size_t)(n + 1) * sizeof *list);
    if (!list) return false;
    if (n) memcpy(list, inputs, (size_t)n * sizeof *list);
    pthread_mutex_lock(&d->lock);
    nb_free(d->donated);
    d->donated = list;
    d->ndonated = n;
    bool ok = true;
    for (holder *h = d->first; ok && h; h = h->next)
        ok = nb_exec_donate(h->member.exec, n, inputs);
    pthread_mutex_unlock(&d->lock);
    return ok;
}

static bool keep_outside(nb_dynamic *d, const nb_recording *own)
{
    size_t room = (size_t)(own->ncaptured + 1) * sizeof *own->captured;
    d->outside =
        (nb_recording){.nkeys = own->nkeys, .captured = nb_alloc(room)};
    if (!d->outside.captured) return false;
    for (int i = 0; i < own->ncaptured; i++)
        d->outside.captured[d->outside.ncaptured++] = nb_keep(own->captured[i]);
    return true;
}

static bool settle(nb_dynamic *d, nb_tensor *const *x, const nb_recording *own)
{
    int64_t size[NB_MAX_SYMBOLS] = {0};
    nb_member made;
    if (!keep_outside(d, own)) return false;
    measure(d, d->samples.size[0], d->low);
    measure(d, d->samples.size[0], d->high);
    for (int p = 1; p < d->samples.npoints; p++)
        see(d, d->samples.size[p]);
    if (!sizes_of(d, x, size) || !make_recorded(d, size, own->graph, &made))
        return false;
    holder *h = add(d, size, made);
    if (h) nb_dynamic_leave(d, &h->member);
    return h;
}

bool nb_dynamic_new(nb_func *f, int nx, nb_tensor *const *x, int ndims,
                    const nb_dynamic_dim *dims, const nb_recording *own,
                    nb_dynamic **out, char **why)
{
    nb_dynamic *d = nb_alloc_zero(sizeof *d);
    int64_t size[NB_MAX_SYMBOLS];
    *out = NULL;
    *why = NULL;
    if (!d) return false;
    pthread_mutex_init(&d->lock, NULL);
    d->f = nb_func_keep(f);
    d->dim = nb_alloc((size_t)(ndims + 1) * sizeof *d->dim);
    bool ok = d->dim;
    for (int k = 0; ok && k < ndims; k++)
        ok = add_dim(d, nx, x, &dims[k]);
    ok = ok && sizes_of(d, x, size);
    if (ok) nb_samples_init(&d->samples, d->samples.nsymbols);
    ok = ok && find_family(d, f, nx, x, own, why);
    if (ok && d->family) ok = settle(d, x, own);
    if (ok && d->family)
        *out = d;
    else
        nb_dynamic_free(d);
    return ok;
}
