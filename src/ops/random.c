/* random.c - random numbers as functions of a key.
 *
 * Two primitives: words of a key's stream, and a key folded with a number; and
 * for blocks of a draw a third, words from any place of the stream on.  The
 * distributions are made of the first by other ops, in float64 where rounding
 * would show, so element i of a draw is a function of key and i.
 *
 * The four words of a Philox counter: the index of a block in two, the number
 * of the stream, and what the block is for.  Streams 0 and 1 are drawn from, 2
 * gives keys; so what is split from a key, folded into it and drawn from it
 * have nothing in common. */
#include "ops/random.h"

#include "base/philox.h"
#include "core/convert.h"
#include "core/point.h"
#include "nabla/device.h"
#include "ops/copy.h"
#include "ops/view.h"

#include <pthread.h>
#include <string.h>

enum { FOR_BITS, FOR_FOLD, FOR_PROCESS };

static bool is_key(const nb_tensor *x)
{
    return nb_dtype_is_integer((nb_dtype)x->dtype) && x->rank >= 1 &&
           nb_size(x, -1) == 2;
}

bool nb_key_check(nb_call *c)
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

static bool check_sizes(const char *who, nb_extents s)
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

bool nb_draw_sizes(const nb_call *c, int k, nb_extents *s)
{
    s->at = nb_arg_list(c, k, &s->n);
    return check_sizes(c->op->name, *s);
}

bool nb_draw_shape(const nb_call *c, int k, nb_extents *s)
{
    if (!nb_draw_sizes(c, k, s)) return false;
    if (s->n < 0) s->n = 0;
    return true;
}

/* random_bits: words of the stream of a key. */

static bool bits_check(nb_call *c)
{
    nb_extents s;
    int64_t d = nb_arg_int(c, 1);
    if (!nb_key_check(c) || !nb_draw_sizes(c, 0, &s)) return false;
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
    return nb_text_add(t, "; replicate{k}, k=2");
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

/* The upper word of a times b, from products of halves. */
static nb_val upper(nb_point *p, nb_val a, uint64_t b)
{
    nb_val half = nb_p_number(p, NB_U64, 32);
    nb_val mask = nb_p_number(p, NB_U64, 0xffffffff);
    nb_val b0 = nb_p_number(p, NB_U64, (int64_t)(b & 0xffffffff));
    nb_val b1 = nb_p_number(p, NB_U64, (int64_t)(b >> 32));
    nb_val a0 = nb_p_two(p, NB_S_and, a, mask);
    nb_val a1 = nb_p_two(p, NB_S_shr, a, half);
    nb_val t = nb_p_two(p, NB_S_shr, nb_p_two(p, NB_S_mul, a0, b0), half);
    t = nb_p_two(p, NB_S_add, t, nb_p_two(p, NB_S_mul, a1, b0));
    nb_val u = nb_p_two(p, NB_S_and, t, mask);
    u = nb_p_two(p, NB_S_add, u, nb_p_two(p, NB_S_mul, a0, b1));
    t = nb_p_two(p, NB_S_add, nb_p_two(p, NB_S_shr, t, half),
                 nb_p_two(p, NB_S_shr, u, half));
    return nb_p_two(p, NB_S_add, t, nb_p_two(p, NB_S_mul, a1, b1));
}

static nb_val word_at(nb_point *p, nb_val place, nb_dtype d, int64_t stream,
                      int64_t below)
{
    nb_val key[2];
    for (int i = 0; i < 2; i++) {
        nb_val at = nb_p_number(p, NB_I64, i);
        key[i] = nb_p_read_at(p, 0, NB_U32, &at, NB_NO_VAL);
    }
    nb_val y =
        nb_p_word(p, place, key[0], key[1], d, (uint32_t)stream, FOR_BITS);
    return below ? upper(p, y, (uint64_t)below) : y;
}

static bool bits_point(nb_point *p, const nb_call *c, nb_val *y)
{
    int64_t step[NB_MAX_RANK] = {0};
    nb_extents s;
    if (!nb_draw_sizes(c, 0, &s)) return false;
    nb_row_major(s.n, s.at, step);
    *y = word_at(p, nb_p_place(p, 0, step), (nb_dtype)nb_arg_int(c, 1),
                 nb_arg_int(c, 3), nb_arg_int(c, 2));
    return true;
}

/* A block of a draw has the words of its places in all of it. */
static nb_tensor *bits_local(const nb_call *c, const nb_blocks *b)
{
    int lanes = c->out->nlanes;
    int64_t step[NB_MAX_RANK] = {0}, first = 0;
    bool whole = true;
    nb_extents s;
    if (!nb_draw_sizes(c, 0, &s)) return NULL;
    nb_row_major(s.n, s.at, step);
    for (int d = 0; d < s.n; d++) {
        first += b->to->start[lanes + d] * step[d];
        whole = whole && b->to->size[lanes + d] == s.at[d];
    }
    nb_value v[] = {NB_V_LIST(s.n, b->to->size + lanes), NB_V_LIST(s.n, step),
                    NB_V_INT(nb_arg_int(c, 1)), NB_V_INT(nb_arg_int(c, 2)),
                    NB_V_INT(nb_arg_int(c, 3))};
    if (whole)
        return nb_draw_bits(b->in[0], s, (nb_dtype)nb_arg_int(c, 1),
                            (uint64_t)nb_arg_int(c, 2), nb_arg_int(c, 3));
    return nb_apply(&nb_op_random_words, 2,
                    (nb_tensor *[]){b->in[0], b->number(b, first)}, 5, v,
                    NB_CALLER);
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
    .point = bits_point,
    .local = bits_local,
    .splits = 1u << NB_PASS,
};

/* random_words: those of a stream at any places. */

static bool words_check(nb_call *c)
{
    int n, m;
    nb_extents s;
    int64_t d = nb_arg_int(c, 2);
    nb_arg_list(c, 0, &n);
    nb_arg_list(c, 1, &m);
    if (!nb_key_check(c) || !nb_draw_sizes(c, 0, &s)) return false;
    if (RANK(1) || c->in[1]->dtype != NB_I64 || n != m)
        return nb_fail(NB_EVALUE,
                       "random_words: first is one int64, and step has a value "
                       "for each of %d axes",
                       n);
    return d == NB_U64 || (d == NB_U32 && nb_arg_int(c, 3) == 0) ||
           nb_fail(NB_ETYPE,
                   "random_words: dtype is %s: uint64, or uint32 for all "
                   "words, is needed",
                   nb_dtype_name((nb_dtype)d));
}

static bool words_sign(const nb_call *c, nb_text *t)
{
    int n;
    nb_arg_list(c, 0, &n);
    nb_text_add(t, "k, ->");
    for (int d = 0; d < n; d++)
        nb_text_add(t, " ?");
    return nb_text_add(t, "; replicate{k}, k=2");
}

static bool words_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int n;
    const int64_t *size = nb_arg_list(c, 0, &n);
    (void)k;
    for (int d = 0; d < n; d++)
        out->size[d] = nb_extent_of(size[d]);
    *dtype = (nb_dtype)nb_arg_int(c, 2);
    return true;
}

static uint64_t word_of(const uint32_t key[2], int64_t place, int64_t stream,
                        nb_dtype d, uint64_t below)
{
    uint32_t w[4];
    uint64_t at = (uint64_t)place;
    block(w, key, d == NB_U32 ? at / 4 : at / 2, stream, FOR_BITS);
    if (d == NB_U32) return w[at % 4];
    uint64_t all = (uint64_t)w[at % 2 * 2] << 32 | w[at % 2 * 2 + 1];
    return below ? (uint64_t)((unsigned __int128)all * below >> 64) : all;
}

static bool words_kernel(const nb_kernel *k)
{
    const nb_view *first = &k->view[1], *y = &k->view[2];
    int n;
    const int64_t *step = nb_arg_list(k->call, 1, &n);
    int64_t count = 1, stream = nb_arg_int(k->call, 4);
    uint64_t below = (uint64_t)nb_arg_int(k->call, 3);
    uint32_t key[2];
    read_key(&k->view[0], key);
    for (int d = 0; d < y->rank; d++)
        count *= y->size[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t place = nb_read_i64(first->data, first->dtype), rest = i;
        for (int d = y->rank - 1; d >= 0; d--) {
            place += rest % y->size[d] * step[d];
            rest /= y->size[d];
        }
        uint64_t w = word_of(key, place, stream, y->dtype, below);
        if (y->dtype == NB_U32)
            ((uint32_t *)y->data)[i] = (uint32_t)w;
        else
            ((uint64_t *)y->data)[i] = w;
    }
    return true;
}

static bool words_point(nb_point *p, const nb_call *c, nb_val *y)
{
    int n;
    const int64_t *step = nb_arg_list(c, 1, &n);
    nb_val first = nb_p_read_at(p, 1, NB_I64, NULL, NB_NO_VAL);
    nb_val place = nb_p_two(p, NB_S_add, first, nb_p_place(p, 0, step));
    *y = word_at(p, place, (nb_dtype)nb_arg_int(c, 2), nb_arg_int(c, 4),
                 nb_arg_int(c, 3));
    return true;
}

nb_op nb_op_random_words = {
    .name = "random_words",
    .doc = "Random words of a stream of the key: at i, j, ... the one in place "
           "first + step[0] i + step[1] j + ..., so that parts of what "
           "random_bits gives can be drawn apart.",
    .example = "random_words([0, 0], 1, shape=(2,), step=(2,), dtype=uint32) = "
               "[3781805453, 2600524760]",
    .params = "key, first, shape:ints, step:ints, dtype:dtype=uint32, "
              "below:int=0, stream:int=0",
    .check = words_check,
    .sign = words_sign,
    .infer = words_infer,
    .kind = NB_CONSTANT,
    .out = NB_OUT_ATTR,
    .fixed = 3,
    .kernel = words_kernel,
    .point = words_point,
};

nb_tensor *nb_draw_bits(nb_tensor *key, nb_extents s, nb_dtype d,
                        uint64_t below, int64_t stream)
{
    nb_value v[] = {NB_V_LIST(s.n, s.at), NB_V_INT(d), NB_V_INT(below),
                    NB_V_INT(stream)};
    return nb_apply(&nb_op_random_bits, 1, &key, 4, v, NB_CALLER);
}

nb_tensor *nb_draw_open(nb_tensor *key, nb_extents s, bool wide, int64_t stream)
{
    nb_tensor *w = nb_draw_bits(key, s, wide ? NB_U64 : NB_U32, 0, stream);
    if (wide) w = nb_bitwise_right_shift(w, nb_count(12));
    return nb_mul(nb_add(nb_cast(w, NB_F64), nb_num(0.5)),
                  nb_num(wide ? 0x1p-52 : 0x1p-32));
}

/* Keys. */

/* Where what is made of nothing is made. */
static nb_tensor *key_new(const uint32_t word[2])
{
    return nb_on_at_once(nb_constant(NB_U32, 1, (int64_t[]){2}, word),
                         nb_device_in_force());
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
    return nb_draw_bits(c->in[0], (nb_extents){2, (int64_t[]){num, 2}}, NB_U32,
                        0, NB_KEYS);
}

COMPOSE(split, split(c))

nb_op nb_op_random_split = {
    .name = "random_split",
    .doc = "Keys made from one key, as rows; what they give is independent of "
           "each other and of what the key itself gives.",
    .example = "random_split([3, 9], num=2) = "
               "[[3886721428, 3295259412], [3689155589, 1180305183]]",
    .params = "key, num:int=2",
    .check = nb_key_check,
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

/* Both words of the block, of which the last axis says which. */
static bool fold_point(nb_point *p, const nb_call *c, nb_val *y)
{
    nb_val at[NB_MAX_RANK], key[2];
    int last = RANK(0) - 1, more = p->rank - RANK(0);
    int64_t step[NB_MAX_RANK] = {0};
    for (int d = 0; d < last; d++)
        at[d] = SIZE(0, d) == 1 ? nb_p_number(p, NB_I64, 0)
                                : nb_p_along(p, d + more, 0, 1);
    for (int i = 0; i < 2; i++) {
        at[last] = nb_p_number(p, NB_I64, i);
        key[i] = nb_p_read_at(p, 0, NB_U32, at, NB_NO_VAL);
    }
    step[p->rank - 1] = -32;
    nb_val block_at = nb_p_convert(p, nb_p_read(p, 1, NB_I64), NB_U64);
    nb_val both = nb_p_word(p, block_at, key[0], key[1], NB_U64, 0, FOR_FOLD);
    nb_val by = nb_p_convert(p, nb_p_place(p, 32, step), NB_U64);
    *y = nb_p_convert(p, nb_p_two(p, NB_S_shr, both, by), NB_U32);
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
    .sig = "... k, ... -> ... k; replicate{k}, k=2",
    .infer = fold_infer,
    .kind = NB_CONSTANT,
    .out = NB_OUT_ATTR,
    .fixed = 3,
    .kernel = fold_kernel,
    .point = fold_point,
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
    .check = nb_key_check,
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

_Thread_local nb_tensor *(*nb_key_source)(void);

nb_tensor *nb_next_key(void)
{
    uint32_t w[4];
    if (nb_key_source) return nb_key_source();
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
