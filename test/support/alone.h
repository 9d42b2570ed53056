/* alone.h - bodies of tests that run in a process of their own.
 *
 * What is read once for a process (the environment, drivers, libraries) can
 * then differ from test to test, and what a body breaks stays broken there.
 * Inside a body, `need` ends the process where a thing does not hold. */
#ifndef NB_TEST_ALONE_H
#define NB_TEST_ALONE_H

#include <stdbool.h>

#define need(it)                                            \
    do {                                                    \
        if (!(it)) alone_gives_up(__FILE__, __LINE__, #it); \
    } while (0)

/* Prints the pending error beside it. */
_Noreturn void alone_gives_up(const char *file, int line, const char *what);

/* The status of exit; settings "NAME=VALUE ..." separated by spaces, or NULL.
 * A signal is 128 and more. */
int alone_status(void (*body)(void), const char *settings);

/* Fails the test if the body did. */
void alone(void (*body)(void), const char *settings);

/* Ends the body: what it needs is not here.  The test is skipped then. */
_Noreturn void alone_skips(const char *why);

/* A new folder under /tmp, and its end with all that is in it. */
void folder_make(char path[64]);
void folder_remove(const char *path);
int folder_count(const char *path); /* files in it */

#endif
