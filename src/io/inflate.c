/* inflate.c - unpacking of deflated data (RFC 1951).
 *
 * Bits are taken from the low end of a 64-bit window.  At the end of the input
 * the window runs empty and reads as zeros; taking bits that are not there is
 * the fault "ends early", so no reader checks before it looks.  A code of up
 * to FAST bits is found by one look into a table, a longer one by counting
 * through the canonical order. */
#include "io/inflate.h"

#include <string.h>

enum { FAST = 10, LONGEST = 15, LITERALS = 288, DISTANCES = 32, END = 256 };

typedef struct code {
    uint16_t fast[1 << FAST]; /* symbol << 4 | length, 0: longer than FAST */
    uint16_t count[LONGEST + 1];
    uint16_t symbol[LITERALS]; /* by length, then value */
} code;

typedef struct stream {
    const uint8_t *at, *end;
    uint64_t window;
    int bits; /* of them valid */
    uint8_t *out;
    nb_inflated r;
    size_t room;
} stream;

static bool bad(stream *z, const char *fault)
{
    z->r.fault = fault;
    return false;
}

static bool full(stream *z)
{
    z->r.full = true;
    return false;
}

static void refill(stream *z)
{
    for (; z->bits <= 56 && z->at < z->end; z->bits += 8)
        z->window |= (uint64_t)*z->at++ << z->bits;
}

/* The next n bits, n <= 16; -1 if there are fewer. */
static int take(stream *z, int n)
{
    refill(z);
    if (z->bits < n) {
        bad(z, "ends early");
        return -1;
    }
    int value = (int)(z->window & ((1u << n) - 1));
    z->window >>= n;
    z->bits -= n;
    return value;
}

static uint32_t reversed(uint32_t value, int n)
{
    uint32_t r = 0;
    for (int i = 0; i < n; i++)
        r |= (value >> i & 1) << (n - 1 - i);
    return r;
}

/* Makes the code whose i-th symbol has length[i] bits, 0 for none.  A code
 * must use up all bit patterns, but one of a single 1-bit word, or of none:
 * encoders write these where there is one distance or no distance at all. */
static bool code_build(code *c, const uint8_t *length, int n)
{
    int next[LONGEST + 1], start[LONGEST + 1], left = 1, value = 0, total = 0;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++)
        c->count[length[i]]++;
    c->count[0] = 0;
    for (int k = 1; k <= LONGEST; k++) {
        left = 2 * left - c->count[k];
        if (left < 0) return false;
        value = (value + c->count[k - 1]) << 1;
        next[k] = value;
        start[k] = total;
        total += c->count[k];
    }
    if (left > 0 && total != c->count[1]) return false;
    for (int i = 0; i < n; i++) {
        int k = length[i];
        if (k == 0) continue;
        c->symbol[start[k]++] = (uint16_t)i;
        uint32_t word = reversed((uint32_t)next[k]++, k);
        for (; k <= FAST && word < 1 << FAST; word += 1u << k)
            c->fast[word] = (uint16_t)(i << 4 | k);
    }
    return true;
}

/* Words of length k are `first`, first + 1, ... in canonical order. */
static int symbol_slow(stream *z, const code *c)
{
    int word = 0, first = 0, index = 0;
    for (int k = 1; k <= LONGEST; k++) {
        word |= (int)(z->window >> (k - 1) & 1);
        int count = c->count[k];
        if (word - count < first)
            return take(z, k) < 0 ? -1 : c->symbol[index + word - first];
        index += count;
        first = (first + count) << 1;
        word <<= 1;
    }
    bad(z, z->bits < LONGEST ? "ends early" : "holds a word that is no code");
    return -1;
}

static int symbol(stream *z, const code *c)
{
    if (z->bits < LONGEST) refill(z);
    int found = c->fast[z->window & ((1 << FAST) - 1)];
    if (found == 0 || (found & 15) > z->bits) return symbol_slow(z, c);
    z->window >>= found & 15;
    z->bits -= found & 15;
    return found >> 4;
}

/* Repeats `length` bytes from `distance` back; the two may overlap. */
static bool repeat(stream *z, size_t length, size_t distance)
{
    if (distance > z->r.made) return bad(z, "refers to before its beginning");
    size_t space = z->room - z->r.made, n = length < space ? length : space;
    uint8_t *to = z->out + z->r.made;
    for (size_t i = 0; i < n; i++)
        to[i] = to[(ptrdiff_t)i - (ptrdiff_t)distance];
    z->r.made += n;
    return n == length || full(z);
}

static bool match(stream *z, int s, const code *distances)
{
    static const uint16_t length[] = {
        3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
        31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1,
                                          1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                          4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance[] = {
        1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
        33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
        1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    if (s >= 29) return bad(z, "holds a length that is none");
    int more = take(z, length_bits[s]);
    int d = more < 0 ? -1 : symbol(z, distances);
    if (d < 0) return false;
    if (d >= 30) return bad(z, "holds a distance that is none");
    int far = take(z, d < 4 ? 0 : d / 2 - 1);
    if (far < 0) return false;
    return repeat(z, (size_t)(length[s] + more), (size_t)(distance[d] + far));
}

static bool packed(stream *z, const code *literals, const code *distances)
{
    for (;;) {
        int s = symbol(z, literals);
        if (s < 0) return false;
        if (s == END) return true;
        if (s > END) {
            if (!match(z, s - END - 1, distances)) return false;
        } else if (z->r.made < z->room) {
            z->out[z->r.made++] = (uint8_t)s;
        } else
            return full(z);
    }
}

/* A stored block: the rest of the byte is void, then the length and its
 * complement, then the bytes.  Bytes already in the window are given back. */
static bool stored(stream *z)
{
    int skip = take(z, z->bits % 8);
    int n = take(z, 16), check = take(z, 16);
    if (skip < 0 || n < 0 || check < 0) return false;
    if (n != (check ^ 0xffff)) return bad(z, "holds a block of unsure length");
    z->at -= z->bits / 8;
    z->window = 0;
    z->bits = 0;
    size_t space = z->room - z->r.made;
    size_t length = (size_t)n < space ? (size_t)n : space;
    if (length > (size_t)(z->end - z->at)) return bad(z, "ends early");
    memcpy(z->out + z->r.made, z->at, length);
    z->at += length;
    z->r.made += length;
    return length == (size_t)n || full(z);
}

static bool fixed(stream *z)
{
    uint8_t length[LITERALS + DISTANCES];
    code literals, distances;
    memset(length, 8, 144);
    memset(length + 144, 9, 256 - 144);
    memset(length + 256, 7, 280 - 256);
    memset(length + 280, 8, LITERALS - 280);
    memset(length + LITERALS, 5, DISTANCES);
    code_build(&literals, length, LITERALS);
    code_build(&distances, length + LITERALS, DISTANCES);
    return packed(z, &literals, &distances);
}

/* Code lengths are packed themselves: 16 repeats the last one, 17 and 18 are
 * runs of zeros. */
static bool lengths(stream *z, const code *c, uint8_t *length, int n)
{
    static const uint8_t bits[] = {2, 3, 7}, base[] = {3, 3, 11};
    for (int i = 0; i < n;) {
        int s = symbol(z, c);
        if (s < 0) return false;
        if (s < 16) {
            length[i++] = (uint8_t)s;
            continue;
        }
        if (s == 16 && i == 0) return bad(z, "repeats a length before any");
        uint8_t last = s == 16 ? length[i - 1] : 0;
        int more = take(z, bits[s - 16]), run = base[s - 16] + more;
        if (more < 0) return false;
        if (run > n - i) return bad(z, "repeats a length too often");
        memset(length + i, last, (size_t)run);
        i += run;
    }
    return true;
}

static bool dynamic(stream *z)
{
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t length[LITERALS + DISTANCES] = {0};
    code literals, distances;
    int nl = take(z, 5), nd = take(z, 5), nc = take(z, 4);
    if (nl < 0 || nd < 0 || nc < 0) return false;
    nl += 257, nd += 1, nc += 4;
    if (nl > 286 || nd > 30) return bad(z, "holds too many codes");
    for (int i = 0; i < nc; i++) {
        int n = take(z, 3);
        if (n < 0) return false;
        length[order[i]] = (uint8_t)n;
    }
    if (!code_build(&literals, length, 19))
        return bad(z, "holds a code for lengths that is none");
    if (!lengths(z, &literals, length, nl + nd)) return false;
    if (length[END] == 0 || !code_build(&literals, length, nl) ||
        !code_build(&distances, length + nl, nd))
        return bad(z, "holds a code that is none");
    return packed(z, &literals, &distances);
}

static bool block(stream *z, int kind)
{
    switch (kind) {
    case -1: return false;
    case 0: return stored(z);
    case 1: return fixed(z);
    case 2: return dynamic(z);
    default: return bad(z, "holds a block of unknown kind");
    }
}

nb_inflated nb_inflate(const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    stream z = {.at = in, .end = in + n, .out = out, .room = room};
    int last = 0;
    while (last == 0) {
        last = take(&z, 1);
        if (last < 0 || !block(&z, take(&z, 2))) break;
    }
    z.r.used = (size_t)(z.at - in) - (size_t)(z.bits / 8);
    return z.r;
}
