/* test_laws.c - what must hold of every op in the catalogue.
 *
 * No op is tested by name: the catalogue supplies the ops, examples the
 * arguments.  A law that cannot hold for an op is named in its descriptor with
 * the reason, and the reasons are printed. */
#include "support/sample.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 3 };
static int passed, failed, exempted;
static const char *only; /* one op, from the command line */

static bool expect(bool ok, const nb_op *op, const char *says)
{
    if (ok)
        passed++;
    else {
        failed++;
        printf("FAIL %s: %s. %s\n", op->name, says, nb_error_message());
    }
    nb_error_clear();
    return ok;
}

static bool well_formed(const nb_op *op)
{
    bool partial = op->kind == NB_POINTWISE, jvp = op->kind == NB_RULE;
    bool transpose =
        op->kind == NB_LINEAR || op->kind == NB_MULTILINEAR || op->linear;
    int works = !!op->body + !!op->scalar + !!op->kernel + !!op->compose;
    return op->kind && op->doc && op->doc[strlen(op->doc) - 1] == '.' &&
           op->example && (works == 1 || op->view || op->dim_of) &&
           partial == !!op->partial && transpose == !!op->transpose &&
           jvp == !!op->jvp && (op->kind == NB_COMPOSITE) == !!op->compose;
}

static bool its_example_holds(nb_op *op)
{
    sample s;
    nb_tensor *out[MAX_OUT];
    if (!sample_example(&s, op)) return false;
    int n = sample_call(&s, s.in, out);
    bool ok = n == s.nout;
    for (int k = 0; ok && k < n; k++)
        ok = near(out[k], s.expected[k], 1e-6);
    for (int k = 0; !ok && k < n; k++) {
        char *text = nb_tensor_text(out[k]);
        printf("  result %d is %s\n", k, text ? text : "");
        nb_text_release(text);
    }
    return ok;
}

/* The op's results at x, and how they move along u or what ct pulls back. */
typedef struct derived {
    int nout;
    nb_tensor *out[MAX_OUT], *uy[MAX_OUT], *cx[MAX_IN];
} derived;

static bool derive(const sample *s, nb_tensor *const *x, nb_tensor *const *u,
                   nb_tensor *const *ct, derived *d)
{
    nb_tensor *fresh[MAX_IN];
    memset(d, 0, sizeof *d);
    uint64_t bit = nb_walk_begin(s->nin, x, fresh);
    if (!bit) return false;
    d->nout = sample_call(s, fresh, d->out);
    bool ok = d->nout > 0;
    if (ok && u)
        ok = nb_walk_push(bit, s->nin, fresh, u, d->nout, d->out, d->uy);
    if (ok && ct)
        ok = nb_walk_pull(bit, s->nin, fresh, d->nout, d->out, ct, d->cx);
    nb_walk_end(bit);
    for (int k = 0; ok && u && k < d->nout; k++)
        if (!d->uy[k]) d->uy[k] = nb_fill_like(d->out[k], 0);
    for (int i = 0; ok && ct && i < s->nin; i++)
        if (!d->cx[i]) d->cx[i] = nb_fill_like(x[i], 0);
    return ok;
}

static void tangents(const sample *s, nb_tensor **u)
{
    for (int i = 0; i < s->nin; i++)
        u[i] = sample_smooth(s, i) ? draw_like(s->in[i], -1, 1) : NULL;
}

/* Central differences of order four. */
static bool difference(const sample *s, nb_tensor *const *u, int k,
                       nb_tensor **rise)
{
    const double h = 1e-3, weight[] = {1, -8, 8, -1}, at[] = {-2, -1, 1, 2};
    nb_tensor *sum = NULL;
    for (int p = 0; p < 4; p++) {
        nb_tensor *x[MAX_IN], *y[MAX_OUT];
        for (int i = 0; i < s->nin; i++)
            x[i] = u[i] ? nb_add(s->in[i], nb_mul(u[i], nb_num(at[p] * h)))
                        : s->in[i];
        if (sample_call(s, x, y) <= k) return false;
        nb_tensor *t =
            nb_mul(nb_cast(y[k], NB_F64), nb_num(weight[p] / (12 * h)));
        sum = sum ? nb_add(sum, t) : t;
    }
    *rise = sum;
    return sum;
}

static bool jvp_is_a_finite_difference(nb_op *op)
{
    sample s;
    derived d;
    nb_tensor *u[MAX_IN], *rise;
    if (!sample_random(&s, op)) return false;
    tangents(&s, u);
    if (!derive(&s, s.in, u, NULL, &d)) return false;
    for (int k = 0; k < d.nout; k++) {
        if (!nb_dtype_is_float(nb_dtype_of(d.out[k]))) continue;
        if (!difference(&s, u, k, &rise) || !near(d.uy[k], rise, 2e-7))
            return false;
    }
    return true;
}

static bool vjp_is_jvp_transposed(nb_op *op)
{
    sample s;
    derived d;
    nb_tensor *u[MAX_IN], *ct[MAX_OUT] = {0}, *out[MAX_OUT];
    double left = 0, right = 0, scale = 1;
    if (!sample_random(&s, op)) return false;
    tangents(&s, u);
    int n = sample_call(&s, s.in, out);
    for (int k = 0; k < n; k++)
        if (nb_dtype_is_float(nb_dtype_of(out[k])))
            ct[k] = draw_like(out[k], -1, 1);
    if (!derive(&s, s.in, u, ct, &d)) return false;
    for (int k = 0; k < n; k++)
        if (ct[k]) left += dot(ct[k], d.uy[k]);
    for (int i = 0; i < s.nin; i++)
        if (u[i]) right += dot(d.cx[i], u[i]);
    if (fabs(left) > 1) scale = fabs(left);
    return fabs(left - right) < 1e-10 * scale;
}

/* The gradient is differentiable too. */
static bool vjp_moves_as_its_differences(nb_op *op)
{
    sample s;
    nb_tensor *u[MAX_IN], *ct[MAX_OUT] = {0}, *out[MAX_OUT], *uy[MAX_IN];
    nb_tensor *fresh[MAX_IN];
    derived d, ahead[4];
    const double h = 1e-3, weight[] = {1, -8, 8, -1}, at[] = {-2, -1, 1, 2};
    if (!sample_random(&s, op)) return false;
    tangents(&s, u);
    int n = sample_call(&s, s.in, out);
    for (int k = 0; k < n; k++)
        if (nb_dtype_is_float(nb_dtype_of(out[k])))
            ct[k] = draw_like(out[k], -1, 1);
    uint64_t bit = nb_walk_begin(s.nin, s.in, fresh);
    bool ok = bit && derive(&s, fresh, NULL, ct, &d) &&
              nb_walk_push(bit, s.nin, fresh, u, s.nin, d.cx, uy);
    if (bit) nb_walk_end(bit);
    for (int p = 0; ok && p < 4; p++) {
        nb_tensor *x[MAX_IN];
        for (int i = 0; i < s.nin; i++)
            x[i] = u[i] ? nb_add(s.in[i], nb_mul(u[i], nb_num(at[p] * h)))
                        : s.in[i];
        ok = derive(&s, x, NULL, ct, &ahead[p]);
    }
    for (int i = 0; ok && i < s.nin; i++) {
        nb_tensor *rise = NULL;
        if (!u[i]) continue;
        for (int p = 0; p < 4; p++) {
            nb_tensor *t = nb_mul(ahead[p].cx[i], nb_num(weight[p] / (12 * h)));
            rise = rise ? nb_add(rise, t) : t;
        }
        nb_tensor *got = uy[i] ? uy[i] : nb_fill_like(s.in[i], 0);
        ok = near(got, rise, 2e-6);
    }
    return ok;
}

/* Input i with a leading axis of lanes: fresh values, or turned indices. */
static nb_tensor *many(const sample *s, int i)
{
    nb_tensor *x = s->in[i], *lane[LANES];
    int64_t size[NB_MAX_RANK + 1] = {LANES}, n = nb_elements(x);
    size_t item = nb_dtype_size(nb_dtype_of(x));
    char *all = malloc((size_t)n * item * LANES + 1);
    for (int b = 0; b < LANES; b++) {
        sample again;
        lane[b] = x;
        if (sample_smooth(s, i) && sample_random(&again, s->op))
            lane[b] = again.in[i];
        nb_read(lane[b], nb_dtype_of(x), all + (size_t)(b * n) * item);
        if (lane[b] == x && n > 1) { /* turn by b */
            char *to = all + (size_t)(b * n) * item;
            char *copy = malloc((size_t)n * item);
            memcpy(copy, to, (size_t)n * item);
            for (int64_t k = 0; k < n; k++)
                memcpy(to + (size_t)k * item,
                       copy + (size_t)((k + b) % n) * item, item);
            free(copy);
        }
    }
    nb_sizes(x, size + 1);
    nb_tensor *y = given(nb_dtype_of(x), nb_rank(x) + 1, size, all);
    free(all);
    return y;
}

/* Lane b of a tensor with a leading axis. */
static nb_tensor *lane_of(nb_tensor *x, int b)
{
    int64_t size[NB_MAX_RANK];
    nb_sizes(x, size);
    int64_t n = nb_elements(x) / LANES;
    size_t item = nb_dtype_size(nb_dtype_of(x));
    char *all = malloc((size_t)n * LANES * item + 1);
    nb_read(x, NB_NOTYPE, all);
    nb_tensor *y = given(nb_dtype_of(x), nb_rank(x) - 1, size + 1,
                         all + (size_t)(b * n) * item);
    free(all);
    return y;
}

/* The call with the inputs in `mapped` hidden along one lane, results shown. */
static int mapped_call(const sample *s, nb_tensor *const *x, unsigned mapped,
                       nb_tensor **out)
{
    nb_tensor *in[MAX_IN];
    nb_extent size = nb_extent_of(LANES);
    int id = nb_lane_open(size, NULL);
    for (int i = 0; i < s->nin; i++)
        in[i] = mapped >> i & 1 ? nb_hide(x[i], 0, id) : x[i];
    int n = sample_call(s, in, out);
    nb_lane_close();
    for (int k = 0; k < n; k++)
        out[k] = nb_show(out[k], 0, (nb_lane){.id = id, .size = size});
    return n;
}

static bool a_batch_is_a_loop(nb_op *op)
{
    sample s;
    nb_tensor *x[MAX_IN], *out[MAX_OUT], *one[MAX_OUT], *at[MAX_IN];
    if (!sample_random(&s, op)) return false;
    for (unsigned mapped = 1; mapped < 1u << s.nin; mapped++) {
        for (int i = 0; i < s.nin; i++)
            x[i] = mapped >> i & 1 ? many(&s, i) : s.in[i];
        int n = mapped_call(&s, x, mapped, out);
        if (n == 0) return false;
        for (int b = 0; b < LANES; b++) {
            for (int i = 0; i < s.nin; i++)
                at[i] = mapped >> i & 1 ? lane_of(x[i], b) : x[i];
            if (sample_call(&s, at, one) != n) return false;
            for (int k = 0; k < n; k++)
                if (!near(lane_of(out[k], b), one[k], 1e-12)) return false;
        }
    }
    return true;
}

/* The outer vmap maps operand i alone, the inner operand j alone. */
static bool two_vmaps_are_two_loops(nb_op *op)
{
    sample s;
    nb_tensor *out[MAX_OUT], *one[MAX_OUT], *in[MAX_IN];
    nb_extent size = nb_extent_of(LANES);
    if (!sample_random(&s, op)) return false;
    for (int i = 0; i < s.nin; i++)
        for (int j = 0; j < s.nin; j++) {
            if (i == j) continue;
            nb_tensor *xi = many(&s, i), *xj = many(&s, j);
            memcpy(in, s.in, sizeof in);
            int a = nb_lane_open(size, NULL), b = nb_lane_open(size, NULL);
            in[i] = nb_hide(xi, 0, a);
            in[j] = nb_hide(xj, 0, b);
            int n = sample_call(&s, in, out);
            nb_lane_close();
            nb_lane_close();
            if (n == 0) return false;
            for (int k = 0; k < n; k++) {
                nb_tensor *y = nb_show(out[k], 0, (nb_lane){size, b, false});
                out[k] = nb_show(y, 0, (nb_lane){size, a, false});
            }
            for (int p = 0; p < LANES; p++)
                for (int q = 0; q < LANES; q++) {
                    memcpy(in, s.in, sizeof in);
                    in[i] = lane_of(xi, p);
                    in[j] = lane_of(xj, q);
                    if (sample_call(&s, in, one) != n) return false;
                    for (int k = 0; k < n; k++)
                        if (!near(lane_of(lane_of(out[k], p), q), one[k],
                                  1e-12))
                            return false;
                }
        }
    return true;
}

/* grad inside vmap: every lane differentiates its own copy, mapped or not. */
static bool a_mapped_vjp_is_a_loop(nb_op *op)
{
    sample s;
    nb_tensor *ct[MAX_OUT] = {0}, *out[MAX_OUT], *in[MAX_IN];
    nb_extent size = nb_extent_of(LANES);
    if (!sample_random(&s, op)) return false;
    int n = sample_call(&s, s.in, out);
    for (int k = 0; k < n; k++)
        if (nb_dtype_is_float(nb_dtype_of(out[k])))
            ct[k] = draw_like(out[k], -1, 1);
    for (int i = 0; i < s.nin; i++) {
        derived d, one;
        nb_tensor *x = many(&s, i);
        memcpy(in, s.in, sizeof in);
        nb_lane lane = {.size = size, .id = nb_lane_open(size, NULL)};
        in[i] = nb_hide(x, 0, lane.id);
        bool ok = derive(&s, in, NULL, ct, &d);
        nb_lane_close();
        for (int b = 0; ok && b < LANES; b++) {
            in[i] = lane_of(x, b);
            ok = derive(&s, in, NULL, ct, &one);
            for (int j = 0; ok && j < s.nin; j++)
                if (sample_smooth(&s, j))
                    ok = near(lane_of(nb_show(d.cx[j], 0, lane), b), one.cx[j],
                              1e-10);
        }
        if (!ok) return false;
    }
    return true;
}

static char *listing(int nx, nb_tensor *const *x, int ny, nb_tensor *const *y,
                     nb_graph **g)
{
    return nb_graph_of(nx, x, ny, y, g) == NB_OK ? nb_graph_text(*g) : NULL;
}

/* What is read back prints the same, has the same hash and does the same. */
static bool its_listing_reads_back(nb_op *op)
{
    sample s;
    nb_tensor *out[MAX_OUT], *again[MAX_OUT], *in[MAX_IN];
    nb_graph *g = NULL, *h = NULL;
    if (!sample_random(&s, op)) return false;
    for (int i = 0; i < s.nin; i++) /* an input is itself, not a constant */
        in[i] = nb_alias(s.in[i]);
    int n = sample_call(&s, in, out);
    char *text = n ? listing(s.nin, in, n, out, &g) : NULL, *copy = NULL;
    bool ok = text && nb_graph_parse(text, &h) == NB_OK;
    if (ok) copy = nb_graph_text(h);
    ok = ok && copy && !strcmp(text, copy) &&
         nb_graph_hash(g) == nb_graph_hash(h) &&
         nb_graph_run(h, s.nin, s.in, again) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        ok = near(again[k], out[k], 0);
    if (!ok) printf("%s%s", text ? text : "", copy ? copy : "");
    nb_text_release(text);
    nb_text_release(copy);
    nb_graph_free(g);
    nb_graph_free(h);
    return ok;
}

static const struct {
    const char *name, *says;
    bool (*holds)(nb_op *op);
    bool smooth; /* only where a derivative flows */
} laws[] = {
    {"example", "its example holds", its_example_holds, false},
    {"jvp", "jvp is a finite difference", jvp_is_a_finite_difference, true},
    {"vjp", "vjp is jvp transposed", vjp_is_jvp_transposed, true},
    {"second", "vjp moves as its differences", vjp_moves_as_its_differences,
     true},
    {"listing", "its listing reads back", its_listing_reads_back, false},
    {"batch", "a batch is a loop", a_batch_is_a_loop, false},
    {"batch2", "two vmaps are two loops", two_vmaps_are_two_loops, false},
    {"mapped", "a mapped vjp is a loop", a_mapped_vjp_is_a_loop, true},
};
enum { NLAWS = sizeof laws / sizeof laws[0] };

static bool is_exempt(const nb_op *op, const char *law)
{
    size_t n = strlen(law);
    for (const char *s = op->exempt; s; s = strchr(s, ';')) {
        s += strspn(s, "; ");
        if (!strncmp(s, law, n) && s[n] == ':') return true;
    }
    return false;
}

static void try_op(nb_op *op)
{
    int exempt_here = 0;
    if (!expect(well_formed(op), op, "it is well formed")) return;
    for (int l = 0; l < NLAWS; l++) {
        sample s;
        bool flows = false;
        nb_scope_open();
        if (laws[l].smooth && sample_random(&s, op))
            for (int i = 0; i < s.nin; i++)
                flows = flows || sample_smooth(&s, i);
        if (is_exempt(op, laws[l].name)) {
            if (!exempt_here++) printf("exempt %s, %s\n", op->name, op->exempt);
            exempted++;
        } else if (!laws[l].smooth || flows)
            expect(laws[l].holds(op), op, laws[l].says);
        nb_scope_close(0, NULL);
    }
}

int main(int argc, char **argv)
{
    there_open();
    int n = 0;
    only = argc > 1 ? argv[1] : NULL;
    for (; nb_op_at(n); n++)
        if (only ? !strcmp(only, nb_op_at(n)->name) : there_takes())
            try_op(nb_op_at(n));
    nb_caches_clear();
    int64_t nodes = nb_stats_get().nodes_live;
    if (nodes) {
        failed++;
        printf("FAIL %lld nodes are still alive\n", (long long)nodes);
    }
    printf("%d ops, %d laws, %d exemptions\n", n, NLAWS, exempted);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
