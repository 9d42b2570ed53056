/* tokens.h - token files: the numbers of words of a text, two bytes each.
 *
 * nanoGPT and llm.c make them; those of llm.c have 256 words of four bytes in
 * front, the first of which is a sign.  A file that is not called .bin is text,
 * and its bytes are the tokens. */
#ifndef TOKENS_H
#define TOKENS_H

#include <fcntl.h>
#include <nabla/nabla.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct token_file {
    const unsigned char *raw; /* the file */
    int64_t bytes, count;
    const uint16_t *at; /* the first of count */
    uint16_t *wide;     /* of text */
} token_file;

static inline bool map_file(token_file *t, const char *path)
{
    struct stat s;
    int file = open(path, O_RDONLY);
    void *raw = MAP_FAILED;
    if (file >= 0 && fstat(file, &s) == 0)
        raw = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (file >= 0) close(file);
    if (raw == MAP_FAILED)
        return nb_error_raise(NB_ENOFILE, "cannot read %s", path), false;
    t->raw = raw;
    t->bytes = s.st_size;
    return true;
}

static inline bool read_tokens(token_file *t, const char *path)
{
    enum { SIGN = 20240520, HEADER = 1024 };
    const char *suffix = strrchr(path, '.');
    int32_t sign = 0;
    if (!map_file(t, path)) return false;
    if (suffix && strcmp(suffix, ".bin") == 0) {
        if (t->bytes > HEADER) memcpy(&sign, t->raw, sizeof sign);
        int64_t begin = sign == SIGN ? HEADER : 0;
        t->at = (const uint16_t *)(const void *)(t->raw + begin);
        t->count = (t->bytes - begin) / 2;
        return true;
    }
    t->at = t->wide = malloc((size_t)t->bytes * sizeof *t->wide);
    if (!t->at) return nb_error_raise(NB_EMEMORY, "no memory"), false;
    t->count = t->bytes;
    for (int64_t i = 0; i < t->count; i++)
        t->wide[i] = t->raw[i];
    return true;
}

static inline void close_tokens(token_file *t)
{
    if (t->raw) munmap((void *)(uintptr_t)t->raw, (size_t)t->bytes);
    free(t->wide);
}

/* As many windows as the shape has, from the first on, in the order of the file,
 * over and over.  A window ends with the token that the next one begins with:
 * there is something to say after each of its others. */
static inline nb_tensor *windows_of(const token_file *t, int64_t first,
                                    int rank, const int64_t *shape, int most)
{
    int64_t size = shape[rank - 1], rows = 1,
            count = (t->count - 1) / (size - 1);
    for (int d = 0; d < rank - 1; d++)
        rows *= shape[d];
    if (count < 1)
        return nb_error_raise(NB_EVALUE, "a file of %lld tokens is too short",
                              (long long)t->count);
    uint16_t *taken = malloc((size_t)(rows * size) * sizeof *taken);
    if (!taken) return nb_error_raise(NB_EMEMORY, "no memory");
    bool ok = true;
    for (int64_t i = 0; i < rows; i++)
        memcpy(taken + i * size, t->at + (first + i) % count * (size - 1),
               (size_t)size * sizeof *taken);
    for (int64_t i = 0; i < rows * size; i++)
        ok = ok && taken[i] < most;
    nb_tensor *x =
        ok ? nb_constant(NB_U16, rank, shape, taken)
           : nb_error_raise(NB_EVALUE, "a token is not among %d", most);
    free(taken);
    return x;
}

#endif
