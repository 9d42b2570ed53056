/* test_code.c - from LLVM IR to running code: what is computed, what is
 * refused, and what the caches keep.
 *
 * Settings come from the environment and are read once, so each test runs in
 * a process of its own; `need` ends it with a message where a thing does not
 * hold.  Every process has the cache folder of its test. */
#define _GNU_SOURCE
#include "backend/cpu/cache.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/llvm.h"
#include "base/disk.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define need(it)                           \
    do {                                   \
        if (!(it)) gave_up(__LINE__, #it); \
    } while (0)

static void gave_up(int line, const char *what)
{
    fprintf(stderr, "test_code.c:%d: %s\n    %s\n", line, what,
            nb_error_message());
    _exit(1);
}

static char folder[64];
static bool has_llvm;

/* Two kernels that need all kinds of sections and calls: vectors of constants,
 * a table of jumps, variables, addresses of functions, memcpy and libm. */
static const char module[] =
    "@count = internal global i64 40\n"
    "@room = internal global [4096 x i8] zeroinitializer\n"
    "@both = internal constant [2 x ptr] [ptr @fmodf, ptr @twice]\n"
    "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>,"
    " <16 x float>)\n"
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
    "declare float @fmodf(float, float)\n"
    "define internal float @twice(float %a, float %b) nounwind noinline {\n"
    "  %r = fadd float %a, %a\n"
    "  ret float %r\n"
    "}\n"
    "define void @axpy(ptr %x, ptr %y, i64 %n) nounwind {\n"
    "entry:\n"
    "  br label %loop\n"
    "loop:\n"
    "  %i = phi i64 [0, %entry], [%next, %loop]\n"
    "  %px = getelementptr float, ptr %x, i64 %i\n"
    "  %py = getelementptr float, ptr %y, i64 %i\n"
    "  %a = load <16 x float>, ptr %px, align 4\n"
    "  %b = load <16 x float>, ptr %py, align 4\n"
    "  %r = call <16 x float> @llvm.fma.v16f32(<16 x float> %a, <16 x float>"
    " <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0,"
    "  float 7.0, float 8.0, float 9.0, float 10.0, float 11.0, float 12.0,"
    "  float 13.0, float 14.0, float 15.0, float 16.0>, <16 x float> %b)\n"
    "  store <16 x float> %r, ptr %py, align 4\n"
    "  %next = add i64 %i, 16\n"
    "  %more = icmp ult i64 %next, %n\n"
    "  br i1 %more, label %loop, label %end\n"
    "end:\n"
    "  ret void\n"
    "}\n"
    "define float @rest(ptr %to, ptr %from, i64 %n, float %a, float %b)"
    " nounwind {\n"
    "  call void @llvm.memcpy.p0.p0.i64(ptr @room, ptr %from, i64 %n,"
    " i1 false)\n"
    "  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr @room, i64 %n,"
    " i1 false)\n"
    "  %r = call float @fmodf(float %a, float %b)\n"
    "  ret float %r\n"
    "}\n"
    "define i64 @next() nounwind {\n"
    "  %c = load i64, ptr @count, align 8\n"
    "  %d = add i64 %c, 1\n"
    "  store i64 %d, ptr @count, align 8\n"
    "  ret i64 %d\n"
    "}\n"
    "define float @either(i64 %which, float %a, float %b) nounwind {\n"
    "  %at = getelementptr ptr, ptr @both, i64 %which\n"
    "  %f = load ptr, ptr %at, align 8\n"
    "  %r = call float %f(float %a, float %b)\n"
    "  ret float %r\n"
    "}\n"
    "define ptr @outside() nounwind {\n"
    "  ret ptr @fmodf\n"
    "}\n"
    "define i32 @jump(i32 %x) nounwind {\n"
    "  switch i32 %x, label %other [i32 0, label %a i32 1, label %b\n"
    "    i32 2, label %c i32 3, label %d i32 4, label %e i32 5, label %f]\n"
    "a: ret i32 17\n"
    "b: ret i32 3\n"
    "c: ret i32 -8\n"
    "d: call void @llvm.memcpy.p0.p0.i64(ptr @room, ptr @count, i64 8,"
    " i1 false) ret i32 4\n"
    "e: ret i32 99\n"
    "f: ret i32 1000\n"
    "other: ret i32 -1\n"
    "}\n"
    "define i16 @narrow(double %x) nounwind {\n"
    "  %f = fptrunc double %x to float\n"
    "  %h = fptrunc float %f to half\n"
    "  %w = fpext half %h to float\n"
    "  %d = fpext float %w to double\n"
    "  %s = fadd double %d, %x\n"
    "  %g = fptrunc double %s to half\n"
    "  %b = bitcast half %g to i16\n"
    "  ret i16 %b\n"
    "}\n";

static const char *one_more(int i)
{
    static _Thread_local char text[128];
    snprintf(text, sizeof text, "define i64 @f() nounwind {\n  ret i64 %d\n}\n",
             i);
    return text;
}

typedef void axpy_fn(const float *x, float *y, int64_t n);
typedef float rest_fn(void *to, const void *from, int64_t n, float a, float b);
typedef int64_t next_fn(void);
typedef float either_fn(int64_t which, float a, float b);
typedef void *outside_fn(void);
typedef int jump_fn(int x);
typedef uint16_t narrow_fn(double x);

static void *get(const nb_code *c, const char *name)
{
    void *f = nb_code_find(c, name);
    need(f);
    return f;
}

static void compute_vectors(const nb_code *c)
{
    enum { N = 64 };
    float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = 0.1f * (float)i;
        y[i] = (float)(i % 7);
    }
    ((axpy_fn *)get(c, "axpy"))(x, y, N);
    for (int i = 0; i < N; i++)
        need(y[i] == fmaf(x[i], (float)(i % 16 + 1), (float)(i % 7)));
}

static void compute_rest(const nb_code *c)
{
    const int jumps[] = {17, 3, -8, 4, 99, 1000, -1};
    char from[3000], to[3000];
    memset(from, 'x', sizeof from);
    float r = ((rest_fn *)get(c, "rest"))(to, from, sizeof to, 7.5f, 2);
    need(r == 1.5f);
    need(!memcmp(from, to, sizeof to));
    need(((next_fn *)get(c, "next"))() == 41);
    need(((next_fn *)get(c, "next"))() == 42);
    need(((either_fn *)get(c, "either"))(0, -7.5f, 2) == -1.5f);
    need(((either_fn *)get(c, "either"))(1, -7.5f, 2) == -15);
    need(((outside_fn *)get(c, "outside"))() == (void *)fmodf);
    for (int i = 0; i < 7; i++)
        need(((jump_fn *)get(c, "jump"))(i) == jumps[i]);
    need(((narrow_fn *)get(c, "narrow"))(1.0 / 3) == 0x3955);
}

static void compute(const nb_code *c)
{
    need(c);
    compute_vectors(c);
    compute_rest(c);
    need(!nb_code_find(c, "twice")); /* internal */
    need(!nb_code_find(c, "nothing"));
}

static void refused(bool ok, const char *why)
{
    need(!ok && nb_error_code() == NB_ERUNTIME);
    need(strstr(nb_error_message(), why));
    nb_error_clear();
}

/* Nothing is left behind: to be said at the end of a process that saw no
 * fatal error. */
static void all_free(void)
{
    need(!nb_failed());
    need(nb_memory_live() == 0);
    need(nb_code_bytes() == 0);
}

/* Runs the body in a process of its own, with a setting NAME=VALUE, and gives
 * its status.  What it writes to standard error goes to the file. */
static int run_alone(void (*body)(void), const char *setting, int file)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(file, 2);
        setenv("NABLA_CACHE_DIR", folder, 1);
        if (setting) putenv((char *)setting);
        body();
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void alone(void (*body)(void), const char *setting)
{
    int status = run_alone(body, setting, 2);
    if (status != 0)
        fail_msg("with %s: status %x", setting ? setting : "", status);
}

static void test(void (*body)(void), const char *setting)
{
    if (!has_llvm) {
        print_message("no libLLVM 16 to 19 here: tools/setup installs it\n");
        skip();
    }
    alone(body, setting);
}

static void look_for_llvm(void)
{
    need(nb_llvm_there());
    need(nb_llvm_version() >= 16);
}

static int find_llvm(void **state)
{
    int status;
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(nb_llvm_there() ? 0 : 1);
    waitpid(child, &status, 0);
    has_llvm = status == 0;
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/nabla-code-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char path[400];
    DIR *d = opendir(folder);
    (void)state;
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    return rmdir(folder);
}

static void compile_and_compute(void)
{
    nb_object o;
    need(nb_llvm_compile(module, &o));
    need(o.version == nb_llvm_version());
    nb_code *c = nb_code_load(o.data, o.n);
    nb_object_free(&o);
    compute(c);
    need(nb_code_bytes() > 0);
    need(nb_code_keep(c) == c);
    nb_code_drop(c);
    compute_vectors(c);
    nb_code_drop(c);
    all_free();
}

static void code_computes_what_its_text_says(void **state)
{
    (void)state;
    test(look_for_llvm, NULL);
    test(compile_and_compute, NULL);
    test(compile_and_compute, "NABLA_CHECK=1");
    test(compile_and_compute, "NABLA_PASSES=early-cse,instcombine");
}

static void baseline(void)
{
    const nb_cpu *cpu = nb_cpu_target();
    need(cpu->vector_bytes == 16 && !cpu->masks && !cpu->fma && !cpu->f16c);
    compile_and_compute();
}

static void avx2(void)
{
    const nb_cpu *cpu = nb_cpu_target();
    if (cpu->trouble) return;
    need(cpu->vector_bytes == 32 && !cpu->masks && cpu->fma && cpu->f16c);
    compile_and_compute();
}

static void without_fma(void)
{
    const nb_cpu *cpu = nb_cpu_target();
    if (cpu->trouble) return;
    need(cpu->vector_bytes == 32 && !cpu->fma && cpu->f16c);
    compile_and_compute();
}

static void code_is_made_for_the_processor_asked_for(void **state)
{
    (void)state;
    test(baseline, "NABLA_CPU=x86-64");
    test(baseline, "NABLA_CPU=x86-64-v2");
    test(baseline, "NABLA_CPU=native:-avx");
    test(avx2, "NABLA_CPU=x86-64-v3");
    test(without_fma, "NABLA_CPU=x86-64-v3:-fma");
}

static void no_such_processor(void)
{
    nb_object o;
    refused(nb_llvm_compile(module, &o), "is not known");
    refused(nb_code_build(module), "is not known");
    need(nb_cpu_target()->vector_bytes == 16);
    all_free();
}

static void an_unknown_processor_is_refused(void **state)
{
    (void)state;
    alone(no_such_processor, "NABLA_CPU=pdp-11");
    alone(no_such_processor, "NABLA_CPU=x86-64:+warp");
    alone(no_such_processor, "NABLA_CPU=x86-64:avx2");
    alone(no_such_processor, "NABLA_CPU=x86-64:,");
}

static void errors_are_llvms(void)
{
    nb_object o;
    refused(nb_llvm_compile("define void @f(] {\n}\n", &o),
            "module:1:16: error: expected type");
    need(!o.data);
    refused(nb_llvm_compile("define i32 @f() {\n  ret float 1.0\n}\n", &o),
            "error: value doesn't match function result type");
    refused(nb_code_build("nonsense"), "error: expected top-level entity");
    nb_code *c = nb_code_build("define void @f(ptr %x) {\n"
                               "  call void @nowhere(ptr %x)\n"
                               "  ret void\n}\n"
                               "declare void @nowhere(ptr)\n");
    refused(c, "no function nowhere to call");
    nb_code_drop(nb_code_build("")); /* nothing is no error */
    compile_and_compute();
}

static void malformed_modules(void)
{
    nb_object o;
    refused(nb_llvm_compile("define void @f() {\nself:\n"
                            "  br label %self\n}\n",
                            &o),
            "Entry block to function must not have predecessors");
    compile_and_compute();
}

static void unknown_passes(void)
{
    nb_object o;
    refused(nb_llvm_compile(module, &o), "unknown pass name 'faster'");
    all_free();
}

/* LLVM would end the process here. */
static void unselectable(void)
{
    nb_object o;
    for (int i = 0; i < 3; i++)
        refused(nb_llvm_compile(
                    "declare <8 x i16> @llvm.x86.sse41.phminposuw(<8 x i16>)\n"
                    "define <8 x i16> @f(<8 x i16> %x) nounwind {\n"
                    "  %r = call <8 x i16> @llvm.x86.sse41.phminposuw(<8 x i16>"
                    " %x)\n  ret <8 x i16> %r\n}\n",
                    &o),
                "Cannot select");
    refused(nb_llvm_compile("define void @f() nounwind {\n"
                            "  call void asm sideeffect \"bogus\", \"\"()\n"
                            "  ret void\n}\n",
                            &o),
            "nline asm");
    compile_and_compute();
}

static void silently(void (*body)(void), const char *setting)
{
    char path[128], said[1000];
    snprintf(path, sizeof path, "%s/stderr", folder);
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    int status = run_alone(body, setting, file);
    ssize_t n = pread(file, said, sizeof said, 0);
    close(file);
    if (status || n != 0) fail_msg("status %x: %.*s", status, (int)n, said);
}

static void errors_of_llvm_are_ours_and_not_printed(void **state)
{
    (void)state;
    test(look_for_llvm, NULL);
    silently(errors_are_llvms, NULL);
    silently(malformed_modules, "NABLA_CHECK=1");
    silently(unknown_passes, "NABLA_PASSES=faster");
    silently(unselectable, "NABLA_CPU=x86-64");
}

static void no_llvm(void)
{
    nb_object o;
    const char *wanted = getenv("NABLA_LLVM");
    need(!nb_llvm_there() && nb_llvm_version() == 0);
    refused(nb_llvm_compile(module, &o), "LLVM is needed");
    nb_llvm_compile(module, &o);
    need(strstr(nb_error_message(), wanted));
    nb_error_clear();
    refused(nb_code_build(module), "LLVM is needed");
    all_free();
}

static void not_llvm(void)
{
    nb_object o;
    refused(nb_llvm_compile(module, &o), "libm.so.6 is not LLVM 16 or later");
    all_free();
}

static void without_llvm_there_is_a_clear_error(void **state)
{
    (void)state;
    alone(no_llvm, "NABLA_LLVM=none");
    alone(no_llvm, "NABLA_LLVM=/nowhere/libLLVM.so");
    alone(not_llvm, "NABLA_LLVM=libm.so.6");
}

/* A load of exactly these bytes, at an odd address: reading one too many is
 * seen by the address sanitizer. */
static bool load_bytes(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n + 1);
    memcpy(copy + 1, bytes, n);
    nb_code *c = nb_code_load(copy + 1, n);
    free(copy);
    need(c || nb_failed());
    if (c) {
        need(!nb_failed());
        need(!nb_code_find(c, "nothing"));
    }
    nb_error_clear();
    nb_code_drop(c);
    return c;
}

static void damaged_objects(void)
{
    nb_object o;
    int loaded = 0, tried = 0;
    need(nb_llvm_compile(module, &o));
    int64_t live = nb_memory_live();
    uint8_t *bytes = o.data;
    for (size_t n = 0; n < o.n; n++)
        need(!load_bytes(bytes, n));
    need(load_bytes(bytes, o.n));
    static const uint8_t flips[] = {0x01, 0x80, 0xff, 0x10};
    for (size_t i = 0; i < o.n; i++)
        for (int k = 0; k < 4; k++) {
            bytes[i] ^= flips[k];
            loaded += load_bytes(bytes, o.n);
            bytes[i] ^= flips[k];
            tried++;
        }
    need(0 < loaded && loaded < tried);
    need(nb_memory_live() == live && nb_code_bytes() == 0);
    nb_object_free(&o);
    all_free();
}

/* The table of names ends within one. */
static void unended_name(void)
{
    nb_object o;
    Elf64_Ehdr h;
    need(nb_llvm_compile(module, &o));
    char *bytes = o.data, *name = memmem(bytes, o.n, "axpy", 5);
    memcpy(&h, bytes, sizeof h);
    for (int i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        char *at = bytes + h.e_shoff + (size_t)i * sizeof s;
        memcpy(&s, at, sizeof s);
        if (s.sh_type != SHT_STRTAB) continue;
        need(name > bytes + s.sh_offset);
        s.sh_size = (size_t)(name + 4 - bytes) - s.sh_offset;
        memcpy(at, &s, sizeof s);
    }
    refused(nb_code_load(o.data, o.n), "its names");
    nb_object_free(&o);
    all_free();
}

/* Several bytes at a time, in the tables at the end and in the header. */
static void scrambled_objects(void)
{
    nb_object o;
    uint64_t random = 1;
    need(nb_llvm_compile(module, &o));
    uint8_t *bytes = malloc(o.n);
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, o.data, o.n);
        for (int k = 0; k < 6; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(random >> 33) % o.n;
            if (k & 1) at = o.n - 1 - at % (o.n / 2);
            bytes[at] = k < 4 ? (uint8_t)(random >> 25) : 0xff;
        }
        load_bytes(bytes, o.n);
    }
    free(bytes);
    nb_object_free(&o);
    all_free();
}

static void a_damaged_object_is_an_error(void **state)
{
    (void)state;
    test(damaged_objects, NULL);
    test(unended_name, NULL);
    test(scrambled_objects, NULL);
}

static void build_and_compute(void)
{
    nb_code *c = nb_code_build(module);
    compute(c);
    nb_code_drop(c);
}

static void built_once(void)
{
    nb_code *a = nb_code_build(module), *b = nb_code_build(module);
    need(a && a == b);
    nb_code_drop(b);
    b = nb_code_build(one_more(1));
    need(b && a != b);
    nb_code_stats s = nb_code_stats_get();
    need(s.hits == 1 && s.disk_hits == 0 && s.misses == 2);
    need(s.bytes > 0 && s.compile_ms > 0 && !*s.trouble);
    need(s.bytes == nb_code_bytes());
    nb_code_drop(a);
    nb_code_drop(b);
    need(nb_code_bytes() == 0);
    build_and_compute();
    s = nb_code_stats_get();
    need(s.hits == 1 && s.disk_hits == 1 && s.misses == 2);
    all_free();
}

static void from_disk(void)
{
    build_and_compute();
    nb_code_stats s = nb_code_stats_get();
    need(s.hits == 0 && s.disk_hits == 1 && s.misses == 0);
    all_free();
}

static void compiled(void)
{
    build_and_compute();
    nb_code_stats s = nb_code_stats_get();
    need(s.hits == 0 && s.disk_hits == 0 && s.misses == 1);
    all_free();
}

static void a_text_is_compiled_once(void **state)
{
    (void)state;
    test(built_once, NULL);
    test(from_disk, NULL);
    test(from_disk, "NABLA_LLVM=none"); /* so it is not opened */
    test(compiled, "NABLA_CPU=x86-64");
    test(from_disk, "NABLA_CPU=x86-64");
    test(compiled, "NABLA_PASSES=early-cse");
    test(compiled, "NABLA_CACHE_MIB=0");
}

static int count_files(const char *ending)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strlen(e->d_name) > strlen(ending) &&
             strstr(e->d_name, ending) != NULL;
    if (d) closedir(d);
    return n;
}

/* The path of the only entry. */
static const char *entry_path(void)
{
    static char path[400];
    DIR *d = opendir(folder);
    *path = '\0';
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".code"))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (d) closedir(d);
    return path;
}

static size_t read_file(const char *path, uint8_t **bytes)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    size_t n = (size_t)st.st_size;
    *bytes = malloc(n);
    assert_int_equal(fread(*bytes, 1, n, f), n);
    fclose(f);
    return n;
}

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void a_damaged_entry_is_made_again(void **state)
{
    uint8_t *whole;
    (void)state;
    test(compiled, NULL);
    size_t n = read_file(entry_path(), &whole);
    for (size_t at = 0; at < n; at += at < 60 ? 9 : n / 8) {
        whole[at] ^= 1;
        write_file(entry_path(), whole, n);
        test(compiled, NULL);
        test(from_disk, NULL);
        whole[at] ^= 1;
        write_file(entry_path(), whole, at);
        test(compiled, NULL);
    }
    write_file(entry_path(), (const uint8_t *)"", 0);
    test(compiled, NULL);
    assert_int_equal(count_files(".code"), 1);
    assert_int_equal(count_files(".tmp"), 0);
    free(whole);
}

static void an_entry_that_others_can_write_is_not_trusted(void **state)
{
    (void)state;
    test(compiled, NULL);
    assert_int_equal(chmod(entry_path(), 0666), 0);
    test(compiled, NULL);
    test(from_disk, NULL);
}

static void build_many(void)
{
    for (int i = 0; i < 40; i++) {
        nb_code *c = nb_code_build(one_more(i / 2));
        need(c);
        need(((next_fn *)get(c, "f"))() == i / 2);
        nb_code_drop(c);
    }
    nb_code_stats s = nb_code_stats_get();
    need(s.disk_hits + s.misses == 40 && s.disk_hits >= 20);
    need(!*s.trouble);
    all_free();
}

static void processes_share_a_folder(void **state)
{
    pid_t child[4];
    (void)state;
    test(look_for_llvm, NULL);
    fflush(NULL);
    for (int i = 0; i < 4; i++)
        if ((child[i] = fork()) == 0) {
            setenv("NABLA_CACHE_DIR", folder, 1);
            build_many();
            _exit(0);
        }
    for (int i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_files(".code"), 20);
    assert_int_equal(count_files(".tmp"), 0);
}

static void *build_in_thread(void *result)
{
    for (int i = 0; i < 60; i++) {
        nb_code *c = nb_code_build(one_more(i / 3));
        next_fn *f = c ? (next_fn *)nb_code_find(c, "f") : NULL;
        if (!f || f() != i / 3) *(bool *)result = false;
        if (i % 4 == 0) nb_code_drop(nb_code_build("broken"));
        nb_error_clear();
        nb_code_drop(c);
    }
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    bool ok[THREADS] = {true, true, true, true};
    for (int i = 0; i < THREADS; i++)
        need(!pthread_create(&thread[i], NULL, build_in_thread, &ok[i]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        need(ok[i]);
    }
    all_free();
}

static void threads_build_at_once(void **state)
{
    (void)state;
    test(threads, NULL);
    test(threads, "NABLA_CACHE_MIB=0");
}

static void nowhere_to_write(void)
{
    build_and_compute();
    build_and_compute();
    nb_code_stats s = nb_code_stats_get();
    need(s.misses == 2 && s.disk_hits == 0);
    need(strstr(s.trouble, "cache: cannot"));
    all_free();
    need(nb_disk_folder_set(folder)); /* a good one */
    need(!*nb_disk_trouble());
    build_and_compute();
    build_and_compute();
    need(nb_code_stats_get().disk_hits >= 1);
    all_free();
}

static void no_room_to_write(void)
{
    struct rlimit least = {100, 100};
    signal(SIGXFSZ, SIG_IGN);
    need(nb_llvm_there());
    need(setrlimit(RLIMIT_FSIZE, &least) == 0);
    build_and_compute();
    build_and_compute();
    nb_code_stats s = nb_code_stats_get();
    need(s.misses == 2 && s.disk_hits == 0);
    need(strstr(s.trouble, "File too large"));
    all_free();
}

static void a_folder_of_no_use_is_done_without(void **state)
{
    (void)state;
    test(no_room_to_write, NULL);
    assert_int_equal(count_files(".tmp"), 0);
    assert_int_equal(count_files(".code"), 0);
    test(nowhere_to_write, "NABLA_CACHE_DIR=/dev/null/cache");
    assert_int_equal(count_files(".code"), 1);
    test(nowhere_to_write, "NABLA_CACHE_DIR=/proc/cache");
}

static void in_a_new_folder(void)
{
    char home[128];
    unsetenv("NABLA_CACHE_DIR");
    snprintf(home, sizeof home, "%s/a/b", folder);
    setenv("XDG_CACHE_HOME", home, 1);
    compiled();
    strcpy(folder, strcat(home, "/nabla"));
    need(count_files(".code") == 1);
    need(unlink(entry_path()) == 0);
    for (int i = 0; i < 3; i++) {
        need(rmdir(folder) == 0);
        *strrchr(folder, '/') = '\0';
    }
}

static void the_folder_is_made_at_need(void **state)
{
    (void)state;
    test(in_a_new_folder, NULL);
}

/* A file of the folder, last used so many seconds ago. */
static void age(const char *name, int seconds)
{
    char path[400];
    struct timespec t[2] = {{.tv_sec = time(NULL) - seconds}};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    need(fd >= 0 && ftruncate(fd, 1000) == 0);
    t[1] = t[0];
    need(futimens(fd, t) == 0);
    close(fd);
}

static bool is_there(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void trimmed(void)
{
    char name[32];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%02d.code", i * 7 % 20);
        age(name, 100 * (i * 7 % 20));
    }
    age("notes", 90000);
    age(".tmp-lost", 90000);
    age(".tmp-busy", 10);
    nb_disk_trim(20000); /* not over it: all stays */
    need(count_files(".code") == 20);
    need(!is_there(".tmp-lost") && is_there(".tmp-busy"));
    nb_disk_trim(16000); /* 12 are left, the latest used */
    need(count_files(".code") == 12);
    need(is_there("00.code") && is_there("11.code") && !is_there("12.code"));
    need(is_there("notes"));
    nb_disk_trim(0);
    need(count_files(".code") == 0 && is_there("notes"));
    all_free();
}

/* One entry in 256 is followed by a look at the size. */
static void trimmed_by_writing(void)
{
    char bytes[5000] = {0};
    nb_object o = {bytes, sizeof bytes, 16};
    for (uint64_t i = 1; i <= 512; i++)
        nb_disk_write((nb_disk_key){{i, i}}, &o);
    need(count_files(".code") <= 1 << 20);
    need(count_files(".code") < 512 && count_files(".code") > 100);
    all_free();
}

static void hits_are_remembered(void)
{
    struct stat st;
    struct timespec old[2] = {{.tv_sec = time(NULL) - 90000}};
    old[1] = old[0];
    build_and_compute();
    need(utimensat(AT_FDCWD, entry_path(), old, 0) == 0);
    build_and_compute();
    need(stat(entry_path(), &st) == 0);
    need(st.st_mtime > time(NULL) - 100);
    all_free();
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    alone(trimmed, NULL);
    alone(trimmed_by_writing, "NABLA_CACHE_MIB=1");
    remove_folder(NULL);
    make_folder(NULL);
    test(hits_are_remembered, NULL);
}

/* The n-th allocation fails, for every n, with and without an entry. */
static void starved(void)
{
    nb_code_drop(nb_code_build(one_more(0))); /* opens what stays open */
    int64_t live = nb_memory_live();
    for (int way = 0; way < 2; way++)
        for (int n = 1;; n++) {
            nb_fault_set(n);
            nb_code *c = nb_code_build(way ? module : one_more(n));
            nb_fault_set(0);
            need(c || nb_error_code() == NB_EMEMORY);
            bool done = c && !nb_failed() && n > 8;
            nb_error_clear();
            nb_code_drop(c);
            need(nb_memory_live() == live && nb_code_bytes() == 0);
            if (done) break;
        }
    all_free();
}

static void memory_may_run_out(void **state)
{
    (void)state;
    test(starved, NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(code_computes_what_its_text_says),
        TEST(code_is_made_for_the_processor_asked_for),
        TEST(an_unknown_processor_is_refused),
        TEST(errors_of_llvm_are_ours_and_not_printed),
        TEST(without_llvm_there_is_a_clear_error),
        TEST(a_damaged_object_is_an_error),
        TEST(a_text_is_compiled_once),
        TEST(a_damaged_entry_is_made_again),
        TEST(an_entry_that_others_can_write_is_not_trusted),
        TEST(processes_share_a_folder),
        TEST(threads_build_at_once),
        TEST(a_folder_of_no_use_is_done_without),
        TEST(the_folder_is_made_at_need),
        TEST(the_least_recently_used_goes_first),
        TEST(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, find_llvm, NULL);
}
