/* format.c - the text of an array, by NumPy's rules.
 *
 * Three walks over the elements that are shown: the first finds whether an
 * exponent is needed, the second how wide the widest number is on either side
 * of the point, the third writes.  A number shows the fewest digits that tell
 * it from its neighbours in its own dtype, but at most four after the point;
 * cut off there, it is the exact value rounded, ties to even.
 *
 * Columns align: scientific numbers all show as many digits as the longest
 * needs, others are filled with spaces. */
#include "core/format.h"

#include "base/half.h"
#include "core/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 4, EDGE = 3, WORD = 64 };

typedef struct page {
    nb_text *text;
    nb_dtype dtype;
    int rank;
    const int64_t *size, *stride;
    const char *indent;

    double largest; /* finite magnitude that is shown */
    bool scientific;
    bool fixed;        /* all show `after` digits: scientific, and measured */
    int before, after; /* most characters on either side of the point */
    int exponent;      /* most digits in an exponent */
    int width;         /* of every element */
} page;

typedef void visit(page *p, const char *at);

static int max(int a, int b)
{
    return a > b ? a : b;
}

/* NumPy summarises once there are more than six elements in all; only an axis
 * of more than six can then be cut. */
static bool is_long(const page *p, int axis)
{
    return p->size[axis] > 2 * EDGE;
}

/* The index shown after i. */
static int64_t next(const page *p, int axis, int64_t i)
{
    return is_long(p, axis) && i == EDGE - 1 ? p->size[axis] - EDGE : i + 1;
}

static const char *item(const page *p, int axis, const char *at, int64_t i)
{
    return at + i * p->stride[axis] * (int64_t)nb_dtype_size(p->dtype);
}

static void each(page *p, int axis, const char *at, visit *f)
{
    if (axis == p->rank) {
        f(p, at);
        return;
    }
    for (int64_t i = 0; i < p->size[axis]; i = next(p, axis, i))
        each(p, axis + 1, item(p, axis, at, i), f);
}

/* Does the text stand for x in dtype d?  bfloat16 counts as float32. */
static bool stands_for(const char *text, nb_dtype d, double x)
{
    if (d == NB_F64) return strtod(text, NULL) == x;
    if (d == NB_F16)
        return (double)nb_f16_to_f32(nb_f64_to_f16(strtod(text, NULL))) == x;
    return (double)strtof(text, NULL) == x;
}

/* Whatever the locale puts between the digits becomes a point. */
static void set_point(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (strchr("+-0123456789e", *from))
            *to++ = *from;
        else if (to[-1] != '.')
            *to++ = '.';
    }
    *to = '\0';
}

/* Removes the zeros that a number cut off at the last digit ends in. */
static void trim(char *text)
{
    char *end = text + strcspn(text, "e"), *last = end;
    while (last[-1] == '0')
        last--;
    memmove(last, end, strlen(end) + 1);
}

/* Writes `near` and tells whether that reads back as x. */
static bool try(const page *p, char word[WORD], int digits, double near,
                double x)
{
    snprintf(word, WORD, p->scientific ? "%#.*e" : "%#.*f", digits, near);
    return stands_for(word, p->dtype, x);
}

/* A power of two has its neighbour below at half the distance of the one
 * above.  Where x is a tie, the digit above may thus stand for it although the
 * even one below does not: 2^-6 in float16 is 1.563e-02. */
static void real_word(const page *p, double x, char word[WORD])
{
    double up = nextafter(x, x < 0 ? -INFINITY : INFINITY);
    int most = p->fixed ? p->after : DIGITS;
    bool found = false;
    for (int n = p->fixed ? most : 0; n <= most && !found; n++)
        found = try(p, word, n, x, x) || try(p, word, n, up, x);
    if (!found) try(p, word, most, x, x);
    set_point(word);
    if (!p->fixed) trim(word);
}

/* The element by itself, not yet aligned. */
static void word_at(const page *p, const char *at, char word[WORD])
{
    if (nb_dtype_is_float(p->dtype)) {
        double x = nb_read_f64(at, p->dtype);
        if (isfinite(x))
            real_word(p, x, word);
        else
            strcpy(word, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
    } else if (p->dtype == NB_BOOL)
        strcpy(word, nb_read_i64(at, NB_BOOL) ? "True" : "False");
    else if (nb_dtype_is_unsigned(p->dtype))
        snprintf(word, WORD, "%llu",
                 (unsigned long long)nb_read_i64(at, p->dtype));
    else
        snprintf(word, WORD, "%lld", (long long)nb_read_i64(at, p->dtype));
}

static void measure_size(page *p, const char *at)
{
    double x = fabs(nb_read_f64(at, p->dtype));
    if (isfinite(x) && x > p->largest) p->largest = x;
}

static void measure_width(page *p, const char *at)
{
    char word[WORD];
    word_at(p, at, word);
    int n = (int)strlen(word), before = (int)strcspn(word, ".");
    if (before == n) {
        p->width = max(p->width, n);
        return;
    }
    int e = (int)strcspn(word, "e");
    p->before = max(p->before, before);
    p->after = max(p->after, e - before - 1);
    p->exponent = max(p->exponent, n - e - 2);
}

/* Brings a number to the common form, but for spaces in front. */
static void fill(const page *p, char word[WORD])
{
    char *point = strchr(word, '.'), *end = word + strcspn(word, "e");
    if (!point) return;
    if (p->scientific)
        snprintf(end, 16, "e%c%0*d", end[1], p->exponent, atoi(end + 2));
    else
        snprintf(end, 16, "%*s", (int)(point + 1 + p->after - end), "");
}

static void separate(page *p, int axis)
{
    int breaks = p->rank - 1 - axis;
    for (int i = 0; i < breaks; i++)
        nb_text_put(p->text, "\n", 1);
    if (breaks) nb_text_add(p->text, "%s%*s", p->indent, axis, "");
    nb_text_put(p->text, " ", 1);
}

static void write_from(page *p, int axis, const char *at)
{
    if (axis == p->rank) {
        char word[WORD];
        word_at(p, at, word);
        fill(p, word);
        nb_text_add(p->text, "%*s", p->width, word);
        return;
    }
    int64_t n = p->size[axis];
    nb_text_put(p->text, "[", 1);
    for (int64_t i = 0; i < n; i = next(p, axis, i)) {
        if (i > 0) separate(p, axis);
        if (is_long(p, axis) && i == n - EDGE) {
            nb_text_put(p->text, "...", 3);
            separate(p, axis);
        }
        write_from(p, axis + 1, item(p, axis, at, i));
    }
    nb_text_put(p->text, "]", 1);
}

/* Where exponents begin: at the digits that the dtype is sure of, at most 8.
 * bfloat16 prints as the float32 that it is. */
static double limit(nb_dtype d)
{
    return d == NB_F64 ? 1e8 : d == NB_F16 ? 1e3 : 1e6;
}

static void measure(page *p, const char *data)
{
    if (p->dtype == NB_BOOL) {
        p->width = p->rank > 0 ? 5 : 0;
        return;
    }
    if (nb_dtype_is_float(p->dtype)) each(p, 0, data, measure_size);
    p->scientific = p->largest >= limit(p->dtype);
    each(p, 0, data, measure_width);
    p->fixed = p->scientific;
    int tail = p->scientific ? 2 + p->exponent : 0;
    p->width = max(p->width, p->before + 1 + p->after + tail);
}

bool nb_format(nb_text *t, nb_dtype d, int rank, const int64_t *size,
               const int64_t *stride, const void *data, const char *indent)
{
    page p = {.text = t, .dtype = d, .rank = rank};
    p.size = size;
    p.stride = stride;
    p.indent = indent ? indent : "";
    for (int axis = 0; axis < rank; axis++)
        if (size[axis] == 0) return nb_text_put(t, "[]", 2);
    measure(&p, data);
    write_from(&p, 0, data);
    return !t->failed;
}
