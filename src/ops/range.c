/* range.c - numbers in a row.
 *
 * iota is the primitive, 0, 1, 2 and so on; the others are computed from it,
 * integers exactly, all else in float64. */
#include "ops/view.h"

#include "core/convert.h"
#include "core/point.h"

#include <math.h>

/* iota */

static bool iota_check(nb_call *c)
{
    int64_t n = nb_arg_int(c, 0);
    return n >= 0 || nb_fail(NB_EVALUE,
                             "iota: a size of %lld: at least 0 is "
                             "needed",
                             (long long)n);
}

static bool iota_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    (void)k;
    out->size[0] = nb_extent_of(nb_arg_int(c, 0));
    return nb_arg_dtype(c, 1, NB_I64, dtype);
}

static bool iota_kernel(const nb_kernel *k)
{
    enum { RUN = 1024 };
    const nb_view *y = &k->view[0];
    int64_t run[RUN], item = (int64_t)nb_dtype_size(y->dtype);
    for (int64_t at = 0; at < y->size[0]; at += RUN) {
        int64_t n = y->size[0] - at < RUN ? y->size[0] - at : RUN;
        for (int64_t i = 0; i < n; i++)
            run[i] = at + i;
        nb_convert(y->data + at * y->stride[0] * item, y->dtype, y->stride[0],
                   run, NB_I64, 1, n);
    }
    return true;
}

static bool iota_point(nb_point *p, const nb_call *c, nb_val *y)
{
    nb_dtype d;
    if (!nb_arg_dtype(c, 1, NB_I64, &d)) return false;
    *y = nb_p_convert(p, nb_p_along(p, 0, 0, 1), d);
    return true;
}

/* A block counts from its start, which is another on each device. */
static nb_tensor *iota_local(const nb_call *c, const nb_blocks *b)
{
    int64_t n = b->to->size[0];
    nb_dtype d;
    if (!nb_arg_dtype(c, 1, NB_I64, &d)) return NULL;
    if (n == nb_arg_int(c, 0)) return nb_iota(n, d);
    nb_tensor *start = b->number(b, b->to->start[0]);
    return nb_cast(nb_add(nb_iota(n, NB_I64), start), d);
}

nb_op nb_op_iota = {
    .name = "iota",
    .doc = "The numbers 0, 1, 2 and so on.",
    .example = "iota(size=4, dtype=int32) = [0, 1, 2, 3]",
    .params = "size:int, dtype:dtype=int64",
    .check = iota_check,
    .sig = "-> ?",
    .infer = iota_infer,
    .out = NB_OUT_ATTR,
    .kind = NB_CONSTANT,
    .kernel = iota_kernel,
    .point = iota_point,
    .local = iota_local,
    .splits = 1u << NB_PASS,
};

nb_tensor *nb_iota(int64_t size, nb_dtype dtype)
{
    nb_value v[] = {NB_V_INT(size), NB_V_INT(dtype)};
    return nb_apply(&nb_op_iota, 0, NULL, dtype ? 2 : 1, v, NB_CALLER);
}

/* arange */

/* Steps from start to before stop, exactly: differences of int64 fit uint64. */
static uint64_t count_int(int64_t start, int64_t stop, int64_t step)
{
    bool up = step > 0;
    if (up ? stop <= start : stop >= start) return 0;
    uint64_t gap = up ? (uint64_t)stop - (uint64_t)start
                      : (uint64_t)start - (uint64_t)stop;
    uint64_t by = up ? (uint64_t)step : -(uint64_t)step;
    return (gap - 1) / by + 1;
}

static bool arange_int_compose(const nb_call *c, nb_results *r)
{
    int64_t start = nb_arg_int(c, 0), step = nb_arg_int(c, 2);
    nb_dtype d;
    if (!nb_arg_dtype(c, 3, NB_I64, &d)) return false;
    if (step == 0) return nb_fail(NB_EVALUE, "arange: step is 0");
    uint64_t n = count_int(start, nb_arg_int(c, 1), step);
    if (n > INT64_MAX)
        return nb_fail(NB_EVALUE, "arange: more numbers than an int64 counts");
    nb_tensor *i = nb_iota((int64_t)n, NB_I64);
    if (step != 1) i = nb_mul(i, nb_count(step));
    if (start != 0) i = nb_add(i, nb_count(start));
    return nb_results_add(r, nb_cast(i, d));
}

nb_op nb_op_arange_int = {
    .name = "arange_int",
    .doc = "The integers from start to before stop, step apart.",
    .example = "arange_int(start=7, stop=0, step=-3) = [7, 4, 1]",
    .params = "start:int, stop:int, step:int=1, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = arange_int_compose,
};

static nb_tensor *arange_value(nb_op *op, nb_value start, nb_value stop,
                               nb_value step, nb_dtype dtype, void *caller)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {start, stop, step, dtype ? given : none};
    return nb_apply(op, 0, NULL, 4, v, caller);
}

nb_tensor *nb_arange_int(int64_t start, int64_t stop, int64_t step,
                         nb_dtype dtype)
{
    return arange_value(&nb_op_arange_int, (nb_value)NB_V_INT(start),
                        (nb_value)NB_V_INT(stop), (nb_value)NB_V_INT(step),
                        dtype, NB_CALLER);
}

/* start + i step for i below n, in float64. */
static nb_tensor *ladder(int64_t n, double start, double step)
{
    nb_tensor *i = nb_iota(n, NB_F64);
    return nb_add(nb_mul(i, nb_num(step)), nb_num(start));
}

/* Numbers of another kind than floats are cut off, as NumPy does, downwards.*/
static nb_tensor *rounded(nb_tensor *x, nb_dtype d)
{
    return nb_cast(nb_dtype_is_integer(d) ? nb_floor(x) : x, d);
}

static bool arange_float_compose(const nb_call *c, nb_results *r)
{
    double start = nb_arg_float(c, 0), step = nb_arg_float(c, 2);
    double n = ceil((nb_arg_float(c, 1) - start) / step);
    nb_dtype d;
    if (!nb_arg_dtype(c, 3, nb_default_float(), &d)) return false;
    if (step == 0) return nb_fail(NB_EVALUE, "arange: step is 0");
    if (!(n < 0x1p62))
        return nb_fail(NB_EVALUE,
                       "arange: %g numbers from %g to %g, %g apart: too many "
                       "to count",
                       n, start, nb_arg_float(c, 1), step);
    return nb_results_add(
        r, nb_cast(ladder(n > 0 ? (int64_t)n : 0, start, step), d));
}

nb_op nb_op_arange_float = {
    .name = "arange_float",
    .doc = "The numbers start, start + step and so on to before stop; in "
           "the default float if no dtype is given.",
    .example = "arange_float(start=0.5, stop=2.0, step=0.5) = "
               "[0.5, 1.0, 1.5]",
    .params = "start:float, stop:float, step:float=1.0, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = arange_float_compose,
};

nb_tensor *nb_arange_float(double start, double stop, double step,
                           nb_dtype dtype)
{
    return arange_value(&nb_op_arange_float, (nb_value)NB_V_FLOAT(start),
                        (nb_value)NB_V_FLOAT(stop), (nb_value)NB_V_FLOAT(step),
                        dtype, NB_CALLER);
}

/* linspace */

/* The last number is stop itself, whatever rounding made of it. */
static bool linspace_compose(const nb_call *c, nb_results *r)
{
    double start = nb_arg_float(c, 0), stop = nb_arg_float(c, 1);
    int64_t n = nb_arg_int(c, 2);
    bool ends = nb_arg_int(c, 4);
    nb_dtype d;
    if (!nb_arg_dtype(c, 3, nb_default_float(), &d)) return false;
    if (n < 0)
        return nb_fail(NB_EVALUE, "linspace: num is %lld: at least 0 is needed",
                       (long long)n);
    int64_t gaps = ends ? n - 1 : n;
    nb_tensor *x = ladder(n, start, gaps > 0 ? (stop - start) / gaps : 0);
    if (ends && n > 1) {
        nb_tensor *last = nb_equal(nb_iota(n, NB_I64), nb_count(n - 1));
        x = nb_where(last, nb_num(stop), x);
    }
    return nb_results_add(r, rounded(x, d));
}

nb_op nb_op_linspace = {
    .name = "linspace",
    .doc = "num numbers from start to stop, evenly apart; with endpoint, "
           "stop is the last of them, else the one that would follow.",
    .example = "linspace(start=1.0, stop=3.0, num=5) = "
               "[1.0, 1.5, 2.0, 2.5, 3.0]",
    .params = "start:float, stop:float, num:int, *, dtype:dtype=None, "
              "endpoint:bool=True",
    .kind = NB_COMPOSITE,
    .compose = linspace_compose,
};

nb_tensor *nb_linspace(double start, double stop, int64_t num, bool endpoint,
                       nb_dtype dtype)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_FLOAT(start), NB_V_FLOAT(stop), NB_V_INT(num),
                    dtype ? given : none, NB_V_INT(endpoint)};
    return nb_apply(&nb_op_linspace, 0, NULL, 5, v, NB_CALLER);
}

/* hann_window */

/* (1 - cos(2 pi i / n)) / 2, where n is the length of a period. */
static bool hann_window_compose(const nb_call *c, nb_results *r)
{
    int64_t length = nb_arg_int(c, 0);
    nb_dtype d;
    if (!nb_arg_dtype(c, 2, nb_default_float(), &d)) return false;
    if (length < 0)
        return nb_fail(NB_EVALUE,
                       "hann_window: window_length is %lld: at least 0 is "
                       "needed",
                       (long long)length);
    if (length <= 1) return nb_results_add(r, nb_ones(1, &length, d));
    int64_t n = nb_arg_int(c, 1) ? length : length - 1;
    nb_tensor *turn = ladder(length, 0, 2 * 3.14159265358979323846 / n);
    nb_tensor *half = nb_mul(nb_cos(turn), nb_num(0.5));
    return nb_results_add(r, nb_cast(nb_sub(nb_num(0.5), half), d));
}

nb_op nb_op_hann_window = {
    .name = "hann_window",
    .doc = "The Hann window, a raised cosine: one period of it without its "
           "end, or, if not periodic, symmetric from zero to zero.",
    .example = "hann_window(window_length=5, periodic=False) = "
               "[0.0, 0.5, 1.0, 0.5, 0.0]",
    .params = "window_length:int, *, periodic:bool=True, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = hann_window_compose,
};

nb_tensor *nb_hann_window(int64_t window_length, bool periodic, nb_dtype dtype)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_INT(window_length), NB_V_INT(periodic),
                    dtype ? given : none};
    return nb_apply(&nb_op_hann_window, 0, NULL, 3, v, NB_CALLER);
}
