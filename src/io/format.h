/* format.h - what the formats and the archive share, out of users' sight. */
#ifndef NB_IO_FORMAT_H
#define NB_IO_FORMAT_H

#include "base/text.h"
#include "io/archive.h"
#include "io/file.h"

/* Fills an empty archive; what was put there before a failure is freed by the
 * caller.  Names of the result may repeat: the caller checks. */
bool nb_safetensors_load(nb_archive *a, const nb_source *s);
bool nb_npy_load(nb_archive *a, const nb_source *s);
bool nb_npz_load(nb_archive *a, const nb_source *s);

/* The archive has been checked. */
bool nb_safetensors_save(const nb_archive *a, const char *path);
bool nb_npy_save(const nb_archive *a, const char *path);
bool nb_npz_save(const nb_archive *a, const char *path);

/* Sets x->bytes; false, without an error, if an extent is negative or the
 * bytes, empty axes left aside, do not fit an address. */
bool nb_array_measure(nb_array *x);

bool nb_slab_new(nb_slab *s, size_t bytes); /* 64-byte aligned */
void nb_slab_free(nb_slab *s);

/* These take over what they are given and free it if they fail. */
bool nb_archive_take(nb_archive *a, nb_array x);
bool nb_archive_take_note(nb_archive *a, char *key, char *value);
bool nb_archive_take_slab(nb_archive *a, nb_slab s);

/* The head of a .npy file or member. */
typedef struct nb_npy {
    nb_array x;   /* name and data are NULL */
    size_t start; /* of the data */
    bool swapped; /* big-endian */
    bool columns; /* the first axis runs fastest */
} nb_npy;
enum { NB_NPY_HEAD = 12 + 65536 }; /* no head is longer */

/* Reads the head from the first n bytes of `total`; n is total or at least
 * NB_NPY_HEAD.  Head and data together are `total` bytes. */
bool nb_npy_parse(nb_npy *h, const uint8_t *bytes, size_t n, uint64_t total,
                  nb_place place);

/* Adds the array whose data, as in the file, lies in the slab at `at`.  Takes
 * over the name and the slab. */
bool nb_npy_take(nb_archive *a, const nb_npy *h, char *name, nb_slab s,
                 size_t at);

/* Appends the head for x; NB_ETYPE if its dtype has no name there. */
bool nb_npy_print(nb_text *t, const nb_array *x, const char *path);

#endif
