/* archive.h - named arrays in files: .safetensors, .npz and .npy.
 *
 * An archive is a list of arrays and a list of notes.  Arrays are C-contiguous
 * (the last axis runs fastest) and little-endian; booleans are bytes of 0 and
 * 1.  The archive owns its names and notes.  It owns the data that it loaded,
 * in memory aligned to the element size; data that is added is lent and must
 * live until the archive is saved.
 *
 * Whatever bytes a file holds, loading gives the arrays or an error: NB_ENOFILE
 * if the file is missing, NB_ERUNTIME if it cannot be read, NB_EVALUE if it is
 * malformed, NB_ETYPE if it holds a dtype that is not among ours.  Saving is
 * atomic: a file of that name is replaced by a complete one or stays. */
#ifndef NB_IO_ARCHIVE_H
#define NB_IO_ARCHIVE_H

#include "nabla/dtype.h"

enum { NB_ARRAY_RANK = 16 };

typedef struct nb_array {
    char *name;
    nb_dtype dtype;
    int rank;
    int64_t size[NB_ARRAY_RANK];
    const void *data; /* may be NULL where bytes is 0 */
    size_t bytes;
} nb_array;

/* A line of the string map `__metadata__` of safetensors. */
typedef struct nb_note {
    char *key, *value;
} nb_note;

typedef struct nb_slab {
    void *data;
    size_t room;
} nb_slab;

typedef struct nb_archive { /* {0} is the empty archive */
    nb_array *array;
    int narrays, array_room;
    nb_note *note;
    int nnotes, note_room;
    nb_slab *slab; /* the data that was loaded */
    int nslabs, slab_room;
} nb_archive;

/* The format goes by the suffix of the path; another suffix is NB_EVALUE.  The
 * array of a .npy file is named "".  What *a held before is not looked at; on
 * failure *a is empty. */
bool nb_archive_load(nb_archive *a, const char *path);

/* Names are UTF-8 and differ.  A .npy file takes one array, whose name is not
 * kept; .npy and .npz take neither notes (NB_EVALUE) nor bfloat16
 * (NB_ETYPE). */
bool nb_archive_save(const nb_archive *a, const char *path);

/* Frees what the archive owns and leaves it empty. */
void nb_archive_free(nb_archive *a);

/* Adds an array (the name is copied, the data lent) or a note (copied). */
bool nb_archive_add(nb_archive *a, const char *name, nb_dtype dtype, int rank,
                    const int64_t *size, const void *data);
bool nb_archive_add_note(nb_archive *a, const char *key, const char *value);

/* The array or note of that name, NULL if there is none. */
const nb_array *nb_archive_find(const nb_archive *a, const char *name);
const char *nb_archive_find_note(const nb_archive *a, const char *key);

#endif
