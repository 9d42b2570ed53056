/* emit_point.c - indices, picks, random words. */
#include "backend/cpu/emit_point.h"

#include "backend/cpu/scalar.h"

static nb_v i64(int64_t n)
{
    return nb_ir_int(NB_IR_I64, n);
}

static bool is_number(nb_v x, int64_t n)
{
    return !x.id && x.bits == n;
}

/* An int64 in a type that may be narrower. */
static nb_v narrowed(nb_ir *ir, nb_v x, nb_irt type)
{
    if (type == NB_IR_I64) return x;
    return x.id ? nb_ir_cast(ir, "trunc", x, type) : nb_ir_int(type, x.bits);
}

static nb_v lanes_of(nb_ir *ir, nb_irt type, nb_v stride, int lanes)
{
    nb_v i = nb_ir_iota(ir, type, lanes);
    if (is_number(stride, 1)) return i;
    return nb_ir_op2(ir, "mul", i, narrowed(ir, stride, type));
}

nb_v nb_emit_index(nb_ir *ir, nb_v first, nb_v stride, int lanes, nb_dtype d)
{
    nb_irt type = nb_irt_of(d);
    first = narrowed(ir, first, type);
    if (lanes == 1 || is_number(stride, 0)) return first;
    return nb_ir_op2(ir, "add", first, lanes_of(ir, type, stride, lanes));
}

/* Picks */

static nb_v zero_of(nb_dtype d)
{
    nb_irt type = nb_irt_of(d);
    bool real = type == NB_IR_F32 || type == NB_IR_F64;
    return real ? nb_ir_float(type, 0) : nb_ir_int(type, 0);
}

/* One element, for all lanes that want it. */
static nb_v pick_one(nb_ir *ir, const nb_picked *p, nb_v at, nb_dtype stored)
{
    nb_ir_if f;
    nb_v zero = zero_of(stored);
    if (is_number(p->when, 1)) return nb_emit_load(ir, at, stored, 1, NULL);
    nb_ir_when(ir, &f, nb_ir_any(ir, p->when));
    nb_v x = nb_emit_load(ir, at, stored, 1, NULL);
    x = nb_ir_fi_value(ir, &f, x, zero);
    return p->when.lanes > 1 ? nb_ir_select(ir, p->when, x, zero) : x;
}

/* Processors take their time over addresses that are none, also of lanes that
 * are off: if all are, any good address is better. */
static nb_v good_address(nb_ir *ir, const nb_picked *p, nb_v at)
{
    if (is_number(p->when, 1)) return at;
    return nb_ir_select(ir, nb_ir_any(ir, p->when), at, p->buffer);
}

/* The lanes that are read; NULL: all. */
static const nb_v *lanes_read(nb_ir *ir, const nb_picked *p, nb_v *room)
{
    if (is_number(p->when, 1)) return p->mask;
    *room = nb_ir_splat(ir, p->when, p->lanes);
    if (p->mask) *room = nb_ir_op2(ir, "and", *room, *p->mask);
    return room;
}

nb_v nb_emit_pick(nb_ir *ir, const nb_picked *p, nb_dtype stored)
{
    nb_irt type = nb_irt_in_memory(stored);
    nb_v at = p->at, on, x;
    if (p->by.lanes == 1) at = nb_ir_at(ir, at, type, p->by);
    bool still = is_number(p->stride, 0);
    if (p->by.lanes == 1 && (still || p->lanes == 1))
        return pick_one(ir, p, at, stored);
    const nb_v *mask = lanes_read(ir, p, &on);
    if (p->by.lanes == 1 && is_number(p->stride, 1))
        return nb_emit_load(ir, good_address(ir, p, at), stored, p->lanes,
                            mask);
    nb_v index = p->by;
    if (!still) {
        bool one = p->by.lanes == 1; /* which is in `at` already */
        nb_irt t = one ? NB_IR_I64 : (nb_irt)p->by.type;
        nb_v each = lanes_of(ir, t, p->stride, p->lanes);
        index = one ? each : nb_ir_op2(ir, "add", p->by, each);
    }
    x = nb_ir_gather(ir, at, type, index, mask);
    if (stored != NB_BOOL) return x;
    return nb_ir_compare(ir, "icmp ne", x, nb_ir_int(NB_IR_I8, 0));
}

/* Totals of 2, 4, 8 ... lanes, then those before the vector. */
nb_v nb_emit_scan(nb_ir *ir, const nb_scanned *s, nb_v x, nb_v *total)
{
    nb_v none = nb_emit_neutral(s->reduce, s->d), was = *total;
    int lanes = x.lanes;
    if (s->mask) x = nb_ir_select(ir, *s->mask, x, none);
    for (int n = 1; n < lanes; n *= 2)
        x = nb_emit_combine(ir, s->reduce, s->d, nb_ir_shift(ir, x, n, none),
                            x);
    *total =
        nb_emit_combine(ir, s->reduce, s->d, was, nb_ir_lane(ir, x, lanes - 1));
    if (s->before && lanes == 1) return was;
    if (s->before) x = nb_ir_shift(ir, x, 1, none);
    return nb_emit_combine(ir, s->reduce, s->d, was, x);
}

/* Philox 4x32-10.  Each of the four words is the lower half of 64 bits, whose
 * upper half may be anything: products want no more, and shifting these down is
 * all that it takes to get at their upper words. */
typedef struct block {
    nb_v c[4], key[2];
} block;

static nb_v low(nb_ir *ir, nb_v x)
{
    return nb_ir_op2(ir, "and", x, i64(0xffffffff));
}

static void turn(nb_ir *ir, block *b)
{
    nb_v x = nb_ir_op2(ir, "mul", low(ir, b->c[0]), i64(0xd2511f53));
    nb_v y = nb_ir_op2(ir, "mul", low(ir, b->c[2]), i64(0xcd9e8d57));
    nb_v up = nb_ir_op2(ir, "lshr", y, i64(32));
    nb_v to =
        nb_ir_op2(ir, "xor", nb_ir_op2(ir, "xor", up, b->c[1]), b->key[0]);
    up = nb_ir_op2(ir, "lshr", x, i64(32));
    b->c[2] =
        nb_ir_op2(ir, "xor", nb_ir_op2(ir, "xor", up, b->c[3]), b->key[1]);
    b->c[0] = to;
    b->c[1] = y;
    b->c[3] = x;
    b->key[0] = nb_ir_op2(ir, "add", b->key[0], i64(0x9e3779b9));
    b->key[1] = nb_ir_op2(ir, "add", b->key[1], i64(0xbb67ae85));
}

/* The first two words of the blocks as one number each, and the last two. */
static void blocks(nb_ir *ir, const nb_stream *s, nb_v at, bool major,
                   nb_v y[2])
{
    uint64_t id = (uint64_t)s->id;
    block b = {.c = {at, nb_ir_op2(ir, "lshr", at, i64(32)),
                     i64((int64_t)(id & 0xffffffff)),
                     i64((int64_t)(id >> 32))}};
    for (int i = 0; i < 2; i++)
        b.key[i] = nb_ir_splat(ir, nb_ir_cast(ir, "zext", s->key[i], NB_IR_I64),
                               at.lanes);
    for (int round = 0; round < 10; round++)
        turn(ir, &b);
    for (int i = 0; i < 2; i++) {
        nb_v first = b.c[2 * i + major], second = b.c[2 * i + !major];
        y[i] = nb_ir_op2(ir, "or", low(ir, first),
                         nb_ir_op2(ir, "shl", second, i64(32)));
    }
}

nb_v nb_emit_block(nb_ir *ir, const nb_stream *s, nb_v at)
{
    nb_v y[2];
    for (int i = 0; i < 2; i++)
        if (s->key[i].lanes > at.lanes)
            at = nb_ir_splat(ir, at, s->key[i].lanes);
    blocks(ir, s, at, true, y);
    return y[0];
}

/* Blocks of each lane by itself, then the lane's own word of the block. */
nb_v nb_emit_word(nb_ir *ir, const nb_stream *s, nb_dtype d, nb_v number)
{
    bool wide = d == NB_U64;
    nb_v n = nb_ir_cast(ir, "sext", number, NB_IR_I64), y[2];
    blocks(ir, s, nb_ir_op2(ir, "lshr", n, i64(wide ? 1 : 2)), wide, y);
    nb_v odd = nb_ir_op2(ir, "and", n, i64(wide ? 1 : 2));
    nb_v test = nb_ir_compare(ir, "icmp ne", odd, i64(0));
    nb_v x = nb_ir_select(ir, test, y[1], y[0]);
    if (wide) return x;
    nb_v by = nb_ir_op2(ir, "shl", nb_ir_op2(ir, "and", n, i64(1)), i64(5));
    return nb_ir_cast(ir, "trunc", nb_ir_op2(ir, "lshr", x, by), NB_IR_I32);
}

void nb_emit_words(nb_ir *ir, const nb_stream *s, nb_dtype d, nb_v first,
                   int lanes, nb_v y[2])
{
    bool wide = d == NB_U64;
    int n = wide ? lanes : lanes / 2;
    nb_v at = nb_ir_cast(ir, "sext", first, NB_IR_I64), pair[2];
    at = nb_ir_op2(ir, "lshr", at, i64(wide ? 1 : 2));
    at = nb_ir_op2(ir, "add", at, nb_ir_iota(ir, NB_IR_I64, n));
    blocks(ir, s, at, wide, pair);
    for (int i = 0; i < 2; i++) {
        y[i] = nb_ir_weave(ir, pair[0], pair[1], i);
        if (!wide) y[i] = nb_ir_recast(ir, y[i], NB_IR_I32, lanes);
    }
}
