/* reader.c - words, names and numbers. */
#include "shard/layout/reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool nb_reader_wrong(nb_reader *r, const char *format, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    return nb_fail(NB_EVALUE, "%s \"%s\", position %d: %s", r->what, r->text,
                   (int)(r->at - r->text), why);
}

void nb_reader_blanks(nb_reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

/* A word of letters does not end within a longer one. */
bool nb_reader_takes(nb_reader *r, const char *word)
{
    size_t n = strlen(word);
    nb_reader_blanks(r);
    if (strncmp(r->at, word, n) != 0) return false;
    if (isalpha((unsigned char)word[0]) &&
        (isalnum((unsigned char)r->at[n]) || r->at[n] == '_'))
        return false;
    r->at += n;
    return true;
}

bool nb_reader_needs(nb_reader *r, const char *word)
{
    if (nb_reader_takes(r, word)) return true;
    return nb_reader_wrong(r, "expected %s, found \"%.20s\"", word, r->at);
}

bool nb_reader_ends(nb_reader *r)
{
    nb_reader_blanks(r);
    return !*r->at || nb_reader_wrong(r, "\"%.20s\" is left over", r->at);
}

bool nb_reader_name(nb_reader *r, const char **name, int *n)
{
    nb_reader_blanks(r);
    const char *from = r->at, *at = from;
    if (!isalpha((unsigned char)*at) && *at != '_')
        return nb_reader_wrong(r, "expected a name, found \"%.20s\"", from);
    while (isalnum((unsigned char)*at) || *at == '_')
        at++;
    *name = from;
    *n = (int)(at - from);
    r->at = at;
    return true;
}

bool nb_reader_number(nb_reader *r, int most, int *number)
{
    int64_t n = 0;
    nb_reader_blanks(r);
    const char *from = r->at;
    if (!isdigit((unsigned char)*from))
        return nb_reader_wrong(r, "expected a number, found \"%.20s\"", from);
    while (isdigit((unsigned char)*r->at) && n <= most)
        n = 10 * n + (*r->at++ - '0');
    *number = (int)n;
    if (n <= most) return true;
    r->at = from;
    return nb_reader_wrong(r, "\"%.20s\" is more than %d", from, most);
}
