/* safetensors.c - the format of model weights: the length of a JSON header in
 * eight bytes, the header, and the data of all tensors without a gap.
 *
 *   {"__metadata__": {"key": "value"},
 *    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
 *
 * What is read must obey the format to the letter: every byte of the data
 * belongs to one tensor, shapes and offsets agree, no name repeats.  What is
 * written equals, byte for byte, what the reference implementation writes. */
#include "base/bool.h"
#include "io/bytes.h"
#include "io/format.h"
#include "io/json.h"

#include <stdlib.h>
#include <string.h>

/* In the order in which the reference lays tensors out: wide elements first,
 * so that all are aligned. */
static const struct kind {
    nb_dtype dtype;
    const char *name;
} kinds[] = {
    {NB_U64, "U64"},   {NB_I64, "I64"}, {NB_F64, "F64"},   {NB_F32, "F32"},
    {NB_U32, "U32"},   {NB_I32, "I32"}, {NB_BF16, "BF16"}, {NB_F16, "F16"},
    {NB_U16, "U16"},   {NB_I16, "I16"}, {NB_I8, "I8"},     {NB_U8, "U8"},
    {NB_BOOL, "BOOL"},
};
enum { NKINDS = sizeof kinds / sizeof *kinds, MAX_HEADER = 100000000 };
static const char METADATA[] = "__metadata__";

static int kind_of(nb_dtype dtype)
{
    int i = 0;
    while (i < NKINDS - 1 && kinds[i].dtype != dtype)
        i++;
    return i;
}

typedef struct entry {
    nb_array x;
    uint64_t begin, end;
} entry;

typedef struct reader {
    const nb_source *s;
    nb_place place;
    nb_archive *a;
    nb_json j;
    uint64_t data, bytes; /* where the data lies */
    entry *entry;
    int n, room;
    bool noted;
} reader;

static const char *quote(nb_quoted *q, const char *text)
{
    return nb_quote(q, text, strlen(text));
}

static bool read_dtype(reader *r, entry *e)
{
    nb_quoted name, dtype;
    char *text = nb_json_text(&r->j);
    if (!text) return false;
    for (int i = 0; i < NKINDS; i++)
        if (strcmp(kinds[i].name, text) == 0) e->x.dtype = kinds[i].dtype;
    if (!e->x.dtype)
        nb_fail_at(r->place, NB_ETYPE,
                   "tensor %s has dtype %s (BOOL, I8 to I64, U8 to U64, F16, "
                   "BF16, F32 or F64)",
                   quote(&name, e->x.name), quote(&dtype, text));
    nb_free(text);
    return e->x.dtype != NB_NOTYPE;
}

static bool read_shape(reader *r, entry *e)
{
    bool first = true;
    int more;
    if (!nb_json_take(&r->j, '[')) return false;
    while ((more = nb_json_next(&r->j, ']', &first)) > 0) {
        if (e->x.rank == NB_ARRAY_RANK)
            return nb_fail_at(
                r->place, NB_EVALUE, "tensor %s has more than %d axes",
                NB_QUOTE(e->x.name, strlen(e->x.name)), NB_ARRAY_RANK);
        if (!nb_json_count(&r->j, &e->x.size[e->x.rank++])) return false;
    }
    return more == 0;
}

static bool read_offsets(reader *r, entry *e)
{
    int64_t begin, end;
    bool ok = nb_json_take(&r->j, '[') && nb_json_count(&r->j, &begin) &&
              nb_json_take(&r->j, ',') && nb_json_count(&r->j, &end) &&
              nb_json_take(&r->j, ']');
    if (!ok) return false;
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    return true;
}

static const struct field {
    const char *name;
    bool (*read)(reader *r, entry *e);
} fields[] = {
    {"dtype", read_dtype},
    {"shape", read_shape},
    {"data_offsets", read_offsets},
};
enum { NFIELDS = 3 };

static bool read_field(reader *r, entry *e, bool seen[NFIELDS])
{
    nb_quoted name, field;
    char *key = nb_json_text(&r->j);
    if (!key || !nb_json_take(&r->j, ':')) {
        nb_free(key);
        return false;
    }
    int i = 0;
    while (i < NFIELDS && strcmp(fields[i].name, key) != 0)
        i++;
    bool fits = i < NFIELDS && !seen[i];
    if (!fits)
        nb_fail_at(r->place, NB_EVALUE,
                   "tensor %s has %s field %s (dtype, shape and data_offsets, "
                   "once each)",
                   quote(&name, e->x.name), i < NFIELDS ? "twice the" : "a",
                   quote(&field, key));
    nb_free(key);
    if (!fits) return false;
    seen[i] = true;
    return fields[i].read(r, e);
}

static bool check_entry(const reader *r, entry *e, const bool seen[NFIELDS])
{
    nb_quoted name;
    quote(&name, e->x.name);
    for (int i = 0; i < NFIELDS; i++)
        if (!seen[i])
            return nb_fail_at(r->place, NB_EVALUE,
                              "tensor %s has no field '%s' (dtype, shape and "
                              "data_offsets, once each)",
                              name.text, fields[i].name);
    if (!nb_array_measure(&e->x))
        return nb_fail_at(r->place, NB_EVALUE,
                          "tensor %s has a shape whose bytes fit no address",
                          name.text);
    if (e->begin > e->end || e->end > r->bytes)
        return nb_fail_at(r->place, NB_EVALUE,
                          "tensor %s has data_offsets [%llu, %llu] in %llu "
                          "bytes of data",
                          name.text, (unsigned long long)e->begin,
                          (unsigned long long)e->end,
                          (unsigned long long)r->bytes);
    if (e->end - e->begin != e->x.bytes)
        return nb_fail_at(r->place, NB_EVALUE,
                          "tensor %s has %llu bytes between its data_offsets "
                          "and %zu by its shape of %s",
                          name.text, (unsigned long long)(e->end - e->begin),
                          e->x.bytes, nb_dtype_name(e->x.dtype));
    return true;
}

/* Takes over the name. */
static bool read_tensor(reader *r, char *name)
{
    entry e = {.x.name = name};
    bool seen[NFIELDS] = {false}, first = true;
    int more = nb_json_take(&r->j, '{') ? 1 : -1;
    while (more > 0 && (more = nb_json_next(&r->j, '}', &first)) > 0)
        if (!read_field(r, &e, seen)) more = -1;
    if (more == 0 && check_entry(r, &e, seen) &&
        nb_grow(&r->entry, &r->room, r->n + 1, sizeof e)) {
        r->entry[r->n++] = e;
        return true;
    }
    nb_free(name);
    return false;
}

static bool read_notes(reader *r)
{
    bool first = true;
    int more;
    if (r->noted)
        return nb_fail_at(r->place, NB_EVALUE, "has two %s", METADATA);
    r->noted = true;
    if (!nb_json_take(&r->j, '{')) return false;
    while ((more = nb_json_next(&r->j, '}', &first)) > 0) {
        char *key = nb_json_text(&r->j), *value = NULL;
        if (key && nb_json_take(&r->j, ':')) value = nb_json_text(&r->j);
        if (!nb_archive_take_note(r->a, key, value)) return false;
    }
    return more == 0;
}

static bool read_entries(reader *r)
{
    bool first = true;
    int more;
    if (r->j.at == r->j.end || *r->j.at != '{')
        return nb_json_take(&r->j, '{') &&
               nb_fail_at(r->place, NB_EVALUE,
                          "the header begins with blanks "
                          "(with '{')");
    r->j.at++;
    while ((more = nb_json_next(&r->j, '}', &first)) > 0) {
        char *name = nb_json_text(&r->j);
        if (!name) return false;
        bool ok = nb_json_take(&r->j, ':');
        if (ok && strcmp(name, METADATA) != 0) {
            ok = read_tensor(r, name);
        } else {
            nb_free(name);
            ok = ok && read_notes(r);
        }
        if (!ok) return false;
    }
    return more == 0 && nb_json_end(&r->j);
}

static int by_place(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->x.name, b->x.name);
}

/* Sorts the tensors by their place: each begins where the one before ends. */
static bool check_cover(reader *r)
{
    uint64_t at = 0;
    if (r->n > 0) qsort(r->entry, (size_t)r->n, sizeof *r->entry, by_place);
    for (int i = 0; i < r->n; i++) {
        const entry *e = &r->entry[i];
        if (e->begin != at)
            return nb_fail_at(r->place, NB_EVALUE,
                              "tensor %s begins at byte %llu of the data, the "
                              "one before ends at %llu (no holes, no overlap)",
                              NB_QUOTE(e->x.name, strlen(e->x.name)),
                              (unsigned long long)e->begin,
                              (unsigned long long)at);
        at = e->end;
    }
    return at == r->bytes ||
           nb_fail_at(r->place, NB_EVALUE,
                      "the tensors end at byte %llu of %llu bytes of data "
                      "(the tensors cover the data)",
                      (unsigned long long)at, (unsigned long long)r->bytes);
}

/* The header, allocated; r->data and r->bytes are set. */
static char *read_header(reader *r)
{
    uint8_t head[8];
    unsigned long long size = r->s->size;
    if (size < sizeof head)
        return nb_fail_at(r->place, NB_EVALUE,
                          "has %llu bytes (8 for the length of the header, "
                          "then the header)",
                          size);
    if (!nb_source_read(r->s, 0, head, sizeof head)) return NULL;
    unsigned long long length = nb_get64(head);
    if (length > size - sizeof head || length > MAX_HEADER)
        return nb_fail_at(r->place, NB_EVALUE,
                          "announces a header of %llu bytes, has %llu (and "
                          "at most %d are allowed)",
                          length, size - sizeof head, MAX_HEADER);
    r->data = sizeof head + length;
    r->bytes = size - r->data;
    char *header = nb_alloc(length);
    if (!header) return NULL;
    if (!nb_source_read(r->s, sizeof head, header, length)) {
        nb_free(header);
        return NULL;
    }
    if (nb_utf8_is(header, length)) return header;
    nb_free(header);
    return nb_fail_at(r->place, NB_EVALUE, "the header is not UTF-8");
}

/* Where the element size does not divide the place, a copy is made. */
static bool align(reader *r, nb_array *x)
{
    nb_slab copy;
    if ((uintptr_t)x->data % nb_dtype_size(x->dtype) == 0) return true;
    if (!nb_slab_new(&copy, x->bytes)) return false;
    memcpy(copy.data, x->data, x->bytes);
    x->data = copy.data;
    return nb_archive_take_slab(r->a, copy);
}

static bool read_data(reader *r)
{
    nb_slab all;
    if (!nb_slab_new(&all, r->bytes)) return false;
    uint8_t *data = all.data;
    if (!nb_archive_take_slab(r->a, all) ||
        !nb_source_read(r->s, r->data, data, r->bytes))
        return false;
    for (int i = 0; i < r->n; i++) {
        nb_array *x = &r->entry[i].x;
        x->data = data + r->entry[i].begin;
        if (x->dtype == NB_BOOL)
            nb_bool_settle(data + r->entry[i].begin, x->bytes);
        if (!align(r, x)) return false;
    }
    return true;
}

bool nb_safetensors_load(nb_archive *a, const nb_source *s)
{
    reader r = {.s = s, .a = a, .place.path = s->path};
    char *header = read_header(&r);
    if (!header) return false;
    r.j = (nb_json){s->path, header, header, header + (r.data - 8)};
    bool ok = read_entries(&r) && check_cover(&r) && read_data(&r);
    nb_free(header);
    for (int i = 0; i < r.n; i++)
        if (ok)
            ok = nb_archive_take(a, r.entry[i].x);
        else
            nb_free(r.entry[i].x.name);
    nb_free(r.entry);
    return ok;
}

static int by_kind(const void *x, const void *y)
{
    const nb_array *a = *(nb_array *const *)x, *b = *(nb_array *const *)y;
    int i = kind_of(a->dtype), j = kind_of(b->dtype);
    return i != j ? i - j : strcmp(a->name, b->name);
}

static void print_tensor(nb_text *t, const nb_array *x, uint64_t *at)
{
    nb_json_print(t, x->name);
    nb_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[",
                kinds[kind_of(x->dtype)].name);
    for (int d = 0; d < x->rank; d++)
        nb_text_add(t, "%s%lld", d ? "," : "", (long long)x->size[d]);
    nb_text_add(t, "],\"data_offsets\":[%llu,", (unsigned long long)*at);
    *at += x->bytes;
    nb_text_add(t, "%llu]}", (unsigned long long)*at);
}

/* An escaped text is six times as long at most: while the header so far and
 * the next text are within the limit, lengths fit an int. */
static bool fits(const nb_text *t, const char *next, const char *path)
{
    if (t->n <= MAX_HEADER && strlen(next) <= MAX_HEADER) return !t->failed;
    return nb_fail(NB_EVALUE,
                   "save: %s: the names and metadata take more than the %d "
                   "bytes allowed for a header",
                   path, MAX_HEADER);
}

static bool print_notes(nb_text *t, const nb_archive *a, const char *path)
{
    if (a->nnotes == 0) return true;
    nb_text_add(t, "\"%s\":{", METADATA);
    for (int i = 0; i < a->nnotes; i++) {
        const nb_note *note = &a->note[i];
        if (i > 0) nb_text_put(t, ",", 1);
        if (!fits(t, note->key, path)) return false;
        nb_json_print(t, note->key);
        nb_text_put(t, ":", 1);
        if (!fits(t, note->value, path)) return false;
        nb_json_print(t, note->value);
    }
    return nb_text_put(t, "}", 1);
}

static bool print_header(nb_text *t, const nb_archive *a,
                         nb_array *const *sorted, const char *path)
{
    uint64_t at = 0;
    nb_text_put(t, "{", 1);
    if (!print_notes(t, a, path)) return false;
    for (int i = 0; i < a->narrays; i++) {
        if (!fits(t, sorted[i]->name, path)) return false;
        if (i > 0 || a->nnotes > 0) nb_text_put(t, ",", 1);
        print_tensor(t, sorted[i], &at);
    }
    nb_text_put(t, "}", 1);
    while (!t->failed && t->n % 8 != 0)
        nb_text_put(t, " ", 1);
    return fits(t, "", path);
}

static bool write_all(const nb_text *header, nb_array *const *sorted, int n,
                      const char *path)
{
    nb_sink s;
    uint8_t head[8];
    nb_put(head, (uint64_t)header->n, sizeof head);
    if (!nb_sink_open(&s, path)) return false;
    bool ok = nb_sink_write(&s, head, sizeof head) &&
              nb_sink_write(&s, header->data, (size_t)header->n);
    for (int i = 0; ok && i < n; i++)
        ok = nb_sink_write(&s, sorted[i]->data, sorted[i]->bytes);
    return nb_sink_close(&s, ok);
}

bool nb_safetensors_save(const nb_archive *a, const char *path)
{
    nb_text header = {0};
    if (nb_archive_find(a, METADATA))
        return nb_fail(NB_EVALUE,
                       "save: %s: an array is named '%s' (the name of the "
                       "notes)",
                       path, METADATA);
    nb_array **sorted = nb_alloc((size_t)a->narrays * sizeof *sorted);
    if (!sorted) return false;
    for (int i = 0; i < a->narrays; i++)
        sorted[i] = &a->array[i];
    qsort(sorted, (size_t)a->narrays, sizeof *sorted, by_kind);
    bool ok = print_header(&header, a, sorted, path) &&
              write_all(&header, sorted, a->narrays, path);
    nb_text_free(&header);
    nb_free(sorted);
    return ok;
}
