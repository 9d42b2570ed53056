/* blaslt.c - calling cuBLASLt.
 *
 * It knows matrices by columns: one stored by rows is its transpose, and a
 * result stored by rows is that of C' = B' A'. */
#include "backend/cuda/product/blaslt_parts.h"

#include "backend/cuda/build.h"
#include "backend/cuda/find.h"
#include "backend/cuda/parts.h"
#include "base/dl.h"
#include "base/half.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Values of its enumerations. */
enum {
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_TF32 = 77,
    R_32F = 0,
    R_64F = 1,
    R_16F = 2,
    R_16BF = 14,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS = 8,
    DESC_AUX = 11,
    DESC_AUX_LD = 12,
    DESC_AUX_STEP = 13,
    LAYOUT_BATCH = 5,
    LAYOUT_STEP = 6,
    EPILOGUE_NONE = 1,
    EPILOGUE_RELU = 2,
    EPILOGUE_BIAS = 4,
    EPILOGUE_GELU = 32,
    EPILOGUE_GELU_SLOPE = 64,
    EPILOGUE_AUX = 128
};

enum { ALIGN = 256 }; /* of workspaces */

#define BLASLT(result, name, arguments) "cublasLt" #name,
static const char *const names[] = {
#include "backend/cuda/product/blaslt.def"
};
#undef BLASLT

enum { FUNCTIONS = sizeof names / sizeof *names };

static nb_blaslt api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool opened;

static void load(void)
{
    static const char *const files[] = {
        "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    opened = nb_cuda_functions("NABLA_CUBLASLT", files, FUNCTIONS, names, &api);
}

/* A driver that is not the machine's own has no library beside it. */
bool nb_blaslt_there(void)
{
    if (getenv("NABLA_CUDA_DRIVER") && !getenv("NABLA_CUBLASLT")) return false;
    pthread_once(&once, load);
    return opened;
}

bool nb_blaslt_check(int status, const char *what)
{
    if (!status) return true;
    return nb_fail(NB_ERUNTIME, "cuBLASLt: %s failed with status %d", what,
                   status);
}

/* One for each card; kept. */
static void *handle_of(nb_card *c)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *handle[64];
    if (c->id >= 64) return nb_fail(NB_ERUNTIME, "cuBLASLt: card %d", c->id);
    pthread_mutex_lock(&lock);
    if (!handle[c->id] && nb_card_enter(c) &&
        !nb_blaslt_check(api.Create(&handle[c->id]), "starting"))
        handle[c->id] = NULL;
    pthread_mutex_unlock(&lock);
    return handle[c->id];
}

static int type_of(nb_dtype d)
{
    return d == NB_F64    ? R_64F
           : d == NB_F16  ? R_16F
           : d == NB_BF16 ? R_16BF
                          : R_32F;
}

/* A matrix of r x c elements: its layout, and whether it is then transposed. */
static bool lay_out(nb_blaslt_call *b, void **to, const nb_gemm_part *p,
                    int64_t r, int64_t c, bool turned, int *transposed)
{
    int64_t row = turned ? p->column : p->row;
    int64_t column = turned ? p->row : p->column;
    bool by_rows = nb_matrix_lies(r, c, row, column) == NB_LIES_BY_ROWS;
    int64_t ld = nb_matrix_leap(r, c, row, column);
    int last = b->g.nouter - 1;
    int batch = last < 0 ? 1 : (int)b->g.outer[last];
    int64_t step = last < 0 ? 0 : p->step[last];
    *transposed = by_rows;
    return nb_blaslt_check(
               b->api->MatrixLayoutCreate(to, type_of(p->dtype),
                                          (uint64_t)(by_rows ? c : r),
                                          (uint64_t)(by_rows ? r : c), ld),
               "a layout") &&
           nb_blaslt_check(b->api->MatrixLayoutSetAttribute(
                               *to, LAYOUT_BATCH, &batch, sizeof batch),
                           "a batch") &&
           nb_blaslt_check(b->api->MatrixLayoutSetAttribute(*to, LAYOUT_STEP,
                                                            &step, sizeof step),
                           "a batch");
}

static bool lay_out_all(nb_blaslt_call *b, int *ta, int *tb)
{
    const nb_gemm *g = &b->g;
    int tc;
    b->swapped =
        nb_matrix_lies(g->m, g->n, g->c.row, g->c.column) == NB_LIES_BY_ROWS;
    if (!b->swapped)
        return lay_out(b, &b->first, &g->a, g->m, g->k, false, ta) &&
               lay_out(b, &b->second, &g->b, g->k, g->n, false, tb) &&
               lay_out(b, &b->c, &g->c, g->m, g->n, false, &tc);
    return lay_out(b, &b->first, &g->b, g->n, g->k, true, ta) &&
           lay_out(b, &b->second, &g->a, g->k, g->m, true, tb) &&
           lay_out(b, &b->c, &g->c, g->n, g->m, true, &tc);
}

static bool set(nb_blaslt_call *b, int which, const void *at, size_t n)
{
    return nb_blaslt_check(
        b->api->MatmulDescSetAttribute(b->desc, which, at, n), "a product");
}

static int epilogue_of(const nb_gemm *g)
{
    static const int of[] = {[NB_END_NONE] = 0,
                             [NB_END_RELU] = EPILOGUE_RELU,
                             [NB_END_GELU] = EPILOGUE_GELU,
                             [NB_END_GELU_SLOPE] = EPILOGUE_GELU_SLOPE};
    int e = of[g->end];
    if (g->bias.buffer >= 0) e |= EPILOGUE_BIAS;
    if (g->kept.buffer >= 0) e |= EPILOGUE_AUX;
    return e ? e : EPILOGUE_NONE;
}

static bool describe_end(nb_blaslt_call *b)
{
    const nb_gemm *g = &b->g;
    int e = epilogue_of(g);
    int64_t ld = nb_matrix_leap(g->m, g->n, g->c.row, g->c.column);
    int64_t step = g->nouter ? g->c.step[g->nouter - 1] : 0;
    const void *somewhere = (void *)(uintptr_t)16; /* tells how they lie */
    if (!set(b, DESC_EPILOGUE, &e, sizeof e)) return false;
    if (g->bias.buffer >= 0 && !set(b, DESC_BIAS, &somewhere, sizeof somewhere))
        return false;
    if (g->kept.buffer < 0) return true;
    return set(b, DESC_AUX, &somewhere, sizeof somewhere) &&
           set(b, DESC_AUX_LD, &ld, sizeof ld) &&
           (!g->nouter || set(b, DESC_AUX_STEP, &step, sizeof step));
}

static int compute_of(nb_dtype d)
{
    const char *tf32 = getenv("NABLA_TF32");
    if (d == NB_F64) return COMPUTE_64F;
    return d == NB_F32 && tf32 && !strcmp(tf32, "1") ? COMPUTE_TF32
                                                     : COMPUTE_32F;
}

static bool describe(nb_blaslt_call *b)
{
    int ta, tb;
    nb_dtype d = b->g.a.dtype;
    return nb_blaslt_check(
               b->api->MatmulDescCreate(&b->desc, compute_of(d),
                                        d == NB_F64 ? R_64F : R_32F),
               "a product") &&
           lay_out_all(b, &ta, &tb) && set(b, DESC_TRANSA, &ta, sizeof ta) &&
           set(b, DESC_TRANSB, &tb, sizeof tb) && describe_end(b);
}

static void clear(nb_blaslt_call *b)
{
    if (b->desc) b->api->MatmulDescDestroy(b->desc);
    if (b->first) b->api->MatrixLayoutDestroy(b->first);
    if (b->second) b->api->MatrixLayoutDestroy(b->second);
    if (b->c) b->api->MatrixLayoutDestroy(b->c);
    pthread_mutex_destroy(&b->lock);
}

static void close_call(nb_card_job *j)
{
    clear((nb_blaslt_call *)j);
    nb_free(j);
}

/* The address of something beside, at a point where C is `moved` elements from
 * its start. */
static char *beside(const nb_gemm_beside *v, char *const *at, int64_t moved)
{
    return v->buffer < 0 ? NULL
                         : at[v->buffer] + (v->offset + moved) *
                                               (int64_t)nb_dtype_size(v->dtype);
}

static bool point_at(nb_blaslt_call *b, char *const *at, int64_t moved)
{
    const nb_gemm *g = &b->g;
    void *vector = beside(&g->bias, at, 0);
    void *kept = beside(&g->kept, at, moved);
    return (!vector || set(b, DESC_BIAS, &vector, sizeof vector)) &&
           (!kept || set(b, DESC_AUX, &kept, sizeof kept));
}

static char *part_at(const nb_gemm_part *p, char *const *at, int64_t moved)
{
    return at[p->buffer] +
           (p->offset + moved) * (int64_t)nb_dtype_size(p->dtype);
}

/* At a point of the outer axes but the last. */
static bool multiply(nb_blaslt_call *b, char *const *at, const int64_t *moved,
                     char *workspace, const char *what)
{
    const nb_gemm *g = &b->g;
    double scale = g->scale, add = g->add.buffer >= 0;
    float scale_f = (float)scale, add_f = (float)add;
    bool wide = g->a.dtype == NB_F64;
    char *x = part_at(&g->a, at, moved[0]), *y = part_at(&g->b, at, moved[1]);
    char *c = part_at(&g->c, at, moved[2]);
    char *added = beside(&g->add, at, moved[2]);
    int status = 0;
    pthread_mutex_lock(&b->lock);
    bool ok = point_at(b, at, moved[2]);
    if (ok)
        status = b->api->Matmul(
            b->handle, b->desc, wide ? (void *)&scale : &scale_f,
            b->swapped ? y : x, b->first, b->swapped ? x : y, b->second,
            wide ? (void *)&add : &add_f, added ? added : c, b->c, c, b->c,
            b->choice.algo, workspace, b->choice.workspace,
            nb_card_stream(b->card));
    pthread_mutex_unlock(&b->lock);
    nb_card_launched(b->card, what);
    return ok && nb_blaslt_check(status, what) &&
           (!nb_card_waits() || nb_card_sync(b->card));
}

bool nb_blaslt_once(nb_blaslt_call *b, char *const *at, char *workspace,
                    const char *what)
{
    return multiply(b, at, (int64_t[3]){0}, workspace, what);
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    nb_blaslt_call *b = (nb_blaslt_call *)j;
    const nb_gemm *g = &b->g;
    int64_t point[NB_MAX_DIMS] = {0};
    (void)out;
    if (!nb_card_enter(b->card)) return false;
    workspace += ALIGN - (uintptr_t)workspace % ALIGN;
    for (;;) {
        int64_t moved[3] = {0};
        int i = g->nouter - 2;
        for (int o = 0; o <= i; o++) {
            moved[0] += point[o] * g->a.step[o];
            moved[1] += point[o] * g->b.step[o];
            moved[2] += point[o] * g->c.step[o];
        }
        if (!multiply(b, in, moved, workspace, what)) return false;
        while (i >= 0 && ++point[i] == g->outer[i])
            point[i--] = 0;
        if (i < 0) return true;
    }
}

/* To be cleared, whatever it gives. */
static bool fill(nb_blaslt_call *b, nb_card *c, const nb_gemm *g)
{
    *b = (nb_blaslt_call){.job = {.run = run, .free = close_call},
                          .api = &api,
                          .card = c,
                          .g = *g};
    pthread_mutex_init(&b->lock, NULL);
    return (b->handle = handle_of(c)) && describe(b);
}

/* Of the result's dtype, and beginning at a multiple of 16 bytes. */
static bool goes_beside(const nb_gemm *g, const nb_gemm_beside *v)
{
    return v->buffer < 0 ||
           (v->dtype == g->c.dtype &&
            v->offset * (int64_t)nb_dtype_size(v->dtype) % 16 == 0);
}

static bool fits(const nb_gemm *g)
{
    int64_t ld = nb_matrix_leap(g->m, g->n, g->c.row, g->c.column);
    bool ends = g->end == NB_END_GELU || g->end == NB_END_GELU_SLOPE;
    bool same = g->c.dtype == g->a.dtype ||
                (nb_dtype_is_half(g->a.dtype) && g->c.dtype == NB_F32);
    int64_t batch = g->nouter ? g->outer[g->nouter - 1] : 1;
    if (!goes_beside(g, &g->bias) || !goes_beside(g, &g->add) ||
        !goes_beside(g, &g->kept))
        return false;
    return g->m > 0 && g->n > 0 && g->k > 0 && g->m <= INT32_MAX &&
           g->n <= INT32_MAX && g->k <= INT32_MAX && batch <= INT32_MAX &&
           g->a.dtype == g->b.dtype && nb_dtype_is_float(g->a.dtype) && same &&
           (!ends || nb_dtype_is_half(g->c.dtype)) &&
           (g->kept.buffer < 0 || ld % 8 == 0);
}

static bool has_algorithm(nb_card *c, const nb_gemm *g)
{
    nb_blaslt_call b;
    bool found = false, ok = fill(&b, c, g) && nb_blaslt_find(&b, &found);
    clear(&b);
    if (!ok) nb_error_clear();
    return found;
}

/* Of plain products there is always one. */
bool nb_blaslt_takes(nb_card *c, const nb_gemm *g)
{
    if (!fits(g)) return false;
    if (epilogue_of(g) == EPILOGUE_NONE && g->add.buffer < 0) return true;
    return has_algorithm(c, g);
}

void nb_blaslt_wake(nb_card *c)
{
    enum { N = 1024 };
    const nb_gemm_part whole = {.dtype = NB_BF16, .row = N, .column = 1};
    const nb_gemm_beside none = {.buffer = -1};
    nb_gemm g = {.m = N,
                 .n = N,
                 .k = N,
                 .a = whole,
                 .b = whole,
                 .c = whole,
                 .scale = 1,
                 .add = none,
                 .bias = none,
                 .kept = none};
    if (nb_blaslt_there()) has_algorithm(c, &g);
}

static bool choose(void *call)
{
    nb_blaslt_call *b = call;
    if (!nb_blaslt_choose(b)) return false;
    if (b->choice.workspace) b->job.workspace = b->choice.workspace + ALIGN;
    return true;
}

nb_card_job *nb_blaslt_job(nb_card *c, const nb_gemm *g)
{
    nb_blaslt_call *b = nb_alloc(sizeof *b);
    if (!b) return NULL;
    if (fill(b, c, g) && nb_card_builds_beside(choose, b)) return &b->job;
    close_call(&b->job);
    return NULL;
}
