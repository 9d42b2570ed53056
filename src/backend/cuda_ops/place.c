/* place.c - placing elements by index tensors on a card: points are sorted by
 * their places, so that each place has its points together, in order; nothing
 * depends on which thread comes first. */
#include "backend/cuda_ops/makers.h"

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/sort.h"
#include "backend/cuda_ops/text.h"
#include "base/half.h"
#include "core/debug.h"
#include "ops/index.h"

#include <string.h>

enum { PICKS = NB_DIMS_OPERANDS };

static const char keys_text[] =
#include "backend/cuda_ops/place.cu"
    ;
static const char rows_text[] =
#include "backend/cuda_ops/combine.cu"
    ;

/* As in place.cu. */
typedef struct picks {
    int64_t n, clamp, places;
    int64_t size[PICKS], kind[PICKS];
    const void *index[PICKS];
    nb_dims batch, point;
} picks;

/* As in combine.cu. */
typedef struct runs {
    nb_dims batch, place, point, row; /* result, list */
    int64_t chunks;
} runs;

enum { KEYS, COPY, WORK, JOIN, KERNELS };
enum { CHUNK = 64, MOST_BESIDE = 64 }; /* points that a team has */

typedef struct job {
    nb_card_job job;
    nb_card *card;
    nb_card_sort sort;
    picks picks;
    int first;   /* index tensor among the inputs */
    nb_dims all; /* table, result */
    runs runs;
    size_t sorting; /* bytes of the workspace, before parts of runs */
    int team;       /* threads of a chunk */
    bool prior;
    nb_card_code *code[KERNELS];
} job;

/* The index tensors, from input `first` on. */
static bool find_picks(job *j, const nb_batch *b, int first, const nb_pick *p,
                       const int64_t *size)
{
    static const int8_t kind[NB_NDTYPES] = {
        [NB_I64] = 0, [NB_I32] = 1, [NB_I16] = 2, [NB_I8] = 3,
        [NB_U32] = 4, [NB_U16] = 5, [NB_U8] = 6,  [NB_U64] = 7};
    picks *q = &j->picks;
    int operand[PICKS];
    if (p->n > PICKS) return false;
    *q = (picks){.n = p->n, .clamp = p->clamp, .places = 1};
    q->batch = q->point = nb_dims_none();
    j->first = first;
    for (int k = 0; k < p->n; k++) {
        operand[k] = first + k;
        q->size[k] = size[k];
        if (size[k] > INT32_MAX || q->places > INT32_MAX) return false;
        q->places *= size[k];
        q->kind[k] = kind[b->view[first + k].dtype];
        if (b->view[first + k].dtype == NB_BOOL) return false;
    }
    bool ok = nb_dims_add_batch(&q->batch, b, p->n, operand);
    for (int d = 0; ok && d < b->view[first].rank; d++) {
        int64_t stride[PICKS];
        for (int k = 0; k < p->n; k++)
            stride[k] = b->view[first + k].stride[d];
        ok = nb_dims_add(&q->point, b->view[first].size[d], p->n, stride);
    }
    return ok && q->places < INT32_MAX &&
           q->point.count * q->batch.count < INT32_MAX;
}

static bool is_picked(const nb_pick *p, int axis)
{
    for (int k = 0; k < p->n; k++)
        if (p->axes[k] == axis) return true;
    return false;
}

/* What the points and the rest are in table and list. */
static bool find_dims(job *j, const nb_batch *b, const nb_pick *p)
{
    const nb_view *x = &b->view[0], *u = &b->view[1],
                  *y = &b->view[b->nops - 1];
    int nindex = b->view[2].rank, kept = 0;
    runs *q = &j->runs;
    j->all = q->batch = q->place = q->point = q->row = nb_dims_none();
    bool ok = nb_dims_add_batch(&j->all, b, 2, (int[]){0, b->nops - 1}) &&
              nb_dims_add_batch(&q->batch, b, 2, (int[]){b->nops - 1, 1});
    for (int d = 0; ok && d < x->rank; d++)
        ok = nb_dims_add(&j->all, x->size[d], 2,
                         (int64_t[]){x->stride[d], y->stride[d]});
    for (int k = 0; ok && k < p->n; k++)
        ok = nb_dims_add(&q->place, y->size[p->axes[k]], 1,
                         &y->stride[p->axes[k]]);
    for (int d = 0; ok && d < nindex; d++)
        ok = nb_dims_add(&q->point, u->size[p->at + d], 2,
                         (int64_t[]){0, u->stride[p->at + d]});
    for (int d = 0; ok && d < x->rank; d++) {
        if (is_picked(p, d)) continue;
        int at = kept < p->at ? kept : kept + nindex;
        ok = nb_dims_add(&q->row, x->size[d], 2,
                         (int64_t[]){y->stride[d], u->stride[at]});
        kept++;
    }
    for (j->team = 1; j->team < 256 && j->team < q->row.count;)
        j->team *= 2;
    q->chunks = (q->point.count + CHUNK - 1) / CHUNK;
    return ok;
}

/* How two are combined, as the CPU does it. */
static const char *both(nb_combine how, nb_dtype d)
{
    bool logic = d == NB_BOOL, real = nb_dtype_is_float(d);
    switch (how) {
    case NB_PUT_ADD: return logic ? "a | b" : "a + b";
    case NB_PUT_MUL: return logic ? "a & b" : "a * b";
    case NB_PUT_MIN: return real ? "a < b || a != a ? a : b" : "a < b ? a : b";
    case NB_PUT_MAX: return real ? "a > b || a != a ? a : b" : "a > b ? a : b";
    default: return "b";
    }
}

/* Halves are gathered in float and rounded once. */
static void define(nb_text *t, nb_combine how, nb_dtype d)
{
    bool half = nb_dtype_is_half(d);
    nb_text_add(t, "%s\n", half ? nb_halves_text : "");
    nb_card_define(t, "T", d);
    nb_text_add(t, "#define V %s\n", half ? "float" : nb_card_type(d));
    nb_text_add(t, "#define BOTH (%s)\n#define LAST %d\n", both(how, d),
                how == NB_PUT_SET);
    nb_text_add(t, "#define CHUNK %d\n", CHUNK);
}

static bool build(job *j, nb_combine how, nb_dtype d)
{
    nb_text keys = {0}, rows = {0};
    nb_text_add(&keys, "%s%s", nb_dims_text, keys_text);
    nb_text_add(&rows, "%s\n", nb_dims_text);
    define(&rows, how, d);
    nb_text_add(&rows, "%s", rows_text);
    nb_card_source source[KERNELS] = {
        {nb_text_get(&keys), "place_keys"},
        {nb_text_get(&rows), "place_copy"},
        {nb_text_get(&rows), j->prior ? "place_prior" : "place_rows"},
        {nb_text_get(&rows), "place_join"}};
    bool joins = !j->prior && how != NB_PUT_SET && j->runs.chunks > 1;
    bool ok = nb_card_build(j->card, joins ? KERNELS : JOIN, source, j->code);
    nb_text_free(&keys), nb_text_free(&rows);
    return ok;
}

static bool launch(job *j, int kernel, int64_t blocks, void **args,
                   const char *what)
{
    unsigned grid[3] = {(unsigned)blocks, 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    return nb_card_launch(j->card, j->code[kernel], grid, block, 0, args, what);
}

/* Teams side by side along a row. */
static bool launch_wide(job *j, int kernel, int64_t blocks, void **args,
                        const char *what)
{
    int64_t beside = (j->runs.row.count + j->team - 1) / j->team;
    unsigned grid[3] = {(unsigned)blocks, 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    grid[1] = (unsigned)(beside < MOST_BESIDE ? beside : MOST_BESIDE);
    return nb_card_launch(j->card, j->code[kernel], grid, block, 0, args, what);
}

/* Points sorted by place. */
static bool order(job *j, char *const *in, char *workspace, char **keys,
                  char **numbers, const char *what)
{
    picks q = j->picks;
    for (int k = 0; k < q.n; k++)
        q.index[k] = in[j->first + k];
    void *args[] = {&q, &workspace};
    unsigned grid = nb_card_grid(j->card, q.batch.count * q.point.count);
    return launch(j, KEYS, grid, args, what) &&
           nb_card_sort_run(&j->sort, workspace, keys, numbers, what);
}

static bool run_place(nb_card_job *job_, char *const *in, char *const *out,
                      char *workspace, const char *what)
{
    job *j = (job *)job_;
    char *x = in[0], *u = in[1], *y = out[0], *keys, *numbers;
    void *copy[] = {&x, &y, &j->all};
    if (!launch(j, COPY, nb_card_grid(j->card, j->all.count), copy, what) ||
        !order(j, in, workspace, &keys, &numbers, what))
        return false;
    char *parts = workspace + j->sorting;
    const runs *q = &j->runs;
    int64_t per = NB_CARD_THREADS / j->team;
    int64_t blocks = (q->batch.count * q->chunks + per - 1) / per;
    void *work[] = {&u, &y, &keys, &numbers, &parts, &j->runs, &j->team};
    void *join[] = {&y, &keys, &parts, &j->runs, &j->team};
    return launch_wide(j, WORK, blocks, work, what) &&
           (!j->code[JOIN] || launch_wide(j, JOIN, blocks, join, what));
}

static bool run_prior(nb_card_job *job_, char *const *in, char *const *out,
                      char *workspace, const char *what)
{
    job *j = (job *)job_;
    char *y = out[0], *keys, *numbers;
    if (!order(j, in, workspace, &keys, &numbers, what)) return false;
    picks *q = &j->picks;
    uint32_t places = (uint32_t)q->places;
    void *args[] = {&y, &keys, &numbers, &q->batch, &q->point, &places};
    return launch(j, WORK,
                  nb_card_grid(j->card, q->batch.count * q->point.count), args,
                  what);
}

static void release(nb_card_job *job_)
{
    job *j = (job *)job_;
    nb_card_sort_free(&j->sort);
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(j->code[k]);
    nb_free(j);
}

static int bits_of(int64_t n)
{
    int bits = 1;
    while (n >> bits)
        bits++;
    return bits;
}

static size_t part_bytes(const runs *q, nb_combine how, nb_dtype d)
{
    size_t wide = nb_dtype_is_half(d) ? sizeof(float) : nb_dtype_size(d);
    int64_t parts = 2 * q->batch.count * q->chunks * q->row.count;
    return how == NB_PUT_SET || q->chunks < 2 ? 0 : (size_t)parts * wide;
}

/* Takes j, of which the dims are known. */
static bool finish(job *j, nb_card *card, nb_combine how, nb_dtype d,
                   nb_card_job **to)
{
    const picks *q = &j->picks;
    j->card = card;
    j->job.run = j->prior ? run_prior : run_place;
    j->job.free = release;
    bool ok = nb_card_sort_new(&j->sort, card, q->batch.count, q->point.count,
                               bits_of(q->places)) &&
              build(j, how, d);
    j->sorting = nb_card_sort_bytes(&j->sort);
    j->job.workspace = j->sorting + part_bytes(&j->runs, how, d);
    if (ok)
        *to = &j->job;
    else
        release(&j->job);
    return ok;
}

static bool make_place(nb_card *card, const nb_call *c, const nb_pick *p,
                       nb_combine how, nb_card_job **to)
{
    nb_batch b;
    int64_t size[NB_MAX_RANK];
    bool watched = nb_debug_flags & NB_DEBUG_BOUNDS;
    if (watched) return true; /* the CPU says which index is out of range */
    job *j = nb_alloc_zero(sizeof *j);
    if (!j || !nb_batch_open(&b, c, NULL)) return nb_free(j), false;
    for (int k = 0; k < p->n; k++)
        size[k] = b.view[0].size[p->axes[k]];
    bool takes = find_picks(j, &b, 2, p, size) && find_dims(j, &b, p);
    nb_dtype d = b.view[b.nops - 1].dtype;
    nb_batch_close(&b);
    if (!takes) return nb_free(j), true;
    return finish(j, card, how, d, to);
}

static bool make_prior(nb_card *card, const nb_call *c, nb_tensor *y,
                       nb_card_job **to)
{
    nb_batch b;
    int n;
    const int64_t *size = nb_arg_list(c, 0, &n);
    nb_pick p = {.n = n, .clamp = nb_arg_int(c, 1)};
    job *j = nb_alloc_zero(sizeof *j);
    (void)y;
    if (!j || !nb_batch_open(&b, c, NULL)) return nb_free(j), false;
    bool takes = find_picks(j, &b, 0, &p, size);
    nb_batch_close(&b);
    if (!takes) return nb_free(j), true;
    j->prior = true;
    return finish(j, card, NB_PUT_SET, NB_I64, to);
}

static bool make_along(nb_card *card, const nb_call *c, nb_tensor *y,
                       nb_card_job **to)
{
    nb_pick p = {.n = 1, .axes = (int64_t[]){0}, .clamp = true};
    (void)y;
    return make_place(card, c, &p, NB_PUT_ADD, to);
}

#define PLACE(name, how)                                                   \
    static bool make_##name(nb_card *card, const nb_call *c, nb_tensor *y, \
                            nb_card_job **to)                              \
    {                                                                      \
        nb_pick p = nb_pick_of(c);                                         \
        (void)y;                                                           \
        return make_place(card, c, &p, how, to);                           \
    }                                                                      \
    const nb_card_maker nb_card_##name = {#name, make_##name};

PLACE(index_set, NB_PUT_SET)
PLACE(index_add, NB_PUT_ADD)
PLACE(index_mul, NB_PUT_MUL)
PLACE(index_min, NB_PUT_MIN)
PLACE(index_max, NB_PUT_MAX)
const nb_card_maker nb_card_index_prior = {"index_prior", make_prior};
const nb_card_maker nb_card_put_along = {"put_along", make_along};
