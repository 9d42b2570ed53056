/* stream.h - copies to memory that nobody reads soon: past the caches, which
 * would fetch it first and throw out what is still needed. */
#ifndef NB_COMM_STREAM_H
#define NB_COMM_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static inline void nb_stream(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
    size_t head = -(uintptr_t)to & 15, at;
    if (head > bytes) head = bytes;
    memcpy(to, from, head);
    for (at = head; at + 16 <= bytes; at += 16)
        _mm_stream_si128(
            (__m128i *)((char *)to + at),
            _mm_loadu_si128((const __m128i *)((const char *)from + at)));
    memcpy((char *)to + at, (const char *)from + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

/* Other stores come after those: for whoever is told that all is written. */
static inline void nb_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
