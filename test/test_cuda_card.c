/* test_cuda_card.c - memory, copies, kernels and faults of a card.
 *
 * Runs on the card of the machine, or on the simulated one where there is
 * none; every test in a process of its own. */
#define _GNU_SOURCE
#include "backend/cuda/code.h"
#include "backend/cuda/memory.h"
#include "base/memory.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const size_t KIB = 1 << 10, MIB = 1 << 20;
static nb_card_memory memory(nb_card *c)
{
    nb_card_memory m;
    nb_card_memory_get(c, &m);
    return m;
}

static void *alloc(nb_card *c, size_t bytes)
{
    size_t room = 0;
    void *p = nb_card_alloc(c, bytes, &room);
    need(p && room >= bytes && (uintptr_t)p % 256 == 0);
    return p;
}

static bool error_says(const char *text)
{
    bool says = strstr(nb_error_message(), text);
    if (!says) fprintf(stderr, "it says: %s\n", nb_error_message());
    nb_error_clear();
    return says;
}

CARD_TEST(a_card_says_what_it_is, "")
{
    nb_card *c = cards_first();
    need(c->id == 0 && c->major >= 8 && *c->name && c->warp == 32);
    need(c->processors > 0 && c->threads >= 1024);
    need(c->processor_threads >= c->threads);
    need(c->processor_registers >= 32 << 10);
    need(c->shared >= 48 * KIB && c->shared_most >= c->shared);
    need(c->processor_shared >= c->shared_most);
    need(c->memory > 0 && c->l2 > 0);
    need(!nb_card_trouble());
    need(!c->context); /* nothing was started */
    need(nb_card_enter(c) && c->context && c->stream && nb_card_sync(c));
    int n = nb_card_count();
    need(!nb_card_at(n) && nb_error_code() == NB_ERUNTIME);
    need(error_says("there is no GPU "));
    need(!nb_card_at(-1) && error_says("there is no GPU -1 (there "));
}

CARD_TEST(freed_memory_is_used_again, "")
{
    nb_card *c = cards_first();
    size_t room, sizes[] = {0, 1, 1000, 300 * KIB, 3 * MIB, 40 * MIB};
    for (int i = 0; i < 6; i++) {
        void *p = nb_card_alloc(c, sizes[i], &room);
        need(p && room >= sizes[i] && memory(c).blocks == 1);
        need(memory(c).live == room);
        size_t cached = memory(c).cached;
        nb_card_free(c, p, room);
        need(memory(c).live == 0 && memory(c).cached == cached + room);
        need(alloc(c, sizes[i]) == p);
        need(memory(c).live == room && memory(c).cached == cached);
        nb_card_free(c, p, room);
    }
    need(memory(c).peak == room);
    nb_card_peak_reset(c);
    need(memory(c).peak == 0 && memory(c).blocks == 0);
    nb_card_free(c, NULL, 0);
    need(nb_memory_live() == 0);
}

CARD_TEST(parts_are_cut_and_joined, "")
{
    nb_card *c = cards_first();
    char *p[4];
    for (int i = 0; i < 4; i++)
        p[i] = alloc(c, 4 * MIB);
    for (int i = 1; i < 4; i++)
        need(p[i] == p[i - 1] + 4 * MIB);
    nb_card_free(c, p[1], 4 * MIB);
    nb_card_free(c, p[2], 4 * MIB);
    need(alloc(c, 8 * MIB) == p[1]);
    nb_card_free(c, p[1], 8 * MIB);
    need(alloc(c, 5 * MIB) == p[1]);
    need(alloc(c, 3 * MIB) == p[1] + 5 * MIB);
    nb_card_free(c, p[3], 0);
    nb_card_free(c, p[1] + 5 * MIB, 0);
    nb_card_free(c, p[0], 0);
    nb_card_free(c, p[1], 0);
    need(memory(c).live == 0);
    need(alloc(c, 15 * MIB) == p[0]);
    nb_card_free(c, p[0], 0);
    /* The smallest that is large enough. */
    void *a = alloc(c, 6 * MIB), *b = alloc(c, 2 * MIB), *d = alloc(c, 4 * MIB);
    void *e = alloc(c, 2 * MIB);
    nb_card_free(c, a, 0);
    nb_card_free(c, d, 0);
    need(alloc(c, 4 * MIB) == d && alloc(c, 5 * MIB) == a);
    nb_card_free(c, a, 0), nb_card_free(c, b, 0);
    nb_card_free(c, d, 0), nb_card_free(c, e, 0);
    need(memory(c).blocks == 0);
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Live blocks never overlap, and the statistics are theirs. */
CARD_TEST(blocks_never_overlap, "")
{
    enum { BLOCKS = 200, TURNS = 6000 };
    nb_card *c = cards_first();
    char *at[BLOCKS] = {0};
    size_t room[BLOCKS], live = 0, blocks = 0;
    uint32_t seed = 7;
    for (int t = 0; t < TURNS; t++) {
        uint32_t i = next(&seed) % BLOCKS;
        if (at[i]) {
            nb_card_free(c, at[i], room[i]);
            live -= room[i];
            blocks--;
            at[i] = NULL;
            continue;
        }
        size_t bytes = next(&seed) % (1u << (8 + next(&seed) % 15));
        at[i] = nb_card_alloc(c, bytes, &room[i]);
        need(at[i] && room[i] >= bytes);
        live += room[i];
        blocks++;
        for (uint32_t j = 0; j < BLOCKS; j++)
            need(j == i || !at[j] || at[j] + room[j] <= at[i] ||
                 at[i] + room[i] <= at[j]);
        need(memory(c).live == live && memory(c).blocks == blocks);
    }
    for (int i = 0; i < BLOCKS; i++)
        nb_card_free(c, at[i], room[i]);
    need(memory(c).live == 0 && memory(c).blocks == 0);
    nb_card_trim(c);
    need(memory(c).cached == 0);
}

static size_t left(nb_card *c)
{
    size_t free = 0, total = 0;
    need(nb_card_enter(c) && c->api->MemGetInfo(&free, &total) == 0);
    return free;
}

CARD_TEST(trimming_gives_memory_back, "")
{
    nb_card *c = cards_first();
    need(nb_card_enter(c));
    size_t before = left(c);
    void *kept = alloc(c, 100), *p = alloc(c, 300 * MIB);
    void *q = alloc(c, 3 * MIB);
    nb_card_free(c, p, 0);
    nb_card_free(c, q, 0);
    need(memory(c).cached >= 303 * MIB && left(c) + 300 * MIB <= before);
    nb_card_trim(c);
    need(memory(c).cached < 16 * MIB && memory(c).blocks == 1);
    need(left(c) + 32 * MIB >= before);
    nb_card_free(c, kept, 0);
    nb_card_trim(c);
    need(memory(c).cached == 0);
}

CARD_TEST(running_out_is_an_error, "")
{
    nb_card *c = cards_first();
    size_t room;
    void *p[3] = {alloc(c, 64 * MIB), alloc(c, 64 * MIB), alloc(c, 20 * MIB)};
    need(!nb_card_alloc(c, (size_t)1 << 45, &room));
    need(nb_error_code() == NB_EMEMORY);
    need(strstr(nb_error_message(), "out of memory on GPU 0: 32.0 TiB wanted"));
    need(strstr(nb_error_message(), "148.0 MiB alive in 3 blocks"));
    need(error_says("; the largest: 2 of 64.0 MiB, 20.0 MiB"));
    need(!nb_card_alloc(c, SIZE_MAX, &room) && error_says("out of memory"));
    need(!nb_card_alloc(c, SIZE_MAX - 5000, &room));
    need(error_says("out of memory"));
    for (int i = 0; i < 3; i++)
        nb_card_free(c, p[i], 0);
    nb_card_free(c, alloc(c, 1000), 0);
    need(memory(c).blocks == 0);
}

/* What is cached in the wrong sizes comes back before anything fails. */
CARD_TEST(cached_memory_is_no_obstacle, "NABLA_SIM_MEMORY=1073741824")
{
    nb_card *c = cards_first();
    size_t most = left(c) / 10;
    void *p[8];
    for (int i = 0; i < 8; i++)
        p[i] = alloc(c, most);
    for (int i = 0; i < 8; i++)
        nb_card_free(c, p[i], 0);
    nb_card_free(c, alloc(c, 6 * most), 0);
    for (int i = 0; i < 4; i++)
        nb_card_free(c, p[i] = alloc(c, (size_t)(i + 2) * most), 0);
    need(memory(c).blocks == 0);
    nb_card_trim(c);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((i * 2654435761u >> 13) + seed);
}

static void round_trip(nb_card *c, size_t n, unsigned seed)
{
    unsigned char *x = malloc(n + 1), *y = malloc(n + 1), *z = malloc(n + 1);
    void *a = alloc(c, n), *b = alloc(c, n);
    fill(x, n, seed);
    memcpy(z, x, n);
    need(nb_card_put(c, a, x, n));
    memset(x, 0x55, n); /* it has been read */
    need(nb_card_copy(c, b, a, n) && nb_card_zero(c, a, n));
    need(nb_card_get(c, y, b, n) && !memcmp(y, z, n));
    need(nb_card_get(c, y, a, n));
    for (size_t i = 0; i < n; i++)
        need(y[i] == 0);
    nb_card_free(c, a, 0);
    nb_card_free(c, b, 0);
    free(x), free(y), free(z);
}

CARD_TEST(what_is_put_can_be_got, "")
{
    nb_card *c = cards_first();
    static const size_t sizes[] = {0,       1,       63,       64,
                                   65,      4095,    1 << 20,  4194303,
                                   4194304, 4194305, 40000000, 33554432};
    for (int i = 0; i < 12; i++)
        round_trip(c, sizes[i], (unsigned)i);
    need(nb_memory_live() == 0);
}

/* Small ones fill the ring of pinned memory many times over. */
CARD_TEST(many_puts_keep_their_order, "")
{
    enum { N = 4000, BYTES = 20000 };
    nb_card *c = cards_first();
    unsigned char *x = malloc(BYTES), *y = malloc(BYTES);
    void *p = alloc(c, BYTES), *q = alloc(c, BYTES);
    for (unsigned i = 0; i < N; i++) {
        memset(x, (int)i, BYTES);
        need(nb_card_put(c, p, x, BYTES));
        if (i == N / 2) need(nb_card_copy(c, q, p, BYTES));
    }
    need(nb_card_get(c, y, p, BYTES));
    for (int i = 0; i < BYTES; i++)
        need(y[i] == (unsigned char)(N - 1));
    need(nb_card_get(c, y, q, BYTES) && y[0] == (unsigned char)(N / 2));
    nb_card_free(c, p, 0);
    nb_card_free(c, q, 0);
    free(x), free(y);
}

static void *one_thread(void *arg)
{
    nb_card *c = cards_first();
    uint32_t seed = (uint32_t)(uintptr_t)arg;
    for (int i = 0; i < 40; i++)
        round_trip(c, next(&seed) % 300000, seed);
    return NULL;
}

CARD_TEST(threads_share_a_card, "")
{
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        need(pthread_create(&thread[i], NULL, one_thread, (void *)(i + 1)) ==
             0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    need(memory(cards_first()).blocks == 0);
}

static const char scale_text[] =
    "extern \"C\" __global__ void scale(float *y, const float *x, float a,\n"
    "                                 int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) y[i] = a * x[i];\n"
    "}\n";

static const char reverse_text[] =
    "extern __shared__ float row[];\n"
    "extern \"C\" __global__ void reverse(float *x, int n)\n"
    "{\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[i];\n"
    "    __syncthreads();\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x)\n"
    "        x[i] = row[n - 1 - i];\n"
    "}\n";

static const char wrong_text[] =
    "extern \"C\" __global__ void wrong(float *x)\n"
    "{\n"
    "    x[threadIdx.x] = 1;\n"
    "}\n";

static nb_card_code *build(nb_card *c, const char *text, const char *name)
{
    nb_card_code *k;
    need(nb_card_build(c, 1, &(nb_card_source){text, name}, &k) && k);
    return k;
}

static bool scale(nb_card *c, nb_card_code *k, void *y, void *x, float a, int n)
{
    unsigned grid[3] = {(unsigned)(n + 255) / 256, 1, 1},
             block[3] = {256, 1, 1};
    void *args[] = {&y, &x, &a, &n};
    return nb_card_launch(c, k, grid, block, 0, args, "times");
}

CARD_TEST(kernels_run_in_order, "")
{
    enum { N = 100000 };
    nb_card *c = cards_first();
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    nb_card_code *k = build(c, scale_text, "scale");
    need(nb_card_code_registers(k) > 0);
    size_t bytes = N * sizeof *x;
    void *a = alloc(c, bytes), *b = alloc(c, bytes);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    need(nb_card_put(c, a, x, bytes));
    need(scale(c, k, b, a, 3, N) && scale(c, k, a, b, 2, N));
    need(scale(c, k, a, b, 0, 0)); /* no blocks */
    need(nb_card_get(c, y, a, bytes));
    for (int i = 0; i < N; i++)
        need(y[i] == 6 * x[i]);
    need(nb_card_sync(c));
    nb_card_free(c, a, bytes);
    nb_card_free(c, b, bytes);
    nb_card_code_drop(k);
    need(memory(c).blocks == 0 && nb_memory_live() == 0);
    free(x), free(y);
}

/* More shared memory than a block has without asking. */
CARD_TEST(shared_memory_is_opted_in_for, "")
{
    nb_card *c = cards_first();
    int n = (int)(c->shared_most / sizeof(float));
    size_t bytes = (size_t)n * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    nb_card_code *k = build(c, reverse_text, "reverse");
    void *p = alloc(c, bytes);
    unsigned one[3] = {1, 1, 1}, block[3] = {128, 1, 1};
    void *args[] = {&p, &n};
    for (int i = 0; i < n; i++)
        x[i] = (float)i;
    need(nb_card_put(c, p, x, bytes));
    for (int i = 0; i < 3; i++)
        need(nb_card_launch(c, k, one, block, (unsigned)bytes, args, "flip"));
    need(nb_card_get(c, y, p, bytes));
    for (int i = 0; i < n; i++)
        need(y[i] == x[n - 1 - i]);
    need(!nb_card_launch(c, k, one, block, (unsigned)bytes + 4096, args,
                         "flip, exp"));
    need(nb_error_code() == NB_ERUNTIME);
    need(error_says("flip, exp: GPU 0 does not launch it: CUDA_ERROR_"));
    nb_card_free(c, p, bytes);
    nb_card_code_drop(k);
    free(x), free(y);
}

CARD_TEST(a_launch_that_fails_names_its_ops, "")
{
    nb_card *c = cards_first();
    nb_card_code *k = build(c, wrong_text, "wrong");
    unsigned grid[3] = {1, 1, 1}, block[3] = {4096, 1, 1};
    void *p = alloc(c, 4 * 4096), *args[] = {&p};
    need(!nb_card_launch(c, k, grid, block, 0, args, "add, tanh"));
    need(nb_error_code() == NB_ERUNTIME);
    need(strstr(nb_error_message(), "block 4096 1 1"));
    need(error_says("add, tanh: GPU 0 does not launch it: CUDA_ERROR_INVALID"));
    block[0] = 32;
    need(nb_card_launch(c, k, grid, block, 0, args, "add") && nb_card_sync(c));
    nb_card_free(c, p, 0);
    nb_card_code_drop(k);
}

static bool launch_wrong(nb_card *c, nb_card_code *k, const char *what)
{
    unsigned one[3] = {1, 1, 1};
    void *p = (void *)8, *args[] = {&p};
    return nb_card_launch(c, k, one, one, 0, args, what);
}

CARD_TEST(a_late_fault_marks_the_card, "")
{
    nb_card *c = cards_first();
    char first[4096];
    size_t room;
    float x[256] = {0};
    nb_card_code *k = build(c, wrong_text, "wrong");
    nb_card_code *good = build(c, scale_text, "scale");
    void *p = alloc(c, sizeof x);
    need(scale(c, good, p, p, 1, 256) && nb_card_sync(c));
    need(launch_wrong(c, k, "gather, log")); /* asynchronous */
    scale(c, good, p, p, 1, 256);
    nb_error_clear();
    need(!nb_card_get(c, x, p, sizeof x));
    need(nb_error_code() == NB_ERUNTIME);
    snprintf(first, sizeof first, "%s", nb_error_message());
    need(strstr(first, "GPU 0 (") && strstr(first, "CUDA_ERROR_"));
    need(strstr(first, "gather, log"));
    need(error_says(") failed: "));
    need(!nb_card_ok(c) && error_says(first));
    need(!nb_card_sync(c) && error_says(first));
    need(!nb_card_enter(c) && error_says(first));
    need(!nb_card_alloc(c, 100, &room) && error_says(first));
    need(!nb_card_put(c, p, x, 4) && error_says(first));
    need(!nb_card_copy(c, p, p, 4) && error_says(first));
    need(!nb_card_zero(c, p, 4) && error_says(first));
    need(!scale(c, good, p, p, 1, 256) && error_says(first));
    nb_card_code *more;
    need(!nb_card_build(c, 1, &(nb_card_source){scale_text, "scale"}, &more));
    need(!more && error_says(first));
    nb_card_trim(c);
    nb_card_free(c, p, 0);
    nb_card_code_drop(k);
    nb_card_code_drop(good);
    need(!nb_failed() && nb_memory_live() == 0 && memory(c).blocks == 0);
}

/* Of many kernels under way the last are named, and how to find the one. */
CARD_TEST(a_fault_lists_the_last_kernels, "")
{
    nb_card *c = cards_first();
    nb_card_code *k = build(c, wrong_text, "wrong");
    nb_card_code *good = build(c, scale_text, "scale");
    void *p = alloc(c, 1024);
    for (int i = 0; i < 40; i++)
        need(scale(c, good, p, p, 1, 256));
    need(launch_wrong(c, k, "gather, log"));
    need(!nb_card_sync(c));
    need(strstr(nb_error_message(), "in one of these or before: times; times"));
    need(error_says("; gather, log (NABLA_CUDA_SYNC=1 finds the one)"));
}

/* A card that failed is no matter to another. */
CARD_TEST(cards_are_apart, "NABLA_SIM_CARDS=2")
{
    if (nb_card_count() < 2) alone_skips("there is one card");
    nb_card *a = nb_card_at(0), *b = nb_card_at(1);
    nb_card_code *k = build(a, wrong_text, "wrong");
    nb_card_code *ka = build(a, scale_text, "scale");
    nb_card_code *kb = build(b, scale_text, "scale");
    float x[256] = {1, 2, 3}, y[256] = {0};
    void *p = alloc(a, sizeof x), *q = alloc(b, sizeof x);
    need(ka != kb && b->id == 1 && a->stream != b->stream);
    need(nb_card_put(a, p, x, sizeof x) && nb_card_put(b, q, x, sizeof x));
    need(scale(a, ka, p, p, 2, 256) && scale(b, kb, q, q, 3, 256));
    need(nb_card_get(a, y, p, sizeof y) && y[2] == 6);
    need(launch_wrong(a, k, "log") && !nb_card_sync(a));
    need(error_says("GPU 0 ("));
    need(nb_card_get(b, y, q, sizeof y) && y[2] == 9);
    need(scale(b, kb, q, q, 3, 256) && nb_card_sync(b));
    need(nb_card_get(b, y, q, sizeof y) && y[2] == 27);
    need(!nb_card_ok(a) && error_says("GPU 0 ("));
    nb_card_free(a, p, 0);
    nb_card_free(b, q, 0);
    nb_card_code_drop(k);
    nb_card_code_drop(ka);
    nb_card_code_drop(kb);
    need(memory(a).blocks == 0 && memory(b).blocks == 0);
    need(nb_memory_live() == 0);
}

/* Both ways in the order of both: a copy waits for what its source is made by,
 * and who writes over the source waits for the copy. */
CARD_TEST(cards_copy_from_each_other, "NABLA_SIM_CARDS=2")
{
    if (nb_card_count() < 2) alone_skips("there is one card");
    nb_card *a = nb_card_at(0), *b = nb_card_at(1);
    nb_card_code *k = build(a, scale_text, "scale");
    float x[256] = {1, 2, 3}, y[256] = {0}, z[256] = {0};
    void *p = alloc(a, sizeof x), *q = alloc(b, sizeof x);
    need(nb_card_put(a, p, x, sizeof x) && scale(a, k, p, p, 2, 256));
    need(nb_card_copy_from(b, q, a, p, sizeof x));
    need(nb_card_put(a, p, z, sizeof z));
    need(nb_card_get(a, y, p, sizeof y) && y[2] == 0);
    need(nb_card_get(b, y, q, sizeof y) && y[2] == 6);
    need(nb_card_copy_from(a, p, b, q, 2 * sizeof *x));
    need(scale(a, k, p, p, 5, 256));
    need(nb_card_get(a, y, p, sizeof y) && y[1] == 20 && y[2] == 0);
    need(nb_card_copy_from(a, p, b, q, 0));
    nb_card_free(a, p, 0);
    nb_card_free(b, q, 0);
    nb_card_code_drop(k);
}

CARD_TEST(waiting_finds_the_kernel, "NABLA_CUDA_SYNC=1")
{
    nb_card *c = cards_first();
    nb_card_code *k = build(c, wrong_text, "wrong");
    nb_card_code *good = build(c, scale_text, "scale");
    void *p = alloc(c, 1024);
    for (int i = 0; i < 20; i++)
        need(scale(c, good, p, p, 1, 256));
    need(!launch_wrong(c, k, "gather, log"));
    need(!strstr(nb_error_message(), "times"));
    need(error_says(" in gather, log"));
}

/* Memory freed on one stream and taken on another is waited for: the kernels
 * of both write it, and the second has to win. */
CARD_TEST(streams_wait_for_memory, "")
{
    enum { N = 1 << 20 };
    nb_card *c = cards_first();
    size_t room, bytes = N * sizeof(float);
    float *x = malloc(bytes);
    nb_card_code *k = build(c, scale_text, "scale");
    void *stream = nb_card_stream_new(c), *from = alloc(c, bytes);
    need(stream);
    for (int i = 0; i < N; i++)
        x[i] = 1;
    need(nb_card_put(c, from, x, bytes));
    need(nb_card_stream_after(c, stream, c->stream));
    float *p = nb_card_alloc_on(c, stream, bytes, &room);
    float two = 2;
    int n = N;
    void *args[] = {&p, &from, &two, &n};
    for (int i = 0; i < 50; i++)
        need(c->api->LaunchKernel(k->function, N / 256, 1, 1, 256, 1, 1, 0,
                                  stream, args, NULL) == 0);
    nb_card_free_on(c, stream, p);
    need(alloc(c, bytes) == p);
    need(nb_card_zero(c, p, bytes) && nb_card_sync(c));
    need(c->api->StreamSynchronize(stream) == 0);
    need(nb_card_get(c, x, p, bytes));
    for (int i = 0; i < N; i++)
        need(x[i] == 0);
    nb_card_free(c, p, bytes);
    /* Its memory outlives a stream. */
    need(nb_card_alloc_on(c, stream, bytes, &room) == p);
    nb_card_free_on(c, stream, p);
    nb_card_stream_free(c, stream);
    need(alloc(c, bytes) == p && nb_card_sync(c));
    nb_card_free(c, p, bytes);
    nb_card_free(c, from, bytes);
    nb_card_trim(c);
    need(memory(c).cached == 0);
    nb_card_code_drop(k);
    free(x);
}

CARD_TEST(a_forked_process_is_told, "")
{
    nb_card *c = cards_first();
    size_t room;
    int status;
    void *p = alloc(c, 1000);
    pid_t child = fork();
    if (child == 0) {
        need(!nb_card_alloc(c, 10, &room));
        need(error_says("a process forked after the driver was started"));
        need(!nb_card_sync(c) && error_says("forked"));
        nb_card_free(c, p, room);
        nb_card_trim(c);
        need(!nb_failed());
        _exit(0);
    }
    need(waitpid(child, &status, 0) == child && status == 0);
    nb_card_free(c, p, 1000);
    need(memory(c).blocks == 0 && nb_card_sync(c));
}

/* One turn of everything; false where memory ran out. */
static bool everything(void *card)
{
    nb_card *c = card;
    float x[256] = {1, 2, 3}, y[256] = {0};
    size_t room, more;
    nb_card_code *k[2] = {NULL};
    const nb_card_source s[] = {{scale_text, "scale"}, {wrong_text, "wrong"}};
    void *p = nb_card_alloc(c, sizeof x, &room);
    void *q = p ? nb_card_alloc(c, 5 * MIB, &more) : NULL;
    bool ok = q && nb_card_build(c, 2, s, k) &&
              nb_card_put(c, p, x, sizeof x) && scale(c, k[0], q, p, 2, 256) &&
              nb_card_get(c, y, q, sizeof y);
    need(!ok || (y[0] == 2 && y[2] == 6));
    nb_card_free(c, p, room);
    nb_card_free(c, q, more);
    nb_card_code_drop(k[0]);
    nb_card_code_drop(k[1]);
    return ok;
}

static bool is_free(void *card)
{
    bool no_blocks = memory(card).blocks == 0;
    nb_card_trim(card);
    return no_blocks && memory(card).cached == 0;
}

CARD_TEST(memory_of_the_host_may_run_out, "")
{
    faults f = {everything, cards_first(), .holds = is_free, .bare = true};
    f.fresh = true;
    need(nb_memory_live() == 0 && faults_survived(&f));
    need(f.n > 8 && f.n < 100);
}

/* The n-th call of that function of the driver fails.  What had begun ends
 * with an error or in spite of it, and nothing is lost. */
static void run_with_a_failing_call(void)
{
    if (nb_card_count() == 0) return; /* that was the call */
    nb_card *c = cards_first();
    for (int i = 0; i < 2; i++) {
        bool ok = everything(c);
        need(ok == !nb_failed());
        need(ok || nb_error_code() == NB_ERUNTIME ||
             nb_error_code() == NB_EMEMORY);
        nb_error_clear();
        need(memory(c).blocks == 0 && nb_memory_live() == 0);
        nb_card_trim(c);
        need(!nb_failed());
    }
}

static void any_call_of_the_driver_may_fail(void **state)
{
    static const char *const names[] = {
#define CUDA(name, suffix, arguments) "cu" #name,
#define LATER                         CUDA
#include "backend/cuda/driver.def"
#undef LATER
#undef CUDA
    };
    (void)state;
    if (!cards_simulated()) skip();
    cards_alone(body_of_kernels_run_in_order, "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int n = 1; n <= 2; n++)
            cards_alone(run_with_a_failing_call, "NABLA_SIM_FAIL=%s:%d:%d",
                        names[i], n, n == 2 ? 2 : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_says_what_it_is),
        cmocka_unit_test(freed_memory_is_used_again),
        cmocka_unit_test(parts_are_cut_and_joined),
        cmocka_unit_test(blocks_never_overlap),
        cmocka_unit_test(trimming_gives_memory_back),
        cmocka_unit_test(running_out_is_an_error),
        cmocka_unit_test(cached_memory_is_no_obstacle),
        cmocka_unit_test(what_is_put_can_be_got),
        cmocka_unit_test(many_puts_keep_their_order),
        cmocka_unit_test(threads_share_a_card),
        cmocka_unit_test(kernels_run_in_order),
        cmocka_unit_test(shared_memory_is_opted_in_for),
        cmocka_unit_test(a_launch_that_fails_names_its_ops),
        cmocka_unit_test(a_late_fault_marks_the_card),
        cmocka_unit_test(a_fault_lists_the_last_kernels),
        cmocka_unit_test(cards_are_apart),
        cmocka_unit_test(cards_copy_from_each_other),
        cmocka_unit_test(waiting_finds_the_kernel),
        cmocka_unit_test(streams_wait_for_memory),
        cmocka_unit_test(a_forked_process_is_told),
        cmocka_unit_test(memory_of_the_host_may_run_out),
        cmocka_unit_test(any_call_of_the_driver_may_fail),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
