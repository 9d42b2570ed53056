/* archive.c - the list of arrays, and the choice of the format by suffix. */
#include "io/archive.h"

#include "io/bytes.h"
#include "io/format.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "arrays are lent to files as they are");
_Static_assert(sizeof(size_t) == 8, "file sizes are used as sizes in memory");

static const struct format {
    const char *suffix;
    bool (*load)(nb_archive *a, const nb_source *s);
    bool (*save)(const nb_archive *a, const char *path);
    bool named, notes;
} formats[] = {
    {".safetensors", nb_safetensors_load, nb_safetensors_save, true, true},
    {".npz", nb_npz_load, nb_npz_save, true, false},
    {".npy", nb_npy_load, nb_npy_save, false, false},
};

static const struct format *format_get(const char *op, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        size_t k = strlen(formats[i].suffix);
        if (n >= k && strcmp(path + n - k, formats[i].suffix) == 0)
            return &formats[i];
    }
    return nb_fail(NB_EVALUE,
                   "%s: %s: the suffix names no format "
                   "(.safetensors, .npz or .npy)",
                   op, path);
}

bool nb_array_measure(nb_array *x)
{
    size_t bytes = nb_dtype_size(x->dtype);
    bool empty = false;
    for (int d = 0; d < x->rank; d++) {
        int64_t n = x->size[d];
        if (n < 0) return false;
        if (n == 0) empty = true;
        if (__builtin_mul_overflow(bytes, n ? (size_t)n : 1, &bytes) ||
            bytes > PTRDIFF_MAX)
            return false;
    }
    x->bytes = empty ? 0 : bytes;
    return true;
}

bool nb_slab_new(nb_slab *s, size_t bytes)
{
    s->data = nb_block_new(bytes, &s->room);
    return s->data != NULL;
}

void nb_slab_free(nb_slab *s)
{
    nb_block_free(s->data, s->room);
    *s = (nb_slab){0};
}

bool nb_archive_take(nb_archive *a, nb_array x)
{
    if (!nb_grow(&a->array, &a->array_room, a->narrays + 1, sizeof x)) {
        nb_free(x.name);
        return false;
    }
    a->array[a->narrays++] = x;
    return true;
}

bool nb_archive_take_note(nb_archive *a, char *key, char *value)
{
    nb_note note = {key, value};
    if (!key || !value ||
        !nb_grow(&a->note, &a->note_room, a->nnotes + 1, sizeof note)) {
        nb_free(key);
        nb_free(value);
        return false;
    }
    a->note[a->nnotes++] = note;
    return true;
}

bool nb_archive_take_slab(nb_archive *a, nb_slab s)
{
    if (!nb_grow(&a->slab, &a->slab_room, a->nslabs + 1, sizeof s)) {
        nb_slab_free(&s);
        return false;
    }
    a->slab[a->nslabs++] = s;
    return true;
}

bool nb_archive_add(nb_archive *a, const char *name, nb_dtype dtype, int rank,
                    const int64_t *size, const void *data)
{
    nb_array x = {.dtype = dtype, .rank = rank, .data = data};
    if (dtype <= NB_NOTYPE || dtype >= NB_NDTYPES)
        return nb_fail(NB_ETYPE, "archive: %d is no dtype", (int)dtype);
    if (rank < 0 || rank > NB_ARRAY_RANK)
        return nb_fail(NB_EVALUE, "archive: rank %d is not within 0 to %d",
                       rank, NB_ARRAY_RANK);
    for (int d = 0; d < rank; d++)
        x.size[d] = size[d];
    if (!nb_array_measure(&x))
        return nb_fail(NB_EVALUE,
                       "archive: the extents of an array are not negative "
                       "and its bytes fit an address");
    x.name = nb_copy_text(name);
    return x.name && nb_archive_take(a, x);
}

bool nb_archive_add_note(nb_archive *a, const char *key, const char *value)
{
    char *k = nb_copy_text(key), *v = k ? nb_copy_text(value) : NULL;
    return nb_archive_take_note(a, k, v);
}

const nb_array *nb_archive_find(const nb_archive *a, const char *name)
{
    for (int i = 0; i < a->narrays; i++)
        if (strcmp(a->array[i].name, name) == 0) return &a->array[i];
    return NULL;
}

const char *nb_archive_find_note(const nb_archive *a, const char *key)
{
    for (int i = 0; i < a->nnotes; i++)
        if (strcmp(a->note[i].key, key) == 0) return a->note[i].value;
    return NULL;
}

void nb_archive_free(nb_archive *a)
{
    for (int i = 0; i < a->narrays; i++)
        nb_free(a->array[i].name);
    for (int i = 0; i < a->nnotes; i++) {
        nb_free(a->note[i].key);
        nb_free(a->note[i].value);
    }
    for (int i = 0; i < a->nslabs; i++)
        nb_slab_free(&a->slab[i]);
    nb_free(a->array);
    nb_free(a->note);
    nb_free(a->slab);
    *a = (nb_archive){0};
}

static int compare(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

/* The texts at `first`, `step` bytes apart, must differ. */
static bool check_differ(const char *op, const char *path, const char *what,
                         const void *first, size_t step, int n)
{
    const char **sorted = nb_alloc((size_t)n * sizeof *sorted);
    if (!sorted) return false;
    for (int i = 0; i < n; i++)
        memcpy(&sorted[i], (const char *)first + (size_t)i * step,
               sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    bool ok = true;
    for (int i = 1; ok && i < n; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            ok =
                nb_fail(NB_EVALUE,
                        "%s: %s: two %s are named %s "
                        "(names differ)",
                        op, path, what, NB_QUOTE(sorted[i], strlen(sorted[i])));
    nb_free(sorted);
    return ok;
}

static bool check_names(const char *op, const char *path, const nb_archive *a)
{
    if (a->narrays > 1 && !check_differ(op, path, "arrays", &a->array->name,
                                        sizeof *a->array, a->narrays))
        return false;
    return a->nnotes < 2 || check_differ(op, path, "notes", &a->note->key,
                                         sizeof *a->note, a->nnotes);
}

bool nb_archive_load(nb_archive *a, const char *path)
{
    nb_source s;
    *a = (nb_archive){0};
    const struct format *f = format_get("load", path);
    if (!f || !nb_source_open(&s, path)) return false;
    bool ok = f->load(a, &s) && check_names("load", path, a);
    nb_source_close(&s);
    if (!ok) nb_archive_free(a);
    return ok;
}

static bool check_text(const char *path, const char *what, const char *text)
{
    return nb_utf8_is(text, strlen(text)) ||
           nb_fail(NB_EVALUE, "save: %s: %s %s is not UTF-8", path, what,
                   NB_QUOTE(text, strlen(text)));
}

static bool check_array(const char *path, const nb_array *x)
{
    nb_array again = *x;
    if (x->dtype <= NB_NOTYPE || x->dtype >= NB_NDTYPES)
        return nb_fail(NB_ETYPE, "save: %s: %d is no dtype", path,
                       (int)x->dtype);
    if (x->rank < 0 || x->rank > NB_ARRAY_RANK || !nb_array_measure(&again) ||
        again.bytes != x->bytes || (x->bytes > 0 && !x->data))
        return nb_fail(NB_EVALUE,
                       "save: %s: an array of rank %d has %zu bytes "
                       "(extents times element size, rank at most %d)",
                       path, x->rank, x->bytes, NB_ARRAY_RANK);
    return true;
}

static bool check_save(const struct format *f, const nb_archive *a,
                       const char *path)
{
    for (int i = 0; i < a->narrays; i++)
        if (!check_array(path, &a->array[i]) ||
            (f->named && !check_text(path, "name", a->array[i].name)))
            return false;
    if (!f->notes && a->nnotes > 0)
        return nb_fail(NB_EVALUE,
                       "save: %s: %d notes of metadata have no place in a "
                       "%s file (.safetensors has one)",
                       path, a->nnotes, f->suffix);
    for (int i = 0; i < a->nnotes; i++)
        if (!check_text(path, "metadata key", a->note[i].key) ||
            !check_text(path, "metadata value", a->note[i].value))
            return false;
    return !f->named || check_names("save", path, a);
}

bool nb_archive_save(const nb_archive *a, const char *path)
{
    const struct format *f = format_get("save", path);
    return f && check_save(f, a, path) && f->save(a, path);
}
