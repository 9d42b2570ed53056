/* signature.h - the one language of axes.
 *
 * "... m k, ... k n -> ... m n": operands separated by commas, dims by blanks.
 *   m        a factor: dims of one name run together
 *   ...      the other leading dims, aligned from the right and broadcast;
 *            ...1, ...2 are batches of their own, in rules only
 *   1        no factor: a dim that is whole here and has no partner
 *   ?        a fresh factor of that dim alone
 *   (a b)    one dim made of two factors, a major
 * After ';' come kinds: replicate{r} (needed whole), permute{r} (every operand
 * has a size of its own: slices, windows, concatenation), scan{r}, mask{r}
 * (picked by the value of an index operand), blocked{r} (nothing propagates
 * along it), max{r} min{r} prod{r} and{r} or{r} (how a factor is reduced that
 * does not reach the result; sum if not said), and sizes n=4.  An operand
 * without dims is a scalar: "-> ?" makes an axis from a scalar, or from nothing.
 *
 * Shapes, batching and sharding all read it.  Lanes are not written: they pass
 * through every operand.  A parsed signature is interned and lives as long as
 * the process. */
#ifndef NB_CORE_SIGNATURE_H
#define NB_CORE_SIGNATURE_H

#include "core/shape.h"

enum { NB_MAX_FACTORS = 64, NB_MAX_GROUP = 16, NB_MAX_BATCHES = 4 };

typedef enum nb_factor_kind {
    NB_PASS,
    NB_REPLICATE,
    NB_PERMUTE,
    NB_SCAN,
    NB_MASK,
    NB_BLOCKED
} nb_factor_kind;

typedef enum nb_reduce {
    NB_SUM,
    NB_MAX,
    NB_MIN,
    NB_PROD,
    NB_AND,
    NB_OR
} nb_reduce;

/* What one dim is made of: factors, none for `1`. */
typedef struct nb_dim {
    int n, at, to; /* written at .. to - 1 */
    int16_t factor[NB_MAX_GROUP];
} nb_dim;

typedef struct nb_term {
    bool dots;
    int n, at, to;
    int batch; /* which of the batches the dots are */
    nb_dim *dim;
} nb_term;

typedef struct nb_factor {
    const char *name; /* "" for a `?` */
    nb_factor_kind kind;
    nb_reduce reduce;
    int64_t size;   /* -1: not written */
    bool in_result; /* else it is reduced away, or whole by its kind */
} nb_factor;

typedef struct nb_sig {
    const char *text;
    int nin, nout, nfactors, nbatches;
    bool pointwise;            /* every term is "..." alone */
    int batch[NB_MAX_BATCHES]; /* their numbers: 1 of ...1 */
    nb_factor factor[NB_MAX_FACTORS];
    nb_term *term; /* inputs, then results */
} nb_sig;

/* NULL with NB_EVALUE and the position where the text is wrong. */
const nb_sig *nb_sig_parse(const char *text);

/* The parts as text in one form, which parses to the same; t is empty.  A factor whose name
 * does not begin with a letter prints as `?`. */
typedef struct nb_sig_parts {
    int nin, nout, nfactors;
    const nb_term *term;
    const nb_factor *factor;
    const int *batch;
} nb_sig_parts;
bool nb_sig_write(nb_text *t, const nb_sig_parts *p);
bool nb_sig_print(nb_text *t, const nb_sig *s);

/* "replicate", "max": "" for pass and for a sum. */
const char *nb_factor_kind_name(nb_factor_kind kind);
const char *nb_reduce_name(nb_reduce reduce);

#endif
