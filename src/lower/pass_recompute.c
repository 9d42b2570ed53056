/* pass_recompute.c - what a product makes large out of little is made again
 * where it is needed much later, and is not stored until then.
 *
 * The scores of an attention are such, and their softmax, which the backward
 * pass needs: made again they pass from step to step of a chain, there as in
 * the forward pass, and are never in memory as a whole.  Values that are small,
 * such as the maximum and the sum of each row, are kept. */
#include "lower/passes.h"
#include "lower/rewrite.h"

/* Bytes that are worth it; how much larger a value is than what a product makes
 * it of, and than what it takes besides; how many products lie between steps
 * that are too far apart for a chain; how many calls are made again. */
enum { WORTH = 1 << 20, LARGER = 8, BESIDES = 4, FAR = 8, MOST = 24 };

/* Of a line: how many products there are up to it, and the last copy that was
 * made, -1: none. */
typedef struct about {
    int products, copy;
} about;

typedef struct again {
    nb_rewrite *r;
    about *line;
    int room;
    int calls[MOST], n; /* to be made again */
    bool product;       /* is among them */
} again;

static const nb_line *line_of(const again *a, int k)
{
    return &a->r->graph->line[k];
}

static int64_t bytes_of(const again *a, int k)
{
    const nb_line *l = line_of(a, k);
    int64_t n;
    if (l->multi || !nb_shape_count(&l->shape, &n)) return 0;
    return n * (int64_t)nb_dtype_size(l->dtype);
}

static bool is_product(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && l->op->scalar == NB_S_mul &&
           l->nin == 2 && l->op->reduce == NB_SUM && !l->op->kernel &&
           !(l->op->static_sig && l->op->static_sig->pointwise);
}

/* Whether a call is a loop over points, or looks. */
static bool is_plain(const nb_line *l)
{
    if (l->kind != NB_LINE_CALL || l->multi || l->op->kernel ||
        l->op->execute || l->op->effect)
        return false;
    return l->op->scalar || l->op->body || nb_line_views(l);
}

static bool is_called_again(const again *a, int k)
{
    for (int i = 0; i < a->n; i++)
        if (a->calls[i] == k) return true;
    return false;
}

/* The calls that make line k, up to what is small beside `bytes`. */
static bool find_calls(again *a, int k, int64_t bytes)
{
    const nb_line *l = line_of(a, k);
    if (is_called_again(a, k)) return true;
    if (!is_plain(l) || l->nin > NB_MAX_SCALAR_IN || a->n == MOST) return false;
    a->calls[a->n++] = k;
    bool product = is_product(l);
    a->product = a->product || product;
    for (int i = 0; i < l->nin; i++) {
        int64_t in = bytes_of(a, l->in[i]);
        if (product && in > bytes / LARGER) return false;
        if (in > bytes / BESIDES && !find_calls(a, l->in[i], bytes))
            return false;
    }
    return true;
}

/* Whether line k lies far before the line looked at. */
static bool is_far(const again *a, int k)
{
    return a->line[a->r->at - 1].products - a->line[k].products >= FAR;
}

/* Line k is there. */
static bool note(again *a, int k)
{
    if (!nb_grow(&a->line, &a->room, k + 1, sizeof *a->line)) return false;
    int before = k ? a->line[k - 1].products : 0;
    a->line[k] = (about){before + is_product(line_of(a, k)), -1};
    return true;
}

/* Line k once more, before the line looked at; -1: no memory. */
static int make(again *a, int k)
{
    int in[NB_MAX_SCALAR_IN], copy = a->line[k].copy;
    if (copy >= 0 && !is_far(a, copy)) return copy;
    for (int i = 0; i < line_of(a, k)->nin; i++) {
        in[i] = line_of(a, k)->in[i];
        if (is_called_again(a, in[i]) && (in[i] = make(a, in[i])) < 0)
            return -1;
    }
    copy = nb_rewrite_copy(a->r, k, in);
    if (copy < 0 || !note(a, copy)) return -1;
    return a->line[k].copy = copy;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    again *a = ctx;
    a->r = r;
    for (int i = 0; i < nb_rewrite_line(r)->nin; i++) {
        int k = nb_rewrite_line(r)->in[i];
        int64_t bytes = bytes_of(a, k);
        a->n = 0;
        a->product = false;
        if (bytes < WORTH || !is_far(a, k) || !find_calls(a, k, bytes) ||
            !a->product)
            continue;
        int copy = make(a, k);
        if (copy < 0) return false;
        nb_rewrite_line(r)->in[i] = copy;
    }
    return note(a, r->at);
}

bool nb_pass_recompute(nb_graph *g)
{
    again a = {0};
    nb_rewrite inputs = {.graph = g};
    bool ok = true;
    if (!nb_pass_is_on("chain") || !nb_pass_is_on("fuse") ||
        !nb_pass_is_on("code"))
        return true;
    a.r = &inputs;
    for (int k = 0; ok && k < g->nx; k++)
        ok = note(&a, k);
    ok = ok && nb_graph_rewrite(g, visit, &a);
    nb_free(a.line);
    return ok;
}
