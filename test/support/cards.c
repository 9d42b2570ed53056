/* cards.c - looking for a card, in a process of its own. */
#include "support/cards.h"

#include "support/alone.h"
#include "support/sim.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void find(void)
{
    _exit(nb_card_count() > 0 ? 0 : 1);
}

static const char *simulated(void)
{
    static char settings[2 * PATH_MAX + 64];
    char path[PATH_MAX];
    if (!sim_find(path, sizeof path)) return "";
    snprintf(settings, sizeof settings, "NABLA_CUDA_DRIVER=%s NABLA_NVRTC=%s",
             path, path);
    return settings;
}

const char *cards_settings(void)
{
    static const char *settings;
    if (settings) return settings;
    bool told = getenv("NABLA_CUDA_DRIVER");
    settings = told || alone_status(find, NULL) == 0 ? "" : simulated();
    return settings;
}

bool cards_simulated(void)
{
    const char *told = getenv("NABLA_CUDA_DRIVER");
    return strstr(told ? told : cards_settings(), "libcuda_sim");
}

char cards_folder[64];

int cards_open(void **state)
{
    (void)state;
    folder_make(cards_folder);
    return 0;
}

int cards_close(void **state)
{
    (void)state;
    folder_remove(cards_folder);
    return 0;
}

void cards_alone(void (*body)(void), const char *more, ...)
{
    char all[6 * PATH_MAX];
    int n = snprintf(all, sizeof all, "NABLA_CACHE_DIR=%s %s ", cards_folder,
                     cards_settings());
    va_list list;
    va_start(list, more);
    vsnprintf(all + n, sizeof all - (size_t)n, more, list);
    va_end(list);
    alone(body, all);
}

/* The setting that names the simulated library of that name. */
static const char *library(char *setting, size_t room, const char *name)
{
    char path[PATH_MAX];
    const char *told = getenv("NABLA_CUDA_DRIVER");
    if (!cards_simulated()) return "";
    if (!told && !sim_find(path, sizeof path)) return "";
    snprintf(setting, room, "%s=%s", name, told ? told : path);
    return setting;
}

const char *cards_blaslt(void)
{
    static char setting[PATH_MAX + 32], all[PATH_MAX + 64];
    snprintf(all, sizeof all, "%s NABLA_TUNE=0",
             library(setting, sizeof setting, "NABLA_CUBLASLT"));
    return all;
}

const char *cards_dnn(void)
{
    static char setting[PATH_MAX + 32];
    return library(setting, sizeof setting, "NABLA_CUDNN");
}

int64_t cards_count(const char *what)
{
    const char *path = getenv("NABLA_CUDA_DRIVER");
    void *lib = cards_simulated() ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *at = lib ? dlsym(lib, "nabla_sim_count") : NULL;
    int64_t (*count)(const char *) = NULL;
    memcpy(&count, &at, sizeof count);
    return count ? count(what) : 0;
}

nb_card *cards_first(void)
{
    if (nb_card_count() == 0) alone_skips(nb_card_trouble());
    nb_card *c = nb_card_at(0);
    need(c);
    return c;
}
