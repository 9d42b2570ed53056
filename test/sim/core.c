/* core.c - the turn every call takes: the lock, the count of calls, failures
 * that were asked for, and the state of the driver. */
#include "sim.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct calls {
    const char *name;
    int64_t count;
    int64_t since; /* NABLA_SIM_FAIL last changed */
} calls;

enum { NAMES = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static calls table[NAMES];
static char asked[1024];
static int64_t kernels;

int64_t sim_setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static calls *find(const char *name)
{
    int i = 0;
    while (i < NAMES - 1 && table[i].name && strcmp(table[i].name, name))
        i++;
    table[i].name = name;
    return &table[i];
}

/* cuMemAlloc is the name of cuMemAlloc_v2 too. */
static bool named(const char *name, const char *short_name, size_t n)
{
    if (strncmp(name, short_name, n)) return false;
    return !name[n] || (!strncmp(name + n, "_v", 2) && !name[n + 3]);
}

static int code_of(const char *name)
{
    if (strstr(name, "Alloc")) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!strncmp(name, "nvrtc", 5)) return NVRTC_ERROR_INTERNAL_ERROR;
    return CUDA_ERROR_UNKNOWN;
}

/* One part of NABLA_SIM_FAIL against this call. */
static int fault_of(const char *part, const char *name, int64_t call)
{
    size_t n = strcspn(part, ":,");
    if (part[n] != ':' || !named(name, part, n)) return 0;
    char *end;
    long long which = strtoll(part + n + 1, &end, 10);
    bool after = *end == '+';
    if (call != which && !(after && call > which)) return 0;
    end += after;
    return *end == ':' ? atoi(end + 1) : code_of(name);
}

int sim_fails(const char *name)
{
    pthread_mutex_lock(&count_lock);
    const char *text = getenv("NABLA_SIM_FAIL");
    if (strncmp(text ? text : "", asked, sizeof asked - 1)) {
        strncpy(asked, text ? text : "", sizeof asked - 1);
        for (int i = 0; i < NAMES; i++)
            table[i].since = 0;
    }
    calls *c = find(name);
    c->count++, c->since++;
    int code = 0;
    for (const char *p = asked; *p && !code;) {
        code = fault_of(p, name, c->since);
        p += strcspn(p, ",");
        p += *p == ',';
    }
    pthread_mutex_unlock(&count_lock);
    return code;
}

void sim_kernel_counted(void)
{
    pthread_mutex_lock(&count_lock);
    kernels++;
    pthread_mutex_unlock(&count_lock);
}

sim_turn sim_enter(const char *name)
{
    int code = sim_fails(name);
    pthread_mutex_lock(&lock);
    if (!code && !sim_ready() && strcmp(name, "cuInit"))
        code = CUDA_ERROR_NOT_INITIALIZED;
    return (sim_turn){code, NULL};
}

sim_turn sim_enter_card(const char *name)
{
    sim_turn t = sim_enter(name);
    t.card = sim_card_current();
    if (!t.code && !t.card) t.code = CUDA_ERROR_INVALID_CONTEXT;
    if (!t.code) t.code = t.card->fault;
    return t;
}

void sim_leave(sim_turn *t)
{
    (void)t;
    pthread_mutex_unlock(&lock);
}

int64_t nabla_sim_count(const char *what)
{
    if (!strcmp(what, "memory")) {
        pthread_mutex_lock(&lock);
        int64_t used = (int64_t)sim_memory_used();
        pthread_mutex_unlock(&lock);
        return used;
    }
    int64_t n = 0;
    pthread_mutex_lock(&count_lock);
    if (!strcmp(what, "kernels")) n = kernels;
    for (int i = 0; i < NAMES && table[i].name; i++)
        if (named(table[i].name, what, strlen(what))) n += table[i].count;
    pthread_mutex_unlock(&count_lock);
    return n;
}
