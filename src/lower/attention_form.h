/* attention_form.h - what the lines between scores and results are made of: the
 * algebra by which attention is known. */
#ifndef NB_LOWER_ATTENTION_FORM_H
#define NB_LOWER_ATTENTION_FORM_H

#include <stdbool.h>
#include <stdint.h>

/* How far a line is spread: over the scores, over queries with one key, over
 * queries without that dim; a number goes with all. */
typedef enum nb_spread { NB_NUMBER, NB_FULL, NB_ROW, NB_FLAT } nb_spread;

/* a[0] x[0] + a[1] x[1]; x[i] is w^e sum^l dp^p mean^r: w is e^score, sum its
 * sum along keys, dp is g v^T, and mean that of dp, weighted by w. */
enum { NB_FORM_TERMS = 2 };
typedef struct nb_attention_term {
    int n; /* 0: it is something else */
    nb_spread spread;
    double a[NB_FORM_TERMS];
    int8_t e[NB_FORM_TERMS], l[NB_FORM_TERMS], p[NB_FORM_TERMS],
        r[NB_FORM_TERMS];
} nb_form;

/* Sums and products, and with sign -1 differences and quotients; nothing where
 * they have more terms.  They are spread as nothing yet. */
nb_form nb_form_times(nb_form x, nb_form y, int sign);
nb_form nb_form_plus(nb_form x, nb_form y, int sign);

/* The sum of x along keys. */
nb_form nb_form_added_up(nb_form x);

bool nb_form_is_weights(nb_form x);          /* w / sum */
bool nb_form_is_ds(nb_form x, double scale); /* scale w / sum (dp - mean) */

#endif
