/* cpu_limits.c - what the machine can do, for bench-cpu to measure against.
 *
 * cpu_limits THREADS reads one question a line and answers with a number:
 *     fma            f32 operations a second, all in registers
 *     bf16           the same of bf16 products summed in f32; 0: cannot
 *     stream R W     seconds to read R bytes and to write W others
 * Memory stays between questions of the same sizes, so that what fits in a
 * cache is found there, as it is by a kernel that is run again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Sums that do not wait for each other: more than latency times width. */
enum { SUMS = 12, MAX_THREADS = 256, ROUNDS = 40, PIECE = 4096 };

typedef float vec4 __attribute__((vector_size(16)));

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Each does n rounds of sums and says how many operations that was.  Sums
 * begin with different numbers and are all asked for in the end, so that none
 * can be left out. */
static volatile float sink;

static double fma_plain(int64_t n)
{
    vec4 s[SUMS], x = {sink, sink, sink, sink};
    for (int k = 0; k < SUMS; k++)
        s[k] = x + (float)k;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++)
            s[k] += x * x;
    for (int k = 1; k < SUMS; k++)
        s[0] += s[k];
    sink = s[0][0] * 0;
    return (double)n * SUMS * 4 * 2;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double fma_256(int64_t n)
{
    __m256 s[SUMS], x = _mm256_set1_ps(sink);
    for (int k = 0; k < SUMS; k++)
        s[k] = _mm256_set1_ps((float)k);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++)
            s[k] = _mm256_fmadd_ps(x, x, s[k]);
    for (int k = 1; k < SUMS; k++)
        s[0] = _mm256_add_ps(s[0], s[k]);
    sink = s[0][0] * 0;
    return (double)n * SUMS * 8 * 2;
}

__attribute__((target("avx512f"))) static double fma_512(int64_t n)
{
    __m512 s[SUMS], x = _mm512_set1_ps(sink);
    for (int k = 0; k < SUMS; k++)
        s[k] = _mm512_set1_ps((float)k);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++)
            s[k] = _mm512_fmadd_ps(x, x, s[k]);
    for (int k = 1; k < SUMS; k++)
        s[0] = _mm512_add_ps(s[0], s[k]);
    sink = s[0][0] * 0;
    return (double)n * SUMS * 16 * 2;
}

/* As assembly, since not every compiler knows the instruction. */
static double dot_512(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile("vdpbf16ps %%zmm15, %%zmm15, %%zmm0\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm1\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm2\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm3\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm4\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm5\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm6\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm7\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm8\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm9\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm10\n\t"
                         "vdpbf16ps %%zmm15, %%zmm15, %%zmm11\n\t" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                               "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                               "xmm11");
    return (double)n * 12 * 32 * 2;
}
#endif

typedef double peak_fn(int64_t n);

static peak_fn *fma_fn(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return fma_512;
    if (__builtin_cpu_supports("fma")) return fma_256;
#endif
    return fma_plain;
}

static peak_fn *bf16_fn(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) return dot_512;
#endif
    return NULL;
}

/* What one thread does in a round, and when it began and ended. */
typedef struct part {
    peak_fn *peak;
    const char *read;
    char *write;
    int64_t nread, nwrite;
    bool past_cache; /* writes go around the cache */
    double did, from, to, sum;
} part;

static int threads;
static pthread_barrier_t start;

static double read_piece(const char *x, int64_t n)
{
    const uint64_t *p = (const uint64_t *)x;
    uint64_t s[8] = {0};
    for (int64_t i = 0; i < n / 8; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += p[i + k];
    return (double)(s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7]);
}

static void write_piece(char *x, int64_t n, bool past_cache)
{
#if defined(__x86_64__)
    for (int64_t i = 0; past_cache && i < n; i += 16)
        _mm_stream_ps((float *)(x + i), _mm_setzero_ps());
#else
    past_cache = false;
#endif
    if (!past_cache) memset(x, 1, (size_t)n);
}

/* Reads and writes in turns, so that the pieces of both advance together. */
static void stream(part *p)
{
    int64_t most = p->nread > p->nwrite ? p->nread : p->nwrite;
    int64_t turns = (most + PIECE - 1) / PIECE;
    for (int64_t i = 0; i < turns; i++) {
        int64_t r = p->nread / turns / 64 * 64, w = p->nwrite / turns / 64 * 64;
        if (r) p->sum += read_piece(p->read + i * r, r);
        if (w) write_piece(p->write + i * w, w, p->past_cache);
    }
}

static void *work(void *ctx)
{
    part *p = ctx;
    pthread_barrier_wait(&start);
    p->from = now();
    if (p->peak)
        p->did = p->peak(200000);
    else
        stream(p);
    p->to = now();
    return NULL;
}

/* Seconds from the first that began to the last that ended. */
static double run(part *p)
{
    pthread_t id[MAX_THREADS];
    double from = 1e300, to = 0;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&id[i], NULL, work, &p[i])) exit(1);
    work(&p[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(id[i], NULL);
    for (int i = 0; i < threads; i++) {
        if (p[i].from < from) from = p[i].from;
        if (p[i].to > to) to = p[i].to;
    }
    return to - from;
}

static double peak(peak_fn *f)
{
    double best = 0;
    part p[MAX_THREADS];
    for (int round = 0; f && round < ROUNDS; round++) {
        double did = 0;
        for (int i = 0; i < threads; i++)
            p[i] = (part){.peak = f};
        double s = run(p);
        for (int i = 0; i < threads; i++)
            did += p[i].did;
        if (did / s > best) best = did / s;
    }
    return best;
}

/* Memory in large pages, touched. */
static char *memory(int64_t n)
{
    size_t bytes = ((size_t)n + (1 << 21)) & ~(size_t)0xfff;
    char *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED) exit(1);
    madvise(x, bytes, MADV_HUGEPAGE);
    memset(x, 1, bytes);
    return x;
}

static double stream_seconds(int64_t nread, int64_t nwrite)
{
    static char *from, *to;
    static int64_t was_read, was_write;
    double best = 1e300;
    part p[MAX_THREADS];
    if (from && (was_read != nread || was_write != nwrite)) {
        munmap(from, ((size_t)was_read + (1 << 21)) & ~(size_t)0xfff);
        munmap(to, ((size_t)was_write + (1 << 21)) & ~(size_t)0xfff);
        from = NULL;
    }
    if (!from) {
        from = memory(nread), to = memory(nwrite);
        was_read = nread, was_write = nwrite;
    }
    double end = now() + 0.1;
    for (int round = 0; round < 4 || now() < end; round++) {
        int64_t r = nread / threads / 64 * 64, w = nwrite / threads / 64 * 64;
        for (int i = 0; i < threads; i++)
            p[i] = (part){.read = from + i * r,
                          .write = to + i * w,
                          .nread = r,
                          .nwrite = w,
                          .past_cache = round % 2};
        double s = run(p);
        if (s < best) best = s;
    }
    return best;
}

int main(int argc, char **argv)
{
    char line[128];
    threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MAX_THREADS) return 1;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    while (fgets(line, sizeof line, stdin)) {
        long long r, w;
        if (sscanf(line, "stream %lld %lld", &r, &w) == 2)
            printf("%.9g\n", stream_seconds(r, w));
        else
            printf("%.9g\n", peak(line[0] == 'f' ? fma_fn() : bf16_fn()));
        fflush(stdout);
    }
    return 0;
}
