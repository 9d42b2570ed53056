/* philox.h - Philox 4x32-10, random numbers as a function of a counter.
 *
 * A stream is a key; its i-th block of four words is a function of key and i
 * alone, so any part of it is made anywhere, in any order, with the same
 * result (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1,
 * 2, 3", 2011). */
#ifndef NB_BASE_PHILOX_H
#define NB_BASE_PHILOX_H

#include <stdint.h>

static inline void nb_philox(uint32_t out[4], const uint32_t key[2],
                             const uint32_t counter[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1];
    uint32_t c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * c0;
        uint64_t b = (uint64_t)0xcd9e8d57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* In [0, 1), a multiple of 2^-53. */
static inline double nb_unit_f64(uint32_t hi, uint32_t lo)
{
    return (double)(((uint64_t)hi << 32 | lo) >> 11) * 0x1p-53;
}

/* In [0, 1), a multiple of 2^-24: all 32 bits would round up to 1. */
static inline float nb_unit_f32(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

#endif
