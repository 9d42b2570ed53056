/* test_cuda_build.c - from CUDA C to kernels: what is compiled, what is
 * refused, what the cache on disk keeps; and what is said where there is no
 * driver, no card or no compiler.
 *
 * Compiling needs no card; loading runs on the card of the machine or on the
 * simulated one.  Every test is in a process of its own. */
#define _GNU_SOURCE
#include "backend/cuda/build.h"
#include "backend/cuda/find.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nvrtc.h"
#include "base/memory.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_simulated(void (*body)(void), const char *settings)
{
    if (!cards_simulated()) skip();
    cards_alone(body, "%s", settings);
}

static bool error_says(const char *text)
{
    bool says = strstr(nb_error_message(), text);
    if (!says) fprintf(stderr, "it says: %s\n", nb_error_message());
    nb_error_clear();
    return says;
}

/* Kernel number i, each different. */
static const char *kernel(int i)
{
    static char text[64][200];
    snprintf(text[i], sizeof *text,
             "extern \"C\" __global__ void k(float *x)\n"
             "{\n"
             "    x[threadIdx.x] += %d;\n"
             "}\n",
             i);
    return text[i];
}

/* The NVRTC of this machine, if it has one. */
static void need_nvrtc(void)
{
    unsetenv("NABLA_NVRTC");
    if (!nb_nvrtc_version()) alone_skips(nb_nvrtc_trouble());
}

static void compile_all(void)
{
    static const int archs[] = {80, 86, 89, 90, 100, 120};
    nb_object o;
    need_nvrtc();
    need(nb_nvrtc_version() >= 12000 && !nb_nvrtc_trouble());
    for (int i = 0; i < 6; i++) {
        need(nb_nvrtc_compile(kernel(1), archs[i] / 10, archs[i] % 10, &o));
        need(o.n > 500 && !memcmp(o.data, "\177ELF", 4));
        need(o.version == nb_nvrtc_version());
        nb_object_free(&o);
    }
    need(nb_memory_live() == 0);
}

static void every_architecture_is_compiled_for(void **state)
{
    (void)state;
    alone(compile_all, NULL);
}

static void compile_for_the_future(void)
{
    nb_object o;
    need_nvrtc();
    need(nb_nvrtc_compile(kernel(1), 10, 9, &o)); /* as 10.0 or so */
    need(!memcmp(o.data, "\177ELF", 4));
    nb_object_free(&o);
    need(nb_nvrtc_compile(kernel(1), 99, 0, &o));
    need(strstr(o.data, ".version") && strstr(o.data, ".target sm_"));
    nb_object_free(&o);
    need(!nb_nvrtc_compile(kernel(1), 2, 0, &o) && !o.data);
    need(error_says("compile: NVRTC "));
}

static void cards_to_come_get_what_is_known(void **state)
{
    (void)state;
    alone(compile_for_the_future, NULL);
}

static void compile_wrongly(void)
{
    nb_object o;
    need_nvrtc();
    need(!nb_nvrtc_compile("extern \"C\" __global__ void k(float *x)\n"
                           "{\n"
                           "    x[0] = quux;\n"
                           "}\n",
                           9, 0, &o));
    need(!o.data && nb_error_code() == NB_ERUNTIME);
    need(strstr(nb_error_message(), "compile: NVRTC "));
    need(error_says("kernel.cu(3): error: identifier \"quux\" is undefined"));
    need(!nb_nvrtc_compile("", 9, 0, &o) || o.data);
    nb_object_free(&o);
    nb_error_clear();
    need(nb_memory_live() == 0);
}

static void a_wrong_text_is_refused_with_the_log(void **state)
{
    (void)state;
    alone(compile_wrongly, NULL);
}

static void compile_with_options(void)
{
    static const char body[] =
        "extern \"C\" __global__ void k(float *x) { x[0] = NUMBER + MORE; }\n";
    char text[2048];
    nb_object o;
    need_nvrtc();
    snprintf(text, sizeof text, "// options: -DNUMBER=3  -DMORE=4\n%s", body);
    need(nb_nvrtc_compile(text, 9, 0, &o));
    nb_object_free(&o);
    snprintf(text, sizeof text, "// options: -DNUMBER=3\n%s", body);
    need(!nb_nvrtc_compile(text, 9, 0, &o) && error_says("\"MORE\""));
    snprintf(text, sizeof text, "// options: --no-such-thing\n%s", body);
    need(!nb_nvrtc_compile(text, 9, 0, &o) && error_says("no-such-thing"));
    snprintf(text, sizeof text, "// options:%*s-w\n%s", 900, "", body);
    need(!nb_nvrtc_compile(text, 9, 0, &o) && error_says("too long"));
    strcpy(text, "// options:");
    for (int i = 0; i < 40; i++)
        strcat(text, " -w");
    need(!nb_nvrtc_compile(text, 9, 0, &o) && error_says("too many"));
}

static void a_text_may_ask_for_options(void **state)
{
    (void)state;
    alone(compile_with_options, NULL);
}

static bool compiles(void *unused)
{
    nb_object o;
    bool ok = nb_nvrtc_compile(kernel(1), 9, 0, &o);
    (void)unused;
    nb_object_free(&o);
    return ok;
}

static void compile_without_memory(void)
{
    nb_object o;
    need_nvrtc();
    faults f = {.run = compiles, .bare = true, .fresh = true};
    need(faults_survived(&f) && nb_memory_live() == 0);
    nb_fault_set(1); /* of the log */
    need(!nb_nvrtc_compile("nonsense", 9, 0, &o));
    need(nb_error_code() == NB_EMEMORY && nb_memory_live() == 0);
}

static void compiling_may_run_out_of_memory(void **state)
{
    (void)state;
    alone(compile_without_memory, NULL);
}

static void say_why_not_to_compile(void)
{
    nb_object o;
    const char *why = nb_nvrtc_trouble();
    need(nb_nvrtc_version() == 0 && why);
    need(strstr(why, getenv("EXPECTED")));
    need(!nb_nvrtc_compile(kernel(1), 9, 0, &o) && !o.data);
    need(nb_error_code() == NB_ERUNTIME);
    need(strstr(nb_error_message(), "compile: NVRTC is needed"));
    need(error_says(why));
}

static void it_is_said_why_nvrtc_is_not_there(void **state)
{
    (void)state;
    alone(say_why_not_to_compile, "NABLA_NVRTC=none EXPECTED=none");
    alone(say_why_not_to_compile,
          "NABLA_NVRTC=/no/such EXPECTED=NABLA_NVRTC=/no/such");
    alone(say_why_not_to_compile,
          "NABLA_NVRTC=libm.so.6 EXPECTED=nvrtcVersion");
}

/* The words of what is expected are joined by underscores. */
static void say_why_there_is_no_card(void)
{
    char expected[256];
    snprintf(expected, sizeof expected, "%s", getenv("EXPECTED"));
    for (char *p = expected; *p; p++)
        if (*p == '_') *p = ' ';
    need(nb_card_count() == 0 && nb_card_trouble());
    need(!nb_card_at(0) && nb_error_code() == NB_ERUNTIME);
    need(!strcmp(nb_error_message(), nb_card_trouble()));
    need(!strncmp(nb_error_message(), "no GPU: ", 8));
    need(error_says(expected));
    need(!nb_card_at(3) && error_says(expected));
}

static void it_is_said_why_there_is_no_card(void **state)
{
    (void)state;
    alone(say_why_there_is_no_card,
          "NABLA_CUDA_DRIVER=none EXPECTED=DRIVER_is_none");
    alone(say_why_there_is_no_card,
          "NABLA_CUDA_DRIVER=/no/such EXPECTED=/no/such_cannot_be_opened");
    alone(say_why_there_is_no_card,
          "NABLA_CUDA_DRIVER=libm.so.6 "
          "EXPECTED=the_library_opened_as_NVIDIA's_driver_is_none");
}

static void look_for_a_card(void)
{
    unsetenv("NABLA_CUDA_DRIVER");
    if (nb_card_count() > 0) alone_skips("there is a card");
    if (!strstr(nb_card_trouble(), "libcuda")) alone_skips(nb_card_trouble());
    need(!strcmp(nb_card_trouble(),
                 "no GPU: libcuda.so.1 cannot be opened (is NVIDIA's driver "
                 "installed?)"));
}

static void a_machine_without_a_driver_says_so(void **state)
{
    (void)state;
    alone(look_for_a_card, NULL);
}

static void old_drivers_and_cards_are_refused(void **state)
{
    (void)state;
    test_simulated(say_why_there_is_no_card,
                   "NABLA_SIM_VERSION=11080 "
                   "EXPECTED=the_driver_is_one_for_CUDA_11.8_(12.0_or_later");
    test_simulated(say_why_there_is_no_card,
                   "NABLA_SIM_CARDS=0 EXPECTED=the_driver_finds_none");
    test_simulated(say_why_there_is_no_card,
                   "NABLA_SIM_ARCH=75 "
                   "EXPECTED=has_compute_capability_7.5_(8.0_or_more");
    test_simulated(say_why_there_is_no_card,
                   "NABLA_SIM_FAIL=cuInit:1:999 "
                   "EXPECTED=the_driver_does_not_start_(CUDA");
    test_simulated(say_why_there_is_no_card,
                   "NABLA_SIM_FAIL=cuDeviceGetCount:1 "
                   "EXPECTED=the_driver_finds_none");
}

/* Starts, though not at the first attempt. */
static void start_again(void)
{
    nb_card *c = cards_first();
    need(!nb_card_enter(c) && error_says("GPU 0: "));
    need(nb_card_enter(c) && nb_card_sync(c));
}

static void a_card_may_start_later(void **state)
{
    (void)state;
    test_simulated(start_again, "NABLA_SIM_FAIL=cuDevicePrimaryCtxRetain:1");
    test_simulated(start_again, "NABLA_SIM_FAIL=cuStreamCreate:1:2");
    test_simulated(start_again, "NABLA_SIM_FAIL=cuEventCreate:1:2");
    test_simulated(start_again, "NABLA_SIM_FAIL=cuCtxSetCurrent:1:1");
}

enum { MANY = 3 };

/* Builds kernels, and counts how they were come by. */
static void build(int n, int64_t hits, int64_t disk_hits, int64_t misses)
{
    nb_card *c = cards_first();
    nb_card_source s[MANY];
    nb_card_code *k[MANY];
    nb_card_build_stats before = nb_card_build_stats_get();
    for (int i = 0; i < n; i++)
        s[i] = (nb_card_source){kernel(i), "k"};
    need(nb_card_build(c, n, s, k));
    nb_card_build_stats now = nb_card_build_stats_get();
    need(now.hits - before.hits == hits);
    need(now.disk_hits - before.disk_hits == disk_hits);
    need(now.misses - before.misses == misses);
    for (int i = 0; i < n; i++) {
        need(k[i] && nb_card_code_registers(k[i]) > 0);
        nb_card_code_drop(k[i]);
    }
    need(nb_memory_live() == 0 && !nb_failed());
}

static void build_new(void)
{
    build(MANY, 0, 0, MANY);
}

static void build_known(void)
{
    build(MANY, 0, MANY, 0);
    build(MANY, 0, MANY, 0); /* nobody kept it */
}

static void the_disk_keeps_kernels(void **state)
{
    (void)state;
    cards_alone(build_new, "");
    assert_int_equal(folder_count(cards_folder), MANY);
    cards_alone(build_known, "");
    cards_alone(build_new, "NABLA_CACHE_MIB=0");
    assert_int_equal(folder_count(cards_folder), MANY);
}

CARD_TEST(equal_kernels_are_one, "")
{
    nb_card *c = cards_first();
    nb_card_source s[3] = {{kernel(50), "k"}, {kernel(51), "k"}, {NULL, "k"}};
    nb_card_code *k[3], *again[1];
    s[2].text = kernel(50);
    need(nb_card_build(c, 3, s, k) && k[0] == k[2] && k[0] != k[1]);
    nb_card_build_stats now = nb_card_build_stats_get();
    need(now.hits == 1 && now.disk_hits + now.misses == 2);
    need(nb_card_build(c, 1, s, again) && again[0] == k[0]);
    need(nb_card_build_stats_get().hits == 2);
    for (int i = 0; i < 3; i++)
        nb_card_code_drop(k[i]);
    need(nb_card_code_registers(again[0]) > 0);
    nb_card_code_drop(again[0]);
    nb_card_code_drop(NULL);
    need(nb_card_build(c, 0, NULL, NULL));
    need(nb_memory_live() == 0);
}

static const char two[] =
    "extern \"C\" __global__ void one(float *x) { x[threadIdx.x] += 1; }\n"
    "extern \"C\" __global__ void two(float *x) { x[threadIdx.x] += 2; }\n";

static void build_two(void)
{
    nb_card *c = cards_first();
    nb_card_source s[2] = {{two, "one"}, {two, "two"}};
    nb_card_code *k[3], *later;
    need(nb_card_build(c, 2, s, k) && k[0] != k[1]);
    nb_card_build_stats now = nb_card_build_stats_get();
    need(now.disk_hits + now.misses == 1 && now.hits == 1);
    nb_card_code_drop(k[1]);
    need(nb_card_build(c, 1, &s[1], &later) && later != k[0]);
    need(nb_card_build_stats_get().hits == 2);
    s[1].name = "three";
    need(!nb_card_build(c, 2, s, k + 1) && error_says("three"));
    need(nb_card_code_registers(later) > 0);
    nb_card_code_drop(k[0]), nb_card_code_drop(later);
    need(nb_memory_live() == 0);
}

static void kernels_of_one_text_are_compiled_once(void **state)
{
    (void)state;
    cards_alone(build_two, "");
    cards_alone(build_two, "");
    assert_int_equal(folder_count(cards_folder), 1);
}

static nb_card_code *one_of(const char *text)
{
    nb_card_code *k = NULL;
    need(nb_card_build(cards_first(), 1, &(nb_card_source){text, "k"}, &k));
    return k;
}

static int64_t made(void)
{
    nb_card_build_stats now = nb_card_build_stats_get();
    return now.disk_hits + now.misses;
}

static bool count_up(void *n)
{
    return ++*(int *)n < 3 || nb_fail(NB_EVALUE, "three is too many");
}

static void build_gathered(void)
{
    int done = 0;
    nb_card_builds all = nb_card_builds_open();
    nb_card_code *a = one_of(kernel(40)), *b = one_of(kernel(41));
    nb_card_code *again = one_of(kernel(40));
    need(again == a && made() == 0);
    need(nb_card_code_registers(a) > 0 && made() == 2); /* it is needed now */
    nb_card_code_drop(a), nb_card_code_drop(again);
    a = one_of(kernel(40)); /* it is still there */
    nb_card_code *last = one_of(kernel(42));
    need(nb_card_builds_beside(count_up, &done));
    need(made() == 2 && done == 0);
    need(nb_card_builds_close(all, true) && made() == 3 && done == 1);
    nb_card_code_drop(a), nb_card_code_drop(b), nb_card_code_drop(last);
    need(nb_card_builds_beside(count_up, &done) && done == 2);
    need(nb_memory_live() == 0);

    all = nb_card_builds_open();
    a = one_of(kernel(44));
    nb_card_builds inner = nb_card_builds_open();
    nb_card_code *no = one_of(kernel(43));
    need(nb_card_builds_beside(count_up, &done));
    need(!nb_card_builds_close(inner, false) && made() == 3);
    need(nb_card_builds_close(all, true) && made() == 4 && done == 2);
    need(nb_card_code_registers(no) == 0 && error_says("not built"));
    nb_card_code_drop(a), nb_card_code_drop(no);

    all = nb_card_builds_open();
    a = one_of(kernel(45)), no = one_of("nonsense");
    need(!nb_card_builds_close(all, true) && error_says("compile: NVRTC "));
    nb_card_code_drop(a), nb_card_code_drop(no);

    all = nb_card_builds_open();
    need(nb_card_builds_beside(count_up, &done));
    need(!nb_card_builds_close(all, true) && error_says("too many"));
    need(nb_memory_live() == 0);
}

static void what_is_gathered_is_built_together(void **state)
{
    (void)state;
    cards_alone(build_gathered, "");
    cards_alone(build_gathered, "NABLA_NUM_THREADS=1");
}

/* Texts that join others: each with a type and a macro of the same name. */
static const char *joining(int i)
{
    static char text[20][300];
    snprintf(text[i], sizeof *text,
             NB_CARD_JOINS "#undef N\n"
                           "#define N %d\n"
                           "typedef %s T;\n"
                           "extern \"C\" __global__ void k(float *x)\n"
                           "{\n"
                           "    x[threadIdx.x] = (T)(N + 0.5);\n"
                           "}\n",
             i, i % 2 ? "int" : "float");
    return text[i];
}

enum { JOINING = 19, STEP = 32 };

static void build_joining(void)
{
    nb_card *c = cards_first();
    nb_card_code *k[JOINING];
    float got[JOINING] = {0};
    size_t room;
    nb_card_builds all = nb_card_builds_open();
    for (int i = 0; i < JOINING; i++)
        k[i] = one_of(joining(i));
    need(nb_card_builds_close(all, true) && made() == JOINING);
    char *y = nb_card_alloc(c, JOINING * STEP, &room);
    need(y);
    for (int i = 0; i < JOINING; i++) {
        char *at = y + i * STEP;
        unsigned one[3] = {1, 1, 1};
        need(nb_card_launch(c, k[i], one, one, 0, (void *[]){&at}, "k"));
        need(nb_card_get(c, &got[i], at, sizeof(float)));
        need(got[i] == (float)i + (i % 2 ? 0 : 0.5f));
        nb_card_code_drop(k[i]);
    }
    nb_card_free(c, y, room);
    need(nb_memory_live() == 0);
}

static void build_one_of_those(void)
{
    nb_card_code *k = one_of(joining(7)), *new = one_of(joining(19));
    nb_card_build_stats now = nb_card_build_stats_get();
    need(now.disk_hits == 1 && now.misses == 1);
    nb_card_code_drop(k), nb_card_code_drop(new);
}

/* Every text has its entry, and those compiled as one have one more. */
static void texts_may_be_compiled_together(void **state)
{
    (void)state;
    cards_alone(build_joining, "NABLA_NUM_THREADS=3");
    assert_int_equal(folder_count(cards_folder), JOINING + 3);
    cards_alone(build_joining, "NABLA_NUM_THREADS=1");
    cards_alone(build_one_of_those, "");
    assert_int_equal(folder_count(cards_folder), JOINING + 4);
}

CARD_TEST(a_wrong_text_among_others_fails_them, "NABLA_NUM_THREADS=1")
{
    nb_card *c = cards_first();
    nb_card_code *k[3];
    nb_card_source s[3] = {
        {joining(0), "k"}, {NB_CARD_JOINS "nonsense\n", "k"}, {two, "one"}};
    need(!nb_card_build(c, 3, s, k) && !k[0]);
    need(strstr(nb_error_message(), "compile: NVRTC ") && error_says("error"));
    need(nb_card_build(c, 1, s, k));
    nb_card_code_drop(k[0]);
    need(nb_memory_live() == 0);
}

static bool gathers(void *unused)
{
    nb_card *c = cards_first();
    nb_card_source s[] = {
        {kernel(45), "k"}, {joining(1), "k"}, {joining(2), "k"}, {two, "two"}};
    enum { N = sizeof s / sizeof *s };
    nb_card_code *k[N];
    nb_card_builds all = nb_card_builds_open();
    bool asked = nb_card_build(c, N, s, k);
    bool ok = nb_card_builds_close(all, asked);
    (void)unused;
    for (int j = 0; j < N && asked; j++)
        nb_card_code_drop(k[j]);
    return ok;
}

static void gather_without_memory(void)
{
    faults f = {.run = gathers, .bare = true, .fresh = true};
    cards_first();
    need(faults_survived(&f) && nb_memory_live() == 0);
}

static void gathering_may_run_out_of_memory(void **state)
{
    (void)state;
    cards_alone(build_new, "");
    cards_alone(gather_without_memory, "");
}

/* Changes a byte of every file, or cuts them all to that length. */
static void damage(off_t at, bool cut)
{
    char path[400];
    DIR *d = opendir(cards_folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        unsigned char byte;
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", cards_folder, e->d_name);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        if (cut) {
            assert_int_equal(ftruncate(fd, at), 0);
        } else {
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 0x20;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
    }
    closedir(d);
}

static void damaged_files_are_made_again(void **state)
{
    (void)state;
    cards_alone(build_new, "");
    static const struct {
        off_t at;
        bool cut;
    } cases[] = {{3, false}, {40, false}, {300, false}, {0, true}, {200, true}};
    for (int i = 0; i < 5; i++) {
        damage(cases[i].at, cases[i].cut);
        cards_alone(build_new, "");
        cards_alone(build_known, "");
    }
    assert_int_equal(folder_count(cards_folder), MANY);
}

static void build_refused(void)
{
    build(MANY, 0, MANY - 1, 1);
}

static void what_the_driver_refuses_is_made_again(void **state)
{
    (void)state;
    test_simulated(build_new, "");
    test_simulated(build_refused, "NABLA_SIM_FAIL=cuModuleLoadData:1:200");
    test_simulated(build_known, "");
}

static void build_at_once(void)
{
    nb_card *c = cards_first();
    nb_card_source s[8];
    nb_card_code *k[8];
    for (int i = 0; i < 8; i++)
        s[i] = (nb_card_source){kernel(20 + i), "k"};
    for (int turn = 0; turn < 3; turn++) {
        need(nb_card_build(c, 8, s, k));
        for (int i = 0; i < 8; i++)
            nb_card_code_drop(k[i]);
    }
    need(nb_card_build_stats_get().misses <= 8);
}

static void build_in_processes(void)
{
    pid_t child[3];
    int status;
    for (int i = 0; i < 3; i++)
        if ((child[i] = fork()) == 0) {
            build_at_once();
            _exit(0);
        }
    for (int i = 0; i < 3; i++) {
        waitpid(child[i], &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) _exit(77);
        need(status == 0);
    }
}

static void processes_share_the_disk(void **state)
{
    (void)state;
    cards_alone(build_in_processes, "");
    assert_int_equal(folder_count(cards_folder), 8);
}

static void build_wrongly(void)
{
    nb_card *c = cards_first();
    nb_card_code *k[3];
    nb_card_source s[3] = {
        {kernel(60), "k"}, {"nonsense\n", "k"}, {kernel(61), "k"}};
    need(!nb_card_build(c, 3, s, k) && nb_error_code() == NB_ERUNTIME);
    need(!k[0] && !k[1] && !k[2]);
    need(strstr(nb_error_message(), "compile: NVRTC ") && error_says("error"));
    s[1] = (nb_card_source){kernel(62), "another"};
    need(!nb_card_build(c, 3, s, k) && !k[0]);
    need(error_says("another"));
    need(nb_memory_live() == 0);
}

static void one_wrong_kernel_fails_all(void **state)
{
    (void)state;
    cards_alone(build_wrongly, "");
    assert_int_equal(folder_count(cards_folder), 2);
}

CARD_TEST(building_needs_nvrtc, "NABLA_NVRTC=none")
{
    nb_card *c = cards_first();
    nb_card_code *k;
    nb_card_source s = {kernel(0), "k"};
    need(!nb_card_build(c, 1, &s, &k) && !k);
    need(error_says("compile: NVRTC is needed, but NABLA_NVRTC is none"));
    need(nb_card_sync(c) && nb_memory_live() == 0);
}

/* A library under the name libfound.so, in a new folder there. */
static void put_library(const char *below)
{
    char path[400], command[1200], self[200];
    snprintf(path, sizeof path, "%s/%s", cards_folder, below);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    need(n > 0);
    snprintf(command, sizeof command,
             "mkdir -p %s && cp -L \"$(ldd %.*s | awk '/libcmocka/ {print $3}')"
             "\" %s/libfound.so",
             path, (int)n, self, path);
    need(system(command) == 0);
}

static const char *const found[] = {"libabsent.so", "libfound.so", NULL};

static void look_for_libraries(void)
{
    need(!nb_cuda_library(found));
    put_library(getenv("PLACE"));
    need(nb_cuda_library(found));
}

/* Beside another package of which something is loaded. */
static void look_beside_packages(void)
{
    char path[400];
    put_library("lib/python3/site-packages/other");
    put_library("lib/python3/site-packages/nvidia/cuda_nvrtc/lib");
    snprintf(path, sizeof path,
             "%s/lib/python3/site-packages/other/libfound.so", cards_folder);
    need(!nb_cuda_library(found));
    need(dlopen(path, RTLD_NOW));
    need(nb_cuda_library(found));
}

static void libraries_are_found_where_they_lie(void **state)
{
    static const char *const cases[][2] = {
        {"NABLA_CUDA_PATH=/nowhere:%s/x:", "x"},
        {"NABLA_CUDA_PATH=%s/y", "y"},
        {"CUDA_HOME=%s", "lib64"},
        {"CUDA_PATH=%s/toolkit", "toolkit/lib"},
        {"VIRTUAL_ENV=%s", "lib/python3.9/site-packages/nvidia/cu13/lib"},
    };
    char settings[300];
    (void)state;
    for (int i = 0; i < 5; i++) {
        int n = snprintf(settings, sizeof settings, cases[i][0], cards_folder);
        snprintf(settings + n, sizeof settings - (size_t)n, " PLACE=%s",
                 cases[i][1]);
        alone(look_for_libraries, settings);
    }
    alone(look_beside_packages, NULL);
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, cards_open, cards_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_architecture_is_compiled_for),
        TEST(cards_to_come_get_what_is_known),
        TEST(a_wrong_text_is_refused_with_the_log),
        TEST(a_text_may_ask_for_options),
        TEST(compiling_may_run_out_of_memory),
        TEST(libraries_are_found_where_they_lie),
        TEST(it_is_said_why_nvrtc_is_not_there),
        TEST(it_is_said_why_there_is_no_card),
        TEST(a_machine_without_a_driver_says_so),
        TEST(old_drivers_and_cards_are_refused),
        TEST(a_card_may_start_later),
        TEST(the_disk_keeps_kernels),
        TEST(equal_kernels_are_one),
        TEST(kernels_of_one_text_are_compiled_once),
        TEST(what_is_gathered_is_built_together),
        TEST(texts_may_be_compiled_together),
        TEST(a_wrong_text_among_others_fails_them),
        TEST(gathering_may_run_out_of_memory),
        TEST(damaged_files_are_made_again),
        TEST(what_the_driver_refuses_is_made_again),
        TEST(processes_share_the_disk),
        TEST(one_wrong_kernel_fails_all),
        TEST(building_needs_nvrtc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
