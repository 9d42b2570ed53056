/* scan.c - running totals on a card.
 *
 * Many lines are a thread's each; few are cut into chunks, a block's each:
 * their totals first, then every chunk after those before it. */
#include "backend/cuda_ops/makers.h"

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/text.h"

static const char text[] =
#include "backend/cuda_ops/scan.cu"
    ;

enum { LINES, TOTALS, CHUNKS, KERNELS };
enum { STEP = 2048, SHORT = 32 }; /* elements a block has at a time */

/* As in scan.cu. */
typedef struct lines {
    nb_dims at;
    int64_t n, chunk, chunks, step[3], reverse, exclusive;
} lines;

typedef struct scan {
    nb_card_job job;
    nb_card *card;
    lines l;
    int x, f; /* inputs */
    nb_card_code *code[KERNELS];
} scan;

/* Integers wrap in 64 bits; halves are added up in float. */
static const char *wide(nb_dtype d)
{
    return d == NB_F64               ? "double"
           : nb_dtype_is_float(d)    ? "float"
           : nb_dtype_is_unsigned(d) ? "u64"
                                     : "i64";
}

static bool build(scan *s, const nb_call *c, const nb_batch *b)
{
    nb_text t = {0};
    nb_dtype y = b->view[c->nin].dtype;
    bool product = c->op->reduce == NB_PROD, linear = c->nin > 1;
    nb_text_add(&t, "%s%s\n", nb_dims_text, nb_halves_text);
    nb_card_define(&t, "X", b->view[s->x].dtype);
    nb_card_define(&t, "F", b->view[s->f].dtype);
    nb_card_define(&t, "Y", y);
    nb_text_add(&t, "#define V %s\n", wide(y));
    nb_text_add(&t, "#define LINEAR %d\n#define PRODUCT %d\n", linear,
                product && !linear);
    nb_text_add(&t, "#define START %d\n%s", product && !linear, text);
    nb_card_source source[KERNELS] = {{nb_text_get(&t), "scan_lines"},
                                      {nb_text_get(&t), "scan_totals"},
                                      {nb_text_get(&t), "scan_chunks"}};
    int from = s->l.chunks ? TOTALS : LINES;
    bool ok = nb_card_build(s->card, s->l.chunks ? 2 : 1, source + from,
                            s->code + from);
    nb_text_free(&t);
    return ok;
}

static bool launch(scan *s, int kernel, int64_t blocks, void **args,
                   const char *what)
{
    unsigned grid[3] = {(unsigned)blocks, 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    return nb_card_launch(s->card, s->code[kernel], grid, block, 0, args, what);
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    scan *s = (scan *)j;
    char *x = in[s->x], *f = in[s->f], *y = out[0];
    void *args[] = {&s->l, &x, &f, &y, &workspace};
    int64_t count = s->l.at.count;
    if (!s->l.chunks)
        return launch(s, LINES, nb_card_grid(s->card, count), args, what);
    return launch(s, TOTALS, count * s->l.chunks, args, what) &&
           launch(s, CHUNKS, count * s->l.chunks, args, what);
}

static void release(nb_card_job *j)
{
    scan *s = (scan *)j;
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(s->code[k]);
    nb_free(s);
}

/* Enough chunks for the card, if lines alone are not. */
static void cut(scan *s)
{
    int64_t wanted = 4 * s->card->processors, count = s->l.at.count;
    bool many = count >= wanted * NB_CARD_THREADS / 4;
    if (many || s->l.n <= SHORT || count == 0) return;
    int64_t chunks = count < wanted ? (wanted + count - 1) / count : 1;
    int64_t steps = (s->l.n + STEP - 1) / STEP;
    int64_t each = (steps + chunks - 1) / chunks;
    s->l.chunk = each * STEP;
    s->l.chunks = (s->l.n + s->l.chunk - 1) / s->l.chunk;
    s->job.workspace = (size_t)(count * s->l.chunks) * 16;
}

static bool find_lines(scan *s, const nb_batch *b)
{
    const nb_view *v[3] = {&b->view[s->x], &b->view[s->f],
                           &b->view[b->nops - 1]};
    s->l.at = nb_dims_none();
    s->l.n = v[2]->size[0];
    bool ok =
        nb_dims_add_batch(&s->l.at, b, 3, (int[]){s->x, s->f, b->nops - 1});
    for (int d = 1; ok && d < v[2]->rank; d++)
        ok = nb_dims_add(
            &s->l.at, v[2]->size[d], 3,
            (int64_t[]){v[0]->stride[d], v[1]->stride[d], v[2]->stride[d]});
    for (int t = 0; t < 3; t++)
        s->l.step[t] = v[t]->stride[0];
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    nb_batch b;
    scan *s = nb_alloc_zero(sizeof *s);
    (void)y;
    if (!s || !nb_batch_open(&b, c, NULL)) return nb_free(s), false;
    s->card = card;
    s->job = (nb_card_job){.run = run, .free = release};
    s->x = c->nin - 1;
    s->l.exclusive = nb_arg_int(c, 1);
    s->l.reverse = nb_arg_int(c, 2);
    bool takes = find_lines(s, &b), ok = true;
    if (takes) {
        cut(s);
        ok = build(s, c, &b);
    }
    nb_batch_close(&b);
    if (takes && ok)
        *job = &s->job;
    else
        release(&s->job);
    return ok;
}

const nb_card_maker nb_card_cumsum = {"cumsum", make};
const nb_card_maker nb_card_cumprod = {"cumprod", make};
const nb_card_maker nb_card_linear_scan = {"linear_scan", make};
