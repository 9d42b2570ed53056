/* svd.c - singular values and vectors on a card, and what is made by them:
 * pseudo-inverses and cofactors.
 *
 * The columns of a tall matrix, or the rows of a wide one, are turned until they
 * are orthogonal.  Their lengths are the values; the turns are the vectors of
 * one side, they themselves those of the other, and reflections complete them
 * where some are missing. */
#include "backend/cuda_ops/mats.h"

#include <float.h>
#include <math.h>

enum { LONG, SHORT, ORDER, SIGNS, LENGTHS, SKIP, REST, BASIS, PRODUCTS, STATE };
enum { U = STATE + 4, S, V, FACTORS, PIVOTS, DETS };

/* Vectors: how many, of which length; `all` are wanted. */
typedef struct vectors {
    bool tall;
    int64_t n, cols, all;
} vectors;

/* flags: all vectors are wanted; any are. */
static vectors vectors_of(const nb_mats_job *j)
{
    int64_t m = j->in[0].rows, n = j->in[0].cols;
    vectors v = {m >= n, m < n ? m : n, m < n ? n : m, 0};
    v.all = j->flag[0] && j->flag[1] ? v.cols : v.n;
    return v;
}

static void plan(nb_mats_job *j)
{
    vectors v = vectors_of(j);
    bool any = j->flag[1];
    nb_mats_room(j, v.n * v.cols);
    nb_mats_room(j, any ? v.n * v.n : 0);
    nb_mats_ints(j, v.n);
    nb_mats_room(j, v.n);
    nb_mats_room(j, v.n);
    nb_mats_ints(j, 1);
    nb_mats_room(j, any ? v.all * v.cols : 0);
    nb_mats_room(j, any ? v.n * v.cols : 0);
    nb_mats_room(j, any ? v.n * NB_MATS_WIDE : 0);
    nb_rotation_rooms(j, v.n);
    j->kernels &= v.n <= NB_ROTATION_BLOCK
                      ? ~(NB_K(svd_solve) | NB_K(jacobi_rows))
                      : ~NB_K(svd_block);
}

static bool turn(const nb_mats_run *r, nb_rotation *t, void *ctx)
{
    nb_mats *x = ctx; /* the vectors, and how they were turned */
    int64_t cols = vectors_of(r->j).cols;
    void *args[] = {&x[0],     &t->n,     &cols,     &t->blocks, &t->round,
                    &t->sweep, &t->state, &t->turns, &t->idle};
    return nb_mats_launch(r, NB_K_svd_solve, r->j->count * (t->blocks / 2),
                          1024, nb_rotation_shared(r), args) &&
           nb_rotation_rows(r, t, x[0], cols) &&
           (!x[1].at || nb_rotation_rows(r, t, x[1], t->n));
}

static bool by_block(const nb_mats_run *r, nb_rotation *t, nb_mats w,
                     nb_mats turns)
{
    int64_t cols = vectors_of(r->j).cols, half = (t->n + 1) / 2;
    void *args[] = {&w, &turns, &t->n, &cols, &t->state};
    return nb_mats_launch(r, NB_K_svd_block, r->j->count,
                          nb_mats_threads(half * half, 1024),
                          nb_rotation_shared(r), args);
}

static bool orthogonal(const nb_mats_run *r, nb_rotation *t, nb_mats w,
                       nb_mats turns)
{
    vectors v = vectors_of(r->j);
    nb_mats from = v.tall ? nb_mats_turned(w) : w;
    if (!nb_mats_load(r, 0, false, from, NULL) ||
        !nb_rotation_begin(r, t, w, v.cols) ||
        (turns.at && !nb_mats_unit(r, turns, v.n, v.n, NULL)))
        return false;
    if (v.n == 0) return true;
    if (v.n <= NB_ROTATION_BLOCK) return by_block(r, t, w, turns);
    return nb_rotation_run(r, t, turn, (nb_mats[]){w, turns});
}

static bool sort(const nb_mats_run *r, const nb_rotation *t, nb_mats w)
{
    vectors v = vectors_of(r->j);
    nb_rotation_state s = t->state;
    int64_t count = r->j->count;
    char *lengths = nb_mats_at(r, LENGTHS), *skip = nb_mats_at(r, SKIP);
    void *args[] = {&w, &v.n, &v.cols, &count, &lengths};
    void *more[] = {&lengths, &v.n, &v.all, &s, &skip};
    return nb_mats_spread(r, NB_K_svd_lengths, count * v.n * 32, args) &&
           nb_rotation_order(r, lengths, v.n, false, true,
                             nb_mats_at(r, ORDER)) &&
           nb_mats_launch(r, NB_K_svd_rank, count, 32, 0, more);
}

/* The other columns of an orthogonal matrix that begins with the vectors. */
static bool complete(const nb_mats_run *r, const nb_rotation *t, nb_mats w,
                     nb_mats rest)
{
    vectors v = vectors_of(r->j);
    nb_rotation_state s = t->state;
    int64_t count = r->j->count;
    char *lengths = nb_mats_at(r, LENGTHS), *order = nb_mats_at(r, ORDER);
    char *skip = nb_mats_at(r, SKIP);
    nb_mats basis = nb_mats_packed(nb_mats_at(r, BASIS), v.cols, v.n);
    nb_mats products =
        nb_mats_packed(nb_mats_at(r, PRODUCTS), v.n, NB_MATS_WIDE);
    void *args[] = {&w,       &basis, &v.n, &v.cols, &count,
                    &lengths, &order, &s,   &skip};
    return nb_mats_spread(r, NB_K_svd_basis, count * v.n * v.cols, args) &&
           nb_mats_reflect(r, basis, v.cols, v.n, products, skip) &&
           nb_mats_reflected(r, basis, v.cols, v.n, products, rest, v.all,
                             skip);
}

static bool store(const nb_mats_run *r, const nb_rotation *t, nb_mats w,
                  nb_mats turns, nb_mats rest, char *const *to)
{
    vectors v = vectors_of(r->j);
    nb_rotation_state s = t->state;
    int64_t count = r->j->count;
    char *lengths = nb_mats_at(r, LENGTHS), *order = nb_mats_at(r, ORDER);
    char *values = to[1], *signs = to[0] ? nb_mats_at(r, SIGNS) : NULL;
    nb_mats few = {0}, many = {0};
    if (to[0] && v.tall) {
        many = nb_mats_turned(nb_mats_packed(to[0], v.cols, v.all));
        few = nb_mats_packed(to[2], v.n, v.n);
    } else if (to[0]) {
        many = nb_mats_packed(to[2], v.all, v.cols);
        few = nb_mats_turned(nb_mats_packed(to[0], v.n, v.n));
    }
    void *args[] = {&w,       &rest,  &v.n, &v.all, &v.cols, &count,
                    &lengths, &order, &s,   &signs, &many};
    void *more[] = {&turns, &v.n,   &count,  &lengths, &order,
                    &s,     &signs, &values, &few};
    return (!signs || nb_rotation_signs(r, v.tall ? w : turns, v.n,
                                        v.tall ? v.cols : v.n, signs)) &&
           (!many.at || nb_mats_spread(r, NB_K_svd_store_long,
                                       count * v.all * v.cols, args)) &&
           nb_mats_spread(r, NB_K_svd_store_short,
                          count * v.n * (few.at ? v.n : 1), more);
}

/* to: u, s and v^T; of no vectors the first and the last are NULL. */
static bool decompose(const nb_mats_run *r, char *const *to)
{
    vectors v = vectors_of(r->j);
    nb_mats w = nb_mats_packed(nb_mats_at(r, LONG), v.n, v.cols);
    nb_mats turns = {0}, rest = {0};
    nb_rotation t = nb_rotation_at(r, v.n, STATE);
    if (to[0]) turns = nb_mats_packed(nb_mats_at(r, SHORT), v.n, v.n);
    if (to[0]) rest = nb_mats_packed(nb_mats_at(r, REST), v.cols, v.all);
    if (v.cols == 0) return true;
    return orthogonal(r, &t, w, turns) && sort(r, &t, w) &&
           (!to[0] || complete(r, &t, w, rest)) &&
           store(r, &t, w, turns, rest, to);
}

static bool svd_steps(const nb_mats_run *r)
{
    return decompose(r, r->out);
}

static bool svdvals_steps(const nb_mats_run *r)
{
    return decompose(r, (char *[]){NULL, r->out[0], NULL});
}

/* pinv and cofactor: vectors in the workspace, those of v weighed. */

static void plan_parts(nb_mats_job *j)
{
    vectors v = vectors_of(j);
    int64_t m = j->in[0].rows, n = j->in[0].cols;
    plan(j);
    nb_mats_room(j, m * v.n);
    nb_mats_room(j, v.n);
    nb_mats_room(j, v.n * n);
    nb_mats_room(j, j->flag[2] ? n * n : 0);
    nb_mats_ints(j, j->flag[2] ? 2 * n + 1 : 0);
    nb_mats_room(j, j->flag[2] ? 3 : 0);
}

static bool weigh(const nb_mats_run *r, nb_mats v, double cut, char *dets)
{
    vectors x = vectors_of(r->j);
    int64_t cols = r->j->in[0].cols, count = r->j->count;
    char *values = nb_mats_at(r, S);
    void *args[] = {&v, &values, &x.n, &cols, &cut, &dets, &count};
    return nb_mats_launch(r, NB_K_svd_weigh, count * x.n,
                          nb_mats_threads(cols, 256), 0, args);
}

static double cut_of(const nb_mats_job *j)
{
    vectors v = vectors_of(j);
    double eps = j->dtype == NB_F32 ? FLT_EPSILON : DBL_EPSILON;
    return j->number >= 0 || j->number < 0 ? j->number : (double)v.cols * eps;
}

static bool pinv_steps(const nb_mats_run *r)
{
    vectors x = vectors_of(r->j);
    int64_t m = r->j->in[0].rows, n = r->j->in[0].cols;
    char *to[] = {nb_mats_at(r, U), nb_mats_at(r, S), nb_mats_at(r, V)};
    nb_mats u = nb_mats_packed(to[0], m, x.n),
            v = nb_mats_packed(to[2], x.n, n);
    return decompose(r, to) && weigh(r, v, cut_of(r->j), NULL) &&
           nb_mats_multiply(r, nb_mats_turned(v), nb_mats_turned(u),
                            nb_mats_packed(r->out[0], n, m),
                            (nb_mats_size){n, m, x.n}, NB_MATS_IS);
}

/* The determinant of an orthogonal matrix, into one of the rooms. */
static bool find_det(const nb_mats_run *r, char *from, int which)
{
    int64_t n = r->j->in[0].rows, count = r->j->count;
    size_t ints = (size_t)(n * count) * sizeof(int);
    char *pivots = nb_mats_at(r, PIVOTS);
    char *dets = nb_mats_at(r, DETS), *sizes;
    size_t each = (size_t)count * r->j->item;
    nb_mats_lu f = {pivots, pivots + ints, pivots + 2 * ints};
    nb_mats a = nb_mats_packed(nb_mats_at(r, FACTORS), n, n);
    nb_mats_run copy = *r;
    nb_mats_job packed = *r->j;
    char *in[] = {from};
    packed.at = nb_dims_none();
    nb_dims_add(&packed.at, count, 1, (int64_t[]){n * n});
    packed.in[0] = (nb_mats_in){n, n, n, 1};
    copy.j = &packed;
    copy.in = in;
    char *det = dets + (size_t)which * each;
    sizes = dets + 2 * each;
    void *args[] = {&a, &n, &f.sign, &det, &sizes};
    return nb_mats_load(&copy, 0, false, a, NULL) &&
           nb_mats_factor(r, a, n, f) &&
           nb_mats_launch(r, NB_K_lu_det, count, 32, 0, args);
}

/* a = u s v^T has the cofactors det(u) det(v) u cof(s) v^T. */
static bool cofactor_steps(const nb_mats_run *r)
{
    int64_t n = r->j->in[0].rows;
    char *to[] = {nb_mats_at(r, U), nb_mats_at(r, S), nb_mats_at(r, V)};
    nb_mats u = nb_mats_packed(to[0], n, n), v = nb_mats_packed(to[2], n, n);
    return decompose(r, to) && find_det(r, to[0], 0) && find_det(r, to[2], 1) &&
           weigh(r, v, 0, nb_mats_at(r, DETS)) &&
           nb_mats_multiply(r, u, v, nb_mats_packed(r->out[0], n, n),
                            (nb_mats_size){n, n, n}, NB_MATS_IS);
}

#define VALUES                                                   \
    (NB_K(mats_load) | NB_K(jacobi_begin) | NB_K(jacobi_rows) |  \
     NB_K(jacobi_order) | NB_K(jacobi_signs) | NB_K(svd_block) | \
     NB_K(svd_solve) | NB_K(svd_lengths) | NB_K(svd_rank) |      \
     NB_K(svd_store_short))
#define VECTORS (VALUES | NB_K_QR | NB_K(svd_basis) | NB_K(svd_store_long))
#define WEIGHED (VECTORS | NB_K(mats_multiply) | NB_K(svd_weigh))

static const nb_mats_op svd = {VECTORS, plan, svd_steps};
static const nb_mats_op svdvals = {VALUES, plan, svdvals_steps};
static const nb_mats_op pinv = {WEIGHED, plan_parts, pinv_steps};
static const nb_mats_op cofactor = {WEIGHED | NB_K_LU | NB_K(lu_det),
                                    plan_parts, cofactor_steps};

static bool make_svd(nb_card *card, const nb_call *c, nb_tensor *y,
                     nb_card_job **job)
{
    bool flag[3] = {nb_arg_int(c, 0), true};
    (void)y;
    return nb_mats_make(card, c, &svd, flag, 0, job);
}

static bool make_svdvals(nb_card *card, const nb_call *c, nb_tensor *y,
                         nb_card_job **job)
{
    (void)y;
    return nb_mats_make(card, c, &svdvals, NULL, 0, job);
}

static bool make_pinv(nb_card *card, const nb_call *c, nb_tensor *y,
                      nb_card_job **job)
{
    bool flag[3] = {false, true}, none = nb_arg_int(c, 0) == NB_NONE;
    (void)y;
    return nb_mats_make(card, c, &pinv, flag,
                        none ? (double)NAN : nb_arg_float(c, 0), job);
}

static bool make_cofactor(nb_card *card, const nb_call *c, nb_tensor *y,
                          nb_card_job **job)
{
    bool flag[3] = {true, true, true};
    (void)y;
    return nb_mats_make(card, c, &cofactor, flag, 0, job);
}

const nb_card_maker nb_card_svd = {"svd", make_svd};
const nb_card_maker nb_card_svdvals = {"svdvals", make_svdvals};
const nb_card_maker nb_card_pinv = {"pinv", make_pinv};
const nb_card_maker nb_card_cofactor = {"cofactor", make_cofactor};
