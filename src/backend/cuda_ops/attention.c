/* attention.c - attention on a card, and its way back: by cuDNN where it takes
 * the form and rows begin where it wants them, else by kernels of our own.  Both
 * have the same lse, so that one may go forward and the other back.
 *
 * A block has rows, of which every warp has a few, and goes over columns a tile
 * at a time; scores are in registers and nowhere else.  Forward, rows are
 * queries.  On the way back queries go first, for dq and for the sum of g o of
 * each, which is kept beside; then keys are rows, for dk and dv.  Every number
 * is added up by one thread, in one order. */
#include "lower/attention.h"

#include "backend/cuda/build.h"
#include "backend/cuda_ops/attention_dnn.h"
#include "backend/cuda_ops/makers.h"
#include "backend/cuda_ops/text.h"

#include <stdatomic.h>
#include <string.h>

static const char basics[] =
    "typedef unsigned short u16;\n"
    "typedef unsigned int u32;\n"
    "typedef long long i64;\n"
    "typedef float f32;\n"
    "#define FN static __device__ __forceinline__\n"
    "#define UNROLL _Pragma(\"unroll\")\n"
    "#define LOG2E 1.4426950408889634f\n"
    "#define INF __int_as_float(0x7f800000)\n"
    "enum { CHUNKS = DP / 8, THREADS = 32 * WARPS, ROWS = 16 * MT };\n"
    "enum { BM = ROWS * WARPS };\n";

static const char parts[] =
#include "backend/cuda_ops/attention_parts.cu"
    ;

/* Tiles: warps of a block, 16 rows of each so many times, columns at a time;
 * blocks that a processor is to have room for; tiles of rows that stay in
 * shared memory, and bytes beside for each column. */
typedef struct tiling {
    int warps, mt, bn, blocks;
} tiling;

typedef struct kernel_kind {
    const char *name, *text;
    bool keys; /* rows are keys, else queries */
    int rows_kept, column_bytes;
    tiling narrow, wide; /* for up to 64 columns, for more */
} kernel_kind;

static const kernel_kind forward = {
    .name = "attend",
    .text =
#include "backend/cuda_ops/attention_forward.cu"
        , .rows_kept = 1, .narrow = {4, 2, 64, 2}, .wide = {4, 1, 64, 2}};
static const kernel_kind to_queries = {
    .name = "attend_queries",
    .text =
#include "backend/cuda_ops/attention_queries.cu"
        , .rows_kept = 2, .narrow = {4, 1, 64, 3}, .wide = {4, 1, 64, 2}};
static const kernel_kind to_keys = {.name = "attend_keys",
                                    .text =
#include "backend/cuda_ops/attention_keys.cu"
                                        ,
                                    .keys = true,
                                    .rows_kept = 2,
                                    .column_bytes = 16,
                                    .narrow = {4, 1, 64, 3},
                                    .wide = {4, 1, 32, 2}};

/* What kernels are given, as attention_parts.cu has it. */
typedef struct matrix {
    char *data;
    int64_t batch[NB_ATTENTION_BATCH], row, column;
} matrix;

typedef struct args {
    matrix q, k, v, o, g, dq, dk, dv;
    char *lse, *delta;
    int64_t lse_batch[NB_ATTENTION_BATCH], lse_row;
    int size[NB_ATTENTION_BATCH], batch, t, s, ahead;
    float scale;
} args;

enum { KERNELS = 2, LSE = 4 };

typedef struct job {
    nb_card_job base;
    nb_card *card;
    nb_attention_form form;
    bool aligned; /* vectors, if operands begin where they may */
    nb_attention_dnn dnn;
    int nkernels;
    const kernel_kind *kind[KERNELS];
    _Atomic(nb_card_code *) code[KERNELS][2]; /* without vectors, with */
    args args;
} job;

/* Code */

static const tiling *tiling_of(const job *j, int k)
{
    return j->form.d > 64 ? &j->kind[k]->wide : &j->kind[k]->narrow;
}

static int64_t padded(const job *j)
{
    return (j->form.d + 15) / 16 * 16;
}

static nb_card_code *build(const job *j, int k, bool vectors)
{
    const tiling *t = tiling_of(j, k);
    nb_card_code *code = NULL;
    nb_text text = {0};
    nb_text_add(&text,
                "enum { D = %d, DP = %d, WARPS = %d, MT = %d, BN = %d, "
                "BLOCKS = %d, VECTORS = %d, CAUSAL = %d, BF16 = %d };\n"
                "%s%s\n%s\n",
                (int)j->form.d, (int)padded(j), t->warps, t->mt, t->bn,
                t->blocks, vectors, j->form.masks,
                j->form.operand[0].dtype == NB_BF16, basics, parts,
                j->kind[k]->text);
    nb_card_source source = {nb_text_get(&text), j->kind[k]->name};
    bool ok = !text.failed && nb_card_build(j->card, 1, &source, &code);
    nb_text_free(&text);
    return ok ? code : NULL;
}

/* Made when first needed: few programs have operands that begin anywhere. */
static nb_card_code *code_of(job *j, int k, bool vectors)
{
    nb_card_code *code = atomic_load(&j->code[k][vectors]), *none = NULL;
    if (code || !(code = build(j, k, vectors))) return code;
    if (atomic_compare_exchange_strong(&j->code[k][vectors], &none, code))
        return code;
    nb_card_code_drop(code);
    return none;
}

/* Running */

static bool launch(job *j, int k, bool vectors, args *a, const char *what)
{
    const kernel_kind *kind = j->kind[k];
    const tiling *t = tiling_of(j, k);
    nb_card_code *code = code_of(j, k, vectors);
    if (!code) return false;
    int64_t rows = kind->keys ? j->form.s : j->form.t, per = 16 * t->mt;
    int64_t block = per * t->warps;
    unsigned grid[3] = {(unsigned)((rows + block - 1) / block * j->args.batch),
                        1, 1};
    unsigned threads[3] = {32 * (unsigned)t->warps, 1, 1};
    int64_t shared = (kind->rows_kept * block + 4 * t->bn) * padded(j) * 2 +
                     kind->column_bytes * t->bn;
    return nb_card_launch(j->card, code, grid, threads, (unsigned)shared,
                          (void *[]){a}, what);
}

/* Rows begin at multiples of 16 bytes. */
static bool is_aligned(const nb_attention_form *f)
{
    bool aligned = f->d % 8 == 0 && f->join % 8 == 0;
    for (int i = 0; i < f->noperands; i++) {
        const nb_attention_matrix *m = &f->operand[i];
        if (m->dtype == NB_F32) continue;
        aligned = aligned && m->column == 1 && m->row % 8 == 0;
        for (int b = 0; b < f->nbatch; b++)
            aligned = aligned && m->batch[b] % 8 == 0;
    }
    return aligned;
}

static bool begins_well(const job *j, char *const *at)
{
    bool well = j->aligned;
    for (int i = 0; i < j->form.noperands; i++)
        well = well && (i == LSE || (uintptr_t)at[i] % 16 == 0);
    return well;
}

static bool run_own(job *j, char *const *at, char *workspace, bool vectors,
                    const char *what)
{
    args a = j->args;
    a.q.data = at[0], a.k.data = at[1], a.v.data = at[2], a.o.data = at[3];
    a.lse = at[LSE], a.delta = workspace;
    if (j->nkernels == 1) return launch(j, 0, vectors, &a, what);
    a.g.data = at[5];
    a.dq.data = at[6], a.dk.data = at[7], a.dv.data = at[8];
    return launch(j, 0, vectors, &a, what) && launch(j, 1, vectors, &a, what);
}

static bool run(nb_card_job *base, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *j = (job *)base;
    char *at[NB_ATTENTION_OPERANDS];
    int nin = j->nkernels == 1 ? 3 : 6;
    int64_t join = j->form.join * 2;
    for (int i = 0; i < j->form.noperands; i++)
        at[i] = i < nin ? in[i]
                : join  ? out[0] + (i - nin) * join
                        : out[i - nin];
    bool well = begins_well(j, at);
    if (well && (uintptr_t)at[LSE] % 16 == 0 && nb_attention_dnn_there(&j->dnn))
        return nb_attention_dnn_run(&j->dnn, &j->form, at, workspace, what);
    return run_own(j, at, workspace, well, what);
}

static void free_job(nb_card_job *base)
{
    job *j = (job *)base;
    for (int k = 0; k < j->nkernels; k++)
        for (int v = 0; v < 2; v++)
            nb_card_code_drop(j->code[k][v]);
    nb_dnn_search_drop(j->dnn.search);
    nb_free(j);
}

/* Making */

static matrix matrix_of(const nb_attention_form *f, int i)
{
    const nb_attention_matrix *m = &f->operand[i];
    matrix to = {.row = m->row, .column = m->column};
    memcpy(to.batch, m->batch, sizeof to.batch);
    return to;
}

static void fill(args *a, const nb_attention_form *f)
{
    bool back = f->noperands == NB_ATTENTION_OPERANDS;
    const nb_attention_matrix *lse = &f->operand[LSE];
    *a = (args){.q = matrix_of(f, 0),
                .k = matrix_of(f, 1),
                .v = matrix_of(f, 2),
                .o = matrix_of(f, 3),
                .lse_row = lse->row,
                .batch = 1,
                .t = (int)f->t,
                .s = (int)f->s,
                .ahead = (int)f->ahead,
                .scale = (float)f->scale};
    memcpy(a->lse_batch, lse->batch, sizeof a->lse_batch);
    if (back) {
        a->g = matrix_of(f, 5);
        a->dq = matrix_of(f, 6);
        a->dk = matrix_of(f, 7);
        a->dv = matrix_of(f, 8);
    }
    for (int b = 0; b < NB_ATTENTION_BATCH; b++) {
        a->size[b] = b < f->nbatch ? (int)f->size[b] : 1;
        a->batch *= a->size[b];
    }
}

static bool has_code(job *j)
{
    for (int k = 0; k < j->nkernels; k++)
        if (!code_of(j, k, j->aligned)) return false;
    return true;
}

/* Kernels of our own are made when an operand begins where the library does not
 * want it. */
static bool prepare(job *j)
{
    const nb_attention_form *f = &j->form;
    size_t own = j->nkernels == 2 ? (size_t)(j->args.batch * f->t) * 4 : 0;
    if (j->aligned && !nb_attention_dnn_begin(j->card, f, &j->dnn))
        return false;
    size_t theirs = j->dnn.search ? nb_attention_dnn_workspace(&j->dnn) : 0;
    j->base.workspace = theirs > own ? theirs : own;
    return j->dnn.search || has_code(j);
}

static bool settle(nb_card_job *base)
{
    job *j = (job *)base;
    return nb_attention_dnn_there(&j->dnn) || has_code(j);
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **to)
{
    job *j = nb_alloc_zero(sizeof *j);
    (void)y;
    if (!j) return false;
    j->card = card;
    if (!nb_attention_form_of(&j->form, c)) return nb_free(j), false;
    bool back = j->form.noperands == NB_ATTENTION_OPERANDS;
    fill(&j->args, &j->form);
    j->aligned = is_aligned(&j->form);
    j->nkernels = back ? 2 : 1;
    j->kind[0] = back ? &to_queries : &forward;
    j->kind[1] = &to_keys;
    j->base = (nb_card_job){.run = run, .free = free_job, .settle = settle};
    if (!prepare(j)) return free_job(&j->base), false;
    *to = &j->base;
    return true;
}

const nb_card_maker nb_card_attention = {"attention", make};
const nb_card_maker nb_card_attention_back = {"attention_back", make};
const nb_card_maker nb_card_attention_back_one = {"attention_back_one", make};
