/* random.c - random numbers as functions of a key.
 *
 * Two primitives: words of a key's stream, and a key folded with a number.  The
 * distributions are made of the first by other ops, in float64 where rounding
 * would show, so element i of a draw is a function of key and i.
 *
 * The four words of a Philox counter: the index of a block in two, the number
 * of the stream, and what the block is for.  Streams 0 and 1 are drawn from, 2
 * gives keys; so what is split from a key, folded into it and drawn from it
 * have nothing in common. */
#include "base/philox.h"
#include "core/convert.h"
#include "ops/pointwise.h"
#include "ops/view.h"

#include <pthread.h>
#include <string.h>

enum { FOR_BITS, FOR_FOLD, FOR_PROCESS };
enum { FIRST, SECOND, KEYS };

typedef struct sizes {
    int n;
    const int64_t *at;
} sizes;

static bool is_key(const nb_tensor *x)
{
    return nb_dtype_is_integer((nb_dtype)x->dtype) && x->rank >= 1 &&
           nb_size(x, -1) == 2;
}

static bool check_key(nb_call *c)
{
    const nb_tensor *x = c->in[0];
    nb_shape s = nb_tensor_shape(x);
    return (is_key(x) && x->rank == 1) ||
           nb_fail(is_key(x) ? NB_EVALUE : NB_ETYPE,
                   "%s: a key is uint32 of shape (2,), not %s of shape %s%s",
                   c->op->name, nb_dtype_name((nb_dtype)x->dtype),
                   nb_shape_text(&s),
                   is_key(x) ? ": use vmap over several keys" : "");
}

static bool check_sizes(const char *who, sizes s)
{
    if (s.n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "%s: rank %d is not in 0 to %d", who, s.n,
                       NB_MAX_RANK);
    for (int d = 0; d < s.n; d++)
        if (s.at[d] < 0)
            return nb_fail(NB_EVALUE, "%s: axis %d of shape %s is negative",
                           who, d, nb_sizes_text(s.n, s.at));
    return true;
}

/* Attribute k as a shape; None gives n < 0. */
static bool sizes_arg(const nb_call *c, int k, sizes *s)
{
    s->at = nb_arg_list(c, k, &s->n);
    return check_sizes(c->op->name, *s);
}

/* The same where None is no axis at all. */
static bool shape_arg(const nb_call *c, int k, sizes *s)
{
    if (!sizes_arg(c, k, s)) return false;
    if (s->n < 0) s->n = 0;
    return true;
}

static nb_value shape_value(int rank, const int64_t *shape)
{
    nb_value none = NB_V_NONE, given = NB_V_LIST(rank, shape);
    return rank < 0 ? none : given;
}

static nb_value dtype_value(nb_dtype d)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(d);
    return d ? given : none;
}

static bool float_arg(const nb_call *c, int k, nb_dtype *d)
{
    int64_t given = nb_arg_int(c, k);
    *d = given == NB_NONE ? nb_default_float() : (nb_dtype)given;
    return nb_dtype_is_float(*d) ||
           nb_fail(NB_ETYPE, "%s: dtype is %s: a float is needed", c->op->name,
                   nb_dtype_name(*d));
}

/* random_bits: words of the stream of a key. */

static bool bits_check(nb_call *c)
{
    sizes s;
    int64_t d = nb_arg_int(c, 1);
    if (!check_key(c) || !sizes_arg(c, 0, &s)) return false;
    if (d != NB_U64 && (d != NB_U32 || nb_arg_int(c, 2) != 0))
        return nb_fail(NB_ETYPE,
                       "random_bits: dtype is %s: uint64, or uint32 "
                       "for all words, is needed",
                       nb_dtype_name((nb_dtype)d));
    return true;
}

static bool bits_sign(const nb_call *c, nb_text *t)
{
    int n;
    nb_arg_list(c, 0, &n);
    nb_text_add(t, "k ->");
    for (int d = 0; d < n; d++)
        nb_text_add(t, " ?");
    return nb_text_add(t, "; replicate{k}; k=2");
}

static bool bits_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int n;
    const int64_t *size = nb_arg_list(c, 0, &n);
    (void)k;
    for (int d = 0; d < n; d++)
        out->size[d] = nb_extent_of(size[d]);
    *dtype = (nb_dtype)nb_arg_int(c, 1);
    return true;
}

static void read_key(const nb_view *key, uint32_t to[2])
{
    int64_t step = key->stride[0] * (int64_t)nb_dtype_size(key->dtype);
    to[0] = (uint32_t)nb_read_i64(key->data, key->dtype);
    to[1] = (uint32_t)nb_read_i64(key->data + step, key->dtype);
}

static void block(uint32_t out[4], const uint32_t key[2], uint64_t at,
                  int64_t stream, int purpose)
{
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)stream,
                           (uint32_t)purpose};
    nb_philox(out, key, counter);
}

static void fill_u32(uint32_t *to, int64_t n, const uint32_t key[2],
                     int64_t stream)
{
    uint32_t w[4];
    for (int64_t i = 0; i < n; i += 4) {
        block(w, key, (uint64_t)i / 4, stream, FOR_BITS);
        memcpy(to + i, w, sizeof *to * (size_t)(n - i < 4 ? n - i : 4));
    }
}

/* Below `below`, 0 standing for 2^64, as the upper word of a product: no value
 * is more probable than another by more than below / 2^64. */
static void fill_u64(uint64_t *to, int64_t n, const uint32_t key[2],
                     int64_t stream, uint64_t below)
{
    uint32_t w[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 2 == 0) block(w, key, (uint64_t)i / 2, stream, FOR_BITS);
        uint64_t all = (uint64_t)w[i % 2 * 2] << 32 | w[i % 2 * 2 + 1];
        to[i] = below ? (uint64_t)((unsigned __int128)all * below >> 64) : all;
    }
}

static bool bits_kernel(const nb_kernel *k)
{
    const nb_view *y = &k->view[1];
    int64_t n = 1, stream = nb_arg_int(k->call, 3);
    uint32_t key[2];
    read_key(&k->view[0], key);
    for (int d = 0; d < y->rank; d++)
        n *= y->size[d];
    if (y->dtype == NB_U32)
        fill_u32((uint32_t *)y->data, n, key, stream);
    else
        fill_u64((uint64_t *)y->data, n, key, stream,
                 (uint64_t)nb_arg_int(k->call, 2));
    return true;
}

nb_op nb_op_random_bits = {
    .name = "random_bits",
    .doc = "Random words of a stream of the key, uint32 or uint64; the latter "
           "below a bound, if it is not 0.",
    .example = "random_bits([0, 0], shape=(2, 2), dtype=uint32) = "
               "[[1713891541, 3781805453], [3159862348, 2600524760]]",
    .params = "key, shape:ints, dtype:dtype=uint32, below:int=0, "
              "stream:int=0",
    .check = bits_check,
    .sign = bits_sign,
    .infer = bits_infer,
    .kind = NB_CONSTANT,
    .out = NB_OUT_ATTR,
    .fixed = 1,
    .kernel = bits_kernel,
};

static nb_tensor *bits(nb_tensor *key, sizes s, nb_dtype d, uint64_t below,
                       int64_t stream)
{
    nb_value v[] = {NB_V_LIST(s.n, s.at), NB_V_INT(d), NB_V_INT(below),
                    NB_V_INT(stream)};
    return nb_apply(&nb_op_random_bits, 1, &key, 4, v, NB_CALLER);
}

/* Keys. */

static nb_tensor *key_new(const uint32_t word[2])
{
    return nb_constant(NB_U32, 1, (int64_t[]){2}, word);
}

static nb_tensor *seeded(int64_t seed)
{
    uint32_t word[2] = {(uint32_t)((uint64_t)seed >> 32), (uint32_t)seed};
    return key_new(word);
}

COMPOSE(key, seeded(nb_arg_int(c, 0)))

nb_op nb_op_random_key = {
    .name = "random_key",
    .doc = "The key of a seed.",
    .example = "random_key(seed=4294967303) = [1, 7]",
    .params = "seed:int",
    .kind = NB_COMPOSITE,
    .compose = key_compose,
    .exempt = "listing: a key is data and not computed",
};

nb_tensor *nb_random_key(int64_t seed)
{
    return nb_apply(&nb_op_random_key, 0, NULL, 1, &(nb_value)NB_V_INT(seed),
                    NB_CALLER);
}

static nb_tensor *split(const nb_call *c)
{
    int64_t num = nb_arg_int(c, 0);
    if (num < 0)
        return nb_fail(NB_EVALUE, "random_split: %lld keys: num is at least 0",
                       (long long)num);
    return bits(c->in[0], (sizes){2, (int64_t[]){num, 2}}, NB_U32, 0, KEYS);
}

COMPOSE(split, split(c))

nb_op nb_op_random_split = {
    .name = "random_split",
    .doc = "Keys made from one key, as rows; what they give is independent of "
           "each other and of what the key itself gives.",
    .example = "random_split([3, 9], num=2) = "
               "[[3886721428, 3295259412], [3689155589, 1180305183]]",
    .params = "key, num:int=2",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = split_compose,
};

nb_tensor *nb_random_split(nb_tensor *key, int64_t num)
{
    return nb_apply(&nb_op_random_split, 1, &key, 1, &(nb_value)NB_V_INT(num),
                    NB_CALLER);
}

static bool fold_check(nb_call *c)
{
    nb_shape s = nb_tensor_shape(c->in[0]);
    if (!is_key(c->in[0]))
        return nb_fail(NB_ETYPE,
                       "random_fold_in: keys are uint32 of shape (..., 2), "
                       "not %s of shape %s",
                       nb_dtype_name((nb_dtype)c->in[0]->dtype),
                       nb_shape_text(&s));
    nb_dtype d = (nb_dtype)c->in[1]->dtype;
    return nb_dtype_is_integer(d) ||
           nb_fail(NB_ETYPE, "random_fold_in: data is %s: integers are needed",
                   nb_dtype_name(d));
}

static bool fold_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    (void)c, (void)k, (void)out;
    *dtype = NB_U32;
    return true;
}

static bool fold_kernel(const nb_kernel *k)
{
    const nb_view *data = &k->view[1], *y = &k->view[2];
    uint32_t key[2], w[4], *to = (uint32_t *)y->data;
    read_key(&k->view[0], key);
    block(w, key, (uint64_t)nb_read_i64(data->data, data->dtype), 0, FOR_FOLD);
    to[0] = w[0];
    to[y->stride[0]] = w[1];
    return true;
}

nb_op nb_op_random_fold_in = {
    .name = "random_fold_in",
    .doc = "A key made from a key and an integer, say the number of a step: "
           "another one for every integer.",
    .example = "random_fold_in([3, 9], [[5], [-1]]) = "
               "[[[2554297194, 748898766]], [[87061520, 2122369212]]]",
    .params = "key, data",
    .check = fold_check,
    .sig = "... k, ... -> ... k; replicate{k}; k=2",
    .infer = fold_infer,
    .kind = NB_CONSTANT,
    .out = NB_OUT_ATTR,
    .fixed = 3,
    .kernel = fold_kernel,
};

nb_tensor *nb_random_fold_in(nb_tensor *key, nb_tensor *data)
{
    return nb_apply(&nb_op_random_fold_in, 2, (nb_tensor *[]){key, data}, 0,
                    NULL, NB_CALLER);
}

/* A thin lane is one in which x does not differ. */
static nb_tensor *key_like(const nb_call *c)
{
    nb_tensor *key = nb_same(c->in[0]);
    nb_shape s = nb_tensor_shape(c->in[1]);
    for (int l = 0; key && l < s.nlanes; l++) {
        if (s.lane[l].thin) continue;
        nb_tensor *i = nb_iota(nb_extent_get(s.lane[l].size), NB_I64);
        key = nb_random_fold_in(key, nb_hide(i, 0, s.lane[l].id));
    }
    return key;
}

COMPOSE(key_like, key_like(c))

nb_op nb_op_random_key_like = {
    .name = "random_key_like",
    .doc = "The key, and under vmap another one in every lane in which x "
           "differs.",
    .example = "random_key_like([3, 9], 1.5) = [3, 9]",
    .params = "key, x",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 3,
    .compose = key_like_compose,
    .exempt = "batch: a lane has a key of its own; "
              "batch2: a lane has a key of its own",
};

nb_tensor *nb_random_key_like(nb_tensor *key, nb_tensor *x)
{
    return nb_apply(&nb_op_random_key_like, 2, (nb_tensor *[]){key, x}, 0, NULL,
                    NB_CALLER);
}

/* The keys of the process. */
static struct {
    pthread_mutex_t lock;
    uint32_t seed[2];
    uint64_t drawn;
} generator = {.lock = PTHREAD_MUTEX_INITIALIZER};

nb_tensor *nb_next_key(void)
{
    uint32_t w[4];
    pthread_mutex_lock(&generator.lock);
    block(w, generator.seed, generator.drawn++, 0, FOR_PROCESS);
    pthread_mutex_unlock(&generator.lock);
    return key_new(w);
}

void nb_manual_seed(int64_t seed)
{
    pthread_mutex_lock(&generator.lock);
    generator.seed[0] = (uint32_t)((uint64_t)seed >> 32);
    generator.seed[1] = (uint32_t)seed;
    generator.drawn = 0;
    pthread_mutex_unlock(&generator.lock);
}

/* Parts of the unit interval.  [0, 1) has a bit for each of the significand;
 * (0, 1) is symmetric and has the middles of 2^52 equal parts, or of 2^32. */

static nb_tensor *unit(nb_tensor *key, sizes s, nb_dtype d)
{
    bool wide = d == NB_F64;
    nb_tensor *w = bits(key, s, wide ? NB_U64 : NB_U32, 0, FIRST);
    w = nb_bitwise_right_shift(w, nb_count(wide ? 11 : 8));
    return nb_mul(nb_cast(w, wide ? NB_F64 : NB_F32),
                  nb_num(wide ? 0x1p-53 : 0x1p-24));
}

static nb_tensor *open_unit(nb_tensor *key, sizes s, bool wide, int64_t stream)
{
    nb_tensor *w = bits(key, s, wide ? NB_U64 : NB_U32, 0, stream);
    if (wide) w = nb_bitwise_right_shift(w, nb_count(12));
    return nb_mul(nb_add(nb_cast(w, NB_F64), nb_num(0.5)),
                  nb_num(wide ? 0x1p-52 : 0x1p-32));
}

/* random_uniform */

static double rounded(double x, nb_dtype d)
{
    char to[8];
    nb_write_f64(to, d, x);
    return nb_read_f64(to, d);
}

/* The greatest number of dtype d below x, which is one. */
static double before(double x, nb_dtype d)
{
    char to[8] = {0};
    uint64_t w = 0;
    size_t n = nb_dtype_size(d);
    nb_write_f64(to, d, fabs(x));
    memcpy(&w, to, n);
    w = x > 0 ? w - 1 : w + 1;
    memcpy(to, &w, n);
    return x > 0 ? nb_read_f64(to, d) : -nb_read_f64(to, d);
}

/* Of low + (high - low) u rounding makes high in rare cases, and often in a
 * narrow dtype; those become the number before it. */
static nb_tensor *uniform(const nb_call *c)
{
    sizes s;
    nb_dtype d;
    if (!shape_arg(c, 0, &s) || !float_arg(c, 3, &d)) return NULL;
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
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = uniform_compose,
};

nb_tensor *nb_random_uniform(nb_tensor *key, int rank, const int64_t *shape,
                             double low, double high, nb_dtype dtype)
{
    nb_value v[] = {shape_value(rank, shape), NB_V_FLOAT(low), NB_V_FLOAT(high),
                    dtype_value(dtype)};
    return nb_apply(&nb_op_random_uniform, 1, &key, 4, v, NB_CALLER);
}

/* random_normal */

/* Box and Muller: a point of the plane whose square of distance is -2 log u,
 * seen along a random direction. */
static nb_tensor *normal(const nb_call *c)
{
    const double turn = 6.283185307179586;
    sizes s;
    nb_dtype d;
    double mean = nb_arg_float(c, 1), std = nb_arg_float(c, 2);
    if (!shape_arg(c, 0, &s) || !float_arg(c, 3, &d)) return NULL;
    if (!(std >= 0))
        return nb_fail(NB_EVALUE,
                       "random_normal: std is %g: at least 0 is "
                       "needed",
                       std);
    bool wide = d == NB_F64;
    nb_tensor *far = open_unit(c->in[0], s, wide, FIRST);
    nb_tensor *angle = open_unit(c->in[0], s, wide, SECOND);
    nb_tensor *z = nb_mul(nb_sqrt(nb_mul(nb_log(far), nb_num(-2))),
                          nb_cos(nb_mul(angle, nb_num(turn))));
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
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = normal_compose,
};

nb_tensor *nb_random_normal(nb_tensor *key, int rank, const int64_t *shape,
                            double mean, double std, nb_dtype dtype)
{
    nb_value v[] = {shape_value(rank, shape), NB_V_FLOAT(mean), NB_V_FLOAT(std),
                    dtype_value(dtype)};
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
    sizes s;
    nb_dtype d;
    double lower = nb_arg_float(c, 0), upper = nb_arg_float(c, 1);
    if (!shape_arg(c, 2, &s) || !float_arg(c, 3, &d)) return NULL;
    if (!(lower < upper))
        return nb_fail(NB_EVALUE,
                       "random_truncated_normal: from %g to %g: lower is less "
                       "than upper",
                       lower, upper);
    bool turned = lower + upper > 0;
    double from = normal_below(turned ? -upper : lower);
    double to = normal_below(turned ? -lower : upper);
    nb_tensor *p = open_unit(c->in[0], s, true, FIRST);
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
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = truncated_compose,
};

nb_tensor *nb_random_truncated_normal(nb_tensor *key, double lower,
                                      double upper, int rank,
                                      const int64_t *shape, nb_dtype dtype)
{
    nb_value v[] = {NB_V_FLOAT(lower), NB_V_FLOAT(upper),
                    shape_value(rank, shape), dtype_value(dtype)};
    return nb_apply(&nb_op_random_truncated_normal, 1, &key, 4, v, NB_CALLER);
}

/* random_bernoulli */

/* A number that is at hand is looked at. */
static bool check_probability(nb_tensor *p)
{
    if (p->rank || p->nlanes || !nb_tensor_done(p)) return true;
    double value = nb_item(p);
    return (value >= 0 && value <= 1) ||
           nb_fail(NB_EVALUE,
                   "random_bernoulli: p is %g: a probability is from 0 to 1",
                   value);
}

static nb_tensor *bernoulli(const nb_call *c)
{
    int64_t own[NB_MAX_RANK];
    sizes s;
    nb_tensor *p = c->nin > 1 ? c->in[1] : nb_scalar_float(0.5, NB_F64);
    if (!p || !sizes_arg(c, 0, &s) || !check_probability(p)) return NULL;
    if (s.n < 0) {
        nb_sizes(p, own);
        s = (sizes){nb_rank(p), own};
    }
    nb_tensor *bound = nb_mul(nb_cast(p, NB_F64), nb_num(0x1p32));
    nb_tensor *w = nb_cast(bits(c->in[0], s, NB_U32, 0, FIRST), NB_F64);
    return nb_less(w, nb_broadcast_to(bound, s.n, s.at));
}

COMPOSE(bernoulli, bernoulli(c))

nb_op nb_op_random_bernoulli = {
    .name = "random_bernoulli",
    .doc = "True with probability p (one half if it is not given) and else "
           "False, in the shape of p or in one that p broadcasts to.",
    .example = "random_bernoulli([3, 9], [[0.25], [0.75]], shape=(2, 3)) = "
               "[[False, True, False], [True, False, True]]",
    .params = "key, p=None, shape:ints=None",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = bernoulli_compose,
    .domain = {0, 1},
};

nb_tensor *nb_random_bernoulli(nb_tensor *key, nb_tensor *p, int rank,
                               const int64_t *shape)
{
    nb_value v = shape_value(rank, shape);
    return nb_apply(&nb_op_random_bernoulli, 2, (nb_tensor *[]){key, p}, 1, &v,
                    NB_CALLER);
}

/* random_randint */

static bool holds(nb_dtype d, int64_t x)
{
    int64_t back;
    char to[8];
    nb_write_i64(to, d, x);
    back = nb_read_i64(to, d);
    return back == x && (x >= 0 || !nb_dtype_is_unsigned(d));
}

/* In uint64 all is modulo 2^64, so the distance is right for any bounds. */
static nb_tensor *randint(const nb_call *c)
{
    sizes s;
    int64_t low = nb_arg_int(c, 1), high = nb_arg_int(c, 2);
    int64_t given = nb_arg_int(c, 3);
    nb_dtype d = given == NB_NONE ? NB_I64 : (nb_dtype)given;
    if (!shape_arg(c, 0, &s)) return NULL;
    if (!nb_dtype_is_integer(d))
        return nb_fail(NB_ETYPE,
                       "random_randint: dtype is %s: an integer "
                       "dtype is needed",
                       nb_dtype_name(d));
    if (low >= high || !holds(d, low) || !holds(d, high - 1))
        return nb_fail(NB_EVALUE,
                       "random_randint: from %lld to below %lld in %s: low is "
                       "less than high and the dtype holds what is between",
                       (long long)low, (long long)high, nb_dtype_name(d));
    nb_tensor *w =
        bits(c->in[0], s, NB_U64, (uint64_t)high - (uint64_t)low, FIRST);
    return nb_cast(nb_add(nb_cast(w, NB_I64), nb_count(low)), d);
}

COMPOSE(randint, randint(c))

nb_op nb_op_random_randint = {
    .name = "random_randint",
    .doc = "Integers from low to below high, all equally likely.",
    .example = "random_randint([3, 9], shape=(2, 3), low=-5, high=5, "
               "dtype=int16) = [[-1, -2, 2], [-5, -1, -4]]",
    .params = "key, shape:ints, low:int, high:int, dtype:dtype=int64",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = randint_compose,
};

nb_tensor *nb_random_randint(nb_tensor *key, int rank, const int64_t *shape,
                             int64_t low, int64_t high, nb_dtype dtype)
{
    nb_value v[] = {shape_value(rank, shape), NB_V_INT(low), NB_V_INT(high),
                    NB_V_INT(dtype ? dtype : NB_I64)};
    return nb_apply(&nb_op_random_randint, 1, &key, 4, v, NB_CALLER);
}

/* random_categorical */

/* The axis argument of an op whose first tensor is the key. */
static bool settle_axis(const nb_call *c, int k, int rank, int *axis)
{
    int64_t given = nb_arg_int(c, k);
    *axis = (int)(given < 0 ? given + rank : given);
    return (given >= -rank && given < rank) ||
           nb_fail(NB_EAXIS, "%s: axis %lld is out of range for rank %d",
                   c->op->name, (long long)given, rank);
}

/* The index of the greatest logit plus Gumbel noise, -log(-log u). */
static nb_tensor *categorical(const nb_call *c)
{
    int64_t full[NB_MAX_RANK + 1];
    sizes s;
    int axis, rank = RANK(1);
    if (!sizes_arg(c, 1, &s) || !settle_axis(c, 0, rank, &axis)) return NULL;
    if (SIZE(1, axis) == 0)
        return nb_fail(NB_EVALUE,
                       "random_categorical: axis %d has size 0: "
                       "nothing to choose from",
                       axis);
    int lead = s.n < 0 ? 0 : s.n + 1 - rank;
    if (lead < 0 || rank + lead > NB_MAX_RANK)
        return nb_fail(NB_EVALUE,
                       "random_categorical: a shape of rank %d for logits of "
                       "rank %d: from %d to %d is needed",
                       s.n, rank, rank - 1, NB_MAX_RANK - 1);
    axis += lead;
    for (int d = 0, k = 0; d < rank + lead; d++) {
        if (d == axis || s.n < 0)
            full[d] = SIZE(1, d - lead);
        else
            full[d] = s.at[k++];
    }
    sizes all = {rank + lead, full};
    nb_tensor *logits = nb_cast(c->in[1], NB_F64);
    nb_tensor *u = open_unit(c->in[0], all, true, FIRST);
    nb_tensor *noise = nb_neg(nb_log(nb_neg(nb_log(u))));
    return nb_argmax(nb_add(nb_broadcast_to(logits, all.n, full), noise), axis,
                     false);
}

COMPOSE(categorical, categorical(c))

nb_op nb_op_random_categorical = {
    .name = "random_categorical",
    .doc = "Indices along an axis of logits, each with a probability in "
           "proportion to the exponential of its logit: one for every other "
           "index of logits, or as many as the shape, to which these "
           "broadcast, has.",
    .example = "random_categorical([3, 9], [[0.5, 1.5, -1.0], "
               "[2.0, 0.0, 1.0]], axis=0, shape=(2, 3)) = "
               "[[0, 0, 0], [1, 0, 1]]",
    .params = "key, logits, axis:int=-1, shape:ints=None",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = categorical_compose,
};

nb_tensor *nb_random_categorical(nb_tensor *key, nb_tensor *logits,
                                 int64_t axis, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_INT(axis), shape_value(rank, shape)};
    return nb_apply(&nb_op_random_categorical, 2, (nb_tensor *[]){key, logits},
                    2, v, NB_CALLER);
}

/* random_permutation */

/* The order in which random words sort. */
static nb_tensor *order(nb_tensor *key, int64_t n)
{
    nb_tensor *w = bits(key, (sizes){1, &n}, NB_U64, 0, FIRST);
    return nb_argsort(w, 0, false, true);
}

static nb_tensor *permutation(const nb_call *c)
{
    nb_tensor *x = c->in[1];
    nb_dtype d = (nb_dtype)x->dtype;
    int axis;
    int64_t n;
    if (RANK(1) > 0)
        return settle_axis(c, 0, RANK(1), &axis)
                   ? nb_gather(x, order(c->in[0], SIZE(1, axis)), axis)
                   : NULL;
    if (!nb_dtype_is_integer(d))
        return nb_fail(NB_ETYPE,
                       "random_permutation: a number of dtype %s: "
                       "an integer or a tensor with axes is needed",
                       nb_dtype_name(d));
    if (nb_read(x, NB_I64, &n) != NB_OK) return NULL;
    if (n < 0)
        return nb_fail(NB_EVALUE, "random_permutation: of %lld numbers",
                       (long long)n);
    return order(c->in[0], n);
}

COMPOSE(permutation, permutation(c))

nb_op nb_op_random_permutation = {
    .name = "random_permutation",
    .doc = "x with its slices along an axis in random order; an integer n "
           "stands for the numbers from 0 to n - 1.",
    .example = "random_permutation([3, 9], [[1, 2, 3, 4], [5, 6, 7, 8]], "
               "axis=1) = [[4, 2, 1, 3], [8, 6, 5, 7]]",
    .params = "key, x, axis:int=0",
    .check = check_key,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = permutation_compose,
};

nb_tensor *nb_random_permutation(nb_tensor *key, nb_tensor *x, int64_t axis)
{
    return nb_apply(&nb_op_random_permutation, 2, (nb_tensor *[]){key, x}, 1,
                    &(nb_value)NB_V_INT(axis), NB_CALLER);
}
