/* formula.h - values of a nest as functions of what it loads, by trying: two
 * formulas that agree wherever it is looked are one. */
#ifndef NB_LOWER_FORMULA_H
#define NB_LOWER_FORMULA_H

#include "lower/nest.h"

enum { NB_MAX_FORMULA_LOADS = 4 };

/* What value v is computed of. */
typedef struct nb_formula {
    const nb_nest *nest;
    int v;
    int n, load[NB_MAX_FORMULA_LOADS]; /* values of the nest, each once */
    bool *in;                          /* by value: it takes part */
} nb_formula;

/* *is: it is pointwise arithmetic on floats, of a few loads. */
bool nb_formula_of(const nb_nest *x, int v, nb_formula *f, bool *is);
void nb_formula_free(nb_formula *f);

/* Its value where the loads are those, without rounding to narrow types; room
 * has a number for each value of the nest. */
double nb_formula_value(const nb_formula *f, const double *load, double *room);

#endif
