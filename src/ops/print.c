/* print.c - lines that are printed when values are computed.
 *
 * The op has an effect and gives a truth value that says no more than that it
 * was printed: the next to print is given it, and so comes after.  It has no
 * hidden axes; those of its inputs are gone through, and each of their points
 * is a line. */
#include "ops/print.h"

#include "core/convert.h"
#include "core/debug.h"
#include "core/format.h"
#include "ops/ops.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT, COUNT };

_Thread_local bool nb_print_quiet;

static struct {
    pthread_mutex_t lock;
    void (*put)(void *ctx, const char *line);
    void *ctx;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nb_print_to(void (*put)(void *ctx, const char *line), void *ctx)
{
    pthread_mutex_lock(&sink.lock);
    sink.put = put;
    sink.ctx = ctx;
    pthread_mutex_unlock(&sink.lock);
}

/* Not under the lock, for it may wait for others that print. */
static void put(const char *line)
{
    pthread_mutex_lock(&sink.lock);
    void (*to)(void *, const char *) = sink.put;
    void *ctx = sink.ctx;
    pthread_mutex_unlock(&sink.lock);
    if (to)
        to(ctx, line);
    else
        fputs(line, stdout);
}

/* Formats */

typedef struct field {
    int tensor;
    char spec[24]; /* of printf, without %; "" for none */
} field;

static bool wrong(const char *format, const char *what)
{
    return nb_fail(NB_EVALUE,
                   "print: %s in \"%s\" ({}, {0} or {:.3f}; {{ and }} are "
                   "braces)",
                   what, format);
}

/* Flags, width, precision, and one of the letters. */
static bool is_spec(const char *s)
{
    s += strspn(s, "+- 0");
    s += strspn(s, "0123456789");
    if (*s == '.') s += 1 + strspn(s + 1, "0123456789");
    return *s && strchr("defg", *s) && !s[1];
}

/* Reads a field from behind its brace; *next is the tensor that {} names. */
static bool read_field(const char *format, const char **at, int *next, int n,
                       field *f)
{
    const char *s = *at;
    char *end;
    long number = strtol(s, &end, 10);
    bool named = end != s;
    if (named && (*s < '0' || *s > '9' || number > n))
        return wrong(format, "a field that is no number");
    f->tensor = named ? (int)number : (*next)++;
    s = end;
    *f->spec = '\0';
    if (*s == ':') {
        size_t length = strcspn(++s, "}");
        if (length >= sizeof f->spec) return wrong(format, "a long field");
        memcpy(f->spec, s, length);
        f->spec[length] = '\0';
        if (length && !is_spec(f->spec))
            return wrong(format, "a field that cannot be read");
        s += length;
    }
    if (*s != '}') return wrong(format, "a field that does not end");
    if (f->tensor >= n) return wrong(format, "more fields than tensors");
    *at = s + 1;
    return true;
}

typedef bool show(void *ctx, const field *f, nb_text *t);

/* Goes through the format: text is added, fields are shown. */
static bool walk(const char *format, int n, show *each, void *ctx, nb_text *t)
{
    int next = 0;
    for (const char *s = format; *s;) {
        size_t plain = strcspn(s, "{}");
        field f;
        nb_text_put(t, s, plain);
        s += plain;
        if (!*s) break;
        bool twice = s[0] == s[1], opens = *s == '{';
        if (!twice && !opens) return wrong(format, "a brace alone");
        if (twice) {
            nb_text_put(t, s, 1);
            s += 2;
            continue;
        }
        s++;
        if (!read_field(format, &s, &next, n, &f) || !each(ctx, &f, t))
            return false;
    }
    return true;
}

/* Values */

/* The shortest text that reads back as the number, never without a point. */
static void add_real(nb_text *t, double x, nb_dtype d)
{
    char text[40];
    int digits = 1;
    for (; digits <= 17; digits++) {
        int64_t a = 0, b = 0;
        snprintf(text, sizeof text, "%.*g", digits, x);
        nb_write_f64(&a, d, x);
        nb_write_f64(&b, d, strtod(text, NULL));
        if (a == b) break;
    }
    const char *power = strchr(text, 'e');
    int after = power ? digits - 1 - atoi(power + 1) : 0;
    if (power && fabs(x) >= 1e-4 && fabs(x) < 1e16)
        snprintf(text, sizeof text, "%.*f", after > 0 ? after : 0, x);
    bool whole = isfinite(x) && !strpbrk(text, ".e");
    nb_text_add(t, "%s%s", isnan(x) ? "nan" : text, whole ? ".0" : "");
}

static void add_scalar(nb_text *t, const char *at, nb_dtype d)
{
    if (nb_dtype_is_float(d))
        add_real(t, nb_read_f64(at, d), d);
    else if (d == NB_BOOL)
        nb_text_add(t, *at ? "True" : "False");
    else if (d == NB_U64)
        nb_text_add(t, "%llu", *(const unsigned long long *)at);
    else
        nb_text_add(t, "%lld", (long long)nb_read_i64(at, d));
}

/* By a piece of printf that is_spec has read. */
static void add_formatted(nb_text *t, const char *at, nb_dtype d,
                          const char *spec)
{
    size_t last = strlen(spec) - 1;
    char format[32], text[400];
    bool whole = spec[last] == 'd';
    snprintf(format, sizeof format, "%%%.*s%s%c", (int)last, spec,
             whole ? "ll" : "", spec[last]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (whole)
        snprintf(text, sizeof text, format, (long long)nb_read_i64(at, d));
    else
        snprintf(text, sizeof text, format, nb_read_f64(at, d));
#pragma GCC diagnostic pop
    nb_text_add(t, "%s", text);
}

/* The inputs at one point of their hidden axes. */
typedef struct point {
    const nb_call *c;
    int nlanes;
    nb_lane lane[NB_MAX_LANES]; /* of all inputs: those that are not thin */
    int64_t at[NB_MAX_LANES];
} point;

static bool add_value(void *ctx, const field *f, nb_text *t)
{
    const point *p = ctx;
    const nb_tensor *x = p->c->in[f->tensor];
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], from = 0;
    nb_tensor_strides(x, size, stride);
    for (int l = 0; l < x->nlanes; l++)
        for (int k = 0; k < p->nlanes; k++)
            if (nb_tensor_lane(x)[l].id == p->lane[k].id &&
                !nb_tensor_lane(x)[l].thin)
                from += p->at[k] * stride[l];
    const char *at = x->data + from * (int64_t)nb_dtype_size(d);
    if (x->rank)
        return nb_format(t, d, x->rank, size + x->nlanes, stride + x->nlanes,
                         at, "");
    if (*f->spec)
        add_formatted(t, at, d, f->spec);
    else
        add_scalar(t, at, d);
    return true;
}

static void find_lanes(point *p, int n)
{
    nb_shape all = {0};
    for (int i = 0; i < n; i++)
        for (int l = 0; l < p->c->in[i]->nlanes; l++) {
            nb_lane lane = nb_tensor_lane(p->c->in[i])[l];
            if (!lane.thin && nb_shape_find_lane(&all, lane.id) < 0)
                nb_shape_add_lane(&all, lane);
        }
    p->nlanes = all.nlanes;
    memcpy(p->lane, all.lane, sizeof p->lane);
}

static bool next(point *p)
{
    for (int l = p->nlanes - 1; l >= 0; l--) {
        if (++p->at[l] < nb_extent_get(p->lane[l].size)) return true;
        p->at[l] = 0;
    }
    return false;
}

static bool print_line(point *p, const char *format, int n)
{
    nb_text t = {0};
    bool ok = walk(format, n, add_value, p, &t) && nb_text_add(&t, "\n");
    if (ok && !t.failed) put(nb_text_get(&t));
    ok = ok && !t.failed;
    nb_text_free(&t);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    point p = {.c = c};
    int n = (int)c->attr[COUNT];
    bool ok = true;
    *to[0] = 1;
    if (nb_print_quiet || (c->out && c->out->flags & NB_SILENT)) return true;
    find_lanes(&p, n);
    for (int l = 0; l < p.nlanes; l++)
        if (nb_extent_is(p.lane[l].size, 0)) return true;
    do
        ok = print_line(&p, nb_arg_text(c, FORMAT), n);
    while (ok && next(&p));
    return ok;
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    (void)c, (void)k;
    *out = (nb_shape){0};
    *dtype = NB_BOOL;
    return true;
}

/* The call */

static bool is_scalar_or_plain(void *ctx, const field *f, nb_text *t)
{
    nb_tensor *const *x = ctx;
    (void)t;
    return !*f->spec || !nb_rank(x[f->tensor]) ||
           nb_fail(NB_EVALUE,
                   "print: {:%s} is for scalars, tensor %d has rank %d",
                   f->spec, f->tensor, nb_rank(x[f->tensor]));
}

static bool check(nb_call *c)
{
    nb_text t = {0};
    const char *format = nb_arg_text(c, FORMAT);
    int64_t n = nb_arg_int(c, COUNT);
    bool ok = format && n >= 0 && n <= c->nin;
    if (!ok)
        return nb_fail(NB_EVALUE, "print: %lld of %d inputs are printed",
                       (long long)n, c->nin);
    ok = walk(format, (int)n, is_scalar_or_plain, (void *)c->in, &t);
    nb_text_free(&t);
    return ok;
}

nb_op nb_op_print = {
    .name = "print",
    .doc = "Prints the first inputs, `count` of them; the others are what it "
           "comes after.",
    .params = "inputs:tensors, format:text, count:int",
    .kind = NB_CONSTANT,
    .nout = 1,
    .effect = true,
    .check = check,
    .result = result,
    .execute = execute,
};

/* Inputs, then what is pending; of no inputs at all, a number. */
static bool gather(int n, nb_tensor *const *x, nb_tensor ***in, int *nin)
{
    const nb_effects *e = nb_effects_pending();
    int pending = e ? e->n : 0;
    *in = nb_alloc((size_t)(n + pending + 1) * sizeof **in);
    if (!*in) return false;
    for (int i = 0; i < n; i++)
        (*in)[i] = x[i];
    for (int i = 0; i < pending; i++)
        (*in)[n + i] = e->pending[i];
    *nin = n + pending;
    return *nin || ((*in)[(*nin)++] = nb_scalar_int(0, NB_BOOL));
}

nb_status nb_debug_print(const char *format, int n, nb_tensor *const *x)
{
    nb_tensor **in = NULL, *y = NULL;
    nb_value v[] = {NB_V_TEXT(format), NB_V_INT(n)};
    int nin;
    if (nb_scope_open() != NB_OK) return NB_STATUS(false);
    bool ok = gather(n, x, &in, &nin) &&
              (y = nb_apply(&nb_op_print, nin, in, 2, v, NB_CALLER));
    if (ok && !nb_effects_pending())
        ok = nb_realize_now(1, &y);
    else if (ok)
        ok = nb_effects_are(y);
    nb_free(in);
    nb_scope_close(0, NULL);
    return NB_STATUS(ok);
}
