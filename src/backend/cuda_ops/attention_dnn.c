/* attention_dnn.c - attention as a graph of cuDNN's.
 *
 * The library knows attention by its mathematics: the products, the scale, the
 * mask made of indices, the softmax in the order in which flash attention needs
 * it.  Nodes are in the form that it looks for; another of the same value would
 * be refused. */
#include "backend/cuda_ops/attention_dnn.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Versions before the oldest have flaws, and before the first that is whole
 * those that go back want whole blocks of keys. */
enum { OLDEST = 91002, WHOLE = 91600, KEYS = 128, RANK = 4 };

enum { SHARE = 128 }; /* of the card's memory scores may have one */
enum { SPARE = 1 << 16, ALIGN = 256 }; /* bytes of a workspace */

enum { Q, K, V, O, LSE, G, DQ, DK, DV };

static const double worth_it = 4e9; /* operations */

/* The form with two dims of batch: the first b, then h. */
typedef struct sight {
    const nb_attention_form *f;
    nb_dnn_graph *g;
    int64_t size[2];
    int dim[2]; /* of the form, or -1 */
    nb_dtype io;
} sight;

/* The library has lse packed: b, h, t. */
static bool see(sight *s, const nb_attention_form *f)
{
    const nb_attention_matrix *lse = &f->operand[LSE];
    *s = (sight){
        .f = f, .size = {1, 1}, .dim = {-1, -1}, .io = f->operand[Q].dtype};
    if (f->nbatch > 2) return false;
    for (int i = 0; i < f->nbatch; i++)
        s->dim[i] = i;
    if (f->nbatch == 2 && lse->batch[0] < lse->batch[1])
        s->dim[0] = 1, s->dim[1] = 0;
    for (int i = 0; i < f->nbatch; i++)
        s->size[i] = f->size[s->dim[i]];
    int64_t step = f->t;
    for (int i = 1; i >= 0; i--) {
        bool packed =
            s->dim[i] < 0 || s->size[i] == 1 || lse->batch[s->dim[i]] == step;
        if (!packed) return false;
        step *= s->size[i];
    }
    return lse->row == 1 || f->t == 1;
}

/* Tensors */

static int between(sight *s, nb_dtype d, int64_t rows, int64_t columns)
{
    int64_t h = s->size[1];
    return nb_dnn_tensor_add(
        s->g, &(nb_dnn_tensor){
                  .dtype = d,
                  .rank = RANK,
                  .size = {s->size[0], h, rows, columns},
                  .step = {h * rows * columns, rows * columns, columns, 1},
                  .between = true});
}

static nb_dnn_tensor matrix_of(const sight *s, int i, int64_t rows,
                               int64_t columns)
{
    const nb_attention_matrix *m = &s->f->operand[i];
    int64_t last = columns;
    nb_dnn_tensor t = {.dtype = m->dtype,
                       .rank = RANK,
                       .size = {s->size[0], s->size[1], rows, columns},
                       .step = {0, 0, m->row, 1}};
    if (t.step[2] < last) t.step[2] = last;
    last = rows * t.step[2];
    for (int k = 1; k >= 0; k--) {
        bool one = s->dim[k] < 0 || s->size[k] == 1;
        t.step[k] = one ? last : m->batch[s->dim[k]];
        if (one) last = t.step[k];
    }
    return t;
}

static int operand(sight *s, int i, int64_t rows, int64_t columns)
{
    nb_dnn_tensor t = matrix_of(s, i, rows, columns);
    return nb_dnn_tensor_add(s->g, &t);
}

/* Its rows as columns. */
static nb_dnn_tensor turned(nb_dnn_tensor t)
{
    int64_t size = t.size[2], step = t.step[2];
    t.size[2] = t.size[3], t.step[2] = t.step[3];
    t.size[3] = size, t.step[3] = step;
    return t;
}

static int operand_turned(sight *s, int i, int64_t rows, int64_t columns)
{
    nb_dnn_tensor t = turned(matrix_of(s, i, rows, columns));
    return nb_dnn_tensor_add(s->g, &t);
}

/* One number a row, in memory. */
static int row_numbers(sight *s)
{
    int64_t h = s->size[1], t = s->f->t;
    return nb_dnn_tensor_add(s->g,
                             &(nb_dnn_tensor){.dtype = NB_F32,
                                              .rank = RANK,
                                              .size = {s->size[0], h, t, 1},
                                              .step = {h * t, t, 1, 1}});
}

/* Nodes */

static int scores(sight *s)
{
    return between(s, NB_F32, s->f->t, s->f->s);
}

static int apply(sight *s, int mode, int x, int b, int y)
{
    nb_dnn_pointwise_add(
        s->g, &(nb_dnn_pointwise){.mode = mode, .x = x, .b = b, .y = y});
    return y;
}

static int multiply(sight *s, int a, int b, int y)
{
    nb_dnn_matmul_add(s->g, a, b, y);
    return y;
}

static int reduce(sight *s, int how, int x)
{
    int y = between(s, NB_F32, s->f->t, 1);
    nb_dnn_reduce_add(s->g, how, x, y);
    return y;
}

static int index_along(sight *s, int x, int64_t axis)
{
    int y = between(s, NB_I32, s->f->t, s->f->s);
    nb_dnn_pointwise_add(s->g,
                         &(nb_dnn_pointwise){.mode = NB_DNN_POINTWISE_GEN_INDEX,
                                             .x = x,
                                             .y = y,
                                             .axis = axis,
                                             .named = true,
                                             .in = NB_I32});
    return y;
}

/* Keys after the query are out. */
static int masked(sight *s, int x)
{
    if (!s->f->masks) return x;
    int row = index_along(s, x, 2), column = index_along(s, x, 3);
    int seen = between(s, NB_BOOL, s->f->t, s->f->s), y = scores(s);
    int out = nb_dnn_number_add(s->g, RANK, -INFINITY);
    nb_dnn_pointwise_add(s->g,
                         &(nb_dnn_pointwise){.mode = NB_DNN_POINTWISE_CMP_GE,
                                             .x = row,
                                             .b = column,
                                             .y = seen,
                                             .named = true,
                                             .in = NB_BOOL});
    nb_dnn_pointwise_add(
        s->g, &(nb_dnn_pointwise){.mode = NB_DNN_POINTWISE_BINARY_SELECT,
                                  .x = x,
                                  .b = out,
                                  .t = seen,
                                  .y = y});
    return y;
}

static int scaled(sight *s, int x)
{
    int scale = nb_dnn_number_add(s->g, RANK, (float)s->f->scale);
    return apply(s, NB_DNN_POINTWISE_MUL, x, scale, scores(s));
}

/* Real tensors first: their order is that of the operands. */
static void forward(sight *s)
{
    const nb_attention_form *f = s->f;
    int q = operand(s, Q, f->t, f->d), k = operand_turned(s, K, f->s, f->d);
    int v = operand(s, V, f->s, f->e), o = operand(s, O, f->t, f->e);
    int lse = row_numbers(s);
    int x = masked(s, scaled(s, multiply(s, q, k, scores(s))));
    int peak = reduce(s, NB_DNN_REDUCE_TENSOR_MAX, x);
    x = apply(s, NB_DNN_POINTWISE_SUB, x, peak, scores(s));
    x = apply(s, NB_DNN_POINTWISE_EXP, x, 0, scores(s));
    int sum = reduce(s, NB_DNN_REDUCE_TENSOR_ADD, x);
    int log =
        apply(s, NB_DNN_POINTWISE_LOG, sum, 0, between(s, NB_F32, f->t, 1));
    apply(s, NB_DNN_POINTWISE_ADD, peak, log, lse);
    x = apply(s, NB_DNN_POINTWISE_DIV, x, sum, between(s, s->io, f->t, f->s));
    multiply(s, x, v, o);
}

/* Scores with queries as columns, as the operand of a product. */
static int scores_turned(sight *s, int x)
{
    int64_t h = s->size[1], t = s->f->t, n = s->f->s;
    int y = nb_dnn_tensor_add(s->g,
                              &(nb_dnn_tensor){.dtype = s->io,
                                               .rank = RANK,
                                               .size = {s->size[0], h, n, t},
                                               .step = {h * t * n, t * n, 1, n},
                                               .between = true});
    nb_dnn_reshape_add(s->g, x, y);
    return y;
}

/* k as it lies: the library has it turned. */
static int keys_again(sight *s, int k)
{
    nb_dnn_tensor t = matrix_of(s, K, s->f->s, s->f->d);
    t.between = true;
    int y = nb_dnn_tensor_add(s->g, &t);
    nb_dnn_reshape_add(s->g, k, y);
    return y;
}

/* With p = e^(s - lse): dv = p^T g, ds = scale p (g v^T - sum(g o)), dk = ds^T
 * q, dq = ds k.  The sums of g o are kept beside. */
static void back(sight *s)
{
    const nb_attention_form *f = s->f;
    int q = operand(s, Q, f->t, f->d), k = operand_turned(s, K, f->s, f->d);
    int v = operand_turned(s, V, f->s, f->e), o = operand(s, O, f->t, f->e);
    int lse = row_numbers(s), g = operand(s, G, f->t, f->e);
    int dq = operand(s, DQ, f->t, f->d), dk = operand(s, DK, f->s, f->d);
    int dv = operand(s, DV, f->s, f->e), mean = row_numbers(s);
    int one = nb_dnn_number_add(s->g, RANK, 1);
    int x =
        apply(s, NB_DNN_POINTWISE_MUL, g, o, between(s, NB_F32, f->t, f->e));
    x = reduce(s, NB_DNN_REDUCE_TENSOR_ADD, x);
    apply(s, NB_DNN_POINTWISE_MUL, x, one, mean);

    x = scaled(s, multiply(s, q, k, scores(s)));
    x = masked(s, apply(s, NB_DNN_POINTWISE_SUB, x, lse, scores(s)));
    int p = apply(s, NB_DNN_POINTWISE_EXP, x, 0, scores(s));
    multiply(s, scores_turned(s, p), g, dv);

    x = multiply(s, g, v, scores(s));
    x = apply(s, NB_DNN_POINTWISE_SUB, x, mean, scores(s));
    x = apply(s, NB_DNN_POINTWISE_MUL, x, p, scores(s));
    int ds = scaled(s, x);
    multiply(s, scores_turned(s, ds), q, dk);
    multiply(s, ds, keys_again(s, k), dq);
}

static bool goes_back(const nb_attention_form *f)
{
    return f->noperands == NB_ATTENTION_OPERANDS;
}

/* Making a plan takes as long as making kernels: small ones do without, unless
 * NABLA_TUNE=all. */
static bool is_worth_it(const nb_attention_form *f)
{
    const char *tune = getenv("NABLA_TUNE");
    double n = 2.0 * (double)f->t * (double)f->s * (double)(f->d + f->e);
    for (int b = 0; b < f->nbatch; b++)
        n *= (double)f->size[b];
    return n >= worth_it || (tune && !strcmp(tune, "all"));
}

/* Back, results are the same from run to run where the library has room for
 * all scores, and it is known to be faster so for one kind of card. */
static bool is_known(const nb_card *c, const nb_attention_form *f)
{
    int version = nb_dnn_version();
    if (f->ahead || f->d % 8 || f->e % 8 || version < OLDEST) return false;
    return !goes_back(f) ||
           (c->major == 9 && (version >= WHOLE || f->s % KEYS == 0));
}

/* Bytes of the scores of so many heads, as the library has them. */
static int64_t scores_of(const nb_attention_form *f, int64_t heads)
{
    int64_t t = (f->t + 63) / 64 * 64, n = (f->s + 127) / 128 * 128;
    return goes_back(f) ? heads * t * n * 2 : 0;
}

/* Into so many parts that scores have room, and that the numbers of rows begin
 * at multiples of 16 bytes; 0 if there are none. */
static int64_t parts_of(const nb_card *c, const sight *s)
{
    const nb_attention_form *f = s->f;
    int64_t room = (int64_t)(c->memory / SHARE), all = s->size[0];
    for (int64_t parts = 1; parts <= all; parts++) {
        int64_t heads = all / parts * s->size[1];
        bool begins_well = parts == 1 || heads * f->t % 4 == 0;
        if (all % parts == 0 && begins_well && scores_of(f, heads) <= room)
            return parts;
    }
    return 0;
}

/* The form of one part. */
static void divide(sight *s, nb_attention_dnn *to)
{
    const nb_attention_form *f = s->f;
    s->size[0] /= to->parts;
    for (int i = 0; i < f->noperands && s->dim[0] >= 0; i++)
        to->step[i] = f->operand[i].batch[s->dim[0]] * s->size[0] *
                      (int64_t)nb_dtype_size(f->operand[i].dtype);
    int64_t heads = s->size[0] * s->size[1];
    if (goes_back(f)) to->sums = (size_t)(heads * f->t) * 4;
    to->sums = (to->sums + ALIGN - 1) / ALIGN * ALIGN;
    to->room = (size_t)scores_of(f, heads) + SPARE;
}

bool nb_attention_dnn_begin(nb_card *c, const nb_attention_form *f,
                            nb_attention_dnn *to)
{
    sight s;
    *to = (nb_attention_dnn){0};
    if (!is_known(c, f) || !is_worth_it(f) || !see(&s, f)) return true;
    if (!(to->parts = parts_of(c, &s))) return true;
    divide(&s, to);
    if (!(s.g = nb_dnn_graph_new(c))) return nb_error_clear(), true;
    (goes_back(f) ? back : forward)(&s);
    nb_dnn_wish wish = {.tries = goes_back(f) ? 1 : 2, .workspace = to->room};
    to->search = nb_dnn_search_begin(s.g, &wish);
    return to->search;
}

size_t nb_attention_dnn_workspace(const nb_attention_dnn *a)
{
    return a->sums + a->room + ALIGN;
}

bool nb_attention_dnn_there(const nb_attention_dnn *a)
{
    return a->search && nb_dnn_search_plan(a->search);
}

bool nb_attention_dnn_run(const nb_attention_dnn *a, const nb_attention_form *f,
                          char *const *at, char *workspace, const char *what)
{
    void *all[NB_ATTENTION_OPERANDS + 1];
    nb_dnn_plan *plan = nb_dnn_search_plan(a->search);
    all[f->noperands] = workspace;
    for (int64_t p = 0; p < a->parts; p++) {
        for (int i = 0; i < f->noperands; i++)
            all[i] = at[i] + p * a->step[i];
        if (!nb_dnn_plan_run(plan, all, workspace + a->sums, what))
            return false;
    }
    return true;
}
