/* multiply.c - kernels for products: their text, tiles and launches.
 *
 * A kernel writes C by rows; a result by columns is that of C' = B' A'. */
#include "backend/cuda/product/multiply.h"

#include "backend/cuda/build.h"
#include "base/memory.h"
#include "base/text.h"
#include "lower/passes.h"

#define NB_CUDA(...) #__VA_ARGS__

static const char halves[] =
#include "backend/cuda/product/multiply_halves.cu"
    ;
static const char floats[] =
#include "backend/cuda/product/multiply_floats.cu"
    ;
static const char ends[] =
#include "backend/cuda/product/multiply_end.cu"
    ;

enum { OUTER = 6, LEAST = 16 };

/* Of a block, and of a warp or, of floats, of a thread. */
typedef struct tile {
    int bm, bn, bk, wm, wn, stages;
} tile;

/* As the kernel has it. */
typedef struct arguments {
    const char *a, *b;
    char *c;
    const char *bias, *add;
    char *kept;
    int64_t a_leap, b_leap, c_leap;
    int m, n, k, nouter;
    double scale;
    int64_t size[OUTER], step[3][OUTER];
} arguments;

typedef struct multiply {
    nb_card_job job;
    nb_card *card;
    nb_gemm g; /* by rows */
    bool a_turned, b_turned;
    tile tile;
    nb_card_code *code;
    arguments args;
    unsigned grid[3], threads, shared;
} multiply;

static bool is_half(nb_dtype d)
{
    return d == NB_F16 || d == NB_BF16;
}

static void turn(nb_gemm_part *p)
{
    int64_t row = p->row;
    p->row = p->column;
    p->column = row;
}

/* The same product with C by rows. */
static nb_gemm by_rows(const nb_gemm *from)
{
    nb_gemm g = *from;
    if (nb_matrix_lies(g.m, g.n, g.c.row, g.c.column) == NB_LIES_BY_ROWS)
        return g;
    g.m = from->n, g.n = from->m;
    g.a = from->b, g.b = from->a;
    turn(&g.a), turn(&g.b), turn(&g.c);
    return g;
}

bool nb_multiply_takes(const nb_gemm *g)
{
    double elements = (double)g->m * (double)g->n;
    bool same = g->c.dtype == g->a.dtype ||
                (is_half(g->a.dtype) && g->c.dtype == NB_F32);
    const nb_gemm_beside *beside[] = {&g->add, &g->bias, &g->kept};
    for (int i = 0; i < 3; i++)
        same =
            same && (beside[i]->buffer < 0 || beside[i]->dtype == g->c.dtype);
    for (int i = 0; i < g->nouter; i++)
        elements *= (double)g->outer[i];
    return same && g->a.dtype == g->b.dtype && nb_dtype_is_float(g->a.dtype) &&
           g->m >= LEAST && g->n >= LEAST && g->k >= LEAST &&
           g->m <= INT32_MAX / 2 && g->n <= INT32_MAX / 2 &&
           g->k <= INT32_MAX / 2 && g->nouter <= OUTER && elements <= 0x1p40;
}

/* Whether vectors of so many bytes can be read: they begin at multiples. */
static bool is_wide(const nb_gemm *g, const nb_gemm_part *p, int64_t leap,
                    int64_t bytes)
{
    int64_t item = (int64_t)nb_dtype_size(p->dtype);
    int64_t all = (p->offset | leap) * item;
    for (int i = 0; i < g->nouter; i++)
        all |= p->step[i] * item;
    return all % bytes == 0;
}

static int64_t tiles_of(const multiply *x, const tile *t)
{
    int64_t n = (x->g.m + t->bm - 1) / t->bm * ((x->g.n + t->bn - 1) / t->bn);
    for (int i = 0; i < x->g.nouter; i++)
        n *= x->g.outer[i];
    return n;
}

/* Elements of a stage: rows as they lie in memory, and eight more each. */
static int tile_of(bool turned, int rows, int columns)
{
    return turned ? columns * (rows + 8) : rows * (columns + 8);
}

/* Bytes of shared memory that stages of halves take. */
static size_t shared_of(const multiply *x, const tile *t)
{
    if (!is_half(x->g.a.dtype)) return 0;
    return 2 * (size_t)t->stages *
           (size_t)(tile_of(x->a_turned, t->bm, t->bk) +
                    tile_of(x->b_turned, t->bk, t->bn));
}

/* The largest tiles that there are enough of, and room for. */
static tile choose(const multiply *x)
{
    static const tile of_halves[] = {{128, 256, 32, 64, 64, 4},
                                     {128, 128, 32, 64, 64, 4},
                                     {64, 64, 32, 32, 32, 4}};
    static const tile of_floats[] = {{128, 128, 8, 8, 8, 2},
                                     {64, 64, 16, 4, 4, 2}};
    static const tile of_doubles[] = {{64, 64, 8, 4, 4, 2}};
    bool half = is_half(x->g.a.dtype), wide = x->g.a.dtype == NB_F64;
    const tile *list = half ? of_halves : wide ? of_doubles : of_floats;
    int n = half ? 3 : wide ? 1 : 2, i = 0;
    while (i < n - 1 && (tiles_of(x, &list[i]) < x->card->processors ||
                         shared_of(x, &list[i]) > x->card->shared_most))
        i++;
    return list[i];
}

static int threads_of(const multiply *x)
{
    const tile *t = &x->tile;
    int each = is_half(x->g.a.dtype) ? 32 : 1;
    return t->bm / t->wm * (t->bn / t->wn) * each;
}

static void write_types(nb_text *t, const nb_gemm *g)
{
    bool half = is_half(g->a.dtype), wide = g->a.dtype == NB_F64;
    const char *w = wide ? "double" : "float";
    bool narrow = is_half(g->c.dtype);
    nb_text_add(t, "typedef unsigned short u16;\ntypedef unsigned u32;\n"
                   "typedef long long i64;\n"
                   "#define FN static __device__ __forceinline__\n"
                   "#define UNROLL _Pragma(\"unroll\")\n");
    nb_text_add(t, "typedef %s T;\ntypedef %s W;\ntypedef %s C;\n",
                half ? "u16" : w, w, narrow ? "u16" : w);
    nb_text_add(t, "struct __align__(%d) pair { C x, y; };\n",
                (int)(2 * nb_dtype_size(g->c.dtype)));
    nb_text_add(t, "struct __align__(16) vector { T at[%d]; };\n",
                (int)(16 / nb_dtype_size(g->a.dtype)));
    if (narrow && g->c.dtype == NB_BF16)
        nb_text_add(t, "FN float load_c(u16 h)\n{\n"
                       "    return __int_as_float((u32)h << 16);\n}\n"
                       "FN u16 store_c(float x)\n{\n    u16 h;\n"
                       "    asm(\"cvt.rn.bf16.f32 %%0, %%1;\" : \"=h\"(h) : "
                       "\"f\"(x));\n    return h;\n}\n");
    else if (narrow)
        nb_text_add(t, "FN float load_c(u16 h)\n{\n    float x;\n"
                       "    asm(\"cvt.f32.f16 %%0, %%1;\" : \"=f\"(x) : "
                       "\"h\"(h));\n    return x;\n}\n"
                       "FN u16 store_c(float x)\n{\n    u16 h;\n"
                       "    asm(\"cvt.rn.f16.f32 %%0, %%1;\" : \"=h\"(h) : "
                       "\"f\"(x));\n    return h;\n}\n");
    else
        nb_text_add(t, "#define load_c(x) (x)\n#define store_c(x) (x)\n");
}

static void define(nb_text *t, const char *name, int64_t value)
{
    nb_text_add(t, "#define %s %lld\n", name, (long long)value);
}

/* 16 x 8 of C, of 16 x 16 of A, by a warp. */
static void write_instruction(nb_text *t, const char *type)
{
    nb_text_add(
        t,
        "FN void multiply_small(float *d, const u32 *a, const u32 *b)\n"
        "{\n"
        "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.%s.%s."
        "f32 {%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, "
        "{%%10, %%11, %%12, %%13};\"\n"
        "        : \"=f\"(d[0]), \"=f\"(d[1]), \"=f\"(d[2]), "
        "\"=f\"(d[3])\n"
        "        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), "
        "\"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]),\n"
        "          \"f\"(d[0]), \"f\"(d[1]), \"f\"(d[2]), "
        "\"f\"(d[3]));\n"
        "}\n",
        type, type);
}

static void write_all(nb_text *t, const multiply *x)
{
    const nb_gemm *g = &x->g;
    const tile *k = &x->tile;
    bool half = is_half(g->a.dtype);
    write_types(t, g);
    define(t, "BM", k->bm), define(t, "BN", k->bn), define(t, "BK", k->bk);
    define(t, "WM", k->wm), define(t, "WN", k->wn);
    define(t, "STAGES", k->stages), define(t, "THREADS", x->threads);
    define(t, "OUTER", OUTER);
    define(t, "VECTOR", (int64_t)(16 / nb_dtype_size(g->a.dtype)));
    define(t, "A_TURNED", x->a_turned), define(t, "B_TURNED", x->b_turned);
    define(t, "A_TILE", tile_of(x->a_turned, k->bm, k->bk));
    define(t, "B_TILE", tile_of(x->b_turned, k->bk, k->bn));
    define(t, "A_WIDE", is_wide(g, &g->a, x->args.a_leap, 16));
    define(t, "B_WIDE", is_wide(g, &g->b, x->args.b_leap, 16));
    define(t, "C_WIDE",
           is_wide(g, &g->c, x->args.c_leap,
                   2 * (int64_t)nb_dtype_size(g->c.dtype)));
    define(t, "ADDS", g->add.buffer >= 0);
    define(t, "BIAS", g->bias.buffer >= 0);
    define(t, "KEEPS", g->kept.buffer >= 0);
    define(t, "END", g->end);
    nb_text_add(t, "#define FMA %s\n", g->a.dtype == NB_F64 ? "fma" : "fmaf");
    if (half) write_instruction(t, g->a.dtype == NB_F16 ? "f16" : "bf16");
    nb_text_add(t, "%s\n%s\n", ends, half ? halves : floats);
}

static void find_arguments(multiply *x)
{
    const nb_gemm *g = &x->g;
    const nb_gemm_part *part[] = {&g->a, &g->b, &g->c};
    arguments *a = &x->args;
    x->a_turned =
        nb_matrix_lies(g->m, g->k, g->a.row, g->a.column) == NB_LIES_BY_COLUMNS;
    x->b_turned =
        nb_matrix_lies(g->k, g->n, g->b.row, g->b.column) == NB_LIES_BY_COLUMNS;
    a->a_leap = nb_matrix_leap(g->m, g->k, g->a.row, g->a.column);
    a->b_leap = nb_matrix_leap(g->k, g->n, g->b.row, g->b.column);
    a->c_leap = nb_matrix_leap(g->m, g->n, g->c.row, g->c.column);
    a->m = (int)g->m, a->n = (int)g->n, a->k = (int)g->k;
    a->nouter = g->nouter;
    a->scale = g->scale;
    for (int i = 0; i < g->nouter; i++) {
        a->size[i] = g->outer[i];
        for (int t = 0; t < 3; t++)
            a->step[t][i] = part[t]->step[i];
    }
}

static void find_grid(multiply *x)
{
    x->grid[0] = (unsigned)tiles_of(x, &x->tile);
    x->grid[1] = x->grid[2] = 1;
    x->threads = (unsigned)threads_of(x);
    x->shared = (unsigned)shared_of(x, &x->tile);
}

static char *at(char *const *buffer, int which, int64_t offset, nb_dtype d)
{
    return which < 0 ? NULL
                     : buffer[which] + offset * (int64_t)nb_dtype_size(d);
}

static char *beside(char *const *buffer, const nb_gemm_beside *v)
{
    return at(buffer, v->buffer, v->offset, v->dtype);
}

static char *part(char *const *buffer, const nb_gemm_part *p)
{
    return at(buffer, p->buffer, p->offset, p->dtype);
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    multiply *x = (multiply *)j;
    arguments a = x->args;
    unsigned threads[3] = {x->threads, 1, 1};
    void *list[] = {&a};
    (void)out, (void)workspace;
    a.a = part(in, &x->g.a), a.b = part(in, &x->g.b), a.c = part(in, &x->g.c);
    a.bias = beside(in, &x->g.bias), a.add = beside(in, &x->g.add);
    a.kept = beside(in, &x->g.kept);
    return nb_card_launch(x->card, x->code, x->grid, threads, x->shared, list,
                          what);
}

static void release(nb_card_job *j)
{
    multiply *x = (multiply *)j;
    nb_card_code_drop(x->code);
    nb_free(x);
}

nb_card_job *nb_multiply_job(nb_card *c, const nb_gemm *g)
{
    multiply *x = nb_alloc_zero(sizeof *x);
    nb_text t = {0};
    if (!x) return NULL;
    x->job = (nb_card_job){.run = run, .free = release};
    x->card = c;
    x->g = by_rows(g);
    find_arguments(x);
    x->tile = choose(x);
    find_grid(x);
    write_all(&t, x);
    nb_card_source source = {nb_text_get(&t), "multiply"};
    if (nb_pass_is_dumped("code")) nb_pass_dump("code", source.text);
    bool ok = !t.failed && nb_card_build(c, 1, &source, &x->code);
    nb_text_free(&t);
    if (ok) return &x->job;
    release(&x->job);
    return NULL;
}
