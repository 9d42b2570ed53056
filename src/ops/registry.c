/* registry.c - a list under a lock: registered ops are few, and looked for by
 * name only by those who read texts. */
#include "ops/registry.h"

#include "core/tensor.h"
#include "nabla/custom.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    nb_op *op;
    int times; /* that it was registered */
} entry;

static struct {
    pthread_mutex_t lock;
    entry *entry;
    int n, room;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static entry *named(const char *name)
{
    for (int i = 0; i < registry.n; i++)
        if (!strcmp(registry.entry[i].op->name, name))
            return &registry.entry[i];
    return NULL;
}

static entry *listed(const nb_op *op)
{
    for (int i = 0; i < registry.n; i++)
        if (registry.entry[i].op == op) return &registry.entry[i];
    return NULL;
}

nb_op *nb_registry_find(const char *name)
{
    pthread_mutex_lock(&registry.lock);
    entry *e = named(name);
    nb_op *op = e ? e->op : NULL;
    pthread_mutex_unlock(&registry.lock);
    return op;
}

nb_op *nb_op_registered(int i)
{
    pthread_mutex_lock(&registry.lock);
    nb_op *op = i >= 0 && i < registry.n ? registry.entry[i].op : NULL;
    pthread_mutex_unlock(&registry.lock);
    return op;
}

bool nb_registry_has(const nb_op *op)
{
    pthread_mutex_lock(&registry.lock);
    bool has = listed(op);
    pthread_mutex_unlock(&registry.lock);
    return has;
}

/* With the lock held. */
static nb_op *add(nb_op *op, bool (*same)(const nb_op *, const nb_op *))
{
    entry *e = named(op->name);
    if (e && !same(e->op, op))
        return nb_fail(NB_EVALUE,
                       "%s: another op is registered under that name",
                       op->name);
    if (e) {
        e->times++;
        nb_op_use(e->op);
        return e->op;
    }
    if (!nb_grow(&registry.entry, &registry.room, registry.n + 1, sizeof *e))
        return NULL;
    registry.entry[registry.n++] = (entry){op, 1};
    return op;
}

nb_op *nb_registry_add(nb_op *op, bool (*same)(const nb_op *, const nb_op *))
{
    pthread_mutex_lock(&registry.lock);
    nb_op *found = add(op, same);
    pthread_mutex_unlock(&registry.lock);
    return found;
}

void nb_registry_remove(const nb_op *op)
{
    pthread_mutex_lock(&registry.lock);
    entry *e = listed(op);
    if (e && --e->times == 0) *e = registry.entry[--registry.n];
    if (registry.n == 0) {
        nb_free(registry.entry);
        registry.entry = NULL;
        registry.room = 0;
    }
    pthread_mutex_unlock(&registry.lock);
}
