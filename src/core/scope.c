/* scope.c - what belongs to a thread: lent tensors, open vmaps and open
 * differentiations. */
#include "core/tensor.h"

#include <string.h>

enum { MAX_OPEN = 60 };

static _Thread_local struct {
    nb_tensor **lent;
    int n, room;
    int *mark;
    int depth, marks;
} pool;
static _Thread_local struct {
    struct {
        void *x;
        void (*drop)(void *);
        int depth;
    } * lent;
    int n, room;
} others; /* what is lent and is no tensor */
static _Thread_local struct {
    int n;
    nb_lane lane[MAX_OPEN];
    const char *name[MAX_OPEN][2];
} vmaps;
static _Thread_local uint64_t traces;
static atomic_int last_lane;

nb_tensor *nb_lend(nb_tensor *x)
{
    if (!x) return NULL;
    if (pool.depth == 0) {
        nb_drop(x);
        return nb_fail(NB_ERUNTIME,
                       "no scope is open: call nb_scope_open first");
    }
    if (pool.n == pool.room &&
        !nb_grow(&pool.lent, &pool.room, pool.n + 1, sizeof *pool.lent)) {
        nb_drop(x);
        return NULL;
    }
    return pool.lent[pool.n++] = x;
}

void *nb_lend_other(void *x, void (*drop)(void *))
{
    if (!x) return NULL;
    bool ok = pool.depth > 0 || nb_fail(NB_ERUNTIME, "no scope is open: call "
                                                     "nb_scope_open first");
    if (!ok || !nb_grow(&others.lent, &others.room, others.n + 1,
                        sizeof *others.lent)) {
        drop(x);
        return NULL;
    }
    others.lent[others.n].x = x;
    others.lent[others.n].drop = drop;
    others.lent[others.n++].depth = pool.depth;
    return x;
}

static void drop_others(void)
{
    while (others.n && others.lent[others.n - 1].depth > pool.depth) {
        others.n--;
        others.lent[others.n].drop(others.lent[others.n].x);
    }
    if (others.n) return;
    nb_free(others.lent);
    memset(&others, 0, sizeof others);
}

nb_tensor *nb_give(nb_tensor *x)
{
    return nb_lend(x);
}

nb_status nb_scope_open(void)
{
    if (pool.depth == pool.marks &&
        !nb_grow(&pool.mark, &pool.marks, pool.depth + 1, sizeof *pool.mark))
        return nb_error_code();
    pool.mark[pool.depth++] = pool.n;
    return NB_OK;
}

/* The results survive because there is room for them: they were lent, or kept
 * by the caller, and the closing scope gives its places back first. */
void nb_scope_close(int n, nb_tensor **results)
{
    if (pool.depth == 0) return;
    for (int i = 0; i < n; i++)
        nb_keep(results[i]);
    int bottom = pool.mark[--pool.depth];
    while (pool.n > bottom)
        nb_drop(pool.lent[--pool.n]);
    if (others.lent) drop_others();
    if (pool.depth > 0) {
        for (int i = 0; i < n; i++)
            results[i] = nb_lend(results[i]);
        return;
    }
    nb_free(pool.lent);
    nb_free(pool.mark);
    memset(&pool, 0, sizeof pool);
}

int nb_lane_fresh(void)
{
    return atomic_fetch_add(&last_lane, 1) + 1;
}

bool nb_lane_open_again(nb_lane lane, const char *const *name)
{
    if (vmaps.n == MAX_OPEN)
        return nb_fail(NB_EVALUE, "more than %d vmaps open", MAX_OPEN);
    vmaps.lane[vmaps.n] = (nb_lane){.id = lane.id, .size = lane.size};
    for (int k = 0; k < 2; k++)
        vmaps.name[vmaps.n][k] = name[k];
    vmaps.n++;
    return true;
}

int nb_lane_open(nb_extent size, const char *name)
{
    nb_lane lane = {.id = nb_lane_fresh(), .size = size};
    const char *names[2] = {name};
    return nb_lane_open_again(lane, names) ? lane.id : 0;
}

const char **nb_lane_names(int k)
{
    return vmaps.name[k];
}

void nb_lane_close(void)
{
    vmaps.n--;
}

const nb_lane *nb_lanes_open(int *n)
{
    *n = vmaps.n;
    return vmaps.lane;
}

const nb_lane *nb_lane_find(const char *name)
{
    for (int i = vmaps.n - 1; i >= 0; i--)
        for (int k = 0; k < 2; k++)
            if (vmaps.name[i][k] && !strcmp(vmaps.name[i][k], name))
                return &vmaps.lane[i];
    return NULL;
}

const nb_lane *nb_lane_named(const char *name)
{
    const nb_lane *lane = nb_lane_find(name);
    return lane ? lane : nb_fail(NB_EVALUE, "no open vmap is named %s", name);
}

uint64_t nb_traces_open(void)
{
    return traces;
}

/* The lowest bit that is free: they nest, but tapes may close out of order. */
uint64_t nb_trace_open(void)
{
    uint64_t bit = ~traces & (traces + 1);
    if (bit >> 62)
        return nb_fail(NB_EVALUE, "more than 62 differentiations open"), 0;
    traces |= bit;
    return bit;
}

void nb_trace_close(uint64_t bit)
{
    traces &= ~bit;
}
