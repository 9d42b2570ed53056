/* elf.h - an object file, laid out in memory and linked. */
#ifndef NB_CPU_ELF_H
#define NB_CPU_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nb_function {
    const char *name;
    void *at;
} nb_function;

typedef struct nb_image {
    uint8_t *base; /* the mapping */
    size_t size;
    int n;
    nb_function *functions; /* the global ones, by name */
    char *names;
} nb_image;

/* Relocatable ELF for x86-64.  Every offset in it is checked: bytes that are
 * no such object give an error, never a crash (but code is not looked at).
 * Functions from outside are those of nb_extern_find. */
bool nb_elf_load(const void *object, size_t n, nb_image *m);
void nb_image_free(nb_image *m);

int nb_function_compare(const void *a, const void *b); /* by name */

#endif
