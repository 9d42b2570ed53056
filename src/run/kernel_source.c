/* kernel_source.c - kernels from sources: found in this process, or on disk, or
 * compiled; those of cards are in kernel_card.c.
 *
 * A library is known by a key of the sources, the headers beside them and
 * nabla/kernel.h, the compiler and its flags, and the processor; so what was
 * changed is compiled again, and what was changed back is not.  Libraries stay
 * open as long as the process: what was recorded calls them. */
#define _GNU_SOURCE
#include "run/kernel_source.h"
#include "backend/cpu/cpu.h"
#include "base/disk.h"
#include "ops/rows.h"
#include "run/compiler.h"
#include "run/kernel_files.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct library {
    struct library *next;
    nb_disk_key key;
    void *handle;
} library;

static struct {
    pthread_mutex_t lock; /* held while one is made: others wait for it */
    library *first;
} libraries = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool key_of(const nb_sources *s, const char *who, nb_disk_key *key)
{
    const char *version = nb_compiler_version(who);
    if (!version) return false;
    const char *part[] = {version, nb_compiler_flags, nb_cpu_target()->id,
                          nb_version()};
    for (int k = 0; k < 2; k++) {
        key->part[k] = s->hash[k];
        for (int i = 0; i < 4; i++)
            key->part[k] = nb_hash(key->part[k], part[i], strlen(part[i]));
    }
    return true;
}

static void *find(nb_disk_key key)
{
    for (library *l = libraries.first; l; l = l->next)
        if (!memcmp(&l->key, &key, sizeof key)) return l->handle;
    return NULL;
}

/* From disk; NULL, without an error unless memory ran out, if it is not there
 * or cannot be opened. */
static void *from_disk(nb_disk_key key, const char *who)
{
    nb_object o;
    if (!nb_disk_read(key, &o) || !o.data) return NULL;
    void *handle = nb_library_open(who, o.data, o.n);
    nb_object_free(&o);
    if (!handle && nb_error_code() != NB_EMEMORY) nb_error_clear();
    return handle;
}

static void *compiled(const nb_sources *s, nb_disk_key key, const char *who)
{
    nb_text bytes = {0};
    void *handle = NULL;
    if (nb_compiler_run(who, s->n, s->path, nb_kernel_headers(who), &bytes))
        handle = nb_library_open(who, bytes.data, (size_t)bytes.n);
    if (handle)
        nb_disk_write(key, &(nb_object){bytes.data, (size_t)bytes.n, 0});
    nb_text_free(&bytes);
    return handle;
}

static void *opened(const nb_sources *s, const char *who)
{
    nb_disk_key key;
    if (!key_of(s, who, &key)) return NULL;
    void *handle = find(key);
    if (handle) return handle;
    library *l = nb_alloc_forever(sizeof *l);
    if (!l) return NULL;
    handle = from_disk(key, who);
    if (!handle && !nb_failed()) handle = compiled(s, key, who);
    if (!handle) return free(l), NULL;
    *l = (library){libraries.first, key, handle};
    libraries.first = l;
    return handle;
}

static nb_kernel_fn *load_here(const nb_kernel_source *k)
{
    nb_sources s;
    bool ok = nb_sources_find(&s, k, 0) &&
              nb_sources_read(&s, k->name, s.n, s.path) &&
              nb_kernel_headers_add(k->name, s.hash);
    pthread_mutex_lock(&libraries.lock);
    void *lib = ok ? opened(&s, k->name) : NULL;
    pthread_mutex_unlock(&libraries.lock);
    void *fn = lib ? dlsym(lib, k->name) : NULL;
    if (lib && !fn)
        nb_fail(NB_EVALUE,
                "%s: there is no function for the CPU: %s does not export "
                "void %s(const nb_kernel_args *), see NB_KERNEL",
                k->name, s.path[0], k->name);
    nb_sources_free(&s);
    return (nb_kernel_fn *)fn;
}

/* A number that has no dtype yet gets that which it has alone. */
static nb_tensor *strong(nb_tensor *x)
{
    if (!x || !nb_is_weak(x)) return x;
    nb_dtype d = nb_dtype_common(1, &x);
    return d ? nb_as(x, d) : NULL;
}

/* Where the kernel runs: with its values, or where things are made. */
static int place_of(int nin, nb_tensor *const *x)
{
    int device = nin ? 0 : nb_device_in_force();
    for (int i = 0; i < nin; i++)
        if (x[i]->device) device = x[i]->device;
    return device;
}

static bool load(const nb_kernel_source *source, int device, nb_row_work *work)
{
    *work = (nb_row_work){0};
    return device ? (work->there = nb_kernel_load_there(source, device)) != NULL
                  : (work->fn = load_here(source)) != NULL;
}

nb_status nb_kernel_call(const nb_kernel_source *source, int nin,
                         nb_tensor *const *in, int nattr, const nb_named *attr,
                         int nout, const nb_type *type, nb_tensor **out)
{
    nb_results r = {.room = nout, .out = out};
    nb_row_work work;
    if (!source || !source->name || !*source->name)
        return nb_fail(NB_EVALUE, "a kernel without a name"), NB_EVALUE;
    nb_tensor **x = nb_alloc((size_t)(nin + 1) * sizeof *x);
    bool ok = x;
    for (int i = 0; ok && i < nin; i++)
        ok = (x[i] = strong(in[i]));
    ok = ok && nb_settle_devices(source->name, nin, x) &&
         load(source, place_of(nin, x), &work) &&
         nb_rows_record(source->name, &work, nin, x, nattr, attr, nout, type,
                        &r);
    nb_free(x);
    return NB_STATUS(ok);
}
