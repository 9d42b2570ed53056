/* alone.c - a process for each body. */
#define _GNU_SOURCE
#include "support/alone.h"

#include "nabla/base.h"

#include <dirent.h>
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

static int each(const char *path, bool remove)
{
    int n = 0;
    DIR *folder = opendir(path);
    for (struct dirent *d; folder && (d = readdir(folder));) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        n++;
        if (remove) unlinkat(dirfd(folder), d->d_name, 0);
    }
    if (folder) closedir(folder);
    return n;
}

int folder_count(const char *path)
{
    return each(path, false);
}

void folder_remove(const char *path)
{
    each(path, true);
    rmdir(path);
}
