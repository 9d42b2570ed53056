/* npz_save.c - writing of .npz: a zip archive of .npy members, stored.  The
 * forms of zip64 are used where a number needs them and nowhere else. */
#include "io/format.h"
#include "io/zip.h"

#include <string.h>

enum { MAX_NAME = 0xffff - 4 }; /* and the suffix .npy */

typedef struct written {
    uint32_t crc;
    uint64_t size, header; /* bytes, and where the header begins */
} written;

typedef struct writer {
    nb_sink sink;
    nb_crc crc;
    written *member;
} writer;

/* What header and directory record have in common, from the version on.  The
 * date is the first that zip knows, so that equal arrays give equal files. */
static void put_common(uint8_t *p, const written *m, const char *name,
                       size_t extra)
{
    bool ascii = true;
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        ascii = ascii && (uint8_t)name[i] < 0x80;
    p = nb_put(p, extra > 0 ? 45 : 20, 2);
    p = nb_put(p, ascii ? 0 : UTF8, 2);
    p = nb_put(p, STORED, 2);
    p = nb_put(p, 0, 2);
    p = nb_put(p, 1 << 5 | 1, 2);
    p = nb_put(p, m->crc, 4);
    p = nb_put(p, m->size < FULL ? m->size : FULL, 4);
    p = nb_put(p, m->size < FULL ? m->size : FULL, 4);
    p = nb_put(p, n + 4, 2);
    nb_put(p, extra, 2);
}

static bool write_name(writer *w, const char *name)
{
    return nb_sink_write(&w->sink, name, strlen(name)) &&
           nb_sink_write(&w->sink, ".npy", 4);
}

static bool write_header(writer *w, const written *m, const char *name)
{
    uint8_t h[HEADER], extra[20];
    bool wide = m->size >= FULL;
    uint8_t *p = nb_put(h, IS_HEADER, 4);
    put_common(p, m, name, wide ? 20 : 0);
    p = nb_put(nb_put(extra, 1, 2), 16, 2);
    nb_put(nb_put(p, m->size, 8), m->size, 8);
    return nb_sink_write(&w->sink, h, sizeof h) && write_name(w, name) &&
           nb_sink_write(&w->sink, extra, wide ? 20 : 0);
}

static bool write_member(writer *w, written *m, const nb_array *x)
{
    nb_text head = {0};
    if (!nb_npy_print(&head, x, w->sink.path)) {
        nb_text_free(&head);
        return false;
    }
    m->header = w->sink.written;
    m->size = (uint64_t)head.n + x->bytes;
    m->crc = nb_crc_run(&w->crc, 0, head.data, (size_t)head.n);
    m->crc = nb_crc_run(&w->crc, m->crc, x->data, x->bytes);
    bool ok = write_header(w, m, x->name) &&
              nb_sink_write(&w->sink, head.data, (size_t)head.n) &&
              nb_sink_write(&w->sink, x->data, x->bytes);
    nb_text_free(&head);
    return ok;
}

static bool write_record(writer *w, const written *m, const char *name)
{
    uint8_t r[RECORD] = {0}, extra[28], *e = extra + 4;
    if (m->size >= FULL) e = nb_put(nb_put(e, m->size, 8), m->size, 8);
    if (m->header >= FULL) e = nb_put(e, m->header, 8);
    size_t n = e == extra + 4 ? 0 : (size_t)(e - extra);
    nb_put(nb_put(extra, 1, 2), n - 4, 2);
    uint8_t *p = nb_put(nb_put(r, IS_RECORD, 4), n ? 45 : 20, 2);
    put_common(p, m, name, n);
    nb_put(r + 42, m->header < FULL ? m->header : FULL, 4);
    return nb_sink_write(&w->sink, r, sizeof r) && write_name(w, name) &&
           nb_sink_write(&w->sink, extra, n);
}

static bool write_end64(writer *w, uint64_t n, uint64_t start, uint64_t bytes)
{
    uint8_t end[END64 + LOCATOR] = {0}, *p;
    p = nb_put(nb_put(end, IS_END64, 4), END64 - 12, 8);
    p = nb_put(nb_put(p, 45, 2), 45, 2);
    p = nb_put(p, 0, 8);
    p = nb_put(nb_put(p, n, 8), n, 8);
    p = nb_put(nb_put(p, bytes, 8), start, 8);
    p = nb_put(nb_put(p, IS_LOCATOR, 4), 0, 4);
    nb_put(nb_put(p, start + bytes, 8), 1, 4);
    return nb_sink_write(&w->sink, end, sizeof end);
}

static bool write_end(writer *w, uint64_t n, uint64_t start)
{
    uint8_t end[END] = {0};
    uint64_t bytes = w->sink.written - start;
    bool wide = n >= FULL16 || start >= FULL || bytes >= FULL;
    if (wide && !write_end64(w, n, start, bytes)) return false;
    uint8_t *p = nb_put(nb_put(end, IS_END, 4), 0, 4);
    n = n < FULL16 ? n : FULL16;
    p = nb_put(nb_put(p, n, 2), n, 2);
    p = nb_put(p, bytes < FULL ? bytes : FULL, 4);
    nb_put(p, start < FULL ? start : FULL, 4);
    return nb_sink_write(&w->sink, end, sizeof end);
}

static bool write_all(writer *w, const nb_archive *a)
{
    for (int i = 0; i < a->narrays; i++)
        if (!write_member(w, &w->member[i], &a->array[i])) return false;
    uint64_t start = w->sink.written;
    for (int i = 0; i < a->narrays; i++)
        if (!write_record(w, &w->member[i], a->array[i].name)) return false;
    return write_end(w, (uint64_t)a->narrays, start);
}

bool nb_npz_save(const nb_archive *a, const char *path)
{
    writer w;
    for (int i = 0; i < a->narrays; i++)
        if (strlen(a->array[i].name) > MAX_NAME)
            return nb_fail(NB_EVALUE,
                           "save: %s: a name of %zu bytes (at most %d)", path,
                           strlen(a->array[i].name), MAX_NAME);
    if (a->narrays > MAX_MEMBERS)
        return nb_fail(NB_EVALUE, "save: %s: %d arrays (at most %d)", path,
                       a->narrays, MAX_MEMBERS);
    nb_crc_open(&w.crc);
    w.member = nb_alloc((size_t)a->narrays * sizeof *w.member);
    if (!w.member) return false;
    bool ok =
        nb_sink_open(&w.sink, path) && nb_sink_close(&w.sink, write_all(&w, a));
    nb_free(w.member);
    return ok;
}
