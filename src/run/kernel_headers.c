/* kernel_headers.c - where nabla/kernel.h is, which sources of kernels include.
 */
#define _GNU_SOURCE
#include "run/kernel_files.h"
#include "run/kernel_source.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Above the file that this code is in, in a build as in an installation. */
static bool find_headers(char folder[PATH_MAX])
{
    Dl_info info;
    char path[PATH_MAX], header[PATH_MAX + 32];
    if (!dladdr((void *)&lock, &info) || !realpath(info.dli_fname, path))
        return false;
    for (int up = 0; up < 5; up++) {
        char *slash = strrchr(path, '/');
        if (!slash || strlen(path) > PATH_MAX - 32) return false;
        *slash = '\0';
        snprintf(header, sizeof header, "%s/include/nabla/kernel.h", path);
        FILE *f = fopen(header, "rb");
        if (!f) continue;
        fclose(f);
        return snprintf(folder, PATH_MAX, "%s/include", path) < PATH_MAX;
    }
    return false;
}

const char *nb_kernel_headers(const char *who)
{
    static const char *known;
    char folder[PATH_MAX];
    pthread_mutex_lock(&lock);
    if (!known && find_headers(folder))
        known = nb_intern(folder, strlen(folder));
    const char *found = known;
    pthread_mutex_unlock(&lock);
    if (!found && !nb_failed())
        nb_fail(NB_ERUNTIME, "%s: nabla/kernel.h is not beside the library",
                who);
    return found;
}

bool nb_kernel_headers_add(const char *who, uint64_t hash[2])
{
    nb_text header = {0};
    char path[PATH_MAX + 32];
    const char *folder = nb_kernel_headers(who);
    if (!folder) return false;
    snprintf(path, sizeof path, "%s/nabla/kernel.h", folder);
    bool ok = nb_file_text(path, who, &header);
    for (int k = 0; ok && k < 2; k++)
        hash[k] = nb_hash(hash[k], nb_text_get(&header), (size_t)header.n);
    nb_text_free(&header);
    return ok;
}
