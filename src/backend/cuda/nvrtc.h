/* nvrtc.h - CUDA C as text in, code for a card out.
 *
 * NVRTC is a shared library that is opened at the first call here: libnvrtc of
 * CUDA 12 or 13, from where find.h looks.  The environment variable
 * NABLA_NVRTC names another file, or "none".  No card is needed.
 *
 * A text may ask for options of the compiler in its first line:
 *   // options: --fmad=false --maxrregcount=64
 * Headers of CUDA (cuda_fp16.h) are found if they lie beside the library.
 *
 * The code is for exactly that compute capability, for 9.0 with what only it
 * has (sm_90a).  A card newer than NVRTC gets what the latest that it knows of
 * the same generation has, or else PTX, which the driver compiles.  So does a
 * text that asks for --relocatable-device-code=true: it may call what only the
 * driver has. */
#ifndef NB_CUDA_NVRTC_H
#define NB_CUDA_NVRTC_H

#include "base/disk.h"

int nb_nvrtc_version(void); /* 13000 for 13.0; 0: not there */

/* Why not; NULL: it is there. */
const char *nb_nvrtc_trouble(void);

/* Any thread may call it; it fails with the log of the compiler. */
bool nb_nvrtc_compile(const char *text, int major, int minor, nb_object *out);

/* Of a file: its name is in the log, and it may include what lies beside it, in
 * another folder, and the headers of C that NVRTC has no need of. */
typedef struct nb_nvrtc_file {
    const char *path, *folder;
} nb_nvrtc_file;
bool nb_nvrtc_compile_file(const char *text, const nb_nvrtc_file *file,
                           int major, int minor, nb_object *out);

#endif
