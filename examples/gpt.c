/* gpt.c - a small GPT that learns to write sonnets, one character at a time.
 *
 * The model is a function of an array of parameters.  One step of training (a
 * batch drawn from a key, the loss, its gradient, AdamW) is one function too,
 * compiled as a whole; so is writing a sample, which is a loop inside the
 * program.  gpt.py is the same in Python and gives the same numbers.
 *
 * Ops return NULL after a failure and pass it on, so errors are looked for where
 * a value is needed, and told in main. */
#include <math.h>
#include <nabla/nabla.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LAYERS = 4, WIDTH = 128, HEADS = 4, CONTEXT = 64, BATCH = 16 };
enum { WARMUP = 20, SAMPLE = 300, NAME = 16, PATH = 512 };
static const double pi = 3.14159265358979323846, rate = 4e-3, decay = 0.1;

/* Where the parameters are: some of the model, as many for each layer. */
enum { NORM1, QKV, PROJ, NORM2, UP, BIAS, DOWN, OF_LAYER };
enum { EMBED, PLACE, FIRST, NORM = FIRST + LAYERS * OF_LAYER, PARAMS };
enum { STATE = 3 * PARAMS }; /* p, and the averages m and v of AdamW */

/* A rank and a shape, as ops take them. */
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})
#define LAST       SHAPE(-1)

typedef struct training {
    int steps, seed, length, letters;
    unsigned char letter[257];
    nb_tensor *known, *held; /* what it learns from, what it is tried on */
    nb_tensor *key;          /* of the batches */
    double *losses;
} training;

/* The model. */

/* Gains are one, biases and what is added to the residual stream zero, and other
 * matrices normal. */
static nb_tensor *first(int i, nb_tensor *key, int letters)
{
    int part = i < FIRST || i == NORM ? -1 : (i - FIRST) % OF_LAYER;
    double std = 1 / sqrt(WIDTH);
    if (i == EMBED)
        return nb_random_normal(key, SHAPE(letters, WIDTH), 0, std, NB_F32);
    if (i == PLACE)
        return nb_random_normal(key, SHAPE(CONTEXT, WIDTH), 0, std, NB_F32);
    if (part == QKV)
        return nb_random_normal(key, SHAPE(WIDTH, 3 * WIDTH), 0, std, NB_F32);
    if (part == UP)
        return nb_random_normal(key, SHAPE(WIDTH, 4 * WIDTH), 0, std, NB_F32);
    if (part == PROJ) return nb_zeros(SHAPE(WIDTH, WIDTH), NB_F32);
    if (part == DOWN) return nb_zeros(SHAPE(4 * WIDTH, WIDTH), NB_F32);
    if (part == BIAS) return nb_zeros(SHAPE(4 * WIDTH), NB_F32);
    return nb_ones(SHAPE(WIDTH), NB_F32);
}

static nb_tensor *norm(nb_tensor *x, nb_tensor *gain)
{
    x = nb_sub(x, nb_mean(x, LAST, true));
    nb_tensor *var = nb_mean(nb_mul(x, x), LAST, true);
    return nb_mul(nb_mul(x, nb_rsqrt(nb_add(var, nb_num(1e-5)))), gain);
}

static nb_tensor *attention(nb_tensor *x, nb_tensor *const *p)
{
    int64_t b = nb_size(x, 0), t = nb_size(x, 1), d = WIDTH / HEADS;
    nb_tensor *heads =
        nb_reshape(nb_matmul(x, p[QKV]), SHAPE(b, t, 3, HEADS, d));
    nb_tensor *qkv[3] = {NULL};
    nb_unbind(nb_permute(heads, SHAPE(2, 0, 3, 1, 4)), 0, qkv);
    nb_tensor *score = nb_matmul(qkv[0], nb_swap_axes(qkv[1], -1, -2));
    score = nb_div(score, nb_num(sqrt((double)d)));
    nb_tensor *past = nb_tril(nb_ones(SHAPE(t, t), NB_BOOL), 0);
    nb_tensor *weight = nb_softmax(nb_where(past, score, nb_num(-1e9)), -1);
    nb_tensor *mix = nb_swap_axes(nb_matmul(weight, qkv[2]), 1, 2);
    return nb_matmul(nb_reshape(mix, SHAPE(b, t, WIDTH)), p[PROJ]);
}

static nb_tensor *mlp(nb_tensor *x, nb_tensor *const *p)
{
    nb_tensor *up = nb_add(nb_matmul(x, p[UP]), p[BIAS]);
    return nb_matmul(nb_gelu(up, "tanh"), p[DOWN]);
}

/* The embedding is the head too; a quarter of it, to be unsure at first. */
static nb_tensor *logits(nb_tensor *const *p, nb_tensor *tokens)
{
    nb_tensor *x = nb_add(nb_gather(p[EMBED], tokens, 0), p[PLACE]);
    for (int i = 0; i < LAYERS; i++) {
        nb_tensor *const *l = p + FIRST + i * OF_LAYER;
        x = nb_add(x, attention(norm(x, l[NORM1]), l));
        x = nb_add(x, mlp(norm(x, l[NORM2]), l));
    }
    x = nb_matmul(norm(x, p[NORM]), nb_swap_axes(p[EMBED], 0, 1));
    return nb_div(x, nb_num(4));
}

/* (parameters, windows) -> how surprised the model is by each next character,
 * in nats. */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_key but_last[] = {NB_ALL, NB_RANGE(NB_OPEN, -1, NB_OPEN)};
    nb_key but_first[] = {NB_ALL, NB_RANGE(1, NB_OPEN, NB_OPEN), NB_NEWAXIS};
    nb_tensor *score = logits(x, nb_get(x[PARAMS], 2, but_last));
    nb_tensor *next = nb_get(x[PARAMS], 3, but_first);
    nb_tensor *right = nb_take_along_axis(score, next, -1);
    nb_tensor *all = nb_logsumexp(score, LAST, true);
    y[0] = nb_mean(nb_sub(all, right), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* Training. */

static nb_tensor *windows_at(nb_tensor *text, nb_tensor *start)
{
    return nb_gather(text, nb_add(start, nb_iota(CONTEXT + 1, NB_I64)), 0);
}

/* The factor that brings the norm of all gradients down to one. */
static nb_tensor *clip(nb_tensor *const *g)
{
    nb_tensor *sum = nb_num(0);
    for (int i = 0; i < PARAMS; i++)
        sum = nb_add(sum, nb_reduce_sum(nb_mul(g[i], g[i]), -1, NULL, false));
    return nb_div(nb_num(1), nb_maximum(nb_sqrt(sum), nb_num(1)));
}

/* The rate climbs during the warm-up and falls to nothing along a cosine. */
static nb_tensor *rate_at(nb_tensor *t, int steps)
{
    nb_tensor *turn = nb_cos(nb_div(nb_mul(nb_num(pi), t), nb_num(steps)));
    turn = nb_add(nb_num(0.5), nb_mul(nb_num(0.5), turn));
    nb_tensor *climb = nb_div(nb_add(t, nb_num(1)), nb_num(WARMUP));
    return nb_mul(nb_num(rate), nb_minimum(climb, turn));
}

static nb_tensor *blend(nb_tensor *old, nb_tensor *fresh, double keep)
{
    return nb_add(nb_mul(nb_num(keep), old), nb_mul(nb_num(1 - keep), fresh));
}

/* AdamW on p, m, v at x, into y; decay is for matrices. */
static void adamw(nb_tensor *const *x, nb_tensor *const *g, nb_tensor *t,
                  int steps, nb_tensor **y)
{
    nb_tensor *scale = clip(g), *speed = rate_at(t, steps);
    nb_tensor *count = nb_add(t, nb_num(1));
    nb_tensor *a = nb_sub(nb_num(1), nb_pow(nb_num(0.9), count));
    nb_tensor *b = nb_sub(nb_num(1), nb_pow(nb_num(0.99), count));
    for (int i = 0; i < PARAMS; i++) {
        nb_tensor *p = x[i], *grad = nb_mul(g[i], scale);
        nb_tensor *m = blend(x[PARAMS + i], grad, 0.9);
        nb_tensor *v = blend(x[2 * PARAMS + i], nb_square(grad), 0.99);
        nb_tensor *size = nb_add(nb_sqrt(nb_div(v, b)), nb_num(1e-8));
        nb_tensor *move = nb_div(nb_div(m, a), size);
        if (nb_rank(p) > 1) move = nb_add(move, nb_mul(nb_num(decay), p));
        y[i] = nb_sub(p, nb_mul(speed, move));
        y[PARAMS + i] = m;
        y[2 * PARAMS + i] = v;
    }
}

/* (p, m, v, t) -> (p, m, v, loss) */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const training *of = ctx;
    nb_tensor *t = x[nx - 1], *in[PARAMS + 1], *out[1 + PARAMS];
    int by[PARAMS], n = 1 + PARAMS;
    nb_tensor *start =
        nb_random_randint(nb_random_fold_in(of->key, t), SHAPE(BATCH, 1), 0,
                          nb_size(of->known, 0) - CONTEXT, NB_I64);
    memcpy(in, x, PARAMS * sizeof *in);
    in[PARAMS] = windows_at(of->known, start);
    for (int i = 0; i < PARAMS; i++)
        by[i] = i;
    nb_func *slope = nb_value_and_grad(nb_func_new(loss, NULL), PARAMS, by);
    nb_status status = nb_func_call(slope, PARAMS + 1, in, &n, out);
    if (status != NB_OK) return status;
    adamw(x, out + 1, nb_cast(t, NB_F32), of->steps, y);
    y[STATE] = out[0];
    *ny = STATE + 1;
    return NB_OK;
}

/* A bar on a terminal, now and then a line elsewhere. */
static void show(const training *of, int t, double seconds)
{
    static const char bar[] = "##############################";
    int n = t < 20 ? t : 20, steps = of->steps;
    double mean = 0, speed = t * (double)(BATCH * CONTEXT) / seconds;
    for (int i = t - n; i < t; i++)
        mean += of->losses[i] / n;
    if (isatty(1))
        printf("\r%5d/%d [%-30.*s] loss %.3f  %6.0f tokens/s%s", t, steps,
               30 * t / steps, bar, mean, speed, t == steps ? "\n" : "");
    else if (t == 1 || t * 10 / steps > (t - 1) * 10 / steps)
        printf("step %5d/%d  loss %.3f  %6.0f tokens/s\n", t, steps, mean,
               speed);
    fflush(stdout);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All steps on the state.  A whole step is one program; the new state takes the
 * place of the old one in memory. */
static nb_status train(training *of, nb_tensor **state)
{
    int given[STATE], n = STATE + 1;
    nb_executable *e = NULL;
    nb_tensor *y[STATE + 1];
    for (int i = 0; i < STATE; i++)
        given[i] = i;
    double begin = now();
    state[STATE] = nb_scalar_int(0, NB_I64);
    nb_status status = nb_executable_new(nb_func_new(step, of), n, state, &e);
    if (status == NB_OK) status = nb_executable_donate(e, STATE, given);
    for (int t = 0; status == NB_OK && t < of->steps; t++) {
        nb_scope_open();
        state[STATE] = nb_scalar_int(t, NB_I64);
        status = nb_executable_run(e, STATE + 1, state, &n, y);
        for (int i = 0; status == NB_OK && i < STATE; i++) {
            nb_drop(state[i]);
            state[i] = nb_keep(y[i]);
        }
        if (status == NB_OK) of->losses[t] = nb_item(y[STATE]);
        if (status == NB_OK) show(of, t + 1, now() - begin);
        nb_scope_close(0, NULL);
    }
    nb_executable_drop(e);
    return status;
}

/* The loss over a text, or over as much of a long one as is enough. */
static double average(nb_tensor *const *p, nb_tensor *text)
{
    int64_t most = (nb_size(text, 0) - 1) / CONTEXT, n = most < 80 ? most : 80;
    nb_tensor *start = nb_arange_int(0, n * CONTEXT, CONTEXT, NB_I64);
    nb_tensor *x[PARAMS + 1];
    memcpy(x, p, PARAMS * sizeof *x);
    x[PARAMS] = windows_at(text, nb_unsqueeze(start, 1));
    nb_func *f = nb_compile(nb_func_new(loss, NULL), NULL);
    return nb_item(nb_func_call1(f, PARAMS + 1, x));
}

/* Writing. */

/* (window, key) -> (the window moved on, the next character) */
static nb_status next(void *params, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)nx;
    nb_key last[] = {NB_AT(0), NB_AT(-1)};
    nb_key but_first[] = {NB_RANGE(1, NB_OPEN, NB_OPEN)};
    nb_tensor *all = logits(params, nb_unsqueeze(x[0], 0));
    nb_tensor *score = nb_div(nb_get(all, 2, last), nb_num(0.8));
    y[1] = nb_cast(nb_random_categorical(x[1], score, -1, -1, NULL), NB_U8);
    nb_tensor *parts[] = {nb_get(x[0], 1, but_first), nb_unsqueeze(y[1], 0)};
    y[0] = nb_concatenate(2, parts, 0);
    *ny = 2;
    return NB_OK;
}

/* (parameters, prompt, keys) -> one character a key, each after the CONTEXT
 * characters before it. */
static nb_status compose(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *p[PARAMS], *out[2] = {NULL};
    int n = 2;
    memcpy(p, x, sizeof p);
    nb_func *body = nb_func_new(next, p);
    nb_status status =
        nb_scan(body, 1, x + PARAMS, 1, x + PARAMS + 1, 0, false, &n, out);
    y[0] = out[1];
    *ny = 1;
    return status;
}

static void write_sample(const training *of, nb_tensor *const *p)
{
    unsigned char number[SAMPLE];
    nb_key beginning = NB_RANGE(0, CONTEXT, NB_OPEN);
    nb_tensor *x[PARAMS + 2];
    memcpy(x, p, PARAMS * sizeof *x);
    x[PARAMS] = nb_get(of->held, 1, &beginning);
    x[PARAMS + 1] = nb_random_split(nb_random_key(of->seed + 1), SAMPLE);
    nb_func *f = nb_compile(nb_func_new(compose, NULL), NULL);
    if (nb_read(nb_func_call1(f, PARAMS + 2, x), NB_U8, number)) return;
    puts("---");
    for (int i = 0; i < SAMPLE; i++)
        putchar(of->letter[number[i]]);
    puts("\n---");
}

/* Files. */

static void save(const training *of, nb_tensor *const *p, const char *path)
{
    static const char *const part[] = {"norm1", "qkv",  "proj", "norm2",
                                       "up",    "bias", "down"};
    char text[LAYERS * OF_LAYER][NAME];
    const char *name[PARAMS] = {[EMBED] = "embed", "place", [NORM] = "norm"};
    for (int i = 0; i < LAYERS * OF_LAYER; i++) {
        snprintf(text[i], NAME, "%d.%s", i / OF_LAYER, part[i % OF_LAYER]);
        name[FIRST + i] = text[i];
    }
    const char *letters = (const char *)of->letter;
    nb_save(path, PARAMS, name, p, 1, (const char *[]){"letters"}, &letters);
}

/* The loss of every step, as a picture. */
static void draw(const training *of, const char *path)
{
    double top = of->losses[0], wide = of->steps;
    FILE *f = fopen(path, "w");
    if (!f) return (void)nb_error_raise(NB_ENOFILE, "cannot write %s", path);
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='-9 -9 618 330'>\n"
            "<path d='M0 0V300H600' fill='none' stroke='#999'/>\n"
            "<text x='9' y='9'>%.2f</text>\n"
            "<text x='0' y='318'>loss of %d steps, from 0</text>\n"
            "<polyline fill='none' stroke='#06c' points='",
            top, of->steps);
    for (int t = 0; t < of->steps; t++)
        fprintf(f, "%.1f,%.1f ", 600 * t / wide,
                300 - 300 * of->losses[t] / top);
    fputs("'/>\n</svg>\n", f);
    fclose(f);
}

/* The text as numbers of the characters in it, which are sorted; the last
 * tenth is held back. */
static void read_text(const char *path, training *of)
{
    enum { MOST = 1 << 20 };
    unsigned char *text = calloc(MOST, 1);
    int number[256] = {0};
    FILE *f = fopen(path, "rb");
    if (f && text) of->length = (int)fread(text, 1, MOST, f);
    for (int i = 0; i < of->length; i++)
        number[text[i]] = 1;
    for (int b = 0; b < 256; b++)
        if (number[b]) of->letter[number[b] = of->letters++] = (unsigned char)b;
    for (int i = 0; i < of->length; i++)
        text[i] = (unsigned char)number[text[i]];
    int cut = of->length / 10 * 9;
    if (of->length - cut > CONTEXT) {
        of->known = nb_constant(NB_U8, SHAPE(cut), text);
        of->held = nb_constant(NB_U8, SHAPE(of->length - cut), text + cut);
    } else {
        nb_error_raise(NB_EVALUE, "%s: not a text of some length", path);
    }
    if (f) fclose(f);
    free(text);
}

/* From a text to a model that has read it, a picture and a sample. */
static void run(training *of, const char *out)
{
    char model[PATH], picture[PATH];
    int64_t count = 0;
    nb_tensor *state[STATE + 1], *keys[PARAMS] = {NULL};
    nb_unbind(nb_random_split(nb_random_key(of->seed), PARAMS), 0, keys);
    of->key = nb_random_fold_in(nb_random_key(of->seed), nb_count(PARAMS));
    for (int i = 0; i < STATE; i++) {
        state[i] = i < PARAMS ? first(i, keys[i], of->letters)
                              : nb_full_like(state[i - PARAMS], nb_num(0));
        if (i < PARAMS) count += nb_elements(state[i]);
        nb_keep(state[i]);
    }
    printf("%d characters, %d different ones\n%lld parameters\n", of->length,
           of->letters, (long long)count);
    if (nb_realize_all(STATE, state) == NB_OK && train(of, state) == NB_OK) {
        printf("loss on what it read %.3f, ", average(state, of->known));
        printf("on what it did not %.3f\n", average(state, of->held));
        snprintf(model, PATH, "%s/gpt.safetensors", out);
        snprintf(picture, PATH, "%s/loss.svg", out);
        mkdir(out, 0777);
        save(of, state, model);
        draw(of, picture);
        write_sample(of, state);
        if (!nb_error_code()) printf("wrote %s and %s\n", model, picture);
    }
    for (int i = 0; i < STATE; i++)
        nb_drop(state[i]);
}

/* The value of an option, or what it is otherwise; both words are struck out. */
static char *option(char **argv, const char *name, char *otherwise)
{
    while (*++argv) {
        if (strcmp(*argv, name) != 0 || !argv[1]) continue;
        otherwise = argv[1];
        argv[0] = argv[1] = "";
    }
    return otherwise;
}

int main(int argc, char **argv)
{
    const char *out = option(argv, "--out", "build/gpt-c");
    const char *text = option(argv, "--text", "examples/data/sonnets.txt");
    training of = {.steps = atoi(option(argv, "--steps", "600")),
                   .seed = atoi(option(argv, "--seed", "0"))};
    bool known = of.steps > 0;
    for (int i = 1; i < argc; i++)
        known = known && !*argv[i];
    if (!known) {
        puts("gpt [--steps N] [--seed N] [--out FOLDER] [--text FILE]");
        return 2;
    }
    nb_scope_open();
    of.losses = calloc((size_t)of.steps, sizeof *of.losses);
    read_text(text, &of);
    if (of.held && of.losses) run(&of, out);
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "gpt: %s\n", nb_error_message());
    free(of.losses);
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
