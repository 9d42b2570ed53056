/* profile.c - events and the file they are written to.
 *
 * Events of all threads go into one list, under a lock.  One for which there is
 * no memory is left out: times are not worth a failure. */
#define _POSIX_C_SOURCE 200809L
#include "run/profile.h"

#include "nabla/debug.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COUNTER = -1 };

typedef struct event {
    const char *kind;
    char *name;
    int64_t began, took; /* nanoseconds; or COUNTER, and */
    int64_t value;
    int thread;
} event;

atomic_bool nb_profile_on;

static struct {
    pthread_mutex_t lock;
    FILE *file;
    int64_t start;
    event *event;
    int n, room;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

int64_t nb_profile_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec + 1;
}

int nb_profile_thread(void)
{
    static atomic_int last;
    static _Thread_local int own;
    if (!own) own = atomic_fetch_add(&last, 1) + 1;
    return own;
}

static void add(event e)
{
    bool failed = nb_failed();
    e.thread = nb_profile_thread();
    pthread_mutex_lock(&all.lock);
    bool ok = all.file && e.name &&
              nb_grow(&all.event, &all.room, all.n + 1, sizeof e);
    if (ok) all.event[all.n++] = e;
    pthread_mutex_unlock(&all.lock);
    if (!ok) nb_free(e.name);
    if (!failed) nb_error_clear();
}

void nb_profile_end(int64_t began, const char *kind, const char *name)
{
    if (!began) return;
    int64_t took = nb_profile_now() - began;
    bool failed = nb_failed();
    char *copy = nb_copy_text(name);
    if (!failed) nb_error_clear();
    add((event){.kind = kind, .name = copy, .began = began, .took = took});
}

void nb_profile_memory(int64_t began)
{
    if (!began) return;
    bool failed = nb_failed();
    char *name = nb_copy_text("memory");
    if (!failed) nb_error_clear();
    add((event){.kind = "memory",
                .name = name,
                .began = nb_profile_now(),
                .took = COUNTER,
                .value = (int64_t)nb_block_bytes()});
}

nb_status nb_profile_start(const char *path)
{
    bool ok = false;
    pthread_mutex_lock(&all.lock);
    if (all.file)
        nb_fail(NB_ERUNTIME, "profile: one is being taken already");
    else if (!(all.file = fopen(path, "w")))
        nb_fail(NB_ENOFILE, "profile: cannot make %s: %s", path,
                strerror(errno));
    else
        ok = true;
    all.start = nb_profile_now();
    pthread_mutex_unlock(&all.lock);
    if (ok) nb_profile_on = true;
    return NB_STATUS(ok);
}

static void put_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        if ((unsigned char)*s < ' ')
            fprintf(f, "\\u%04x", *s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

static double micro(int64_t nanoseconds)
{
    return (double)nanoseconds * 1e-3;
}

static void put_event(FILE *f, const event *e)
{
    fputs("{\"name\": ", f);
    put_text(f, e->name);
    fprintf(f, ", \"cat\": \"%s\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f",
            e->kind, e->thread, micro(e->began - all.start));
    if (e->took == COUNTER)
        fprintf(f, ", \"ph\": \"C\", \"args\": {\"bytes\": %lld}}",
                (long long)e->value);
    else
        fprintf(f, ", \"ph\": \"X\", \"dur\": %.3f}", micro(e->took));
}

static bool write_all(FILE *f)
{
    fputs("[\n", f);
    for (int i = 0; i < all.n; i++) {
        if (i) fputs(",\n", f);
        put_event(f, &all.event[i]);
    }
    fputs("\n]\n", f);
    bool bad = ferror(f);
    return fclose(f) == 0 && !bad;
}

nb_status nb_profile_stop(void)
{
    bool ok = false;
    nb_profile_on = false;
    pthread_mutex_lock(&all.lock);
    if (!all.file)
        nb_fail(NB_ERUNTIME, "profile: none is being taken");
    else if (!(ok = write_all(all.file)))
        nb_fail(NB_ERUNTIME, "profile: cannot write the file: %s",
                strerror(errno));
    all.file = NULL;
    for (int i = 0; i < all.n; i++)
        nb_free(all.event[i].name);
    nb_free(all.event);
    all.event = NULL;
    all.n = all.room = 0;
    pthread_mutex_unlock(&all.lock);
    return NB_STATUS(ok);
}
