/* custom_kernel.c - ops of your own from C: a function over rows and a rule make
 * an op that differentiates, maps and compiles; a kernel may be a source too, in
 * C for the CPU and in CUDA C for cards. */
#include <math.h>
#include <nabla/kernel.h>
#include <nabla/nabla.h>
#include <stdio.h>

/* Elementwise, so every element is a row; the runtime splits them. */
static void softsign(const nb_kernel_args *a)
{
    NB_ROWS(a, r)
    {
        float x = *NB_ROW(float, nb_in(a, 0), r);
        *NB_ROW(float, nb_out(a, 0), r) = x / (1 + fabsf(x));
    }
}

/* dy = dx / (1 + |x|)²; reverse mode is its transpose. */
static nb_status softsign_jvp(const nb_applied *c, nb_tensor *const *u,
                              nb_tensor **uy)
{
    nb_tensor *one = nb_num(1);
    uy[0] = nb_div(u[0], nb_square(nb_add(one, nb_abs(c->in[0]))));
    return nb_error_code();
}

static nb_op *op;

static nb_status energy(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *s;
    int n = 1;
    (void)ctx;
    if (nb_op_call(op, nx, x, 0, NULL, &n, &s) != NB_OK) return nb_error_code();
    y[0] = nb_reduce_sum(s, -1, NULL, false);
    return *ny = 1, NB_OK;
}

static void show(const char *what, nb_tensor *x)
{
    char *text = nb_tensor_text(x);
    printf("%s = %s\n", what, text ? text : nb_error_message());
    nb_text_release(text);
}

int main(int argc, char **argv)
{
    float data[] = {1, -2, 3, 0.5f, 0, -1.5f};
    const char *folder = argc > 1 ? argv[1] : "examples/kernels";
    nb_scope_open();
    op = nb_op_register(&(nb_op_spec){.name = "softsign",
                                      .doc = "x / (1 + |x|).",
                                      .signature = "... -> ...",
                                      .in = NB_IN_FLOAT,
                                      .kernel = softsign,
                                      .jvp = softsign_jvp});
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){2, 3}, data);
    nb_func *f = nb_func_new(energy, NULL), *g = nb_grad(f, 1, (int[]){0});
    show("the sum of softsign", nb_func_call1(f, 1, &x));
    show("its gradient", nb_func_call1(g, 1, &x));
    show("its gradient, compiled", nb_func_call1(nb_compile(g, NULL), 1, &x));
    show("of each row", nb_func_call1(nb_vmap(f, NULL), 1, &x));

    /* A source, compiled now or found in the cache. */
    nb_kernel_source rms = {"rms_norm", 1, &folder};
    nb_named epsilon = {"epsilon", {.kind = NB_VALUE_FLOAT, .f = 1e-6}};
    nb_type row = {NB_F32, 1, {6}};
    nb_tensor *flat = nb_reshape(x, 1, (int64_t[]){6}), *y = NULL;
    nb_kernel_call(&rms, 1, &flat, 1, &epsilon, 1, &row, &y);
    show("rms_norm of all six", y);
    if (nb_devices() > 1) {
        nb_tensor *there = nb_to_device(flat, 1);
        nb_kernel_call(&rms, 1, &there, 1, &epsilon, 1, &row, &y);
        show("on a card", y);
    } else {
        printf("on a card: there is none here\n");
    }

    nb_status status = nb_error_code();
    nb_op_drop(op);
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
