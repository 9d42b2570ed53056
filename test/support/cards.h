/* cards.h - which card tests run on: the one of this machine, else the
 * simulated one if it was built, else none and they are skipped.
 *
 * Where NABLA_CUDA_DRIVER is set, that is what they run on. */
#ifndef NB_TEST_CARDS_H
#define NB_TEST_CARDS_H

#include "backend/cuda/card.h"

/* Settings for `alone`, "" for the card of this machine.  Opens nothing in
 * this process. */
const char *cards_settings(void);

/* It is the simulated one: what is only its own can be set. */
bool cards_simulated(void);

/* Of a group of tests: a folder for what is compiled, made and removed; and a
 * body alone on the card, with that folder and more settings, as printf
 * writes them. */
extern char cards_folder[64];
int cards_open(void **state);
int cards_close(void **state);
void cards_alone(void (*body)(void), const char *more, ...);

/* A test whose body, which follows, is alone on the card, with more settings;
 * and one that takes the simulated card. */
#define CARD_TEST(name, ...) CARD_TEST_IF(true, name, __VA_ARGS__)
#define SIM_TEST(name, ...)  CARD_TEST_IF(cards_simulated(), name, __VA_ARGS__)

#define CARD_TEST_IF(may, name, ...)              \
    static void body_of_##name(void);             \
    static void name(void **state)                \
    {                                             \
        (void)state;                              \
        if (!(may)) skip();                       \
        cards_alone(body_of_##name, __VA_ARGS__); \
    }                                             \
    static void body_of_##name(void)

/* The settings that name the simulated cuBLASLt and the simulated cuDNN, none
 * of them for a real card; and that cuBLASLt makes small products, too. */
const char *cards_blaslt(void);
const char *cards_dnn(void);

/* Inside a body: card 0, or the body ends as skipped. */
nb_card *cards_first(void);

/* Inside a body: what the simulated driver has counted, calls of a function or
 * "kernels"; 0 on a real card. */
int64_t cards_count(const char *what);

#endif
