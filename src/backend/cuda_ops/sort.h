/* sort.h - sorting on a card: lines of keys, with the number of each in its
 * line, by digits of eight bits; equal keys stay in order.
 *
 * A line that a block can hold is sorted in its shared memory; longer ones go
 * through memory once for each digit. */
#ifndef NB_CUDA_OPS_SORT_H
#define NB_CUDA_OPS_SORT_H

#include "backend/cuda/build.h"

typedef struct nb_card_sort {
    nb_card *card;
    int64_t lines, n; /* keys of a line */
    int bits;         /* of a key that count, the lowest */
    bool wide;        /* keys are 64 bits, else 32 */
    nb_card_code *code[4];
} nb_card_sort;

/* Whether lines of n keys are launches that a card has, and numbers 32 bits. */
bool nb_card_sort_takes(int64_t lines, int64_t n);

/* The code is made. */
bool nb_card_sort_new(nb_card_sort *s, nb_card *card, int64_t lines, int64_t n,
                      int bits);
void nb_card_sort_free(nb_card_sort *s);

/* Bytes of the workspace, at the start of which the keys are; after it ran, the
 * keys in order and the numbers, 32 bits each, are where this says. */
size_t nb_card_sort_bytes(const nb_card_sort *s);
bool nb_card_sort_run(const nb_card_sort *s, char *workspace, char **keys,
                      char **numbers, const char *what);

#endif
