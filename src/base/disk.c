/* disk.c - the files of the cache: a header, then the object.
 *
 * A file's time of change is when it was last used, to within an hour: a hit
 * sets it.  Whether a write looks at the size of the folder is decided by the
 * key, for one in 256, so that many short processes do it as often as one
 * long. */
#define _GNU_SOURCE
#include "base/disk.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT = 1, HOUR = 3600, RARELY = 256, MIB = 1 << 20 };
static const size_t LARGEST = (size_t)1 << 30;
static const char SUFFIX[] = ".code", TEMPORARY[] = ".tmp-";

typedef struct header {
    char magic[8];
    uint32_t format, version; /* of the file, of the compiler */
    nb_disk_key key;
    uint64_t size; /* of the object */
    uint64_t sum;  /* of the header up to here and of the object */
} header;

static struct {
    pthread_mutex_t lock;
    _Atomic(const char *) folder; /* interned; NULL: not looked for yet */
    atomic_bool refused;          /* no more writing */
    char trouble[512];
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The first message stays as it is, so that it can be read at any time. */
static bool refuse(const char *what, const char *path, int why)
{
    pthread_mutex_lock(&disk.lock);
    if (!disk.refused)
        snprintf(disk.trouble, sizeof disk.trouble,
                 "cache: %s %.300s: %s (going on without)", what, path,
                 strerror(why));
    disk.refused = true;
    pthread_mutex_unlock(&disk.lock);
    return false;
}

const char *nb_disk_trouble(void)
{
    return disk.refused ? disk.trouble : "";
}

static int64_t limit(void)
{
    const char *mib = getenv("NABLA_CACHE_MIB");
    long long n = mib && *mib ? atoll(mib) : 1024;
    return n <= 0 ? 0 : n > INT_MAX ? INT64_MAX : (int64_t)n * MIB;
}

static bool is_set(const char *text)
{
    return text && *text;
}

bool nb_disk_folder_set(const char *path)
{
    char made[PATH_MAX];
    const char *own = getenv("NABLA_CACHE_DIR");
    const char *shared = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (!is_set(path) && is_set(own)) path = own;
    if (is_set(path))
        n = snprintf(made, sizeof made, "%s", path);
    else if (is_set(shared))
        n = snprintf(made, sizeof made, "%s/nabla", shared);
    else if (is_set(home))
        n = snprintf(made, sizeof made, "%s/.cache/nabla", home);
    if (n >= PATH_MAX - 64) n = 0;
    const char *folder = nb_intern(made, (size_t)n);
    if (!folder) return false;
    pthread_mutex_lock(&disk.lock);
    disk.folder = folder;
    disk.refused = false;
    pthread_mutex_unlock(&disk.lock);
    return true;
}

/* The path of a file of the folder; false: there is no folder. */
static bool path_of(char path[PATH_MAX], const char *name)
{
    const char *folder = disk.folder;
    if (!folder && !nb_disk_folder_set(NULL)) return false;
    folder = disk.folder;
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return *folder && n < PATH_MAX;
}

static bool path_of_key(char path[PATH_MAX], nb_disk_key key)
{
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx%s",
             (unsigned long long)key.part[0], (unsigned long long)key.part[1],
             SUFFIX);
    return path_of(path, name);
}

void nb_object_free(nb_object *o)
{
    nb_free(o->data);
    *o = (nb_object){0};
}

static header header_of(nb_disk_key key, const nb_object *o)
{
    header h = {.magic = "nablaobj",
                .format = FORMAT,
                .version = (uint32_t)o->version,
                .key = key,
                .size = o->n};
    uint64_t sum = nb_hash(FORMAT, &h, offsetof(header, sum));
    h.sum = nb_hash(sum, o->data, o->n);
    return h;
}

static bool read_all(int fd, void *to, size_t n)
{
    char *p = to;
    while (n > 0) {
        ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    const char *p = from;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

/* Code of a file that others can write would be theirs, run as us. */
static bool is_ours(const struct stat *st)
{
    return S_ISREG(st->st_mode) && !(st->st_mode & (S_IWGRP | S_IWOTH)) &&
           (st->st_uid == geteuid() || st->st_uid == 0);
}

static bool read_entry(int fd, nb_disk_key key, nb_object *o)
{
    struct stat st;
    header h, want;
    if (fstat(fd, &st) != 0 || !is_ours(&st) || !read_all(fd, &h, sizeof h) ||
        h.size > LARGEST || (uint64_t)st.st_size != sizeof h + h.size)
        return true;
    void *data = nb_alloc(h.size);
    if (!data) return false;
    *o = (nb_object){data, h.size, (int)h.version};
    bool whole = read_all(fd, data, h.size);
    if (whole) want = header_of(key, o);
    if (!whole || memcmp(&h, &want, sizeof h) != 0)
        nb_object_free(o);
    else if (st.st_mtime < time(NULL) - HOUR)
        futimens(fd, NULL);
    return true;
}

bool nb_disk_read(nb_disk_key key, nb_object *o)
{
    char path[PATH_MAX];
    *o = (nb_object){0};
    if (limit() == 0) return true;
    if (!path_of_key(path, key)) return !nb_failed();
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return true;
    bool ok = read_entry(fd, key, o);
    close(fd);
    return ok;
}

/* Makes the folder of the path and those above it. */
static bool make_folder(const char *path)
{
    char folder[PATH_MAX];
    strcpy(folder, path);
    for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return refuse("cannot make", folder, errno);
        *p = '/';
    }
    return true;
}

static int open_temporary(char path[PATH_MAX])
{
    if (!path_of(path, TEMPORARY)) return -1;
    strcat(path, "XXXXXX"); /* folders are shorter than PATH_MAX - 64 */
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT) return fd;
    if (!make_folder(path)) return -1;
    strcpy(path + strlen(path) - 6, "XXXXXX");
    return mkostemp(path, O_CLOEXEC);
}

static bool write_entry(nb_disk_key key, const nb_object *o)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    header h = header_of(key, o);
    if (!path_of_key(path, key)) return false;
    int fd = open_temporary(temporary);
    if (fd < 0) return refuse("cannot write", temporary, errno);
    bool ok = write_all(fd, &h, sizeof h) && write_all(fd, o->data, o->n);
    int why = errno;
    if (close(fd) != 0 && ok) ok = false, why = errno;
    if (ok && rename(temporary, path) != 0) ok = false, why = errno;
    if (ok) return true;
    unlink(temporary);
    return refuse("cannot write", path, why);
}

void nb_disk_write(nb_disk_key key, const nb_object *o)
{
    bool failed = nb_failed();
    int64_t most = limit();
    if (disk.refused || most == 0 || o->n > LARGEST) return;
    if (write_entry(key, o) && key.part[0] % RARELY == 0) nb_disk_trim(most);
    if (!failed) nb_error_clear(); /* memory may have run out */
}

typedef struct entry {
    char name[56];
    int64_t bytes, used;
} entry;

static int by_use(const void *a, const void *b)
{
    int64_t x = ((const entry *)a)->used, y = ((const entry *)b)->used;
    return (x > y) - (x < y);
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcmp(name + n - m, suffix);
}

/* Lists the entries; removes temporary files that a process left behind. */
static int list(DIR *folder, entry **entries)
{
    int n = 0, room = 0;
    int64_t now = time(NULL);
    for (struct dirent *d; (d = readdir(folder));) {
        struct stat st;
        bool lost = !strncmp(d->d_name, TEMPORARY, strlen(TEMPORARY));
        if ((!lost && !ends_in(d->d_name, SUFFIX)) ||
            strlen(d->d_name) >= sizeof(*entries)->name ||
            fstatat(dirfd(folder), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (lost) {
            if (st.st_mtime < now - HOUR) unlinkat(dirfd(folder), d->d_name, 0);
            continue;
        }
        if (!nb_grow(entries, &room, n + 1, sizeof **entries)) break;
        entry *e = &(*entries)[n++];
        *e = (entry){.bytes = st.st_size, .used = st.st_mtime};
        strcpy(e->name, d->d_name);
    }
    return n;
}

void nb_disk_trim(int64_t most)
{
    char path[PATH_MAX];
    entry *entries = NULL;
    int64_t bytes = 0;
    DIR *folder = path_of(path, "") ? opendir(path) : NULL;
    if (!folder) return;
    int n = list(folder, &entries);
    for (int i = 0; i < n; i++)
        bytes += entries[i].bytes;
    if (bytes > most) {
        qsort(entries, (size_t)n, sizeof *entries, by_use);
        for (int i = 0; i < n && bytes > most / 4 * 3; i++) {
            unlinkat(dirfd(folder), entries[i].name, 0);
            bytes -= entries[i].bytes;
        }
    }
    nb_free(entries);
    closedir(folder);
}
