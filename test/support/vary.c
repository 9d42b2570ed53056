/* vary.c - examples stretched: a size becomes another wherever it stands, dims
 * are put in front, arguments are drawn anew.  What the op refuses is drawn
 * again. */
#include "support/vary.h"

#include "support/there.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 12, MAX_ELEMENTS = 4000 };

double dtype_grain(nb_dtype d)
{
    if (!nb_dtype_is_float(d)) return 1;
    return d == NB_F16 || d == NB_BF16 ? 0.125 : 1.0 / 1024;
}

static int64_t some_size(int cap)
{
    static const int64_t size[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9};
    int64_t n = size[pick(sizeof size / sizeof size[0])];
    return n > cap ? cap : n;
}

/* Sizes */

typedef struct stretch {
    int64_t becomes[16], lead[2];
    int nlead;
} stretch;

static stretch stretch_draw(int cap)
{
    stretch t = {.nlead = pick(5) < 2 ? 1 + (int)pick(2) : 0};
    bool stay = pick(4) == 0;
    for (int k = 0; k < 16; k++) {
        int64_t n = some_size(cap);
        t.becomes[k] = stay || (k == 1 && pick(4)) ? k : n;
    }
    for (int k = 0; k < 2; k++)
        t.lead[k] = some_size(cap);
    return t;
}

static int new_sizes(const stretch *t, const nb_tensor *x, bool lead,
                     int64_t *size)
{
    int n = 0;
    for (int k = 0; lead && k < t->nlead; k++)
        size[n++] = t->lead[k];
    for (int d = 0; d < nb_rank(x); d++) {
        int64_t was = nb_size(x, d);
        size[n++] = was < 16 ? t->becomes[was] : was;
    }
    return n;
}

/* Values */

static nb_tensor *of_values(nb_tensor *like, int rank, const int64_t *size,
                            bool anywhere)
{
    int64_t n = 1, had = nb_elements(like);
    for (int d = 0; d < rank; d++)
        n *= size[d];
    double *was = malloc((size_t)(had + 1) * sizeof *was);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    nb_read(like, NB_F64, was);
    for (int64_t i = 0; i < n; i++)
        v[i] = anywhere || !had ? (double)(pick(12) - 4) : was[pick(had)];
    nb_tensor *y = nb_cast(given(NB_F64, rank, size, v), nb_dtype_of(like));
    free(was);
    free(v);
    return y;
}

static nb_tensor *rounded(nb_tensor *x, nb_dtype dtype)
{
    double grain = dtype_grain(dtype);
    x = nb_floor(nb_add(nb_mul(x, nb_num(1 / grain)), nb_num(0.5)));
    x = nb_cast(nb_mul(x, nb_num(grain)), dtype);
    return x && nb_realize(x) == NB_OK ? x : NULL;
}

static nb_tensor *new_input(const sample *s, int i, const stretch *t, bool lead,
                            nb_dtype real)
{
    const nb_op *op = s->op;
    int64_t size[NB_MAX_RANK * 2];
    int rank = new_sizes(t, s->in[i], lead, size);
    bool index = op->index >> i & 1, data = index || op->mask >> i & 1;
    bool whole = op->in == NB_IN_INTEGER || op->in == NB_IN_BOOL;
    if (rank > 6) return NULL;
    if (data || whole || op->fixed >> i & 1 ||
        (!nb_dtype_is_float(nb_dtype_of(s->in[i])) && pick(2)))
        return of_values(s->in[i], rank, size, index && pick(2));
    nb_tensor *x =
        sample_input(op, i, nb_zeros(rank, size, nb_dtype_of(s->in[i])));
    return x ? rounded(x, real) : NULL;
}

static nb_dtype some_real(const nb_op *op)
{
    static const nb_dtype real[] = {NB_F64, NB_F64, NB_F32, NB_F16, NB_BF16};
    return real[pick(op->shapes ? 2 : 5)];
}

static bool stretch_inputs(sample *s, int cap)
{
    stretch t = stretch_draw(cap);
    nb_dtype real = some_real(s->op);
    bool all = s->op->parsed->list || pick(2);
    for (int i = 0; i < s->nin; i++) {
        s->in[i] = new_input(s, i, &t, all || pick(3), real);
        if (!s->in[i] || nb_elements(s->in[i]) > MAX_ELEMENTS) return false;
    }
    return true;
}

/* Arguments */

static void put_list(sample *s, int k, int n)
{
    if (k >= s->nval) s->nval = k + 1;
    s->val[k] = (nb_value)NB_V_LIST(n, s->list[k]);
}

static void put_int(sample *s, int k, int64_t v)
{
    if (k >= s->nval) s->nval = k + 1;
    s->val[k] = (nb_value)NB_V_INT(v);
}

static void put_axes(sample *s, int k, int rank, bool all)
{
    int n = 0;
    for (int d = 0; d < rank && d < 16; d++)
        if (all || pick(2)) s->list[k][n++] = d;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)pick(i + 1);
        int64_t t = s->list[k][i];
        s->list[k][i] = s->list[k][j];
        s->list[k][j] = t;
    }
    put_list(s, k, n);
}

/* Another shape of as many elements: dims are joined and taken apart. */
static void put_shape(sample *s, int k)
{
    int64_t *l = s->list[k];
    int n = nb_rank(s->in[0]);
    nb_sizes(s->in[0], l);
    for (int turn = (int)pick(4); turn > 0; turn--) {
        int d = n ? (int)pick(n) : 0;
        int64_t by = 2 + pick(3);
        if (n > 1 && d + 1 < n && pick(2)) {
            l[d] *= l[d + 1];
            memmove(l + d + 1, l + d + 2, (size_t)(n - d - 2) * sizeof *l);
            n--;
        } else if (n && n < 6 && l[d] && l[d] % by == 0) {
            memmove(l + d + 1, l + d, (size_t)(n - d) * sizeof *l);
            l[d] = by;
            l[d + 1] /= by;
            n++;
        } else if (n < 6) {
            memmove(l + d + 1, l + d, (size_t)(n - d) * sizeof *l);
            l[d] = 1;
            n++;
        }
    }
    put_list(s, k, n);
}

static void put_wider(sample *s, int k, int cap)
{
    int n = 0, rank = nb_rank(s->in[0]);
    if (pick(2)) s->list[k][n++] = some_size(cap);
    for (int d = 0; d < rank; d++) {
        int64_t size = nb_size(s->in[0], d);
        s->list[k][n++] = size == 1 && pick(2) ? some_size(cap) : size;
    }
    put_list(s, k, n);
}

/* start, size, step of a part of x; or of where x is a part. */
static void put_part(sample *s, bool inside, bool steps)
{
    int rank = nb_rank(s->in[0]);
    for (int d = 0; d < rank && d < 16; d++) {
        int64_t n = nb_size(s->in[0], d), step = steps ? 1 + pick(2) : 1;
        int64_t room = n ? (n - 1) / step + 1 : 0, size = n, start = 0;
        if (inside && pick(3)) {
            size = room ? 1 + pick(room) : 0;
            start = n ? pick(n - (size ? (size - 1) * step : 0)) : 0;
        } else if (inside)
            step = 1;
        else {
            int64_t more = pick(3);
            start = pick(more + 1);
            size = (n ? (n - 1) * step + 1 : 0) + more;
        }
        int64_t count = inside ? size : n;
        if (steps && count && pick(3) == 0) {
            start += (count - 1) * step;
            step = -step;
        }
        s->list[0][d] = start;
        s->list[1][d] = size;
        s->list[2][d] = step;
    }
    for (int k = 0; k < 2 + steps; k++)
        put_list(s, k, rank);
}

static void put_numbers(sample *s, int k, int n, int64_t lo, int64_t hi)
{
    for (int d = 0; d < n && d < 16; d++)
        s->list[k][d] = lo + pick(hi - lo + 1);
    put_list(s, k, n);
}

static void draw_list(sample *s, int k, const char *name, int cap)
{
    const char *op = s->op->name;
    int rank = nb_rank(s->in[0]);
    if (!strcmp(op, "reshape") && !k)
        put_shape(s, k);
    else if (!strcmp(op, "broadcast_to"))
        put_wider(s, k, cap);
    else if (!strcmp(op, "slice") && !k)
        put_part(s, true, true);
    else if (!strcmp(op, "slice_tensor") && !k)
        put_part(s, true, false);
    else if (!strcmp(op, "embed") && !k)
        put_part(s, false, true);
    else if (!strcmp(name, "paddings") && !strcmp(op, "pad"))
        put_numbers(s, k, 2 * rank, 0, 2);
    else if (!strcmp(name, "repetitions"))
        put_numbers(s, k, rank + (int)pick(2), 1, 2);
    else if (!strcmp(name, "shift") && rank) {
        put_numbers(s, 0, 1, -4, 4);
        put_numbers(s, 1, 1, 0, rank - 1);
    }
}

static void draw_value(sample *s, const nb_param *p, int k, int cap)
{
    int rank = s->nin ? nb_rank(s->in[0]) : 0;
    if (p->kind == NB_P_INTS) {
        draw_list(s, k, p->name, cap);
        return;
    }
    if (pick(2)) return;
    switch (p->kind) {
    case NB_P_AXIS:
        if (rank) put_int(s, k, pick(2 * rank) - rank);
        break;
    case NB_P_NEWAXIS: put_int(s, k, pick(2 * rank + 2) - rank - 1); break;
    case NB_P_AXES:
        if (!strcmp(s->op->name, "permute"))
            put_axes(s, k, rank, true);
        else if (strncmp(s->op->name, "index", 5) &&
                 strcmp(s->op->name, "moveaxis"))
            put_axes(s, k, rank, false);
        break;
    case NB_P_BOOL: put_int(s, k, pick(2)); break;
    case NB_P_INT:
        if (!strcmp(p->name, "offset") || !strcmp(p->name, "k"))
            put_int(s, k, pick(5) - 2);
        break;
    default: break;
    }
}

static void draw_values(sample *s, int cap)
{
    int k = 0;
    for (int i = 0; i < s->op->parsed->n; i++) {
        const nb_param *p = &s->op->parsed->param[i];
        if (p->kind == NB_P_TENSOR || p->kind == NB_P_TENSORS) continue;
        draw_value(s, p, k++, cap);
    }
}

static bool works(const sample *s)
{
    nb_tensor *out[MAX_OUT];
    int n = sample_call(s, s->in, out);
    bool ok = n > 0 && nb_realize_all(n, out) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        ok = nb_elements(out[k]) <= 4 * MAX_ELEMENTS;
    nb_error_clear();
    return ok;
}

bool sample_vary(sample *s, nb_op *op, int cap)
{
    for (int i = 0; i < TRIES; i++) {
        if (!sample_example(s, op)) return false;
        bool ok = stretch_inputs(s, cap);
        nb_error_clear();
        if (!ok) continue;
        draw_values(s, cap);
        if (works(s)) return true;
    }
    return sample_random(s, op);
}
