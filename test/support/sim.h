/* sim.h - the simulated driver of test/sim, for tests without a card. */
#ifndef NB_TEST_SIM_H
#define NB_TEST_SIM_H

#include <stdbool.h>
#include <stddef.h>

/* The file, beside this program unless NABLA_SIM_LIBRARY names another. */
bool sim_find(char *path, size_t room);
/* Makes it the driver and the compiler of this process (NABLA_CUDA_DRIVER and
 * NABLA_NVRTC), unless they are set; false: it was not built. */
bool sim_use(void);

#endif
