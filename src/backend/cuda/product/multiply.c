/* multiply.c - kernels for products: their text, tiles and launches.
 *
 * A kernel writes C by rows; a result by columns is that of C' = B' A'. */
#include "backend/cuda/product/multiply.h"

#include "backend/cuda/build.h"
#include "backend/cuda/product/tiles.h"
#include "base/half.h"
#include "base/memory.h"
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
    nb_tiles tile;
    nb_card_code *code;
    arguments args;
    unsigned grid[3], threads, shared;
} multiply;

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
                (nb_dtype_is_half(g->a.dtype) && g->c.dtype == NB_F32);
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

static int64_t tiles_of(const multiply *x, const nb_tiles *t)
{
    int64_t n = (x->g.m + t->bm - 1) / t->bm * ((x->g.n + t->bn - 1) / t->bn);
    for (int i = 0; i < x->g.nouter; i++)
        n *= x->g.outer[i];
    return n;
}

/* The largest tiles that there are enough of, and room for. */
static nb_tiles choose(const multiply *x)
{
    const nb_tiles *list;
    int n = nb_tiles_all(x->g.a.dtype, &list);
    nb_tiles t = {0};
    for (int i = 0; i < n; i++) {
        t = nb_tiles_sized(&x->tile, &list[i]);
        if (tiles_of(x, &t) >= x->card->processors &&
            nb_tiles_shared(&t) <= x->card->shared_most)
            break;
    }
    return t;
}

static void define(nb_text *t, const char *name, int64_t value)
{
    nb_text_add(t, "#define %s %lld\n", name, (long long)value);
}

static void write_all(nb_text *t, const multiply *x)
{
    const nb_gemm *g = &x->g;
    nb_tiles_begin(t, &x->tile);
    define(t, "OUTER", OUTER);
    define(t, "A_WIDE", is_wide(g, &g->a, x->args.a_leap, 16));
    define(t, "B_WIDE", is_wide(g, &g->b, x->args.b_leap, 16));
    define(t, "C_WIDE",
           is_wide(g, &g->c, x->args.c_leap,
                   2 * (int64_t)nb_dtype_size(g->c.dtype)));
    define(t, "ADDS", g->add.buffer >= 0);
    define(t, "BIAS", g->bias.buffer >= 0);
    define(t, "KEEPS", g->kept.buffer >= 0);
    define(t, "END", g->end);
    nb_text_add(t, "%s\n", ends);
    nb_tiles_loop(t, &x->tile);
    nb_text_add(t, "%s\n", nb_dtype_is_half(g->a.dtype) ? halves : floats);
}

static void find_arguments(multiply *x)
{
    const nb_gemm *g = &x->g;
    const nb_gemm_part *part[] = {&g->a, &g->b, &g->c};
    arguments *a = &x->args;
    x->tile.a = g->a.dtype, x->tile.c = g->c.dtype;
    x->tile.a_turned =
        nb_matrix_lies(g->m, g->k, g->a.row, g->a.column) == NB_LIES_BY_COLUMNS;
    x->tile.b_turned =
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
    x->threads = nb_tiles_threads(&x->tile);
    x->shared = (unsigned)nb_tiles_shared(&x->tile);
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
