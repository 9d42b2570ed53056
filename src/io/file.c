/* file.c - sources and sinks. */
#include "io/file.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *nb_fail_at(nb_place place, nb_status code, const char *format, ...)
{
    char detail[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(detail, sizeof detail, format, ap);
    va_end(ap);
    if (!place.part) return nb_fail(code, "load: %s: %s", place.path, detail);
    return nb_fail(code, "load: %s: member %s: %s", place.path, place.part,
                   detail);
}

static void *fail_errno(const char *op, const char *path)
{
    nb_status code = errno == ENOENT ? NB_ENOFILE : NB_ERUNTIME;
    return nb_fail(code, "%s: %s: %s", op, path, strerror(errno));
}

/* Not to wait at a pipe without a writer, the file is opened before it is
 * known to be a file. */
bool nb_source_open(nb_source *s, const char *path)
{
    struct stat st;
    s->path = path;
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0) return fail_errno("load", path);
    if (fstat(s->fd, &st) < 0) {
        fail_errno("load", path);
    } else if (!S_ISREG(st.st_mode)) {
        nb_fail(NB_ERUNTIME, "load: %s: is %s (a regular file is needed)", path,
                S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
    } else {
        s->size = (uint64_t)st.st_size;
        return true;
    }
    nb_source_close(s);
    return false;
}

void nb_source_close(nb_source *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

bool nb_source_read(const nb_source *s, uint64_t offset, void *to, size_t n)
{
    const size_t most = (size_t)1 << 30; /* one call moves less than 2 GiB */
    char *p = to;
    while (n > 0) {
        ssize_t got = pread(s->fd, p, n < most ? n : most, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("load", s->path);
        if (got == 0)
            return nb_fail(NB_ERUNTIME, "load: %s: shrank while it was read",
                           s->path);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

/* A name beside the path that nobody else uses: the folder stays the same, so
 * that renaming is atomic, and the length does not depend on the name. */
static char *temporary_name(const char *path, int n)
{
    nb_text t = {0};
    const char *slash = strrchr(path, '/');
    nb_text_put(&t, path, slash ? (size_t)(slash - path) + 1 : 0);
    nb_text_add(&t, ".nabla-%ld-%d.tmp", (long)getpid(), n);
    if (!t.failed) return t.data;
    nb_text_free(&t);
    return NULL;
}

bool nb_sink_open(nb_sink *s, const char *path)
{
    *s = (nb_sink){.path = path};
    for (int n = 0; n < 1000; n++) {
        s->temporary = temporary_name(path, n);
        if (!s->temporary) return false;
        s->file = fopen(s->temporary, "wbxe");
        if (s->file) return true;
        if (errno != EEXIST) break;
        nb_free(s->temporary);
        s->temporary = NULL;
    }
    fail_errno("save", path);
    nb_free(s->temporary);
    s->temporary = NULL;
    return false;
}

bool nb_sink_write(nb_sink *s, const void *data, size_t n)
{
    if (n > 0 && fwrite(data, 1, n, s->file) != n)
        return fail_errno("save", s->path);
    s->written += n;
    return true;
}

bool nb_sink_close(nb_sink *s, bool ok)
{
    if (fclose(s->file) != 0 && ok) ok = fail_errno("save", s->path);
    if (ok && rename(s->temporary, s->path) != 0)
        ok = fail_errno("save", s->path);
    if (!ok) unlink(s->temporary);
    nb_free(s->temporary);
    *s = (nb_sink){0};
    return ok;
}
