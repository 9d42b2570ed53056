/* nccl.c - see nccl.h. */
#include "backend/cuda/nccl.h"

#include "backend/cuda/find.h"
#include "base/dl.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { UINT8 = 1 }; /* of its dtypes */

typedef struct functions {
#define NCCL(name, arguments) int(*name) arguments;
#include "backend/cuda/nccl.def"
#undef NCCL
    const char *(*GetErrorString)(int);
} functions;

static const char *const names[] = {
#define NCCL(name, arguments) "nccl" #name,
#include "backend/cuda/nccl.def"
#undef NCCL
    "ncclGetErrorString"};

enum { FUNCTIONS = sizeof names / sizeof *names };

struct nb_card_comm {
    nb_card *card;
    void *comm;
};

static functions api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool opened;

static void load(void)
{
    static const char *const files[] = {"libnccl.so.2", "libnccl.so", NULL};
    opened = nb_cuda_functions("NABLA_NCCL", files, FUNCTIONS, names, &api);
}

/* A driver that is not the machine's own has no library beside it. */
bool nb_nccl_there(void)
{
    if (getenv("NABLA_CUDA_DRIVER") && !getenv("NABLA_NCCL")) return false;
    pthread_once(&once, load);
    return opened;
}

static bool check(int result, const char *what)
{
    return result == 0 || nb_fail(NB_ERUNTIME,
                                  "nccl: %s: %s (NABLA_NCCL=none goes through "
                                  "the CPU, NCCL_DEBUG=WARN says more)",
                                  what, api.GetErrorString(result));
}

int nb_nccl_version(void)
{
    int version = 0;
    if (!nb_nccl_there()) {
        const char *wanted = getenv("NABLA_NCCL");
        nb_fail(NB_ERUNTIME, "nccl: %s is not here",
                wanted && *wanted ? wanted : "libnccl.so.2");
        return 0;
    }
    return check(api.GetVersion(&version), "its version") ? version : 0;
}

bool nb_nccl_id_new(nb_nccl_id *id)
{
    return check(api.GetUniqueId(id), "a group cannot be made");
}

void nb_card_comm_free(nb_card_comm *k)
{
    if (!k) return;
    if (k->comm && nb_card_reenter(k->card)) api.CommDestroy(k->comm);
    nb_free(k);
}

static bool join(int n, const int *member, int size, const nb_nccl_id *id,
                 nb_card_comm **comm)
{
    bool ok = check(api.GroupStart(), "joining");
    if (!ok) return false;
    for (int i = 0; ok && i < n; i++)
        ok = nb_card_enter(comm[i]->card) &&
             check(api.CommInitRank(&comm[i]->comm, size, *id, member[i]),
                   "joining");
    int ended = api.GroupEnd();
    return ok && check(ended, "joining");
}

bool nb_card_comms_new(int n, nb_card *const *card, const int *member, int size,
                       const nb_nccl_id *id, nb_card_comm **comm)
{
    bool ok = true;
    for (int i = 0; i < n; i++)
        comm[i] = NULL;
    for (int i = 0; ok && i < n; i++) {
        ok = (comm[i] = nb_alloc(sizeof **comm));
        if (ok) *comm[i] = (nb_card_comm){.card = card[i]};
    }
    ok = ok && join(n, member, size, id, comm);
    for (int i = 0; !ok && i < n; i++) {
        nb_card_comm_free(comm[i]);
        comm[i] = NULL;
    }
    return ok;
}

bool nb_card_comm_begin(nb_card_comm *k)
{
    return nb_card_enter(k->card) && check(api.GroupStart(), "messages");
}

bool nb_card_comm_send(nb_card_comm *k, int member, const void *data, size_t n)
{
    return !n ||
           check(api.Send(data, n, UINT8, member, k->comm, k->card->stream),
                 "sending");
}

bool nb_card_comm_receive(nb_card_comm *k, int member, void *data, size_t n)
{
    return !n ||
           check(api.Recv(data, n, UINT8, member, k->comm, k->card->stream),
                 "receiving");
}

bool nb_card_comm_end(nb_card_comm *k)
{
    nb_card_launched(k->card, "nccl");
    return check(api.GroupEnd(), "messages");
}
