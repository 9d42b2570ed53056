/* thread.c - see thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <signal.h>

/* What a thread that is started now will take. */
static void block_signals(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

/* As C++ destroys what threads own; glibc has it, musl has not. */
extern int __cxa_thread_atexit_impl(void (*f)(void *), void *ctx, void *library)
    __attribute__((weak));
extern char __dso_handle __attribute__((visibility("hidden")));

bool nb_thread_before_end(void (*f)(void *), void *ctx)
{
    return __cxa_thread_atexit_impl &&
           !__cxa_thread_atexit_impl(f, ctx, &__dso_handle);
}

bool nb_thread_start(pthread_t *t, const char *name, void *(*work)(void *),
                     void *ctx)
{
    sigset_t before;
    block_signals(&before);
    bool ok = !pthread_create(t, NULL, work, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) pthread_setname_np(*t, name);
    return ok;
}
