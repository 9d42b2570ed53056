/* transforms.c - functions to functions, then the imperative style.
 *
 * First the Hessian of a mapped function, as jacfwd of jacrev of vmap: no op
 * has a rule for any of these nestings.  Then a perceptron that learns to tell
 * the sides of a line, with tensors that require grad.  At the end a gradient
 * as it was recorded, each line with the place in this file that it is from. */
#include <nabla/nabla.h>
#include <stdio.h>

static void show(const char *name, nb_tensor *x)
{
    char *text = nb_tensor_text(x);
    printf("%s = %s\n", name, text ? text : nb_error_message());
    nb_text_release(text);
}

/* sum(sin(row)) */
static nb_status sum_of_sines(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_reduce_sum(nb_sin(x[0]), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

static void hessian_of_a_mapped_function(void)
{
    float data[] = {0, 1, 2, 3, 4, 5};
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){2, 3}, data);
    nb_func *rows = nb_vmap(nb_func_new(sum_of_sines, NULL), NULL);
    nb_tensor *h = nb_func_call1(nb_jacfwd(nb_jacrev(rows, 0), 0), 1, &x);
    show("vmap(f)(x)", nb_func_call1(rows, 1, &x));
    printf("jacfwd(jacrev(vmap(f)))(x) has shape (");
    for (int d = 0; d < nb_rank(h); d++)
        printf("%s%lld", d ? ", " : "", (long long)nb_size(h, d));
    printf(")\n");
    /* -sin(x) where all indices agree, zero elsewhere */
    show("its sum over all but the last two axes",
         nb_reduce_sum(h, 3, (int64_t[]){0, 1, 2}, false));
    show("-sin(x)", nb_neg(nb_sin(x)));
}

/* One step of descent: the object w stands for takes a new value. */
static void descend(nb_tensor **w, double rate)
{
    nb_tensor *step = nb_mul(nb_grad_of(*w), nb_num(rate));
    nb_tensor *next = nb_keep(nb_detach(nb_sub(nb_detach(*w), step)));
    nb_realize(next);
    nb_require_grad(next);
    nb_grad_clear(*w);
    nb_drop(*w);
    *w = next;
}

static void perceptron(void)
{
    enum { POINTS = 64 };
    float xs[POINTS][2], ys[POINTS];
    for (int i = 0; i < POINTS; i++) {
        xs[i][0] = (float)(i % 8) / 4 - 1;
        xs[i][1] = (float)(i / 8) / 4 - 1;
        ys[i] = 2 * xs[i][0] - xs[i][1] > 0.2F;
    }
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){POINTS, 2}, xs);
    nb_tensor *y = nb_constant(NB_F32, 2, (int64_t[]){POINTS, 1}, ys);
    nb_tensor *w =
        nb_keep(nb_constant(NB_F32, 2, (int64_t[]){2, 1}, (float[]){0, 0}));
    nb_tensor *b = nb_keep(nb_scalar_float(0, NB_F32));
    nb_require_grad(w);
    nb_require_grad(b);
    for (int step = 0; step <= 200; step++) {
        nb_scope_open();
        nb_tensor *p = nb_sigmoid(nb_add(nb_matmul(x, w), b));
        nb_tensor *loss = nb_mean(nb_square(nb_sub(p, y)), -1, NULL, false);
        if (nb_backward(loss, NULL, false) != NB_OK) {
            puts(nb_error_message());
            nb_scope_close(0, NULL);
            break;
        }
        if (step % 50 == 0)
            printf("step %3d  loss %.4f\n", step, nb_item(loss));
        descend(&w, 2.0);
        descend(&b, 2.0);
        nb_scope_close(0, NULL);
    }
    show("w", w);
    show("b", b);
    nb_drop(w);
    nb_drop(b);
}

/* sum(tanh(x)), saying where it is */
static nb_status sum_of_tanh(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *t = (NB_HERE, nb_tanh(x[0]));
    y[0] = (NB_HERE, nb_reduce_sum(t, -1, NULL, false));
    *ny = 1;
    return NB_OK;
}

static void listing_of_a_gradient(void)
{
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){2}, (float[]){1, 1});
    nb_func *f = nb_grad(nb_func_new(sum_of_tanh, NULL), 1, (int[]){0});
    nb_tensor *y = nb_func_call1(f, 1, &x);
    nb_graph *g = NULL;
    if (nb_graph_of(1, &x, 1, &y, &g) != NB_OK) return;
    char *text = nb_graph_text_with(g, NB_TEXT_SOURCES);
    printf("%s", text ? text : nb_error_message());
    nb_text_release(text);
    nb_graph_free(g);
}

int main(void)
{
    nb_scope_open();
    hessian_of_a_mapped_function();
    perceptron();
    listing_of_a_gradient();
    nb_scope_close(0, NULL);
    return nb_error_code() != NB_OK;
}
