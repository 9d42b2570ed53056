/* random_real.c - real numbers drawn: uniform, normal, truncated normal.
 *
 * They are computed in float64 and rounded once.  Numbers spread evenly from 0
 * to 1 need no more than float32 for any dtype but float64, and neither do
 * normal ones: in float32 these are within 5 units in the last place of what
 * float64 gives. */
#include "ops/random.h"

#include "core/convert.h"
#include "ops/pointwise.h"

static bool float_arg(const nb_call *c, int k, nb_dtype *d)
{
    int64_t given = nb_arg_int(c, k);
    *d = given == NB_NONE ? nb_default_float() : (nb_dtype)given;
    return nb_dtype_is_float(*d) ||
           nb_fail(NB_ETYPE, "%s: dtype is %s: a float is needed", c->op->name,
                   nb_dtype_name(*d));
}

static nb_value dtype_value(nb_dtype d)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(d);
    return d ? given : none;
}

/* In [0, 1), with a bit for each of the significand. */
static nb_tensor *unit(nb_tensor *key, nb_extents s, nb_dtype d)
{
    bool wide = d == NB_F64;
    nb_tensor *w = nb_draw_bits(key, s, wide ? NB_U64 : NB_U32, 0, NB_FIRST);
    w = nb_bitwise_right_shift(w, nb_count(wide ? 11 : 8));
    return nb_mul(nb_cast(w, wide ? NB_F64 : NB_F32),
                  nb_num(wide ? 0x1p-53 : 0x1p-24));
}

/* random_uniform */

static double rounded(double x, nb_dtype d)
{
    uint64_t to;
    nb_write_f64(&to, d, x);
    return nb_read_f64(&to, d);
}

/* The greatest number of dtype d below x, which is one: magnitudes are ordered
 * as their bits are. */
static double before(double x, nb_dtype d)
{
    uint64_t w = 0;
    nb_write_f64(&w, d, fabs(x));
    w = x > 0 ? w - 1 : w + 1;
    return x > 0 ? nb_read_f64(&w, d) : -nb_read_f64(&w, d);
}

/* Of low + (high - low) u rounding makes high in rare cases, and often in a
 * narrow dtype; those become the number before it. */
static nb_tensor *uniform(const nb_call *c)
{
    nb_extents s;
    nb_dtype d;
    if (!nb_draw_shape(c, 0, &s) || !float_arg(c, 3, &d)) return NULL;
    double low = rounded(nb_arg_float(c, 1), d);
    double high = rounded(nb_arg_float(c, 2), d);
    if (!(low <= high) || !isfinite(high - low))
        return nb_fail(NB_EVALUE,
                       "random_uniform: from %g to %g in %s: two numbers, low "
                       "not above high, and a finite distance are needed",
                       nb_arg_float(c, 1), nb_arg_float(c, 2),
                       nb_dtype_name(d));
    nb_tensor *u = unit(c->in[0], s, d);
    bool whole = low == 0 && high == 1;
    if (!whole)
        u = nb_add(nb_mul(nb_cast(u, NB_F64), nb_num(high - low)), nb_num(low));
    u = nb_cast(u, d);
    if (whole && (d == NB_F32 || d == NB_F64)) return u;
    return nb_minimum(u, nb_num(fmax(low, before(high, d))));
}

COMPOSE(uniform, uniform(c))

nb_op nb_op_random_uniform = {
    .name = "random_uniform",
    .doc = "Numbers spread evenly from low to below high, which are rounded "
           "to the dtype first.",
    .example = "random_uniform([3, 9], shape=(2, 3), low=-1.0, high=3.0, "
               "dtype=float64) = [[0.9215856019665289, 0.2798687297785705, "
               "2.1739410475047873], [-0.8651746498453878, "
               "0.8844651342215135, -0.4427466084129965]]",
    .params = "key, shape:ints=None, low:float=0.0, high:float=1.0, "
              "dtype:dtype=None",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = uniform_compose,
};

nb_tensor *nb_random_uniform(nb_tensor *key, int rank, const int64_t *shape,
                             double low, double high, nb_dtype dtype)
{
    nb_value v[] = {nb_shape_value(rank, shape), NB_V_FLOAT(low),
                    NB_V_FLOAT(high), dtype_value(dtype)};
    return nb_apply(&nb_op_random_uniform, 1, &key, 4, v, NB_CALLER);
}

/* random_normal */

/* Words that are drawn as integers with a sign, from -2^31 on. */
static nb_tensor *signed_words(nb_tensor *key, nb_extents s, int64_t stream)
{
    return nb_cast(nb_draw_bits(key, s, NB_U32, 0, stream), NB_I32);
}

/* i where it is not negative, else -1 - i. */
static nb_tensor *folded(nb_tensor *i)
{
    return nb_bitwise_xor(i, nb_bitwise_right_shift(i, nb_count(31)));
}

/* (i + 1/2) / 2^32 to one rounding. */
static nb_tensor *middle(nb_tensor *i)
{
    nb_tensor *x = nb_add(nb_cast(i, NB_F32), nb_num(0.5));
    return nb_mul(x, nb_num(0x1p-32));
}

/* Box and Muller: a point of the plane whose square of distance is -2 log u,
 * seen along a random direction, in float64. */
static nb_tensor *wide_normal(nb_tensor *key, nb_extents s)
{
    const double turn = 6.283185307179586;
    nb_tensor *far = nb_draw_open(key, s, true, NB_FIRST);
    nb_tensor *angle = nb_draw_open(key, s, true, NB_SECOND);
    return nb_mul(nb_sqrt(nb_mul(nb_log(far), nb_num(-2))),
                  nb_cos(nb_mul(angle, nb_num(turn))));
}

/* log u for u = (w + 1/2) / 2^32, w drawn as i.  What is left of u to the nearer
 * of 0 and 1, v, is exact as an integer and has all its digits as a float.  Near
 * 1, log(1 - v) is log u plus what u = 1 - v lost, but for v times that. */
static nb_tensor *log_of_draw(nb_tensor *i)
{
    nb_tensor *v = middle(folded(i)), *upper = nb_less(i, nb_count(0));
    nb_tensor *u = nb_where(upper, nb_sub(nb_num(1), v), v);
    nb_tensor *lost = nb_sub(nb_sub(nb_num(1), u), v);
    return nb_add(nb_log(u), nb_where(upper, lost, nb_num(0)));
}

/* The same in float32.  Of the angle a, cos 2 pi a = sin 2 pi (|a - 1/2| - 1/4)
 * has an argument that is again an integer over 2^32, and near 0 where the
 * cosine is. */
static nb_tensor *narrow_normal(nb_tensor *key, nb_extents s)
{
    const double turn = 6.283185307179586;
    nb_tensor *log = log_of_draw(signed_words(key, s, NB_FIRST));
    nb_tensor *a = nb_draw_bits(key, s, NB_U32, 0, NB_SECOND);
    a = nb_cast(nb_bitwise_xor(a, nb_count(0x80000000)), NB_I32);
    a = middle(nb_sub(folded(a), nb_count(1 << 30)));
    return nb_mul(nb_sqrt(nb_mul(log, nb_num(-2))),
                  nb_sin(nb_mul(a, nb_num(turn))));
}

static nb_tensor *normal(const nb_call *c)
{
    nb_extents s;
    nb_dtype d;
    double mean = nb_arg_float(c, 1), std = nb_arg_float(c, 2);
    if (!nb_draw_shape(c, 0, &s) || !float_arg(c, 3, &d)) return NULL;
    if (!(std >= 0))
        return nb_fail(NB_EVALUE,
                       "random_normal: std is %g: at least 0 is "
                       "needed",
                       std);
    nb_tensor *z =
        d == NB_F64 ? wide_normal(c->in[0], s) : narrow_normal(c->in[0], s);
    if (std != 1) z = nb_mul(z, nb_num(std));
    if (mean != 0) z = nb_add(z, nb_num(mean));
    return nb_cast(z, d);
}

COMPOSE(normal, normal(c))

nb_op nb_op_random_normal = {
    .name = "random_normal",
    .doc = "Numbers from the normal distribution.",
    .example = "random_normal([3, 9], shape=(2, 3), mean=1.0, std=2.0, "
               "dtype=float64) = [[3.3147682571056483, 1.3029073166290632, "
               "-0.0567886433969889], [3.7619042837268686, "
               "1.3633563169897094, 4.884788015157386]]",
    .params = "key, shape:ints=None, mean:float=0.0, std:float=1.0, "
              "dtype:dtype=None",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = normal_compose,
};

nb_tensor *nb_random_normal(nb_tensor *key, int rank, const int64_t *shape,
                            double mean, double std, nb_dtype dtype)
{
    nb_value v[] = {nb_shape_value(rank, shape), NB_V_FLOAT(mean),
                    NB_V_FLOAT(std), dtype_value(dtype)};
    return nb_apply(&nb_op_random_normal, 1, &key, 4, v, NB_CALLER);
}

/* random_truncated_normal */

static double normal_below(double x)
{
    return erfc(-x * M_SQRT1_2) / 2;
}

/* Halley's step for the z at which the normal distribution function is q. */
static nb_tensor *nearer(nb_tensor *z, nb_tensor *q)
{
    const double root = 2.5066282746310002; /* of 2 pi */
    nb_tensor *at = nb_mul(nb_erfc(nb_mul(z, nb_num(-M_SQRT1_2))), nb_num(0.5));
    nb_tensor *density = nb_exp(nb_mul(nb_square(z), nb_num(0.5)));
    nb_tensor *e = nb_mul(nb_mul(nb_sub(at, q), density), nb_num(root));
    nb_tensor *bend = nb_add(nb_mul(nb_mul(z, e), nb_num(0.5)), nb_num(1));
    return nb_sub(z, nb_div(e, bend));
}

/* The inverse of the normal distribution function.  On the side below one half,
 * where the function keeps its digits, an estimate good to 4.5e-4 (Abramowitz
 * and Stegun, 26.2.23) becomes exact in two steps. */
static nb_tensor *quantile(nb_tensor *p)
{
    nb_tensor *q = nb_minimum(p, nb_sub(nb_num(1), p));
    q = nb_maximum(q, nb_num(0x1p-1022));
    nb_tensor *t = nb_sqrt(nb_mul(nb_log(q), nb_num(-2)));
    nb_tensor *above = nb_add(nb_mul(t, nb_num(0.010328)), nb_num(0.802853));
    above = nb_add(nb_mul(t, above), nb_num(2.515517));
    nb_tensor *under = nb_add(nb_mul(t, nb_num(0.001308)), nb_num(0.189269));
    under = nb_add(nb_mul(t, under), nb_num(1.432788));
    under = nb_add(nb_mul(t, under), nb_num(1));
    nb_tensor *z = nb_sub(nb_div(above, under), t);
    z = nearer(nearer(z, q), q);
    return nb_where(nb_less(p, nb_num(0.5)), z, nb_neg(z));
}

/* The interval is turned over, if need be, so that most of it is below zero,
 * where probabilities near the end are small numbers and not near one. */
static nb_tensor *truncated(const nb_call *c)
{
    nb_extents s;
    nb_dtype d;
    double lower = nb_arg_float(c, 0), upper = nb_arg_float(c, 1);
    if (!nb_draw_shape(c, 2, &s) || !float_arg(c, 3, &d)) return NULL;
    if (!(lower < upper))
        return nb_fail(NB_EVALUE,
                       "random_truncated_normal: from %g to %g: lower is less "
                       "than upper",
                       lower, upper);
    bool turned = lower + upper > 0;
    double from = normal_below(turned ? -upper : lower);
    double to = normal_below(turned ? -lower : upper);
    nb_tensor *p = nb_draw_open(c->in[0], s, true, NB_FIRST);
    p = nb_add(nb_mul(p, nb_num(to - from)), nb_num(from));
    nb_tensor *z = turned ? nb_neg(quantile(p)) : quantile(p);
    z = nb_minimum(nb_maximum(z, nb_num(lower)), nb_num(upper));
    return nb_cast(z, d);
}

COMPOSE(truncated, truncated(c))

nb_op nb_op_random_truncated_normal = {
    .name = "random_truncated_normal",
    .doc = "Numbers from the part of the standard normal distribution that "
           "lies between lower and upper.",
    .example = "random_truncated_normal([3, 9], lower=-1.0, upper=2.0, "
               "shape=(2, 3), dtype=float64) = [[0.2121371008123589, "
               "0.5690133379396226, -0.4462534012398968], "
               "[1.641547012041782, 0.2316539917561139, "
               "1.0948494995907527]]",
    .params = "key, lower:float, upper:float, shape:ints=None, "
              "dtype:dtype=None",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = truncated_compose,
};

nb_tensor *nb_random_truncated_normal(nb_tensor *key, double lower,
                                      double upper, int rank,
                                      const int64_t *shape, nb_dtype dtype)
{
    nb_value v[] = {NB_V_FLOAT(lower), NB_V_FLOAT(upper),
                    nb_shape_value(rank, shape), dtype_value(dtype)};
    return nb_apply(&nb_op_random_truncated_normal, 1, &key, 4, v, NB_CALLER);
}
