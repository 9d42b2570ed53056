/* rows_run.c - calling a function over rows, on the CPU. */
#include "ops/rows.h"

#include "base/pool.h"
#include "core/convert.h"
#include "core/row_args.h"

enum { CHUNK = 1 << 15, MAX_CHUNKS = 64 }; /* elements a chunk has at least */

typedef struct work {
    const nb_call *c;
    nb_row_call rows;
    struct {
        char *data;
        size_t room;
    } copy[NB_KERNEL_VIEWS];
    int64_t per_chunk;
    _Atomic int32_t status;
} work;

/* Elements of an operand, copied to where they lie one behind the other. */
static char *pack(work *w, int t, const char *data)
{
    const nb_row_operand *o = &w->rows.operand[t];
    int64_t at[NB_MAX_AXES] = {0}, item = (int64_t)nb_dtype_size(o->dtype);
    int first = o->first, last = o->n - 1;
    bool line = last >= first;
    int64_t run = line ? o->size[last] : 1, step = line ? o->stride[last] : 1;
    char *to = nb_block_new((size_t)(o->count * item), &w->copy[t].room);
    w->copy[t].data = to;
    for (int64_t done = 0; to && done < o->count; done += run) {
        const char *from = data;
        for (int d = first; d < last; d++)
            from += at[d] * o->stride[d] * item;
        nb_convert(to + done * item, o->dtype, 1, from, o->dtype, step, run);
        for (int d = last - 1; d >= first && ++at[d] == o->size[d]; d--)
            at[d] = 0;
    }
    return to;
}

static bool set_up(work *w, char *const *to)
{
    const nb_call *c = w->c;
    for (int t = 0; t < w->rows.n; t++) {
        char *data = t < c->nin ? c->in[t]->data : to[t - c->nin];
        if (w->rows.operand[t].is_apart && !(data = pack(w, t, data)))
            return false;
        w->rows.args->view[t].data = data;
    }
    return true;
}

/* The function sees rows as they are counted, or one lane as row 0. */
static void run(work *w, int64_t from, int64_t to)
{
    nb_kernel_args a = *w->rows.args;
    int32_t status = 0;
    if (w->rows.by_lane) {
        nb_row_call_lane(&w->rows, w->rows.args, from, &a);
    } else {
        a.begin = from;
        a.end = to;
    }
    a.status = &status;
    w->c->op->rows(&a);
    if (status) w->status = status;
}

static void run_chunk(void *ctx, int64_t i)
{
    work *w = ctx;
    int64_t from = i * w->per_chunk, to = from + w->per_chunk;
    run(w, from, to < w->rows.rows ? to : w->rows.rows);
}

/* How rows are cut follows from their sizes alone. */
static void run_all(work *w)
{
    int64_t rows = w->rows.rows;
    double all = (double)rows * (double)w->rows.row;
    int64_t n = (int64_t)(all / CHUNK) + 1;
    if (n > MAX_CHUNKS) n = MAX_CHUNKS;
    if (n > rows) n = rows;
    w->per_chunk = (rows + n - 1) / n;
    nb_parallel_if(all, (rows + w->per_chunk - 1) / w->per_chunk, run_chunk, w);
}

static bool compute(work *w, char *const *to)
{
    if (!set_up(w, to)) return false;
    for (int64_t l = 0; w->rows.by_lane && l < w->rows.rows; l++)
        run(w, l, l + 1);
    if (!w->rows.by_lane && w->rows.rows > 0) run_all(w);
    return nb_row_status_check(w->c->op->name, w->status);
}

bool nb_rows_execute(const nb_call *c, char *const *to)
{
    if (!c->op->rows)
        return nb_fail(NB_EVALUE, "%s: there is no function for the CPU",
                       c->op->name);
    work *w = nb_alloc_zero(sizeof *w);
    if (!w) return false;
    w->c = c;
    bool ok = nb_row_call_open(&w->rows, c) && compute(w, to);
    for (int t = 0; t < NB_KERNEL_VIEWS; t++)
        if (w->copy[t].data) nb_block_free(w->copy[t].data, w->copy[t].room);
    nb_row_call_close(&w->rows);
    nb_free(w);
    return ok;
}
