/* nvrtc.c - compilation: the text goes with shim.h through the host's C++
 * compiler; the cubin is a header and the shared object it made. */
#define _GNU_SOURCE
#include "real.h"
#include "sim.h"
#include "text.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* No real compiler's: its cubins must not be taken for this one's, nor those
 * that it has not seen for those it has. */
enum { SIM_MINOR = 77, SIM_MINOR_CHECKED = 78 };
enum { KERNELS = 64, OPTIONS = 64, NAMES = 64, HEADERS = 32, INCLUDES = 16 };

typedef struct sim_program {
    char *text, *name;
    char *headers[HEADERS], *header_names[HEADERS];
    int header_count;
    char *names[NAMES], *lowered[NAMES];
    int name_count;
    bool compiled, virtual; /* no cubin, only what stands for PTX */
    char *seen; /* the text with what it includes; NULL: it includes nothing */
    char *log, *cubin;
    size_t cubin_bytes;
} sim_program;

const char *nvrtcGetErrorString(int code)
{
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR"};
    int n = (int)(sizeof names / sizeof *names);
    return code >= 0 && code < n ? names[code] : "NVRTC_ERROR unknown";
}

int nvrtcVersion(int *major, int *minor)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!major || !minor) return NVRTC_ERROR_INVALID_INPUT;
    *major = 13, *minor = sim_real_asked() ? SIM_MINOR_CHECKED : SIM_MINOR;
    return NVRTC_SUCCESS;
}

static const int known_archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 120};

int nvrtcGetNumSupportedArchs(int *count)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!count) return NVRTC_ERROR_INVALID_INPUT;
    *count = (int)(sizeof known_archs / sizeof *known_archs);
    return NVRTC_SUCCESS;
}

int nvrtcGetSupportedArchs(int *archs)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!archs) return NVRTC_ERROR_INVALID_INPUT;
    memcpy(archs, known_archs, sizeof known_archs);
    return NVRTC_SUCCESS;
}

int nvrtcDestroyProgram(nvrtcProgram *program)
{
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    sim_program *p = *program;
    for (int i = 0; i < p->header_count; i++) {
        free(p->headers[i]);
        free(p->header_names[i]);
    }
    for (int i = 0; i < p->name_count; i++) {
        free(p->names[i]);
        free(p->lowered[i]);
    }
    free(p->text);
    free(p->name);
    free(p->seen);
    free(p->log);
    free(p->cubin);
    free(p);
    *program = NULL;
    return NVRTC_SUCCESS;
}

int nvrtcCreateProgram(nvrtcProgram *program, const char *text,
                       const char *name, int count, const char *const *headers,
                       const char *const *names)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program || !text || count < 0 || count > HEADERS)
        return NVRTC_ERROR_INVALID_INPUT;
    sim_program *p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    p->text = strdup(text);
    p->name = strdup(name && *name ? name : "default_program");
    bool good = p->text && p->name;
    for (int i = 0; i < count; i++) {
        p->headers[i] = strdup(headers[i]);
        p->header_names[i] = strdup(names[i]);
        good = good && p->headers[i] && p->header_names[i];
        p->header_count++;
    }
    *program = p;
    if (!good) nvrtcDestroyProgram(program);
    return good ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

int nvrtcAddNameExpression(nvrtcProgram program, const char *expression)
{
    if (!program || !expression) return NVRTC_ERROR_INVALID_INPUT;
    if (program->compiled)
        return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
    int i = program->name_count;
    if (i == NAMES) return NVRTC_ERROR_OUT_OF_MEMORY;
    program->names[i] = strdup(expression);
    if (asprintf(&program->lowered[i], "sim_lowered_%d", i) < 0)
        program->lowered[i] = NULL;
    program->name_count++;
    return program->names[i] && program->lowered[i] ? NVRTC_SUCCESS
                                                    : NVRTC_ERROR_OUT_OF_MEMORY;
}

int nvrtcGetLoweredName(nvrtcProgram program, const char *expression,
                        const char **name)
{
    if (!program || !expression || !name) return NVRTC_ERROR_INVALID_INPUT;
    if (!program->compiled)
        return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    for (int i = 0; i < program->name_count; i++)
        if (!strcmp(program->names[i], expression)) {
            *name = program->lowered[i];
            return NVRTC_SUCCESS;
        }
    return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

/* The text as it is compiled: what it includes is in it. */
static const char *text_of(const sim_program *p)
{
    return p->seen ? p->seen : p->text;
}

/* The shim, the text, and the table of its kernels. */
static void whole(sim_text *t, const sim_program *p, int arch)
{
    const char *text = text_of(p);
    sim_found found[KERNELS];
    int count = sim_text_kernels(text, found, KERNELS);
    sim_text_add(t, "#define SIM_ARCH %d\n#include \"shim.h\"\nnamespace {\n",
                 arch);
    sim_text_add(t, "#line 1 \"%s\"\n", p->name);
    sim_text_bind(t, text);
    sim_text_add(t, "\n}\n#line 1 \"table\"\n");
    for (int i = 0; i < count; i++)
        sim_text_add(t, "SIM_BODIES(%d, %s)\n", i, found[i].name);
    for (int i = 0; i < p->name_count; i++)
        sim_text_add(t, "SIM_BODIES(%d, (%s))\n", count + i, p->names[i]);
    sim_text_add(t, "static const sim_kernel sim_kernels[] = {\n");
    for (int i = 0; i < count; i++)
        sim_text_add(t, "SIM_ROW(%d, \"%s\", %s, %d),\n", i, found[i].name,
                     found[i].name, found[i].threads);
    for (int i = 0; i < p->name_count; i++)
        sim_text_add(t, "SIM_ROW(%d, \"%s\", (%s), 1024),\n", count + i,
                     p->lowered[i], p->names[i]);
    sim_text_add(t, "{0, 0, 0, 0, 0, 0}};\nSIM_IMAGE(%d)\n",
                 sim_text_meets(text));
}

/* What the compiler is called with. */
typedef struct command {
    const char *words[OPTIONS + 64];
    int count;
    const char *includes[INCLUDES];
    int include_count;
    char standard[32], folder[1024];
    int arch;
    bool fused, virtual;
} command;

static void word(command *c, const char *text)
{
    if (c->count < OPTIONS + 63) c->words[c->count++] = text;
}

/* What follows an option, after = or in the next word. */
static const char *value(const char *option, const char *name, int *i,
                         int count, const char *const *options)
{
    size_t n = strlen(name);
    if (strncmp(option, name, n)) return NULL;
    if (option[n] == '=') return option + n + 1;
    if (option[n] || *i + 1 >= count) return NULL;
    return options[++*i];
}

static bool ignored(const char *option)
{
    static const char *const known[] = {"-default-device",
                                        "--default-device",
                                        "--device-debug",
                                        "-G",
                                        "-lineinfo",
                                        "--generate-line-info",
                                        "--use_fast_math",
                                        "-use_fast_math",
                                        "--extra-device-vectorization",
                                        "-w",
                                        "--disable-warnings",
                                        "-dopt=on",
                                        "--restrict",
                                        "-restrict",
                                        "--relocatable-device-code",
                                        "--ftz",
                                        "--prec-sqrt",
                                        "--prec-div",
                                        "--maxrregcount",
                                        "-maxrregcount",
                                        "--diag-suppress",
                                        "-diag-suppress",
                                        "-ftz",
                                        "-prec-div",
                                        "-prec-sqrt",
                                        "--split-compile",
                                        "-split-compile",
                                        "--minimal",
                                        "-minimal",
                                        "--device-as-default-execution-space",
                                        "--device-int128",
                                        "--dopt",
                                        "--ptxas-options",
                                        "--builtin-initializer-list",
                                        "--no-cache"};
    size_t n = strcspn(option, "=");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == n && !strncmp(known[i], option, n)) return true;
    return false;
}

static bool arch_of(command *c, const char *text)
{
    int at = 0;
    bool real = sscanf(text, "sm_%d%n", &c->arch, &at) == 1;
    c->virtual = !real && sscanf(text, "compute_%d%n", &c->arch, &at) == 1;
    bool tail = !text[at] || !strcmp(text + at, "a") || !strcmp(text + at, "f");
    for (size_t i = 0; i < sizeof known_archs / sizeof *known_archs; i++)
        if (known_archs[i] == c->arch) return (real || c->virtual) && tail;
    return false;
}

static bool option(command *c, int *i, int count, const char *const *options)
{
    static const char *const archs[] = {"--gpu-architecture", "-arch"};
    static const char *const standards[] = {"--std", "-std"};
    static const char *const fusions[] = {"--fmad", "-fmad"};
    const char *o = options[*i], *v;
    for (int k = 0; k < 2; k++) {
        if ((v = value(o, archs[k], i, count, options))) return arch_of(c, v);
        if ((v = value(o, fusions[k], i, count, options))) {
            c->fused = !strcmp(v, "true");
            return true;
        }
        if ((v = value(o, standards[k], i, count, options))) {
            snprintf(c->standard, sizeof c->standard, "-std=gnu%s", v + 1);
            return !strncmp(v, "c++", 3);
        }
    }
    v = value(o, "--include-path", i, count, options);
    if (!v && !strncmp(o, "-I", 2)) {
        *i += !o[2];
        v = o[2] ? o + 2 : options[*i];
    }
    if (v) {
        if (c->include_count < INCLUDES) c->includes[c->include_count++] = v;
        return true;
    }
    if (!strncmp(o, "-D", 2) || !strncmp(o, "-U", 2)) {
        word(c, o);
        return true;
    }
    v = value(o, "--define-macro", i, count, options);
    if (v) {
        word(c, "-D");
        word(c, v);
    }
    return v || ignored(o);
}

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[1536];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    bool good = fputs(text, f) >= 0;
    return !fclose(f) && good;
}

static char *read_file(const char *folder, const char *name, size_t *bytes)
{
    char path[1536];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *data = NULL;
    if (!fstat(fileno(f), &s) && (data = malloc((size_t)s.st_size + 1))) {
        *bytes = fread(data, 1, (size_t)s.st_size, f);
        data[*bytes] = 0;
    }
    fclose(f);
    return data;
}

static void flags(command *c)
{
    static const char *const fixed[] = {"-x",
                                        "c++",
                                        "-O1",
                                        "-w",
                                        "-shared",
                                        "-fPIC",
                                        "-nostdinc",
                                        "-nostdlib",
                                        "-fno-exceptions",
                                        "-fno-rtti",
                                        "-fwrapv",
                                        "-fno-strict-aliasing",
                                        "-fno-math-errno",
                                        "-fno-delete-null-pointer-checks",
                                        "-fno-threadsafe-statics",
                                        "-fno-stack-protector",
                                        "-fvisibility=hidden",
                                        "-fsanitize=alignment,bounds",
                                        "-Wl,-Bsymbolic"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        word(c, fixed[i]);
#ifdef __x86_64__
    if (__builtin_cpu_supports("fma")) word(c, "-mfma");
#endif
    word(c, c->fused ? "-ffp-contract=fast" : "-ffp-contract=off");
    word(c, c->standard);
    word(c, "-I" SIM_FOLDER);
    word(c, "-I" SIM_FOLDER "/include");
}

static int spawn(command *c)
{
    posix_spawn_file_actions_t files;
    extern char **environ;
    char log[1536];
    pid_t child;
    int status = -1;
    snprintf(log, sizeof log, "%s/log", c->folder);
    c->words[c->count] = NULL;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log,
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    for (int i = 0; i < 2 && status < 0; i++) {
        if (!posix_spawnp(&child, c->words[0], &files, NULL,
                          (char *const *)c->words, environ))
            waitpid(child, &status, 0);
        c->words[0] = "clang"; /* where there is no gcc */
    }
    posix_spawn_file_actions_destroy(&files);
    return status;
}

static void clean(const sim_program *p, const char *folder)
{
    char path[1536];
    const char *own[] = {"k.cu", "k.so", "log"};
    for (int i = 0; i < 3 + p->header_count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder,
                 i < 3 ? own[i] : p->header_names[i - 3]);
        unlink(path);
    }
    rmdir(folder);
}

static bool wrap(sim_program *p, const char *object, size_t bytes, int arch)
{
    sim_header h = {SIM_MAGIC, arch, p->virtual, bytes};
    p->cubin = malloc(sizeof h + bytes);
    if (!p->cubin) return false;
    memcpy(p->cubin, &h, sizeof h);
    memcpy(p->cubin + sizeof h, object, bytes);
    p->cubin_bytes = sizeof h + bytes;
    return true;
}

/* What a text includes is put into it before kernels are looked for, by the
 * compiler and without the shim, whose words stay as they are. */
static int include(sim_program *p, const command *former)
{
    command c = *former;
    char source[1536], output[1536], here[1536], arch[64];
    size_t bytes = 0;
    const char *words[] = {"-E",
                           "-x",
                           "c++",
                           "-w",
                           "-nostdinc",
                           c.standard,
                           "-D__CUDACC__=1",
                           "-D__CUDACC_RTC__=1",
                           arch,
                           "-I" SIM_FOLDER "/include",
                           here};
    snprintf(arch, sizeof arch, "-D__CUDA_ARCH__=%d", c.arch * 10);
    snprintf(source, sizeof source, "%s/k.cu", c.folder);
    snprintf(output, sizeof output, "%s/k.so", c.folder);
    snprintf(here, sizeof here, "-I%s", c.folder);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        word(&c, words[i]);
    for (int i = 0; i < c.include_count; i++) {
        word(&c, "-I");
        word(&c, c.includes[i]);
    }
    word(&c, source);
    word(&c, "-o");
    word(&c, output);
    sim_text t = {0};
    sim_text_add(&t, "#line 1 \"%s\"\n", p->name);
    sim_text_part(&t, p->text, strlen(p->text));
    bool good = !t.failed && write_file(c.folder, "k.cu", t.chars);
    sim_text_free(&t);
    if (!good) return NVRTC_ERROR_INTERNAL_ERROR;
    int status = spawn(&c);
    if (status) p->log = read_file(c.folder, "log", &bytes);
    if (status) return NVRTC_ERROR_COMPILATION;
    p->seen = read_file(c.folder, "k.so", &bytes);
    return p->seen ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
}

static int build(sim_program *p, command *c)
{
    char source[1536], object[1536], here[1536];
    size_t bytes = 0;
    sim_text text = {0};
    bool good = true;
    for (int i = 0; i < p->header_count; i++)
        good = good && write_file(c->folder, p->header_names[i], p->headers[i]);
    int code = good && strstr(p->text, "#include") ? include(p, c) : 0;
    if (code) return code;
    whole(&text, p, c->arch);
    good = good && !text.failed && write_file(c->folder, "k.cu", text.chars);
    sim_text_free(&text);
    snprintf(source, sizeof source, "%s/k.cu", c->folder);
    snprintf(object, sizeof object, "%s/k.so", c->folder);
    snprintf(here, sizeof here, "-I%s", c->folder);
    flags(c);
    word(c, here);
    word(c, source);
    word(c, "-o");
    word(c, object);
    word(c, "-lm");
    word(c, "-lc");
    if (!good) return NVRTC_ERROR_INTERNAL_ERROR;
    int status = spawn(c);
    p->log = read_file(c->folder, "log", &bytes);
    if (status) return NVRTC_ERROR_COMPILATION;
    char *data = read_file(c->folder, "k.so", &bytes);
    good = data && wrap(p, data, bytes, c->arch);
    free(data);
    return good ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
}

static int refuse(sim_program *p, const char *option)
{
    if (asprintf(&p->log, "nvrtc: error: invalid value for option: %s\n",
                 option) < 0)
        p->log = NULL;
    return NVRTC_ERROR_INVALID_OPTION;
}

static int check(sim_program *p, int count, const char *const *options)
{
    if (!sim_real_asked()) return NVRTC_SUCCESS;
    char *said = sim_real_check(p->text, p->seen, p->header_count, p->headers,
                                p->header_names, count, options, p->name_count,
                                p->names);
    if (!said) return NVRTC_SUCCESS;
    free(p->log);
    free(p->cubin);
    p->log = said;
    p->cubin = NULL;
    return NVRTC_ERROR_COMPILATION;
}

int nvrtcCompileProgram(nvrtcProgram program, int count,
                        const char *const *options)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    if (program->compiled || count > OPTIONS) return NVRTC_ERROR_INVALID_INPUT;
    const char *compiler = getenv("NABLA_SIM_CXX"), *temp = getenv("TMPDIR");
    command c = {.arch = 75, .fused = true, .standard = "-std=gnu++17"};
    program->compiled = true;
    word(&c, compiler && *compiler ? compiler : "gcc");
    for (int i = 0; i < count; i++) {
        int at = i;
        if (!option(&c, &i, count, options))
            return refuse(program, options[at]);
    }
    program->virtual = c.virtual;
    snprintf(c.folder, sizeof c.folder, "%s/nabla-sim-XXXXXX",
             temp && *temp ? temp : "/tmp");
    if (!mkdtemp(c.folder)) return NVRTC_ERROR_INTERNAL_ERROR;
    code = build(program, &c);
    clean(program, c.folder);
    return code ? code : check(program, count, options);
}

int nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program || !bytes) return NVRTC_ERROR_INVALID_INPUT;
    *bytes = program->virtual ? 0 : program->cubin_bytes;
    return program->cubin ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

int nvrtcGetCUBIN(nvrtcProgram program, char *to)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program || !program->cubin || !to) return NVRTC_ERROR_INVALID_PROGRAM;
    if (program->virtual) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(to, program->cubin, program->cubin_bytes);
    return NVRTC_SUCCESS;
}

int nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program || !bytes) return NVRTC_ERROR_INVALID_INPUT;
    *bytes = program->cubin_bytes;
    return program->cubin ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

int nvrtcGetPTX(nvrtcProgram program, char *to)
{
    int code = sim_fails(__func__);
    if (code) return code;
    if (!program || !program->cubin || !to) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(to, program->cubin, program->cubin_bytes);
    ((sim_header *)(void *)to)->virtual = 1;
    return NVRTC_SUCCESS;
}

int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    if (!program || !bytes) return NVRTC_ERROR_INVALID_INPUT;
    *bytes = (program->log ? strlen(program->log) : 0) + 1;
    return NVRTC_SUCCESS;
}

int nvrtcGetProgramLog(nvrtcProgram program, char *to)
{
    if (!program || !to) return NVRTC_ERROR_INVALID_INPUT;
    strcpy(to, program->log ? program->log : "");
    return NVRTC_SUCCESS;
}
