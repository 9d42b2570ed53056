/* llvm.h - LLVM IR as text in, the bytes of an object file out.
 *
 * LLVM is a shared library that is opened at the first call here; any version
 * from 16 to 19 will do.  The environment variable NABLA_LLVM names another
 * file, or "none".
 *
 * What the text has to say: `align` at each load and store, since the layout
 * of the target is set after reading; and `nounwind` at each function, or
 * tables are made that nothing reads. */
#ifndef NB_CPU_LLVM_H
#define NB_CPU_LLVM_H

#include "backend/cpu/code.h"

bool nb_llvm_there(void);
int nb_llvm_version(void); /* 16 to 19 or later, 0: not there */

/* Code for nb_cpu_target(), position independent.  Any thread may call it; it
 * fails with LLVM's message.  NABLA_CHECK in the environment has the module
 * verified first: a malformed one that is readable may do anything else. */
bool nb_llvm_compile(const char *ir, nb_object *out);

/* Passes to run before, from NABLA_PASSES: "early-cse,instcombine".  None by
 * default: "".  Opens nothing. */
const char *nb_llvm_passes(void);

#endif
