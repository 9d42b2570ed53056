/* file.h - files as the formats see them.
 *
 * A source is a regular file of known size that is read at places.  A sink is
 * a file that appears whole or not at all: it is written under a temporary
 * name in the same folder and renamed when it is complete. */
#ifndef NB_IO_FILE_H
#define NB_IO_FILE_H

#include "base/error.h"

#include <stdio.h>

typedef struct nb_source {
    const char *path; /* lent */
    int fd;
    uint64_t size;
} nb_source;

bool nb_source_open(nb_source *s, const char *path);
void nb_source_close(nb_source *s);

/* The n bytes from `offset` on, which lie within the file. */
bool nb_source_read(const nb_source *s, uint64_t offset, void *to, size_t n);

typedef struct nb_sink {
    const char *path; /* lent */
    char *temporary;
    FILE *file;
    uint64_t written;
} nb_sink;

bool nb_sink_open(nb_sink *s, const char *path);
bool nb_sink_write(nb_sink *s, const void *data, size_t n);

/* Puts the file in its place if ok, else removes it; true if it is there. */
bool nb_sink_close(nb_sink *s, bool ok);

/* Where in a file something is wrong; part is NULL or a member, quoted. */
typedef struct nb_place {
    const char *path, *part;
} nb_place;
void *nb_fail_at(nb_place place, nb_status code, const char *format, ...)
    NB_PRINTF(3, 4);

#endif
