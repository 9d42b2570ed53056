/* training.h - what the examples over many devices share: text that is printed
 * once, steps of training, and the comparison with one device. */
#ifndef TRAINING_H
#define TRAINING_H

#include <math.h>
#include <nabla/nabla.h>
#include <stdio.h>

/* A rank and a shape, as ops take them. */
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})

/* Once for all processes, which have all made the text; that goes. */
static inline bool is_first(void)
{
    return nb_distributed_rank() == 0;
}

static inline void show(const char *before, char *text, const char *after)
{
    const char *said = text ? text : nb_error_message();
    if (is_first()) printf("%s%s%s", before, said, after);
    nb_text_release(text);
}

static inline void show_picture(nb_tensor *x)
{
    int64_t size[2];
    nb_sizes(x, size);
    show("", nb_sharding_picture(nb_sharding(x), 2, size, "text"), "\n");
}

/* What a function has to say to other devices, and why. */
static inline void explain(nb_func *f, int n, nb_tensor *const *x)
{
    nb_explanation *e = NULL;
    if (nb_explain(f, n, x, NULL, &e) == NB_OK)
        show("", nb_explanation_text(e), "");
    nb_explanation_drop(e);
}

/* Arguments are parameters, then a batch and what to make of it. */
enum { MOST = 8, STEPS = 40 };
typedef struct training {
    nb_body *loss; /* of all arguments */
    int params, arguments;
    double rate;
} training;

/* (parameters, x, y) -> (loss, parameters) */
static inline nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const training *t = ctx;
    int by[MOST];
    for (int i = 0; i < t->params; i++)
        by[i] = i;
    *ny = 1 + t->params;
    nb_func *slope =
        nb_value_and_grad(nb_func_new(t->loss, NULL), t->params, by);
    nb_status status = (NB_HERE, nb_func_call(slope, nx, x, ny, y));
    for (int i = 0; status == NB_OK && i < t->params; i++)
        y[1 + i] = nb_sub(x[i], nb_mul(nb_num(t->rate), y[1 + i]));
    return status;
}

/* All steps: x has the new parameters in the end. */
static inline nb_status train(training *t, nb_tensor **x, double *losses)
{
    nb_executable *e = NULL;
    nb_tensor *y[1 + MOST];
    nb_status status =
        nb_executable_new(nb_func_new(step, t), t->arguments, x, &e);
    for (int k = 0; status == NB_OK && k < STEPS; k++) {
        int n = 1 + t->params;
        status = nb_executable_run(e, t->arguments, x, &n, y);
        for (int i = 0; status == NB_OK && i < t->params; i++)
            x[i] = y[1 + i];
        if (status == NB_OK) losses[k] = nb_item(y[0]);
    }
    nb_executable_drop(e);
    return status;
}

static inline double difference(nb_tensor *a, nb_tensor *b)
{
    return nb_item(nb_reduce_max(nb_abs(nb_sub(a, b)), -1, NULL, false));
}

/* Trains on many devices and on one: the same, but for rounding, and something
 * was learned. */
static inline bool compare(training *t, nb_tensor **many, nb_tensor **one)
{
    double losses[STEPS], expected[STEPS], most = 0;
    if (train(t, many, losses) || train(t, one, expected)) return false;
    for (int k = 0; k < STEPS; k += (STEPS - 1) / 3)
        if (is_first()) printf("step %2d  loss %.4f\n", k, losses[k]);
    for (int i = 0; i < t->params; i++)
        most = fmax(most, difference(many[i], one[i]));
    for (int k = 0; k < STEPS; k++)
        most = fmax(most, fabs(losses[k] - expected[k]));
    if (is_first()) printf("largest difference from one device: %.0e\n", most);
    return most < 1e-5 && losses[STEPS - 1] < losses[0] / 2;
}

/* The end of main: what failed, if anything did. */
static inline int finish(bool ok)
{
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK || !ok;
}

#endif
