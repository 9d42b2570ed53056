/* conv_kernel.c - convolution as a matrix product.
 *
 * Every place of the result is a row of a matrix whose columns are what the
 * taps read there (images to columns); times the filter, a matrix of columns
 * by channels out, that is the result.  Rows are made in blocks that stay in
 * the cache.  Where each row is a row of the image already, none is made.
 * 16-bit floats are multiplied in float32, integers, modulo 2^64, in a plain
 * loop. */
#include "ops/conv_kernel.h"

#include "base/blas.h"
#include "core/convert.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 21, LEAST_ROWS = 64 };

int64_t nb_spread_size(int64_t n, int64_t step)
{
    return n > 0 ? (n - 1) * step + 1 : 0;
}

bool nb_line_measure(nb_line *l)
{
    __int128 whole = l->size ? (__int128)(l->size - 1) * l->spread + 1 : 0;
    __int128 reach = (__int128)(l->taps - 1) * l->dilation + 1;
    __int128 padded = whole + l->before + l->after;
    __int128 room = padded - reach;
    if (whole > INT64_MAX || reach > INT64_MAX || padded > INT64_MAX)
        return false;
    l->places = room < 0 ? (int64_t)(-((-room - 1) / l->stride + 1)) + 1
                         : (int64_t)(room / l->stride) + 1;
    return true;
}

/* The work on one call: geometry with strides, and types. */
typedef struct work {
    const nb_geometry *g;
    const nb_view *x, *y;
    nb_dtype type; /* in which it multiplies */
    int64_t item;  /* bytes of it */
    int64_t rows, columns, block, all_out, taps[NB_MAX_SPATIAL];
    char *filter, *matrix, *result;
} work;

/* Where tap k at place t reads along a line, or -1. */
static int64_t read_at(const nb_line *l, int64_t t, int64_t k)
{
    int64_t p = t * l->stride + k * l->dilation - l->before;
    if (p < 0 || p % l->spread) return -1;
    p /= l->spread;
    return p < l->size ? p : -1;
}

/* The next of all tuples below `end`; the last entry runs fastest. */
static bool count_up(int64_t *at, const int64_t *end, int n)
{
    for (int d = n - 1; d >= 0; d--) {
        if (++at[d] < end[d]) return true;
        at[d] = 0;
    }
    return false;
}

static int64_t within(int64_t x, int64_t end)
{
    return x < 0 ? 0 : x > end ? end : x;
}

/* The taps of the last line read a run of x as it lies there. */
static void fill_run(const work *w, const char *from, int64_t t, char *to)
{
    const nb_line *l = &w->g->line[w->g->rank - 1];
    int64_t start = t * l->stride - l->before, bytes = w->g->in * w->item;
    int64_t first = within(-start, l->taps);
    int64_t end = within(l->size - start, l->taps);
    if (end < first) end = first;
    memset(to, 0, (size_t)(first * bytes));
    if (end > first)
        memcpy(to + first * bytes, from + (start + first) * bytes,
               (size_t)((end - first) * bytes));
    memset(to + end * bytes, 0, (size_t)((l->taps - end) * bytes));
}

/* What the taps of the last line read, from x at `from`: `in` channels each. */
static void fill_line(const work *w, const char *from, int64_t t, char *to)
{
    const nb_geometry *g = w->g;
    const nb_line *l = &g->line[g->rank - 1];
    int64_t step = w->x->stride[g->rank], channel = w->x->stride[g->rank + 1];
    int64_t item = (int64_t)nb_dtype_size(w->x->dtype);
    int64_t bytes = g->in * w->item;
    bool plain = channel == 1 && w->x->dtype == w->type;
    if (plain && step == g->in && l->spread == 1 && l->dilation == 1) {
        fill_run(w, from, t, to);
        return;
    }
    for (int64_t k = 0; k < l->taps; k++, to += bytes) {
        int64_t p = read_at(l, t, k);
        if (p < 0)
            memset(to, 0, (size_t)bytes);
        else if (plain)
            memcpy(to, from + p * step * item, (size_t)bytes);
        else
            nb_convert(to, w->type, 1, from + p * step * item, w->x->dtype,
                       channel, g->in);
    }
}

/* Where the taps k of all lines but the last read, from an image on; NULL if
 * that is outside. */
static const char *locate(const work *w, const char *image, const int64_t *t,
                          const int64_t *k, int lines)
{
    int64_t item = (int64_t)nb_dtype_size(w->x->dtype);
    for (int d = 0; d < lines; d++) {
        int64_t p = read_at(&w->g->line[d], t[d], k[d]);
        if (p < 0) return NULL;
        image += p * w->x->stride[1 + d] * item;
    }
    return image;
}

/* One row: place t of an image, channels of a group. */
static void fill_row(const work *w, const char *image, const int64_t *t,
                     char *to)
{
    const nb_geometry *g = w->g;
    int outer = g->rank - 1;
    int64_t k[NB_MAX_SPATIAL] = {0};
    int64_t bytes = g->line[outer].taps * g->in * w->item;
    do {
        const char *from = locate(w, image, t, k, outer);
        if (from)
            fill_line(w, from, t[outer], to);
        else
            memset(to, 0, (size_t)bytes);
        to += bytes;
    } while (count_up(k, w->taps, outer));
}

/* Walks over the places of all images, from place number `first` on. */
typedef struct place {
    int64_t at[1 + NB_MAX_SPATIAL], end[1 + NB_MAX_SPATIAL];
} place;

static place place_of(const nb_geometry *g, int64_t first)
{
    place p = {.end = {g->images}};
    for (int d = 0; d < g->rank; d++)
        p.end[1 + d] = g->line[d].places;
    for (int d = g->rank; d >= 0; d--) {
        p.at[d] = first % p.end[d];
        first /= p.end[d];
    }
    return p;
}

static void fill(const work *w, int64_t group, int64_t first, int64_t n)
{
    const nb_geometry *g = w->g;
    const int64_t *stride = w->x->stride;
    int64_t item = (int64_t)nb_dtype_size(w->x->dtype);
    place p = place_of(g, first);
    const char *x = w->x->data + group * g->in * stride[g->rank + 1] * item;
    for (int64_t i = 0; i < n; i++) {
        fill_row(w, x + p.at[0] * stride[0] * item, p.at + 1,
                 w->matrix + i * w->columns * w->item);
        count_up(p.at, p.end, g->rank + 1);
    }
}

static void multiply_integers(const uint64_t *a, const uint64_t *b, uint64_t *c,
                              int64_t m, int64_t n, int64_t k, int64_t row)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            uint64_t sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * row + j];
            c[i * row + j] = sum;
        }
}

/* n rows times the filter of a group, to c, whose rows hold all channels. */
static bool multiply(const work *w, int64_t group, const char *a, int64_t a_row,
                     int64_t a_col, int64_t n, char *c)
{
    int64_t skip = group * w->g->out * w->item;
    if (w->type == NB_I64) {
        multiply_integers(
            (const uint64_t *)a, (const uint64_t *)(w->filter + skip),
            (uint64_t *)(c + skip), n, w->g->out, w->columns, w->all_out);
        return true;
    }
    return nb_gemm(w->type, n, w->g->out, w->columns, a, a_row, a_col,
                   w->filter + skip, w->all_out, 1, c + skip, w->all_out);
}

/* Whether rows of the matrix are rows of x: taps of one, that all places of all
 * images stand in one line for. */
static bool is_direct(const work *w)
{
    const nb_geometry *g = w->g;
    const int64_t *stride = w->x->stride;
    int64_t step = stride[g->rank];
    if (w->x->dtype != w->type || w->type == NB_I64) return false;
    for (int d = g->rank - 1; d >= 0; d--) {
        const nb_line *l = &g->line[d];
        if (l->taps != 1 || l->stride != 1 || l->spread != 1 || l->before ||
            l->after)
            return false;
        if (l->size != 1 && stride[1 + d] != step) return false;
        step *= l->size;
    }
    return g->images == 1 || stride[0] == step;
}

static bool run_direct(const work *w)
{
    int64_t channel = w->x->stride[w->g->rank + 1];
    for (int64_t k = 0; k < w->g->groups; k++)
        if (!multiply(w, k, w->x->data + k * w->g->in * channel * w->item,
                      w->x->stride[w->g->rank], channel, w->rows, w->y->data))
            return false;
    return true;
}

/* Groups of one channel in and out: a product by channel, summed over taps. */
#define WEIGH(type)                                                      \
    static void weigh_##type(const type *x, int64_t step, const type *f, \
                             type *y, int64_t n)                         \
    {                                                                    \
        for (int64_t c = 0; c < n; c++)                                  \
            y[c] += x[c * step] * f[c];                                  \
    }
WEIGH(float)
WEIGH(double)

static void depth_row(const work *w, const char *image, const int64_t *t,
                      char *y)
{
    int rank = w->g->rank;
    int64_t k[NB_MAX_SPATIAL] = {0}, step = w->x->stride[rank + 1];
    const char *f = w->filter;
    memset(y, 0, (size_t)(w->all_out * w->item));
    do {
        const char *x = locate(w, image, t, k, rank);
        if (x && w->type == NB_F32)
            weigh_float((const float *)x, step, (const float *)f, (float *)y,
                        w->all_out);
        else if (x)
            weigh_double((const double *)x, step, (const double *)f,
                         (double *)y, w->all_out);
        f += w->all_out * w->item;
    } while (count_up(k, w->taps, rank));
}

static bool is_depthwise(const work *w)
{
    return w->g->in == 1 && w->g->out == 1 && w->x->dtype == w->type &&
           w->type != NB_I64;
}

static bool run_depthwise(const work *w)
{
    place p = place_of(w->g, 0);
    for (int64_t i = 0; i < w->rows; i++) {
        depth_row(w, w->x->data + p.at[0] * w->x->stride[0] * w->item, p.at + 1,
                  w->y->data + i * w->all_out * w->item);
        count_up(p.at, p.end, w->g->rank + 1);
    }
    return true;
}

static bool run_blocks(const work *w)
{
    int64_t item = (int64_t)nb_dtype_size(w->y->dtype);
    for (int64_t first = 0; first < w->rows; first += w->block) {
        int64_t n = w->rows - first < w->block ? w->rows - first : w->block;
        char *to = w->y->data + first * w->all_out * item;
        char *c = w->result ? w->result : to;
        for (int64_t k = 0; k < w->g->groups; k++) {
            fill(w, k, first, n);
            if (!multiply(w, k, w->matrix, w->columns, 1, n, c)) return false;
        }
        if (c != to)
            nb_convert(to, w->y->dtype, 1, c, w->type, 1, n * w->all_out);
    }
    return true;
}

/* The filter as a matrix, row-major in the type of the work. */
static void pack_filter(const work *w, const nb_view *f)
{
    int64_t at[NB_MAX_SPATIAL + 1] = {0};
    int64_t item = (int64_t)nb_dtype_size(f->dtype);
    char *to = w->filter;
    do {
        int64_t o = 0;
        for (int d = 0; d <= w->g->rank; d++)
            o += at[d] * f->stride[d];
        nb_convert(to, w->type, 1, f->data + o * item, f->dtype,
                   f->stride[f->rank - 1], w->all_out);
        to += w->all_out * w->item;
    } while (count_up(at, f->size, w->g->rank + 1));
}

static nb_dtype type_of(nb_dtype d)
{
    if (d == NB_F16 || d == NB_BF16) return NB_F32;
    return nb_dtype_is_float(d) ? d : NB_I64;
}

static void measure(work *w)
{
    w->rows = w->g->images;
    w->columns = w->g->in;
    for (int d = 0; d < w->g->rank; d++) {
        w->rows *= w->g->line[d].places;
        w->columns *= w->taps[d] = w->g->line[d].taps;
    }
    w->all_out = w->g->groups * w->g->out;
    w->block = w->columns ? BLOCK_BYTES / (w->item * w->columns) : 0;
    if (w->block < LEAST_ROWS) w->block = LEAST_ROWS;
    if (w->block > w->rows) w->block = w->rows;
}

/* Room for a block of rows, and for its product if that is converted. */
static bool run_general(work *w)
{
    bool converts = w->type != w->y->dtype;
    w->matrix = nb_alloc((size_t)(w->block * w->columns * w->item));
    if (converts)
        w->result = nb_alloc((size_t)(w->block * w->all_out * w->item));
    bool ok = w->matrix && (w->result || !converts) && run_blocks(w);
    nb_free(w->matrix);
    nb_free(w->result);
    return ok;
}

bool nb_conv_run(const nb_geometry *g, const nb_view *x, const nb_view *filter,
                 const nb_view *y)
{
    work w = {.g = g, .x = x, .y = y, .type = type_of(x->dtype)};
    w.item = (int64_t)nb_dtype_size(w.type);
    measure(&w);
    if (w.rows == 0 || w.all_out == 0) return true;
    if (w.columns == 0) {
        memset(y->data, 0,
               (size_t)(w.rows * w.all_out) * nb_dtype_size(y->dtype));
        return true;
    }
    w.filter = nb_alloc((size_t)(w.columns * w.all_out * w.item));
    if (!w.filter) return false;
    pack_filter(&w, filter);
    bool ok = is_direct(&w)      ? run_direct(&w)
              : is_depthwise(&w) ? run_depthwise(&w)
                                 : run_general(&w);
    nb_free(w.filter);
    return ok;
}
