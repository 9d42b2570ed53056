/* samples.h - numbers as formulas of sizes that are not known.
 *
 * A program for any sizes is made by looking at it at a few: at these points,
 * each symbol (the name of a size) has one of a few values.  A number that
 * differs from point to point is taken for a polynomial of the symbols, of
 * degree two in each and three in all, through its values there; it is one if
 * the coefficients are whole and if it holds at one more point. */
#ifndef NB_LOWER_SAMPLES_H
#define NB_LOWER_SAMPLES_H

#include "base/memory.h"
#include "nabla/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    NB_MAX_SYMBOLS = 4,
    NB_MAX_TERMS = 31,
    NB_MAX_POINTS = NB_MAX_TERMS + 1
};

typedef struct nb_samples {
    int nsymbols, nterms, npoints; /* the last point is the one to check by */
    int power[NB_MAX_POINTS][NB_MAX_SYMBOLS];
    int64_t size[NB_MAX_POINTS][NB_MAX_SYMBOLS];
} nb_samples;

void nb_samples_init(nb_samples *s, int nsymbols);

/* A formula is nterms coefficients.  False if these values, one a point, do not
 * follow one. */
bool nb_formula_fit(const nb_samples *s, const int64_t *value, int64_t *coef);

/* The terms at given sizes, and the value of a formula of them. */
void nb_terms_at(const nb_samples *s, const int64_t *size, int64_t *term);
int64_t nb_formula_at(const nb_samples *s, const int64_t *coef,
                      const int64_t *term);

/* A list of numbers, those that vary by formulas. */
typedef struct nb_formulas {
    int n, nvary;
    int64_t *fixed; /* n */
    int *which;     /* nvary: which of them, in order */
    int64_t *coef;  /* nterms of each */
} nb_formulas;

/* value[p] is the list at point p.  False with `wrong` as it was if memory ran
 * out, or the first number that follows no formula. */
bool nb_formulas_fit(nb_formulas *f, const nb_samples *s, int n,
                     int64_t *const *value, int *wrong);
void nb_formulas_at(const nb_formulas *f, const nb_samples *s,
                    const int64_t *term, int64_t *to);
void nb_formulas_free(nb_formulas *f);

/* A number of the program itself, of any dtype: a formula, or its root, or
 * `over` divided by either. */
typedef struct nb_figure {
    nb_dtype dtype;
    bool divides, root;
    double over;
    int64_t coef[NB_MAX_TERMS];
} nb_figure;

/* bits[p] is it at point p. */
bool nb_figure_fit(nb_figure *f, const nb_samples *s, nb_dtype dtype,
                   const int64_t *bits);
int64_t nb_figure_at(const nb_figure *f, const nb_samples *s,
                     const int64_t *term);

#endif
