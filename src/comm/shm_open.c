/* shm_open.c - processes of one machine find out what they can share.
 *
 * Two of them use the memory only if both could open that of the other, which
 * they tell each other, for machines of one name need not be one machine; and
 * read that of the other only if both can. */
#define _GNU_SOURCE
#include "comm/shm_parts.h"

#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { NAME = 64 };
/* Of a ring at most and at least, and of all rings of a process if it can be:
 * in containers there is often little memory to share. */
static const size_t MOST = (size_t)4 << 20, LEAST = (size_t)512 << 10;
static const size_t ALL = (size_t)8 << 20;
/* Messages that are offered: smaller ones are copied sooner. */
static const size_t OFFERED = (size_t)8 << 10;

typedef struct card { /* what ranks tell each other */
    char host[NAME], name[NAME];
    uint64_t mark;
    nb_peer peer;
} card;

enum { OPENED = 1, READ = 2 }; /* what one of them could do with another */

static void name_host(char text[NAME])
{
    char host[24] = "", boot[37] = "";
    gethostname(host, sizeof host - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (f && !fgets(boot, sizeof boot, f)) boot[0] = '\0';
    if (f) fclose(f);
    snprintf(text, NAME, "%s %s", host, boot);
}

static nb_segment *map(const nb_shm *shm, int file)
{
    void *p =
        mmap(NULL, shm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : p;
}

/* Space is taken at once: a full disk must not be found out by writing. */
static nb_segment *make(const nb_shm *shm, card *c)
{
    if (getrandom(&c->mark, sizeof c->mark, 0) != sizeof c->mark) return NULL;
    snprintf(c->name, NAME, "/nabla-%ld-%llx", (long)getpid(),
             (unsigned long long)c->mark);
    int file = shm_open(c->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) return NULL;
    nb_segment *s = NULL;
    if (posix_fallocate(file, 0, (off_t)shm->bytes))
        close(file);
    else
        s = map(shm, file);
    if (s)
        s->mark = c->mark;
    else
        shm_unlink(c->name);
    return s;
}

static nb_segment *open_other(const nb_shm *shm, const card *mine,
                              const card *c)
{
    if (!c->name[0] || strcmp(mine->host, c->host) != 0) return NULL;
    int file = shm_open(c->name, O_RDWR, 0);
    nb_segment *s = file < 0 ? NULL : map(shm, file);
    if (s && s->mark != c->mark) {
        munmap(s, shm->bytes);
        s = NULL;
    }
    return s;
}

static bool is_said(const char *word)
{
    const char *text = getenv("NABLA_SHM");
    return text && strcmp(text, word) == 0;
}

/* What i of n could do with j, as each has told. */
static bool could(const unsigned char *seen, int n, int i, int j, int what)
{
    return seen[(size_t)i * (size_t)n + (size_t)j] & what;
}

static bool all_could(const unsigned char *seen, int n, int what)
{
    bool all = true;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            all &= i == j || could(seen, n, i, j, what);
    return all;
}

/* Keeps only those who have ours as well. */
static void agree(nb_shm *shm, const unsigned char *seen)
{
    int here = 1, n = shm->size;
    for (int i = 0; i < n; i++) {
        if (i == shm->rank || !shm->at[i]) continue;
        if (!could(seen, n, i, shm->rank, READ)) shm->peer[i].pid = 0;
        if (could(seen, n, i, shm->rank, OPENED)) {
            here++;
        } else {
            munmap(shm->at[i], shm->bytes);
            shm->at[i] = NULL;
        }
    }
    shm->all = all_could(seen, n, READ);
    shm->spin = here <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 0;
}

static unsigned char try(nb_shm *shm, const card *mine, const card *c, int rank)
{
    shm->at[rank] = open_other(shm, mine, c);
    if (!shm->at[rank]) return 0;
    if (!mine->peer.pid || !nb_peer_is_readable(&c->peer)) return OPENED;
    shm->peer[rank] = c->peer;
    return OPENED | READ;
}

/* False if they could not tell each other. */
static bool open_all(nb_shm *shm, const nb_wire *w, card *all,
                     unsigned char *seen)
{
    card mine = {.host = ""};
    size_t n = (size_t)shm->size;
    unsigned char *row = seen + n * n;
    name_host(mine.host);
    nb_segment *own = is_said("0") ? NULL : make(shm, &mine);
    if (!own) mine.name[0] = '\0';
    if (own && !is_said("rings")) mine.peer = nb_peer_self(mine.mark);
    bool told = w->gather(&mine, sizeof mine, all);
    for (int i = 0; told && own && i < shm->size; i++)
        if (i != shm->rank) row[i] = try(shm, &mine, &all[i], i);
    shm->at[shm->rank] = own;
    told = told && w->gather(row, n, seen);
    if (own) shm_unlink(mine.name);
    if (told && own) agree(shm, seen);
    return told && own;
}

void nb_shm_open(const nb_wire *w)
{
    nb_shm *shm = nb_shm_get();
    size_t n = (size_t)w->size;
    shm->rank = w->rank;
    shm->size = w->size;
    shm->offered = is_said("reads") ? 1 : OFFERED;
    shm->room = ALL / n / LEAST * LEAST;
    if (shm->room < LEAST) shm->room = LEAST;
    if (shm->room > MOST) shm->room = MOST;
    shm->bytes = sizeof(nb_segment) + n * (sizeof(nb_ring) + shm->room);
    shm->at = nb_alloc_forever(n * sizeof *shm->at);
    shm->peer = nb_alloc_forever(n * sizeof *shm->peer);
    card *all = nb_alloc(n * sizeof *all);
    unsigned char *seen = nb_alloc_zero(n * n + n);
    bool room = shm->at && shm->peer && all && seen;
    if (!room || !open_all(shm, w, all, seen)) nb_shm_close();
    nb_free(all);
    nb_free(seen);
}

void nb_shm_close(void)
{
    nb_shm *shm = nb_shm_get();
    for (int i = 0; shm->at && i < shm->size; i++)
        if (shm->at[i]) munmap(shm->at[i], shm->bytes);
    shm->at = NULL;
}
