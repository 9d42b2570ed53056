/* launch.c - launching a kernel, and saying which one could not be. */
#include "backend/cuda/code.h"
#include "backend/cuda/parts.h"

#include <stdlib.h>

bool nb_card_waits(void)
{
    static atomic_int known; /* 1: no, 2: yes */
    if (!known) {
        const char *set = getenv("NABLA_CUDA_SYNC");
        known = set && *set && *set != '0' ? 2 : 1;
    }
    return known == 2;
}

static bool fail(nb_card *c, int result, const unsigned *g, const unsigned *b,
                 unsigned shared, const char *what)
{
    nb_fail(NB_ERUNTIME,
            "%s: GPU %d does not launch it: %s (grid %u %u %u, block %u %u %u, "
            "%u bytes of shared memory)",
            what, c->id, nb_cuda_text(result), g[0], g[1], g[2], b[0], b[1],
            b[2], shared);
    return false;
}

/* More shared memory than any block may have has to be asked for, once: then
 * for all there is. */
static int allow(nb_card *c, const nb_card_code *k, unsigned shared)
{
    atomic_bool *allowed = (atomic_bool *)&k->allowed;
    if (k->shared + shared <= c->shared || *allowed) return 0;
    int most = (int)(c->shared_most - k->shared);
    int result =
        c->api->FuncSetAttribute(k->function, NB_CUDA_FUNC_SHARED_MOST, most);
    if (result == 0) *allowed = true;
    return result;
}

bool nb_card_launch(nb_card *c, const nb_card_code *k, const unsigned grid[3],
                    const unsigned block[3], unsigned shared, void **args,
                    const char *what)
{
    const unsigned *g = grid, *b = block;
    if (g[0] == 0 || g[1] == 0 || g[2] == 0) return true;
    if (!nb_card_enter(c) || !nb_card_code_ready(k)) return false;
    int result = allow(c, k, shared);
    if (result == 0)
        result =
            c->api->LaunchKernel(k->function, g[0], g[1], g[2], b[0], b[1],
                                 b[2], shared, nb_card_stream(c), args, NULL);
    if (result != 0 && nb_card_is_fault(result))
        return nb_card_check(c, result, what);
    if (result != 0) return fail(c, result, g, b, shared, what);
    nb_card_launched(c, what);
    return !nb_card_waits() || nb_card_sync(c);
}
