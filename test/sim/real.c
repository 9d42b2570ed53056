/* real.c - texts of kernels through the real NVRTC. */
#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 80 };

static struct {
    int (*Version)(int *, int *);
    int (*CreateProgram)(void **, const char *, const char *, int,
                         const char *const *, const char *const *);
    int (*AddNameExpression)(void *, const char *);
    int (*CompileProgram)(void *, int, const char *const *);
    int (*GetProgramLogSize)(void *, size_t *);
    int (*GetProgramLog)(void *, char *);
    int (*DestroyProgram)(void **);
} api;

static const char *const names[] = {
    "nvrtcVersion",        "nvrtcCreateProgram",     "nvrtcAddNameExpression",
    "nvrtcCompileProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
    "nvrtcDestroyProgram"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char trouble[PATH_MAX + 64];
static char include[2][PATH_MAX + 32];
static int version;

/* Headers of a toolkit; those of a Python package are another's. */
static void find_headers(const char *library)
{
    const char *end = strrchr(library, '/');
    int n = end ? (int)(end - library) : 0;
    snprintf(include[0], sizeof include[0], "--include-path=%.*s/../include", n,
             library);
    snprintf(include[1], sizeof include[1],
             "--include-path=%.*s/../../cuda_runtime/include", n, library);
}

static void load(void)
{
    const char *path = getenv("NABLA_SIM_NVRTC");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int major = 0, minor = 0;
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(library, names[i]);
        if (!f) library = NULL;
        memcpy((char *)&api + i * sizeof f, &f, sizeof f);
    }
    if (library && !api.Version(&major, &minor)) version = major * 100 + minor;
    if (!version)
        snprintf(trouble, sizeof trouble, "NABLA_SIM_NVRTC=%s is no NVRTC\n",
                 path);
    find_headers(path);
}

bool sim_real_asked(void)
{
    const char *path = getenv("NABLA_SIM_NVRTC");
    return path && *path;
}

/* What only 9.0 has; a text with it is printed for such cards alone. */
static bool is_new(const char *text)
{
    static const char *const words[] = {
        "wgmma.",     "cp.async.bulk",    "mbarrier.try_wait",
        "setmaxnreg", "stmatrix",         "griddepcontrol",
        "cluster.",   "__cluster_dims__", "fence.proxy"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i])) return true;
    return false;
}

static bool is_arch(const char *option)
{
    return !strncmp(option, "--gpu-architecture", 18) ||
           !strncmp(option, "-arch", 5);
}

static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

/* Where it is remembered; "" if nowhere. */
static void place(char *path, size_t room, const char *text, const char *seen,
                  int n, const char *const *word, int headers,
                  char *const *header)
{
    const char *folder = getenv("NABLA_SIM_CHECKED");
    uint64_t h[2] = {0xcbf29ce484222325u + (uint64_t)version,
                     0x9e3779b97f4a7c15u};
    *path = 0;
    if (!folder || !*folder) return;
    for (int i = 0; i < 2; i++) {
        h[i] = hash(h[i], text);
        if (seen) h[i] = hash(h[i], seen);
        for (int k = 0; k < n; k++)
            h[i] = hash(h[i], word[k]);
        for (int k = 0; k < headers; k++)
            h[i] = hash(h[i], header[k]);
    }
    snprintf(path, room, "%s/%016llx%016llx", folder, (unsigned long long)h[0],
             (unsigned long long)h[1]);
}

static char *log_of(void *program, const char *arch)
{
    size_t n = 0;
    char *log = NULL, *said = NULL;
    if (!api.GetProgramLogSize(program, &n) && (log = calloc(1, n + 1)))
        api.GetProgramLog(program, log);
    if (asprintf(&said, "the real NVRTC %d.%d, %s: %s", version / 100,
                 version % 100, arch,
                 log && *log ? log : "no reason given") < 0)
        said = strdup("the real NVRTC refuses it");
    free(log);
    return said;
}

char *sim_real_check(const char *text, const char *seen, int headers,
                     char *const *header, char *const *header_name,
                     int noptions, const char *const *option, int nnames,
                     char *const *name)
{
    static const char *const archs[] = {"--gpu-architecture=sm_80",
                                        "--gpu-architecture=sm_90a"};
    const char *word[WORDS] = {archs[0], include[0], include[1]};
    char path[PATH_MAX], *said = NULL;
    int n = 3;
    pthread_once(&once, load);
    if (!version) return strdup(trouble);
    for (int i = 0; i < noptions && n < WORDS; i++) {
        if (!is_arch(option[i]))
            word[n++] = option[i];
        else if (!strchr(option[i], '='))
            i++;
    }
    place(path, sizeof path, text, seen, n, word, headers, header);
    if (*path && !access(path, F_OK)) return NULL;
    for (int k = is_new(text); k < 2 && !said; k++) {
        void *program = NULL;
        word[0] = archs[k];
        if (api.CreateProgram(&program, text, "kernel.cu", headers,
                              (const char *const *)header,
                              (const char *const *)header_name))
            return strdup("the real NVRTC does not start\n");
        for (int i = 0; i < nnames; i++)
            api.AddNameExpression(program, name[i]);
        if (api.CompileProgram(program, n, word))
            said = log_of(program, archs[k]);
        api.DestroyProgram(&program);
    }
    if (!said && *path) close(open(path, O_WRONLY | O_CREAT, 0600));
    return said;
}
