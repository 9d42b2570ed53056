/* build.h - CUDA C to kernels, and launching them.
 *
 * Code is looked for among what this process has loaded on the card, then in
 * the cache on disk (base/disk.h), then compiled (nvrtc.h).  Keys are made of
 * the text, the card's compute capability, and the versions of NVRTC and of
 * this library; kernels of one text are compiled and loaded once for all.
 *
 * A text with one kernel that may stand in a namespace says so by its first
 * line, NB_CARD_JOINS: such texts are compiled several at once. */
#ifndef NB_CUDA_BUILD_H
#define NB_CUDA_BUILD_H

#include "backend/cuda/card.h"

#define NB_CARD_JOINS "// joins others\n"

typedef struct nb_card_code nb_card_code; /* reference counted */

typedef struct nb_card_source {
    const char *text, *name; /* name: of its extern "C" kernel */
} nb_card_source;

/* All at once, in several threads.  code[i] are references of the caller's;
 * on failure there are none. */
bool nb_card_build(nb_card *c, int n, const nb_card_source *s,
                   nb_card_code **code);

/* What this thread asks for between the two is built together as it is closed,
 * or as one of it is launched; and it stays at least until the first that was
 * opened is closed.  Not wanted: what was asked for since it was opened is not
 * built.  False: it is not there. */
typedef struct nb_card_builds {
    int images, chores; /* that others had gathered */
} nb_card_builds;
nb_card_builds nb_card_builds_open(void);
bool nb_card_builds_close(nb_card_builds b, bool wanted);

/* Something to be done beside that, in some thread and in the order in which it
 * was asked for; at once where nothing is open.  Not wanted: never. */
typedef bool nb_card_chore(void *ctx);
bool nb_card_builds_beside(nb_card_chore *chore, void *ctx);

nb_card_code *nb_card_code_keep(nb_card_code *k);
void nb_card_code_drop(nb_card_code *k); /* NULL is fine */

/* On the main stream; a grid without blocks is nothing to do.  what: the
 * names of its ops, for errors; args: as cuLaunchKernel takes them; shared:
 * bytes of the dynamic kind, up to shared_most of the card.
 *
 * With NABLA_CUDA_SYNC=1 in the environment it waits for the kernel, so that a
 * fault is known to be its own. */
bool nb_card_launch(nb_card *c, const nb_card_code *k, const unsigned grid[3],
                    const unsigned block[3], unsigned shared, void **args,
                    const char *what);

int nb_card_code_registers(const nb_card_code *k); /* of a thread */

typedef struct nb_card_build_stats {
    int64_t hits, disk_hits, misses; /* in this process, on disk, compiled */
    double compile_ms;               /* in NVRTC, all threads together */
} nb_card_build_stats;
nb_card_build_stats nb_card_build_stats_get(void);

#endif
