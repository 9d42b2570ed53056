/* formula.c - evaluating values of a nest at one point, in double. */
#include "lower/formula.h"

#include "core/convert.h"

#include <math.h>

#define T                  double
#define M(f)               f
#define nb_floor_div(a, b) floor((a) / (b))
#define nb_float_mod(a, b) ((a) - (b)*floor((a) / (b)))

#define SCALAR(name, form, types, cost, f, i)             \
    static double do_##name(double a, double b, double c) \
    {                                                     \
        (void)a, (void)b, (void)c;                        \
        return f;                                         \
    }
#include "core/scalars.def"

#undef T
#undef M

static double (*const instruction[NB_S_count])(double, double, double) = {
    NULL,
#define SCALAR(name, form, types, cost, f, i) do_##name,
#include "core/scalars.def"
};

static bool is_real(nb_dtype d)
{
    return d == NB_BOOL || nb_dtype_is_float(d);
}

static bool takes_part(nb_formula *f, int k)
{
    const nb_nest_value *v = &f->nest->value[k];
    if (v->kind == NB_NEST_LOAD) {
        if (f->n == NB_MAX_FORMULA_LOADS || !is_real(v->stored)) return false;
        f->load[f->n++] = k;
        return true;
    }
    if (v->kind == NB_NEST_CONST) return is_real(v->dtype);
    if (v->kind == NB_NEST_CONVERT)
        return nb_dtype_is_float(v->dtype) && is_real(v->compute);
    return v->kind == NB_NEST_SCALAR && is_real(v->dtype) &&
           is_real(v->compute);
}

bool nb_formula_of(const nb_nest *x, int v, nb_formula *f, bool *is)
{
    *f = (nb_formula){.nest = x, .v = v};
    *is = true;
    if (!(f->in = nb_alloc_zero((size_t)x->n + 1))) return false;
    f->in[v] = true;
    for (int k = v; *is && k >= 0; k--) {
        if (!f->in[k]) continue;
        *is = takes_part(f, k);
        for (int i = 0; *is && i < nb_nest_args(&x->value[k]); i++)
            f->in[x->value[k].arg[i]] = true;
    }
    return true;
}

void nb_formula_free(nb_formula *f)
{
    nb_free(f->in);
    f->in = NULL;
}

double nb_formula_value(const nb_formula *f, const double *load, double *room)
{
    for (int i = 0; i < f->n; i++)
        room[f->load[i]] = load[i];
    for (int k = 0; k <= f->v; k++) {
        const nb_nest_value *v = &f->nest->value[k];
        if (!f->in[k] || v->kind == NB_NEST_LOAD) continue;
        if (v->kind == NB_NEST_CONST)
            room[k] = nb_read_f64(&v->bits, v->dtype);
        else if (v->kind == NB_NEST_CONVERT)
            room[k] = room[v->arg[0]];
        else
            room[k] = instruction[v->scalar](room[v->arg[0]], room[v->arg[1]],
                                             room[v->arg[2]]);
    }
    return room[f->v];
}
