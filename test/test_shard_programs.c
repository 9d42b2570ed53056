/* test_shard_programs.c - programs of many calls, laid out anyhow and laid out
 * again on the way, and transforms of them, against the same on no mesh.
 *
 * A case is one line: a seed, what is done with the program, a mesh, which of
 * its calls and of its arguments' layouts are left, as bits, and what it is the
 * body of,
 *
 *     17 grad 2x4 3fffffffff 7 while
 *
 * One that fails is made smaller and printed; such a line as the argument is
 * run alone, and what is done, as "grad", or what it is in, as "while", does so
 * with all.
 * NABLA_SHARD_PROGRAMS is how many are run, NABLA_SHARD_SEED the first seed. */
#include "support/check.h"
#include "support/laid.h"
#include "support/ranks.h"
#include "support/recipe.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAMS = 1000, MAX_RESULTS = 8 };

static const char *const meshes[] = {"2", "4", "2x2", "2x4", "3x2", "2x2x2"};

typedef enum mode {
    VALUE,
    GRAD,
    PUSH,
    BATCH,
    BATCH2,
    BATCH_OF_GRAD,
    GRAD_OF_BATCH,
    AGAIN,
    SECOND,
    COMPILED,
    MODES
} mode;
static const char *const mode_name[MODES] = {
    "value",        "grad",         "jvp",        "vmap",   "vmap2",
    "vmap_of_grad", "grad_of_vmap", "checkpoint", "second", "compiled"};

/* What the program is the body of. */
typedef enum form { ALONE, OVER, UNTIL, BRANCH, NESTED, FORMS } form;
static const char *const form_name[FORMS] = {"plain", "scan", "while", "cond",
                                             "nest"};

typedef struct program {
    unsigned seed;
    mode mode;
    char mesh[16];
    uint64_t live;
    unsigned laid;
    form form;
} program;

typedef enum verdict { HOLDS, FAILS, INVALID } verdict;

static char why[500];
static int tried, held, failed;
static const nb_mesh *mesh; /* of the program that runs */

static verdict fails(const char *what, const char *text)
{
    snprintf(why, sizeof why, "%s: %s", what, text);
    nb_error_clear();
    return FAILS;
}

static nb_tensor *lay_anyhow(nb_tensor *x, unsigned how)
{
    char text[LAYOUT];
    uniform_seed(how);
    layout_draw(text, mesh, nb_rank(x), nb_dtype_of(x));
    text[strcspn(text, "!")] = 0;
    return *text == '-' ? x : nb_reshard(x, nb_spec_parse(mesh, text));
}

static int lanes_of(const program *p)
{
    mode m = p->mode;
    int n = m == BATCH2
                ? 2
                : m == BATCH || m == BATCH_OF_GRAD || m == GRAD_OF_BATCH;
    return n + (p->form == OVER || p->form == NESTED);
}

/* Forms: the program inside loops and branches.  Each gives a number and, where
 * none is to be differentiated, something as large as its arguments. */

static nb_tensor *mean(nb_tensor *x)
{
    return nb_mean(x, -1, NULL, false);
}

/* The number that the program gives for these. */
static nb_tensor *number_of(void *ctx, nb_tensor *const *x)
{
    nb_tensor *out[2] = {0};
    int n = 2;
    return recipe_body(ctx, RECIPE_IN, x, &n, out) == NB_OK ? out[0] : NULL;
}

/* A number, and y if there is to be more. */
static nb_status done(const recipe *r, nb_tensor *number, nb_tensor *y, int *ny,
                      nb_tensor **to)
{
    to[0] = nb_add(number, mean(y));
    to[1] = y;
    *ny = r->loss ? 1 : 2;
    return to[0] ? NB_OK : nb_error_code();
}

/* (i, c) -> (i + 1, tanh(c + number)); x[0] and x[1] are closed over. */
static nb_status more(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const void *const *with = ctx;
    nb_tensor *const *of = with[1];
    nb_tensor *in[] = {of[0], of[1], x[1]};
    (void)nx;
    y[0] = nb_add(x[0], nb_num(1));
    y[1] = nb_tanh(nb_add(x[1], number_of((void *)with[0], in)));
    return *ny = 2, y[0] && y[1] ? NB_OK : nb_error_code();
}

/* Two or three turns: that is in the data. */
static nb_status enough(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *far = nb_greater(mean(x[1]), nb_num(0.05));
    y[0] = nb_less(x[0], nb_where(far, nb_num(2), nb_num(3)));
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static nb_status until(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    const void *with[] = {ctx, x};
    nb_tensor *init[] = {nb_cast(nb_num(0), NB_F64), x[2]}, *out[2];
    (void)nx;
    nb_status status = nb_while(nb_func_new(enough, NULL),
                                nb_func_new(more, with), 2, init, out);
    return status == NB_OK ? done(ctx, out[0], out[1], ny, y) : status;
}

static nb_status yes(void *ctx, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    nb_tensor *n = number_of(ctx, x);
    (void)nx;
    y[0] = n;
    y[1] = nb_tanh(nb_add(x[0], n));
    return *ny = 2, y[0] && y[1] ? NB_OK : nb_error_code();
}

/* The other branch lays its result out by itself. */
static nb_status no(void *ctx, int nx, nb_tensor *const *x, int *ny,
                    nb_tensor **y)
{
    const recipe *r = ctx;
    (void)nx;
    y[0] = nb_sin(mean(x[1]));
    y[1] = nb_mul(x[0], nb_sin(mean(x[2])));
    if (r->lay) y[1] = r->lay(y[1], (unsigned)r->n);
    return *ny = 2, y[0] && y[1] ? NB_OK : nb_error_code();
}

static nb_status branch(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *out[2];
    int n = 2;
    nb_status status =
        nb_cond(nb_greater(mean(x[2]), nb_num(0)), nb_func_new(yes, ctx),
                nb_func_new(no, ctx), nx, x, &n, out);
    return status == NB_OK ? done(ctx, out[0], out[1], ny, y) : status;
}

/* A loop over two of the arguments, a mean of the third carried along. */
static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *in[] = {x[1], x[2], x[0]};
    (void)nx;
    y[1] = number_of(ctx, in);
    y[0] = nb_tanh(nb_add(x[0], y[1]));
    return *ny = 2, y[0] ? NB_OK : nb_error_code();
}

static nb_status nested(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const recipe *r = ctx;
    nb_tensor *in[] = {x[1], x[2], x[0]}, *out[2];
    int n = 2;
    (void)nx;
    nb_status status = r->n % 2 ? branch(ctx, RECIPE_IN, in, &n, out)
                                : until(ctx, RECIPE_IN, in, &n, out);
    if (status != NB_OK) return status;
    y[0] = nb_tanh(nb_add(x[0], out[0]));
    y[1] = out[0];
    return *ny = 2, NB_OK;
}

static nb_status over(void *ctx, nb_body *body, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *carry = nb_mean(x[2], 1, (int64_t[]){0}, false), *out[2];
    int n = 2;
    nb_status status = nb_scan(nb_func_new(body, ctx), 1, &carry, 2, x,
                               nb_size(x[0], 0), false, &n, out);
    return status == NB_OK ? done(ctx, mean(out[1]), out[0], ny, y) : status;
}

static nb_status scanned(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)nx;
    return over(ctx, turn, x, ny, y);
}

static nb_status scanned_nest(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    (void)nx;
    return over(ctx, nested, x, ny, y);
}

static nb_body *const form_body[FORMS] = {recipe_body, scanned, until, branch,
                                          scanned_nest};

static nb_func *function(const program *p, recipe *r)
{
    static const int all[] = {0, 1, 2};
    nb_func *f = nb_func_new(form_body[p->form], r);
    int axes[] = {0, 0, 0};
    nb_vmap_options mapped = {.nin = 3, .in_axes = axes};
    if (p->seed % 3 == 0) axes[2] = NB_UNMAPPED;
    bool runs = p->form == OVER || p->form == NESTED;
    if (p->seed % 6 == 3 && !runs) axes[1] = NB_UNMAPPED;
    r->smooth = p->mode != VALUE && p->mode != COMPILED;
    r->loss = p->mode != VALUE && p->mode != BATCH && p->mode != BATCH2 &&
              p->mode != COMPILED;
    switch (p->mode) {
    case GRAD: return nb_value_and_grad(f, 3, all);
    case PUSH: return nb_jvp(f);
    case BATCH: return nb_vmap(f, &mapped);
    case BATCH2: return nb_vmap(nb_vmap(f, &mapped), &mapped);
    case BATCH_OF_GRAD: return nb_vmap(nb_grad(f, 3, all), &mapped);
    case GRAD_OF_BATCH: return nb_grad(nb_vmap(f, &mapped), 3, all);
    case AGAIN: return nb_value_and_grad(nb_checkpoint(f, NULL), 3, all);
    case SECOND: return nb_jvp(nb_grad(f, 3, all));
    default: return f;
    }
}

static nb_status call(const program *p, nb_func *f, int nx, nb_tensor *const *x,
                      int *ny, nb_tensor **y)
{
    nb_executable *e = NULL;
    if (p->mode != COMPILED) return nb_func_call(f, nx, x, ny, y);
    nb_status status = nb_executable_new(f, nx, x, &e);
    if (status == NB_OK) status = nb_executable_run(e, nx, x, ny, y);
    nb_executable_drop(e);
    return status;
}

/* Arguments, and the same on the mesh: those with a layout. */
static bool arguments(const program *p, int n, nb_tensor **x, nb_tensor **on)
{
    char text[2 * RECIPE_IN][LAYOUT];
    recipe_inputs(lanes_of(p), x);
    for (int i = 0; i < n; i++) {
        if (i >= RECIPE_IN) x[i] = draw_like(x[i - RECIPE_IN], -1, 1);
        layout_draw(text[i], mesh, nb_rank(x[i]), NB_F64);
    }
    for (int i = 0; i < n; i++) {
        on[i] = p->laid >> i & 1 ? lay(x[i], mesh, text[i]) : x[i];
        if (!on[i]) return false;
    }
    return true;
}

static verdict compare(const program *p, recipe *r, int n, nb_tensor **x,
                       nb_tensor **on)
{
    nb_tensor *y[MAX_RESULTS], *z[MAX_RESULTS];
    int ny = MAX_RESULTS, nz = MAX_RESULTS;
    nb_func *f = function(p, r);
    program plain = *p;
    if (p->mode == COMPILED) plain.mode = VALUE;
    if (call(&plain, f, n, x, &ny, y) != NB_OK ||
        nb_realize_all(ny, y) != NB_OK)
        return fails("the plain program", nb_error_message());
    r->lay = lay_anyhow;
    if (call(p, f, n, on, &nz, z) != NB_OK || nz != ny)
        return fails("call", nb_error_message());
    traffic t = {0};
    nb_comm_stats_reset(mesh);
    if (!traffic_of_calls(&t, nz, z))
        return fails("pricing", nb_error_message());
    if (nb_realize_all(nz, z) != NB_OK)
        return fails("running", nb_error_message());
    /* Of programs within programs only the outer one is counted; and what an
     * outer differentiation still holds is computed as a result too. */
    bool inner = p->mode == AGAIN || p->mode == SECOND || p->form != ALONE;
    const char *moved = inner ? NULL : traffic_check(&t, mesh);
    if (moved) return fails("traffic", moved);
    for (int k = 0; k < ny; k++) {
        const char *bad = blocks_check(z[k], y[k], 1e-8);
        if (bad) return fails(k ? "a result" : "the first result", bad);
    }
    return HOLDS;
}

static verdict program_run(const program *p, recipe *r)
{
    nb_tensor *x[2 * RECIPE_IN], *on[2 * RECIPE_IN];
    int n = p->mode == PUSH || p->mode == SECOND ? 2 * RECIPE_IN : RECIPE_IN;
    mesh = mesh_sized(p->mesh);
    if (!ranks_share(mesh)) return INVALID;
    nb_scope_open();
    uniform_seed(p->seed);
    *r = recipe_draw();
    r->live = p->live;
    verdict v = arguments(p, n, x, on)
                    ? compare(p, r, n, x, on)
                    : fails("an argument", nb_error_message());
    nb_scope_close(0, NULL);
    nb_error_clear();
    if (ranks_agree(v != FAILS)) return v;
    return v == FAILS ? v : fails("elsewhere", "see what other ranks say");
}

/* A program a little smaller, number k; false: there is no such. */
static bool smaller(const program *p, int k, program *out)
{
    *out = *p;
    if (k < MAX_CALLS) return out->live &= ~((uint64_t)1 << k), true;
    k -= MAX_CALLS;
    if (k < 2 * RECIPE_IN) return out->laid &= ~(1u << k), true;
    k -= 2 * RECIPE_IN;
    if (k == 0) out->mode = VALUE;
    if (k == 1) strcpy(out->mesh, "2");
    if (k == 2) strcpy(out->mesh, "2x2");
    if (k == 3) out->form = ALONE;
    return k < 4;
}

static void shrink(program *p, recipe *r)
{
    program next;
    char kept[sizeof why];
    bool again = true;
    for (int turn = 0; again && turn < 4; turn++) {
        again = false;
        for (int k = 0; smaller(p, k, &next); k++) {
            if (!memcmp(&next, p, sizeof next)) continue;
            memcpy(kept, why, sizeof why);
            if (program_run(&next, r) == FAILS) {
                *p = next;
                again = true;
            } else
                memcpy(why, kept, sizeof why);
        }
    }
}

static void program_try(program *p)
{
    recipe r;
    verdict v = program_run(p, &r);
    tried++;
    held += v == HOLDS;
    if (v != FAILS) return;
    failed++;
    shrink(p, &r);
    program_run(p, &r);
    printf("%sFAIL %s\n     %u %s %s %llx %x %s\n    ", rank_prefix(), why,
           p->seed, mode_name[p->mode], p->mesh, (unsigned long long)p->live,
           p->laid, form_name[p->form]);
    recipe_print(&r);
    fflush(stdout);
}

static mode mode_of(const char *name)
{
    int m = 0;
    while (m < MODES && strcmp(name, mode_name[m]))
        m++;
    return (mode)m;
}

static form form_of(const char *name)
{
    int f = 0;
    while (f < FORMS && strcmp(name, form_name[f]))
        f++;
    return (form)f;
}

static bool program_read(program *p, const char *line)
{
    char name[32], of[32] = "plain";
    unsigned long long live;
    *p = (program){0};
    if (sscanf(line, "%u %31s %15s %llx %x %31s", &p->seed, name, p->mesh,
               &live, &p->laid, of) < 5)
        return false;
    p->live = live;
    p->mode = mode_of(name);
    p->form = form_of(of);
    return p->mode < MODES && p->form < FORMS;
}

static int number(const char *name, int otherwise)
{
    const char *v = getenv(name);
    return v ? atoi(v) : otherwise;
}

int main(int argc, char **argv)
{
    program p;
    unsigned first = (unsigned)number("NABLA_SHARD_SEED", 1);
    int n = number("NABLA_SHARD_PROGRAMS", PROGRAMS);
    if (argc > 1 && program_read(&p, argv[1])) {
        program_try(&p);
        n = 0;
    }
    for (int i = 0; i < n && failed < 10; i++) {
        /* Compiling takes its time: every fiftieth. */
        if (!there_takes()) continue;
        p = (program){.seed = first + (unsigned)i, .live = ~(uint64_t)0};
        p.mode = i % 50 == 49 ? COMPILED : (mode)(i % COMPILED);
        int round = i / COMPILED / 6; /* of all meshes */
        p.form = round % 2 ? (form)(1 + round / 2 % 4) : ALONE;
        if (argc > 1 && form_of(argv[1]) < FORMS)
            p.form = form_of(argv[1]);
        else if (argc > 1)
            p.mode = mode_of(argv[1]);
        if (p.mode == MODES) break;
        strcpy(p.mesh, meshes[(i / COMPILED) % 6]);
        p.laid = ~0u;
        program_try(&p);
        if (i % 100 == 99) nb_caches_clear();
    }
    nb_caches_clear();
    int64_t alive = nb_stats_get().nodes_live;
    if (alive)
        printf("%sFAIL %lld nodes are still alive\n", rank_prefix(),
               (long long)alive);
    failed += !ranks_agree(!alive);
    if (rank_speaks()) printf("%d programs\n", tried);
    return ranks_tally(held, failed);
}
