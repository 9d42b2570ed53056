/* json.c - reading and writing of JSON texts, numbers and punctuation. */
#include "io/json.h"

#include "io/bytes.h"
#include "io/file.h"

#include <string.h>

static void *bad(const nb_json *j, const char *wanted)
{
    size_t left = (size_t)(j->end - j->at), n = left < 12 ? left : 12;
    const char *found = n ? NB_QUOTE(j->at, n) : "the end";
    return nb_fail_at((nb_place){j->path, NULL}, NB_EVALUE,
                      "header: found %s at byte %td where JSON needs %s", found,
                      j->at - j->start, wanted);
}

static void blank(nb_json *j)
{
    while (j->at < j->end && strchr(" \t\n\r", *j->at) && *j->at)
        j->at++;
}

static bool has(nb_json *j, char c)
{
    blank(j);
    return j->at < j->end && *j->at == c;
}

bool nb_json_take(nb_json *j, char c)
{
    char wanted[] = {'\'', c, '\'', '\0'};
    if (!has(j, c)) return bad(j, wanted);
    j->at++;
    return true;
}

int nb_json_next(nb_json *j, char close, bool *first)
{
    bool opening = *first;
    *first = false;
    if (has(j, close)) {
        j->at++;
        return 0;
    }
    if (opening) return 1;
    if (!has(j, ',')) {
        bad(j, close == '}' ? "',' or '}'" : "',' or ']'");
        return -1;
    }
    j->at++;
    return 1;
}

/* The value of the four hexadecimal digits at j->at, -1 if they are none. */
static int hex(nb_json *j)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    int value = 0;
    if (j->end - j->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char *d = memchr(digits, j->at[i], sizeof digits - 1);
        if (!d) return -1;
        value = value << 4 | (int)((d - digits) & 15);
    }
    j->at += 4;
    return value;
}

/* The code point behind \u, two escapes if it lies beyond FFFF. */
static int code_point(nb_json *j)
{
    int high = hex(j);
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high > 0xdbff || j->end - j->at < 2 || memcmp(j->at, "\\u", 2) != 0)
        return -1;
    j->at += 2;
    int low = hex(j);
    if (low < 0xdc00 || low > 0xdfff) return -1;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* At most three bytes for the six of an escape, four for twelve. */
static char *put_utf8(char *to, int c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    int lead = tail == 1 ? 0xc0 : tail == 2 ? 0xe0 : 0xf0;
    *to++ = (char)(lead | c >> 6 * tail);
    while (tail-- > 0)
        *to++ = (char)(0x80 | (c >> 6 * tail & 0x3f));
    return to;
}

/* What stands behind a backslash; NULL on error. */
static char *escape(nb_json *j, char *to)
{
    static const char name[] = "\"\\/bfnrt", value[] = "\"\\/\b\f\n\r\t";
    char c = *j->at;
    const char *known = memchr(name, c, sizeof name - 1);
    if (known) {
        j->at++;
        *to++ = value[known - name];
        return to;
    }
    if (c != 'u') return bad(j, "one of \"\\/bfnrtu behind a backslash");
    j->at++;
    int point = code_point(j);
    if (point < 0) return bad(j, "hexadecimal digits, surrogates in pairs");
    if (point == 0) return bad(j, "a text without U+0000");
    return put_utf8(to, point);
}

/* The quote that ends the text at j->at; NULL if there is none. */
static const char *closing(nb_json *j)
{
    for (const char *p = j->at; p < j->end; p++) {
        if (*p == '"') return p;
        if (*p == '\\') p++;
    }
    return bad(j, "a '\"' at the end of a text");
}

static bool decode(nb_json *j, char *to, const char *close)
{
    while (j->at < close) {
        uint8_t c = (uint8_t)*j->at;
        if (c < ' ') return bad(j, "control characters written as escapes");
        j->at++;
        if (c != '\\')
            *to++ = (char)c;
        else if (!(to = escape(j, to)))
            return false;
    }
    *to = '\0';
    return true;
}

char *nb_json_text(nb_json *j)
{
    if (!has(j, '"')) return bad(j, "a text in quotes");
    j->at++;
    const char *close = closing(j);
    char *text = close ? nb_alloc((size_t)(close - j->at) + 1) : NULL;
    if (!text) return NULL;
    if (!decode(j, text, close)) {
        nb_free(text);
        return NULL;
    }
    j->at = close + 1;
    return text;
}

static bool digit(const nb_json *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

bool nb_json_count(nb_json *j, int64_t *n)
{
    blank(j);
    const char *start = j->at;
    if (!digit(j)) return bad(j, "a whole number from 0 on");
    for (*n = 0; digit(j); j->at++)
        if (__builtin_mul_overflow(*n, 10, n) ||
            __builtin_add_overflow(*n, *j->at - '0', n)) {
            j->at = start;
            return bad(j, "a number below 2^63");
        }
    if (*start != '0' || j->at == start + 1) return true;
    j->at = start;
    return bad(j, "a number without leading zeros");
}

bool nb_json_end(nb_json *j)
{
    blank(j);
    return j->at == j->end || bad(j, "the end");
}

bool nb_json_print(nb_text *t, const char *text)
{
    nb_text_put(t, "\"", 1);
    while (*text) {
        size_t plain = 0;
        while ((uint8_t)text[plain] >= ' ' && !strchr("\"\\", text[plain]))
            plain++;
        nb_text_put(t, text, plain);
        text += plain;
        static const char name[] = "\"\\bfnrt", value[] = "\"\\\b\f\n\r\t";
        const char *known = *text ? strchr(value, *text) : NULL;
        if (known)
            nb_text_add(t, "\\%c", name[known - value]);
        else if (*text)
            nb_text_add(t, "\\u%04x", (uint8_t)*text);
        text += *text != '\0';
    }
    return nb_text_put(t, "\"", 1);
}
