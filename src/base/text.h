/* text.h - building and interning text.
 *
 * A nb_text grows; once an allocation fails it stays empty and `ok` is false,
 * so a writer checks once, at the end.  An interned text lives as long as the
 * process and equal texts have equal pointers. */
#ifndef NB_BASE_TEXT_H
#define NB_BASE_TEXT_H

#include "base/memory.h"

#include <stdarg.h>

typedef struct nb_text {
    char *data; /* NULL or 0-terminated */
    int n, room;
    bool failed;
} nb_text;

bool nb_text_add(nb_text *t, const char *format, ...) NB_PRINTF(2, 3);
bool nb_text_put(nb_text *t, const char *bytes, size_t n);
void nb_text_free(nb_text *t);
const char *nb_text_get(const nb_text *t); /* "" if nothing was written */

const char *nb_intern(const char *text, size_t n); /* NULL: out of memory */

uint64_t nb_hash(uint64_t seed, const void *data, size_t bytes);

#endif
