/* nccl.c - NCCL, to carry messages between GPUs as another nb_link.  What is
 * here finds it and asks its version. */
#include "nabla/distributed.h"

#include "base/dl.h"
#include "base/error.h"

int nb_distributed_nccl(void)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *lib = nb_dl_open(names);
    int (*ask)(int *) = (int (*)(int *))nb_dl_symbol(lib, "ncclGetVersion");
    int version = 0;
    if (!ask || ask(&version) != 0) {
        nb_fail(NB_ERUNTIME, "nccl: %s is not here", names[0]);
        return 0;
    }
    return version;
}
