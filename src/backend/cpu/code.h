/* code.h - machine code in memory: loads an object file as LLVM writes it.
 *
 * The code is unmapped with the last reference; whoever runs it keeps one. */
#ifndef NB_CPU_CODE_H
#define NB_CPU_CODE_H

#include "base/disk.h"

typedef struct nb_code nb_code;

/* From the object as LLVM writes it, linked to what nb_extern_find knows; an
 * error, never a crash, where it is none. */
nb_code *nb_code_load(const void *object, size_t n);

/* The function of that name, NULL if there is none. */
void *nb_code_find(const nb_code *c, const char *name);

nb_code *nb_code_keep(nb_code *c);
void nb_code_drop(nb_code *c); /* NULL is fine */

/* For a table of code that keeps no references.  Its lock is held around the
 * first, which refuses code whose last reference has gone; of that, `gone` is
 * told before anything is freed. */
bool nb_code_keep_if_live(nb_code *c);
void nb_code_watch(nb_code *c, void (*gone)(void *), void *arg);

int64_t nb_code_bytes(void); /* mapped at present */

#endif
