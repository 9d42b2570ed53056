/* bytes.h - small things that every file format needs: little-endian numbers,
 * strict UTF-8, text from a file made fit for a message, and the checksum of
 * zip. */
#ifndef NB_IO_BYTES_H
#define NB_IO_BYTES_H

#include "nabla/base.h"

static inline uint16_t nb_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t nb_get32(const uint8_t *p)
{
    return nb_get16(p) | (uint32_t)nb_get16(p + 2) << 16;
}

static inline uint64_t nb_get64(const uint8_t *p)
{
    return nb_get32(p) | (uint64_t)nb_get32(p + 4) << 32;
}

/* Writes the low n bytes of value and returns the place behind them. */
static inline uint8_t *nb_put(uint8_t *p, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        *p++ = (uint8_t)(value >> 8 * i);
    return p;
}

/* True if the n bytes are UTF-8: shortest forms, no surrogates, no code point
 * above 10FFFF. */
bool nb_utf8_is(const char *text, size_t n);

/* The text in quotes, as printable ASCII, cut where it grows long: what a file
 * says is never put into a message as it stands. */
typedef struct nb_quoted {
    char text[96];
} nb_quoted;
const char *nb_quote(nb_quoted *q, const char *text, size_t n);

/* For use as an argument; lives as long as the enclosing block. */
#define NB_QUOTE(text, n) nb_quote(&(nb_quoted){{0}}, text, n)

/* CRC-32 as zip has it, eight bytes a step.  The tables are made on the spot:
 * they cost less than the first file call. */
typedef struct nb_crc {
    uint32_t table[8][256];
} nb_crc;
void nb_crc_open(nb_crc *c);
uint32_t nb_crc_run(const nb_crc *c, uint32_t crc, const void *data, size_t n);

#endif
