/* faults.h - memory that runs out: of an attempt the first allocation fails,
 * then the second, and so on until it needs no more.
 *
 * An attempt that fails says NB_EMEMORY, one that does without the allocation
 * leaves no error; then nothing is lost and no transform is open.  What does not
 * hold is printed, so that a test of any kind can ask for the answer with its
 * own assert_true, expect or need. */
#ifndef NB_TEST_FAULTS_H
#define NB_TEST_FAULTS_H

#include "nabla/nabla.h"

typedef struct faults {
    bool (*run)(void *ctx); /* an attempt: whether it went well */
    void *ctx;
    bool (*holds)(void *ctx); /* after each, in its scope; NULL: no more */
    bool bare;  /* without a scope of its own, whose opening may fail too */
    bool keeps; /* memory, programs of a cache, say, which is not compared */
    bool fresh; /* at once: what the first use of all makes may fail, too */
    int sparse; /* after n comes n + 1 + n / sparse, but 0: n + 1 */

    /* What comes of it, 0 at first. */
    int64_t n;    /* the allocation that failed last */
    int failed;   /* attempts */
    bool done;    /* there was no n-th allocation */
    int64_t live; /* memory before */
} faults;

/* Whether the failure of each is survived; after an attempt that has all memory
 * and fills tables kept for good, unless it is to be fresh. */
bool faults_survived(faults *f);

/* Of the next one: for tests that count them. */
bool fault_survived(faults *f);

#endif
