/* samples.c - formulas in Newton's form: a term is a product of differences
 * between sizes and those of the points, so coefficients of whole numbers stay
 * whole, and division tells whether they do. */
#include "lower/samples.h"

#include "core/convert.h"

#include <math.h>
#include <string.h>

/* Sizes of each symbol, all different, so that nothing is equal by chance, far
 * enough apart for what is rounded to show, near enough for what is chosen by
 * size to be the same, and beyond what passes compute beforehand because it is
 * small.  Formulas go through primes and are checked at a size with many
 * divisors: what depends on a remainder shows. */
static const int64_t sizes[NB_MAX_SYMBOLS][4] = {{4099, 4139, 4177, 4320},
                                                 {4241, 4283, 4327, 4500},
                                                 {4391, 4441, 4481, 4560},
                                                 {4547, 4583, 4621, 4680}};

/* Terms in the order of their powers read as digits, the last symbol's last: a
 * term comes after those below it. */
static void add_terms(nb_samples *s)
{
    int all = 1;
    for (int k = 0; k < s->nsymbols; k++)
        all *= 3;
    for (int code = 0; code < all; code++) {
        int *power = s->power[s->nterms], rest = code, degree = 0;
        for (int k = s->nsymbols - 1; k >= 0; k--, rest /= 3)
            degree += power[k] = rest % 3;
        s->nterms += degree <= 3;
    }
}

void nb_samples_init(nb_samples *s, int nsymbols)
{
    *s = (nb_samples){.nsymbols = nsymbols};
    add_terms(s);
    s->npoints = s->nterms + 1;
    for (int p = 0; p < s->npoints; p++)
        for (int k = 0; k < nsymbols; k++)
            s->size[p][k] = sizes[k][p < s->nterms ? s->power[p][k] : 3];
}

/* The term that is t with one power less of a symbol. */
static int term_below(const nb_samples *s, int t, int symbol)
{
    int power[NB_MAX_SYMBOLS];
    memcpy(power, s->power[t], sizeof power);
    power[symbol]--;
    for (int k = t - 1; k >= 0; k--)
        if (!memcmp(power, s->power[k], sizeof power)) return k;
    return t;
}

/* One step of divided differences along a symbol.  A term comes after those
 * below it, so that going backwards each finds the one below as it was. */
static bool divide(const nb_samples *s, int symbol, int step, int64_t *coef)
{
    for (int t = s->nterms - 1; t >= 0; t--) {
        int power = s->power[t][symbol];
        if (power < step) continue;
        int64_t rise = coef[t] - coef[term_below(s, t, symbol)];
        int64_t run = sizes[symbol][power] - sizes[symbol][power - step];
        if (rise % run) return false;
        coef[t] = rise / run;
    }
    return true;
}

/* The formula through all points but the last; there it is *last. */
static bool pass_through(const nb_samples *s, const int64_t *value,
                         int64_t *coef, int64_t *last)
{
    int64_t term[NB_MAX_TERMS];
    memcpy(coef, value, (size_t)s->nterms * sizeof *coef);
    for (int symbol = 0; symbol < s->nsymbols; symbol++)
        for (int step = 1; step <= 2; step++)
            if (!divide(s, symbol, step, coef)) return false;
    nb_terms_at(s, s->size[s->npoints - 1], term);
    *last = nb_formula_at(s, coef, term);
    return true;
}

bool nb_formula_fit(const nb_samples *s, const int64_t *value, int64_t *coef)
{
    int64_t last;
    return pass_through(s, value, coef, &last) && last == value[s->npoints - 1];
}

/* Sums wrap around on the way, which leaves what fits in the end right. */
void nb_terms_at(const nb_samples *s, const int64_t *size, int64_t *term)
{
    for (int t = 0; t < s->nterms; t++) {
        uint64_t product = 1;
        for (int k = 0; k < s->nsymbols; k++)
            for (int i = 0; i < s->power[t][k]; i++)
                product *= (uint64_t)(size[k] - sizes[k][i]);
        term[t] = (int64_t)product;
    }
}

int64_t nb_formula_at(const nb_samples *s, const int64_t *coef,
                      const int64_t *term)
{
    uint64_t sum = 0;
    for (int t = 0; t < s->nterms; t++)
        sum += (uint64_t)coef[t] * (uint64_t)term[t];
    return (int64_t)sum;
}

/* Lists */

void nb_formulas_free(nb_formulas *f)
{
    nb_free(f->fixed), nb_free(f->which), nb_free(f->coef);
    *f = (nb_formulas){0};
}

static bool is_fixed(const nb_samples *s, int64_t *const *value, int i)
{
    for (int p = 1; p < s->npoints; p++)
        if (value[p][i] != value[0][i]) return false;
    return true;
}

static bool make_room(nb_formulas *f, const nb_samples *s, int n,
                      int64_t *const *value)
{
    *f = (nb_formulas){.n = n};
    for (int i = 0; i < n; i++)
        f->nvary += !is_fixed(s, value, i);
    size_t nvary = (size_t)f->nvary + 1;
    f->fixed = nb_alloc((size_t)(n + 1) * sizeof *f->fixed);
    f->which = nb_alloc(nvary * sizeof *f->which);
    f->coef = nb_alloc(nvary * (size_t)s->nterms * sizeof *f->coef);
    return f->fixed && f->which && f->coef;
}

bool nb_formulas_fit(nb_formulas *f, const nb_samples *s, int n,
                     int64_t *const *value, int *wrong)
{
    int64_t at[NB_MAX_POINTS], *coef;
    if (!make_room(f, s, n, value)) return false;
    f->nvary = 0;
    for (int i = 0; i < n; i++) {
        f->fixed[i] = value[0][i];
        if (is_fixed(s, value, i)) continue;
        for (int p = 0; p < s->npoints; p++)
            at[p] = value[p][i];
        coef = f->coef + (size_t)f->nvary * (size_t)s->nterms;
        f->which[f->nvary++] = i;
        if (nb_formula_fit(s, at, coef)) continue;
        *wrong = i;
        return false;
    }
    return true;
}

void nb_formulas_at(const nb_formulas *f, const nb_samples *s,
                    const int64_t *term, int64_t *to)
{
    memcpy(to, f->fixed, (size_t)f->n * sizeof *to);
    for (int i = 0; i < f->nvary; i++)
        to[f->which[i]] =
            nb_formula_at(s, f->coef + (size_t)i * (size_t)s->nterms, term);
}

/* Numbers of the program */

static int64_t figure_of(const nb_figure *f, int64_t formula)
{
    double x = (double)formula;
    int64_t bits = 0;
    if (f->root) x = sqrt(x);
    if (f->divides) x = f->over / x;
    nb_convert(&bits, f->dtype, 1, &x, NB_F64, 1, 1);
    return bits;
}

/* What the formula would be at a point, but for rounding. */
static double behind(const nb_figure *f, int64_t bits)
{
    double x;
    nb_convert(&x, NB_F64, 1, &bits, f->dtype, 1, 1);
    if (f->divides) x = f->over / x;
    return f->root ? x * x : x;
}

/* Whether whole numbers so many times the powers of a term are behind them; of
 * term 0, which has none, these need not be the same number. */
static bool fits_term(nb_figure *f, const nb_samples *s, const int64_t *bits,
                      int term)
{
    int64_t value[NB_MAX_POINTS], last;
    for (int p = 0; p < s->nterms; p++) {
        int64_t power = 1;
        for (int k = 0; k < s->nsymbols; k++)
            for (int i = 0; i < s->power[term][k]; i++)
                power *= s->size[p][k];
        double x = behind(f, bits[p]);
        if (!(fabs(x) < 1e15)) return false;
        value[p] = (int64_t)llround(x / (double)power) * power;
        if (figure_of(f, value[p]) != bits[p]) return false;
    }
    return pass_through(s, value, f->coef, &last) &&
           figure_of(f, last) == bits[s->npoints - 1];
}

/* Tries one way in which the number may depend on a formula.  Where it has too
 * few digits to tell the whole number that is behind it, that may be found as a
 * multiple of powers. */
static bool fits_so(nb_figure *f, const nb_samples *s, const int64_t *bits)
{
    for (int t = 0; t < s->nterms; t++)
        if (fits_term(f, s, bits, t)) return true;
    return false;
}

bool nb_figure_fit(nb_figure *f, const nb_samples *s, nb_dtype dtype,
                   const int64_t *bits)
{
    static const double over[] = {1, -1, 2, -2, 0.5, -0.5, 4, -4};
    *f = (nb_figure){.dtype = dtype, .over = 1};
    if (!nb_dtype_is_float(dtype)) return nb_formula_fit(s, bits, f->coef);
    for (int root = 0; root < 2; root++) {
        f->root = root;
        f->divides = false;
        if (fits_so(f, s, bits)) return true;
        f->divides = true;
        for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
            f->over = over[i];
            if (fits_so(f, s, bits)) return true;
        }
    }
    return false;
}

int64_t nb_figure_at(const nb_figure *f, const nb_samples *s,
                     const int64_t *term)
{
    int64_t formula = nb_formula_at(s, f->coef, term);
    return nb_dtype_is_float(f->dtype) ? figure_of(f, formula) : formula;
}
