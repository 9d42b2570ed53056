/* nvrtc.c - calling NVRTC. */
#define _GNU_SOURCE
#include "backend/cuda/nvrtc.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/find.h"
#include "base/dl.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char LATER[] = "--relocatable-device-code=true";

enum {
    ARCHS = 128,
    INCLUDES = 2,
    OPTIONS = 24,
    ROOM = OPTIONS + 2,
    OPTIONS_TEXT = 512
};

#define NVRTC(name, arguments) int(*name) arguments;
static struct {
#include "backend/cuda/nvrtc.def"
} api;
#undef NVRTC

#define NVRTC(name, arguments) "nvrtc" #name,
static const char *const api_names[] = {
#include "backend/cuda/nvrtc.def"
};
#undef NVRTC

enum { FUNCTIONS = sizeof api_names / sizeof *api_names };
_Static_assert(sizeof api == FUNCTIONS * sizeof(void *), "pointers only");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    int version, major, minor;
    int narchs, arch[ARCHS];
    int nincludes;
    char include[INCLUDES][PATH_MAX + 32]; /* options */
    char trouble[512];
} nvrtc;

static bool trouble(const char *what, const char *detail)
{
    snprintf(nvrtc.trouble, sizeof nvrtc.trouble, "NVRTC is needed%s%s", what,
             detail);
    return false;
}

/* Code made by a later CUDA than the driver's may be refused by it, so that of
 * the same comes first. */
static void *open_library(const char *wanted)
{
    static const char *const late[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                       "libnvrtc.so", NULL};
    static const char *const early[] = {"libnvrtc.so.12", "libnvrtc.so.13",
                                        "libnvrtc.so", NULL};
    if (wanted && !strcmp(wanted, "none")) {
        trouble(", but NABLA_NVRTC is none", "");
        return NULL;
    }
    if (wanted && *wanted) {
        trouble(", but cannot be opened: NABLA_NVRTC=", wanted);
        return nb_dl_open((const char *[]){wanted, NULL});
    }
    trouble(": no libnvrtc of CUDA 12 or 13 can be opened (install the CUDA "
            "toolkit or nvidia-cuda-nvrtc, or set NABLA_NVRTC to the file)",
            "");
    return nb_cuda_library(nb_cuda_version() / 1000 == 12 ? early : late);
}

static bool bind_functions(void *lib)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        void *f = nb_dl_symbol(lib, api_names[i]);
        if (!f) return trouble(", but the library has no ", api_names[i]);
        memcpy((char *)&api + (size_t)i * sizeof f, &f, sizeof f);
    }
    return true;
}

static void add_include(const char *folder, int n, const char *beside)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/%s/cuda_fp16.h", n, folder, beside);
    if (access(path, R_OK) != 0) return;
    snprintf(nvrtc.include[nvrtc.nincludes++], sizeof *nvrtc.include,
             "--include-path=%.*s/%s", n, folder, beside);
}

/* In a toolkit headers are in ../include; in the Python packages of CUDA 12
 * they are those of another package. */
static void find_includes(void)
{
    Dl_info info;
    void *inside;
    memcpy(&inside, &api.Version, sizeof inside);
    if (!dladdr(inside, &info) || !info.dli_fname) return;
    const char *end = strrchr(info.dli_fname, '/');
    if (!end) return;
    int n = (int)(end - info.dli_fname);
    add_include(info.dli_fname, n, "../include");
    add_include(info.dli_fname, n, "../../cuda_runtime/include");
}

static void find_archs(void)
{
    int n = 0;
    if (api.GetNumSupportedArchs(&n) == 0 && n <= ARCHS &&
        api.GetSupportedArchs(nvrtc.arch) == 0)
        nvrtc.narchs = n;
}

static void load(void)
{
    void *lib = open_library(getenv("NABLA_NVRTC"));
    if (!lib || !bind_functions(lib)) return;
    if (api.Version(&nvrtc.major, &nvrtc.minor) != 0 || nvrtc.major < 12) {
        trouble(" of CUDA 12 or later, and the library is older", "");
        return;
    }
    find_includes();
    find_archs();
    nvrtc.version = nvrtc.major * 1000 + nvrtc.minor * 10;
}

int nb_nvrtc_version(void)
{
    pthread_once(&once, load);
    return nvrtc.version;
}

const char *nb_nvrtc_trouble(void)
{
    return nb_nvrtc_version() ? NULL : nvrtc.trouble;
}

typedef struct options {
    bool ptx;
    int n;
    const char *word[ROOM];
    char arch[48], text[OPTIONS_TEXT];
    char include[2][PATH_MAX + 32];
} options;

/* The latest architecture up to that one, 0 if there is none. */
static int known_arch(int wanted)
{
    int found = 0;
    for (int i = 0; i < nvrtc.narchs; i++)
        if (nvrtc.arch[i] <= wanted && nvrtc.arch[i] > found)
            found = nvrtc.arch[i];
    return found;
}

/* What calls functions that only the driver has is left to it to link. */
static bool is_linked_later(const char *text)
{
    size_t n = strcspn(text, "\n");
    return memmem(text, n, LATER, strlen(LATER));
}

static void set_arch(options *o, const char *text, int major, int minor)
{
    int wanted = major * 10 + minor, known = known_arch(wanted);
    if (known == 0) known = wanted; /* NVRTC will say it */
    o->ptx = known / 10 != major || is_linked_later(text);
    snprintf(o->arch, sizeof o->arch, "--gpu-architecture=%s_%d%s",
             o->ptx ? "compute" : "sm", known,
             wanted == 90 && known == 90 ? "a" : "");
}

/* The options in the first line of the text. */
static bool add_own(options *o, const char *text)
{
    static const char opening[] = "// options:";
    if (strncmp(text, opening, strlen(opening)) != 0) return true;
    text += strlen(opening);
    size_t n = strcspn(text, "\n");
    if (n >= sizeof o->text)
        return nb_fail(NB_EVALUE, "compile: the line of options is too long");
    memcpy(o->text, text, n);
    o->text[n] = '\0';
    char *rest = o->text;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        if (o->n == OPTIONS)
            return nb_fail(NB_EVALUE, "compile: there are too many options");
        o->word[o->n++] = word;
    }
    return true;
}

static void add_folders(options *o, const nb_nvrtc_file *file)
{
    const char *end = strrchr(file->path, '/');
    int n = end ? (int)(end - file->path) : 1;
    snprintf(o->include[0], sizeof *o->include, "--include-path=%.*s", n,
             end ? file->path : ".");
    snprintf(o->include[1], sizeof *o->include, "--include-path=%s",
             file->folder);
    for (int i = 0; i < 2; i++)
        o->word[o->n++] = o->include[i];
}

static bool set_options(options *o, const char *text, int major, int minor)
{
    set_arch(o, text, major, minor);
    o->word[o->n++] = o->arch;
    o->word[o->n++] = "--std=c++17";
    o->word[o->n++] = "--disable-warnings";
    for (int i = 0; i < nvrtc.nincludes; i++)
        o->word[o->n++] = nvrtc.include[i];
    return add_own(o, text);
}

static bool fail_log(void *program)
{
    size_t n = 0;
    char *log = NULL;
    if (api.GetProgramLogSize(program, &n) == 0 && n > 1) {
        if (!(log = nb_alloc(n + 1))) return false;
        log[n] = '\0';
        if (api.GetProgramLog(program, log) != 0) *log = '\0';
        for (n = strlen(log); n > 0 && strchr("\n ", log[n - 1]);)
            log[--n] = '\0';
    }
    nb_fail(NB_ERUNTIME, "compile: NVRTC %d.%d: %s", nvrtc.major, nvrtc.minor,
            log && *log ? log : "no reason given");
    nb_free(log);
    return false;
}

static bool take_code(void *program, bool ptx, nb_object *out)
{
    size_t n = 0;
    int result =
        ptx ? api.GetPTXSize(program, &n) : api.GetCUBINSize(program, &n);
    if (result != 0 || n == 0)
        return nb_fail(NB_ERUNTIME, "compile: NVRTC %d.%d made no code",
                       nvrtc.major, nvrtc.minor);
    *out = (nb_object){nb_alloc(n), n, nvrtc.version};
    if (!out->data) return false;
    result =
        ptx ? api.GetPTX(program, out->data) : api.GetCUBIN(program, out->data);
    if (result == 0) return true;
    nb_object_free(out);
    return nb_fail(NB_ERUNTIME, "compile: NVRTC %d.%d gave no code",
                   nvrtc.major, nvrtc.minor);
}

/* Headers of C for texts that are compiled as C, too: what they declare is known
 * to NVRTC, or to nabla/kernel.h. */
static const char *const header_names[] = {"math.h", "stdint.h", "string.h",
                                           "stddef.h", "stdbool.h"};
static const char *const headers[] = {"", "", "", "", ""};
enum { HEADERS = sizeof headers / sizeof *headers };

bool nb_nvrtc_compile_file(const char *text, const nb_nvrtc_file *file,
                           int major, int minor, nb_object *out)
{
    options o = {0};
    void *program = NULL;
    *out = (nb_object){0};
    if (!nb_nvrtc_version())
        return nb_fail(NB_ERUNTIME, "compile: %s", nvrtc.trouble);
    if (!set_options(&o, text, major, minor)) return false;
    if (file) add_folders(&o, file);
    if (api.CreateProgram(&program, text, file ? file->path : "kernel.cu",
                          file ? HEADERS : 0, headers, header_names) != 0)
        return nb_fail(NB_ERUNTIME, "compile: NVRTC %d.%d does not start",
                       nvrtc.major, nvrtc.minor);
    bool ok = api.CompileProgram(program, o.n, o.word) == 0
                  ? take_code(program, o.ptx, out)
                  : fail_log(program);
    api.DestroyProgram(&program);
    return ok;
}

bool nb_nvrtc_compile(const char *text, int major, int minor, nb_object *out)
{
    return nb_nvrtc_compile_file(text, NULL, major, minor, out);
}
