/* nabla/io.h - tensors in files.
 *
 * The suffix of the path names the format.  .safetensors and .npz hold tensors
 * by name, .npy one tensor without a name.  .safetensors takes all dtypes and
 * has notes, texts by name; the others take neither notes nor bfloat16.
 *
 * Whatever a file holds, loading gives its tensors or an error: NB_ENOFILE if
 * it is missing, NB_ERUNTIME if it cannot be read, NB_EVALUE if it is
 * malformed, NB_ETYPE if it holds a dtype that is not among ours.  Saving
 * replaces a file by a complete one or leaves it as it was.
 *
 *     nb_file *f;
 *     if (nb_load("model.safetensors", &f) == NB_OK) {
 *         w = nb_keep(nb_file_get(f, "layers.0.weight"));
 *         nb_file_free(f);
 *     }
 */
#ifndef NABLA_IO_H
#define NABLA_IO_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes n tensors in one go and writes them under their names, which are
 * UTF-8 and differ; with them nnotes notes. */
NB_API nb_status nb_save(const char *path, int n, const char *const *names,
                         nb_tensor *const *tensors, int nnotes,
                         const char *const *keys, const char *const *values);

/* What a file held; yours, nb_file_free.  Its tensors look into the memory
 * that the file was read into, which goes with the last of them. */
typedef struct nb_file nb_file;
NB_API nb_status nb_load(const char *path, nb_file **out);
NB_API void nb_file_free(nb_file *f);

/* How many tensors it has; their names, "" in a .npy file; and the tensors,
 * lent.  NULL past the last. */
NB_API int nb_file_tensors(const nb_file *f);
NB_API const char *nb_file_name(const nb_file *f, int i);
NB_API nb_tensor *nb_file_tensor(nb_file *f, int i);

/* The tensor of that name, lent; NB_EKEY if there is none. */
NB_API nb_tensor *nb_file_get(nb_file *f, const char *name);

/* How many notes it has; their names and texts.  NULL past the last. */
NB_API int nb_file_notes(const nb_file *f);
NB_API const char *nb_file_note_key(const nb_file *f, int i);
NB_API const char *nb_file_note(const nb_file *f, int i);

#ifdef __cplusplus
}
#endif
#endif
