/* dl.c - dlopen and dlsym.  Their own locks make both safe in any thread. */
#include "base/dl.h"

#include <dlfcn.h>
#include <stddef.h>

void *nb_dl_open(const char *const *names)
{
    void *lib = NULL;
    for (; *names && !lib; names++)
        lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return lib;
}

void *nb_dl_symbol(void *lib, const char *name)
{
    return lib ? dlsym(lib, name) : NULL;
}
