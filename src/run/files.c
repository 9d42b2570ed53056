/* files.c - tensors to files and back.
 *
 * io knows arrays in memory; here they are those of tensors.  A file that was
 * loaded is counted: it and each of its tensors that is alive hold the memory
 * of all of them. */
#include "base/memory.h"
#include "core/tensor.h"
#include "io/archive.h"
#include "nabla/device.h"
#include "nabla/io.h"

/* Row-major copies of tensors that are not so. */
typedef struct copies {
    nb_slab *slab;
    int n, room;
} copies;

static const void *copy(copies *all, nb_tensor *x)
{
    nb_slab s;
    size_t bytes = (size_t)nb_elements(x) * nb_dtype_size(nb_dtype_of(x));
    if (!nb_grow(&all->slab, &all->room, all->n + 1, sizeof s)) return NULL;
    s.data = nb_block_new(bytes, &s.room);
    if (!s.data) return NULL;
    all->slab[all->n++] = s;
    return nb_read(x, NB_NOTYPE, s.data) == NB_OK ? s.data : NULL;
}

static void release_copies(copies *all)
{
    for (int i = 0; i < all->n; i++)
        nb_block_free(all->slab[i].data, all->slab[i].room);
    nb_free(all->slab);
}

static bool add(nb_archive *a, const char *name, nb_tensor *x, copies *all)
{
    int64_t size[NB_MAX_RANK];
    const void *data = nb_data(x, NULL);
    if (data && !nb_tensor_is_packed(x)) data = copy(all, x);
    nb_sizes(x, size);
    return data &&
           nb_archive_add(a, name, nb_dtype_of(x), nb_rank(x), size, data);
}

nb_status nb_save(const char *path, int n, const char *const *names,
                  nb_tensor *const *tensors, int nnotes,
                  const char *const *keys, const char *const *values)
{
    nb_archive a = {0};
    copies all = {0};
    bool ok = nb_realize_now(n, tensors) && nb_scope_open() == NB_OK;
    if (!ok) return nb_error_code();
    for (int i = 0; ok && i < n; i++)
        ok = add(&a, names ? names[i] : "", nb_to_device(tensors[i], 0), &all);
    for (int i = 0; ok && i < nnotes; i++)
        ok = nb_archive_add_note(&a, keys[i], values[i]);
    ok = ok && nb_archive_save(&a, path);
    nb_archive_free(&a);
    release_copies(&all);
    nb_scope_close(0, NULL);
    return NB_STATUS(ok);
}

struct nb_file {
    atomic_int refs;
    nb_archive a;
};

nb_status nb_load(const char *path, nb_file **out)
{
    nb_file *f = nb_alloc(sizeof *f);
    *out = NULL;
    if (!f) return NB_STATUS(false);
    f->refs = 1;
    if (!nb_archive_load(&f->a, path)) {
        nb_free(f);
        return NB_STATUS(false);
    }
    *out = f;
    return NB_OK;
}

static void drop(void *file)
{
    nb_file *f = file;
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    nb_archive_free(&f->a);
    nb_free(f);
}

void nb_file_free(nb_file *f)
{
    if (f) drop(f);
}

int nb_file_tensors(const nb_file *f)
{
    return f->a.narrays;
}

const char *nb_file_name(const nb_file *f, int i)
{
    return i >= 0 && i < f->a.narrays ? f->a.array[i].name : NULL;
}

static nb_tensor *tensor(nb_file *f, const nb_array *x)
{
    nb_tensor *y =
        nb_borrow(x->dtype, x->rank, x->size, NULL, (void *)x->data, drop, f);
    if (y) atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return y;
}

nb_tensor *nb_file_tensor(nb_file *f, int i)
{
    if (i >= 0 && i < f->a.narrays) return tensor(f, &f->a.array[i]);
    return nb_fail(NB_EINDEX, "load: tensor %d of %d", i, f->a.narrays);
}

nb_tensor *nb_file_get(nb_file *f, const char *name)
{
    const nb_array *x = nb_archive_find(&f->a, name);
    return x ? tensor(f, x)
             : nb_fail(NB_EKEY, "load: no tensor named %s among %d", name,
                       f->a.narrays);
}

int nb_file_notes(const nb_file *f)
{
    return f->a.nnotes;
}

const char *nb_file_note_key(const nb_file *f, int i)
{
    return i >= 0 && i < f->a.nnotes ? f->a.note[i].key : NULL;
}

const char *nb_file_note(const nb_file *f, int i)
{
    return i >= 0 && i < f->a.nnotes ? f->a.note[i].value : NULL;
}
