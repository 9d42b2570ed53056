/* sort.c - the passes of a sort. */
#include "backend/cuda_ops/sort.h"

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/text.h"

enum { LINE, COUNT, SUM, PLACE, KERNELS };
enum { TILE = 2048, DIGITS = 256, THREADS = 256 }; /* as in sort.cu */

static const char text[] =
#include "backend/cuda_ops/sort.cu"
    ;

bool nb_card_sort_takes(int64_t lines, int64_t n)
{
    return n < INT32_MAX && lines < INT32_MAX / (n / TILE + 1);
}

static bool is_short(const nb_card_sort *s)
{
    return s->n <= TILE;
}

static int64_t tiles(const nb_card_sort *s)
{
    return (s->n + TILE - 1) / TILE;
}

bool nb_card_sort_new(nb_card_sort *s, nb_card *card, int64_t lines, int64_t n,
                      int bits)
{
    static const char *const name[KERNELS] = {"sort_line", "sort_count",
                                              "sort_sum", "sort_place"};
    *s = (nb_card_sort){.card = card, .lines = lines, .n = n, .bits = bits};
    s->wide = bits > 32;
    nb_text t = {0};
    nb_card_source source[KERNELS];
    nb_text_add(&t, "%s\n#define K %s\n%s", nb_dims_text,
                s->wide ? "u64" : "u32", text);
    for (int k = 0; k < KERNELS; k++)
        source[k] = (nb_card_source){nb_text_get(&t), name[k]};
    bool small = is_short(s);
    bool ok = nb_card_build(card, small ? 1 : KERNELS - 1,
                            small ? source : source + COUNT,
                            small ? s->code : s->code + COUNT);
    nb_text_free(&t);
    return ok;
}

void nb_card_sort_free(nb_card_sort *s)
{
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(s->code[k]);
}

static size_t rounded(int64_t bytes)
{
    return ((size_t)bytes + 255) / 256 * 256;
}

static size_t key_bytes(const nb_card_sort *s)
{
    return rounded(s->lines * s->n * (s->wide ? 8 : 4));
}

static size_t number_bytes(const nb_card_sort *s)
{
    return rounded(s->lines * s->n * 4);
}

/* Keys, numbers; for long lines both once more, and counts. */
size_t nb_card_sort_bytes(const nb_card_sort *s)
{
    size_t one = key_bytes(s) + number_bytes(s);
    return is_short(s) ? one
                       : 2 * one + rounded(s->lines * DIGITS * tiles(s) * 4);
}

static bool launch(const nb_card_sort *s, int kernel, int64_t blocks,
                   void **args, const char *what)
{
    unsigned grid[3] = {(unsigned)blocks, 1, 1}, block[3] = {THREADS, 1, 1};
    return nb_card_launch(s->card, s->code[kernel], grid, block, 0, args, what);
}

static bool run_short(const nb_card_sort *s, char *keys, char *numbers,
                      const char *what)
{
    int64_t n = s->n;
    int bits = s->bits;
    void *args[] = {&keys, &numbers, &n, &bits};
    return launch(s, LINE, s->lines, args, what);
}

static bool pass(const nb_card_sort *s, char **from, char **to, char *counts,
                 int shift, const char *what)
{
    int64_t n = s->n, ntiles = tiles(s), blocks = s->lines * ntiles;
    char *numbers = shift ? from[1] : NULL; /* at first, places */
    void *count[] = {&from[0], &counts, &n, &ntiles, &shift};
    void *sum[] = {&counts, &ntiles};
    void *place[] = {&from[0], &numbers, &to[0],  &to[1],
                     &counts,  &n,       &ntiles, &shift};
    return launch(s, COUNT, blocks, count, what) &&
           launch(s, SUM, s->lines, sum, what) &&
           launch(s, PLACE, blocks, place, what);
}

bool nb_card_sort_run(const nb_card_sort *s, char *workspace, char **keys,
                      char **numbers, const char *what)
{
    size_t one = key_bytes(s) + number_bytes(s);
    char *side[2][2] = {{workspace, workspace + key_bytes(s)}};
    side[1][0] = side[0][0] + one;
    side[1][1] = side[0][1] + one;
    int at = 0;
    bool ok = true;
    if (is_short(s)) ok = run_short(s, side[0][0], side[0][1], what);
    for (int shift = 0; ok && !is_short(s) && shift < s->bits; shift += 8) {
        ok = pass(s, side[at], side[1 - at], workspace + 2 * one, shift, what);
        at = 1 - at;
    }
    *keys = side[at][0];
    *numbers = side[at][1];
    return ok;
}
