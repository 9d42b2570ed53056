/* bytes.c - UTF-8, quoting and the checksum of zip. */
#include "io/bytes.h"

#include <stdio.h>
#include <string.h>

/* The length of the sequence that a lead byte opens, 0 if it opens none. */
static size_t sequence(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0; /* a continuation, or an overlong form */
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

/* The second byte carries what the lead byte leaves open: overlong forms,
 * surrogates, and what lies above 10FFFF. */
static bool second_fits(uint8_t lead, uint8_t second)
{
    switch (lead) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second < 0xa0;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second < 0x90;
    default: return true;
    }
}

bool nb_utf8_is(const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    while (p < end) {
        size_t length = sequence(*p);
        if (length == 0 || length > (size_t)(end - p)) return false;
        if (length > 1 && !second_fits(p[0], p[1])) return false;
        for (size_t i = 1; i < length; i++)
            if ((p[i] & 0xc0) != 0x80) return false;
        p += length;
    }
    return true;
}

const char *nb_quote(nb_quoted *q, const char *text, size_t n)
{
    char *to = q->text, *end = q->text + sizeof q->text - 10;
    *to++ = '\'';
    size_t i = 0;
    for (; i < n && to < end; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c >= ' ' && c < 0x7f)
            *to++ = (char)c;
        else
            to += snprintf(to, 5, "\\x%02x", c);
    }
    strcpy(to, i < n ? "...'" : "'");
    return q->text;
}

void nb_crc_open(nb_crc *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t r = i;
        for (int bit = 0; bit < 8; bit++)
            r = r >> 1 ^ (r & 1 ? 0xedb88320u : 0);
        c->table[0][i] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) {
            uint32_t r = c->table[k - 1][i];
            c->table[k][i] = r >> 8 ^ c->table[0][r & 255];
        }
}

uint32_t nb_crc_run(const nb_crc *c, uint32_t crc, const void *data, size_t n)
{
    const uint32_t(*t)[256] = c->table;
    const uint8_t *p = data;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w = nb_get64(p) ^ crc;
        crc = t[7][w & 255] ^ t[6][w >> 8 & 255] ^ t[5][w >> 16 & 255] ^
              t[4][w >> 24 & 255] ^ t[3][w >> 32 & 255] ^ t[2][w >> 40 & 255] ^
              t[1][w >> 48 & 255] ^ t[0][w >> 56];
    }
    for (; n > 0; n--)
        crc = crc >> 8 ^ t[0][(crc ^ *p++) & 255];
    return ~crc;
}
