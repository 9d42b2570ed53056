/* blocks.c - see blocks.h.  Threads go over the elements of a grid's stride. */
#include "backend/cuda/blocks.h"

#include "backend/cuda/build.h"
#include "base/text.h"

#include <string.h>

enum { DIMS = 16, MEMBERS = 480, THREADS = 256, BLOCKS = 1 << 14 };

static const char basics[] =
    "typedef signed char i8;\n"
    "typedef short i16;\n"
    "typedef int i32;\n"
    "typedef long long i64;\n"
    "typedef unsigned char u8;\n"
    "typedef unsigned short u16;\n"
    "typedef unsigned int u32;\n"
    "typedef unsigned long long u64;\n"
    "typedef float f32;\n"
    "typedef double f64;\n"
    "struct __align__(16) w16 { u64 a, b; };\n"
    "#define EACH(i, n) for (u64 i = (u64)blockIdx.x * blockDim.x + "
    "threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)\n";

/* One block of threads for each of its elements, up to so many. */
static bool launch(nb_card *c, const char *text, const char *name,
                   int64_t count, void *args)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    unsigned grid[3] = {(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), 1, 1};
    nb_card_source source = {text, name};
    nb_card_code *code;
    if (!nb_card_build(c, 1, &source, &code)) return false;
    bool ok = nb_card_launch(c, code, grid, (unsigned[3]){THREADS, 1, 1}, 0,
                             (void *[]){args}, name);
    nb_card_code_drop(code);
    return ok;
}

static const char *word_name(size_t bytes)
{
    return bytes == 16  ? "w16"
           : bytes == 8 ? "u64"
           : bytes == 4 ? "u32"
           : bytes == 2 ? "u16"
                        : "u8";
}

/* Copies */

typedef struct box {
    const char *from;
    char *to;
    int64_t size[DIMS], read[DIMS], write[DIMS]; /* in words */
    uint64_t count;
    int32_t n;
} box;

static const char box_text[] =
    "%stypedef %s W;\n"
    "typedef %s N;\n"
    "struct args { const W *from; W *to; i64 size[%d], read[%d], write[%d];\n"
    "              u64 count; i32 n; };\n"
    "extern \"C\" __global__ void copy(args p)\n"
    "{\n"
    "    EACH(i, p.count) {\n"
    "        N left = (N)i;\n"
    "        i64 r = 0, w = 0;\n"
    "        for (int d = p.n - 1; d >= 0; d--) {\n"
    "            N s = (N)p.size[d], q = left / s;\n"
    "            i64 at = (i64)(left - q * s);\n"
    "            r += at * p.read[d];\n"
    "            w += at * p.write[d];\n"
    "            left = q;\n"
    "        }\n"
    "        p.to[w] = p.from[r];\n"
    "    }\n"
    "}\n";

/* Dims of one element are none, and one that runs on from the next is its. */
static void merge(box *b, int rank, const int64_t *size, const int64_t *write,
                  const int64_t *read)
{
    for (int d = 0; d < rank; d++) {
        if (size[d] == 1) continue;
        int k = b->n - 1;
        if (k >= 0 && b->read[k] == size[d] * read[d] &&
            b->write[k] == size[d] * write[d])
            b->size[k] *= size[d];
        else
            b->size[k = b->n++] = size[d];
        b->read[k] = read[d];
        b->write[k] = write[d];
    }
}

/* The widest word in which all of it can be said. */
static size_t widen(box *b, size_t item)
{
    int last = b->n - 1;
    bool runs = last >= 0 && b->read[last] == 1 && b->write[last] == 1;
    uint64_t bits = (uintptr_t)b->from | (uintptr_t)b->to;
    for (int d = 0; d < last; d++)
        bits |= (uint64_t)(b->read[d] | b->write[d]) * item;
    if (runs) bits |= (uint64_t)b->size[last] * item;
    size_t word = 16;
    while (runs && word > item && bits % word)
        word /= 2;
    if (!runs || word < item) word = item;
    int64_t times = (int64_t)(word / item);
    for (int d = 0; d < last && times > 1; d++) {
        b->read[d] /= times;
        b->write[d] /= times;
    }
    if (times > 1) b->size[last] /= times;
    return word;
}

bool nb_card_box(nb_card *c, size_t item, int rank, const int64_t *size,
                 char *to, const int64_t *to_stride, const char *from,
                 const int64_t *from_stride)
{
    box b = {.from = from, .to = to, .count = 1};
    if (rank > DIMS) return nb_fail(NB_EVALUE, "copy: %d dims", rank);
    merge(&b, rank, size, to_stride, from_stride);
    size_t word = widen(&b, item);
    for (int d = 0; d < b.n; d++)
        b.count *= (uint64_t)b.size[d];
    if (!b.count) return true;
    nb_text t = {0};
    bool ok =
        nb_text_add(&t, box_text, basics, word_name(word),
                    b.count < UINT32_MAX ? "u32" : "u64", DIMS, DIMS, DIMS) &&
        launch(c, nb_text_get(&t), "copy", (int64_t)b.count, &b);
    nb_text_free(&t);
    return ok;
}

/* Fills */

bool nb_card_fill(nb_card *c, size_t item, int64_t count, const void *value,
                  char *to)
{
    struct {
        char *to;
        uint64_t count, value;
    } args = {to, (uint64_t)count, 0};
    if (!count) return true;
    memcpy(&args.value, value, item);
    nb_text t = {0};
    bool ok = nb_text_add(&t,
                          "%sstruct args { %s *to; u64 count, value; };\n"
                          "extern \"C\" __global__ void fill(args p)\n"
                          "{\n"
                          "    EACH(i, p.count) p.to[i] = p.value;\n"
                          "}\n",
                          basics, word_name(item)) &&
              launch(c, nb_text_get(&t), "fill", count, &args);
    nb_text_free(&t);
    return ok;
}

/* Reductions */

/* By dtype: as stored, as it is combined, in which type integers wrap. */
static const struct {
    const char *stored, *as, *wraps, *load, *store;
} types[NB_NDTYPES] = {
    [NB_BOOL] = {"u8", "u8", "u32", "", ""},
    [NB_I8] = {"i8", "i8", "u32", "", ""},
    [NB_I16] = {"i16", "i16", "u32", "", ""},
    [NB_I32] = {"i32", "i32", "u32", "", ""},
    [NB_I64] = {"i64", "i64", "u64", "", ""},
    [NB_U8] = {"u8", "u8", "u32", "", ""},
    [NB_U16] = {"u16", "u16", "u32", "", ""},
    [NB_U32] = {"u32", "u32", "u32", "", ""},
    [NB_U64] = {"u64", "u64", "u64", "", ""},
    [NB_F16] = {"u16", "f32", "f32",
                "f32 x; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(a)); "
                "return x;",
                "u16 x; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(x) : "
                "\"f\"(a)); return x;"},
    [NB_BF16] = {"u16", "f32", "f32", "return __int_as_float((u32)a << 16);",
                 "u16 x; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(x) : "
                 "\"f\"(a)); return x;"},
    [NB_F32] = {"f32", "f32", "f32", "", ""},
    [NB_F64] = {"f64", "f64", "f64", "", ""}};

static const char *const kinds[] = {[NB_SUM] = "(U)a + (U)b",
                                    [NB_PROD] = "(U)a * (U)b",
                                    [NB_MAX] = "a > b || a != a ? a : b",
                                    [NB_MIN] = "a < b || a != a ? a : b",
                                    [NB_AND] = "a != 0 && b != 0",
                                    [NB_OR] = "a != 0 || b != 0"};

static const nb_reduce on_bools[] = {
    [NB_SUM] = NB_OR,   [NB_MAX] = NB_OR,  [NB_MIN] = NB_AND,
    [NB_PROD] = NB_AND, [NB_AND] = NB_AND, [NB_OR] = NB_OR};

static const char combine_text[] =
    "%stypedef %s T;\n"
    "typedef %s A;\n"
    "typedef %s U;\n"
    "enum { V = %d };\n"
    "struct __align__(sizeof(T) * V) vec { T at[V]; };\n"
    "struct args { const T *x[%d]; T *out; u64 count; i32 n; };\n"
    "static __device__ __forceinline__ A load(T a) { %s }\n"
    "static __device__ __forceinline__ T store(A a) { %s }\n"
    "extern \"C\" __global__ void combine(args p)\n"
    "{\n"
    "    EACH(i, p.count) {\n"
    "        A acc[V];\n"
    "        vec v = ((const vec *)p.x[0])[i];\n"
    "        for (int j = 0; j < V; j++) acc[j] = load(v.at[j]);\n"
    "        for (int k = 1; k < p.n; k++) {\n"
    "            v = ((const vec *)p.x[k])[i];\n"
    "            for (int j = 0; j < V; j++) {\n"
    "                A a = acc[j], b = load(v.at[j]);\n"
    "                acc[j] = (A)(%s);\n"
    "            }\n"
    "        }\n"
    "        for (int j = 0; j < V; j++) v.at[j] = store(acc[j]);\n"
    "        ((vec *)p.out)[i] = v;\n"
    "    }\n"
    "}\n";

typedef struct sum {
    const char *x[MEMBERS];
    char *out;
    uint64_t count;
    int32_t n;
} sum;

/* `count` vectors of v elements. */
static bool combine(nb_card *c, nb_dtype d, nb_reduce kind, int v, sum *s)
{
    const char *load = types[d].load, *store = types[d].store;
    nb_text t = {0};
    bool ok =
        nb_text_add(&t, combine_text, basics, types[d].stored, types[d].as,
                    types[d].wraps, v, MEMBERS, *load ? load : "return a;",
                    *store ? store : "return a;", kinds[kind]) &&
        launch(c, nb_text_get(&t), "combine", (int64_t)s->count, s);
    nb_text_free(&t);
    return ok;
}

bool nb_card_combine(nb_card *c, nb_dtype dtype, nb_reduce kind, int n,
                     const void *const *x, int64_t count, void *out)
{
    size_t item = nb_dtype_size(dtype);
    uintptr_t bits = (uintptr_t)out;
    int v = (int)(16 / item);
    sum s = {.out = out, .n = n};
    if (n > MEMBERS)
        return nb_fail(NB_EVALUE, "%d devices of one card reduce, %d at most",
                       n, MEMBERS);
    if (dtype == NB_BOOL) kind = on_bools[kind];
    for (int k = 0; k < n; k++) {
        s.x[k] = x[k];
        bits |= (uintptr_t)x[k];
    }
    int64_t vectors = bits % 16 ? 0 : count / v, done = vectors * v;
    s.count = (uint64_t)vectors;
    if (vectors && !combine(c, dtype, kind, v, &s)) return false;
    for (int k = 0; k < n; k++)
        s.x[k] += (size_t)done * item;
    s.out += (size_t)done * item;
    s.count = (uint64_t)(count - done);
    return !s.count || combine(c, dtype, kind, 1, &s);
}
