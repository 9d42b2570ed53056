/* chain.h - running the steps of a chain tile by tile. */
#ifndef NB_RUN_CHAIN_H
#define NB_RUN_CHAIN_H

#include "backend/cpu/emit.h"
#include "lower/chain.h"

/* The code of a step that is a nest. */
typedef struct nb_chain_code {
    nb_cpu_kernel *fn;
    int64_t units;   /* a row */
    int64_t scratch; /* bytes */
} nb_chain_code;

/* `code` is of the steps from the chain's first on; `block` says where blocks
 * are that do not lie in tiles.  The same for any number of threads. */
bool nb_chain_run(const nb_plan *p, const nb_chain *c,
                  const nb_chain_code *code, char *const *block);

#endif
