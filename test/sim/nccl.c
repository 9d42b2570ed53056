/* nccl.c - a simulated NCCL over the simulated cards, of this process or of
 * several: a group is a folder in that of NABLA_CACHE_DIR, or in memory, and a
 * message is a file in it.
 *
 * As with the real one, a card cannot be in a group twice, messages go between
 * GroupStart and GroupEnd all at once, and what is not received stops the
 * sender's group for ever; here for a minute. */
#define _GNU_SOURCE
#include "sim.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS, SYSTEM = 2, ARGUMENT = 4, USAGE = 5 };
enum { PATH = 256, OPS = 4096, NAME = 100, PATIENCE = 60000000 };

typedef struct id {
    char bytes[128];
} id;

typedef struct comm {
    struct comm *next;
    char folder[NAME];
    int rank, size, card;
    int *sent, *received; /* messages so far, by peer */
} comm;

typedef struct op {
    comm *c;
    void *data;
    size_t n;
    int peer;
    bool sends;
    CUstream stream;
} op;

#pragma GCC visibility push(default)
const char *ncclGetErrorString(int code);
int ncclGetVersion(int *version);
int ncclGetUniqueId(id *to);
int ncclCommInitRank(comm **to, int size, id group, int rank);
int ncclCommDestroy(comm *c);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *data, size_t n, int type, int peer, comm *c,
             CUstream stream);
int ncclRecv(void *data, size_t n, int type, int peer, comm *c,
             CUstream stream);
#pragma GCC visibility pop

static __thread op ops[OPS];
static __thread int count, depth, wrong;
static comm *all; /* with the lock held */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *ncclGetErrorString(int code)
{
    return code == SUCCESS    ? "no error"
           : code == SYSTEM   ? "unhandled system error"
           : code == ARGUMENT ? "invalid argument"
                              : "invalid usage";
}

int ncclGetVersion(int *version)
{
    *version = 22703;
    return SUCCESS;
}

int ncclGetUniqueId(id *to)
{
    const char *cache = getenv("NABLA_CACHE_DIR");
    memset(to, 0, sizeof *to);
    snprintf(to->bytes, NAME, "%.70s/nabla-nccl-XXXXXX",
             cache && *cache ? cache : "/dev/shm");
    return mkdtemp(to->bytes) ? SUCCESS : SYSTEM;
}

static bool await(const char *path)
{
    for (int t = 0; access(path, F_OK); t += 200) {
        if (t > PATIENCE) return false;
        usleep(200);
    }
    return true;
}

static bool write_file(const char *path, const void *data, size_t n)
{
    char part[PATH + 8];
    snprintf(part, sizeof part, "%s.part", path);
    int f = open(part, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    bool ok = f >= 0 && write(f, data, n) == (ssize_t)n;
    if (f >= 0) close(f);
    return ok && !rename(part, path);
}

static bool read_file(const char *path, void *data, size_t n)
{
    struct stat s;
    int f = open(path, O_RDONLY);
    bool ok = f >= 0 && !fstat(f, &s) && s.st_size == (off_t)n &&
              read(f, data, n) == (ssize_t)n;
    if (f >= 0) close(f);
    return ok;
}

/* All others are there, and none on this card. */
static int meet(const comm *c)
{
    for (int i = 0; i < c->size; i++) {
        char path[PATH];
        int card;
        snprintf(path, sizeof path, "%s/rank-%d", c->folder, i);
        if (!await(path) || !read_file(path, &card, sizeof card)) return SYSTEM;
        if (i != c->rank && card == c->card) return USAGE;
    }
    return SUCCESS;
}

static int join(comm *c)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/rank-%d", c->folder, c->rank);
    if (cuCtxGetDevice(&c->card)) return USAGE;
    return write_file(path, &c->card, sizeof c->card) ? SUCCESS : SYSTEM;
}

int ncclCommInitRank(comm **to, int size, id group, int rank)
{
    if (!to || size < 1 || rank < 0 || rank >= size) return ARGUMENT;
    comm *c = calloc(1, sizeof *c);
    c->sent = calloc(2 * (size_t)size, sizeof *c->sent);
    c->received = c->sent + size;
    c->size = size, c->rank = rank;
    snprintf(c->folder, sizeof c->folder, "%.99s", group.bytes);
    *to = c;
    pthread_mutex_lock(&lock);
    c->next = all;
    all = c;
    pthread_mutex_unlock(&lock);
    int code = join(c);
    if (code) return code;
    if (!depth) return meet(c);
    if (count == OPS) return USAGE;
    ops[count++] = (op){.c = c, .peer = -1};
    return SUCCESS;
}

static void forget(comm *c)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/rank-%d", c->folder, c->rank);
    unlink(path);
    rmdir(c->folder); /* the last one can */
}

int ncclCommDestroy(comm *c)
{
    pthread_mutex_lock(&lock);
    for (comm **at = &all; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    forget(c);
    free(c->sent);
    free(c);
    return SUCCESS;
}

static __attribute__((destructor)) void forget_all(void)
{
    for (comm *c = all; c; c = c->next)
        forget(c);
}

static void path_of(char path[PATH], const comm *c, int from, int to, int n)
{
    snprintf(path, PATH, "%s/%d-%d-%d", c->folder, from, to, n);
}

static int send_now(const op *o)
{
    comm *c = o->c;
    char path[PATH], *data = malloc(o->n + 1);
    path_of(path, c, c->rank, o->peer, c->sent[o->peer]++);
    bool ok = !cuStreamSynchronize(o->stream) &&
              !cuMemcpyDtoH_v2(data, (CUdeviceptr)(uintptr_t)o->data, o->n) &&
              write_file(path, data, o->n);
    free(data);
    return ok ? SUCCESS : SYSTEM;
}

static int receive_now(const op *o)
{
    comm *c = o->c;
    char path[PATH], *data = malloc(o->n + 1);
    path_of(path, c, o->peer, c->rank, c->received[o->peer]++);
    bool ok = !cuStreamSynchronize(o->stream) && await(path) &&
              read_file(path, data, o->n) &&
              !cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)o->data, data, o->n);
    unlink(path);
    free(data);
    return ok ? SUCCESS : SYSTEM;
}

int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    int code = wrong;
    if (!depth) return USAGE;
    if (--depth) return SUCCESS;
    for (int i = 0; i < count && !code; i++)
        if (ops[i].peer < 0) code = meet(ops[i].c);
    for (int i = 0; i < count && !code; i++)
        if (ops[i].peer >= 0 && ops[i].sends) code = send_now(&ops[i]);
    for (int i = 0; i < count && !code; i++)
        if (ops[i].peer >= 0 && !ops[i].sends) code = receive_now(&ops[i]);
    count = wrong = 0;
    return code;
}

/* A message is of bytes, between memory of the comm's card. */
static int post(op o, int type)
{
    int card;
    bool ok = o.c && o.peer >= 0 && o.peer < o.c->size && type == 1 &&
              !cuCtxGetDevice(&card) && card == o.c->card &&
              sim_memory_card((uintptr_t)o.data) == sim_card_at(card);
    if (!ok || count == OPS) return wrong = ARGUMENT;
    ncclGroupStart();
    ops[count++] = o;
    return ncclGroupEnd();
}

int ncclSend(const void *data, size_t n, int type, int peer, comm *c,
             CUstream stream)
{
    return post((op){c, (void *)data, n, peer, true, stream}, type);
}

int ncclRecv(void *data, size_t n, int type, int peer, comm *c, CUstream stream)
{
    return post((op){c, data, n, peer, false, stream}, type);
}
