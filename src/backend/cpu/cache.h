/* cache.h - code for a text of IR, made once.
 *
 * Looked for among the code that is in use in this process, then in the cache
 * on disk, then compiled. */
#ifndef NB_CPU_CACHE_H
#define NB_CPU_CACHE_H

#include "backend/cpu/code.h"

/* A reference of the caller's.  LLVM is opened only if it has to compile. */
nb_code *nb_code_build(const char *ir);

typedef struct nb_code_stats {
    int64_t hits, disk_hits, misses; /* in this process, on disk, compiled */
    int64_t bytes;                   /* of code mapped at present */
    double compile_ms;               /* in LLVM, all threads together */
    const char *trouble;             /* with the cache on disk; "" if none */
} nb_code_stats;
nb_code_stats nb_code_stats_get(void);

#endif
