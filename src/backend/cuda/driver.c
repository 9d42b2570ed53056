/* driver.c - finding the driver, its functions and its version. */
#include "backend/cuda/driver.h"

#include "base/dl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 12000, NO_DEVICE = 100 };

static nb_cuda api;

#define CUDA(name, suffix, arguments) "cu" #name suffix,
#define LATER                         CUDA
static const char *const names[] = {
#include "backend/cuda/driver.def"
};
#undef LATER
#undef CUDA

/* Those that every driver has come first. */
#define CUDA(name, suffix, arguments)  +1
#define LATER(name, suffix, arguments) +0
enum {
    FUNCTIONS = sizeof names / sizeof *names,
    NEEDED = 0
#include "backend/cuda/driver.def"
};
#undef LATER
#undef CUDA
_Static_assert(sizeof api == FUNCTIONS * sizeof(void *), "pointers only");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    bool there;
    int version;
    char trouble[512];
} driver;
static atomic_bool forked;

static bool NB_PRINTF(1, 2) trouble(const char *format, ...)
{
    va_list ap;
    int n = snprintf(driver.trouble, sizeof driver.trouble, "no GPU: ");
    va_start(ap, format);
    vsnprintf(driver.trouble + n, sizeof driver.trouble - (size_t)n, format,
              ap);
    va_end(ap);
    return false;
}

static void *open_library(const char *wanted)
{
    bool own = wanted && *wanted;
    if (own && !strcmp(wanted, "none")) {
        trouble("NABLA_CUDA_DRIVER is none");
        return NULL;
    }
    void *lib =
        nb_dl_open((const char *[]){own ? wanted : "libcuda.so.1", NULL});
    if (!lib && own)
        trouble("NABLA_CUDA_DRIVER=%s cannot be opened", wanted);
    else if (!lib)
        trouble("libcuda.so.1 cannot be opened (is NVIDIA's driver "
                "installed?)");
    return lib;
}

/* The first name that is missing of those needed, NULL if all are there. */
static const char *bind_functions(void *lib)
{
    const char *missing = NULL;
    for (int i = 0; i < FUNCTIONS; i++) {
        void *f = nb_dl_symbol(lib, names[i]);
        if (!f && !missing && i < NEEDED) missing = names[i];
        memcpy((char *)&api + (size_t)i * sizeof f, &f, sizeof f);
    }
    return missing;
}

static bool is_recent(const char *missing)
{
    int v = 0;
    if (!api.DriverGetVersion || api.DriverGetVersion(&v) != 0)
        return trouble("the library opened as NVIDIA's driver is none");
    driver.version = v;
    if (v < OLDEST)
        return trouble("the driver is one for CUDA %d.%d (12.0 or later is "
                       "needed)",
                       v / 1000, v % 1000 / 10);
    if (missing) return trouble("the driver has no %s", missing);
    return true;
}

static void on_fork(void)
{
    forked = true;
}

static void load(void)
{
    void *lib = open_library(getenv("NABLA_CUDA_DRIVER"));
    if (!lib || !is_recent(bind_functions(lib))) return;
    pthread_atfork(NULL, NULL, on_fork);
    int result = api.Init(0);
    if (result == NO_DEVICE)
        trouble("the driver finds none");
    else if (result != 0)
        trouble("the driver does not start (%s)", nb_cuda_text(result));
    else
        driver.there = true;
}

const nb_cuda *nb_cuda_driver(void)
{
    pthread_once(&once, load);
    return driver.there ? &api : NULL;
}

const char *nb_cuda_trouble(void)
{
    return nb_cuda_driver() ? NULL : driver.trouble;
}

int nb_cuda_version(void)
{
    return nb_cuda_driver() ? driver.version : 0;
}

bool nb_cuda_forked(void)
{
    return forked;
}

const char *nb_cuda_text(int result)
{
    static _Thread_local char text[256];
    const char *name = NULL, *what = NULL;
    if (api.GetErrorName(result, &name) != 0 || !name) name = "CUDA error";
    if (api.GetErrorString(result, &what) != 0) what = NULL;
    if (what)
        snprintf(text, sizeof text, "%s: %s", name, what);
    else
        snprintf(text, sizeof text, "%s %d", name, result);
    return text;
}
