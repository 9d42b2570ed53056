/* sample.c - reading examples, drawing inputs, comparing results. */
#include "support/sample.h"

#include "support/there.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct literal {
    int rank, n;
    int64_t size[NB_MAX_RANK];
    double v[512];
    nb_dtype dtype;
} literal;

static void skip(const char **s)
{
    *s += strspn(*s, " \n");
}

static bool number(const char **s, literal *l)
{
    char *end;
    if (!strncmp(*s, "True", 4) || !strncmp(*s, "False", 5)) {
        l->v[l->n++] = **s == 'T';
        l->dtype = l->dtype ? l->dtype : NB_BOOL;
        *s += **s == 'T' ? 4 : 5;
        return true;
    }
    double v = strtod(*s, &end);
    if (end == *s || l->n == 512) return false;
    bool real = false;
    for (const char *p = *s; p < end; p++)
        real = real || strchr(".einfaIN", *p);
    if (real)
        l->dtype = NB_F64;
    else if (l->dtype != NB_F64)
        l->dtype = NB_I64;
    l->v[l->n++] = v;
    *s = end;
    return true;
}

/* A number or a nested list of them. */
static bool list(const char **s, int depth, literal *l)
{
    skip(s);
    if (**s != '[') return number(s, l);
    if (l->rank == depth) l->rank++;
    l->size[depth] = 0;
    ++*s;
    for (skip(s); **s != ']'; skip(s)) {
        if (!list(s, depth + 1, l)) return false;
        l->size[depth]++;
        skip(s);
        if (**s == ',') ++*s;
    }
    ++*s;
    return true;
}

static nb_tensor *tensor(const char **s)
{
    literal l = {0};
    if (!list(s, 0, &l)) return NULL;
    if (!l.dtype) l.dtype = NB_F64;
    nb_tensor *x = given(NB_F64, l.rank, l.size, l.v);
    x = nb_cast(x, l.dtype);
    return nb_realize(x) == NB_OK ? x : NULL;
}

static int value_index(nb_op *op, const char *name, size_t n)
{
    int k = 0;
    for (int i = 0; i < op->parsed->n; i++) {
        const nb_param *p = &op->parsed->param[i];
        if (p->kind == NB_P_TENSOR || p->kind == NB_P_TENSORS) continue;
        if (strlen(p->name) == n && !strncmp(p->name, name, n)) return k;
        k++;
    }
    return -1;
}

static bool read_value(const char **s, nb_value *v, int64_t *room)
{
    skip(s);
    char *end;
    if (**s == '(' || **s == '[') {
        *v = (nb_value)NB_V_LIST(0, room);
        for (++*s, skip(s); !strchr(")]", **s); skip(s)) {
            room[v->n++] = strtoll(*s, &end, 10);
            if (end == *s) return false;
            *s = end + (*end == ',');
        }
        ++*s;
    } else if (**s == '"') {
        const char *close = strchr(*s + 1, '"');
        *v = (nb_value)NB_V_TEXT(nb_intern(*s + 1, (size_t)(close - *s - 1)));
        *s = close + 1;
    } else if (!strncmp(*s, "None", 4)) {
        *v = (nb_value)NB_V_NONE;
        *s += 4;
    } else if (!strncmp(*s, "True", 4) || !strncmp(*s, "False", 5)) {
        *v = (nb_value)NB_V_INT(**s == 'T');
        *s += **s == 'T' ? 4 : 5;
    } else if (isalpha((unsigned char)**s)) {
        size_t n = strspn(*s, "abcdefghijklmnopqrstuvwxyz0123456789_");
        *v = (nb_value)NB_V_INT(nb_dtype_find(nb_intern(*s, n)));
        *s += n;
    } else {
        double f = strtod(*s, &end);
        if (end == *s) return false;
        bool real = memchr(*s, '.', (size_t)(end - *s));
        *v = real ? (nb_value)NB_V_FLOAT(f) : (nb_value)NB_V_INT((int64_t)f);
        *s = end;
    }
    return true;
}

static bool read_argument(const char **s, sample *c, bool *in_list)
{
    skip(s);
    if (**s == '(' && c->op->parsed->list) {
        *in_list = true;
        ++*s;
        return true;
    }
    size_t n = strspn(*s, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (n && (*s)[n] == '=' && isalpha((unsigned char)**s)) {
        int k = value_index(c->op, *s, n);
        *s += n + 1;
        if (k < 0 || k >= MAX_VALUES) return false;
        if (k >= c->nval) c->nval = k + 1;
        return read_value(s, &c->val[k], c->list[k]);
    }
    if (c->nin == MAX_IN) return false;
    return (c->in[c->nin++] = tensor(s));
}

static bool read_example(const char *s, sample *c)
{
    bool in_list = false;
    s = strchr(s, '(');
    if (!s) return false;
    for (s++, skip(&s); *s != ')' || in_list; skip(&s)) {
        if (*s == ')') {
            in_list = false;
            s++;
        } else if (!read_argument(&s, c, &in_list))
            return false;
        skip(&s);
        if (*s == ',') s++;
    }
    s++;
    skip(&s);
    if (*s++ != '=') return false;
    do {
        if (c->nout == MAX_OUT) return false;
        if (!(c->expected[c->nout++] = tensor(&s))) return false;
        skip(&s);
    } while (*s++ == ',');
    return true;
}

bool sample_example(sample *s, nb_op *op)
{
    *s = (sample){.op = op};
    if (nb_op_ready(op) && op->example && read_example(op->example, s))
        return true;
    fprintf(stderr, "%s: cannot read its example: %s\n", op->name,
            nb_error_message());
    return false;
}

bool sample_smooth(const sample *s, int i)
{
    const nb_op *op = s->op;
    return op->kind != NB_CONSTANT && nb_dtype_is_float(s->in[i]->dtype) &&
           !((op->fixed | op->index | op->mask) >> i & 1);
}

static uint64_t state = 88172645463325252u;

void uniform_seed(uint64_t seed)
{
    state = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
    for (int i = 0; i < 4; i++)
        uniform(0, 1);
}

double uniform(double lo, double hi)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return lo + (hi - lo) * (double)(state >> 11) / 9007199254740992.0;
}

int64_t pick(int64_t n)
{
    return (int64_t)uniform(0, (double)n);
}

nb_tensor *draw_like(const nb_tensor *x, double lo, double hi)
{
    int64_t size[NB_MAX_RANK], n = nb_elements(x);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    nb_sizes(x, size);
    for (int64_t i = 0; i < n; i++)
        v[i] = uniform(lo, hi);
    nb_tensor *y = given(NB_F64, nb_rank(x), size, v);
    if (y && nb_device_of(y) != nb_device_of(x))
        y = nb_to_device(y, nb_device_of(x));
    free(v);
    return y;
}

/* Matrices of a special kind, from a random one. */
static nb_tensor *special(nb_tensor *x, char kind)
{
    int64_t size[NB_MAX_RANK], n = nb_elements(x), d = nb_size(x, -1);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    double *w = calloc((size_t)(n + 1), sizeof *w);
    nb_sizes(x, size);
    nb_read(x, NB_F64, v);
    if (kind == 'd') /* well apart: a shuffled ladder */
        for (int64_t i = 0; i < n; i++)
            w[i] = (double)((i * 7 + 3) % (n + (n % 7 == 0))) + 0.3 * v[i] / 4;
    for (int64_t m = 0; kind != 'd' && d && m < n; m += d * d)
        for (int64_t i = 0; i < d; i++)
            for (int64_t j = 0; j < d; j++) {
                double *to = &w[m + i * d + j];
                double a = v[m + i * d + j], b = v[m + j * d + i];
                double diagonal = kind == 's' ? 2 * (double)i : (double)d + 3;
                *to = kind == 'i' ? a : (a + b) / 2;
                if (i == j) *to += diagonal;
            }
    nb_tensor *y = given(NB_F64, nb_rank(x), size, w);
    free(v);
    free(w);
    return y;
}

nb_tensor *sample_input(const nb_op *op, int i, const nb_tensor *x)
{
    bool any = op->domain[0] == 0 && op->domain[1] == 0;
    nb_tensor *y =
        draw_like(x, any ? -2 : op->domain[0], any ? 2 : op->domain[1]);
    char kind = op->shapes && i < (int)strlen(op->shapes) ? op->shapes[i] : '.';
    return kind == '.' ? y : special(y, kind);
}

bool sample_random(sample *s, nb_op *op)
{
    if (!sample_example(s, op)) return false;
    for (int i = 0; i < s->nin; i++) {
        bool data = (op->index | op->mask) >> i & 1;
        bool whole = op->in == NB_IN_INTEGER || op->in == NB_IN_BOOL;
        if (!data && !whole && !(op->fixed >> i & 1))
            s->in[i] = sample_input(op, i, s->in[i]);
        if (!s->in[i]) return false;
    }
    return true;
}

int sample_call(const sample *s, nb_tensor *const *in, nb_tensor **out)
{
    int n = MAX_OUT;
    return nb_op_call(s->op, s->nin, in, s->nval, s->val, &n, out) == NB_OK ? n
                                                                            : 0;
}

static double *values(nb_tensor *x)
{
    double *v = malloc((size_t)(nb_elements(x) + 1) * sizeof *v);
    if (nb_read(x, NB_F64, v) == NB_OK) return v;
    free(v);
    return NULL;
}

double dot(nb_tensor *x, nb_tensor *y)
{
    double *a = values(x), *b = values(y), sum = a && b ? 0 : NAN;
    for (int64_t i = 0; a && b && i < nb_elements(x); i++)
        sum += a[i] * b[i];
    free(a);
    free(b);
    return sum;
}

static bool same_shape(nb_tensor *x, nb_tensor *y)
{
    if (!x || !y || nb_rank(x) != nb_rank(y)) return false;
    for (int d = 0; d < nb_rank(x); d++)
        if (nb_size(x, d) != nb_size(y, d)) return false;
    return true;
}

bool near(nb_tensor *x, nb_tensor *y, double tolerance)
{
    if (!same_shape(x, y)) return false;
    double *a = values(x), *b = values(y);
    bool ok = a && b;
    for (int64_t i = 0; ok && i < nb_elements(x); i++) {
        double scale = fabs(b[i]) > 1 ? fabs(b[i]) : 1;
        ok = a[i] == b[i] || (isnan(a[i]) && isnan(b[i])) ||
             fabs(a[i] - b[i]) <= tolerance * scale;
    }
    free(a);
    free(b);
    return ok;
}
