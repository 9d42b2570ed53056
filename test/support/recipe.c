/* recipe.c - the menu of calls.  A value that a call cannot take as it is
 * becomes its mean, in the shape that is needed. */
#include "support/recipe.h"

#include "support/check.h"
#include "support/there.h"

#include <stdio.h>

enum { MOST_ELEMENTS = 400, MOST_DIMS = 4 };

typedef struct step {
    nb_tensor *x, *y; /* operands, any shapes */
    int rank, axis;   /* of x; the axis is 0 if there is none */
    int64_t n;        /* its extent */
    unsigned p, q;
    const recipe *of;
} step;

static nb_tensor *shaped(nb_tensor *y, int rank, const int64_t *size)
{
    bool same = nb_rank(y) == rank;
    for (int d = 0; same && d < rank; d++)
        same = nb_size(y, d) == size[d];
    if (same) return y;
    return nb_broadcast_to(nb_mean(y, -1, NULL, false), rank, size);
}

/* y in the shape of x. */
static nb_tensor *fit(const step *s)
{
    int64_t size[NB_MAX_RANK];
    nb_sizes(s->x, size);
    return shaped(s->y, s->rank, size);
}

#define CALL(name, expression)            \
    static nb_tensor *name(const step *s) \
    {                                     \
        int64_t axis = s->axis;           \
        (void)axis;                       \
        return expression;                \
    }

CALL(add, nb_add(s->x, fit(s)))
CALL(sub, nb_sub(s->x, fit(s)))
CALL(mul, nb_mul(s->x, fit(s)))
CALL(mean_off, nb_sub(s->x, nb_mean(s->y, -1, NULL, false)))
CALL(divide, nb_div(s->x, nb_add(nb_square(fit(s)), nb_num(1))))
CALL(tanh_, nb_tanh(s->x))
CALL(sine, nb_sin(s->x))
CALL(grow, nb_exp(nb_tanh(s->x)))
CALL(twice, nb_add(s->x, s->x))
CALL(select_, nb_where(nb_greater(s->x, nb_num(0.123)), s->x, fit(s)))
CALL(sum, s->rank ? nb_reduce_sum(s->x, 1, &axis, s->q & 1) : s->x)
CALL(mean, s->rank ? nb_mean(s->x, 1, &axis, s->q & 1) : s->x)
CALL(variance, s->rank ? nb_var(s->x, 1, &axis, 0, s->q & 1) : s->x)
CALL(soft, s->rank ? nb_softmax(s->x, axis) : s->x)
CALL(running, s->rank ? nb_cumsum(s->x, axis, s->q & 1, s->q & 2) : s->x)
CALL(swap, s->rank > 1 ? nb_swap_axes(s->x, axis, s->q % s->rank) : s->x)
CALL(flip, s->rank ? nb_flip(s->x, 1, &axis) : s->x)
CALL(repeat,
     s->rank &&nb_elements(s->x) < 150 ? nb_repeat(s->x, 2, axis) : s->x)
CALL(both, s->rank &&nb_elements(s->x) < 150
               ? nb_concatenate(2, (nb_tensor *[]){s->x, fit(s)}, axis)
               : s->x)
CALL(roll, s->rank ? nb_roll(s->x, 1, (int64_t[]){s->q % 5}, &axis) : s->x)
CALL(place, s->of->lay ? s->of->lay(s->x, s->p) : s->x)

static nb_tensor *greatest(const step *s)
{
    int64_t axis = s->axis;
    if (!s->rank) return s->x;
    if (s->of->smooth) return nb_logsumexp(s->x, 1, &axis, s->q & 1);
    return nb_reduce_max(s->x, 1, &axis, s->q & 1);
}

static nb_tensor *order(const step *s)
{
    if (!s->rank || s->of->smooth) return s->x;
    return nb_sort(s->x, s->axis, s->q & 1, true);
}

static nb_tensor *product(const step *s)
{
    if (!s->rank) return s->x;
    int64_t k = nb_size(s->x, -1), size[] = {k, 3};
    int64_t flat[] = {nb_elements(s->x) / k, k};
    nb_tensor *w = s->y;
    if (nb_rank(w) == 2 && nb_size(w, 0) != k && nb_size(w, 1) == k)
        w = nb_swap_axes(w, 0, 1);
    if (nb_rank(w) != 2 || nb_size(w, 0) != k) w = shaped(w, 2, size);
    nb_tensor *x = s->rank > 1 && s->q & 1 ? s->x : nb_reshape(s->x, 2, flat);
    return nb_mul(nb_matmul(x, w), nb_num(0.5));
}

static nb_tensor *reshape(const step *s)
{
    int64_t size[NB_MAX_RANK + 1];
    int n = 0;
    for (int d = 0; d < s->rank; d++) {
        int64_t of = nb_size(s->x, d);
        if (d == s->axis && s->q & 1 && of % 2 == 0) {
            size[n++] = s->q & 2 ? 2 : of / 2;
            size[n++] = s->q & 2 ? of / 2 : 2;
        } else if (d == s->axis + 1 && !(s->q & 1))
            size[n - 1] *= of;
        else
            size[n++] = of;
    }
    return nb_reshape(s->x, n, size);
}

static nb_tensor *slice(const step *s)
{
    int64_t start[NB_MAX_RANK] = {0}, size[NB_MAX_RANK], by[NB_MAX_RANK];
    nb_sizes(s->x, size);
    for (int d = 0; d < s->rank; d++)
        by[d] = 1;
    if (!s->rank) return s->x;
    int64_t every = 1 + (s->q & 1), first = s->p % (unsigned)s->n;
    start[s->axis] = first;
    size[s->axis] = (s->n - first - 1) / every + 1;
    by[s->axis] = every;
    if (s->q & 2) {
        start[s->axis] = first + (size[s->axis] - 1) * every;
        by[s->axis] = -every;
    }
    return nb_slice(s->x, start, size, by);
}

static nb_tensor *gather(const step *s)
{
    int64_t index[4], n = 4;
    for (int i = 0; i < 4; i++)
        index[i] = (int64_t)((s->p >> 4 * i) + s->q) % (s->n ? s->n : 1);
    nb_tensor *at = given(NB_I64, 1, &n, index);
    if (!s->rank) return s->x;
    if (s->of->lay && s->q & 4) at = s->of->lay(at, s->p);
    return at ? nb_gather(s->x, at, s->axis) : NULL;
}

static nb_tensor *widen(const step *s)
{
    int64_t size[NB_MAX_RANK + 1] = {2 + (int64_t)(s->p % 2)};
    nb_sizes(s->x, size + 1);
    if (nb_elements(s->x) > 150) return s->x;
    return nb_broadcast_to(nb_unsqueeze(s->x, 0), s->rank + 1, size);
}

static nb_tensor *pad(const step *s)
{
    int64_t around[2 * NB_MAX_RANK] = {0};
    if (!s->rank || nb_elements(s->x) > 150) return s->x;
    around[2 * s->axis] = s->p % 3;
    around[2 * s->axis + 1] = s->q % 2;
    return nb_pad(s->x, around, 0.5);
}

static const struct {
    const char *name;
    nb_tensor *(*make)(const step *s);
} menu[] = {
    {"place", place},     {"place", place},     {"place", place},
    {"place", place},     {"add", add},         {"sub", sub},
    {"mul", mul},         {"mul", mul},         {"mean_off", mean_off},
    {"divide", divide},   {"tanh", tanh_},      {"sin", sine},
    {"exp", grow},        {"twice", twice},     {"where", select_},
    {"sum", sum},         {"mean", mean},       {"var", variance},
    {"softmax", soft},    {"cumsum", running},  {"swap_axes", swap},
    {"flip", flip},       {"repeat", repeat},   {"concatenate", both},
    {"roll", roll},       {"max", greatest},    {"sort", order},
    {"matmul", product},  {"matmul", product},  {"matmul", product},
    {"reshape", reshape}, {"reshape", reshape}, {"slice", slice},
    {"gather", gather},   {"broadcast", widen}, {"pad", pad},
};
enum { MENU = sizeof menu / sizeof menu[0] };

recipe recipe_draw(void)
{
    recipe r = {.n = 20 + (int)pick(MAX_CALLS - 19), .live = ~(uint64_t)0};
    for (int k = 0; k < r.n; k++) {
        recipe_call *c = &r.at[k];
        int recent = k + RECIPE_IN < 6 ? k + RECIPE_IN : 6;
        c->op = (int)pick(MENU);
        c->a = RECIPE_IN + k - 1 - (int)pick(recent);
        c->b = (int)pick(RECIPE_IN + k);
        c->p = (unsigned)pick(1 << 30);
        c->q = (unsigned)pick(1 << 30);
    }
    return r;
}

static int draw_sizes(int lanes, int64_t *size)
{
    int rank = 1 + (int)pick(3), n = 0;
    for (; n < lanes; n++)
        size[n] = 3 + n;
    for (int d = 0; d < rank; d++)
        size[n++] = 1 + pick(6);
    return n;
}

/* Many are of one shape, so that calls take them as they are. */
void recipe_inputs(int lanes, nb_tensor **x)
{
    int64_t size[6];
    int n = 0;
    for (int i = 0; i < RECIPE_IN; i++) {
        if (!i || pick(2)) n = draw_sizes(lanes, size);
        x[i] = draw(n, size, -1, 1);
    }
}

static nb_tensor *make(const recipe *r, int k, nb_tensor *const *v)
{
    const recipe_call *c = &r->at[k];
    step s = {.x = v[c->a], .y = v[c->b], .p = c->p, .q = c->q, .of = r};
    if (!(r->live >> k & 1)) return s.x;
    while (nb_elements(s.x) > MOST_ELEMENTS || nb_rank(s.x) > MOST_DIMS)
        s.x = nb_mean(s.x, 1, (int64_t[]){0}, false);
    s.rank = nb_rank(s.x);
    s.axis = s.rank ? (int)(c->p % (unsigned)s.rank) : 0;
    s.n = s.rank ? nb_size(s.x, s.axis) : 0;
    return menu[c->op].make(&s);
}

nb_status recipe_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const recipe *r = ctx;
    nb_tensor *v[RECIPE_IN + MAX_CALLS], *loss = nb_num(0);
    for (int i = 0; i < nx; i++)
        v[i] = x[i];
    for (int k = 0; k < r->n; k++)
        if (!(v[nx + k] = make(r, k, v))) return nb_error_code();
    for (int i = 1; i <= 6; i++)
        loss =
            nb_add(loss, nb_mean(nb_tanh(v[nx + r->n - i]), -1, NULL, false));
    y[0] = loss;
    y[1] = v[nx + r->n - 1];
    *ny = r->loss ? 1 : 2;
    return loss ? NB_OK : nb_error_code();
}

void recipe_print(const recipe *r)
{
    for (int k = 0; k < r->n; k++)
        if (r->live >> k & 1)
            printf(" %d=%s(%d,%d)", RECIPE_IN + k, menu[r->at[k].op].name,
                   r->at[k].a, r->at[k].b);
    printf("\n");
}
