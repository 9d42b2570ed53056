/* family.h - one program for any sizes: what its executables at different sizes
 * have in common, which is all but numbers.
 *
 * The program is recorded and planned at a few points (lower/samples.h).  If
 * that gives one form, numbers that follow formulas, and nests of the same
 * instructions, its code is made once, with those numbers as parameters; a
 * member of the family is the plan with the numbers of its sizes. */
#ifndef NB_RUN_FAMILY_H
#define NB_RUN_FAMILY_H

#include "lower/samples.h"
#include "run/exec.h"

typedef struct nb_family nb_family;

typedef struct nb_member {
    nb_exec *exec;
    nb_graph *recorded;
    int nfigures;
    nb_tensor **figure; /* kept: inputs after all others */
} nb_member;

/* Of the program recorded at each point, in order.  Where there is none, *out
 * is NULL and *why, yours, says so in words.  The graphs remain the caller's,
 * changed.  False if memory ran out. */
bool nb_family_new(const nb_samples *s, nb_graph *const *recorded,
                   nb_family **out, char **why);
void nb_family_free(nb_family *f);

/* Its member of those sizes, yours. */
bool nb_family_at(const nb_family *f, const int64_t *size, nb_member *to);
void nb_member_free(nb_member *m);

/* Whether what was recorded at those sizes is the program of the family. */
bool nb_family_has(const nb_family *f, const int64_t *size, const nb_graph *g,
                   bool *has);

#endif
