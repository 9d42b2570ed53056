/* test_transform.c - transforms of functions, and their compositions.
 *
 * If a transform agrees with finite differences or a loop on every function,
 * made by transforms or not, then so do all compositions: in a word only the
 * outermost letter is done slowly, the rest is the engine's own.  Then come
 * sentences, with the expected value on the page. */
#include "support/check.h"
#include "support/there.h"

#include "base/memory.h"
#include "transform/func.h"

#include <stdio.h>
#include <string.h>

static nb_func *grad(nb_func *f)
{
    return nb_grad(f, 1, (int[]){0});
}

static nb_tensor *call(nb_func *f, nb_tensor *x)
{
    return nb_func_call1(f, 1, &x);
}

static nb_tensor *call2(nb_func *f, nb_tensor *x, nb_tensor *y)
{
    return nb_func_call1(f, 2, (nb_tensor *[]){x, y});
}

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

FN(wave, nb_mul(nb_sin(x[0]), x[0]))
FN(blend, nb_add(nb_mul(nb_tanh(x[0]), x[1]), total(nb_mul(x[0], x[1]))))

static nb_status two_results(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_div(nb_exp(x[0]), nb_add(nb_num(3), nb_mul(x[1], x[1])));
    y[1] = total(nb_cos(x[1])); /* does not depend on x[0] */
    return *ny = 2, NB_OK;
}

/* softmax(w x) picked by indices. */
FN(attend, nb_gather(nb_softmax(nb_matmul(c[0], x[0]), -1), x[1], -1))

/* Transforms inside, closing over the argument: for each row d of w,
 * [d/dz sum(tanh(z d x))](z = x), summed over the rows. */
FN(inner_most, total(nb_tanh(nb_mul(nb_mul(x[0], c[1]), c[0]))))

static nb_tensor *row_slope(nb_tensor *x, nb_tensor *row)
{
    nb_tensor *closed[] = {x, row};
    return call(grad(nb_func_new(inner_most, closed)), x);
}
FN(per_row, row_slope(c[0], x[0]))

static nb_tensor *over_rows(nb_tensor *const *x, nb_tensor *w)
{
    nb_func *each =
        nb_vmap(nb_func_new(per_row, (void *)x),
                &(nb_vmap_options){.nout = 1, .out_axes = (int[]){-1}});
    return nb_reduce_sum(call(each, w), 1, (int64_t[]){-1}, false);
}
FN(nested, over_rows(x, c[0]))

/* Lanes that talk, at two levels: x mapped as i, the rows of w as j. */
static nb_tensor *talk(nb_tensor *x, nb_tensor *row)
{
    nb_tensor *e = nb_exp(nb_mul(x, row));
    return nb_div(nb_mul(e, nb_lane_sum(e, "j")), nb_lane_sum(e, "i"));
}
FN(talk_row, talk(c[0], x[0]))

static nb_func *named(nb_func *f, const char *name)
{
    return nb_vmap(f, &(nb_vmap_options){.axis_name = name});
}
FN(talk_x, call(named(nb_func_new(talk_row, (void *)x), "j"), c[0]))
FN(talking, call(named(nb_func_new(talk_x, ctx), "i"), x[0]))

/* And with a gradient inside, taken by lanes that talk. */
FN(share, nb_mul(nb_sin(x[0]), nb_lane_sum(nb_square(x[0]), "i")))
FN(sharing, call(named(grad(nb_func_new(share, NULL)), "i"), x[0]))

static nb_tensor *dense(nb_tensor *x, nb_tensor *w, nb_tensor *b)
{
    nb_tensor *h = nb_relu(nb_add(nb_matmul(w, x), b));
    return nb_mul(h, h);
}
FN(layer, dense(x[0], c[0], x[1]))

static nb_tensor *climb(nb_tensor *x)
{
    nb_tensor *low = nb_less(x, nb_num(0.45));
    nb_tensor *sum =
        nb_cumsum(nb_sort(nb_square(x), -1, true, true), -1, false, false);
    return nb_where(low, nb_mul(sum, x), nb_exp(sum));
}
FN(ladder, climb(x[0]))

/* Ops of several results: q and r of a matrix, and its largest elements. */
static nb_status factors(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    nb_tensor *qr[2] = {0}, *top[2] = {0};
    nb_tensor *a = nb_add(nb_outer(x[0], x[0]), nb_eye(2, 2, 0, NB_F64));
    (void)ctx, (void)nx;
    if (nb_qr(a, "reduced", qr) == NB_OK) y[0] = nb_mul(qr[0], qr[1]);
    if (nb_topk(nb_flatten(a, 0, -1), 2, 0, true, top) == NB_OK)
        y[1] = nb_sin(top[0]);
    return *ny = 2, NB_OK;
}

/* Lanes that hand on what they have, and know the largest and their number. */
static const int64_t ring[][2] = {{0, 1}, {1, 2}, {2, 0}};
static nb_tensor *hand_on(nb_tensor *x)
{
    nb_tensor *left = nb_lane_permute(nb_sin(x), "i", 3, ring);
    nb_tensor *place = nb_cast(nb_lane_index("i"), NB_F64);
    return nb_add(nb_mul(x, left), nb_mul(place, nb_lane_max(x, "i")));
}
FN(neighbour, hand_on(nb_mul(c[0], x[0])))
FN(neighbours, call(named(nb_func_new(neighbour, (void *)x), "i"), c[0]))

/* Loops and branches, closing over the argument. */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *const *c = ctx;
    (void)nx;
    y[0] = nb_tanh(nb_add(nb_mul(x[0], c[0]), x[1]));
    y[1] = nb_mul(y[0], x[0]);
    return *ny = 2, NB_OK;
}

static nb_tensor *roll(nb_tensor *const *x)
{
    nb_tensor *start = total(x[0]), *closed = total(nb_square(x[1])), *y[2];
    nb_func *f = nb_func_new(step, &closed);
    int n = 2;
    bool ok = nb_scan(f, 1, &start, 1, x + 1, 0, false, &n, y) == NB_OK;
    return ok ? nb_mul(y[1], y[0]) : NULL;
}
FN(rolled, roll(x))
FN(yes, nb_sin(nb_mul(x[0], c[0])))
FN(no, nb_exp(nb_mul(x[0], c[0])))

static nb_tensor *choose(nb_tensor *const *x)
{
    nb_func *a = nb_func_new(yes, (void *)x), *b = nb_func_new(no, (void *)x);
    nb_tensor *much = nb_greater(total(x[0]), nb_num(1)), *y;
    int n = 1;
    return nb_cond(much, a, b, 1, x, &n, &y) == NB_OK ? y : NULL;
}
FN(chosen, choose(x))
FN(few, nb_less(total(x[0]), nb_num(6)))
FN(more, nb_mul(x[0], nb_add(nb_num(1), nb_square(c[0]))))

static nb_tensor *grow(nb_tensor *const *x)
{
    nb_func *test = nb_func_new(few, NULL);
    nb_func *body = nb_func_new(more, (void *)x);
    nb_tensor *y;
    return nb_while(test, body, 1, x, &y) == NB_OK ? y : NULL;
}
FN(grown, grow(x))

/* exp(x) sin(y) with derivatives of its own, and blend run twice. */
FN(spiral, nb_mul(nb_exp(x[0]), nb_sin(x[1])))

static nb_status spiral_fwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[1] = nb_exp(x[0]);
    y[2] = x[1];
    y[0] = nb_mul(y[1], nb_sin(x[1]));
    return *ny = 3, NB_OK;
}

static nb_status spiral_bwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *ct = nb_mul(x[2], x[0]);
    (void)ctx, (void)nx;
    y[0] = nb_mul(ct, nb_sin(x[1]));
    y[1] = nb_mul(ct, nb_cos(x[1]));
    return *ny = 2, NB_OK;
}

static nb_status spiral_rule(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    nb_tensor *e = nb_exp(x[0]);
    (void)ctx, (void)nx;
    y[0] = nb_mul(e, nb_sin(x[1]));
    y[1] = nb_add(nb_mul(x[2], y[0]), nb_mul(x[3], nb_mul(e, nb_cos(x[1]))));
    return *ny = 2, NB_OK;
}

static nb_func *by_hand(bool back)
{
    nb_func *f = nb_func_new(spiral, NULL);
    if (!back) return nb_custom_jvp(f, nb_func_new(spiral_rule, NULL));
    return nb_custom_vjp(f, nb_func_new(spiral_fwd, NULL),
                         nb_func_new(spiral_bwd, NULL));
}
FN(own_vjp, nb_square(nb_func_call1(by_hand(true), 2, x)))
FN(own_jvp, nb_square(nb_func_call1(by_hand(false), 2, x)))
FN(again, nb_square(nb_func_call1(nb_checkpoint(nb_func_new(blend, NULL), NULL),
                                  2, x)))

/* Lanes that talk, in rules of one's own, which run when the lanes are over:
 * y_i = sin(x_i) sum_j x_j^2 moves by
 * u_i cos(x_i) sum_j x_j^2 + sin(x_i) sum_j 2 x_j u_j. */
static nb_tensor *all_squares(nb_tensor *x)
{
    return nb_lane_sum(nb_square(x), "i");
}

static nb_tensor *twice_all(nb_tensor *x)
{
    return nb_mul(nb_num(2), nb_lane_sum(x, "i"));
}

static nb_status share_rule(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *own = nb_mul(x[1], nb_mul(nb_cos(x[0]), all_squares(x[0])));
    (void)ctx, (void)nx;
    y[0] = nb_mul(nb_sin(x[0]), all_squares(x[0]));
    y[1] = nb_add(own, nb_mul(nb_sin(x[0]), twice_all(nb_mul(x[0], x[1]))));
    return *ny = 2, NB_OK;
}

static nb_status share_fwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_mul(nb_sin(x[0]), all_squares(x[0]));
    y[1] = x[0];
    return *ny = 2, NB_OK;
}

static nb_status share_bwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    nb_tensor *own = nb_mul(x[1], nb_mul(nb_cos(x[0]), all_squares(x[0])));
    (void)ctx, (void)nx;
    y[0] = nb_add(own, nb_mul(x[0], twice_all(nb_mul(nb_sin(x[0]), x[1]))));
    return *ny = 1, NB_OK;
}

static nb_tensor *share_by_hand(nb_tensor *x, bool back)
{
    nb_func *f = nb_func_new(share, NULL);
    f = back ? nb_custom_vjp(f, nb_func_new(share_fwd, NULL),
                             nb_func_new(share_bwd, NULL))
             : nb_custom_jvp(f, nb_func_new(share_rule, NULL));
    return call(named(f, "i"), x);
}
FN(talking_vjp, share_by_hand(x[0], true))
FN(talking_jvp, share_by_hand(x[0], false))

/* Rules that close over what the body of a loop computes, w = cos(k) in turn k:
 * x <- tanh(x) w. */
FN(bent, nb_mul(nb_tanh(x[0]), ctx))

static nb_status bent_rule(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    nb_tensor *t = nb_tanh(x[0]), *one = nb_num(1);
    (void)nx;
    y[0] = nb_mul(t, ctx);
    y[1] = nb_mul(nb_mul(x[1], ctx), nb_sub(one, nb_square(t)));
    return *ny = 2, NB_OK;
}

static nb_status bent_fwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)nx;
    y[1] = nb_tanh(x[0]);
    y[0] = nb_mul(y[1], ctx);
    return *ny = 2, NB_OK;
}

static nb_status bent_bwd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)nx;
    y[0] = nb_mul(nb_mul(x[1], ctx), nb_sub(nb_num(1), nb_square(x[0])));
    return *ny = 1, NB_OK;
}

static void let_go(void *x)
{
    nb_drop(x);
}

static nb_func *over(nb_body *body, nb_tensor *w)
{
    return nb_func_owning(body, nb_keep(w), let_go);
}

static nb_status bend(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *w = nb_cos(x[1]);
    nb_func *f = over(bent, w);
    (void)nx;
    f = ctx ? nb_custom_vjp(f, over(bent_fwd, w), over(bent_bwd, w))
            : nb_custom_jvp(f, over(bent_rule, w));
    y[0] = call(f, x[0]);
    y[1] = nb_add(x[1], nb_num(1));
    return *ny = 2, NB_OK;
}

static nb_tensor *bend_often(nb_tensor *x, bool back)
{
    nb_tensor *init[] = {x, nb_scalar_float(0, NB_F64)}, *y[2];
    nb_func *f = nb_func_new(bend, back ? &init : NULL);
    int n = 2;
    return nb_scan(f, 2, init, 0, NULL, 3, false, &n, y) == NB_OK ? y[0] : NULL;
}
FN(closed_vjp, bend_often(x[0], true))
FN(closed_jvp, bend_often(x[0], false))

/* Extends the word by each letter, checks it, and goes on. */
static void extend(const task *g, const char *word, int letters)
{
    if (letters == 0) return;
    for (way w = VJP; w < NWAYS; w++) {
        char longer[96];
        snprintf(longer, sizeof longer, "%s %s", way_name[w], word);
        nb_scope_open();
        unsigned odd = 0x5555u >> letters % 2 & ((1u << g->nin) - 1);
        task t = task_transform(w, g, odd ? odd : 1, letters % 2 ? 0 : -1);
        if (there_takes()) expect(task_agrees(w, g, &t), "%s", longer);
        extend(&t, longer, letters - 1);
        nb_scope_close(0, NULL);
    }
}

static void compositions(void)
{
    static const struct {
        const char *name;
        nb_body *body;
        int nin, nout;
    } all[] = {
        {"wave", wave, 1, 1},
        {"blend", blend, 2, 1},
        {"attend", attend, 2, 1},
        {"two results", two_results, 2, 2},
        {"nested", nested, 1, 1},
        {"talking", talking, 1, 1},
        {"layer", layer, 2, 1},
        {"ladder", ladder, 1, 1},
        {"sharing", sharing, 1, 1},
        {"factors", factors, 1, 2},
        {"neighbours", neighbours, 1, 1},
        {"scan", rolled, 2, 1},
        {"cond", chosen, 1, 1},
        {"while", grown, 1, 1},
        {"custom vjp", own_vjp, 2, 1},
        {"custom jvp", own_jvp, 2, 1},
        {"checkpoint", again, 2, 1},
        {"custom vjp of lanes", talking_vjp, 1, 1},
        {"custom jvp of lanes", talking_jvp, 1, 1},
        {"custom vjp of a loop", closed_vjp, 1, 1},
        {"custom jvp of a loop", closed_jvp, 1, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        nb_scope_open();
        nb_tensor *w[] = {draw(2, (int64_t[]){3, 2}, -1, 1)};
        task g = {.nin = all[i].nin, .nout = all[i].nout};
        g.fn = nb_func_new(all[i].body, w);
        for (int k = 0; k < g.nin; k++)
            g.x[k] = draw(1, (int64_t[]){2}, 0.2, 1);
        if (all[i].body == attend)
            g.x[1] = given(NB_I64, 1, (int64_t[]){2}, (int64_t[]){2, 0});
        if (all[i].body == layer) g.x[1] = draw(1, (int64_t[]){3}, 0.2, 1);
        extend(&g, all[i].name, 3);
        nb_scope_close(0, NULL);
    }
}

/* The catalogue: derivatives of every op, and of its derivatives, where one
 * argument alone is mapped.  The others are the same in all lanes, so what
 * flows to them is summed, and what moves with them is repeated. */
static nb_status op_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const sample *s = ctx;
    return nb_op_call(s->op, nx, x, s->nval, s->val, ny, y);
}

static void map_each(const task *g, const char *name)
{
    for (int i = 0; i < g->nin; i++)
        for (way w = VJP; w <= JVP; w++) {
            nb_scope_open();
            task all = task_transform(VMAP, g, 1u << i, 0);
            task t = task_transform(w, &all, 0, 0);
            if (there_takes())
                expect(task_agrees(w, &all, &t), "%s of %s, argument %d mapped",
                       way_name[w], name, i);
            nb_scope_close(0, NULL);
        }
}

/* Differences move every float: none may be one that an op holds fixed. */
static bool op_task(sample *s, task *g)
{
    nb_tensor *y[MAX_OUT];
    *g = (task){.fn = nb_func_new(op_body, s), .nin = s->nin, .nout = MAX_OUT};
    for (int i = 0; i < s->nin; i++) {
        g->x[i] = s->in[i];
        if (nb_dtype_is_float(nb_dtype_of(s->in[i])) && !sample_smooth(s, i))
            return false;
    }
    return nb_func_call(g->fn, g->nin, g->x, &g->nout, y) == NB_OK;
}

static void catalogue(void)
{
    nb_op *op;
    for (int n = 0; (op = nb_op_at(n)); n++) {
        sample s;
        task g;
        char name[64];
        nb_scope_open();
        bool smooth = !op->exempt && sample_random(&s, op) && op_task(&s, &g);
        if (smooth) map_each(&g, op->name);
        for (way w = VJP; smooth && w <= JVP; w++) {
            task t = task_transform(w, &g, 0, 0);
            snprintf(name, sizeof name, "%s of %s", way_name[w], op->name);
            if (2 * t.nin <= MAX_ARGS) map_each(&t, name);
        }
        nb_scope_close(0, NULL);
    }
}

/* Sentences: derivatives */

static nb_tensor *num(double v)
{
    return nb_scalar_float(v, NB_F64);
}

FN(square, nb_mul(x[0], x[0]))
FN(cube, nb_mul(x[0], nb_mul(x[0], x[0])))
FN(cubic, nb_add(total(nb_mul(x[0], nb_square(x[0]))), nb_square(total(x[0]))))
FN(product, nb_mul(x[0], x[1]))
FN(sum_of_two, nb_add(x[0], x[1]))
FN(identity, x[0])
FN(constant, nb_scalar_float(7, NB_F64))
FN(plus_closed, nb_add(c[0], x[0]))
FN(times_closed, nb_mul(c[0], x[0]))

/* x d/dz g(x, z) at z = x: the same node is closed over and handed in. */
static nb_tensor *confuse(nb_body *g, nb_tensor *const *x)
{
    return nb_mul(x[0], call(grad(nb_func_new(g, (void *)x)), x[0]));
}
FN(confuse_plus, confuse(plus_closed, x))
FN(confuse_times, confuse(times_closed, x))

/* The same, forward. */
static nb_tensor *moved(nb_func *f, nb_tensor *x, nb_tensor *u)
{
    nb_tensor *y[2];
    int n = 2;
    nb_func_call(nb_jvp(f), 2, (nb_tensor *[]){x, u}, &n, y);
    return n == 2 ? y[1] : NULL;
}
FN(confused_ahead,
   nb_mul(x[0], moved(nb_func_new(times_closed, (void *)x), x[0], num(1))))

/* d/dz (z^2 a) at z = x, where a = d/dz z^3 at z = x: 6 x^3. */
static nb_tensor *in_turn(nb_tensor *x)
{
    nb_tensor *a = call(grad(nb_func_new(cube, NULL)), x);
    return nb_mul(nb_num(2), nb_mul(x, a));
}
FN(taking_turns, in_turn(x[0]))

static void perturbations(void)
{
    nb_tensor *x = num(3);
    nb_func *f = nb_func_new(square, NULL);
    SAYS("d/dx [x d/dy (x + y)] at y = x is 1",
         call(grad(nb_func_new(confuse_plus, NULL)), x), 1);
    SAYS("d/dx [x d/dy (x y)] at y = x is 2x",
         call(grad(nb_func_new(confuse_times, NULL)), x), 6);
    SAYS("and forward over forward",
         call(nb_jacfwd(nb_func_new(confused_ahead, NULL), 0), x), 6);
    SAYS("and backward over forward",
         call(grad(nb_func_new(confused_ahead, NULL)), x), 6);
    SAYS("and forward over backward",
         call(nb_jacfwd(nb_func_new(confuse_times, NULL), 0), x), 6);
    SAYS("what one gradient found is a function of x in the next",
         call(grad(nb_func_new(taking_turns, NULL)), x), 162);
    SAYS("a tensor used twice counts twice", call(grad(f), x), 6);
    SAYS("and again in the second derivative", call(grad(grad(f)), x), 2);
    SAYS("a closed-over value that is also the argument is a constant",
         call(grad(nb_func_new(times_closed, &x)), x), 3);
}

/* Two functions in a row, the second closing over what the first returned,
 * which is not computed yet and was recorded under a trace of its own. */
static void old_results(void)
{
    nb_tensor *x = num(3), *y[2] = {0};
    int n = 2;
    nb_func *both = nb_value_and_grad(nb_func_new(cube, NULL), 1, (int[]){0});
    expect(nb_func_call(both, 1, &x, &n, y) == NB_OK && n == 2,
           "value_and_grad has the value and the gradient");
    SAYS("what another gradient left behind is a constant",
         call(grad(nb_func_new(times_closed, y)), x), 27);
    SAYS("the value", y[0], 27);
    SAYS("and the gradient", y[1], 27);
}

static void hessians(void)
{
    nb_tensor *x = VEC(1, 2);
    nb_func *f = nb_func_new(cubic, NULL);
    nb_func *rev = nb_jacrev(f, 0), *fwd = nb_jacfwd(f, 0);
    nb_func *h[] = {nb_jacfwd(rev, 0), nb_jacrev(fwd, 0), nb_jacrev(rev, 0),
                    nb_jacfwd(fwd, 0), nb_hessian(f, 0)};
    for (int i = 0; i < 5; i++)
        SAYS("a hessian, nested four ways", call(h[i], x), 8, 2, 2, 14);
}

/* d2 (x_i^3) / dx_j dx_k = 6 x_i where i = j = k. */
static void jacobians_of_rank_three(void)
{
    const double v[] = {1, 2, 3, 4};
    double expected[64] = {0};
    nb_tensor *x = given(NB_F64, 3, (int64_t[]){2, 1, 2}, v);
    nb_func *f = nb_func_new(cube, NULL);
    for (int i = 0; i < 4; i++)
        expected[21 * i] = 6 * v[i];
    nb_tensor *twice = call(nb_jacrev(nb_jacrev(f, 0), 0), x);
    expect(nb_rank(twice) == 9, "jacrev of jacrev of rank 3 has rank 9");
    expect(is(twice, 64, expected), "jacrev of jacrev of rank 3");
    expect(is(call(nb_jacfwd(nb_jacrev(f, 0), 0), x), 64, expected),
           "jacfwd of jacrev of rank 3");
    nb_func *each = nb_vmap(nb_jacrev(nb_jacfwd(f, 0), 0), NULL);
    nb_tensor *lanes = nb_stack(1, &x, 0);
    expect(is(call(each, lanes), 64, expected), "and mapped over one lane");
}

FN(mixed, nb_mul(nb_sin(x[0]), nb_cumsum(x[0], -1, false, false)))

static void pieces(void)
{
    nb_tensor *x = VEC(0.1, 0.2, 0.3, 0.4, 0.5);
    nb_func *f = nb_func_new(mixed, NULL);
    nb_func *all[] = {nb_jacrev(f, 0), nb_jacfwd(f, 0), nb_hessian(f, 0),
                      nb_vmap(nb_jacrev(f, 0), NULL),
                      nb_vmap(nb_jacfwd(f, 0), NULL)};
    size_t before = nb_jacobian_budget(), budget[] = {1, 700};
    for (int i = 0; i < 5; i++) {
        nb_tensor *in = i < 3 ? x : nb_stack(2, (nb_tensor *[]){x, x}, 0);
        nb_tensor *whole = call(all[i], in);
        for (int k = 0; k < 2; k++) {
            nb_jacobian_budget_set(budget[k]); /* one row; two rows */
            expect(near(call(all[i], in), whole, 1e-12),
                   "a jacobian in pieces of %zu bytes is the whole (%d)",
                   budget[k], i);
            nb_jacobian_budget_set(before);
        }
    }
}

FN(first_of_two, nb_mul(x[0], nb_num(2)))
FN(rounded, nb_cast(nb_cast(x[0], NB_I64), NB_F64))
FN(whole_part, nb_cast(x[0], NB_I64))
FN(frozen, nb_mul(x[0], nb_stop_gradient(x[0])))
FN(weighted, total(nb_mul(nb_cast(x[1], NB_F64), x[0])))

static void independence(void)
{
    nb_tensor *x = VEC(1, 2), *z = VEC(3, 4, 5), *g[3] = {0};
    nb_tensor *k = given(NB_I64, 1, (int64_t[]){2}, (int64_t[]){5, 6});
    nb_func *two = nb_func_new(first_of_two, NULL);
    nb_func *seven = nb_func_new(constant, NULL);
    int n = 3;
    expect(nb_func_call(nb_grad(two, 2, (int[]){1, 0}), 2,
                        (nb_tensor *[]){x, z}, &n, g) == NB_OK &&
               n == 2,
           "as many gradients as arguments are listed");
    SAYS("an unused argument gets zeros", g[0], 0, 0, 0);
    SAYS("in the order of the list", g[1], 2, 2);
    SAYS("a result that does not depend on x", call(grad(seven), x), 0, 0);
    nb_tensor *jac = call(nb_jacrev(seven, 0), x);
    SAYS("has a jacobian of zeros", jac, 0, 0);
    SAYS("also forward", call(nb_jacfwd(seven, 0), x), 0, 0);
    SAYS("a gradient does not pass integers",
         call(grad(nb_func_new(rounded, NULL)), x), 0, 0);
    SAYS("nor come from an integer result",
         call(grad(nb_func_new(whole_part, NULL)), x), 0, 0);
    SAYS("in either mode", call(nb_jacrev(nb_func_new(whole_part, NULL), 0), x),
         0, 0, 0, 0);
    SAYS("stop_gradient is a constant",
         call(grad(nb_func_new(frozen, NULL)), x), 1, 2);
    SAYS("forward too", call(nb_jacfwd(nb_func_new(frozen, NULL), 0), x), 1, 0,
         0, 2);
    nb_func *w = nb_func_new(weighted, NULL);
    nb_tensor *by_k = call2(nb_grad(w, 1, (int[]){1}), x, k);
    SAYS("an integer argument gets zeros", by_k, 0, 0);
    expect(nb_dtype_of(by_k) == NB_I64, "of its dtype");
    SAYS("also forward", call2(nb_jacfwd(w, 1), x, k), 0, 0);
    SAYS("beside one that has a gradient", call2(grad(w), x, k), 5, 6);
    SAYS("a gradient of a result that is no scalar is that of its sum",
         call(grad(two), x), 2, 2);
}

/* Reads a value on the way: what was realised must stay differentiable. */
static nb_tensor *branch(nb_tensor *x)
{
    nb_tensor *y = nb_mul(x, x);
    double v = nb_item(y);
    return nb_error_code() ? NULL : v > 4 ? y : nb_neg(x);
}
FN(branching, branch(x[0]))

static void looking(void)
{
    nb_func *f = nb_func_new(branching, NULL);
    nb_tensor *x = num(3);
    SAYS("an if on a value works under grad", call(grad(f), x), 6);
    SAYS("on both sides", call(grad(f), num(1)), -1);
    SAYS("and under grad of grad", call(grad(grad(f)), x), 2);
    SAYS("and under jacfwd of jacrev", call(nb_hessian(f, 0), x), 2);
    FAILS("a mapped value cannot be branched on",
          call(nb_vmap(f, NULL), VEC(1, 2)), NB_EVALUE,
          "differs from lane to lane");
}

/* Sentences: vmap */

static nb_func *map2(nb_func *f, int first, int second)
{
    return nb_vmap(
        f, &(nb_vmap_options){.nin = 2, .in_axes = (int[]){first, second}});
}

static nb_func *to_axis(nb_func *f, int in, int out)
{
    return nb_vmap(f,
                   &(nb_vmap_options){
                       .nin = 1, .in_axes = &in, .nout = 1, .out_axes = &out});
}

static void mapping(void)
{
    nb_tensor *x = VEC(1, 2, 3), *w = num(5), *y[3] = {0};
    nb_func *mul = nb_func_new(product, NULL);
    nb_func *all = map2(mul, NB_UNMAPPED, 0);
    SAYS("vmap of grad keeps one gradient per lane for a shared weight",
         call2(map2(grad(mul), NB_UNMAPPED, 0), w, x), 1, 2, 3);
    SAYS("grad of vmap sums a shared weight's gradient over the lanes",
         call2(grad(all), w, x), 6);
    nb_func *sum = map2(nb_func_new(sum_of_two, NULL), NB_UNMAPPED, 0);
    SAYS("what moves with a shared weight alone moves in every lane",
         call2(nb_jacfwd(sum, 0), w, x), 1, 1, 1);
    SAYS("also one that is closed over",
         call(nb_vmap(grad(nb_func_new(times_closed, &w)), NULL), x), 5, 5, 5);
    SAYS("outer vmap of x and inner vmap of y make a table",
         call2(map2(all, 0, NB_UNMAPPED), VEC(1, 2), x), 1, 2, 3, 2, 4, 6);
    SAYS("and the gradient of its sum adds along the other axis",
         call2(grad(map2(all, 0, NB_UNMAPPED)), VEC(1, 2), x), 6, 6);
    nb_tensor *wide = nb_broadcast_to(nb_unsqueeze(x, 1), 2, (int64_t[]){3, 3});
    SAYS("a lane does not meet a visible axis of the other operand",
         call2(all, x, wide), 1, 2, 3, 2, 4, 6, 3, 6, 9);
    nb_func *pull = nb_vjp(all, 2);
    int n = 3;
    nb_tensor *in[] = {w, x, VEC(1, 10, 100)};
    expect(nb_func_call(pull, 3, in, &n, y) == NB_OK && n == 3,
           "vjp has the values, then a cotangent for each argument");
    SAYS("the values", y[0], 5, 10, 15);
    SAYS("summed over lanes where there are none", y[1], 321);
    SAYS("lane by lane where there are", y[2], 5, 50, 500);
}

static nb_status pair_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], x[1]);
    y[1] = nb_mul(x[0], x[2]);
    y[2] = x[1];
    return *ny = 3, NB_OK;
}

static void axes(void)
{
    nb_tensor *m =
        given(NB_F64, 2, (int64_t[]){2, 3}, (double[]){1, 2, 3, 4, 5, 6});
    nb_tensor *b = VEC(10, 20), *y[3] = {0};
    nb_func *id = nb_func_new(identity, NULL);
    SAYS("in_axes 0 and out_axes -1 transpose", call(to_axis(id, 0, -1), m), 1,
         4, 2, 5, 3, 6);
    SAYS("and so do in_axes -1 and out_axes 0", call(to_axis(id, -1, 0), m), 1,
         4, 2, 5, 3, 6);
    SAYS("in_axes 1 and out_axes 1 do not", call(to_axis(id, 1, 1), m), 1, 2, 3,
         4, 5, 6);
    /* rows of m with b, shared; the last entry stands for the rest */
    nb_func *f = nb_vmap(nb_func_new(pair_body, NULL),
                         &(nb_vmap_options){.nin = 2,
                                            .in_axes = (int[]){1, NB_UNMAPPED},
                                            .nout = 2,
                                            .out_axes = (int[]){0, -1}});
    int n = 3;
    expect(nb_func_call(f, 3, (nb_tensor *[]){m, b, b}, &n, y) == NB_OK,
           "the last axis stands for those beyond it");
    SAYS("result 0 has its lanes first", y[0], 11, 24, 12, 25, 13, 26);
    SAYS("result 1 last", y[1], 10, 20, 30, 80, 100, 120);
    SAYS("and so has result 2, which met no lane", y[2], 10, 10, 10, 20, 20,
         20);
}

static void sizes(void)
{
    nb_tensor *w = num(5), *x = VEC(4);
    nb_tensor *none = given(NB_F64, 1, (int64_t[]){0}, NULL);
    nb_func *mul = nb_func_new(product, NULL);
    nb_func *all = map2(mul, NB_UNMAPPED, 0);
    SAYS("one lane", call2(all, w, x), 20);
    SAYS("one lane, its gradient", call2(grad(all), w, x), 4);
    nb_tensor *empty = call2(all, w, none);
    expect(nb_rank(empty) == 1 && nb_size(empty, 0) == 0 &&
               nb_realize(empty) == NB_OK,
           "no lanes at all");
    SAYS("no lanes at all sum to zero", call2(grad(all), w, none), 0);
    empty = call2(map2(grad(mul), NB_UNMAPPED, 0), w, none);
    expect(nb_size(empty, 0) == 0 && nb_realize(empty) == NB_OK,
           "no lanes have no gradients");
    FAILS("no lanes and one lane differ", call2(map2(mul, 0, 0), none, x),
          NB_EVALUE, "vmap: argument 1 has 1 lanes, others 0");
    nb_func *seven = nb_func_new(constant, NULL);
    SAYS("a result that met no lane is repeated",
         call(nb_vmap(seven, NULL), VEC(1, 2, 3)), 7, 7, 7);
    int unmapped = NB_UNMAPPED;
    nb_vmap_options o = {.nin = 1, .in_axes = &unmapped, .axis_size = 3};
    SAYS("axis_size says how many lanes there are if no argument does",
         call(nb_vmap(nb_func_new(square, NULL), &o), w), 25, 25, 25);
    SAYS("also of no argument at all",
         nb_func_call1(nb_vmap(seven, &o), 0, NULL), 7, 7, 7);
    SAYS("and the gradient counts them",
         call(grad(nb_vmap(nb_func_new(square, NULL), &o)), w), 30);
}

static void shared_results(void)
{
    nb_tensor *w = num(3), *x = VEC(1, 2);
    nb_vmap_options o = {.nin = 2,
                         .in_axes = (int[]){NB_UNMAPPED, 0},
                         .nout = 1,
                         .out_axes = (int[]){NB_UNMAPPED}};
    nb_func *seven = nb_vmap(nb_func_new(constant, NULL), &o);
    nb_func *sq = nb_func_new(square, NULL);
    nb_tensor *y = call2(seven, w, x);
    SAYS("an unmapped result that does not depend on the lane", y, 7);
    expect(nb_rank(y) == 0 && nb_hidden(y) == 0, "is as it was");
    FAILS("one that does is refused",
          call2(nb_vmap(nb_func_new(product, NULL), &o), w, x), NB_EVALUE,
          "vmap: result 0 differs from lane to lane, its out_axes must be an "
          "axis");
    /* a gradient has the lanes of its vmap, here thin */
    y = call2(nb_vmap(grad(sq), &o), w, x);
    SAYS("a gradient that is the same in all lanes may be unmapped too", y, 6);
    expect(nb_hidden(y) == 0, "and leaves no lane behind");
    SAYS("and be differentiated", call2(grad(nb_vmap(grad(sq), &o)), w, x), 2);
    SAYS("and mapped again",
         call2(map2(nb_vmap(grad(sq), &o), 0, NB_UNMAPPED), VEC(1, 2, 3), x), 2,
         4, 6);
}

/* Sentences: lanes that talk */

FN(count_lanes, nb_lane_sum(nb_num(1), "i"))
FN(lane_total, nb_lane_sum(x[0], "i"))
FN(moved_total, moved(nb_func_new(lane_total, NULL), x[0], num(1)))
FN(times_total, nb_mul(x[0], nb_lane_sum(x[0], "i")))
FN(total_squared, nb_square(nb_lane_sum(x[0], "i")))
FN(lane_average, nb_lane_mean(x[0], NULL))
FN(lane_most, nb_lane_max(x[0], "i"))
FN(lane_least, nb_lane_min(x[0], "i"))
FN(lane_number, nb_lane_index("i"))
FN(lane_power, nb_mul(x[0], nb_cast(nb_lane_index(NULL), NB_F64)))
FN(outer_total, nb_lane_sum(nb_mul(x[0], c[0]), "i"))
FN(inner_lanes, call(named(nb_func_new(outer_total, (void *)x), "j"), c[0]))
FN(same_name, call(named(nb_func_new(times_total, ctx), "i"), x[0]))

static nb_tensor *talked(nb_body *body, bool slope, nb_tensor *x)
{
    nb_func *f = nb_func_new(body, NULL);
    return call(named(slope ? grad(f) : f, "i"), x);
}

/* Inside a vmap whose lanes talk, grad is of the sum over all lanes' results:
 * the transpose of jvp, whoever holds a lane and whoever is the same in all. */
static void talking_lanes(void)
{
    nb_tensor *x = VEC(1, 2, 4);
    nb_func *s = nb_func_new(total_squared, NULL);
    SAYS("a sum over lanes counts them", talked(count_lanes, false, x), 3, 3,
         3);
    SAYS("lane_sum", talked(lane_total, false, x), 7, 7, 7);
    SAYS("lane_mean", talked(lane_average, false, VEC(1, 2, 6)), 3, 3, 3);
    SAYS("lane_max", talked(lane_most, false, x), 4, 4, 4);
    SAYS("lane_min", talked(lane_least, false, x), 1, 1, 1);
    SAYS("lane_index", talked(lane_number, false, x), 0, 1, 2);
    expect(nb_dtype_of(talked(lane_number, false, x)) == NB_I32,
           "lane_index is int32");
    SAYS("lanes that all move move the sum by their number",
         talked(moved_total, false, x), 3, 3, 3);
    SAYS("vmap grad of a lane sum", talked(lane_total, true, x), 3, 3, 3);
    SAYS("vmap grad of a lane mean", talked(lane_average, true, x), 1, 1, 1);
    SAYS("vmap grad of a lane max", talked(lane_most, true, x), 0, 0, 3);
    SAYS("vmap grad of x times the lane sum", talked(times_total, true, x), 14,
         14, 14);
    SAYS("vmap grad grad of the lane sum squared",
         call(named(grad(grad(s)), "i"), x), 18, 18, 18);
    SAYS("grad of vmap where lanes talk",
         call(grad(named(nb_func_new(times_total, NULL), "i")), x), 14, 14, 14);
    SAYS("what a lane knows of itself is constant", talked(lane_power, true, x),
         0, 1, 2);
    nb_tensor *w = VEC(10, 100);
    SAYS("a lane sum by name over the outer of two vmaps",
         call(named(nb_func_new(inner_lanes, &w), "i"), x), 70, 700, 70, 700,
         70, 700);
    nb_tensor *m = given(NB_F64, 2, (int64_t[]){2, 2}, (double[]){1, 2, 3, 4});
    SAYS("of two vmaps of a name the inner one is meant",
         call(named(nb_func_new(same_name, NULL), "i"), m), 3, 6, 21, 28);
}

static const int64_t shift[][2] = {{0, 1}, {1, 2}};
static const int64_t fan[][2] = {{0, 1}, {0, 2}};
static const int64_t clash[][2] = {{0, 1}, {2, 1}};
static const int64_t astray[][2] = {{0, 3}};
FN(turn, nb_lane_permute(x[0], "i", 3, ring))
FN(move_on, nb_lane_permute(x[0], "i", 2, shift))
FN(fan_out, nb_lane_permute(x[0], "i", 2, fan))
FN(collide, nb_lane_permute(x[0], "i", 2, clash))
FN(stray, nb_lane_permute(x[0], "i", 1, astray))
FN(with_neighbour, nb_mul(x[0], nb_lane_permute(x[0], "i", 3, ring)))

static void permutations(void)
{
    nb_tensor *x = VEC(1, 2, 4);
    SAYS("a ring", talked(turn, false, x), 4, 1, 2);
    SAYS("lanes that are no target get zero", talked(move_on, false, x), 0, 1,
         2);
    SAYS("one lane may be sent to two", talked(fan_out, false, x), 0, 1, 1);
    SAYS("and both send its gradient back", talked(fan_out, true, x), 2, 0, 0);
    SAYS("lanes that are sent nowhere get none", talked(move_on, true, x), 1, 1,
         0);
    SAYS("x_i x_(i-1) summed, by x_i", talked(with_neighbour, true, x), 6, 5,
         3);
    FAILS("a lane cannot be a target twice", talked(collide, false, x),
          NB_EVALUE, "permute: lane 1 is a target twice");
    FAILS("nor can one that is not there", talked(stray, false, x), NB_EVALUE,
          "permute: pair (0, 3) of 3 lanes");
    FAILS("a name that no vmap has",
          call(named(nb_func_new(lane_total, NULL), "k"), x), NB_EVALUE,
          "no open vmap is named i");
    FAILS("a lane sum outside of all vmaps", nb_lane_sum(x, NULL), NB_EVALUE,
          "no vmap is open");
}

/* Sentences: functions */

static nb_status twice(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = y[1] = nb_square(x[0]);
    return *ny = 2, NB_OK;
}

static void functions(void)
{
    nb_tensor *x = num(3), *half = nb_scalar_float(3, NB_F16), *y[3] = {0};
    int n = 3;
    nb_func *f = nb_func_new(square, NULL), *mul = nb_func_new(product, NULL);
    SAYS("one tensor in two places is two arguments", call2(grad(mul), x, x),
         3);
    nb_tensor *in[] = {x, num(1), num(10)};
    expect(nb_func_call(nb_vjp(nb_func_new(twice, NULL), 1), 3, in, &n, y) ==
               NB_OK,
           "one node may be two results");
    SAYS("and takes both cotangents", y[2], 66);
    n = 3;
    nb_func_call(nb_vjp(f, 1), 2, (nb_tensor *[]){half, num(1)}, &n, y);
    SAYS("a gradient", y[1], 6);
    expect(nb_dtype_of(y[1]) == NB_F16, "has the dtype of the argument");
    nb_func *high = nb_func_new(wave, NULL);
    for (int i = 0; i < 8; i++)
        high = grad(high);
    SAYS("the eighth derivative of x sin x is x sin x - 8 cos x",
         call(high, num(0)), -8);
    nb_scope_open();
    nb_func *kept = nb_func_keep(grad(nb_func_new(square, NULL)));
    nb_scope_close(0, NULL);
    SAYS("a function that is kept keeps what it is made of", call(kept, x), 6);
    nb_func_drop(kept);
}

/* A body of as many vmaps as *ctx says. */
static nb_status deep(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    int *levels = ctx;
    (void)nx;
    *ny = 1;
    y[0] = (*levels)-- > 0 ? call(nb_vmap(nb_func_new(deep, levels), NULL),
                                  nb_unsqueeze(x[0], 0))
                           : nb_sin(x[0]);
    return NB_OK;
}

static void depths(void)
{
    int levels = 16;
    nb_tensor *x = num(0);
    SAYS("sixteen vmaps in each other",
         call(grad(nb_func_new(deep, &levels)), x), 1);
    levels = 17;
    FAILS("and not seventeen", call(nb_func_new(deep, &levels), x), NB_EVALUE,
          "more than 16 hidden axes on one tensor");
    int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    FAILS(
        "nor a jacobian of rank eighteen",
        call(nb_jacrev(nb_func_new(square, NULL), 0), nb_ones(9, ones, NB_F64)),
        NB_EVALUE, "jacobian: rank 18 is above 16");
    expect(all_closed(), "failing depths are closed");
}

/* Sentences: failures */

static void misuse_of_vmap(void)
{
    nb_tensor *a = VEC(1, 2), *b = VEC(1, 2, 3), *w = num(1);
    nb_func *mul = nb_func_new(product, NULL),
            *id = nb_func_new(identity, NULL);
    FAILS("lanes must be as many", call2(nb_vmap(mul, NULL), a, b), NB_EVALUE,
          "vmap: argument 1 has 3 lanes, others 2");
    FAILS("a scalar has no axis", call(nb_vmap(id, NULL), w), NB_EVALUE,
          "vmap: argument 0 has rank 0, no axis 0 to map");
    FAILS("an axis that is not there", call(to_axis(id, -2, 0), a), NB_EVALUE,
          "vmap: argument 0 has rank 1, no axis -2 to map");
    FAILS("a place that is not there", call(to_axis(id, 0, 1), a), NB_EVALUE,
          "vmap: result 0 has rank 0, no place for an axis 1");
    FAILS("nothing to map", call(to_axis(id, NB_UNMAPPED, 0), a), NB_EVALUE,
          "vmap: no argument is mapped and no axis_size is given");
    FAILS("axis_size against an argument",
          call(nb_vmap(id, &(nb_vmap_options){.axis_size = 3}), a), NB_EVALUE,
          "vmap: argument 0 has 2 lanes, others 3");
    expect(all_closed(), "failing vmaps are closed");
}

static bool runs(nb_func *f, int nx, nb_tensor *const *x, int room)
{
    nb_tensor *y[8];
    return nb_func_call(f, nx, x, &room, y) == NB_OK;
}

static void misuse_of_derivatives(void)
{
    nb_tensor *x[] = {VEC(1, 2), VEC(3, 4), VEC(1, 1), VEC(1, 1, 1)};
    nb_func *f = nb_func_new(product, NULL);
    FAILS("an argument that is not there",
          runs(nb_grad(f, 1, (int[]){2}), 2, x, 8), NB_EVALUE,
          "grad: no argument 2: the function has 2");
    FAILS("also of a jacobian", runs(nb_jacfwd(f, -1), 2, x, 8), NB_EVALUE,
          "jacobian: no argument -1: the function has 2");
    FAILS("an argument twice", runs(nb_grad(f, 2, (int[]){1, 1}), 2, x, 8),
          NB_EVALUE, "grad: argument 1 is listed twice");
    FAILS("no tangents", runs(nb_jvp(f), 3, x, 8), NB_EVALUE,
          "jvp: 3 arguments: as many tangents as primals are needed");
    FAILS("no cotangent", runs(nb_vjp(f, 2), 2, x, 8), NB_EVALUE,
          "vjp: 0 cotangents for 1 results");
    FAILS("a cotangent of another shape",
          runs(nb_vjp(f, 2), 3, (nb_tensor *[]){x[0], x[1], x[3]}, 8),
          NB_EVALUE,
          "vjp: a cotangent of shape (3,) for a value of shape (2,)");
    FAILS("a tangent of another shape",
          runs(nb_jvp(f), 4, (nb_tensor *[]){x[0], x[1], x[2], x[3]}, 8),
          NB_EVALUE, "jvp: a tangent of shape (3,) for a value of shape (2,)");
    FAILS("no room for the results", runs(nb_vjp(f, 2), 3, x, 2), NB_EVALUE,
          "vjp: 3 results, room for 2");
    FAILS("a function of nothing", nb_func_new(NULL, NULL), NB_EVALUE,
          "a function needs a body");
    expect(all_closed(), "failing differentiations are closed");
}

FN(misfit, nb_tanh(nb_matmul(x[0], c[0])))
FN(nothing, NULL)

static nb_status refusing(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_sin(x[0]);
    nb_error_raise(NB_EKEY, "not today");
    return *ny = 1, NB_EKEY;
}

static nb_status resultless(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    (void)ctx, (void)nx, (void)x, (void)y;
    return *ny = 0, NB_OK;
}

static nb_func *nest(nb_body *body, void *ctx)
{
    nb_func *f = nb_vmap(grad(nb_vmap(nb_func_new(body, ctx), NULL)), NULL);
    return nb_jacfwd(nb_jacrev(f, 0), 0);
}

static void bodies_that_fail(void)
{
    nb_tensor *x = draw(2, (int64_t[]){2, 2}, 0, 1);
    nb_tensor *w = draw(2, (int64_t[]){3, 3}, 0, 1);
    nb_tensor *rows = draw(3, (int64_t[]){2, 2, 2}, 0, 1);
    int64_t before = nodes_left();
    FAILS("a body's own error comes out of every transform",
          call(nest(refusing, NULL), x), NB_EKEY, "not today");
    FAILS("and so does that of an op", call(nest(misfit, &w), rows), NB_EVALUE,
          "matmul: shapes (2,) and (3, 3) do not fit");
    FAILS("and a result that is none", call(nest(nothing, NULL), x), NB_EVALUE,
          "an argument is NULL");
    FAILS("what has no result has no first one",
          call(nb_func_new(resultless, NULL), x), NB_ETYPE,
          "the function has no result");
    expect(nodes_left() == before, "leaving nothing behind");
    expect(all_closed(), "and nothing open");
}

/* Sentences: the imperative style */

typedef struct found {
    int n;
    nb_tensor *x[4], *grad[4];
} found;

static void note(void *ctx, nb_tensor *x, nb_tensor *grad_of_x)
{
    found *f = ctx;
    if (f->n == 4) return;
    f->x[f->n] = x;
    f->grad[f->n++] = grad_of_x;
}

static void backward(void)
{
    nb_tensor *w = VEC(1, 2), *c = VEC(3, 5);
    expect(nb_require_grad(w) == NB_OK && nb_requires_grad(w),
           "a tensor that requires grad");
    nb_tensor *y = total(nb_mul(c, nb_square(w)));
    expect(!nb_grad_of(w), "has no gradient at first");
    expect(!nb_requires_grad(y) && nb_is_traced(y), "traces what it is in");
    expect(nb_backward(y, NULL, false) == NB_OK, "backward");
    SAYS("sets its gradient", nb_grad_of(w), 6, 20);
    expect(nb_is_leaf(nb_grad_of(w)) && !nb_is_traced(nb_grad_of(w)),
           "a gradient is realised and has no history");
    nb_backward(y, NULL, false);
    SAYS("again replaces it", nb_grad_of(w), 6, 20);
    nb_backward(y, num(2), true);
    SAYS("or adds to it, weighted by the cotangent", nb_grad_of(w), 18, 60);
    nb_realize(y);
    nb_backward(y, NULL, false);
    SAYS("a loss may be looked at before", nb_grad_of(w), 6, 20);
    nb_grad_clear(w);
    expect(!nb_grad_of(w), "a cleared gradient is gone");
    FAILS("a vector needs a cotangent", nb_backward(w, NULL, false) == NB_OK,
          NB_EVALUE,
          "backward: a result of shape (2,) needs a cotangent of that shape");
    FAILS("of its shape", nb_backward(w, y, false) == NB_OK, NB_EVALUE,
          "a cotangent of shape () for a value of shape (2,)");
    nb_tensor *k = nb_scalar_int(1, NB_I64);
    FAILS("integers have no gradient", nb_require_grad(k) == NB_OK, NB_ETYPE,
          "only floating tensors can require grad, not int64");
    nb_backward(w, c, false);
    SAYS("a result without history receives the cotangent", nb_grad_of(w), 3,
         5);
    nb_grad_clear(w);
}

static void backward_through_more(void)
{
    nb_tensor *w = VEC(1, 2), *v = num(4), *y[2], *ct[] = {NULL, VEC(1, 10)};
    found f = {0};
    nb_require_grad(w);
    nb_require_grad(v);
    nb_tensor *h = nb_square(w);
    nb_require_grad(h);
    nb_backward(total(nb_square(h)), NULL, false);
    SAYS("a tensor on the way may require grad too", nb_grad_of(h), 2, 8);
    SAYS("and passes it on", nb_grad_of(w), 4, 32);
    expect(!nb_grad_of(v), "what was not reached has none");
    y[0] = total(nb_mul(w, v));
    y[1] = nb_mul(w, nb_num(3));
    expect(nb_backward_each(2, y, ct, note, &f) == NB_OK && f.n == 2,
           "several results together reach each tensor once");
    SAYS("the first", f.x[0] == w ? f.grad[0] : NULL, 7, 34);
    SAYS("the second", f.x[1] == v ? f.grad[1] : NULL, 3);
    SAYS("and leave the table alone", nb_grad_of(w), 4, 32);
    nb_tensor *m = call(nb_vmap(grad(nb_func_new(cube, NULL)), NULL), w);
    nb_backward(total(nb_mul(m, nb_detach(w))), NULL, false);
    SAYS("backward goes through transforms", nb_grad_of(w), 6, 24);
    nb_func *lanes = map2(nb_func_new(product, NULL), NB_UNMAPPED, 0);
    nb_backward(total(call2(lanes, v, VEC(1, 2, 3))), NULL, false);
    SAYS("and through lanes", nb_grad_of(v), 6);
    nb_grad_clear(w);
    nb_grad_clear(v);
    nb_grad_clear(h);
}

/* Sentences: the pieces */

static nb_status pulling(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)nx;
    return *ny = 1, nb_tape_pull(ctx, x, y);
}

static void tapes(void)
{
    nb_tensor *x = VEC(1, 2), *in, *y, *cx = NULL, *uy = NULL, *ct = VEC(1, 10);
    int64_t before = nodes_left();
    nb_scope_open();
    nb_tape *t = nb_tape_open(1, &x, &in);
    y = nb_mul(nb_square(in), in);
    nb_realize(y);
    expect(nb_tape_close(t, 1, &y) == NB_OK && all_closed(), "a tape closes");
    expect(nb_tape_pull(t, &ct, &cx) == NB_OK, "a tape is pulled");
    SAYS("after its results were realised", cx, 3, 120);
    nb_scope_close(0, NULL);
    nb_scope_open();
    expect(nb_tape_pull(t, &x, &cx) == NB_OK, "pulled again");
    SAYS("when nothing else of it is left", cx, 3, 24);
    expect(nb_tape_push(t, &ct, &uy) == NB_OK, "and pushed");
    SAYS("as often as one likes", uy, 3, 120);
    nb_tensor *zero = NULL;
    expect(nb_tape_pull(t, &zero, &cx) == NB_OK && !cx &&
               nb_tape_push(t, &zero, &uy) == NB_OK && !uy,
           "zero in gives zero out");
    expect(nb_tape_pull(t, NULL, &cx) == NB_OK, "ones need not be there");
    SAYS("to be pulled", cx, 3, 12);
    nb_func *rows = nb_func_new(pulling, t);
    SAYS("also inside a differentiation", call(nb_jacrev(rows, 0), x), 3, 0, 0,
         12);
    SAYS("and inside a vmap",
         call(nb_vmap(rows, NULL), nb_eye(2, 2, 0, NB_F64)), 3, 0, 0, 12);
    nb_tape_drop(t);
    nb_scope_close(0, NULL);
    expect(nodes_left() == before, "a dropped tape holds nothing");
    nb_scope_open();
    t = nb_tape_open(1, &x, &in);
    nb_tape_drop(t);
    expect(all_closed(), "a tape may be dropped while it is open");
    t = nb_tape_open(1, &x, &in);
    FAILS("an open tape is not pulled", nb_tape_pull(t, &ct, &cx) == NB_OK,
          NB_EVALUE, "the tape is not closed");
    FAILS("nor by ones", nb_tape_pull(t, NULL, &cx) == NB_OK, NB_EVALUE,
          "the tape is not closed");
    FAILS("nor pushed", nb_tape_push(t, &ct, &uy) == NB_OK, NB_EVALUE,
          "the tape is not closed");
    FAILS("and has no jacobian", nb_tape_jacobian(t, false, 0, 0, &uy) == NB_OK,
          NB_EVALUE, "the tape is not closed");
    y = nb_square(in);
    expect(nb_tape_close(t, 1, &y) == NB_OK, "it can still be closed");
    FAILS("once", nb_tape_close(t, 1, &y) == NB_OK, NB_EVALUE,
          "the tape is closed already");
    expect(nb_tape_pull(t, &ct, &cx) == NB_OK, "and is pulled");
    SAYS("then", cx, 2, 40);
    nb_tape_drop(t);
    t = nb_tape_open(1, &x, &in);
    y = nb_square(in);
    nb_realize(y);
    nb_tape_close(t, 1, &y);
    expect(!nb_is_leaf(y), "what is on tape remembers how it was made");
    nb_tape_drop(t);
    expect(nb_is_leaf(y), "and forgets it with the tape");
    nb_scope_close(0, NULL);
}

static void lanes_by_hand(void)
{
    nb_tensor *x = VEC(1, 2, 3), *once = num(5);
    int id = nb_lane_begin(3, "i");
    nb_tensor *in = nb_lane_hide(x, 0, id), *y = nb_square(in);
    nb_tensor *sum = nb_lane_sum(y, "i");
    nb_lane_end();
    expect(nb_rank(y) == 0 && nb_hidden(y) == 1 && nb_lane_has(y, id),
           "a hidden axis is not seen");
    expect(!nb_lane_has(sum, id), "and is gone once it is summed");
    SAYS("and is shown again", nb_lane_show(y, 0, id, 3), 1, 4, 9);
    SAYS("what met no lane is the same in all", nb_lane_show(once, 0, id, 3), 5,
         5, 5);
    FAILS("lanes are not less than none", nb_lane_begin(-1, NULL), NB_EVALUE,
          "vmap: -1 lanes");
}

/* Sentences: what it costs */

/* How many nodes a call records, and how many its result holds on to. */
typedef struct cost {
    uint64_t recorded;
    int64_t held;
} cost;

static cost cost_of(nb_func *f, int nx, nb_tensor *const *x)
{
    nb_scope_open();
    uint64_t serial = nb_num(0)->serial;
    int64_t live = nb_stats_get().nodes_live;
    nb_tensor *y = nb_func_call1(f, nx, x);
    cost c = {nb_num(0)->serial - serial, nb_stats_get().nodes_live - live};
    expect(y && !nb_is_realized(y), "recording computes nothing");
    nb_scope_close(0, NULL);
    return c;
}

FN(model, total(nb_tanh(nb_matmul(x[0], x[1]))))

static void costs(void)
{
    nb_func *f = nb_func_new(model, NULL);
    nb_func *all[] = {nb_jacrev(map2(f, 0, NB_UNMAPPED), 1),
                      map2(nb_grad(f, 1, (int[]){1}), 0, NB_UNMAPPED),
                      nb_jacfwd(map2(f, 0, NB_UNMAPPED), 1),
                      map2(nb_hessian(f, 1), 0, NB_UNMAPPED)};
    static const char *const name[] = {"jacrev(vmap f)", "vmap(grad f)",
                                       "jacfwd(vmap f)", "vmap(hessian f)"};
    for (int i = 0; i < 4; i++) {
        cost few, many;
        nb_tensor *w = draw(2, (int64_t[]){3, 2}, 0, 1);
        nb_tensor *small[] = {draw(2, (int64_t[]){2, 3}, 0, 1), w};
        nb_tensor *large[] = {draw(2, (int64_t[]){500, 3}, 0, 1), w};
        few = cost_of(all[i], 2, small);
        many = cost_of(all[i], 2, large);
        expect(few.recorded == many.recorded && few.held == many.held,
               "%s records %llu nodes for 2 lanes, %llu for 500", name[i],
               (unsigned long long)few.recorded,
               (unsigned long long)many.recorded);
    }
}

/* Tells its caller whether its values are stored once for all lanes. */
static nb_status watched(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)nx;
    y[0] = nb_sin(x[0]);
    *(bool *)ctx = y[0] && y[0]->nlanes == 1 && nb_tensor_lane(y[0])->thin;
    return *ny = 1, NB_OK;
}

static void thrift(void)
{
    bool thin = false;
    nb_func *slope = grad(nb_func_new(watched, &thin));
    nb_tensor *x = VEC(1, 2, 3);
    call2(map2(slope, NB_UNMAPPED, 0), num(1), x);
    expect(thin, "what is the same in all lanes is computed once");
    int64_t before = nb_stats_get().steps_run;
    nb_tensor *jac = call(nb_jacrev(nb_func_new(wave, NULL), 0), x);
    expect(jac && nb_stats_get().steps_run == before,
           "a jacobian is as lazy as any op");
}

/* Realised results hold nothing of how they were made. */
static void history(void)
{
    nb_tensor *x = VEC(1, 2, 3);
    nb_func *f = nb_func_new(cubic, NULL);
    nb_func *all[] = {grad(f), nb_hessian(f, 0), nb_jacrev(grad(f), 0),
                      nb_vmap(grad(nb_func_new(cube, NULL)), NULL),
                      nb_vjp(nb_func_new(identity, NULL), 1)};
    for (int i = 0; i < 5; i++) {
        int64_t before = nodes_left();
        size_t bytes = nb_stats_get().bytes_in_use;
        nb_scope_open();
        nb_tensor *y =
            nb_func_call1(all[i], i == 4 ? 2 : 1, (nb_tensor *[]){x, x});
        expect(nb_realize(y) == NB_OK, "history %d is computed", i);
        nb_scope_close(1, &y);
        expect(nb_is_leaf(y) && nodes_left() == before + 1,
               "a realised result of %d is all that is left", i);
        expect(nb_stats_get().bytes_in_use <= bytes + 1024,
               "%d holds no data but its own", i);
    }
}

/* Least squares by 1000 steps down the gradient: w goes to (2, -1). */
static void training(void)
{
    nb_stats early = {0}, late;
    nb_tensor *x = draw(2, (int64_t[]){16, 2}, -1, 1);
    nb_tensor *target = nb_matmul(x, VEC(2, -1));
    nb_realize(target);
    nb_scope_open(); /* which must not hold on to the first w */
    nb_tensor *w = nb_keep(VEC(0, 0));
    nb_scope_close(0, NULL);
    for (int i = 0; i < 1000; i++) {
        if (i == 500) early = nb_stats_get(); /* on a card it is a graph now */
        nb_scope_open();
        nb_require_grad(w);
        nb_tensor *loss = nb_mean(nb_square(nb_sub(nb_matmul(x, w), target)),
                                  -1, NULL, false);
        nb_backward(loss, NULL, false);
        nb_tensor *step = nb_mul(nb_grad_of(w), nb_num(0.5));
        nb_tensor *next = nb_detach(nb_sub(w, step));
        nb_realize(next);
        nb_drop(w);
        w = nb_keep(next);
        nb_scope_close(0, NULL);
    }
    late = nb_stats_get();
    expect(late.nodes_live == early.nodes_live, "%lld nodes, then %lld",
           (long long)early.nodes_live, (long long)late.nodes_live);
    expect(late.bytes_in_use == early.bytes_in_use, "a training loop's data "
                                                    "does not grow");
    expect(late.allocations_live == early.allocations_live,
           "nor does anything else of it");
    SAYS("and it arrives", w, 2, -1);
    nb_require_grad(w);
    nb_backward(total(w), NULL, false); /* the last but one is let go */
    nb_grad_clear(w);
    nb_drop(w);
}

/* The same by functions. */
static void functional_training(void)
{
    int64_t early = 0;
    nb_tensor *w = nb_keep(VEC(0.5));
    nb_func *slope = grad(nb_func_new(cubic, NULL));
    for (int i = 0; i < 1000; i++) {
        if (i == 500) early = nb_stats_get().allocations_live;
        nb_scope_open();
        nb_tensor *next = nb_sub(w, nb_mul(call(slope, w), nb_num(0.01)));
        nb_realize(next);
        nb_drop(w);
        w = nb_keep(next);
        nb_scope_close(0, NULL);
    }
    expect(nb_stats_get().allocations_live == early,
           "a loop over grad does not grow");
    nb_drop(w);
}

/* Faults */

static bool grad_of_vmap(void)
{
    nb_tensor *x = VEC(1, 2, 3), *w = num(2), *y[3];
    nb_func *f = map2(nb_func_new(blend, NULL), NB_UNMAPPED, 0);
    nb_func *g = nb_value_and_grad(f, 2, (int[]){0, 1});
    int n = 3;
    return nb_func_call(g, 2, (nb_tensor *[]){w, x}, &n, y) == NB_OK &&
           nb_realize_all(n, y) == NB_OK;
}

static bool talk_of_lanes(void)
{
    nb_tensor *x = VEC(1, 2, 3), *w = draw(2, (int64_t[]){2, 2}, 0, 1);
    nb_func *f = nb_func_new(with_neighbour, NULL);
    nb_func *g = named(grad(f), "i");
    return nb_realize(call(g, x)) == NB_OK &&
           nb_realize(call(nb_hessian(nb_func_new(talking, &w), 0),
                           VEC(1, 2))) == NB_OK;
}

static bool jacobian_in_pieces(void)
{
    size_t before = nb_jacobian_budget();
    nb_jacobian_budget_set(1);
    nb_func *f = nb_jacfwd(nb_jacrev(nb_func_new(mixed, NULL), 0), 0);
    nb_tensor *y = call(f, VEC(1, 2));
    nb_jacobian_budget_set(before);
    return nb_realize(y) == NB_OK;
}

static bool a_step_back(void)
{
    nb_tensor *w = VEC(1, 2), *c = VEC(3, 4);
    bool ok = w && nb_require_grad(w) == NB_OK;
    nb_tensor *y = total(nb_mul(c, nb_softmax(w, -1)));
    ok = ok && nb_backward(y, NULL, false) == NB_OK &&
         nb_backward(y, NULL, true) == NB_OK && nb_grad_of(w);
    nb_grad_clear(w);
    return ok;
}

static void faults(void)
{
    expect_survival("grad of vmap", grad_of_vmap);
    expect_survival("lanes that talk", talk_of_lanes);
    expect_survival("a jacobian in pieces", jacobian_in_pieces);
    expect_survival("backward", a_step_back);
}

int main(void)
{
    there_open();
    static void (*const all[])(void) = {
        perturbations,
        old_results,
        hessians,
        jacobians_of_rank_three,
        pieces,
        independence,
        looking,
        mapping,
        axes,
        sizes,
        shared_results,
        talking_lanes,
        permutations,
        functions,
        depths,
        misuse_of_vmap,
        misuse_of_derivatives,
        bodies_that_fail,
        backward,
        backward_through_more,
        tapes,
        lanes_by_hand,
        costs,
        thrift,
        history,
        training,
        functional_training,
    };
    compositions();
    catalogue();
    size_t sentences = there_leads() ? sizeof all / sizeof all[0] : 0;
    for (size_t i = 0; i < sentences; i++) {
        nb_scope_open();
        all[i]();
        nb_scope_close(0, NULL);
    }
    nb_caches_clear();
    int64_t nodes = nb_stats_get().nodes_live;
    expect(nodes == 0 && all_closed(), "%lld nodes are still alive",
           (long long)nodes);
    if (there_leads()) faults();
    return tally();
}
