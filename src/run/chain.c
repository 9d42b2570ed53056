/* chain.c - running the steps of a chain tile by tile.
 *
 * Steps address blocks as if they were whole: of a block in tiles they are told
 * that it begins so far before the tile that its rows lie in it.  Groups of
 * tiles are shared out to threads; within one, tiles go in order, so that sums
 * over rows do. */
#include "run/chain.h"

#include "base/blas.h"
#include "base/pool.h"

#include <stdatomic.h>

typedef struct work {
    const nb_plan *plan;
    const nb_chain *chain;
    const nb_chain_code *code;
    char *const *block;
    atomic_bool failed;
} work;

/* Rows from..to, and the memory of the thread. */
typedef struct tile {
    int64_t from, to;
    char *blocks, *scratch;
} tile;

static char *block_of(const work *w, const tile *t, int k)
{
    const nb_plan *p = w->plan;
    if (p->home[k] != NB_HOME_TILE) return w->block[k];
    return t->blocks + p->at[k] - t->from * p->row[k];
}

static void run_nest(const work *w, const tile *t, int s)
{
    const nb_step *step = &w->plan->step[s];
    const nb_chain_code *code = &w->code[s - w->chain->first];
    void *buffer[NB_MAX_CHAIN_BUFFERS];
    for (int b = 0; b < step->nbuffers; b++)
        buffer[b] = block_of(w, t, step->buffer[b]);
    code->fn(buffer, t->scratch, t->from * code->units, t->to * code->units);
}

/* Where operands begin at row u; whether it is the first of its sum. */
static bool offsets(const nb_row_product *x, int64_t u, int64_t *offset)
{
    bool first = true;
    offset[0] = offset[1] = offset[2] = 0;
    for (int i = x->nrows - 1; i >= 0; i--) {
        int a = x->row[i];
        int64_t at = u % x->loop.size[a];
        u /= x->loop.size[a];
        for (int t = 0; t < 3; t++)
            offset[t] += at * x->loop.stride[t][a];
        if (at && x->loop.reduced[a]) first = false;
    }
    return first;
}

static int64_t extent(const nb_row_product *x, int a, const tile *t)
{
    if (a < 0) return 1;
    return a == x->row[x->nrows - 1] ? t->to - t->from : x->loop.size[a];
}

static int64_t stride(const nb_row_product *x, int operand, int a)
{
    return a < 0 ? 0 : x->loop.stride[operand][a];
}

/* C = A B, or C' = B' A' if that is how the result is stored. */
static bool run_product(const work *w, const tile *t, int s)
{
    const nb_plan *p = w->plan;
    const nb_row_product *x = p->step[s].product;
    const nb_line *l = &p->graph->line[p->step[s].line];
    int64_t offset[3], item = (int64_t)nb_dtype_size(x->dtype);
    char *data[3];
    bool first = offsets(x, t->from, offset);
    for (int i = 0; i < 3; i++) {
        const nb_place *at = &p->place[i < 2 ? l->in[i] : p->step[s].line];
        data[i] = block_of(w, t, at->root) + (at->offset + offset[i]) * item;
    }
    int64_t m = extent(x, x->m, t), n = extent(x, x->n, t);
    int64_t k = extent(x, x->k, t);
    int64_t am = stride(x, 0, x->m), ak = stride(x, 0, x->k);
    int64_t bk = stride(x, 1, x->k), bn = stride(x, 1, x->n);
    int64_t cm = stride(x, 2, x->m), cn = stride(x, 2, x->n);
    bool (*gemm)(nb_dtype, int64_t, int64_t, int64_t, const void *, int64_t,
                 int64_t, const void *, int64_t, int64_t, void *, int64_t) =
        first ? nb_gemm : nb_gemm_add;
    if (x->n < 0 || cn == 1)
        return gemm(x->dtype, m, n, k, data[0], am, ak, data[1], bk, bn,
                    data[2], cm);
    return gemm(x->dtype, n, m, k, data[1], bn, bk, data[0], ak, am, data[2],
                cn);
}

static bool run_tile(const work *w, const tile *t)
{
    for (int s = w->chain->first; s <= w->chain->last; s++) {
        if (w->plan->step[s].nest)
            run_nest(w, t, s);
        else if (!run_product(w, t, s))
            return false;
    }
    return true;
}

static int64_t tiles_of_run(const nb_chain *c)
{
    return (c->run + c->tile - 1) / c->tile;
}

/* Tiles are counted from the first run to the last; group i of them. */
static bool run_tiles(const work *w, int64_t i, tile *t)
{
    const nb_chain *c = w->chain;
    int64_t each = tiles_of_run(c), n = c->group ? c->group / c->run * each : 1;
    bool ok = true;
    for (int64_t k = i * n; ok && !w->failed && k < (i + 1) * n; k++) {
        int64_t end = (k / each + 1) * c->run;
        t->from = k / each * c->run + k % each * c->tile;
        t->to = t->from + c->tile < end ? t->from + c->tile : end;
        ok = run_tile(w, t);
    }
    return ok;
}

static void run_group(void *ctx, int64_t i)
{
    work *w = ctx;
    const nb_chain *c = w->chain;
    int64_t scratch = 0;
    size_t room;
    for (int s = 0; s <= c->last - c->first; s++)
        if (w->code[s].scratch > scratch) scratch = w->code[s].scratch;
    char *memory = nb_block_new((size_t)(c->bytes + scratch), &room);
    tile t = {.blocks = memory, .scratch = memory + c->bytes};
    if (!memory || !run_tiles(w, i, &t)) w->failed = true;
    nb_block_free(memory, room);
}

bool nb_chain_run(const nb_plan *p, const nb_chain *c,
                  const nb_chain_code *code, char *const *block)
{
    work w = {.plan = p, .chain = c, .code = code, .block = block};
    int64_t groups =
        c->group ? c->rows / c->group : c->rows / c->run * tiles_of_run(c);
    nb_parallel(groups, run_group, &w);
    return !w.failed;
}
