/* npz_load.c - reading of .npz: a zip archive of .npy members.
 *
 * The directory at the end is the authority; the header in front of each
 * member must agree with it, members may not overlap, and what a member
 * unpacks to must have the announced length and checksum.  No memory is taken
 * for a member before the head of its array agrees with its length.  Members
 * are stored or deflated. */
#include "io/format.h"
#include "io/inflate.h"
#include "io/zip.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

typedef struct member {
    const char *name; /* in the directory */
    size_t nname;
    int flags, method;
    uint32_t crc;
    uint64_t packed, size;  /* bytes in the file, bytes of the array file */
    uint64_t header, start; /* where the header and the data begin */
} member;

typedef struct zip {
    const nb_source *s;
    nb_place place;
    uint8_t *directory;
    uint64_t start, bytes; /* of the directory */
    uint64_t n;
    member *member;
    nb_crc crc;
} zip;

static void *bad(const zip *z, const char *what)
{
    return nb_fail_at(z->place, NB_EVALUE, "%s", what);
}

/* The place of the end record: the last that reaches to the end of the file
 * with its comment. */
static bool find_end(zip *z, uint8_t end[END], uint64_t *at)
{
    size_t n = z->s->size < END + 0xffff ? z->s->size : END + 0xffff;
    uint8_t *tail = nb_alloc(n);
    if (!tail || !nb_source_read(z->s, z->s->size - n, tail, n)) {
        nb_free(tail);
        return false;
    }
    bool found = false;
    for (size_t k = END; !found && k <= n; k++) {
        const uint8_t *p = tail + n - k;
        found = nb_get32(p) == IS_END && nb_get16(p + 20) == k - END;
        if (!found) continue;
        memcpy(end, p, END);
        *at = z->s->size - k;
    }
    nb_free(tail);
    return found || bad(z, "has no end record (a zip archive)");
}

/* Looks for the end record of zip64 before the plain one at *at.  It replaces
 * the numbers of the plain one, and *at. */
static bool find_end64(zip *z, uint64_t *at)
{
    uint8_t locator[LOCATOR], end[END64];
    if (*at < LOCATOR) return true;
    if (!nb_source_read(z->s, *at - LOCATOR, locator, LOCATOR)) return false;
    if (nb_get32(locator) != IS_LOCATOR) return true;
    uint64_t place = nb_get64(locator + 8), limit = *at - LOCATOR;
    if (limit < END64 || place > limit - END64)
        return bad(z, "has its zip64 end record beyond the end");
    if (!nb_source_read(z->s, place, end, END64)) return false;
    if (nb_get32(end) != IS_END64 || nb_get64(end + 4) != limit - place - 12 ||
        nb_get32(locator + 4) != 0 || nb_get32(locator + 16) > 1 ||
        nb_get32(end + 16) != 0 || nb_get32(end + 20) != 0 ||
        nb_get64(end + 24) != nb_get64(end + 32))
        return bad(z, "has a zip64 end record that is none of one file");
    z->n = nb_get64(end + 32);
    z->bytes = nb_get64(end + 40);
    z->start = nb_get64(end + 48);
    *at = place;
    return true;
}

static bool read_directory(zip *z)
{
    uint8_t end[END] = {0};
    uint64_t at = 0;
    if (!find_end(z, end, &at)) return false;
    if (nb_get16(end + 4) != 0 || nb_get16(end + 6) != 0 ||
        nb_get16(end + 8) != nb_get16(end + 10))
        return bad(z, "is a part of an archive of several files");
    z->n = nb_get16(end + 10);
    z->bytes = nb_get32(end + 12);
    z->start = nb_get32(end + 16);
    if (!find_end64(z, &at)) return false;
    if (z->bytes > at || z->start != at - z->bytes)
        return nb_fail_at(z->place, NB_EVALUE,
                          "has a directory of %llu bytes at %llu and an end "
                          "record at %llu (which follows the directory)",
                          (unsigned long long)z->bytes,
                          (unsigned long long)z->start, (unsigned long long)at);
    if (z->n > z->bytes / RECORD || z->n > MAX_MEMBERS)
        return nb_fail_at(z->place, NB_EVALUE,
                          "announces %llu members in a directory of %llu "
                          "bytes (%d each, at most %d members)",
                          (unsigned long long)z->n,
                          (unsigned long long)z->bytes, RECORD, MAX_MEMBERS);
    z->directory = nb_alloc(z->bytes);
    z->member = z->directory ? nb_alloc_zero(z->n * sizeof *z->member) : NULL;
    return z->member && nb_source_read(z->s, z->start, z->directory, z->bytes);
}

/* Takes from the zip64 extra field, in their order, the numbers whose 32 bits
 * are all set. */
static bool widen(const uint8_t *extra, size_t n, uint64_t **number, int count)
{
    while (n >= 4 && nb_get16(extra) != 1) {
        size_t skip = 4 + (size_t)nb_get16(extra + 2);
        if (skip > n) return false;
        extra += skip;
        n -= skip;
    }
    size_t left = n >= 4 ? nb_get16(extra + 2) : 0;
    if (left > 0 && left > n - 4) return false;
    extra += n >= 4 ? 4 : 0;
    for (int i = 0; i < count; i++) {
        if (*number[i] != FULL) continue;
        if (left < 8) return left == 0 && n < 4;
        *number[i] = nb_get64(extra);
        extra += 8;
        left -= 8;
    }
    return true;
}

/* Whether there is room for the member's header before `limit`. */
static bool begins_before(uint64_t limit, const member *m, nb_place place)
{
    if (m->header <= limit && limit - m->header >= HEADER) return true;
    return nb_fail_at(place, NB_EVALUE,
                      "begins at byte %llu, where no member can (members lie "
                      "before the directory and do not overlap)",
                      (unsigned long long)m->header);
}

static bool check_member(const zip *z, const member *m)
{
    nb_place place = {z->s->path, NB_QUOTE(m->name, m->nname)};
    if (memchr(m->name, 0, m->nname) || !nb_utf8_is(m->name, m->nname))
        return nb_fail_at(place, NB_EVALUE, "is named in other than UTF-8");
    if (m->flags & LOCKED)
        return nb_fail_at(place, NB_EVALUE, "is encrypted (flags %#x)",
                          m->flags);
    if (m->method != STORED && m->method != DEFLATED)
        return nb_fail_at(place, NB_EVALUE,
                          "is packed by method %d (0 stored, 8 deflated)",
                          m->method);
    /* No deflated data grows more than 1032 times. */
    bool likely = m->method == STORED ? m->size == m->packed
                                      : m->size / 1032 <= m->packed;
    if (!likely)
        return nb_fail_at(place, NB_EVALUE,
                          "has %llu bytes packed into %llu, which method %d "
                          "cannot",
                          (unsigned long long)m->size,
                          (unsigned long long)m->packed, m->method);
    return begins_before(z->start, m, place);
}

/* Reads the directory record at *p, and moves *p behind it. */
static bool read_record(zip *z, member *m, const uint8_t **p)
{
    const uint8_t *r = *p;
    size_t left = (size_t)(z->directory + z->bytes - r);
    if (left < RECORD || nb_get32(r) != IS_RECORD)
        return bad(z, "has a directory with fewer records than announced");
    size_t name = nb_get16(r + 28), extra = nb_get16(r + 30);
    size_t comment = nb_get16(r + 32);
    if (name + extra + comment > left - RECORD)
        return bad(z, "has a directory record that runs over its end");
    *m = (member){.name = (const char *)r + RECORD,
                  .nname = name,
                  .flags = nb_get16(r + 8),
                  .method = nb_get16(r + 10),
                  .crc = nb_get32(r + 16),
                  .packed = nb_get32(r + 20),
                  .size = nb_get32(r + 24),
                  .header = nb_get32(r + 42)};
    uint64_t *wide[] = {&m->size, &m->packed, &m->header};
    if (!widen(r + RECORD + name, extra, wide, 3) || nb_get16(r + 34) != 0)
        return bad(z, "has a directory record with a broken extra field");
    *p = r + RECORD + name + extra + comment;
    return check_member(z, m);
}

static bool read_records(zip *z)
{
    const uint8_t *p = z->directory;
    for (uint64_t i = 0; i < z->n; i++)
        if (!read_record(z, &z->member[i], &p)) return false;
    return p == z->directory + z->bytes ||
           bad(z, "has a directory with more records than announced");
}

/* True if the header repeats what the directory says. */
static bool agrees(const member *m, const uint8_t *h, const uint8_t *rest)
{
    size_t name = nb_get16(h + 26), extra = nb_get16(h + 28);
    uint64_t packed = nb_get32(h + 18), size = nb_get32(h + 22);
    uint64_t *wide[] = {&size, &packed};
    if (name != m->nname || memcmp(rest, m->name, name) != 0 ||
        nb_get16(h + 8) != m->method || (nb_get16(h + 6) & LOCKED) ||
        !widen(rest + name, extra, wide, 2))
        return false;
    if (nb_get16(h + 6) & TRAILED) return true;
    return nb_get32(h + 14) == m->crc && packed == m->packed && size == m->size;
}

/* Finds the data behind the member's header; all of it lies before `limit`,
 * where the next member or the directory begins. */
static bool read_header(const zip *z, member *m, uint64_t limit)
{
    uint8_t h[HEADER];
    nb_place place = {z->s->path, NB_QUOTE(m->name, m->nname)};
    if (!begins_before(limit, m, place) ||
        !nb_source_read(z->s, m->header, h, HEADER))
        return false;
    size_t more = (size_t)nb_get16(h + 26) + nb_get16(h + 28);
    uint64_t space = limit - m->header - HEADER;
    if (nb_get32(h) != IS_HEADER)
        return nb_fail_at(place, NB_EVALUE, "has no header at byte %llu",
                          (unsigned long long)m->header);
    if (more > space || m->packed > space - more)
        return nb_fail_at(place, NB_EVALUE,
                          "has %llu packed bytes, which reach beyond the next "
                          "member or the directory at %llu",
                          (unsigned long long)m->packed,
                          (unsigned long long)limit);
    m->start = m->header + HEADER + more;
    uint8_t *rest = nb_alloc(more);
    bool ok = rest && nb_source_read(z->s, m->header + HEADER, rest, more);
    if (ok && !agrees(m, h, rest))
        ok = nb_fail_at(place, NB_EVALUE,
                        "has a header that disagrees with the directory");
    nb_free(rest);
    return ok;
}

static int by_place(const void *x, const void *y)
{
    const member *a = *(member *const *)x, *b = *(member *const *)y;
    return a->header < b->header ? -1 : a->header > b->header;
}

static bool read_headers(zip *z)
{
    member **sorted = nb_alloc(z->n * sizeof *sorted);
    if (!sorted) return false;
    for (uint64_t i = 0; i < z->n; i++)
        sorted[i] = &z->member[i];
    qsort(sorted, z->n, sizeof *sorted, by_place);
    bool ok = true;
    for (uint64_t i = 0; ok && i < z->n; i++)
        ok = read_header(z, sorted[i],
                         i + 1 < z->n ? sorted[i + 1]->header : z->start);
    nb_free(sorted);
    return ok;
}

/* Unpacks the first n bytes of a member; all of it where n is its size.  The
 * bytes of a deflated one are in `packed`. */
static bool unpack(const zip *z, const member *m, const uint8_t *packed,
                   uint8_t *to, size_t n, nb_place place)
{
    if (m->method == STORED) return nb_source_read(z->s, m->start, to, n);
    nb_inflated r = nb_inflate(packed, m->packed, to, n);
    if (r.fault)
        return nb_fail_at(place, NB_EVALUE, "%s after %zu bytes", r.fault,
                          r.made);
    bool whole = n == m->size;
    if (r.made == n && (!whole || (!r.full && r.used == m->packed)))
        return true;
    return nb_fail_at(place, NB_EVALUE,
                      "unpacks to %s%zu bytes from %zu (%llu from %llu by the "
                      "directory)",
                      r.full ? "more than " : "", r.made, r.used,
                      (unsigned long long)m->size,
                      (unsigned long long)m->packed);
}

static bool read_npy_head(const zip *z, const member *m, const uint8_t *packed,
                          nb_npy *h, nb_place place)
{
    size_t n = m->size < NB_NPY_HEAD ? m->size : NB_NPY_HEAD;
    uint8_t *head = nb_alloc(n);
    bool ok = head && unpack(z, m, packed, head, n, place) &&
              nb_npy_parse(h, head, n, m->size, place);
    nb_free(head);
    return ok;
}

static char *array_name(const member *m)
{
    size_t n = m->nname;
    if (n >= 4 && memcmp(m->name + n - 4, ".npy", 4) == 0) n -= 4;
    char *name = nb_alloc(n + 1);
    if (!name) return NULL;
    memcpy(name, m->name, n);
    name[n] = '\0';
    return name;
}

/* The whole member is unpacked, head and all, such that the data is aligned
 * behind the head. */
static bool unpack_array(const zip *z, const member *m, const uint8_t *packed,
                         nb_archive *a, nb_place place)
{
    nb_npy h;
    nb_slab s;
    if (!read_npy_head(z, m, packed, &h, place)) return false;
    size_t pad = (ALIGN - h.start % ALIGN) % ALIGN;
    if (!nb_slab_new(&s, pad + m->size)) return false;
    uint8_t *data = (uint8_t *)s.data + pad;
    bool ok = unpack(z, m, packed, data, m->size, place);
    uint32_t crc = ok ? nb_crc_run(&z->crc, 0, data, m->size) : m->crc;
    if (crc != m->crc)
        ok = nb_fail_at(place, NB_EVALUE,
                        "has the checksum %08x (%08x by the directory)", crc,
                        m->crc);
    char *name = ok ? array_name(m) : NULL;
    if (name) return nb_npy_take(a, &h, name, s, pad + h.start);
    nb_slab_free(&s);
    return false;
}

static bool read_member(const zip *z, const member *m, nb_archive *a)
{
    nb_place place = {z->s->path, NB_QUOTE(m->name, m->nname)};
    nb_slab packed = {0};
    bool ok = m->method == STORED ||
              (nb_slab_new(&packed, m->packed) &&
               nb_source_read(z->s, m->start, packed.data, m->packed));
    ok = ok && unpack_array(z, m, packed.data, a, place);
    nb_slab_free(&packed);
    return ok;
}

bool nb_npz_load(nb_archive *a, const nb_source *s)
{
    zip z = {.s = s, .place.path = s->path};
    nb_crc_open(&z.crc);
    bool ok = read_directory(&z) && read_records(&z) && read_headers(&z);
    for (uint64_t i = 0; ok && i < z.n; i++)
        ok = read_member(&z, &z.member[i], a);
    nb_free(z.directory);
    nb_free(z.member);
    return ok;
}
