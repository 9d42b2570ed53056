/* json.h - the part of JSON that a safetensors header is made of.
 *
 * A reader that is pulled: the caller says what must come next and anything
 * else is an error, so nothing nests deeper than the caller does and memory is
 * taken for texts alone.  Texts hold no U+0000, since C texts cannot. */
#ifndef NB_IO_JSON_H
#define NB_IO_JSON_H

#include "base/text.h"

/* The text from `start` to `end` is UTF-8. */
typedef struct nb_json {
    const char *path; /* for messages */
    const char *start, *at, *end;
} nb_json;

/* Takes the character c behind white space, which must come. */
bool nb_json_take(nb_json *j, char c);

/* Takes what stands between the items of an object or array: 1 if an item
 * follows, 0 if `close` came, -1 on error.  *first starts out true. */
int nb_json_next(nb_json *j, char close, bool *first);

char *nb_json_text(nb_json *j);             /* allocated */
bool nb_json_count(nb_json *j, int64_t *n); /* a whole number from 0 on */
bool nb_json_end(nb_json *j);               /* nothing but white space */

/* Appends the text in quotes. */
bool nb_json_print(nb_text *t, const char *text);

#endif
