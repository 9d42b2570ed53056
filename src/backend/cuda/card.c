/* card.c - the list of cards and what they are; starting one. */
#include "backend/cuda/card.h"

#include "backend/cuda/parts.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 32, OLDEST = 80 };

/* Numbers of attributes of a device. */
enum {
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_MEMORY_PER_BLOCK = 8,
    WARP_SIZE = 10,
    MULTIPROCESSOR_COUNT = 16,
    L2_CACHE_SIZE = 38,
    MAX_THREADS_PER_MULTIPROCESSOR = 39,
    COMPUTE_CAPABILITY_MAJOR = 75,
    COMPUTE_CAPABILITY_MINOR = 76,
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    int n;
    nb_card card[MOST];
    char trouble[512];
} all;

static int ask(const nb_card *c, int attribute)
{
    int value = 0;
    return c->api->DeviceGetAttribute(&value, attribute, c->device) == 0 ? value
                                                                         : 0;
}

static size_t bytes(const nb_card *c, int attribute)
{
    return (size_t)ask(c, attribute);
}

static void describe(nb_card *c)
{
    c->major = ask(c, COMPUTE_CAPABILITY_MAJOR);
    c->minor = ask(c, COMPUTE_CAPABILITY_MINOR);
    if (c->api->DeviceGetName(c->name, sizeof c->name, c->device) != 0)
        strcpy(c->name, "a card without a name");
    c->processors = ask(c, MULTIPROCESSOR_COUNT);
    c->warp = ask(c, WARP_SIZE);
    c->threads = ask(c, MAX_THREADS_PER_BLOCK);
    c->processor_threads = ask(c, MAX_THREADS_PER_MULTIPROCESSOR);
    c->processor_registers = ask(c, MAX_REGISTERS_PER_MULTIPROCESSOR);
    c->shared = bytes(c, MAX_SHARED_MEMORY_PER_BLOCK);
    c->shared_most = bytes(c, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    c->processor_shared = bytes(c, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    c->l2 = bytes(c, L2_CACHE_SIZE);
    if (c->api->DeviceTotalMem(&c->memory, c->device) != 0) c->memory = 0;
    if (c->shared_most < c->shared) c->shared_most = c->shared;
}

/* A card that is too old leaves its place to the next. */
static void list_one(const nb_cuda *api, int ordinal)
{
    nb_card *c = &all.card[all.n];
    *c = (nb_card){.id = all.n, .api = api};
    if (api->DeviceGet(&c->device, ordinal) != 0) return;
    describe(c);
    if (c->major * 10 + c->minor < OLDEST) {
        snprintf(all.trouble, sizeof all.trouble,
                 "no GPU: %s has compute capability %d.%d (8.0 or more is "
                 "needed)",
                 c->name, c->major, c->minor);
        return;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->capturing, NULL);
    pthread_mutex_init(&c->timing, NULL);
    all.n++;
}

static void list(void)
{
    const nb_cuda *api = nb_cuda_driver();
    int n = 0;
    snprintf(all.trouble, sizeof all.trouble, "%s",
             api ? "no GPU: the driver finds none" : nb_cuda_trouble());
    if (!api || api->DeviceGetCount(&n) != 0) return;
    for (int i = 0; i < n && all.n < MOST; i++)
        list_one(api, i);
}

int nb_card_count(void)
{
    pthread_once(&once, list);
    return all.n;
}

const char *nb_card_trouble(void)
{
    return nb_card_count() > 0 ? NULL : all.trouble;
}

nb_card *nb_card_at(int id)
{
    int n = nb_card_count();
    if (n == 0) return nb_fail(NB_ERUNTIME, "%s", all.trouble);
    if (id < 0 || id >= n)
        return nb_fail(NB_ERUNTIME, "there is no GPU %d (there %s %d)", id,
                       n == 1 ? "is" : "are", n);
    return &all.card[id];
}

/* With the lock held; what was done before a failure is not done again. */
static bool start_locked(nb_card *c)
{
    const nb_cuda *api = c->api;
    if (c->started) return true;
    if (!c->context &&
        !nb_card_check(c, api->DevicePrimaryCtxRetain(&c->context, c->device),
                       "it cannot be started"))
        return false;
    if (!nb_card_check(c, api->CtxSetCurrent(c->context), "its context"))
        return false;
    if (!c->stream &&
        !nb_card_check(
            c, api->StreamCreate(&c->stream, NB_CUDA_STREAM_NON_BLOCKING),
            "its stream"))
        return false;
    if (!c->event &&
        !nb_card_check(
            c, api->EventCreate(&c->event, NB_CUDA_EVENT_DISABLE_TIMING),
            "its event"))
        return false;
    if (!nb_card_pool_make(c) || !nb_card_rings_make(c)) return false;
    c->started = true;
    return true;
}

static bool start(nb_card *c)
{
    pthread_mutex_lock(&c->lock);
    bool ok = start_locked(c);
    pthread_mutex_unlock(&c->lock);
    return ok;
}

bool nb_card_enter(nb_card *c)
{
    if (!nb_card_ok(c) || (!c->started && !start(c))) return false;
    return nb_card_check(c, c->api->CtxSetCurrent(c->context), "its context");
}

bool nb_card_reenter(nb_card *c)
{
    return c->started && !c->faulted && !nb_cuda_forked() &&
           c->api->CtxSetCurrent(c->context) == 0;
}
