/* keep.c - plans from one process to the next, as the library writes them: with
 * the kernels that it has compiled for them. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "base/memory.h"

#include <string.h>

/* Of all cards alike: the number of this one leads the key of its graph. */
nb_disk_key nb_dnn_key(const nb_dnn_graph *g)
{
    const nb_card *c = g->card;
    nb_disk_key key = {{0x5b1e90c4d76a23f8u, 0xc8027fe36d914ab5u}};
    size_t lead = sizeof c->id, n = (size_t)g->key.n - lead;
    int64_t card[] = {c->major, c->minor, c->processors, nb_dnn_version()};
    for (int i = 0; i < 2; i++) {
        key.part[i] = nb_hash(key.part[i], c->name, strlen(c->name));
        key.part[i] = nb_hash(key.part[i], card, sizeof card);
        key.part[i] = nb_hash(key.part[i], g->key.data + lead, n);
    }
    return key;
}

void *nb_dnn_recall(nb_dnn_graph *g, nb_disk_key key)
{
    nb_object o = {0};
    void *plan = NULL;
    if (!nb_disk_read(key, &o)) g->broken = true;
    if (o.data)
        plan =
            nb_dnn_describe(g, NB_DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 2,
                            (nb_dnn_attribute[]){
                                {NB_DNN_ATTR_EXECUTION_PLAN_HANDLE,
                                 NB_DNN_TYPE_HANDLE, 1, &g->handle},
                                {NB_DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 NB_DNN_TYPE_CHAR, (int64_t)o.n, o.data}});
    nb_object_free(&o);
    g->refused = false;
    return plan;
}

/* Where there is no memory for it, it is made again another time. */
void nb_dnn_keep(void *plan, nb_disk_key key)
{
    enum { WHAT = NB_DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION };
    int64_t n = 0;
    if (nb_dnn.BackendGetAttribute(plan, WHAT, NB_DNN_TYPE_CHAR, 0, &n, NULL) ||
        n <= 0)
        return;
    char *text = nb_alloc((size_t)n);
    if (!text) {
        nb_error_clear();
        return;
    }
    if (!nb_dnn.BackendGetAttribute(plan, WHAT, NB_DNN_TYPE_CHAR, n, &n, text))
        nb_disk_write(key, &(nb_object){text, (size_t)n, 0});
    nb_free(text);
}
