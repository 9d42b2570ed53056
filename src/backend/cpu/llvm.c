/* llvm.c - calling LLVM, and surviving it.
 *
 * LLVM reports errors in three ways: by a result, to the diagnostic handler of
 * the context, and, for IR it cannot select instructions for and a few other
 * things, to the fatal error handler, which must not return.  Ours leaves by
 * longjmp, as LLVM's own CrashRecoveryContext does, and lets what the call had
 * built leak: no lock of LLVM is held at that point, but objects are in the
 * middle of changes.  What remains is fatal to the process: LLVM running out
 * of memory, and crashing on IR that NABLA_CHECK would have refused. */
#include "backend/cpu/llvm.h"

#include "backend/cpu/cpu.h"
#include "base/dl.h"
#include "base/text.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define ARCH "X86"
#else
#define ARCH "AArch64"
#endif

/* Values of LLVM's enumerations. */
enum {
    ERROR = 0,         /* a severity */
    RETURN_STATUS = 2, /* what verifying does on failure */
    LEVEL_DEFAULT = 2, /* of optimisation in the code generator */
    RELOC_PIC = 2,
    MODEL_SMALL = 3,
    OBJECT_FILE = 1,
    OLDEST = 16
};

#define LLVM(result, name, arguments) result(*name) arguments;
static struct {
#include "backend/cpu/llvm.def"
} api;
#undef LLVM

#define LLVM(result, name, arguments) "LLVM" #name,
static const char *const api_names[] = {
#include "backend/cpu/llvm.def"
};
#undef LLVM

enum { FUNCTIONS = sizeof api_names / sizeof *api_names };
_Static_assert(sizeof api == FUNCTIONS * sizeof(void *), "pointers only");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    int version;
    const char *triple, *cpu, *features;
    void *target;
    char trouble[512];
} llvm;

/* Machines serve one compilation at a time; making one takes half as
 * long as compiling a small kernel. */
enum { MACHINES = 16 };
static struct {
    pthread_mutex_t lock;
    int n;
    void *machine[MACHINES];
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct job {
    const char *ir;
    nb_object *out;
    void *context, *module, *machine;
    char message[900]; /* the first */
    jmp_buf exit;
} job;

static _Thread_local job *current;

static bool say(job *j, const char *message)
{
    if (*j->message) return false;
    snprintf(j->message, sizeof j->message, "%s", message ? message : "");
    size_t n = strlen(j->message);
    while (n > 0 && (j->message[n - 1] == '\n' || j->message[n - 1] == ' '))
        j->message[--n] = '\0';
    if (n == 0) strcpy(j->message, "no reason given");
    return false;
}

static bool say_theirs(job *j, char *message)
{
    say(j, message);
    if (message) api.DisposeMessage(message);
    return false;
}

static void on_diagnostic(void *info, void *arg)
{
    if (api.GetDiagInfoSeverity(info) == ERROR)
        say_theirs(arg, api.GetDiagInfoDescription(info));
}

/* Of a thread that is not ours it is somebody else's: LLVM goes on as if
 * there were no handler. */
static void on_fatal_error(const char *reason)
{
    job *j = current;
    if (!j) return;
    say(j, reason);
    longjmp(j->exit, 1);
}

static void initialize(void *lib)
{
    static const char *const parts[] = {
        "LLVMInitialize" ARCH "TargetInfo", "LLVMInitialize" ARCH "Target",
        "LLVMInitialize" ARCH "TargetMC", "LLVMInitialize" ARCH "AsmPrinter"};
    for (int i = 0; i < 4; i++) {
        void (*start)(void) = (void (*)(void))nb_dl_symbol(lib, parts[i]);
        if (start) start();
    }
    api.InstallFatalErrorHandler(on_fatal_error);
}

static bool trouble(const char *what, const char *detail)
{
    snprintf(llvm.trouble, sizeof llvm.trouble, "%s%s", what, detail);
    return false;
}

static bool bind_functions(void *lib, const char *file)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        void *f = nb_dl_symbol(lib, api_names[i]);
        if (!f) return trouble(file, " is not LLVM 16 or later");
        memcpy((char *)&api + (size_t)i * sizeof f, &f, sizeof f);
    }
    return true;
}

/* Strings that live as long as the process. */
static bool find_target(void)
{
    const nb_cpu *cpu = nb_cpu_target();
    bool native = !strcmp(cpu->name, "native");
    char *host = api.GetHostCPUFeatures(), *why = NULL;
    size_t n = strlen(host) + strlen(cpu->features) + 2;
    char *all = nb_alloc_forever(n);
    if (!all) return trouble("out of memory", "");
    snprintf(all, n, "%s%s%s", native ? host : "",
             native && *cpu->features ? "," : "", cpu->features);
    llvm.features = all;
    llvm.cpu = native ? api.GetHostCPUName() : cpu->name;
    llvm.triple = api.GetDefaultTargetTriple();
    api.DisposeMessage(host);
    if (!api.GetTargetFromTriple(llvm.triple, &llvm.target, &why)) return true;
    trouble("LLVM: ", why);
    api.DisposeMessage(why);
    return false;
}

static bool try_file(const char *file)
{
    unsigned version, minor, patch;
    void *lib = nb_dl_open((const char *[]){file, NULL});
    if (!lib) return false;
    if (!bind_functions(lib, file)) return false;
    api.GetVersion(&version, &minor, &patch);
    if (version < OLDEST) return trouble(file, " is older than LLVM 16");
    initialize(lib);
    if (!find_target()) return false;
    llvm.version = (int)version;
    return true;
}

static void load(void)
{
    static const char *const files[] = {"libLLVM.so.19.1", "libLLVM-19.so.1",
                                        "libLLVM-19.so",   "libLLVM.so.18.1",
                                        "libLLVM-18.so.1", "libLLVM-18.so",
                                        "libLLVM-17.so.1", "libLLVM-17.so",
                                        "libLLVM-16.so.1", "libLLVM-16.so"};
    const char *wanted = getenv("NABLA_LLVM");
    if (wanted && !strcmp(wanted, "none")) {
        trouble("LLVM is needed, but NABLA_LLVM is none", "");
        return;
    }
    if (wanted && *wanted) {
        trouble("LLVM is needed, but cannot be opened: NABLA_LLVM=", wanted);
        try_file(wanted);
        return;
    }
    trouble("LLVM is needed: no libLLVM 16, 17, 18 or 19 can be opened ",
            "(install libllvm16, or set NABLA_LLVM to the file)");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (try_file(files[i])) return;
}

int nb_llvm_version(void)
{
    pthread_once(&once, load);
    return llvm.version;
}

bool nb_llvm_there(void)
{
    return nb_llvm_version() != 0;
}

const char *nb_llvm_passes(void)
{
    const char *passes = getenv("NABLA_PASSES");
    return passes ? passes : "";
}

static bool parse(job *j)
{
    char *why = NULL;
    j->context = api.ContextCreate();
    api.ContextSetDiagnosticHandler(j->context, on_diagnostic, j);
    void *text = api.CreateMemoryBufferWithMemoryRange(j->ir, strlen(j->ir),
                                                       "module", true);
    if (api.ParseIRInContext(j->context, text, &j->module, &why)) {
        j->module = NULL;
        return say_theirs(j, why);
    }
    return !*j->message;
}

static void *take_machine(void)
{
    pthread_mutex_lock(&idle.lock);
    void *m = idle.n > 0 ? idle.machine[--idle.n] : NULL;
    pthread_mutex_unlock(&idle.lock);
    return m ? m
             : api.CreateTargetMachine(llvm.target, llvm.triple, llvm.cpu,
                                       llvm.features, LEVEL_DEFAULT, RELOC_PIC,
                                       MODEL_SMALL);
}

static void give_machine(void *m)
{
    pthread_mutex_lock(&idle.lock);
    bool keep = idle.n < MACHINES;
    if (keep) idle.machine[idle.n++] = m;
    pthread_mutex_unlock(&idle.lock);
    if (!keep) api.DisposeTargetMachine(m);
}

static bool aim(job *j)
{
    j->machine = take_machine();
    if (!j->machine) return say(j, "no such target machine");
    void *layout = api.CreateTargetDataLayout(j->machine);
    api.SetTarget(j->module, llvm.triple);
    api.SetModuleDataLayout(j->module, layout);
    api.DisposeTargetData(layout);
    return true;
}

static bool verify(job *j)
{
    char *why = NULL;
    if (!getenv("NABLA_CHECK")) return true;
    if (api.VerifyModule(j->module, RETURN_STATUS, &why))
        return say_theirs(j, why);
    if (why) api.DisposeMessage(why);
    return true;
}

static bool run_passes(job *j)
{
    const char *passes = nb_llvm_passes();
    if (!*passes) return true;
    void *options = api.CreatePassBuilderOptions();
    void *error = api.RunPasses(j->module, passes, j->machine, options);
    api.DisposePassBuilderOptions(options);
    if (!error) return true;
    char *why = api.GetErrorMessage(error);
    say(j, why);
    api.DisposeErrorMessage(why);
    return false;
}

static bool emit(job *j)
{
    char *why = NULL;
    void *buffer = NULL;
    if (api.TargetMachineEmitToMemoryBuffer(j->machine, j->module, OBJECT_FILE,
                                            &why, &buffer))
        return say_theirs(j, why);
    size_t n = api.GetBufferSize(buffer);
    void *data = *j->message ? NULL : nb_alloc(n);
    if (data) {
        memcpy(data, api.GetBufferStart(buffer), n);
        *j->out = (nb_object){data, n, llvm.version};
    }
    api.DisposeMemoryBuffer(buffer);
    return data;
}

static bool run(job *j)
{
    current = j;
    if (setjmp(j->exit)) return current = NULL, false;
    bool ok = parse(j) && aim(j) && verify(j) && run_passes(j) && emit(j);
    if (j->machine) give_machine(j->machine);
    if (j->module) api.DisposeModule(j->module);
    api.ContextDispose(j->context);
    current = NULL;
    return ok;
}

bool nb_llvm_compile(const char *ir, nb_object *out)
{
    const nb_cpu *cpu = nb_cpu_target();
    *out = (nb_object){0};
    if (cpu->trouble) return nb_fail(NB_ERUNTIME, "compile: %s", cpu->trouble);
    if (!nb_llvm_there())
        return nb_fail(NB_ERUNTIME, "compile: %s", llvm.trouble);
    job j = {.ir = ir, .out = out};
    if (run(&j)) return true;
    if (nb_failed()) return false; /* out of memory */
    return nb_fail(NB_ERUNTIME, "compile: LLVM %d: %s", llvm.version,
                   j.message);
}
