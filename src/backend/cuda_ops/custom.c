/* custom.c - kernels of users' own as steps of programs on a card.
 *
 * The kernel is given all rows in one launch, or one launch a lane where the op
 * has no signature.  Inputs that do not lie as it has to see them are copied to
 * the workspace first. */
#include "backend/cuda_ops/makers.h"

#include "backend/cuda/custom.h"
#include "backend/cuda/parts.h"
#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/text.h"
#include "core/row_args.h"
#include "ops/rows.h"

static const char text[] =
#include "backend/cuda_ops/custom.cu"
    ;

enum { ALIGN = 256 };

/* An input that is copied: axes up to `outer` by launches, the rest by dims. */
typedef struct copying {
    nb_card_code *code;
    nb_dims dims;
    int outer;
    size_t at; /* in the workspace */
} copying;

typedef struct custom {
    nb_card_job job;
    nb_card *card;
    const nb_card_custom *kernel;
    nb_row_call call;
    copying *copy; /* by operand */
    unsigned blocks;
} custom;

static int64_t item_of(const nb_row_operand *o)
{
    return (int64_t)nb_dtype_size(o->dtype);
}

/* Copies */

static bool build_copy(custom *x, copying *k, const nb_row_operand *o)
{
    static const char *const type[] = {
        [1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    nb_text t = {0};
    nb_text_add(&t, "%s\n#define T %s\n%s", nb_dims_text, type[item_of(o)],
                text);
    nb_card_source source = {nb_text_get(&t), "pack"};
    bool ok = !t.failed && nb_card_build(x->card, 1, &source, &k->code);
    nb_text_free(&t);
    return ok;
}

/* As many axes as dims have room for, from the innermost on. */
static void cut(copying *k, const nb_row_operand *o)
{
    bool fits = false;
    for (k->outer = o->first; !fits; k->outer += !fits) {
        k->dims = nb_dims_none();
        fits = true;
        for (int d = k->outer; fits && d < o->n; d++)
            fits = nb_dims_add(&k->dims, o->size[d], 1, &o->stride[d]);
    }
}

static bool find_copies(custom *x)
{
    for (int t = 0; t < x->call.args->nin; t++) {
        const nb_row_operand *o = &x->call.operand[t];
        copying *k = &x->copy[t];
        if (!o->is_apart) continue;
        cut(k, o);
        k->at = x->job.workspace;
        size_t bytes = (size_t)(o->count * item_of(o));
        x->job.workspace += (bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (!build_copy(x, k, o)) return false;
    }
    return true;
}

static bool copy(custom *x, int t, char *from, char *to, const char *what)
{
    const nb_row_operand *o = &x->call.operand[t];
    copying *k = &x->copy[t];
    int64_t at[NB_MAX_AXES] = {0}, item = item_of(o), n = k->dims.count;
    unsigned grid[3] = {nb_card_grid(x->card, n), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    for (int64_t done = 0; done < o->count; done += n) {
        char *start = from, *end = to + done * item;
        for (int d = o->first; d < k->outer; d++)
            start += at[d] * o->stride[d] * item;
        void *args[] = {&end, &start, &k->dims};
        if (!nb_card_launch(x->card, k->code, grid, block, 0, args, what))
            return false;
        for (int d = k->outer - 1; d >= o->first && ++at[d] == o->size[d]; d--)
            at[d] = 0;
    }
    return true;
}

/* Launches */

static bool launch(custom *x, nb_kernel_args *a, const char *what)
{
    const nb_card_custom *k = x->kernel;
    unsigned grid[3] = {x->blocks, 1, 1};
    unsigned block[3] = {(unsigned)k->threads, 1, 1};
    void *args[] = {a};
    return nb_card_launch(x->card, k->code, grid, block, k->shared, args,
                          what) &&
           (!nb_card_waits() || nb_card_words_check(x->card));
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    custom *x = (custom *)j;
    nb_kernel_args one, all = *x->call.args;
    bool ok = true;
    if (!x->call.rows) return true;
    all.status = x->kernel->status;
    for (int t = 0; ok && t < x->call.n; t++) {
        char *at = t < all.nin ? in[t] : out[t - all.nin];
        if (x->call.operand[t].is_apart) {
            char *to = workspace + x->copy[t].at;
            ok = copy(x, t, at, to, what);
            at = to;
        }
        all.view[t].data = at;
    }
    if (!x->call.by_lane) return ok && launch(x, &all, what);
    for (int64_t l = 0; ok && l < x->call.rows; l++) {
        nb_row_call_lane(&x->call, &all, l, &one);
        ok = launch(x, &one, what);
    }
    return ok;
}

static void release(nb_card_job *j)
{
    custom *x = (custom *)j;
    for (int t = 0; x->copy && t < x->call.n; t++)
        nb_card_code_drop(x->copy[t].code);
    nb_free(x->copy);
    nb_row_call_close(&x->call);
    nb_free(x);
}

/* Enough for a thread an element and for a block a row, up to what the card
 * runs at once: whoever has more to do walks on by the whole grid. */
static unsigned blocks_of(const custom *x)
{
    int threads = x->kernel->threads;
    int64_t rows = x->call.by_lane ? 1 : x->call.rows, n = rows;
    for (int t = 0; t < x->call.n; t++) {
        const nb_row_operand *o = &x->call.operand[t];
        int64_t count = o->count;
        for (int d = 0; x->call.by_lane && d < x->call.nbatch; d++)
            if (d >= o->first) count /= o->size[d] ? o->size[d] : 1;
        int64_t blocks = (count + threads - 1) / threads;
        n = n < blocks ? blocks : n;
    }
    int64_t each = x->card->processor_threads / threads;
    int64_t most = x->card->processors * (each ? each : 1);
    return (unsigned)(n < most ? n : most);
}

static bool prepare(custom *x, const nb_call *c)
{
    if (!nb_row_call_open(&x->call, c)) return false;
    x->copy = nb_alloc_zero((size_t)x->call.n * sizeof *x->copy);
    x->kernel = nb_card_custom_get(x->card, c->op->rows_there);
    if (!x->copy || !x->kernel || !find_copies(x)) return false;
    x->blocks = blocks_of(x);
    return true;
}

bool nb_card_custom_make(nb_card *card, const nb_call *c, nb_card_job **job)
{
    custom *x = nb_alloc_zero(sizeof *x);
    if (!x) return false;
    x->card = card;
    x->job = (nb_card_job){.run = run, .free = release};
    if (!prepare(x, c)) return release(&x->job), false;
    *job = &x->job;
    return true;
}
