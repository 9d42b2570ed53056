/* compile.c - a function compiled for each combination of types that it meets.
 *
 * Executables are kept in a list, the one used last in front.  All compiled
 * functions are in a list of the process, so that their caches can be dropped
 * together. */
#define _POSIX_C_SOURCE 200809L
#include "nabla/compile.h"
#include "nabla/explain.h"

#include "run/lazy.h"
#include "run/sharded.h"
#include "transform/region.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct entry {
    struct entry *next;
    nb_executable *executable; /* NULL: cannot be compiled */
    int nx, n;
    int64_t key[];
} entry;

typedef struct compiled {
    struct compiled *before, *after;
    nb_func *of;
    pthread_mutex_t lock;
    entry *first;
    int max;
    int64_t budget;      /* bytes of collectives; 0: any */
    int ndims;           /* of any size */
    nb_dynamic_dim *dim; /* names are ours */
    atomic_bool fixed;   /* its program depends on sizes: one for each */
    nb_compile_stats stats;
} compiled;

static struct {
    pthread_mutex_t lock;
    compiled *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void enlist(compiled *c)
{
    pthread_mutex_lock(&all.lock);
    c->after = all.first;
    if (c->after) c->after->before = c;
    all.first = c;
    pthread_mutex_unlock(&all.lock);
}

static void delist(compiled *c)
{
    pthread_mutex_lock(&all.lock);
    if (c->after) c->after->before = c->before;
    if (c->before)
        c->before->after = c->after;
    else
        all.first = c->after;
    pthread_mutex_unlock(&all.lock);
}

static void entry_free(entry *e)
{
    nb_executable_drop(e->executable);
    nb_free(e);
}

static void drop_entries(entry *e)
{
    for (entry *next; e; e = next) {
        next = e->next;
        entry_free(e);
    }
}

static void dims_free(nb_dynamic_dim *dim, int n)
{
    for (int i = 0; dim && i < n; i++)
        nb_free((char *)dim[i].name);
    nb_free(dim);
}

static void release(void *ctx)
{
    compiled *c = ctx;
    delist(c);
    drop_entries(c->first);
    dims_free(c->dim, c->ndims);
    pthread_mutex_destroy(&c->lock);
    nb_func_drop(c->of);
    nb_free(c);
}

/* The types of the arguments in words; -1 is any size. */
enum { ANY = -1 };

static int64_t type_word(const nb_tensor *x)
{
    /* A pointer has 48 bits. */
    return (int64_t)((uint64_t)(uintptr_t)x->sharding << 16) |
           (int64_t)x->rank << 8 | x->dtype;
}

static int key_size(int nx, nb_tensor *const *x)
{
    int n = 2 * nx;
    for (int i = 0; i < nx; i++)
        n += x[i]->rank;
    return n;
}

static void key_write(int nx, nb_tensor *const *x, int64_t *key)
{
    for (int i = 0; i < nx; i++) {
        *key++ = type_word(x[i]);
        *key++ = x[i]->device;
        for (int d = 0; d < x[i]->rank; d++)
            *key++ = nb_tensor_size(x[i])[d].code;
    }
}

static bool matches(const entry *e, int nx, nb_tensor *const *x)
{
    const int64_t *key = e->key;
    if (e->nx != nx) return false;
    for (int i = 0; i < nx; i++) {
        if (*key++ != type_word(x[i]) || *key++ != x[i]->device) return false;
        for (int d = 0; d < x[i]->rank; d++, key++)
            if (*key != nb_tensor_size(x[i])[d].code && *key != ANY)
                return false;
    }
    return true;
}

/* Opens the sizes in a key that may be any. */
static void key_open(const compiled *c, int nx, nb_tensor *const *x,
                     int64_t *key)
{
    for (int i = 0; i < nx; i++) {
        key += 2;
        for (int k = 0; k < c->ndims; k++) {
            int axis = c->dim[k].axis;
            if (c->dim[k].argument == i)
                key[axis < 0 ? axis + x[i]->rank : axis] = ANY;
        }
        key += x[i]->rank;
    }
}

/* The entry for x, moved to the front. */
static entry *find(compiled *c, int nx, nb_tensor *const *x)
{
    for (entry **at = &c->first; *at; at = &(*at)->next) {
        entry *e = *at;
        if (!matches(e, nx, x)) continue;
        *at = e->next;
        e->next = c->first;
        return c->first = e;
    }
    return NULL;
}

/* What is beyond the size of the cache, for the caller to drop. */
static entry *cut(compiled *c)
{
    entry *e = c->first;
    for (int i = 1; e && i < c->max; i++)
        e = e->next;
    entry *rest = e ? e->next : NULL;
    if (e) e->next = NULL;
    return rest;
}

static int count(const compiled *c)
{
    int n = 0;
    for (const entry *e = c->first; e; e = e->next)
        n++;
    return n;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* An executable within the budget, which is known before there is code. */
static bool make(const compiled *c, int nx, nb_tensor *const *x, int ndims,
                 nb_executable **out)
{
    nb_executable *e;
    if (nb_executable_lower(c->of, nx, x, ndims, c->dim, &e) != NB_OK)
        return false;
    bool ok = nb_executable_budget(e, c->budget) == NB_OK &&
              nb_executable_load(e) == NB_OK;
    if (ok)
        *out = e;
    else
        nb_executable_drop(e);
    return ok;
}

/* Compiles for x; *e is the executable, kept for the caller, or NULL where the
 * function asks for values: that is remembered too. */
static bool add(compiled *c, int nx, nb_tensor *const *x, nb_executable **e)
{
    double from = now_ms();
    int n = key_size(nx, x);
    entry *fresh = nb_alloc(sizeof *fresh + (size_t)n * sizeof *fresh->key);
    if (!fresh) return false;
    *fresh = (entry){.nx = nx, .n = n};
    key_write(nx, x, fresh->key);
    bool any = c->ndims && !c->fixed;
    bool ok = make(c, nx, x, any ? c->ndims : 0, &fresh->executable);
    bool asked = !ok && nb_value_asked();
    if (asked) nb_error_clear();
    if (ok && any && *nb_executable_fixed(fresh->executable))
        c->fixed = true;
    else if (ok && any)
        key_open(c, nx, x, fresh->key);
    *e = nb_executable_keep(fresh->executable);
    pthread_mutex_lock(&c->lock);
    c->stats.misses += !asked;
    c->stats.fallbacks += asked;
    c->stats.compile_ms += now_ms() - from;
    bool wanted = (ok || asked) && !find(c, nx, x); /* nobody was quicker */
    if (wanted) {
        fresh->next = c->first;
        c->first = fresh;
    }
    entry *old = cut(c);
    pthread_mutex_unlock(&c->lock);
    drop_entries(old);
    if (!wanted) entry_free(fresh);
    return ok || asked;
}

/* The executable for x, kept for the caller; NULL where there is none. */
static bool executable_for(compiled *c, int nx, nb_tensor *const *x,
                           nb_executable **e)
{
    pthread_mutex_lock(&c->lock);
    const entry *found = find(c, nx, x);
    *e = found ? nb_executable_keep(found->executable) : NULL;
    c->stats.hits += *e != NULL;
    c->stats.fallbacks += found && !*e;
    pthread_mutex_unlock(&c->lock);
    return found || add(c, nx, x, e);
}

static nb_status call(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    compiled *c = ctx;
    nb_executable *e;
    if (nb_is_watched(nx, x)) return nb_func_call(c->of, nx, x, ny, y);
    if (!executable_for(c, nx, x, &e)) return NB_STATUS(false);
    if (!e) return nb_func_call(c->of, nx, x, ny, y);
    nb_status s = nb_executable_run(e, nx, x, ny, y);
    nb_executable_drop(e);
    return s;
}

static bool copy_dims(compiled *c, int n, const nb_dynamic_dim *dim)
{
    if (!n) return true;
    c->dim = nb_alloc_zero((size_t)n * sizeof *c->dim);
    if (!c->dim) return false;
    for (; c->ndims < n; c->ndims++) {
        nb_dynamic_dim d = dim[c->ndims];
        if (!(d.name = nb_copy_text(d.name))) return false;
        c->dim[c->ndims] = d;
    }
    return true;
}

nb_func *nb_compile(nb_func *f, const nb_compile_options *o)
{
    int max = o && o->max_cache_size ? o->max_cache_size : 64;
    if (!f) return NULL;
    if (max < 1)
        return nb_fail(NB_EVALUE, "compile: max_cache_size is %d, not positive",
                       max);
    compiled *c = nb_alloc_zero(sizeof *c);
    if (!c) return NULL;
    if (o && !copy_dims(c, o->ndynamic, o->dynamic)) {
        dims_free(c->dim, c->ndims);
        nb_free(c);
        return NULL;
    }
    c->of = nb_func_keep(f);
    c->max = max;
    c->budget = o ? o->max_collective_bytes : 0;
    pthread_mutex_init(&c->lock, NULL);
    enlist(c);
    return nb_func_tidy(nb_func_owning(call, c, release));
}

static compiled *compiled_of(nb_func *f)
{
    compiled *c = f ? nb_func_ctx(f, call) : NULL;
    if (f && !c)
        return nb_fail(NB_EVALUE, "compile: that function is not compiled");
    return c;
}

nb_status nb_compile_stats_of(nb_func *f, nb_compile_stats *out)
{
    compiled *c = compiled_of(f);
    if (!c) return NB_STATUS(false);
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    out->cache_size = count(c);
    pthread_mutex_unlock(&c->lock);
    return NB_OK;
}

static entry *take_all(compiled *c)
{
    pthread_mutex_lock(&c->lock);
    entry *old = c->first;
    c->first = NULL;
    pthread_mutex_unlock(&c->lock);
    return old;
}

nb_status nb_compile_clear(nb_func *f)
{
    compiled *c = compiled_of(f);
    if (!c) return NB_STATUS(false);
    drop_entries(take_all(c));
    return NB_OK;
}

/* Dropped outside the lock, since dropping an executable may drop a function
 * that is compiled itself. */
void nb_caches_clear(void)
{
    entry *old = NULL;
    pthread_mutex_lock(&all.lock);
    for (compiled *c = all.first; c; c = c->after) {
        entry *some = take_all(c), **end = &some;
        while (*end)
            end = &(*end)->next;
        *end = old;
        old = some;
    }
    pthread_mutex_unlock(&all.lock);
    drop_entries(old);
    nb_lazy_clear();
    nb_sharded_clear();
}
