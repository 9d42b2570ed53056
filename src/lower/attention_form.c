/* attention_form.c - sums and products of forms, and those that attention ends
 * in. */
#include "lower/attention_form.h"

#include <math.h>

nb_form nb_form_times(nb_form x, nb_form y, int sign)
{
    nb_form z = {.n = x.n * y.n};
    if (z.n > NB_FORM_TERMS || (sign < 0 && y.n != 1)) return (nb_form){0};
    for (int k = 0; k < z.n; k++) {
        int i = k / y.n, j = k % y.n;
        z.a[k] = sign > 0 ? x.a[i] * y.a[j] : x.a[i] / y.a[j];
        z.e[k] = (int8_t)(x.e[i] + sign * y.e[j]);
        z.l[k] = (int8_t)(x.l[i] + sign * y.l[j]);
        z.p[k] = (int8_t)(x.p[i] + sign * y.p[j]);
        z.r[k] = (int8_t)(x.r[i] + sign * y.r[j]);
    }
    return z;
}

nb_form nb_form_plus(nb_form x, nb_form y, int sign)
{
    nb_form z = x;
    if (x.n + y.n > NB_FORM_TERMS) return (nb_form){0};
    for (int j = 0; j < y.n; j++, z.n++) {
        z.a[z.n] = sign * y.a[j];
        z.e[z.n] = y.e[j], z.l[z.n] = y.l[j];
        z.p[z.n] = y.p[j], z.r[z.n] = y.r[j];
    }
    return z;
}

/* Along keys w adds up to sum, and w dp to sum mean; what does not depend on
 * keys stays. */
nb_form nb_form_added_up(nb_form x)
{
    for (int k = 0; k < x.n; k++) {
        if (x.e[k] != 1 || x.p[k] < 0 || x.p[k] > 1) return (nb_form){0};
        x.r[k] = (int8_t)(x.r[k] + x.p[k]);
        x.l[k]++;
        x.e[k] = x.p[k] = 0;
    }
    return x;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 0.01 * fabs(b);
}

static bool term_is(nb_form x, int k, int p, int r)
{
    return x.e[k] == 1 && x.l[k] == -1 && x.p[k] == p && x.r[k] == r;
}

bool nb_form_is_weights(nb_form x)
{
    return x.n == 1 && term_is(x, 0, 0, 0) && near(x.a[0], 1);
}

/* scale weights (dp - mean) */
bool nb_form_is_ds(nb_form x, double scale)
{
    int p = x.p[0] ? 0 : 1;
    return x.n == 2 && term_is(x, p, 1, 0) && term_is(x, 1 - p, 0, 1) &&
           near(x.a[p], scale) && near(x.a[1 - p], -scale);
}
