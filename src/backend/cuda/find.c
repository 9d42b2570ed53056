/* find.c - looking for a library in folders that may not exist. */
#define _GNU_SOURCE
#include "backend/cuda/find.h"

#include "base/dl.h"

#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SITES = 4 };

/* Folders of Python packages, from the paths of what is loaded. */
typedef struct sites {
    int n;
    char path[SITES][PATH_MAX];
} sites;

/* In all folders that match, the last in the order of names first: it is the
 * latest version. */
static void *open_in(const char *folders, const char *name)
{
    char pattern[PATH_MAX];
    glob_t found;
    void *lib = NULL;
    int n = snprintf(pattern, sizeof pattern, "%s/%s", folders, name);
    if (n >= (int)sizeof pattern || glob(pattern, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = found.gl_pathc; i-- > 0 && !lib;)
        lib = nb_dl_open((const char *[]){found.gl_pathv[i], NULL});
    globfree(&found);
    return lib;
}

/* In folder/below, NULL where the folder is not set. */
static void *open_below(const char *folder, const char *below, const char *name)
{
    char path[PATH_MAX];
    if (!folder || !*folder) return NULL;
    int n = snprintf(path, sizeof path, "%s/%s", folder, below);
    return n < (int)sizeof path ? open_in(path, name) : NULL;
}

static void *open_in_list(const char *list, const char *name)
{
    void *lib = NULL;
    while (list && *list && !lib) {
        char folder[PATH_MAX];
        int n = (int)strcspn(list, ":");
        snprintf(folder, sizeof folder, "%.*s", n, list);
        lib = open_in(folder, name);
        list += n + (list[n] == ':');
    }
    return lib;
}

static int add_site(struct dl_phdr_info *info, size_t size, void *arg)
{
    sites *s = arg;
    const char *path = info->dlpi_name;
    (void)size;
    const char *end = path ? strstr(path, "-packages/") : NULL;
    if (!end) return 0;
    int n = (int)(end - path) + (int)strlen("-packages");
    for (int i = 0; i < s->n; i++)
        if (!strncmp(s->path[i], path, (size_t)n) && !s->path[i][n]) return 0;
    if (s->n < SITES && n < PATH_MAX)
        snprintf(s->path[s->n++], PATH_MAX, "%.*s", n, path);
    return 0;
}

static void *open_python(const char *name)
{
    sites s = {0};
    void *lib = NULL;
    dl_iterate_phdr(add_site, &s);
    for (int i = 0; i < s.n && !lib; i++)
        lib = open_below(s.path[i], "nvidia/*/lib", name);
    return lib ? lib
               : open_below(getenv("VIRTUAL_ENV"),
                            "lib/python3*/site-packages/nvidia/*/lib", name);
}

static void *open_named(const char *name)
{
    static const char *const toolkits[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const usual[] = {
        "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/opt/cuda/lib64"};
    void *lib = nb_dl_open((const char *[]){name, NULL});
    if (!lib) lib = open_in_list(getenv("NABLA_CUDA_PATH"), name);
    for (int i = 0; i < 2 && !lib; i++) {
        const char *toolkit = getenv(toolkits[i]);
        lib = open_below(toolkit, "lib64", name);
        if (!lib) lib = open_below(toolkit, "lib", name);
    }
    if (!lib) lib = open_python(name);
    for (int i = 0; i < 3 && !lib; i++)
        lib = open_in(usual[i], name);
    return lib;
}

void *nb_cuda_library(const char *const *names)
{
    void *lib = NULL;
    for (; *names && !lib; names++)
        lib = open_named(*names);
    return lib;
}

bool nb_cuda_functions(const char *setting, const char *const *files, int n,
                       const char *const *names, void *to)
{
    const char *wanted = getenv(setting);
    bool given = wanted && *wanted;
    if (given && !strcmp(wanted, "none")) return false;
    void *lib = given ? nb_dl_open((const char *[]){wanted, NULL})
                      : nb_cuda_library(files);
    for (int i = 0; lib && i < n; i++) {
        void *f = nb_dl_symbol(lib, names[i]);
        if (!f) return false;
        memcpy((char *)to + (size_t)i * sizeof f, &f, sizeof f);
    }
    return lib;
}
