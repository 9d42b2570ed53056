/* disk.h - objects kept in a folder from one process to the next.
 *
 * The folder is $NABLA_CACHE_DIR, else $XDG_CACHE_HOME/nabla, else
 * ~/.cache/nabla; it is made when first needed.  Any number of processes may
 * use it at once: an entry appears under its name complete, by renaming.  What
 * is damaged, or was put there by another user, is as good as absent.
 *
 * Trouble with the folder fails nothing: one message is kept, nothing more is
 * written, and work goes on without. */
#ifndef NB_BASE_DISK_H
#define NB_BASE_DISK_H

#include "base/memory.h"

/* The bytes of an object file, or of whatever code is kept as. */
typedef struct nb_object {
    void *data; /* from nb_alloc */
    size_t n;
    int version; /* of the compiler that made it */
} nb_object;
void nb_object_free(nb_object *o);

typedef struct nb_disk_key {
    uint64_t part[2];
} nb_disk_key;

/* Fills *o, or leaves it empty where there is no such entry; false only when
 * memory runs out. */
bool nb_disk_read(nb_disk_key key, nb_object *o);
void nb_disk_write(nb_disk_key key, const nb_object *o);

/* Removes entries, the least recently used first, until three quarters of
 * `most` bytes are left; nothing if there are no more than that.  Writing does
 * it now and then, with the limit NABLA_CACHE_MIB (1024; 0: no cache). */
void nb_disk_trim(int64_t most);

/* Another folder, NULL for the one of the environment; forgets trouble. */
bool nb_disk_folder_set(const char *path);
const char *nb_disk_trouble(void); /* "" if there was none */

#endif
