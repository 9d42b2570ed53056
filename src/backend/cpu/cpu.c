/* cpu.c - features of x86-64 from the cpuid instruction, and their names.
 *
 * A feature needs others: with one come those it needs, and without one go
 * those that need it, as in LLVM.  Only features are listed that a level of
 * x86-64 has or that we ask for; LLVM finds more by itself. */
#include "backend/cpu/cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nb_cpu target;
static char name[32], features[512], id[1024], trouble[600];

#if defined(__x86_64__)
#include <cpuid.h>

enum { LEAF1, LEAF7, LEAF7_1, EXTENDED, WORDS };
enum {
    SSE3,
    SSSE3,
    SSE41,
    SSE42,
    POPCNT,
    CX16,
    SAHF,
    AVX,
    AVX2,
    BMI,
    BMI2,
    F16C,
    FMA,
    LZCNT,
    MOVBE,
    AVX512F,
    AVX512BW,
    AVX512CD,
    AVX512DQ,
    AVX512VL,
    AVX512BF16,
    FEATURES
};
#define BIT(n) (1u << (n))
#define MASKS  (BIT(AVX512F) | BIT(AVX512BW) | BIT(AVX512DQ) | BIT(AVX512VL))

/* needs: one step of it; level: of x86-64, 9 for none; word, bit: of cpuid. */
static const struct {
    const char *name;
    uint32_t needs;
    int level, word, bit;
} table[FEATURES] = {
    [SSE3] = {"sse3", 0, 2, LEAF1, 0},
    [SSSE3] = {"ssse3", BIT(SSE3), 2, LEAF1, 9},
    [SSE41] = {"sse4.1", BIT(SSSE3), 2, LEAF1, 19},
    [SSE42] = {"sse4.2", BIT(SSE41), 2, LEAF1, 20},
    [POPCNT] = {"popcnt", 0, 2, LEAF1, 23},
    [CX16] = {"cx16", 0, 2, LEAF1, 13},
    [SAHF] = {"sahf", 0, 2, EXTENDED, 0},
    [AVX] = {"avx", BIT(SSE42), 3, LEAF1, 28},
    [AVX2] = {"avx2", BIT(AVX), 3, LEAF7, 5},
    [BMI] = {"bmi", 0, 3, LEAF7, 3},
    [BMI2] = {"bmi2", 0, 3, LEAF7, 8},
    [F16C] = {"f16c", BIT(AVX), 3, LEAF1, 29},
    [FMA] = {"fma", BIT(AVX), 3, LEAF1, 12},
    [LZCNT] = {"lzcnt", 0, 3, EXTENDED, 5},
    [MOVBE] = {"movbe", 0, 3, LEAF1, 22},
    [AVX512F] = {"avx512f", BIT(AVX2) | BIT(F16C) | BIT(FMA), 4, LEAF7, 16},
    [AVX512BW] = {"avx512bw", BIT(AVX512F), 4, LEAF7, 30},
    [AVX512CD] = {"avx512cd", BIT(AVX512F), 4, LEAF7, 28},
    [AVX512DQ] = {"avx512dq", BIT(AVX512F), 4, LEAF7, 17},
    [AVX512VL] = {"avx512vl", BIT(AVX512F), 4, LEAF7, 31},
    [AVX512BF16] = {"avx512bf16", BIT(AVX512BW), 9, LEAF7_1, 5},
};

static uint32_t with(uint32_t set, int feature)
{
    set |= BIT(feature);
    for (int f = 0; f < feature; f++)
        if (table[feature].needs & BIT(f)) set = with(set, f);
    return set;
}

static uint32_t without(uint32_t set, int feature)
{
    set &= ~BIT(feature);
    for (int f = feature + 1; f < FEATURES; f++)
        if (table[f].needs & BIT(feature)) set = without(set, f);
    return set;
}

static uint32_t of_level(int level)
{
    uint32_t set = 0;
    for (int f = 0; f < FEATURES; f++)
        if (table[f].level <= level) set |= BIT(f);
    return set;
}

/* The registers that the system keeps for us: vectors it does not know would
 * be lost at the next switch of tasks. */
static uint32_t kept_registers(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* What this machine has; notes in id what LLVM looks at. */
static uint32_t of_host(void)
{
    enum { OSXSAVE = 1 << 27, YMM = 0x06, ZMM = 0xe6 };
    uint32_t word[WORDS] = {0}, a, b, c, d, set = 0, kept = 0;
    uint32_t vendor[3] = {0}, model = 0, more[3] = {0};
    __get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]);
    __get_cpuid(1, &model, &b, &word[LEAF1], &d);
    if (__get_cpuid_count(7, 0, &a, &word[LEAF7], &more[0], &more[1]))
        if (a >= 1) __get_cpuid_count(7, 1, &word[LEAF7_1], &b, &c, &more[2]);
    __get_cpuid(0x80000001, &a, &b, &word[EXTENDED], &d);
    if (word[LEAF1] & OSXSAVE) kept = kept_registers();
    for (int f = 0; f < FEATURES; f++)
        if (word[table[f].word] >> table[f].bit & 1) set |= BIT(f);
    if ((kept & YMM) != YMM) set = without(set, AVX);
    if ((kept & ZMM) != ZMM) set = without(set, AVX512F);
    snprintf(id, sizeof id, "%.12s %x %x %x %x %x %x %x %x %x",
             (const char *)vendor, model, kept, word[0], word[1], word[2],
             word[3], more[0], more[1], more[2]);
    return set;
}

/* Adds and takes away what the list says; false: one is not known. */
static bool adjust(uint32_t *set, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        int f = 0;
        while (f < FEATURES && (strlen(table[f].name) + 1 != n ||
                                strncmp(table[f].name, list + 1, n - 1) != 0))
            f++;
        if (f == FEATURES || (*list != '+' && *list != '-')) return false;
        *set = *list == '+' ? with(*set, f) : without(*set, f);
        list += n + (list[n] == ',');
    }
    return true;
}

static bool find_level(uint32_t *set)
{
    static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3",
                                         "x86-64-v4"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, levels[i])) return *set = of_level(i + 1), true;
    return false;
}

static void look(const char *wanted)
{
    uint32_t host = of_host(), set = host;
    bool known = !strcmp(name, "native") || find_level(&set);
    if (!known || !adjust(&set, features))
        snprintf(trouble, sizeof trouble,
                 "NABLA_CPU=%s is not known (native or x86-64[-v2|-v3|-v4], "
                 "then :+feature,-feature of those)",
                 wanted);
    for (int f = 0; f < FEATURES && !*trouble; f++)
        if (set & ~host & BIT(f))
            snprintf(trouble, sizeof trouble,
                     "NABLA_CPU=%s wants %s, which this machine lacks", wanted,
                     table[f].name);
    if (*trouble) set = 0;
    target.masks = (set & MASKS) == MASKS;
    target.vector_bytes = target.masks ? 64 : set & BIT(AVX2) ? 32 : 16;
    target.fma = set & BIT(FMA);
    target.f16c = set & BIT(F16C);
    target.bf16 = set & BIT(AVX512BF16);
}

#else
#include <sys/auxv.h>

static void look(const char *wanted)
{
    snprintf(id, sizeof id, "%lx %lx", getauxval(AT_HWCAP),
             getauxval(AT_HWCAP2));
    if (strcmp(name, "native") != 0 || *features)
        snprintf(trouble, sizeof trouble,
                 "NABLA_CPU=%s is not known (native is all there is on this "
                 "machine)",
                 wanted);
    target.vector_bytes = 16;
    target.fma = target.f16c = true;
}
#endif

static void find(void)
{
    const char *wanted = getenv("NABLA_CPU");
    if (!wanted || !*wanted) wanted = "native";
    size_t n = strcspn(wanted, ":");
    snprintf(name, sizeof name, "%.*s", (int)n, wanted);
    snprintf(features, sizeof features, "%s", wanted + n + (wanted[n] == ':'));
    look(wanted);
    size_t used = strlen(id);
    snprintf(id + used, sizeof id - used, " %s:%s", name, features);
    target.name = name;
    target.features = features;
    target.id = id;
    target.trouble = *trouble ? trouble : NULL;
}

const nb_cpu *nb_cpu_target(void)
{
    pthread_once(&once, find);
    return &target;
}
