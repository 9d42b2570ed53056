/* text.c - growing text, interned text, and the hash for both. */
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

bool nb_text_put(nb_text *t, const char *bytes, size_t n)
{
    if (t->failed || !nb_grow(&t->data, &t->room, t->n + (int)n + 1, 1)) {
        t->failed = true;
        return false;
    }
    memcpy(t->data + t->n, bytes, n);
    t->n += (int)n;
    t->data[t->n] = '\0';
    return true;
}

bool nb_text_add(nb_text *t, const char *format, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, format, ap);
    bool ok;
    if (n < (int)sizeof small)
        ok = nb_text_put(t, small, (size_t)n);
    else if ((ok =
                  !t->failed && nb_grow(&t->data, &t->room, t->n + n + 1, 1))) {
        vsnprintf(t->data + t->n, (size_t)n + 1, format, again);
        t->n += n;
    } else
        t->failed = true;
    va_end(again);
    va_end(ap);
    return ok;
}

void nb_text_free(nb_text *t)
{
    nb_free(t->data);
    *t = (nb_text){0};
}

const char *nb_text_get(const nb_text *t)
{
    return t->data ? t->data : "";
}

/* Multiply and fold, eight bytes at a time. */
uint64_t nb_hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ (0x9e3779b97f4a7c15u * (bytes + 1));
    for (; bytes > 0; p += 8) {
        uint64_t w = 0;
        size_t n = bytes < 8 ? bytes : 8;
        memcpy(&w, p, n);
        unsigned __int128 m = (unsigned __int128)(h ^ w) * 0xa0761d6478bd642fu;
        h = (uint64_t)m ^ (uint64_t)(m >> 64);
        bytes -= n;
    }
    return h ^ h >> 29;
}

typedef struct word {
    struct word *next;
    uint64_t hash;
    size_t n;
    char text[];
} word;
enum { BUCKETS = 1024 };
static struct {
    pthread_mutex_t lock;
    word *bucket[BUCKETS];
} words = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *nb_intern(const char *text, size_t n)
{
    uint64_t h = nb_hash(1, text, n);
    word **at = &words.bucket[h % BUCKETS];
    pthread_mutex_lock(&words.lock);
    word *w = *at;
    while (w && (w->hash != h || w->n != n || memcmp(w->text, text, n) != 0))
        w = w->next;
    if (!w && (w = nb_alloc_forever(sizeof *w + n + 1))) {
        memcpy(w->text, text, n);
        w->text[n] = '\0';
        w->hash = h;
        w->n = n;
        w->next = *at;
        *at = w;
    }
    pthread_mutex_unlock(&words.lock);
    return w ? w->text : NULL;
}
