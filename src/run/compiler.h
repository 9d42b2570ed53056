/* compiler.h - the C compiler of the machine, $CC or cc. */
#ifndef NB_RUN_COMPILER_H
#define NB_RUN_COMPILER_H

#include "base/text.h"

/* What it says of its version; lives on.  NULL if it cannot be run. */
const char *nb_compiler_version(const char *who);

/* Flags that everything is compiled with. */
extern const char nb_compiler_flags[];

/* Compiles sources into a shared library, whose bytes are put into `to`; a
 * folder to look for headers in.  NB_ERUNTIME with what the compiler says. */
bool nb_compiler_run(const char *who, int n, char *const *path,
                     const char *headers, nb_text *to);

/* Opens a shared library that is there as bytes; it stays open. */
void *nb_library_open(const char *who, const void *bytes, size_t n);

#endif
