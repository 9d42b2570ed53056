/* find.h - NVIDIA's libraries, wherever they were installed.
 *
 * A name is looked for as the system does, which also finds what the process
 * has already loaded under that name; then in the folders of
 *   $NABLA_CUDA_PATH, a list of them separated by colons,
 *   $CUDA_HOME and $CUDA_PATH, in lib64 and lib,
 *   NVIDIA's Python packages, site-packages/nvidia/NAME/lib, beside the
 *     packages that have libraries loaded here, and in $VIRTUAL_ENV,
 *   /usr/local/cuda, /usr/local/cuda-VERSION and /opt/cuda. */
#ifndef NB_CUDA_FIND_H
#define NB_CUDA_FIND_H

#include <stdbool.h>

/* The first of the NULL-terminated names that can be opened, each looked for
 * everywhere before the next; NULL, without an error, if none can. */
void *nb_cuda_library(const char *const *names);

/* The n functions named, of such a library or of the file that the environment
 * variable `setting` names, one after another into `to`; false, without an
 * error, if it is "none", or one is missing. */
bool nb_cuda_functions(const char *setting, const char *const *files, int n,
                       const char *const *names, void *to);

#endif
