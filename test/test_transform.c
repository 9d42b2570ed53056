/* test_transform.c - transforms of functions, and their compositions.
 *
 * If a transform agrees with finite differences or a loop on every function,
 * made by transforms or not, then so do all compositions: in a word only the
 * outermost letter is done slowly, the rest is the engine's own.  Then come
 * sentences, with the expected value on the page. */
#include "support/check.h"

#include <stdio.h>
#include <string.h>

/* Words */

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
    nb_func *f = nb_func_new(inner_most, closed);
    return nb_func_call1(nb_grad(f, 1, (int[]){0}), 1, &x);
}
FN(per_row, row_slope(c[0], x[0]))

static nb_tensor *over_rows(nb_tensor *const *x, nb_tensor *w)
{
    nb_func *each = nb_vmap(nb_func_new(per_row, (void *)x),
                            &(nb_vmap_options){.nout = 1,
                                               .out_axes = (int[]){-1}});
    return nb_reduce_sum(nb_func_call1(each, 1, &w), 1, (int64_t[]){-1},
                         false);
}
FN(nested, over_rows(x, c[0]))

/* Lanes that talk, at two levels: x mapped as i, the rows of w as j. */
static nb_tensor *talk(nb_tensor *x, nb_tensor *row)
{
    nb_tensor *e = nb_exp(nb_mul(x, row));
    return nb_div(nb_mul(e, nb_lane_sum(e, "j")), nb_lane_sum(e, "i"));
}
FN(talk_row, talk(c[0], x[0]))

static nb_tensor *talk_map(nb_body *g, const void *ctx, const char *name,
                           nb_tensor *over)
{
    nb_func *all = nb_vmap(nb_func_new(g, (void *)ctx),
                           &(nb_vmap_options){.axis_name = name});
    return nb_func_call1(all, 1, &over);
}
FN(talk_x, talk_map(talk_row, x, "j", c[0]))
FN(talking, talk_map(talk_x, c, "i", x[0]))

static nb_tensor *dense(nb_tensor *x, nb_tensor *w, nb_tensor *b)
{
    nb_tensor *h = nb_relu(nb_add(nb_matmul(w, x), b));
    return nb_mul(h, h);
}
FN(layer, dense(x[0], c[0], x[1]))

static nb_tensor *climb(nb_tensor *x)
{
    nb_tensor *low = nb_less(x, nb_num(0.45));
    nb_tensor *sum = nb_cumsum(nb_sort(nb_square(x), -1, true, true), -1, false,
                               false);
    return nb_where(low, nb_mul(sum, x), nb_exp(sum));
}
FN(ladder, climb(x[0]))

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
        expect(task_agrees(w, g, &t), "%s", longer);
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
        {"wave", wave, 1, 1},     {"blend", blend, 2, 1},
        {"attend", attend, 2, 1}, {"two results", two_results, 2, 2},
        {"nested", nested, 1, 1}, {"talking", talking, 1, 1},
        {"layer", layer, 2, 1},   {"ladder", ladder, 1, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        nb_scope_open();
        nb_tensor *w[] = {draw(2, (int64_t[]){3, 2}, -1, 1)};
        task g = {.nin = all[i].nin, .nout = all[i].nout};
        g.fn = nb_func_new(all[i].body, w);
        for (int k = 0; k < g.nin; k++)
            g.x[k] = draw(1, (int64_t[]){2}, 0.2, 1);
        if (all[i].body == attend)
            g.x[1] = nb_constant(NB_I64, 1, (int64_t[]){2},
                                 (int64_t[]){2, 0});
        if (all[i].body == layer) g.x[1] = draw(1, (int64_t[]){3}, 0.2, 1);
        extend(&g, all[i].name, 3);
        nb_scope_close(0, NULL);
    }
}

int main(void)
{
    compositions();
    return tally();
}
