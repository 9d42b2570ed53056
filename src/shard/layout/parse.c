/* parse.c - specs from text, long and short.
 *
 *     long   sharding<@mesh, [dim, ...], replicated={axes}, partial={axes}:max>
 *       dim    {axes}, {axes,?}, {?}, then pN
 *     short  [dim, ...]Pmax{axes}R{axes}
 *       dim    . or axis or (axis axis), then ?, then pN; ? alone is .?
 *
 * An axis is x or x:(pre)size; its name may stand in quotes, and does in what
 * is printed.  Every axis is checked where it is read, so that an error points
 * at it. */
#include "shard/layout/reader.h"
#include "shard/layout/spec.h"

#include <ctype.h>
#include <string.h>

enum { MOST_PRIORITY = UINT8_MAX };

typedef struct parser {
    nb_reader r;
    const nb_mesh *m;
    nb_spec draft;
    nb_uses uses;
} parser;

static bool find_axis(nb_reader *r, const nb_mesh *m, const char *name, int n,
                      nb_axis *a)
{
    for (int k = 0; k < m->naxes; k++) {
        if ((int)strlen(m->axis[k]) != n ||
            strncmp(m->axis[k], name, (size_t)n))
            continue;
        *a = nb_axis_full(m, k);
        return true;
    }
    r->at = name;
    return nb_reader_wrong(r, "mesh @%s has no axis '%.*s'", m->name, n, name);
}

/* :(pre)size, if it is there. */
static bool read_part(nb_reader *r, nb_axis *a)
{
    int pre, size;
    if (*r->at != ':') return true;
    r->at++;
    if (!nb_reader_needs(r, "(") || !nb_reader_number(r, UINT16_MAX, &pre) ||
        !nb_reader_needs(r, ")") || !nb_reader_number(r, UINT16_MAX, &size))
        return false;
    if (size < 2) return nb_reader_wrong(r, "a part of size %d", size);
    a->pre = (uint16_t)pre;
    a->size = (uint16_t)size;
    return true;
}

/* x, "x", 'x', and x:(2)4, the part within the quotes or after them. */
static bool read_axis(nb_reader *r, const nb_mesh *m, nb_axis *a)
{
    const char *name, *quote = "";
    int n;
    if (nb_reader_takes(r, "\""))
        quote = "\"";
    else if (nb_reader_takes(r, "'"))
        quote = "'";
    if (!nb_reader_name(r, &name, &n) || !find_axis(r, m, name, n, a))
        return false;
    bool inside = *r->at == ':';
    if (!read_part(r, a)) return false;
    if (*quote && !nb_reader_needs(r, quote)) return false;
    return inside || read_part(r, a);
}

/* One more of a list. */
static bool add_axis(parser *p, nb_cut *l)
{
    nb_axis a;
    nb_reader_blanks(&p->r);
    const char *from = p->r.at;
    if (!read_axis(&p->r, p->m, &a)) return false;
    const char *end = p->r.at;
    p->r.at = from;
    if (!nb_axis_use(p->m, &p->uses, a))
        return nb_reader_wrong(&p->r, "%s", p->uses.why);
    if (!nb_cut_add(l, a))
        return nb_reader_wrong(&p->r, "more than %d axes in a list",
                               NB_MESH_AXES);
    p->r.at = end;
    return true;
}

/* Axes up to the word that closes the list, between them commas or blanks. */
static bool add_axes(parser *p, nb_cut *l, const char *close)
{
    bool more = !nb_reader_takes(&p->r, close);
    while (more) {
        if (!add_axis(p, l)) return false;
        more = nb_reader_takes(&p->r, ",") || !nb_reader_takes(&p->r, close);
    }
    return true;
}

/* pN, if it is there: p and a digit, which is no name of an axis here.  A dim
 * whose axes all have size one is empty only in what it says, and loses it. */
static bool read_priority(parser *p, nb_dim_spec *d, bool empty)
{
    int priority;
    nb_reader_blanks(&p->r);
    const char *from = p->r.at;
    if (*from != 'p' || !isdigit((unsigned char)from[1])) return true;
    p->r.at++;
    if (!nb_reader_number(&p->r, MOST_PRIORITY, &priority)) return false;
    d->priority = (uint8_t)(d->axes.n || d->open ? priority : 0);
    if (!priority || !empty || d->open) return true;
    p->r.at = from;
    return nb_reader_wrong(&p->r, NB_NO_PRIORITY, p->draft.rank);
}

static bool read_long_dim(parser *p, nb_dim_spec *d)
{
    if (!nb_reader_needs(&p->r, "{")) return false;
    bool more = !nb_reader_takes(&p->r, "}"), empty = true;
    while (more) {
        d->open = nb_reader_takes(&p->r, "?");
        if (!d->open && !add_axis(p, &d->axes)) return false;
        empty = empty && d->open;
        more = !d->open && nb_reader_takes(&p->r, ",");
        if (!more && !nb_reader_needs(&p->r, "}")) return false;
    }
    return read_priority(p, d, empty);
}

static bool read_short_dim(parser *p, nb_dim_spec *d)
{
    bool empty = false;
    if (nb_reader_takes(&p->r, "?")) {
        d->open = empty = true;
    } else if (nb_reader_takes(&p->r, ".")) {
        empty = true;
    } else if (nb_reader_takes(&p->r, "(")) {
        if (!add_axes(p, &d->axes, ")")) return false;
        empty = !d->axes.n;
    } else if (!add_axis(p, &d->axes))
        return false;
    d->open = nb_reader_takes(&p->r, "?") || d->open;
    return read_priority(p, d, empty);
}

static bool read_dims(parser *p, bool (*read)(parser *, nb_dim_spec *))
{
    if (!nb_reader_needs(&p->r, "[")) return false;
    if (nb_reader_takes(&p->r, "]")) return true;
    do {
        if (p->draft.rank == NB_MAX_DIMS)
            return nb_reader_wrong(&p->r, "more than %d dims", NB_MAX_DIMS);
        if (!read(p, &p->draft.dim[p->draft.rank])) return false;
        p->draft.rank++;
    } while (nb_reader_takes(&p->r, ","));
    return nb_reader_needs(&p->r, "]");
}

static bool read_kind(parser *p)
{
    const char *name;
    int n;
    if (!nb_reader_name(&p->r, &name, &n)) return false;
    if (nb_kind_find(name, (size_t)n, &p->draft.kind)) return true;
    p->r.at = name;
    return nb_reader_wrong(&p->r, "no kind of reduction: '%.*s'", n, name);
}

static bool read_set(parser *p, nb_cut *l)
{
    return nb_reader_needs(&p->r, "=") && nb_reader_needs(&p->r, "{") &&
           add_axes(p, l, "}");
}

static bool read_mesh_name(parser *p)
{
    const char *name, *wanted = p->m->name;
    int n;
    if (!nb_reader_needs(&p->r, "@") || !nb_reader_name(&p->r, &name, &n))
        return false;
    if ((int)strlen(wanted) == n && strncmp(wanted, name, (size_t)n) == 0)
        return true;
    p->r.at = name;
    return nb_reader_wrong(&p->r, "mesh @%.*s, but it is @%s", n, name, wanted);
}

static bool read_long(parser *p)
{
    if (!nb_reader_needs(&p->r, "<") || !read_mesh_name(p) ||
        !nb_reader_needs(&p->r, ",") || !read_dims(p, read_long_dim))
        return false;
    bool more = nb_reader_takes(&p->r, ",");
    if (more && nb_reader_takes(&p->r, "replicated")) {
        if (!read_set(p, &p->draft.replicated)) return false;
        more = nb_reader_takes(&p->r, ",");
    }
    if (more && (!nb_reader_needs(&p->r, "partial") ||
                 !read_set(p, &p->draft.partial) ||
                 (nb_reader_takes(&p->r, ":") && !read_kind(p))))
        return false;
    return nb_reader_needs(&p->r, ">");
}

/* P{t}, Pmax{t}: the letter is passed.  The name of a kind touches it. */
static bool read_pending(parser *p)
{
    if (p->draft.partial.n) return nb_reader_wrong(&p->r, "a second P");
    p->r.at++;
    if (*p->r.at != '{' && !read_kind(p)) return false;
    return nb_reader_needs(&p->r, "{") && add_axes(p, &p->draft.partial, "}");
}

static bool read_short(parser *p)
{
    if (!read_dims(p, read_short_dim)) return false;
    for (;;) {
        nb_reader_blanks(&p->r);
        if (*p->r.at == 'P') {
            if (!read_pending(p)) return false;
        } else if (*p->r.at == 'R') {
            if (p->draft.replicated.n)
                return nb_reader_wrong(&p->r, "a second R");
            p->r.at++;
            if (!nb_reader_needs(&p->r, "{") ||
                !add_axes(p, &p->draft.replicated, "}"))
                return false;
        } else
            return true;
    }
}

const nb_spec *nb_spec_parse(const nb_mesh *m, const char *text)
{
    if (!m || !text) return NB_STATUS(false), NULL;
    parser p = {.r = {"sharding", text, text}, .m = m};
    p.draft.mesh = m;
    bool ok =
        nb_reader_takes(&p.r, "sharding") ? read_long(&p) : read_short(&p);
    return ok && nb_reader_ends(&p.r) ? nb_spec_intern(&p.draft) : NULL;
}

nb_status nb_axis_parse(const nb_mesh *m, const char *text, nb_axis *a)
{
    if (!m || !text) return NB_STATUS(false);
    nb_reader r = {"axis", text, text};
    nb_uses u = {0};
    bool ok = read_axis(&r, m, a) && nb_reader_ends(&r);
    r.at = text;
    ok = ok && (nb_axis_use(m, &u, *a) || nb_reader_wrong(&r, "%s", u.why));
    return NB_STATUS(ok);
}
