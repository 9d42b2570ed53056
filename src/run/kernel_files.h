/* kernel_files.h - the sources of a kernel: which files, and what is in them. */
#ifndef NB_RUN_KERNEL_FILES_H
#define NB_RUN_KERNEL_FILES_H

#include "base/text.h"
#include "nabla/custom.h"

typedef struct nb_sources {
    char **path; /* in the order they are compiled, or looked into */
    int n, room;
    uint64_t hash[2]; /* of them and of the local headers they include */
} nb_sources;

/* Finds those for a device, .c files for the CPU and .cu files for cards:
 * NB_ENOFILE for a path that does not exist, NB_EVALUE where there are none. */
bool nb_sources_find(nb_sources *s, const nb_kernel_source *k, int device);
void nb_sources_free(nb_sources *s);

/* Reads all of them, or one; only their hash is kept. */
bool nb_sources_read(nb_sources *s, const char *name, int n, char *const *path);

/* A file as a text; what begins the message if it cannot be read. */
bool nb_file_text(const char *path, const char *what, nb_text *to);

#endif
