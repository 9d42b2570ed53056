/* mats.c - jobs of linear algebra: their code and memory, and the steps that
 * all have. */
#include "backend/cuda_ops/mats.h"

#include "backend/cuda_ops/text.h"
#include "base/lapack.h"

#include "backend/cuda_ops/mats_text.h"

static const struct {
    const char *name, *text;
} kernels[] = {
#define KERNEL(file, name) {#name, file##_text},
#include "backend/cuda_ops/mats.def"
#undef KERNEL
};

static void write_types(nb_text *t, nb_dtype d)
{
    bool single = d == NB_F32;
    nb_text_add(t, "#define UNROLL _Pragma(\"unroll\")\n");
    nb_text_add(t, "#define T %s\n", single ? "float" : "double");
    nb_text_add(t, "#define ABS %s\n", single ? "fabsf" : "fabs");
    nb_text_add(t, "#define SQRT %s\n", single ? "sqrtf" : "sqrt");
    nb_text_add(t, "#define EPS ((T)%s)\n",
                single ? "1.1920929e-7" : "2.220446049250313e-16");
    nb_text_add(t, "#define NEARLY %g\n", NB_LAPACK_NEARLY);
    nb_text_add(t, "#define NOT ((T)__int_as_float(0x7fc00000))\n");
    nb_text_add(t, "#define POWER(x) %s\n",
                single ? "__int_as_float(__float_as_int(x) & 0x7f800000)"
                       : "__longlong_as_double(__double_as_longlong(x) & "
                         "0x7ff0000000000000ll)");
    nb_text_add(t, "#define LEAST ((T)%s)\n",
                single ? "1.17549435e-38" : "2.2250738585072014e-308");
}

static bool build(nb_mats_job *j)
{
    nb_text t[NB_K_COUNT] = {0};
    nb_card_source source[NB_K_COUNT];
    nb_card_code *code[NB_K_COUNT];
    int n = 0, which[NB_K_COUNT];
    bool ok = true;
    for (int k = 0; k < NB_K_COUNT; k++) {
        if (!(j->kernels >> k & 1)) continue;
        nb_text_add(&t[n], "%s\n", nb_dims_text);
        write_types(&t[n], j->dtype);
        nb_text_add(&t[n], "%s\n%s\n%s", mats_text,
                    k >= NB_K_jacobi_begin ? jacobi_text : "", kernels[k].text);
        source[n] = (nb_card_source){nb_text_get(&t[n]), kernels[k].name};
        ok = ok && source[n].text;
        which[n++] = k;
    }
    ok = ok && nb_card_build(j->card, n, source, code);
    for (int i = 0; i < n; i++) {
        if (ok) j->code[which[i]] = code[i];
        nb_text_free(&t[i]);
    }
    return ok;
}

static bool run(nb_card_job *job, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    nb_mats_job *j = (nb_mats_job *)job;
    nb_mats_run r = {j, in, out, workspace, what};
    return j->count == 0 || j->op->steps(&r);
}

static void release(nb_card_job *job)
{
    nb_mats_job *j = (nb_mats_job *)job;
    for (int k = 0; k < NB_K_COUNT; k++)
        nb_card_code_drop(j->code[k]);
    nb_free(j);
}

static nb_mats_in in_of(const nb_view *v)
{
    bool matrix = v->rank > 1;
    return (nb_mats_in){.rows = v->size[0],
                        .cols = matrix ? v->size[1] : 1,
                        .row = v->stride[0],
                        .col = matrix ? v->stride[1] : 0};
}

static bool find(nb_mats_job *j, const nb_call *c, bool *takes)
{
    nb_batch b;
    int64_t most = 0;
    if (!nb_batch_open(&b, c, NULL)) return false;
    j->at = nb_dims_none();
    *takes = nb_dims_add_batch(&j->at, &b, c->nin, (int[]){0, 1});
    for (int i = 0; i < c->nin; i++) {
        j->in[i] = in_of(&b.view[i]);
        most = j->in[i].rows > most ? j->in[i].rows : most;
        most = j->in[i].cols > most ? j->in[i].cols : most;
    }
    j->count = j->at.count;
    nb_batch_close(&b);
    *takes = *takes && most < INT32_MAX / 64 && j->count < INT32_MAX;
    return true;
}

bool nb_mats_make(nb_card *card, const nb_call *c, const nb_mats_op *op,
                  const bool flag[3], double number, nb_card_job **job)
{
    nb_mats_job *j = nb_alloc_zero(sizeof *j);
    if (!j) return false;
    j->job = (nb_card_job){.run = run, .free = release};
    j->card = card;
    j->op = op;
    j->kernels = op->kernels;
    j->dtype = (nb_dtype)c->in[0]->dtype;
    j->item = nb_dtype_size(j->dtype);
    j->number = number;
    for (int i = 0; flag && i < 3; i++)
        j->flag[i] = flag[i];
    bool takes = false, ok = find(j, c, &takes);
    if (ok && takes) {
        op->plan(j);
        ok = build(j);
    }
    if (takes && ok)
        *job = &j->job;
    else
        release(&j->job);
    return ok;
}

/* Memory */

static void add_room(nb_mats_job *j, size_t bytes)
{
    j->room[j->rooms++] = j->job.workspace;
    j->job.workspace += (bytes + 63) / 64 * 64;
}

void nb_mats_room(nb_mats_job *j, int64_t n)
{
    add_room(j, (size_t)(n * j->count) * j->item);
}

void nb_mats_ints(nb_mats_job *j, int64_t n)
{
    add_room(j, (size_t)(n * j->count) * sizeof(int));
}

char *nb_mats_at(const nb_mats_run *r, int room)
{
    return r->workspace + r->j->room[room];
}

nb_mats nb_mats_packed(char *at, int64_t rows, int64_t cols)
{
    return (nb_mats){at, cols, 1, rows * cols};
}

nb_mats nb_mats_from(const nb_mats_run *r, nb_mats m, int64_t i, int64_t j)
{
    m.at += (i * m.row + j * m.col) * (int64_t)r->j->item;
    return m;
}

nb_mats nb_mats_turned(nb_mats m)
{
    return (nb_mats){m.at, m.col, m.row, m.step};
}

/* Launches */

bool nb_mats_launch(const nb_mats_run *r, nb_mats_kernel k, int64_t blocks,
                    int64_t threads, size_t shared, void **args)
{
    unsigned grid[3] = {(unsigned)blocks, 1, 1};
    unsigned block[3] = {(unsigned)threads, 1, 1};
    if (blocks > INT32_MAX)
        return nb_fail(NB_EVALUE, "%s: %lld blocks are more than a card takes",
                       r->what, (long long)blocks);
    return nb_card_launch(r->j->card, r->j->code[k], grid, block,
                          (unsigned)shared, args, r->what);
}

bool nb_mats_spread(const nb_mats_run *r, nb_mats_kernel k, int64_t n,
                    void **args)
{
    return nb_mats_launch(r, k, nb_card_grid(r->j->card, n), NB_CARD_THREADS, 0,
                          args);
}

int64_t nb_mats_threads(int64_t n, int64_t most)
{
    int64_t threads = 32;
    while (threads < n && threads < most)
        threads *= 2;
    return threads;
}

int64_t nb_mats_fit(const nb_mats_job *j, int64_t m, int64_t most)
{
    size_t room = j->card->shared_most - 10240; /* what kernels have of it */
    int64_t fits = m ? (int64_t)(room / ((size_t)m * j->item)) : most;
    return fits < most ? fits : most;
}

/* Steps */

/* As in mats_move.cu. */
typedef struct source {
    nb_dims at;
    int64_t operand, row, col, rows, cols, symmetric;
} source;

bool nb_mats_load(const nb_mats_run *r, int i, bool symmetric, nb_mats to,
                  char *order)
{
    const nb_mats_in *x = &r->j->in[i];
    source s = {.at = r->j->at,
                .operand = i,
                .row = x->row,
                .col = x->col,
                .rows = x->rows,
                .cols = x->cols,
                .symmetric = symmetric};
    char *from = r->in[i];
    void *args[] = {&s, &from, &to, &order};
    return nb_mats_spread(r, NB_K_mats_load, r->j->count * x->rows * x->cols,
                          args);
}

bool nb_mats_unit(const nb_mats_run *r, nb_mats to, int64_t rows, int64_t cols,
                  char *order)
{
    int64_t count = r->j->count;
    void *args[] = {&to, &rows, &cols, &count, &order};
    return nb_mats_spread(r, NB_K_mats_unit, count * rows * cols, args);
}

bool nb_mats_multiply(const nb_mats_run *r, nb_mats a, nb_mats b, nb_mats c,
                      nb_mats_size s, nb_mats_how how)
{
    int less = how != NB_MATS_IS, lower = how == NB_MATS_LESS_LOWER;
    int64_t down = (s.m + 63) / 64, across = (s.n + 63) / 64;
    void *args[] = {&a,   &b,    &c,     &s.m,  &s.n,
                    &s.k, &less, &lower, &down, &across};
    return nb_mats_launch(r, NB_K_mats_multiply, r->j->count * down * across,
                          256, 0, args);
}
