/* blaslt.c - the part of cuBLASLt that is used, on simulated cards: products
 * of matrices by columns, summed in order in double, with what may follow one.
 *
 * Like the library it refuses what does not go together, and an algorithm runs
 * only on memory aligned as it was asked for.  Algorithms differ in number
 * alone; the first wants a workspace. */
#include "sim.h"

#include "nabla/kernel.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OK, INVALID = 7, EXECUTION = 13, UNSUPPORTED = 15 };
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum { RELU = 2, BIAS = 4, GELU = 32, DGELU = 64, AUX = 128 };
enum { ALGORITHMS = 3, SPACE = 1024 };

/* Attributes by their numbers. */
typedef union sim_attribute {
    int number;
    int64_t wide;
    char *pointer;
} sim_attribute;

typedef struct sim_desc {
    int compute, scale;
    sim_attribute at[40];
} sim_desc;

typedef struct sim_layout {
    int type;
    int64_t rows, columns, ld;
    sim_attribute at[10];
} sim_layout;

typedef struct sim_preference {
    sim_attribute at[16];
} sim_preference;

typedef struct sim_algorithm {
    uint64_t number, align[4], space, unused[2];
} sim_algorithm;

typedef struct sim_heuristic {
    sim_algorithm algo;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} sim_heuristic;

/* One product, with copies of all that describes it; they stay, because graphs
 * may run it again. */
typedef struct sim_product {
    struct sim_product *next;
    sim_desc desc;
    sim_layout a, b, c, d;
    char *pa, *pb, *pc, *pd, *space;
    double alpha, beta;
} sim_product;

static sim_product *products;

#pragma GCC visibility push(default)
size_t cublasLtGetVersion(void);
int cublasLtCreate(void **handle);
int cublasLtMatmulDescCreate(sim_desc **d, int compute, int scale);
int cublasLtMatmulDescDestroy(sim_desc *d);
int cublasLtMatmulDescSetAttribute(sim_desc *d, int which, const void *at,
                                   size_t n);
int cublasLtMatrixLayoutCreate(sim_layout **l, int type, uint64_t rows,
                               uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutDestroy(sim_layout *l);
int cublasLtMatrixLayoutSetAttribute(sim_layout *l, int which, const void *at,
                                     size_t n);
int cublasLtMatmulPreferenceCreate(sim_preference **p);
int cublasLtMatmulPreferenceDestroy(sim_preference *p);
int cublasLtMatmulPreferenceSetAttribute(sim_preference *p, int which,
                                         const void *at, size_t n);
int cublasLtMatmulAlgoGetHeuristic(void *handle, const sim_desc *d,
                                   const sim_layout *a, const sim_layout *b,
                                   const sim_layout *c, const sim_layout *to,
                                   const sim_preference *p, int wanted,
                                   sim_heuristic *found, int *got);
int cublasLtMatmul(void *handle, const sim_desc *d, const void *alpha, char *a,
                   const sim_layout *al, char *b, const sim_layout *bl,
                   const void *beta, char *c, const sim_layout *cl, char *to,
                   const sim_layout *dl, const sim_algorithm *algo, char *space,
                   size_t n, CUstream stream);
#pragma GCC visibility pop

size_t cublasLtGetVersion(void)
{
    return (size_t)sim_setting("NABLA_SIM_CUBLASLT", 130000);
}

int cublasLtCreate(void **handle)
{
    static int one;
    if (sim_fails(__func__)) return INVALID;
    *handle = &one;
    return OK;
}

static int set(sim_attribute *to, int room, int which, const void *at, size_t n)
{
    if (which < 0 || which >= room || n > sizeof *to) return INVALID;
    to[which].wide = 0;
    memcpy(&to[which], at, n);
    return OK;
}

int cublasLtMatmulDescCreate(sim_desc **d, int compute, int scale)
{
    *d = sim_fails(__func__) ? NULL : calloc(1, sizeof **d);
    if (!*d) return INVALID;
    (*d)->compute = compute, (*d)->scale = scale;
    (*d)->at[7].number = 1;
    return OK;
}

int cublasLtMatmulDescDestroy(sim_desc *d)
{
    free(d);
    return OK;
}

int cublasLtMatmulDescSetAttribute(sim_desc *d, int which, const void *at,
                                   size_t n)
{
    return set(d->at, 40, which, at, n);
}

int cublasLtMatrixLayoutCreate(sim_layout **l, int type, uint64_t rows,
                               uint64_t columns, int64_t ld)
{
    *l = sim_fails(__func__) ? NULL : calloc(1, sizeof **l);
    if (!*l) return INVALID;
    **l = (sim_layout){type, (int64_t)rows, (int64_t)columns, ld, {{0}}};
    (*l)->at[5].number = 1;
    return OK;
}

int cublasLtMatrixLayoutDestroy(sim_layout *l)
{
    free(l);
    return OK;
}

int cublasLtMatrixLayoutSetAttribute(sim_layout *l, int which, const void *at,
                                     size_t n)
{
    return set(l->at, 10, which, at, n);
}

int cublasLtMatmulPreferenceCreate(sim_preference **p)
{
    *p = calloc(1, sizeof **p);
    for (int i = 5; *p && i <= 8; i++)
        (*p)->at[i].number = 256;
    return *p ? OK : INVALID;
}

int cublasLtMatmulPreferenceDestroy(sim_preference *p)
{
    free(p);
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(sim_preference *p, int which,
                                         const void *at, size_t n)
{
    return set(p->at, 16, which, at, n);
}

static int64_t bytes_of(int type)
{
    return type == F64 ? 8 : type == F32 ? 4 : 2;
}

static int64_t batch_of(const sim_layout *l)
{
    return l->at[5].number;
}

static bool epilogue_fits(const sim_desc *d, const sim_layout *to)
{
    int e = d->at[7].number;
    bool stray =
        !d->at[8].pointer != !(e & BIAS) || !d->at[11].pointer != !(e & AUX);
    if (stray) return false;
    bool narrow = to->type == F16 || to->type == BF16;
    switch (e) {
    case 1: return true;
    case RELU:
    case BIAS:
    case RELU | BIAS: break;
    case GELU:
    case GELU | BIAS:
    case GELU | AUX:
    case GELU | AUX | BIAS:
    case DGELU | AUX:
        if (!narrow) return false;
        break;
    default: return false;
    }
    if (e & AUX && d->at[12].wide % 8) return false;
    return to->type != F64;
}

static bool fits(const sim_desc *d, const sim_layout *a, const sim_layout *b,
                 const sim_layout *c, const sim_layout *to)
{
    bool ta = d->at[3].number, tb = d->at[4].number, wide = a->type == F64;
    int64_t m = ta ? a->columns : a->rows, k = ta ? a->rows : a->columns;
    int64_t n = tb ? b->rows : b->columns;
    bool narrow = a->type == F16 || a->type == BF16;
    return k == (tb ? b->columns : b->rows) && m == to->rows &&
           n == to->columns && a->type == b->type && c->type == to->type &&
           (to->type == a->type || (narrow && to->type == F32)) &&
           d->compute == (wide ? COMPUTE_64F : COMPUTE_32F) &&
           d->scale == (wide ? F64 : F32) && a->ld >= a->rows &&
           b->ld >= b->rows && to->ld >= to->rows && c->ld >= c->rows &&
           batch_of(a) == batch_of(to) && batch_of(b) == batch_of(to) &&
           batch_of(c) == batch_of(to) && epilogue_fits(d, to);
}

/* Rows of narrow types that are not multiples of 16 bytes are for algorithms
 * that want no more. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, const sim_desc *d,
                                   const sim_layout *a, const sim_layout *b,
                                   const sim_layout *c, const sim_layout *to,
                                   const sim_preference *p, int wanted,
                                   sim_heuristic *found, int *got)
{
    (void)handle;
    *got = 0;
    if (sim_fails(__func__)) return INVALID;
    if (!fits(d, a, b, c, to)) return UNSUPPORTED;
    for (int i = 0; i < ALGORITHMS && *got < wanted; i++) {
        size_t space = i ? 0 : SPACE;
        if (p->at[1].wide < (int64_t)space) continue;
        sim_heuristic *f = &found[(*got)++];
        *f = (sim_heuristic){.workspace = space, .waves = 1};
        f->algo.number = (uint64_t)i + 1;
        f->algo.space = space;
        for (int t = 0; t < 4; t++)
            f->algo.align[t] = (uint64_t)p->at[5 + t].number;
    }
    return *got ? OK : UNSUPPORTED;
}

static double read(const char *at, int type, int64_t i)
{
    uint16_t half;
    if (type == F64) return ((const double *)at)[i];
    if (type == F32) return ((const float *)at)[i];
    memcpy(&half, at + 2 * i, 2);
    return type == F16 ? nb_load_f16(half) : nb_load_bf16(half);
}

static void write(char *at, int type, int64_t i, double value)
{
    float x = (float)value;
    uint16_t half = type == F16 ? nb_store_f16(x) : nb_store_bf16(x);
    if (type == F64)
        ((double *)at)[i] = value;
    else if (type == F32)
        ((float *)at)[i] = x;
    else
        memcpy(at + 2 * i, &half, 2);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double s = sqrt(2 / M_PI), t = tanh(s * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * s * (1 + 3 * 0.044715 * x * x);
}

/* What follows the sum at a place of matrix z, of which aux has one too. */
static double finish(const sim_product *p, int64_t z, int64_t i, int64_t j,
                     double x)
{
    const sim_attribute *at = p->desc.at;
    int e = at[7].number, type = p->d.type;
    int64_t aux = z * at[13].wide + i + j * at[12].wide;
    if (e & BIAS) x += read(at[8].pointer, type, z * at[10].wide + i);
    if (e & AUX && e & GELU) write(at[11].pointer, type, aux, x);
    if (e & RELU) x = x > 0 ? x : 0;
    if (e & GELU) x = gelu(x);
    if (e & DGELU) x *= gelu_slope(read(at[11].pointer, type, aux));
    return x;
}

static double sum(const sim_product *p, int64_t z, int64_t i, int64_t j)
{
    bool ta = p->desc.at[3].number, tb = p->desc.at[4].number;
    int64_t k = ta ? p->a.rows : p->a.columns;
    int64_t ai = ta ? p->a.ld : 1, ak = ta ? 1 : p->a.ld;
    int64_t bk = tb ? p->b.ld : 1, bj = tb ? 1 : p->b.ld;
    int64_t a = z * p->a.at[6].wide + i * ai, b = z * p->b.at[6].wide + j * bj;
    double s = 0;
    for (int64_t l = 0; l < k; l++)
        s += read(p->pa, p->a.type, a + l * ak) *
             read(p->pb, p->b.type, b + l * bk);
    return s;
}

static void reach(char *at, const sim_layout *l)
{
    int64_t n = (batch_of(l) - 1) * l->at[6].wide + (l->columns - 1) * l->ld;
    sim_reach((uint64_t)(uintptr_t)at,
              (size_t)((n + l->rows) * bytes_of(l->type)));
}

static void reach_all(const sim_product *p)
{
    const sim_attribute *at = p->desc.at;
    sim_layout aux = p->d, bias = {.type = F32, .rows = p->d.rows};
    aux.ld = at[12].wide;
    bias.columns = 1;
    bias.at[5].number = 1;
    reach(p->pa, &p->a), reach(p->pb, &p->b), reach(p->pd, &p->d);
    if (p->beta != 0) reach(p->pc, &p->c);
    if (at[7].number & AUX) reach(at[11].pointer, &aux);
    if (at[7].number & BIAS) reach(at[8].pointer, &bias);
    if (p->space) sim_reach((uint64_t)(uintptr_t)p->space, SPACE);
}

static void run(void *product)
{
    const sim_product *p = product;
    reach_all(p);
    if (p->space) memset(p->space, 0xee, SPACE);
    for (int64_t z = 0; z < batch_of(&p->d); z++)
        for (int64_t j = 0; j < p->d.columns; j++)
            for (int64_t i = 0; i < p->d.rows; i++) {
                int64_t c = z * p->c.at[6].wide + i + j * p->c.ld;
                int64_t d = z * p->d.at[6].wide + i + j * p->d.ld;
                double x = p->alpha * sum(p, z, i, j);
                if (p->beta != 0) x += p->beta * read(p->pc, p->c.type, c);
                write(p->pd, p->d.type, d, finish(p, z, i, j, x));
            }
}

static bool aligned(const sim_algorithm *algo, char *const *at)
{
    for (int t = 0; t < 4; t++)
        if ((uintptr_t)at[t] % algo->align[t]) return false;
    return true;
}

int cublasLtMatmul(void *handle, const sim_desc *d, const void *alpha, char *a,
                   const sim_layout *al, char *b, const sim_layout *bl,
                   const void *beta, char *c, const sim_layout *cl, char *to,
                   const sim_layout *dl, const sim_algorithm *algo, char *space,
                   size_t n, CUstream stream)
{
    (void)handle;
    char *at[4] = {a, b, c, to};
    if (sim_fails(__func__)) return EXECUTION;
    if (!fits(d, al, bl, cl, dl) || !algo->number || n < algo->space ||
        (algo->space && (uintptr_t)space % 256) || !aligned(algo, at))
        return INVALID;
    sim_product *p = malloc(sizeof *p);
    if (!p) return EXECUTION;
    *p = (sim_product){NULL, *d, *al, *bl, *cl, *dl, a, b, c, to, NULL, 0, 0};
    p->space = algo->space ? space : NULL;
    bool wide = d->scale == F64;
    p->alpha = wide ? *(const double *)alpha : *(const float *)alpha;
    p->beta = wide ? *(const double *)beta : *(const float *)beta;
    int status = cuLaunchHostFunc(stream, run, p) ? EXECUTION : OK;
    p->next = __atomic_load_n(&products, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&products, &p->next, p, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    return status;
}
