/* npy.c - one array in a file, as NumPy writes it: a magic text, a version,
 * the length of a head, the head (a Python dictionary as text) and the data.
 *
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * Versions 1.0, 2.0 and 3.0 differ in the width of the length and in the
 * encoding of field names, which plain arrays have not.  Data in the other
 * byte order or in columns is turned round while loading.  What is written
 * equals, byte for byte, what NumPy writes. */
#include "base/bool.h"
#include "io/bytes.h"
#include "io/format.h"

#include <string.h>

static const char MAGIC[] = "\x93NUMPY";
enum { NMAGIC = 6, ALIGN = 64 };

/* Kind and size of elements; the order of bytes stands before them. */
static const struct kind {
    nb_dtype dtype;
    char name[3];
} kinds[] = {
    {NB_BOOL, "b1"}, {NB_I8, "i1"},  {NB_I16, "i2"}, {NB_I32, "i4"},
    {NB_I64, "i8"},  {NB_U8, "u1"},  {NB_U16, "u2"}, {NB_U32, "u4"},
    {NB_U64, "u8"},  {NB_F16, "f2"}, {NB_F32, "f4"}, {NB_F64, "f8"},
};
enum { NKINDS = sizeof kinds / sizeof *kinds };

typedef struct reader {
    const char *at, *end;
    nb_place place;
    nb_npy *h;
} reader;

static void *bad(const reader *r, const char *wanted)
{
    size_t left = (size_t)(r->end - r->at), n = left < 24 ? left : 24;
    return nb_fail_at(r->place, NB_EVALUE,
                      "found %s in the head where %s is needed ({'descr': "
                      "'<f4', 'fortran_order': False, 'shape': (3, 4), })",
                      n ? NB_QUOTE(r->at, n) : "the end", wanted);
}

static void blank(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' ||
                              *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool has(reader *r, const char *word)
{
    size_t n = strlen(word);
    blank(r);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, word, n) == 0;
}

static bool take(reader *r, const char *word)
{
    if (!has(r, word)) return false;
    r->at += strlen(word);
    return true;
}

/* A text in quotes without escapes, lent; NULL if there is none. */
static const char *text(reader *r, size_t *n)
{
    if (!has(r, "'") && !has(r, "\"")) return bad(r, "a text in quotes");
    const char *start = r->at + 1, *p = start;
    while (p < r->end && *p != *r->at && *p != '\\' && *p != '\n')
        p++;
    if (p == r->end || *p != *r->at) return bad(r, "a plain text in quotes");
    r->at = p + 1;
    *n = (size_t)(p - start);
    return start;
}

static bool read_descr(reader *r)
{
    size_t n;
    if (has(r, "[") || has(r, "(") || has(r, "{"))
        return nb_fail_at(r->place, NB_ETYPE,
                          "has a structured dtype (bool, int, uint or float "
                          "elements)");
    const char *d = text(r, &n);
    if (!d) return false;
    nb_array *x = &r->h->x;
    for (int i = 0; n == 3 && i < NKINDS; i++)
        if (memcmp(kinds[i].name, d + 1, 2) == 0) x->dtype = kinds[i].dtype;
    bool ordered = n > 0 && memchr("<>=|", d[0], 4);
    bool single = x->dtype && nb_dtype_size(x->dtype) == 1;
    if (!x->dtype || !ordered || (d[0] == '|' && !single))
        return nb_fail_at(r->place, NB_ETYPE,
                          "has dtype %s (bool, int, uint or float elements "
                          "of up to 8 bytes, like '<f4')",
                          NB_QUOTE(d, n));
    r->h->swapped = d[0] == '>' && !single;
    return true;
}

static bool read_order(reader *r)
{
    r->h->columns = has(r, "True");
    return take(r, "True") || take(r, "False") || bad(r, "True or False");
}

static bool read_extent(reader *r, int64_t *n)
{
    const char *start = r->at;
    for (*n = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*n, 10, n) ||
            __builtin_add_overflow(*n, *r->at - '0', n)) {
            r->at = start;
            return bad(r, "an extent below 2^63");
        }
    if (r->at == start) return bad(r, "an extent");
    take(r, "L"); /* long integers of Python 2 */
    return true;
}

/* A tuple: (), (3,), (3, 4) or (3, 4,), but not (3), which is a number. */
static bool read_shape(reader *r)
{
    nb_array *x = &r->h->x;
    bool comma = true;
    if (!take(r, "(")) return bad(r, "'('");
    while (!take(r, ")")) {
        if (!comma) return bad(r, "',' or ')'");
        if (x->rank == NB_ARRAY_RANK)
            return nb_fail_at(r->place, NB_EVALUE, "has more than %d axes",
                              NB_ARRAY_RANK);
        blank(r);
        if (!read_extent(r, &x->size[x->rank++])) return false;
        comma = take(r, ",");
    }
    return x->rank != 1 || comma || bad(r, "a tuple in front of this");
}

static const struct field {
    const char *name;
    bool (*read)(reader *r);
} fields[] = {
    {"descr", read_descr},
    {"fortran_order", read_order},
    {"shape", read_shape},
};
enum { NFIELDS = 3 };

static bool read_field(reader *r, bool seen[NFIELDS])
{
    size_t n;
    const char *key = text(r, &n);
    if (!key) return false;
    int i = 0;
    while (i < NFIELDS &&
           (strlen(fields[i].name) != n || memcmp(fields[i].name, key, n) != 0))
        i++;
    if (i == NFIELDS || seen[i])
        return nb_fail_at(r->place, NB_EVALUE,
                          "has %s key %s in its head (descr, fortran_order "
                          "and shape, once each)",
                          i < NFIELDS ? "twice the" : "a", NB_QUOTE(key, n));
    seen[i] = true;
    if (!take(r, ":")) return bad(r, "':'");
    return fields[i].read(r);
}

static bool read_head(reader *r)
{
    bool seen[NFIELDS] = {false}, comma = true;
    if (!take(r, "{")) return bad(r, "'{'");
    while (!take(r, "}")) {
        if (!comma) return bad(r, "',' or '}'");
        if (!read_field(r, seen)) return false;
        comma = take(r, ",");
    }
    blank(r);
    if (r->at < r->end) return bad(r, "the end");
    for (int i = 0; i < NFIELDS; i++)
        if (!seen[i])
            return nb_fail_at(r->place, NB_EVALUE,
                              "has no key '%s' in its head (descr, "
                              "fortran_order and shape, once each)",
                              fields[i].name);
    return true;
}

/* Where the head begins, and its length. */
static size_t find_head(const uint8_t *bytes, size_t n, size_t *length,
                        nb_place place)
{
    if (n < 10 || memcmp(bytes, MAGIC, NMAGIC) != 0) {
        nb_fail_at(place, NB_EVALUE,
                   "begins with %s (\"\\x93NUMPY\", a "
                   "version, a head)",
                   NB_QUOTE((const char *)bytes, n < 8 ? n : 8));
        return 0;
    }
    int major = bytes[NMAGIC], minor = bytes[NMAGIC + 1];
    if (major < 1 || major > 3 || minor != 0) {
        nb_fail_at(place, NB_EVALUE, "has npy version %d.%d (1.0, 2.0, 3.0)",
                   major, minor);
        return 0;
    }
    size_t start = major == 1 ? 10 : 12;
    if (n >= start) {
        *length = major == 1 ? nb_get16(bytes + 8) : nb_get32(bytes + 8);
        if (*length <= n - start && *length <= NB_NPY_HEAD - 12) return start;
    }
    nb_fail_at(place, NB_EVALUE,
               "announces a head longer than the file or %d bytes",
               NB_NPY_HEAD - 12);
    return 0;
}

bool nb_npy_parse(nb_npy *h, const uint8_t *bytes, size_t n, uint64_t total,
                  nb_place place)
{
    size_t length, start = find_head(bytes, n, &length, place);
    if (start == 0) return false;
    *h = (nb_npy){.start = start + length};
    const char *head = (const char *)bytes + start;
    reader r = {head, head + length, place, h};
    if (!read_head(&r)) return false;
    if (!nb_array_measure(&h->x))
        return nb_fail_at(place, NB_EVALUE,
                          "has a shape whose bytes fit no address");
    if (h->x.bytes != total - h->start)
        return nb_fail_at(place, NB_EVALUE,
                          "has %llu bytes of data and %zu by its shape of %s",
                          (unsigned long long)(total - h->start), h->x.bytes,
                          nb_dtype_name(h->x.dtype));
    return true;
}

static void swap(uint8_t *p, size_t bytes, size_t width)
{
    for (uint8_t *end = p + bytes; p < end; p += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t low = p[i];
            p[i] = p[width - 1 - i];
            p[width - 1 - i] = low;
        }
}

/* One element; of constant size, so that it is one move. */
static void move(uint8_t *to, const uint8_t *from, size_t width)
{
    switch (width) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, 8); break;
    }
}

/* Rows from columns: index counts through the rows while `at` follows it
 * through the columns, where axis d has the stride size[0] ... size[d-1]. */
static void turn(uint8_t *to, const uint8_t *from, const nb_array *x)
{
    size_t width = nb_dtype_size(x->dtype), stride[NB_ARRAY_RANK];
    int64_t index[NB_ARRAY_RANK] = {0};
    size_t at = 0, step = width;
    for (int d = 0; d < x->rank; d++) {
        stride[d] = step;
        step *= (size_t)x->size[d];
    }
    for (size_t k = 0; k < x->bytes; k += width) {
        move(to + k, from + at, width);
        for (int d = x->rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < x->size[d]) break;
            at -= stride[d] * (size_t)x->size[d];
            index[d] = 0;
        }
    }
}

static bool settle(const nb_npy *h, nb_slab *s, size_t *at)
{
    uint8_t *data = (uint8_t *)s->data + *at;
    if (h->swapped) swap(data, h->x.bytes, nb_dtype_size(h->x.dtype));
    if (h->x.dtype == NB_BOOL) nb_bool_settle(data, h->x.bytes);
    if (!h->columns || h->x.rank < 2) return true;
    nb_slab rows;
    if (!nb_slab_new(&rows, h->x.bytes)) return false;
    turn(rows.data, data, &h->x);
    nb_slab_free(s);
    *s = rows;
    *at = 0;
    return true;
}

bool nb_npy_take(nb_archive *a, const nb_npy *h, char *name, nb_slab s,
                 size_t at)
{
    nb_array x = h->x;
    x.name = name;
    bool ok = settle(h, &s, &at);
    x.data = (uint8_t *)s.data + at;
    if (!ok)
        nb_slab_free(&s);
    else
        ok = nb_archive_take_slab(a, s);
    if (ok) return nb_archive_take(a, x);
    nb_free(name);
    return false;
}

static bool read_array(nb_npy *h, const nb_source *s, nb_slab *data)
{
    size_t n = s->size < NB_NPY_HEAD ? s->size : NB_NPY_HEAD;
    uint8_t *head = nb_alloc(n);
    bool ok = head && nb_source_read(s, 0, head, n) &&
              nb_npy_parse(h, head, n, s->size, (nb_place){s->path, NULL});
    nb_free(head);
    if (!ok || !nb_slab_new(data, h->x.bytes)) return false;
    if (nb_source_read(s, h->start, data->data, h->x.bytes)) return true;
    nb_slab_free(data);
    return false;
}

bool nb_npy_load(nb_archive *a, const nb_source *s)
{
    nb_npy h;
    nb_slab data;
    char *name = nb_copy_text("");
    if (name && read_array(&h, s, &data))
        return nb_npy_take(a, &h, name, data, 0);
    nb_free(name);
    return false;
}

/* NumPy leaves space for the first extent to grow to 21 digits in place, then
 * fills up so that the data is aligned. */
static void print_fields(nb_text *t, const nb_array *x, const char *kind)
{
    nb_text_add(t, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                nb_dtype_size(x->dtype) == 1 ? '|' : '<', kind);
    for (int d = 0; d < x->rank; d++)
        nb_text_add(t, "%s%lld", d ? ", " : "", (long long)x->size[d]);
    nb_text_add(t, "%s), }", x->rank == 1 ? "," : "");
    if (x->rank == 0) return;
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)x->size[0]);
    nb_text_add(t, "%*s", 21 - n, "");
}

bool nb_npy_print(nb_text *t, const nb_array *x, const char *path)
{
    uint8_t head[10] = "\x93NUMPY\x01";
    nb_text body = {0};
    int i = 0;
    while (i < NKINDS && kinds[i].dtype != x->dtype)
        i++;
    if (i == NKINDS)
        return nb_fail(NB_ETYPE,
                       "save: %s: npy has no %s (cast to float32, or use "
                       ".safetensors)",
                       path, nb_dtype_name(x->dtype));
    print_fields(&body, x, kinds[i].name);
    int fill = ALIGN - (body.n + 11) % ALIGN;
    nb_text_add(&body, "%*s\n", fill, "");
    nb_put(head + 8, (uint64_t)body.n, 2);
    nb_text_put(t, (const char *)head, sizeof head);
    bool ok = !body.failed && nb_text_put(t, body.data, (size_t)body.n);
    nb_text_free(&body);
    return ok;
}

bool nb_npy_save(const nb_archive *a, const char *path)
{
    nb_text head = {0};
    nb_sink s;
    if (a->narrays != 1)
        return nb_fail(NB_EVALUE,
                       "save: %s: %d arrays (a .npy file holds one; .npz and "
                       ".safetensors hold many)",
                       path, a->narrays);
    const nb_array *x = &a->array[0];
    bool ok = nb_npy_print(&head, x, path) && nb_sink_open(&s, path);
    if (ok) {
        ok = nb_sink_write(&s, head.data, (size_t)head.n) &&
             nb_sink_write(&s, x->data, x->bytes);
        ok = nb_sink_close(&s, ok);
    }
    nb_text_free(&head);
    return ok;
}
