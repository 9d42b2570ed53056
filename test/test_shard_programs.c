/* test_shard_programs.c - programs of many calls, laid out anyhow and laid out
 * again on the way, and transforms of them, against the same on no mesh.
 *
 * A case is one line: a seed, what is done with the program, a mesh, and which
 * of its calls and of its arguments' layouts are left, as bits,
 *
 *     17 grad 2x4 3fffffffff 7
 *
 * One that fails is made smaller and printed; such a line as the argument is
 * run alone, and what is done, as "grad", does so with all.
 * NABLA_SHARD_PROGRAMS is how many are run, NABLA_SHARD_SEED the first seed. */
#include "support/check.h"
#include "support/laid.h"
#include "support/ranks.h"
#include "support/recipe.h"

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
    LOOP,
    COMPILED,
    MODES
} mode;
static const char *const mode_name[MODES] = {
    "value",        "grad",       "jvp",    "vmap", "vmap2",   "vmap_of_grad",
    "grad_of_vmap", "checkpoint", "second", "scan", "compiled"};

typedef struct program {
    unsigned seed;
    mode mode;
    char mesh[16];
    uint64_t live;
    unsigned laid;
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

static int lanes_of(mode m)
{
    if (m == BATCH2) return 2;
    return m == BATCH || m == BATCH_OF_GRAD || m == GRAD_OF_BATCH || m == LOOP;
}

/* A loop of the program over two of its arguments, the first of the third
 * carried along. */
static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *in[] = {x[1], x[2], x[0]}, *out[2];
    int n = 2;
    nb_status status = recipe_body(ctx, nx, in, &n, out);
    if (status != NB_OK) return status;
    y[0] = nb_tanh(nb_add(x[0], out[0]));
    y[1] = out[0];
    return *ny = 2, NB_OK;
}

static nb_status loop(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *carry = nb_mean(x[2], 1, (int64_t[]){0}, false), *out[2];
    int n = 2;
    (void)nx;
    nb_status status =
        nb_scan(nb_func_new(turn, ctx), 1, &carry, 2, x, 3, false, &n, out);
    if (status != NB_OK) return status;
    y[0] = nb_add(nb_mean(out[0], -1, NULL, false),
                  nb_mean(out[1], -1, NULL, false));
    return *ny = 1, NB_OK;
}

static nb_func *function(const program *p, recipe *r)
{
    static const int all[] = {0, 1, 2};
    nb_func *f = nb_func_new(recipe_body, r);
    int axes[] = {0, 0, 0};
    nb_vmap_options mapped = {.nin = 3, .in_axes = axes};
    if (p->seed % 3 == 0) axes[2] = NB_UNMAPPED;
    if (p->seed % 6 == 3) axes[1] = NB_UNMAPPED;
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
    case LOOP: return nb_value_and_grad(nb_func_new(loop, r), 3, all);
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
    recipe_inputs(lanes_of(p->mode), x);
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
    bool inner = p->mode == AGAIN || p->mode == LOOP || p->mode == SECOND;
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
    return k < 3;
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
    printf("%sFAIL %s\n     %u %s %s %llx %x\n    ", rank_prefix(), why,
           p->seed, mode_name[p->mode], p->mesh, (unsigned long long)p->live,
           p->laid);
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

static bool program_read(program *p, const char *line)
{
    char name[32];
    unsigned long long live;
    *p = (program){0};
    if (sscanf(line, "%u %31s %15s %llx %x", &p->seed, name, p->mesh, &live,
               &p->laid) != 5)
        return false;
    p->live = live;
    p->mode = mode_of(name);
    return p->mode < MODES;
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
        p = (program){.seed = first + (unsigned)i, .live = ~(uint64_t)0};
        p.mode = i % 50 == 49 ? COMPILED : (mode)(i % COMPILED);
        if (argc > 1) p.mode = mode_of(argv[1]);
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
