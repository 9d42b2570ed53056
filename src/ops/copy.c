/* copy.c - elements from one layout to another.
 *
 * Dims that both sides walk through in one step are merged.  Two of what is
 * left make a plane, which is copied row by row, or, where one side is
 * contiguous along the rows and the other along the columns, by squares of a
 * cache line: every line is then used whole while it is there. */
#include "ops/copy.h"

#include "base/pool.h"

#include <string.h>

enum { LINE = 64 };

/* A dim: how many, and the bytes from one to the next on each side. */
typedef struct dim {
    int64_t n, to, from;
} dim;

/* Called with a constant size, and steps where they are known: loops that
 * compilers make good code of. */
static inline void walk(size_t item, char *to, int64_t to_step,
                        const char *from, int64_t from_step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * from_step, item);
}

/* One element again and again, which is not read again. */
static inline void repeat(size_t item, char *to, const char *from, int64_t n)
{
    char one[8];
    memcpy(one, from, item);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * (int64_t)item, one, item);
}

static inline void row(size_t item, char *to, const char *from, dim d)
{
    int64_t step = (int64_t)item;
    if (d.to == step && d.from == step)
        memcpy(to, from, (size_t)d.n * item);
    else if (d.to == step && d.from == 0)
        repeat(item, to, from, d.n);
    else if (d.to == step && d.from == -step)
        walk(item, to, step, from, -step, d.n);
    else if (d.to == step)
        walk(item, to, step, from, d.from, d.n);
    else
        walk(item, to, d.to, from, d.from, d.n);
}

/* A square of which `to` is contiguous along b and `from` along a. */
static inline void square(size_t item, char *to, const char *from, dim a, dim b)
{
    _Alignas(LINE) char turned[LINE * LINE];
    int64_t step = (int64_t)item;
    for (int64_t j = 0; j < b.n; j++)
        walk(item, turned + j * step, LINE, from + j * b.from, step, a.n);
    for (int64_t i = 0; i < a.n; i++)
        memcpy(to + i * a.to, turned + i * LINE, (size_t)b.n * item);
}

static inline void squares(size_t item, char *to, const char *from, dim a,
                           dim b)
{
    int64_t side = LINE / (int64_t)item;
    for (int64_t i = 0; i < a.n; i += side)
        for (int64_t j = 0; j < b.n; j += side) {
            dim p = a, q = b;
            p.n = a.n - i < side ? a.n - i : side;
            q.n = b.n - j < side ? b.n - j : side;
            square(item, to + i * a.to + j * b.to,
                   from + i * a.from + j * b.from, p, q);
        }
}

/* Short rows that are not solid are better walked across. */
static inline void plane(size_t item, char *to, const char *from, dim a, dim b)
{
    int64_t step = (int64_t)item, least = LINE / step / 2;
    bool across = a.from == step && b.to == step;
    if (across && a.n >= least && b.n >= least) {
        squares(item, to, from, a, b);
        return;
    }
    bool solid = b.to == step && b.from == step && b.n * step >= 16;
    if (!solid && b.n < least && a.n > b.n) {
        dim swap = a;
        a = b;
        b = swap;
    }
    for (int64_t i = 0; i < a.n; i++)
        row(item, to + i * a.to, from + i * a.from, b);
}

static void put_plane(size_t item, char *to, const char *from, dim a, dim b)
{
    switch (item) {
    case 1: plane(1, to, from, a, b); break;
    case 2: plane(2, to, from, a, b); break;
    case 4: plane(4, to, from, a, b); break;
    case 8: plane(8, to, from, a, b); break;
    }
}

/* Returns the number of dims after merging, or -1 if there are no elements. */
static int merge(size_t item, int rank, const int64_t *size, nb_side to,
                 nb_side from, dim *out)
{
    int n = 0;
    for (int d = 0; d < rank; d++) {
        dim x = {size[d], to.stride[d] * (int64_t)item,
                 from.stride[d] * (int64_t)item};
        if (x.n == 0) return -1;
        if (x.n == 1) continue;
        bool one = n > 0 && out[n - 1].to == x.to * x.n &&
                   out[n - 1].from == x.from * x.n;
        if (one) x.n *= out[--n].n;
        out[n++] = x;
    }
    return n;
}

/* An element that is read again and again is not next to another. */
static int64_t distance(int64_t step)
{
    return step == 0 ? INT64_MAX : step < 0 ? -step : step;
}

/* Of n dims, the one that is closest together in `from`. */
static int nearest(int n, const dim *d)
{
    int best = n - 1;
    for (int k = n - 2; k >= 0; k--)
        if (distance(d[k].from) < distance(d[best].from)) best = k;
    return best;
}

/* Takes the dims of the plane out of the n: the last and, if memory is to be
 * read in order, the one along which that is so. */
static int take_plane(size_t item, int n, dim *d, dim *other, dim *last)
{
    *other = *last = (dim){1, 0, 0};
    if (n > 0) *last = d[--n];
    if (n < 1) return n;
    int k = last->from == (int64_t)item ? n - 1 : nearest(n, d);
    *other = d[k];
    memmove(d + k, d + k + 1, (size_t)(n - 1 - k) * sizeof *d);
    return n - 1;
}

static void copy_dims(size_t item, int n, dim *d, char *to, const char *from)
{
    dim other, last;
    int64_t at[NB_MAX_RANK] = {0};
    n = take_plane(item, n, d, &other, &last);
    for (;;) {
        put_plane(item, to, from, other, last);
        int k = n - 1;
        for (; k >= 0; k--) {
            bool on = ++at[k] < d[k].n;
            int64_t by = on ? 1 : 1 - d[k].n;
            to += by * d[k].to;
            from += by * d[k].from;
            if (on) break;
            at[k] = 0;
        }
        if (k < 0) return;
    }
}

/* Parts of the first dim, several at a time. */
typedef struct parts {
    size_t item;
    int n;
    const dim *d;
    char *to;
    const char *from;
    int64_t per;
} parts;

static void copy_part(void *ctx, int64_t i)
{
    const parts *p = ctx;
    dim d[NB_MAX_RANK];
    int64_t at = i * p->per, left = p->d[0].n - at;
    memcpy(d, p->d, (size_t)p->n * sizeof *d);
    d[0].n = left < p->per ? left : p->per;
    copy_dims(p->item, p->n, d, p->to + at * d[0].to, p->from + at * d[0].from);
}

void nb_copy(size_t item, int rank, const int64_t *size, nb_side to,
             nb_side from)
{
    enum { PART = 1 << 16 };
    dim d[NB_MAX_RANK];
    double all = 1;
    int n = merge(item, rank, size, to, from, d);
    if (n < 0) return;
    for (int k = 0; k < n; k++)
        all *= (double)d[k].n;
    if (all < 2 * PART) {
        copy_dims(item, n, d, to.data, from.data);
        return;
    }
    /* Whole squares. */
    int64_t per = (int64_t)(PART * (double)d[0].n / all);
    parts p = {item, n, d, to.data, from.data, (per + LINE) / LINE * LINE};
    nb_parallel_if(all / 2, (d[0].n + p.per - 1) / p.per, copy_part, &p);
}

void nb_row_major(int rank, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= size[d];
    }
}
