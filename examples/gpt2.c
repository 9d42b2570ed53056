/* gpt2.c - GPT-2 trained from token files: bfloat16 in the products, float32 in
 * the weights.
 *
 * The model is a function of an array of parameters, which are saved by the names
 * of GPT-2's own files.  One step of training (the loss of some batches, its
 * gradient, clipping, AdamW) is one compiled program; parameters and averages
 * stay where they are in memory.  On a card, with a file of the kind that
 * nanoGPT and llm.c make:
 *
 *     build/examples/gpt2 --device gpu --data fineweb.bin --batch 32 \
 *         --accumulate 16 --steps 19000 --save 1000 --peak 989
 *
 * gpt2.py is the same in Python and gives the same numbers.
 *
 * Ops return NULL after a failure and pass it on, so errors are looked for where
 * a value is needed, and told in main. */
#include "common/tokens.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static const double pi = 3.14159265358979323846;
static const double decay = 0.1, clip = 1,
                    least = 0.1; /* of the rate, at last */

typedef struct options {
    int layers, heads, width, context, vocabulary;
    int batch, accumulate, steps, warmup, seed, save;
    double rate, peak;
    nb_dtype dtype; /* of the products */
    const char *data, *out, *resume;
} options;

/* Where the parameters are: some of the model, pairs of weights and biases of
 * each layer. */
enum { LN_1, ATTN, ATTN_PROJ, LN_2, FC, FC_PROJ, PARTS };
enum { WTE, WPE, FIRST, MOST_LAYERS = 48, NAME = 40, PATH = 512 };
enum { MOST = FIRST + (2 * PARTS) * MOST_LAYERS + 2 };

/* What each part multiplies or adds to, in widths. */
static const struct {
    const char *name;
    int in, out;
} part[PARTS] = {{"ln_1", 0, 1}, {"attn.c_attn", 1, 3}, {"attn.c_proj", 1, 1},
                 {"ln_2", 0, 1}, {"mlp.c_fc", 1, 4},    {"mlp.c_proj", 4, 1}};

/* A rank and a shape, as ops take them. */
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})
#define LAST       SHAPE(-1)

/* The model. */

static int final_norm(const options *o)
{
    return FIRST + 2 * PARTS * o->layers;
}

static int count_params(const options *o)
{
    return final_norm(o) + 2;
}

/* Gains are one, biases zero, matrices normal; those that end in the residual
 * stream are smaller the more of them there are.  The vocabulary is rounded up,
 * so that products have even sizes. */
static nb_tensor *first(const options *o, int i, nb_tensor *key)
{
    int64_t wide = o->width, rows = (o->vocabulary + 127) / 128 * 128;
    if (i < FIRST)
        return nb_random_normal(key, SHAPE(i == WTE ? rows : o->context, wide),
                                0, 0.02, NB_F32);
    int k = (i - FIRST) / 2 % PARTS;
    bool of_layer = i < final_norm(o), is_bias = (i - FIRST) % 2;
    int in = of_layer ? part[k].in : 0, out = of_layer ? part[k].out : 1;
    if (is_bias || !in)
        return nb_full(SHAPE(out * wide), nb_num(!is_bias), NB_F32);
    bool ends = k == ATTN_PROJ || k == FC_PROJ;
    double calm = ends ? sqrt(2 * o->layers) : 1;
    return nb_random_normal(key, SHAPE(in * wide, out * wide), 0, 0.02 / calm,
                            NB_F32);
}

static nb_tensor *norm(nb_tensor *x, nb_tensor *const *p)
{
    nb_tensor *y = nb_cast(x, NB_F32);
    y = nb_sub(y, nb_mean(y, LAST, true));
    nb_tensor *var = nb_mean(nb_mul(y, y), LAST, true);
    y = nb_mul(y, nb_rsqrt(nb_add(var, nb_num(1e-5))));
    return nb_cast(nb_add(nb_mul(y, p[0]), p[1]), nb_dtype_of(x));
}

static nb_tensor *linear(nb_tensor *x, nb_tensor *const *p)
{
    nb_dtype d = nb_dtype_of(x);
    return nb_add(nb_matmul(x, nb_cast(p[0], d)), nb_cast(p[1], d));
}

static nb_tensor *attention(nb_tensor *x, nb_tensor *const *p, int heads)
{
    int64_t b = nb_size(x, 0), t = nb_size(x, 1), wide = nb_size(x, 2);
    nb_tensor *all = linear(x, p + 2 * ATTN), *qkv[3] = {NULL};
    all = nb_reshape(all, SHAPE(b, t, 3, heads, wide / heads));
    nb_unbind(nb_permute(all, SHAPE(2, 0, 3, 1, 4)), 0, qkv);
    nb_tensor *score = nb_matmul(qkv[0], nb_swap_axes(qkv[1], -1, -2));
    score = nb_div(nb_cast(score, NB_F32), nb_num(sqrt((int)(wide / heads))));
    nb_tensor *past = nb_tril(nb_ones(SHAPE(t, t), NB_BOOL), 0);
    nb_tensor *weight = nb_softmax(nb_where(past, score, nb_num(-1e9)), -1);
    nb_tensor *mix = nb_matmul(nb_cast(weight, nb_dtype_of(x)), qkv[2]);
    mix = nb_reshape(nb_swap_axes(mix, 1, 2), SHAPE(b, t, wide));
    return linear(mix, p + 2 * ATTN_PROJ);
}

static nb_tensor *mlp(nb_tensor *x, nb_tensor *const *p)
{
    nb_tensor *up = nb_gelu(linear(x, p + 2 * FC), "tanh");
    return linear(up, p + 2 * FC_PROJ);
}

/* The embedding is the head too. */
static nb_tensor *logits(const options *o, nb_tensor *const *p,
                         nb_tensor *tokens)
{
    nb_key begin = NB_RANGE(NB_OPEN, nb_size(tokens, 1), NB_OPEN);
    nb_tensor *x = nb_gather(p[WTE], tokens, 0);
    x = nb_cast(nb_add(x, nb_get(p[WPE], 1, &begin)), o->dtype);
    for (int i = 0; i < o->layers; i++) {
        nb_tensor *const *l = p + FIRST + 2 * PARTS * i;
        x = nb_add(x, attention(norm(x, l + 2 * LN_1), l, o->heads));
        x = nb_add(x, mlp(norm(x, l + 2 * LN_2), l));
    }
    nb_tensor *head = nb_swap_axes(nb_cast(p[WTE], o->dtype), 0, 1);
    return nb_matmul(norm(x, p + final_norm(o)), head);
}

/* (parameters, windows) -> how surprised the model is by each next token, in
 * nats. */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_key but_last[] = {NB_ALL, NB_RANGE(NB_OPEN, -1, NB_OPEN)};
    nb_key but_first[] = {NB_ALL, NB_RANGE(1, NB_OPEN, NB_OPEN), NB_NEWAXIS};
    nb_tensor *windows = x[nx - 1], *next = nb_get(windows, 3, but_first);
    nb_tensor *score = logits(ctx, x, nb_get(windows, 2, but_last));
    score = nb_cast(score, NB_F32);
    nb_tensor *right = nb_take_along_axis(score, next, -1);
    nb_tensor *all = nb_logsumexp(score, LAST, true);
    y[0] = nb_mean(nb_sub(all, right), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* Training. */

typedef struct batches {
    options *o;
    nb_tensor *const *p;
} batches;

/* Into y the loss of one batch and the gradients. */
static nb_status slope_of_one(const batches *of, nb_tensor *windows,
                              nb_tensor **y)
{
    nb_tensor *x[MOST + 1];
    int by[MOST], n = count_params(of->o), ny = n + 1;
    for (int i = 0; i < n; i++)
        by[i] = i;
    memcpy(x, of->p, (size_t)n * sizeof *x);
    x[n] = windows;
    nb_func *f = nb_value_and_grad(nb_func_new(loss, of->o), n, by);
    return nb_func_call(f, n + 1, x, &ny, y);
}

/* (totals, windows) -> (totals) */
static nb_status add_one(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    nb_status status = slope_of_one(ctx, x[nx - 1], y);
    *ny = nx - 1;
    for (int i = 0; status == NB_OK && i < *ny; i++)
        y[i] = nb_add(x[i], y[i]);
    return status;
}

/* The same for batches taken one by one, as means. */
static nb_status slope(batches *of, nb_tensor *windows, nb_tensor **y)
{
    nb_key only = NB_AT(0);
    int n = count_params(of->o), ny = n + 1, times = of->o->accumulate;
    nb_tensor *nothing[MOST + 1] = {nb_zeros(0, NULL, NB_F32)};
    if (times == 1) return slope_of_one(of, nb_get(windows, 1, &only), y);
    for (int i = 0; i < n; i++)
        nothing[1 + i] = nb_full_like(of->p[i], nb_num(0));
    nb_status status = nb_scan(nb_func_new(add_one, of), n + 1, nothing, 1,
                               &windows, 0, false, &ny, y);
    for (int i = 0; status == NB_OK && i < n + 1; i++)
        y[i] = nb_div(y[i], nb_num(times));
    return status;
}

/* The rate climbs during the warm-up, then falls along a cosine. */
static nb_tensor *rate_at(const options *o, nb_tensor *t)
{
    int climbs = o->warmup, falls = o->steps - climbs;
    nb_tensor *gone = nb_div(nb_sub(t, nb_num(climbs)), nb_num(fmax(falls, 1)));
    nb_tensor *turn = nb_cos(nb_mul(nb_num(pi), gone));
    turn = nb_add(nb_num(0.5), nb_mul(nb_num(0.5), turn));
    turn = nb_add(nb_num(least), nb_mul(nb_num(1 - least), turn));
    nb_tensor *climb = nb_div(nb_add(t, nb_num(1)), nb_num(fmax(climbs, 1)));
    nb_tensor *early = nb_less(t, nb_num(climbs));
    return nb_mul(nb_num(o->rate), nb_where(early, climb, turn));
}

static nb_tensor *blend(nb_tensor *old, nb_tensor *fresh, double keep)
{
    return nb_add(nb_mul(nb_num(keep), old), nb_mul(nb_num(1 - keep), fresh));
}

/* The factor by which gradients are clipped together. */
static nb_tensor *clip_of(int n, nb_tensor *const *g)
{
    nb_tensor *sum = nb_num(0);
    for (int i = 0; i < n; i++)
        sum = nb_add(sum, nb_reduce_sum(nb_mul(g[i], g[i]), -1, NULL, false));
    return nb_div(nb_num(clip), nb_maximum(nb_sqrt(sum), nb_num(clip)));
}

/* AdamW on p, m, v at x, n each, into y; decay is for matrices. */
static void adamw(const options *o, nb_tensor *const *x, nb_tensor *const *g,
                  nb_tensor *t, nb_tensor **y)
{
    int n = count_params(o);
    nb_tensor *scale = clip_of(n, g), *rate = rate_at(o, t);
    nb_tensor *count = nb_add(t, nb_num(1));
    nb_tensor *a = nb_sub(nb_num(1), nb_pow(nb_num(0.9), count));
    nb_tensor *b = nb_sub(nb_num(1), nb_pow(nb_num(0.95), count));
    for (int i = 0; i < n; i++) {
        nb_tensor *p = x[i], *grad = nb_mul(g[i], scale);
        nb_tensor *m = blend(x[n + i], grad, 0.9);
        nb_tensor *v = blend(x[2 * n + i], nb_square(grad), 0.95);
        nb_tensor *size = nb_add(nb_sqrt(nb_div(v, b)), nb_num(1e-8));
        nb_tensor *move = nb_div(nb_div(m, a), size);
        if (nb_rank(p) > 1) move = nb_add(move, nb_mul(nb_num(decay), p));
        y[i] = nb_sub(p, nb_mul(rate, move));
        y[n + i] = m;
        y[2 * n + i] = v;
    }
}

/* (p, m, v, windows, t) -> (p, m, v, loss) */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    options *o = ctx;
    nb_tensor *out[MOST + 1];
    nb_status status = slope(&(batches){o, x}, x[nx - 2], out);
    if (status != NB_OK) return status;
    adamw(o, x, out + 1, nb_cast(x[nx - 1], NB_F32), y);
    y[nx - 2] = out[0];
    *ny = nx - 1;
    return NB_OK;
}

/* Files. */

typedef struct names {
    char text[3 * MOST][NAME];
    const char *at[3 * MOST];
} names;

/* Of p, m and v, which what stands before tells apart. */
static void name_all(const options *o, names *all)
{
    static const char *const before[] = {"", "m.", "v."};
    int n = count_params(o);
    for (int j = 0; j < 3 * n; j++) {
        int i = j % n, k = (i - FIRST) / 2;
        const char *what = before[j / n], *kind = i % 2 ? "bias" : "weight";
        char *to = all->text[j];
        if (i < FIRST)
            snprintf(to, NAME, "%s%s.weight", what, i == WTE ? "wte" : "wpe");
        else if (i >= final_norm(o))
            snprintf(to, NAME, "%sln_f.%s", what, kind);
        else
            snprintf(to, NAME, "%sh.%d.%s.%s", what, k / PARTS,
                     part[k % PARTS].name, kind);
        all->at[j] = to;
    }
}

static void save(const options *o, int t, nb_tensor *const *state)
{
    names all;
    char path[PATH], number[12];
    const char *key = "step", *value = number;
    name_all(o, &all);
    snprintf(path, PATH, "%s/gpt2-%d.safetensors", o->out, t);
    snprintf(number, sizeof number, "%d", t);
    mkdir(o->out, 0777);
    if (nb_save(path, 3 * count_params(o), all.at, state, 1, &key, &value) ==
        NB_OK)
        printf("wrote %s\n", path);
}

/* What was trained before: the step. */
static int resume(const options *o, nb_tensor **state)
{
    names all;
    nb_file *f = NULL;
    int t = 0, n = 3 * count_params(o), device = nb_default_device();
    if (nb_load(o->resume, &f)) return 0;
    name_all(o, &all);
    for (int i = 0; i < n; i++)
        state[i] = nb_to_device(nb_file_get(f, all.at[i]), device);
    for (int i = 0; i < nb_file_notes(f); i++)
        if (strcmp(nb_file_note_key(f, i), "step") == 0)
            t = atoi(nb_file_note(f, i));
    nb_realize_all(n, state);
    nb_file_free(f);
    return t;
}

/* That, or a new model; kept. */
static int start(const options *o, nb_tensor **state)
{
    nb_tensor *keys[MOST] = {NULL};
    int n = count_params(o), t = 0;
    if (o->resume) {
        t = resume(o, state);
    } else {
        nb_unbind(nb_random_split(nb_random_key(o->seed), n), 0, keys);
        for (int i = 0; i < n; i++)
            state[i] = first(o, i, keys[i]);
        for (int i = n; i < 3 * n; i++)
            state[i] = nb_full_like(state[i - n], nb_num(0));
        nb_realize_all(3 * n, state);
    }
    for (int i = 0; i < 3 * n; i++)
        nb_keep(state[i]);
    return t;
}

/* What is seen of it. */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double count_weights(const options *o, nb_tensor *const *p)
{
    double sum = 0;
    for (int i = 0; i < count_params(o); i++)
        sum += (double)nb_elements(p[i]);
    return sum;
}

/* Operations a token: six a weight that multiplies, and the attention. */
static double work(const options *o, nb_tensor *const *p)
{
    double weights = count_weights(o, p) - (double)nb_elements(p[WPE]);
    return 6 * weights + 12.0 * o->layers * o->width * o->context;
}

static void show(const options *o, int t, double value, double seconds,
                 double each)
{
    double speed = (double)(o->accumulate * o->batch) * o->context / seconds;
    printf("step %d/%d  loss %.4f  %.1f ms  %.0f tokens/s", t, o->steps, value,
           1e3 * seconds, speed);
    if (o->peak) printf("  mfu %.1f %%", 100 * speed * each / (1e12 * o->peak));
    putchar('\n');
    fflush(stdout);
}

/* What a step takes beside the state: windows of the text, and t. */
static void feed(const options *o, const token_file *text, int t, nb_tensor **x)
{
    int64_t rows = (int64_t)o->accumulate * o->batch;
    x[0] = windows_of(text, t * rows,
                      SHAPE(o->accumulate, o->batch, o->context + 1),
                      o->vocabulary);
    x[0] = nb_to_device(x[0], nb_default_device());
    x[1] = nb_to_device(nb_scalar_int(t, NB_I64), nb_default_device());
}

/* A step on the state, which is replaced; the loss. */
static double advance(const options *o, nb_executable *e, nb_tensor **state)
{
    int n = 3 * count_params(o), ny = n + 1;
    nb_tensor *y[3 * MOST + 1];
    if (nb_executable_run(e, n + 2, state, &ny, y)) return 0;
    for (int i = 0; i < n; i++) {
        nb_drop(state[i]);
        state[i] = nb_keep(y[i]);
    }
    return nb_item(y[n]);
}

/* A whole step is one program; the new state takes the place of the old one in
 * memory. */
static nb_executable *compile(options *o, nb_tensor *const *x)
{
    int n = 3 * count_params(o), given[3 * MOST];
    nb_executable *e = NULL;
    for (int i = 0; i < n; i++)
        given[i] = i;
    if (nb_executable_new(nb_func_new(step, o), n + 2, x, &e) == NB_OK)
        nb_executable_donate(e, n, given);
    return e;
}

static void train(options *o, const token_file *text)
{
    nb_tensor *state[3 * MOST + 2] = {NULL};
    int t = start(o, state), n = 3 * count_params(o);
    nb_executable *e = NULL;
    double each = work(o, state), begin = now();
    if (!nb_error_code()) printf("%.0f parameters\n", count_weights(o, state));
    for (; !nb_error_code() && t < o->steps; begin = now()) {
        nb_scope_open();
        feed(o, text, t++, state + n);
        if (!e) e = compile(o, state);
        double value = e ? advance(o, e, state) : 0;
        if (!nb_error_code()) show(o, t, value, now() - begin, each);
        bool due = t == o->steps || (o->save && t % o->save == 0);
        if (due && !nb_error_code()) save(o, t, state);
        nb_scope_close(0, NULL);
    }
    nb_executable_drop(e);
    for (int i = 0; i < n; i++)
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

static bool read_options(options *o, char **argv)
{
    const struct {
        const char *name;
        char *otherwise;
        int *to;
    } numbers[] = {{"--layers", "12", &o->layers},
                   {"--heads", "12", &o->heads},
                   {"--width", "768", &o->width},
                   {"--context", "1024", &o->context},
                   {"--vocabulary", "50257", &o->vocabulary},
                   {"--batch", "4", &o->batch},
                   {"--accumulate", "1", &o->accumulate},
                   {"--steps", "10", &o->steps},
                   {"--warmup", "700", &o->warmup},
                   {"--seed", "0", &o->seed},
                   {"--save", "0", &o->save}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i].to =
            atoi(option(argv, numbers[i].name, numbers[i].otherwise));
    o->rate = atof(option(argv, "--rate", "6e-4"));
    o->peak = atof(option(argv, "--peak", "0"));
    o->dtype = nb_dtype_find(option(argv, "--dtype", "bfloat16"));
    o->data = option(argv, "--data", "examples/data/sonnets.txt");
    o->out = option(argv, "--out", "build/gpt2-c");
    o->resume = option(argv, "--resume", NULL);
    bool known = o->layers <= MOST_LAYERS && o->heads > 0;
    while (*++argv)
        known = known && !**argv;
    return known;
}

int main(int argc, char **argv)
{
    options o = {0};
    token_file text = {0};
    bool card = strcmp(option(argv, "--device", "cpu"), "gpu") == 0;
    (void)argc;
    if (!read_options(&o, argv)) {
        puts("gpt2 [--data FILE] [--out FOLDER] [--resume FILE] [--save N]\n"
             "     [--device cpu|gpu] [--dtype NAME] [--peak TFLOPS]\n"
             "     [--layers N] [--heads N] [--width N] [--context N]\n"
             "     [--vocabulary N] [--batch N] [--accumulate N] [--steps N]\n"
             "     [--warmup N] [--rate X] [--seed N]");
        return 2;
    }
    nb_scope_open();
    if (!card || nb_default_device_set(1) == NB_OK)
        if (read_tokens(&text, o.data)) train(&o, &text);
    close_tokens(&text);
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "gpt2: %s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
