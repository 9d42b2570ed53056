/* kernel_files.c - finding sources, and a key for what they say.
 *
 * Of what a file includes by "name" all that lies beside it is read too, and
 * what that includes; conditions are not looked at, so a header too many may be
 * in the key, but none too few.  Names of files are not: a source that moves is
 * the same. */
#include "run/kernel_files.h"

#include "nabla/device.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32, MAX_FILES = 4096 };

bool nb_file_text(const char *path, const char *what, nb_text *to)
{
    char part[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f)
        return nb_fail(errno == ENOENT ? NB_ENOFILE : NB_ERUNTIME,
                       "%s: cannot read %s: %s", what, path, strerror(errno));
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        if (!nb_text_put(to, part, n)) break;
    bool ok = !ferror(f) && !to->failed;
    if (ferror(f)) nb_fail(NB_ERUNTIME, "%s: cannot read %s", what, path);
    fclose(f);
    return ok;
}

/* What has been read already: a header may include itself. */
typedef struct reading {
    nb_sources *s;
    const char *name;
    char **seen;
    int n, room;
} reading;

static bool add_path(char ***list, int *n, int *room, const char *path)
{
    if (!nb_grow(list, room, *n + 1, sizeof **list)) return false;
    (*list)[*n] = nb_copy_text(path);
    return (*list)[*n] && ++*n;
}

static bool is_seen(const reading *r, const char *path)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->seen[i], path)) return true;
    return false;
}

static bool exists(const char *path, bool *folder)
{
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *folder = S_ISDIR(st.st_mode);
    return true;
}

static bool read_source(reading *r, const char *path, int depth);

/* The name that a line includes, beside `path`; false: none. */
static bool included(const char *line, const char *path, char to[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    while (*line == ' ' || *line == '\t')
        line++;
    if (*line++ != '#') return false;
    while (*line == ' ' || *line == '\t')
        line++;
    if (strncmp(line, "include", 7) != 0) return false;
    for (line += 7; *line == ' ' || *line == '\t';)
        line++;
    size_t n = *line == '"' ? strcspn(line + 1, "\"\n") : 0;
    if (!n || line[n + 1] != '"') return false;
    int all = snprintf(to, PATH_MAX, "%.*s%.*s", line[1] == '/' ? 0 : folder,
                       path, (int)n, line + 1);
    return all < PATH_MAX;
}

/* Where the next line begins, NULL behind the last. */
static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : NULL;
}

static bool read_includes(reading *r, const char *text, const char *path,
                          int depth)
{
    char inner[PATH_MAX];
    bool folder;
    for (const char *line = text; line; line = next_line(line))
        if (included(line, path, inner) && exists(inner, &folder) && !folder &&
            !is_seen(r, inner) && !read_source(r, inner, depth + 1))
            return false;
    return true;
}

static bool read_source(reading *r, const char *path, int depth)
{
    nb_text t = {0};
    if (depth > MAX_DEPTH || r->n >= MAX_FILES)
        return nb_fail(NB_EVALUE, "%s: too many files, at %s", r->name, path);
    bool ok = add_path(&r->seen, &r->n, &r->room, path) &&
              nb_file_text(path, r->name, &t);
    for (int k = 0; ok && k < 2; k++)
        r->s->hash[k] = nb_hash(r->s->hash[k] + (uint64_t)depth,
                                nb_text_get(&t), (size_t)t.n);
    ok = ok && read_includes(r, nb_text_get(&t), path, depth);
    nb_text_free(&t);
    return ok;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool list_folder(nb_sources *s, const char *name, const char *path,
                        const char *suffix)
{
    char file[PATH_MAX];
    int before = s->n;
    bool ok = true;
    DIR *folder = opendir(path);
    if (!folder)
        return nb_fail(NB_ERUNTIME, "%s: cannot list %s: %s", name, path,
                       strerror(errno));
    for (struct dirent *d; ok && (d = readdir(folder));) {
        if (!ends_in(d->d_name, suffix) || d->d_name[0] == '.') continue;
        ok = snprintf(file, sizeof file, "%s/%s", path, d->d_name) < PATH_MAX &&
             add_path(&s->path, &s->n, &s->room, file);
    }
    closedir(folder);
    if (s->n > before)
        qsort(s->path + before, (size_t)(s->n - before), sizeof *s->path,
              by_name);
    return ok;
}

static bool add(nb_sources *s, const char *name, const char *path,
                const char *suffix)
{
    bool folder;
    if (!path || !*path)
        return nb_fail(NB_EVALUE, "%s: a path that is empty", name);
    if (!exists(path, &folder))
        return nb_fail(NB_ENOFILE, "%s: no such file or folder: %s", name,
                       path);
    if (folder) return list_folder(s, name, path, suffix);
    if (!ends_in(path, ".c") && !ends_in(path, ".cu"))
        return nb_fail(NB_EVALUE, "%s: %s is no .c or .cu file", name, path);
    return !ends_in(path, suffix) || /* for another device */
           add_path(&s->path, &s->n, &s->room, path);
}

bool nb_sources_find(nb_sources *s, const nb_kernel_source *k, int device)
{
    const char *suffix = device ? ".cu" : ".c";
    bool ok = true;
    *s = (nb_sources){0};
    if (k->npaths < 1) return nb_fail(NB_EVALUE, "%s: no path", k->name);
    for (int i = 0; ok && i < k->npaths; i++)
        ok = add(s, k->name, k->path[i], suffix);
    if (!ok || s->n) return ok;
    return nb_fail(
        NB_EVALUE, "%s: there is no function for %s: no %s file in %s", k->name,
        device ? nb_device_name(device) : "the CPU", suffix, k->path[0]);
}

bool nb_sources_read(nb_sources *s, const char *name, int n, char *const *path)
{
    reading r = {.s = s, .name = name};
    bool ok = true;
    s->hash[0] = 0x51ed270b9f652295u;
    s->hash[1] = 0x2127599bf4325c37u;
    for (int i = 0; ok && i < n; i++)
        ok = read_source(&r, path[i], 0);
    for (int i = 0; i < r.n; i++)
        nb_free(r.seen[i]);
    nb_free(r.seen);
    return ok;
}

void nb_sources_free(nb_sources *s)
{
    for (int i = 0; i < s->n; i++)
        nb_free(s->path[i]);
    nb_free(s->path);
}
