/* driver.h - the simulated driver as a program sees it: opened, and its
 * functions called by name.  For the tests of the simulator alone. */
#ifndef NB_TEST_DRIVER_H
#define NB_TEST_DRIVER_H

#include "sim/api_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CU(name)    ((__typeof__(&name))driver_symbol(#name))
#define GOOD(call)  assert_int_equal(call, 0)
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Tests with a fresh context each: no fault, no memory, nothing to come. */
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)

/* First of all; false: it cannot be opened, and it was said why. */
bool driver_open(void);
void *driver_symbol(const char *name);
int driver_setup(void **state);
int driver_teardown(void **state);

/* What NVRTC says; cubin and log are the caller's. */
int driver_compile(const char *text, const char *arch, char **cubin,
                   char **log);
CUfunction driver_function(const char *text, const char *name,
                           CUmodule *module);
/* Device memory, filled unless from is NULL. */
CUdeviceptr driver_put(const void *from, size_t n);
int driver_launch(CUfunction f, unsigned grid, unsigned block, unsigned shared,
                  CUstream stream, void **args);

#endif
