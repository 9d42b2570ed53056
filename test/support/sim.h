/* sim.h - the simulated driver of test/sim, for tests without a card. */
#ifndef NB_TEST_SIM_H
#define NB_TEST_SIM_H

#include <stdbool.h>
#include <stddef.h>

/* The file, beside this program unless NABLA_SIM_LIBRARY names another. */
bool sim_find(char *path, size_t room);

#endif
