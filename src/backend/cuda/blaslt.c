/* blaslt.c - calling cuBLASLt.
 *
 * It knows matrices by columns: one stored by rows is its transpose, and a
 * result stored by rows is that of C' = B' A'. */
#include "backend/cuda/blaslt.h"

#include "backend/cuda/find.h"
#include "backend/cuda/memory.h"
#include "base/dl.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Values of its enumerations. */
enum {
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    R_32F = 0,
    R_64F = 1,
    R_16F = 2,
    R_16BF = 14,
    DESC_TRANSA = 3,
    DESC_TRANSB = 4,
    LAYOUT_BATCH = 5,
    LAYOUT_STEP = 6,
    PREFERENCE_WORKSPACE = 1
};

enum { WORKSPACE = 32 << 20 };

#define BLASLT(name, arguments) int(*name) arguments;
static struct {
#include "backend/cuda/blaslt.def"
} api;
#undef BLASLT

#define BLASLT(name, arguments) "cublasLt" #name,
static const char *const names[] = {
#include "backend/cuda/blaslt.def"
};
#undef BLASLT

enum { FUNCTIONS = sizeof names / sizeof *names };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool opened;

static void load(void)
{
    static const char *const files[] = {
        "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    const char *wanted = getenv("NABLA_CUBLASLT");
    bool given = wanted && *wanted;
    if (given && !strcmp(wanted, "none")) return;
    void *lib = given ? nb_dl_open((const char *[]){wanted, NULL})
                      : nb_cuda_library(files);
    bool ok = lib;
    for (int i = 0; ok && i < FUNCTIONS; i++) {
        void *f = nb_dl_symbol(lib, names[i]);
        if (f) memcpy((char *)&api + (size_t)i * sizeof f, &f, sizeof f);
        ok = f;
    }
    opened = ok;
}

/* A driver that is not the machine's own has no library beside it. */
bool nb_blaslt_there(void)
{
    if (getenv("NABLA_CUDA_DRIVER") && !getenv("NABLA_CUBLASLT")) return false;
    pthread_once(&once, load);
    return opened;
}

/* A matrix by columns: rows, columns, ld, and whether it is then transposed. */
typedef struct layout {
    int64_t rows, columns, ld;
    int transposed;
} layout;

/* Of r x c with those strides; false: neither is 1. */
static bool by_columns(int64_t r, int64_t c, const int64_t *stride, layout *to)
{
    if ((stride[0] == 1 || r == 1) && (c == 1 || stride[1] >= r)) {
        *to = (layout){r, c, c == 1 ? r : stride[1], 0};
        return true;
    }
    if ((stride[1] == 1 || c == 1) && (r == 1 || stride[0] >= c)) {
        *to = (layout){c, r, r == 1 ? c : stride[0], 1};
        return true;
    }
    return false;
}

static bool find_layouts(const nb_gemm_form *f, layout *a, layout *b, layout *c,
                         bool *swapped)
{
    if (!by_columns(f->m, f->n, f->c, c)) return false;
    *swapped = c->transposed;
    if (!*swapped)
        return by_columns(f->m, f->k, f->a, a) &&
               by_columns(f->k, f->n, f->b, b);
    int64_t at[2] = {f->a[1], f->a[0]}, bt[2] = {f->b[1], f->b[0]};
    return by_columns(f->n, f->k, bt, a) && by_columns(f->k, f->m, at, b);
}

bool nb_blaslt_takes(const nb_gemm_form *f)
{
    layout a, b, c;
    bool swapped;
    return f->m > 0 && f->n > 0 && f->k > 0 && f->batch > 0 &&
           f->m <= INT32_MAX && f->n <= INT32_MAX && f->k <= INT32_MAX &&
           find_layouts(f, &a, &b, &c, &swapped);
}

/* Begins with the algorithm, as the library lays it out. */
typedef struct heuristic {
    uint64_t algo[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} heuristic;

struct nb_card_gemm {
    nb_card *card;
    void *handle, *desc, *a, *b, *c;
    heuristic found;
    bool swapped, wide;
};

static bool check(int status, const char *what)
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
        !check(api.Create(&handle[c->id]), "starting"))
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

static bool make_layout(void **to, const nb_gemm_form *f, const layout *l,
                        int64_t step)
{
    int batch = (int)f->batch;
    return check(api.MatrixLayoutCreate(to, type_of(f->dtype),
                                        (uint64_t)l->rows, (uint64_t)l->columns,
                                        l->ld),
                 "a layout") &&
           check(api.MatrixLayoutSetAttribute(*to, LAYOUT_BATCH, &batch,
                                              sizeof batch),
                 "a batch") &&
           check(api.MatrixLayoutSetAttribute(*to, LAYOUT_STEP, &step,
                                              sizeof step),
                 "a batch");
}

static bool choose(nb_card_gemm *g)
{
    void *preference = NULL;
    size_t most = WORKSPACE;
    int n = 0;
    bool ok =
        check(api.MatmulPreferenceCreate(&preference), "a preference") &&
        check(api.MatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE,
                                               &most, sizeof most),
              "a preference") &&
        check(api.MatmulAlgoGetHeuristic(g->handle, g->desc, g->a, g->b, g->c,
                                         g->c, preference, 1, &g->found, &n),
              "choosing an algorithm");
    if (ok && !n) ok = nb_fail(NB_ERUNTIME, "cuBLASLt: no algorithm fits");
    if (preference) api.MatmulPreferenceDestroy(preference);
    return ok;
}

static bool make(nb_card_gemm *g, const nb_gemm_form *f)
{
    layout a, b, c;
    g->wide = f->dtype == NB_F64;
    int compute = g->wide ? COMPUTE_64F : COMPUTE_32F;
    if (!find_layouts(f, &a, &b, &c, &g->swapped))
        return nb_fail(NB_ERUNTIME, "cuBLASLt: matrices with gaps");
    bool s = g->swapped;
    return check(
               api.MatmulDescCreate(&g->desc, compute, g->wide ? R_64F : R_32F),
               "a product") &&
           check(api.MatmulDescSetAttribute(g->desc, DESC_TRANSA, &a.transposed,
                                            sizeof(int)),
                 "a product") &&
           check(api.MatmulDescSetAttribute(g->desc, DESC_TRANSB, &b.transposed,
                                            sizeof(int)),
                 "a product") &&
           make_layout(&g->a, f, &a, f->step[s ? 1 : 0]) &&
           make_layout(&g->b, f, &b, f->step[s ? 0 : 1]) &&
           make_layout(&g->c, f, &c, f->step[2]) && choose(g);
}

nb_card_gemm *nb_card_gemm_new(nb_card *c, const nb_gemm_form *f)
{
    nb_card_gemm *g = nb_alloc_zero(sizeof *g);
    if (!g) return NULL;
    g->card = c;
    if ((g->handle = handle_of(c)) && make(g, f)) return g;
    nb_card_gemm_free(g);
    return NULL;
}

void nb_card_gemm_free(nb_card_gemm *g)
{
    if (!g) return;
    if (g->desc) api.MatmulDescDestroy(g->desc);
    if (g->a) api.MatrixLayoutDestroy(g->a);
    if (g->b) api.MatrixLayoutDestroy(g->b);
    if (g->c) api.MatrixLayoutDestroy(g->c);
    nb_free(g);
}

bool nb_card_gemm_run(const nb_card_gemm *g, const void *a, const void *b,
                      void *c, const char *what)
{
    static const double one = 1, none = 0;
    static const float one_f = 1, none_f = 0;
    size_t n = g->found.workspace, room = 0;
    if (!nb_card_enter(g->card)) return false;
    void *space = n ? nb_card_alloc(g->card, n, &room) : NULL;
    if (n && !space) return false;
    const void *first = g->swapped ? b : a, *second = g->swapped ? a : b;
    int status = api.Matmul(
        g->handle, g->desc, g->wide ? (const void *)&one : &one_f, first, g->a,
        second, g->b, g->wide ? (const void *)&none : &none_f, c, g->c, c, g->c,
        g->found.algo, space, n, g->card->stream);
    nb_card_free(g->card, space, room);
    nb_card_launched(g->card, what);
    return check(status, what);
}
