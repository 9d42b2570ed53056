/* tile.c - nests in which some memory runs along another axis than what
 * is stored: a block takes a tile of both axes.
 *
 * What is turned is first read along its own axis into shared memory, rows of
 * which are an odd number of words apart, so that a warp meets every bank once
 * whichever way it goes.  What is not turned is read before the block waits for
 * that. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

#include <stdio.h>

static int pitch(const nb_printer *p, const nb_nest_value *v)
{
    int size = (int)nb_dtype_size(v->stored);
    return p->w.rise + (size < 4 ? 4 / size : 1);
}

void nb_print_turned(nb_printer *p, int k)
{
    OUT(p, "s%d[(tv + l) * %d + tt]", k, pitch(p, nb_printer_value(p, k)));
}

static int64_t pieces(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Where the tile begins, `first` and the axis, and the point on other axes. */
static void begin(nb_printer *p)
{
    const nb_nest *x = p->x;
    int order[NB_MAX_NEST_AXES], n = 0;
    for (int a = 0; a < x->naxes; a++)
        if (a != p->w.vector && a != p->w.tile) order[n++] = a;
    order[n++] = p->w.tile;
    order[n++] = p->w.vector;
    nb_print_line(p);
    OUT(p, "I r = %s;", nb_printer_block(p));
    while (n--) {
        int a = order[n];
        bool inside = a == p->w.vector || a == p->w.tile;
        int by = a == p->w.vector ? p->w.side : a == p->w.tile ? p->w.rise : 1;
        long long count = (long long)pieces(x->size[a], by);
        nb_print_line(p);
        OUT(p, "const I %s%d = r %% %lld * %d; r /= %lld;",
            inside ? "first" : "i", a, count, by, count);
    }
}

/* The last tile of an axis may be shorter. */
static void guard(nb_printer *p, int a)
{
    int extent = a == p->w.vector ? p->w.side : p->w.rise;
    if (p->x->size[a] % extent == 0) return;
    nb_print_line(p);
    OUT(p, "if (i%d >= %lld) continue;", a, (long long)p->x->size[a]);
}

/* The point of turn e: `fast` runs along a warp, by lanes. */
static void find(nb_printer *p, int fast, int slow, int length, int lanes)
{
    const char *quick = fast == p->w.vector ? "tv" : "tt";
    const char *late = fast == p->w.vector ? "tt" : "tv";
    nb_print_line(p);
    OUT(p, "const int at = e * %d + threadIdx.x;", p->w.units);
    nb_print_line(p);
    OUT(p, "const int %s = at %% %d * %d, %s = at / %d;", quick, length / lanes,
        lanes, late, length / lanes);
    nb_print_line(p);
    OUT(p, "const I i%d = first%d + %s, i%d = first%d + %s;", fast, fast, quick,
        slow, slow, late);
    guard(p, fast);
    guard(p, slow);
}

static void loop(nb_printer *p, int lanes)
{
    nb_print_line(p);
    OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p, "for (int e = 0; e < %d; e++) {",
        p->w.side * p->w.rise / lanes / p->w.units);
    p->depth++;
}

static void close(nb_printer *p)
{
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}

static void fill(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_stored(v->stored);
    int lanes = nb_cuda_is_upright(&p->w, v) ? p->w.lanes : 1;
    nb_print_line(p);
    OUT(p, "__shared__ __align__(16) %s s%d[%d];", type, k,
        p->w.side * pitch(p, v));
    loop(p, lanes);
    find(p, p->w.tile, p->w.vector, p->w.rise, lanes);
    nb_print_line(p);
    if (lanes > 1)
        OUT(p, "*(V%d_%s *)&s%d[tv * %d + tt] = *(V%d_%s *)&", lanes, type, k,
            pitch(p, v), lanes, type);
    else
        OUT(p, "s%d[tv * %d + tt] = ", k, pitch(p, v));
    OUT(p, "((%s *)p.b[%d])[", type, v->buffer);
    nb_print_place(p, k, false);
    OUT(p, "];");
    close(p);
}

bool nb_printer_reads_ahead(const nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    if (p->w.tile < 0 || v->kind != NB_NEST_LOAD) return false;
    return nb_cuda_is_vector(&p->w, v) ||
           (p->w.lanes == 1 && v->stride[p->w.vector] == 1);
}

static void read_ahead(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_stored(v->stored);
    int lanes = p->w.lanes;
    char cast[32] = "";
    if (lanes > 1) snprintf(cast, sizeof cast, "V%d_%s", lanes, type);
    nb_print_line(p);
    OUT(p, "%s x%d[%d];", lanes > 1 ? cast : type, k,
        p->w.side * p->w.rise / lanes / p->w.units);
    loop(p, lanes);
    find(p, p->w.vector, p->w.tile, p->w.side, lanes);
    nb_print_line(p);
    OUT(p, "x%d[e] = *(%s *)&((%s *)p.b[%d])[", k, lanes > 1 ? cast : type,
        type, v->buffer);
    nb_print_place(p, k, false);
    OUT(p, "];");
    close(p);
}

void nb_print_tiles(nb_printer *p)
{
    const nb_cuda_walk *w = &p->w;
    begin(p);
    for (int k = 0; k < p->x->n; k++)
        if (nb_cuda_is_turned(w, nb_printer_value(p, k))) fill(p, k);
    for (int k = 0; k < p->x->n; k++)
        if (nb_printer_reads_ahead(p, k)) read_ahead(p, k);
    nb_print_line(p);
    OUT(p, "__syncthreads();");
    loop(p, w->lanes);
    find(p, w->vector, w->tile, w->side, w->lanes);
    nb_print_line(p);
    OUT(p, "const bool live = true;");
    nb_print_points(p);
    close(p);
}
