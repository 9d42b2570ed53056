/* alone.c - a process for each body. */
#define _GNU_SOURCE
#include "support/alone.h"

#include "nabla/base.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SKIPPED = 77 };

void alone_gives_up(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n    %s\n", file, line, what,
            nb_error_message());
    _exit(1);
}

void alone_skips(const char *why)
{
    fprintf(stderr, "skipped: %s\n", why);
    _exit(SKIPPED);
}

static void set(const char *settings)
{
    char *text = strdup(settings), *rest = text;
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        putenv(word); /* which keeps it */
}

int alone_status(void (*body)(void), const char *settings)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            signal(deadly[i], SIG_DFL); /* not to run the other tests here */
        if (settings) set(settings);
        body();
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void alone(void (*body)(void), const char *settings)
{
    int status = alone_status(body, settings);
    if (status == SKIPPED) skip();
    if (status != 0)
        fail_msg("with %s: status %d", settings ? settings : "nothing set",
                 status);
}

void folder_make(char path[64])
{
    strcpy(path, "/tmp/nabla-test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

int folder_count(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        n++;
    if (folder) closedir(folder);
    return n - 2; /* itself and the one above */
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void folder_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
