/* test_cuda_custom.c - kernels of users' own on a card: one text for the CPU and
 * the card gives the same, alone, in programs, graphs, loops and lanes; and what
 * is wrong with a text is said.
 *
 * Runs on the card of the machine, or on the simulated one where there is
 * none; every test in a process of its own. */
#include "backend/cuda/build.h"
#include "backend/cuda/graph.h"
#include "base/memory.h"
#include "core/graph.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define INCLUDE "#include <nabla/kernel.h>\n"

/* One text for both. */
static const char kernels[] = INCLUDE
    "#include <math.h>\n"
    "NB_MAP1(twice, x, x + x)\n"
    "NB_MAP2(less, x, y, x - y)\n"
    "NB_MAP3(blend, x, y, z, x * y + z)\n"
    "NB_KERNEL(total)\n"
    "{\n"
    "    int64_t n = nb_row_size(nb_in(a, 0));\n"
    "    NB_ROWS(a, r)\n"
    "    {\n"
    "        const double *x = NB_ROW(double, nb_in(a, 0), r);\n"
    "        double sum = 0;\n"
    "        for (int64_t k = 0; k < n; k++)\n"
    "            sum += x[k];\n"
    "        *NB_ROW(double, nb_out(a, 0), r) = sum;\n"
    "    }\n"
    "}\n"
    "NB_KERNEL(inner)\n"
    "{\n"
    "    int64_t n = nb_row_size(nb_in(a, 0));\n"
    "    NB_ROWS(a, r)\n"
    "    {\n"
    "        const double *x = NB_ROW(double, nb_in(a, 0), r);\n"
    "        const double *y = NB_ROW(double, nb_in(a, 1), r);\n"
    "        double sum = 0;\n"
    "        for (int64_t k = 0; k < n; k++)\n"
    "            sum += x[k] * y[k];\n"
    "        *NB_ROW(double, nb_out(a, 0), r) = sum;\n"
    "        *NB_ROW(double, nb_out(a, 1), r) =\n"
    "            a->attr[0].f * sqrt(sum * sum) + (double)a->attr[1].i;\n"
    "    }\n"
    "}\n"
    "NB_KERNEL(refuse)\n"
    "{\n"
    "    NB_ROWS(a, r)\n"
    "    {\n"
    "        *NB_ROW(double, nb_out(a, 0), r) = 0;\n"
    "        if (*NB_ROW(double, nb_in(a, 0), r) > 2) *a->status = 42;\n"
    "    }\n"
    "}\n";

static const char blocks[] =
    INCLUDE "NB_LAUNCH(block_total, 64, 64 * sizeof(double))\n"
            "NB_KERNEL(block_total)\n"
            "{\n"
            "    extern __shared__ double part[];\n"
            "    int64_t n = nb_row_size(nb_in(a, 0));\n"
            "    int t = threadIdx.x;\n"
            "    if (blockDim.x != 64) *a->status = 5;\n"
            "    NB_BLOCK_ROWS(a, r)\n"
            "    {\n"
            "        const double *x = NB_ROW(double, nb_in(a, 0), r);\n"
            "        double sum = 0;\n"
            "        for (int64_t k = t; k < n; k += blockDim.x)\n"
            "            sum += x[k];\n"
            "        part[t] = sum;\n"
            "        __syncthreads();\n"
            "        for (int m = 32; m > 0; m /= 2) {\n"
            "            if (t < m) part[t] += part[t + m];\n"
            "            __syncthreads();\n"
            "        }\n"
            "        if (t == 0) *NB_ROW(double, nb_out(a, 0), r) = part[0];\n"
            "        __syncthreads();\n"
            "    }\n"
            "}\n";

static char folder[96];

static const char *written(const char *name, const char *text)
{
    static char path[4][128];
    static int turn;
    char *to = path[turn++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    FILE *f = fopen(to, "w");
    need(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return to;
}

/* A card, and a folder with the kernels. */
static void open_all(void)
{
    cards_first();
    snprintf(folder, sizeof folder, "%s/kernels", cards_folder);
    char command[2 * sizeof folder + 32];
    snprintf(command, sizeof command, "rm -rf %s && mkdir %s", folder, folder);
    need(system(command) == 0);
    written("all.c", kernels);
    written("all.cu", kernels);
    written("blocks.cu", blocks);
    need(nb_scope_open() == NB_OK);
}

static bool error_says(nb_status code, const char *text)
{
    bool says = nb_error_code() == code && strstr(nb_error_message(), text);
    if (!says)
        fprintf(stderr, "it says: %d, %s\n", nb_error_code(),
                nb_error_message());
    nb_error_clear();
    return says;
}

static nb_status call(const char *name, const char *path, int nin,
                      nb_tensor *const *in, int nout, const nb_type *type,
                      nb_tensor **y)
{
    nb_named attr[] = {{"f", {.kind = NB_VALUE_FLOAT, .f = 0.5}},
                       {"i", {.kind = NB_VALUE_INT, .i = 4}}};
    return nb_kernel_call(&(nb_kernel_source){name, 1, &path}, nin, in,
                          !strcmp(name, "inner") ? 2 : 0, attr, nout, type, y);
}

/* A result like the first input. */
static nb_tensor *called(const char *name, int nin, nb_tensor *const *in)
{
    nb_type t = {nb_dtype_of(in[0]), nb_rank(in[0]), {0}};
    nb_tensor *y = NULL;
    nb_sizes(in[0], t.shape);
    return call(name, folder, nin, in, 1, &t, &y) == NB_OK ? y : NULL;
}

/* The work of ops by a kernel of that name; rows are the op's. */
static nb_status by_rows(const nb_applied *c, int *n, nb_tensor **y)
{
    nb_type t[2] = {{nb_dtype_of(c->in[0]), nb_rank(c->in[0]), {0}}};
    const char *name = c->ctx;
    for (int i = 1; i < c->nin; i++)
        if (nb_rank(c->in[i]) > t[0].rank) t[0].rank = nb_rank(c->in[i]);
    for (int d = 1; d <= t[0].rank; d++)
        for (int i = 0; i < c->nin; i++) {
            int own = nb_rank(c->in[i]) - d;
            int64_t size = own < 0 ? 1 : nb_size(c->in[i], own);
            int64_t *to = &t[0].shape[t[0].rank - d];
            if (size > *to) *to = size;
        }
    if (strstr(name, "total") || strstr(name, "inner")) t[0].rank--;
    t[1] = t[0];
    *n = strcmp(name, "inner") ? 1 : 2;
    return call(name, folder, c->nin, c->in, *n, t, y);
}

static nb_status total_vjp(const nb_applied *c, nb_tensor *const *ct,
                           nb_tensor **cx)
{
    cx[0] = nb_mul(nb_unsqueeze(ct[0], -1), nb_ones_like(c->in[0]));
    return nb_error_code();
}

static nb_op *op_of(const char *name, const char *signature)
{
    nb_op_spec s = {.name = name,
                    .signature = signature,
                    .body = by_rows,
                    .nout = !strcmp(name, "inner") ? 2 : 1,
                    .whole = true,
                    .ctx = (void *)name};
    if (strstr(name, "total")) s.vjp = total_vjp;
    nb_op *op = nb_op_new(&s);
    need(op);
    return op;
}

static nb_status use(void *op, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    return nb_op_call(op, nx, x, 0, NULL, ny, y);
}

static nb_tensor *numbers(int rank, const int64_t *size, nb_dtype d)
{
    double data[4096];
    int64_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= size[k];
    need(n <= 4096);
    for (int64_t k = 0; k < n; k++)
        data[k] = (double)(k * 7 % 23) / (d == NB_F64 ? 4 : 1);
    return nb_cast(nb_constant(NB_F64, rank, size, data), d);
}

static nb_tensor *there(nb_tensor *x)
{
    return nb_to_device(x, 1);
}

/* Both, read as f64. */
static bool are_equal(nb_tensor *here, nb_tensor *far)
{
    static double a[8192], b[8192];
    if (!here || !far) return false;
    int64_t n = nb_elements(here);
    if (nb_device_of(far) != 1 || n != nb_elements(far) || n > 8192 ||
        nb_dtype_of(here) != nb_dtype_of(far))
        return false;
    if (nb_read(here, NB_F64, a) != NB_OK || nb_read(far, NB_F64, b) != NB_OK)
        return false;
    for (int64_t k = 0; k < n; k++)
        if (fabs(a[k] - b[k]) > 1e-12 * (1 + fabs(a[k]))) return false;
    return true;
}

/* A function of one result, on the CPU and on the card. */
static bool agrees(nb_func *f, int nx, nb_tensor *const *x)
{
    nb_tensor *far[4];
    for (int i = 0; i < nx; i++)
        far[i] = there(x[i]);
    return are_equal(nb_func_call1(f, nx, x), nb_func_call1(f, nx, far));
}

CARD_TEST(maps_take_every_dtype, "")
{
    open_all();
    static const nb_dtype all[] = {NB_I8,  NB_I16,  NB_I32, NB_I64,
                                   NB_U8,  NB_U16,  NB_U32, NB_U64,
                                   NB_F16, NB_BF16, NB_F32, NB_F64};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        nb_tensor *x = numbers(2, (int64_t[]){5, 700}, all[k]);
        nb_tensor *y = nb_mul(x, nb_cast(nb_num(2), all[k]));
        nb_tensor *here[] = {x, y, x}, *far[] = {there(x), there(y), there(x)};
        need(are_equal(called("twice", 1, here), called("twice", 1, far)));
        need(are_equal(called("less", 2, here), called("less", 2, far)));
        need(are_equal(called("blend", 3, here), called("blend", 3, far)));
    }
    nb_tensor *b = there(nb_cast(numbers(1, (int64_t[]){3}, NB_F64), NB_BOOL));
    need(nb_read(called("twice", 1, &b), NB_NOTYPE, (bool[3]){0}) != NB_OK &&
         error_says(NB_ERUNTIME, "twice: the kernel does not take"));
    nb_scope_close(0, NULL);
}

CARD_TEST(rows_are_cut_from_views, "")
{
    open_all();
    nb_op *less = op_of("less", "..., ... -> ...");
    nb_op *total = op_of("total", "... n -> ...");
    nb_op *block = op_of("block_total", "... n -> ...");
    nb_func *f = nb_func_new(use, total), *g = nb_func_new(use, less);
    nb_tensor *x = numbers(3, (int64_t[]){4, 5, 6}, NB_F64);
    nb_tensor *turned = nb_permute(x, 3, (int64_t[]){2, 0, 1});
    nb_tensor *part = nb_get(x, 2, (nb_key[]){NB_REST, NB_RANGE(1, 6, 2)});
    nb_tensor *wide = nb_broadcast_to(nb_get(x, 1, (nb_key[]){NB_AT(1)}), 3,
                                      (int64_t[]){4, 5, 6});
    nb_tensor *one = nb_broadcast_to(nb_num(3), 2, (int64_t[]){2, 3});
    one = nb_cast(one, NB_F64);
    need(agrees(f, 1, &x) && agrees(f, 1, &turned) && agrees(f, 1, &part) &&
         agrees(f, 1, &wide) && agrees(f, 1, &one));
    nb_tensor *row = nb_get(x, 2, (nb_key[]){NB_AT(0), NB_AT(0)});
    need(agrees(g, 2, (nb_tensor *[]){x, row}));
    need(agrees(g, 2, (nb_tensor *[]){turned, nb_cast(nb_num(2), NB_F64)}));
    nb_tensor *far[] = {there(x), there(turned), there(wide)};
    for (int i = 0; i < 3; i++) {
        nb_tensor *by_threads = NULL, *by_blocks = NULL;
        int n = 1;
        need(nb_op_call(total, 1, &far[i], 0, NULL, &n, &by_threads) == NB_OK);
        need(nb_op_call(block, 1, &far[i], 0, NULL, &n, &by_blocks) == NB_OK);
        double a[256], b[256];
        need(nb_read(by_threads, NB_F64, a) == NB_OK);
        need(nb_read(by_blocks, NB_F64, b) == NB_OK);
        for (int64_t k = 0; k < nb_elements(by_threads); k++)
            need(fabs(a[k] - b[k]) < 1e-12);
    }
    nb_tensor *none = there(nb_zeros(2, (int64_t[]){0, 3}, NB_F64));
    nb_tensor *y = nb_func_call1(f, 1, &none);
    need(y && nb_elements(y) == 0 && nb_realize(y) == NB_OK);
    none = there(nb_zeros(2, (int64_t[]){3, 0}, NB_F64));
    double zero[3] = {1, 1, 1};
    need(nb_read(nb_func_call1(f, 1, &none), NB_F64, zero) == NB_OK);
    need(!zero[0] && !zero[1] && !zero[2]);
    nb_op_drop(less), nb_op_drop(total), nb_op_drop(block);
    nb_scope_close(0, NULL);
}

/* Many axes that cannot be joined: copies take several launches. */
CARD_TEST(views_of_many_axes_are_copied, "")
{
    open_all();
    nb_op *total = op_of("total", "... n -> ...");
    int64_t size[11], back[11];
    for (int d = 0; d < 11; d++) {
        size[d] = d % 2 ? 3 : 2;
        back[d] = 10 - d;
    }
    size[1] = size[3] = size[5] = 1;
    nb_tensor *x = numbers(11, size, NB_F64);
    nb_tensor *turned = nb_permute(x, 11, back);
    need(agrees(nb_func_new(use, total), 1, &turned));
    nb_op_drop(total);
    nb_scope_close(0, NULL);
}

CARD_TEST(results_and_attributes, "")
{
    open_all();
    nb_op *inner = op_of("inner", "... n, ... n -> ..., ...");
    nb_tensor *x = numbers(2, (int64_t[]){3, 4}, NB_F64);
    nb_tensor *y = numbers(1, (int64_t[]){4}, NB_F64);
    nb_tensor *here[2], *far[2];
    int n = 2;
    need(nb_op_call(inner, 2, (nb_tensor *[]){x, y}, 0, NULL, &n, here) ==
         NB_OK);
    need(nb_op_call(inner, 2, (nb_tensor *[]){there(x), there(y)}, 0, NULL, &n,
                    far) == NB_OK);
    need(are_equal(here[0], far[0]) && are_equal(here[1], far[1]));
    nb_op_drop(inner);
    nb_scope_close(0, NULL);
}

static nb_status twice_total(void *op, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    nb_tensor *sum = NULL;
    int n = 1;
    if (nb_op_call(op, nx, x, 0, NULL, &n, &sum) != NB_OK)
        return nb_error_code();
    y[0] = nb_reduce_sum(nb_mul(sum, nb_sin(sum)), -1, NULL, false);
    return *ny = 1, nb_error_code();
}

static nb_status whole(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx;
    y[0] = called("twice", nx, x);
    return *ny = 1, nb_error_code();
}

CARD_TEST(transforms_pass_through, "")
{
    open_all();
    nb_op *total = op_of("total", "... n -> ...");
    nb_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, NB_F64);
    nb_func *f = nb_func_new(twice_total, total), *rows, *grads, *both;
    rows = nb_vmap(nb_func_new(use, total), NULL);
    grads = nb_grad(f, 1, (int[]){0});
    both = nb_vmap(nb_grad(f, 1, (int[]){0}), NULL);
    need(agrees(f, 1, &x) && agrees(rows, 1, &x));
    need(agrees(grads, 1, &x) && agrees(both, 1, &x));
    need(agrees(nb_vmap(nb_func_new(whole, NULL), NULL), 1, &x));
    need(agrees(nb_compile(both, NULL), 1, &x));
    nb_op_drop(total);
    nb_scope_close(0, NULL);
}

static nb_status turn(void *op, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *sum = NULL;
    int n = 1;
    if (nb_op_call(op, 1, &x[1], 0, NULL, &n, &sum) != NB_OK || nx != 2)
        return nb_error_code();
    y[0] = nb_add(nb_mul(x[0], nb_num(0.5)), sum);
    y[1] = nb_sin(y[0]);
    return *ny = 2, nb_error_code();
}

static nb_status looped(void *op, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *start = nb_reduce_sum(nb_get(x[0], 1, (nb_key[]){NB_AT(0)}), 1,
                                     (int64_t[]){-1}, false);
    nb_tensor *out[2];
    int n = 2;
    (void)nx;
    if (nb_scan(nb_func_new(turn, op), 1, &start, 1, x, 0, false, &n, out) !=
        NB_OK)
        return nb_error_code();
    y[0] = nb_add(out[0], nb_reduce_sum(out[1], 1, (int64_t[]){0}, false));
    return *ny = 1, nb_error_code();
}

CARD_TEST(loops_hold_them, "")
{
    open_all();
    nb_op *total = op_of("total", "... n -> ...");
    nb_tensor *x = numbers(3, (int64_t[]){6, 3, 4}, NB_F64);
    nb_func *f = nb_func_new(looped, total);
    need(agrees(f, 1, &x) && agrees(nb_compile(f, NULL), 1, &x));
    nb_op_drop(total);
    nb_scope_close(0, NULL);
}

/* Run after run: the same program, and as a graph. */
CARD_TEST(programs_become_graphs, "")
{
    open_all();
    nb_op *total = op_of("total", "... n -> ...");
    nb_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, NB_F64), *far = there(x);
    nb_func *f = nb_grad(nb_func_new(twice_total, total), 1, (int[]){0});
    nb_func *fast = nb_compile(f, NULL);
    nb_tensor *right = nb_func_call1(f, 1, &x);
    int64_t captured = nb_card_graph_stats_get().captured;
    for (int k = 0; k < 40; k++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y = nb_func_call1(fast, 1, &far);
        need(are_equal(right, y));
        nb_scope_close(0, NULL);
    }
    need(nb_card_graph_stats_get().captured > captured);
    nb_card_build_stats before = nb_card_build_stats_get();
    for (int k = 0; k < 10; k++)
        need(nb_realize(called("twice", 1, &far)) == NB_OK);
    nb_card_build_stats after = nb_card_build_stats_get();
    need(after.misses - before.misses <= 1);
    nb_op_drop(total);
    nb_scope_close(0, NULL);
}

/* A status is met by whoever waits next, and forgotten with that. */
CARD_TEST(a_status_is_met_late, "")
{
    open_all();
    nb_tensor *x = there(numbers(1, (int64_t[]){4}, NB_F64));
    nb_op *refuse = op_of("refuse", "... -> ...");
    nb_tensor *y = NULL, *z = nb_mul(x, x);
    double data[4];
    int n = 1;
    need(nb_op_call(refuse, 1, &x, 0, NULL, &n, &y) == NB_OK);
    need(nb_realize(y) == NB_OK);
    need(nb_device_wait(1) != NB_OK);
    need(error_says(NB_ERUNTIME, "refuse: the kernel failed with status 42"));
    need(nb_device_wait(1) == NB_OK && nb_read(z, NB_F64, data) == NB_OK);
    need(nb_op_call(refuse, 1, &z, 0, NULL, &n, &y) == NB_OK);
    need(nb_read(y, NB_F64, data) != NB_OK);
    need(error_says(NB_ERUNTIME, "status 42"));
    need(nb_read(z, NB_F64, data) == NB_OK && data[1] == 1.75 * 1.75);
    nb_op_drop(refuse);
    nb_scope_close(0, NULL);
}

CARD_TEST(a_status_is_met_at_once_if_every_launch_waits, "NABLA_CUDA_SYNC=1")
{
    open_all();
    nb_tensor *x = there(numbers(1, (int64_t[]){4}, NB_F64)), *y = NULL;
    nb_op *refuse = op_of("refuse", "... -> ...");
    int n = 1;
    need(nb_op_call(refuse, 1, &x, 0, NULL, &n, &y) == NB_OK);
    need(nb_realize(y) != NB_OK && error_says(NB_ERUNTIME, "status 42"));
    nb_op_drop(refuse);
    nb_scope_close(0, NULL);
}

CARD_TEST(what_is_wrong_is_said, "")
{
    open_all();
    nb_tensor *x = there(numbers(1, (int64_t[]){3}, NB_F64)), *y;
    nb_type t = {NB_F64, 1, {3}};
    need(call("k", "/no/such.cu", 1, &x, 1, &t, &y) == NB_ENOFILE &&
         error_says(NB_ENOFILE, "no such file or folder: /no/such.cu"));
    const char *only = written("only.c", INCLUDE "NB_MAP1(mine, x, x)\n");
    need(call("mine", only, 1, &x, 1, &t, &y) == NB_EVALUE &&
         error_says(NB_EVALUE, "mine: there is no function for gpu:0"));
    need(call("mine", folder, 1, &x, 1, &t, &y) == NB_EVALUE &&
         error_says(NB_EVALUE, "__global__ void mine(nb_kernel_args)"));
    const char *bad = written("bad.cu", INCLUDE "\nNB_KERNEL(bad) { oops; }\n");
    need(call("bad", bad, 1, &x, 1, &t, &y) == NB_ERUNTIME &&
         strstr(nb_error_message(), "bad.cu") &&
         error_says(NB_ERUNTIME, "oops"));
    unlink(bad);
    bad = written("gone.cu", "#include \"not-there.h\"\n");
    need(call("gone", bad, 1, &x, 1, &t, &y) == NB_ERUNTIME &&
         error_says(NB_ERUNTIME, "not-there.h"));
    unlink(bad);
    bad = written("big.cu", INCLUDE "NB_LAUNCH(big, 96, 1 << 24)\n"
                                    "NB_KERNEL(big) {}\n");
    need(call("big", bad, 1, &x, 1, &t, &y) == NB_ERUNTIME &&
         error_says(NB_ERUNTIME, "16777216 bytes of shared"));
    nb_tensor *near = numbers(1, (int64_t[]){3}, NB_F64);
    need(call("less", folder, 2, (nb_tensor *[]){x, near}, 1, &t, &y) ==
             NB_EVALUE &&
         error_says(NB_EVALUE, "same device"));
    need(call("twice", folder, 1, &x, 1, &t, &y) == NB_OK);
    double data[3];
    need(nb_read(y, NB_F64, data) == NB_OK && data[1] == 3.5);
    nb_scope_close(0, NULL);
}

/* What is changed, and what it includes, is compiled again; the rest is found
 * on disk. */
CARD_TEST(texts_are_known_by_what_they_say, "")
{
    open_all();
    nb_tensor *x = there(numbers(1, (int64_t[]){3}, NB_F64)), *y;
    nb_type t = {NB_F64, 1, {3}};
    double data[3];
    for (int k = 1; k < 4; k++) {
        char text[64];
        snprintf(text, sizeof text, "#define BY %d\n", k % 2 ? 10 : 20);
        written("by.h", text);
        const char *path =
            written("times.cu", INCLUDE "#include \"by.h\"\n"
                                        "NB_MAP1(times, x, x * BY)\n");
        int before = folder_count(cards_folder);
        need(call("times", path, 1, &x, 1, &t, &y) == NB_OK);
        need(folder_count(cards_folder) - before == (k < 3));
        need(nb_read(y, NB_F64, data) == NB_OK);
        need(data[1] == 1.75 * (k % 2 ? 10 : 20));
    }
    nb_scope_close(0, NULL);
}

/* Where nothing is given, the default device says. */
CARD_TEST(kernels_without_values, "")
{
    open_all();
    written("ramp.cu",
            INCLUDE "NB_KERNEL(ramp)\n{\n"
                    "    float *y = (float *)nb_out(a, 0)->data;\n"
                    "    int64_t n = nb_row_size(nb_out(a, 0));\n"
                    "    for (int64_t k = NB_THREAD; k < n; k += NB_THREADS)\n"
                    "        y[k] = (float)k / 2;\n}\n");
    nb_type t = {NB_F32, 1, {1000}};
    nb_tensor *y = NULL;
    float data[1000];
    need(nb_default_device_set(1) == NB_OK);
    need(call("ramp", folder, 0, NULL, 1, &t, &y) == NB_OK);
    need(nb_device_of(y) == 1 && nb_read(y, NB_F32, data) == NB_OK);
    for (int k = 0; k < 1000; k++)
        need(data[k] == (float)k / 2);
    nb_scope_close(0, NULL);
}

CARD_TEST(a_fault_names_the_kernel, "")
{
    open_all();
    if (!cards_simulated()) alone_skips("it would end the card's process");
    written("wild.cu", INCLUDE "NB_KERNEL(wild)\n{\n"
                               "    *(double *)16 = 1;\n}\n");
    nb_tensor *x = there(numbers(1, (int64_t[]){3}, NB_F64));
    double data[3];
    need(nb_read(called("wild", 1, &x), NB_F64, data) != NB_OK);
    need(error_says(NB_ERUNTIME, "wild"));
    nb_tensor *here = numbers(1, (int64_t[]){3}, NB_F64);
    need(nb_read(called("twice", 1, &here), NB_F64, data) == NB_OK &&
         data[1] == 3.5);
    nb_scope_close(0, NULL);
}

static bool program(void *total)
{
    nb_tensor *x = numbers(3, (int64_t[]){2, 3, 4}, NB_F64);
    nb_tensor *turned = there(nb_permute(x, 3, (int64_t[]){2, 0, 1})), *y;
    nb_func *f = nb_grad(nb_func_new(twice_total, total), 1, (int[]){0});
    double data[24];
    return turned && (y = nb_func_call1(f, 1, &turned)) &&
           nb_read(y, NB_F64, data) == NB_OK &&
           (y = called("twice", 1, &turned)) &&
           nb_read(y, NB_F64, data) == NB_OK;
}

CARD_TEST(every_allocation_may_fail, "")
{
    open_all();
    nb_op *total = op_of("total", "... n -> ...");
    faults f = {.run = program, .ctx = total, .keeps = true};
    need(faults_survived(&f) && f.n > 100 && f.n < 20000);
    nb_op_drop(total);
    nb_scope_close(0, NULL);
    nb_caches_clear();
    need(nb_nodes_live() == 0);
}

/* The first use, too: sources, compilers, what is loaded. */
CARD_TEST(first_uses_may_fail, "")
{
    open_all();
    nb_tensor *x = there(numbers(1, (int64_t[]){3}, NB_F64));
    nb_type t = {NB_F64, 1, {3}};
    int n = 1;
    need(nb_realize(x) == NB_OK);
    for (bool done = false; !done && n < 500; n++) {
        char text[160], name[32];
        snprintf(name, sizeof name, "first_%d", n);
        snprintf(text, sizeof text,
                 INCLUDE "NB_LAUNCH(%s, 32, 0)\nNB_MAP1(%s, x, x + %d)\n", name,
                 name, n);
        const char *path = written("first.cu", text);
        nb_tensor *y = NULL;
        nb_fault_set(n);
        bool ok = call(name, path, 1, &x, 1, &t, &y) == NB_OK;
        done = nb_fault_is_set();
        nb_fault_set(0);
        need(ok || nb_error_code() == NB_EMEMORY);
        nb_error_clear();
    }
    need(n > 10 && n < 500);
    nb_scope_close(0, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_take_every_dtype),
        cmocka_unit_test(rows_are_cut_from_views),
        cmocka_unit_test(views_of_many_axes_are_copied),
        cmocka_unit_test(results_and_attributes),
        cmocka_unit_test(transforms_pass_through),
        cmocka_unit_test(loops_hold_them),
        cmocka_unit_test(programs_become_graphs),
        cmocka_unit_test(a_status_is_met_late),
        cmocka_unit_test(a_status_is_met_at_once_if_every_launch_waits),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(texts_are_known_by_what_they_say),
        cmocka_unit_test(kernels_without_values),
        cmocka_unit_test(a_fault_names_the_kernel),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(first_uses_may_fail),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
