/* dnn.c - the library, and its handle for each card. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "backend/cuda/find.h"

#include <pthread.h>
#include <stdlib.h>

#define DNN(result, name, arguments) "cudnn" #name,
static const char *const names[] = {
#include "backend/cuda/dnn/dnn.def"
};
#undef DNN

enum { FUNCTIONS = sizeof names / sizeof *names, CARDS = 64 };

nb_dnn_functions nb_dnn;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened;

static void load(void)
{
    static const char *const files[] = {"libcudnn.so.9", NULL};
    opened = nb_cuda_functions("NABLA_CUDNN", files, FUNCTIONS, names, &nb_dnn);
}

/* A driver that is not the machine's own has no library beside it. */
bool nb_dnn_there(void)
{
    if (getenv("NABLA_CUDA_DRIVER") && !getenv("NABLA_CUDNN")) return false;
    pthread_once(&once, load);
    return opened;
}

bool nb_dnn_need(void)
{
    const char *wanted = getenv("NABLA_CUDNN");
    if (nb_dnn_there()) return true;
    return nb_fail(NB_ERUNTIME,
                   "cuDNN: %s is not here, or is too old (docs/devices.md says "
                   "where it is looked for)",
                   wanted && *wanted ? wanted : "libcudnn.so.9");
}

int nb_dnn_version(void)
{
    return nb_dnn_there() ? (int)nb_dnn.GetVersion() : 0;
}

void nb_dnn_lock(void)
{
    pthread_mutex_lock(&lock);
}

void nb_dnn_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void *nb_dnn_handle(nb_card *c, nb_dnn_use use)
{
    static void *handle[CARDS][NB_DNN_USES];
    int status = 0;
    if (!nb_dnn_need() || !nb_card_enter(c)) return NULL;
    if (c->id >= CARDS) return nb_fail(NB_ERUNTIME, "cuDNN: card %d", c->id);
    void **h = &handle[c->id][use];
    nb_dnn_lock();
    if (!*h) status = nb_dnn.Create(h);
    if (status) *h = NULL;
    nb_dnn_unlock();
    if (status)
        return nb_fail(NB_ERUNTIME, "cuDNN: it cannot start: %s",
                       nb_dnn.GetErrorString(status));
    return *h;
}
