/* test_shard_ops.c - sharding changes nothing: for every op of the catalogue,
 * on any mesh, whatever the layouts of its operands.
 *
 * A case is one line: an op, the seed of its shapes, values and arguments, a
 * bound on sizes, a mesh and the layouts of the operands,
 *
 *     matmul 17 9 2x4 [x, .]; [., y]P{x}
 *
 * ("-": on no mesh).  The results must be those of the same call on no mesh,
 * the blocks of the devices those that the layouts of the results say, and what
 * moves must be what the decisions have priced.  A case that fails is made
 * smaller and printed; given as the argument, such a line is run alone, and the
 * name of an op runs all of its cases.  NABLA_SHARD_CASES is how many cases an
 * op gets, NABLA_SHARD_SEED where their seeds begin, NABLA_TEST_EVERY=n takes
 * each n-th op, and NABLA_SHARD_CARDS puts the devices on cards. */
#include "support/laid.h"
#include "support/ranks.h"
#include "support/there.h"
#include "support/vary.h"

#include "nabla/distributed.h"
#include "shard/decide/resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 300, CAP = 9 };
static const char *const meshes[] = {"2", "4", "2x2", "2x4", "3x2", "2x2x2"};
enum { MESHES = sizeof meshes / sizeof meshes[0] };

typedef struct shard_case {
    nb_op *op;
    unsigned seed;
    int cap;
    char mesh[16];
    int n;
    char layout[MAX_IN][LAYOUT];
} shard_case;

typedef enum verdict { HOLDS, FAILS, INVALID } verdict;

static char why[500];
static int held, failed, tried;
static void (*spoil)(const nb_call *c, nb_decision *d); /* of the call */
static bool running; /* decisions are carried out, not asked for */

static verdict fails(const char *what, const char *text)
{
    snprintf(why, sizeof why, "%s: %s", what, text);
    nb_error_clear();
    return FAILS;
}

static bool case_sample(const shard_case *c, sample *s)
{
    uniform_seed(c->seed);
    return sample_vary(s, c->op, c->cap);
}

static bool case_draw(shard_case *c, nb_op *op, unsigned seed)
{
    sample s;
    *c = (shard_case){.op = op, .seed = seed, .cap = CAP};
    if (!case_sample(c, &s) || !s.nin) return false;
    strcpy(c->mesh, meshes[pick(MESHES)]);
    const nb_mesh *m = mesh_sized(c->mesh);
    if (!ranks_share(m)) return false;
    for (c->n = 0; c->n < s.nin; c->n++)
        layout_draw(c->layout[c->n], m, nb_rank(s.in[c->n]),
                    nb_dtype_of(s.in[c->n]));
    return true;
}

static void case_print(const shard_case *c)
{
    printf("%s %u %d %s ", c->op->name, c->seed, c->cap, c->mesh);
    for (int i = 0; i < c->n; i++)
        printf("%s%s", i ? "; " : "", c->layout[i]);
    printf("\n");
}

static bool case_read(shard_case *c, const char *line)
{
    char op[64];
    int n = 0;
    *c = (shard_case){0};
    if (sscanf(line, "%63s %u %d %15s %n", op, &c->seed, &c->cap, c->mesh,
               &n) != 4)
        return false;
    c->op = nb_op_find(op);
    for (line += n; *line && c->n < MAX_IN; c->n++) {
        n = (int)strcspn(line, ";");
        snprintf(c->layout[c->n], LAYOUT, "%.*s", n, line);
        line += n;
        line += strspn(line, "; ");
    }
    return c->op;
}

/* Operands: the case does not fit the sample if a rank is another. */
static verdict operands(const shard_case *c, const nb_mesh *m, sample *s,
                        nb_tensor **in)
{
    if (!case_sample(c, s) || s->nin != c->n) return INVALID;
    uniform_seed(c->seed + 1);
    for (int i = 0; i < s->nin; i++) {
        char plain[LAYOUT];
        snprintf(plain, sizeof plain, "%s", c->layout[i]);
        plain[strcspn(plain, "!")] = 0;
        const nb_spec *spec = *plain == '-' ? NULL : nb_spec_parse(m, plain);
        nb_error_clear();
        if (*plain != '-' && (!spec || spec->rank != nb_rank(s->in[i])))
            return INVALID;
        in[i] = lay(s->in[i], m, c->layout[i]);
        if (!in[i]) return fails("laying out an operand", nb_error_message());
    }
    return HOLDS;
}

static double tolerance(const sample *s, nb_tensor *const *y, int n)
{
    double most = 0;
    for (int i = 0; i < s->nin + n; i++) {
        double t = dtype_tolerance(nb_dtype_of(i < n ? y[i] : s->in[i - n]));
        if (t > most) most = t;
    }
    return most;
}

static verdict compare(const sample *s, const nb_mesh *m, nb_tensor *const *in)
{
    nb_tensor *y[MAX_OUT], *plain[MAX_OUT];
    traffic t = {0};
    int n = sample_call(s, s->in, plain);
    if (!n || nb_realize_all(n, plain) != NB_OK) return INVALID;
    nb_comm_stats_reset(m);
    if (sample_call(s, in, y) != n) return fails("call", nb_error_message());
    bool priced = traffic_of_calls(&t, n, y);
    bool shaped = strstr("nonzero unique_values unique_counts unique_inverse "
                         "unique_all",
                         s->op->name);
    if (!priced) return fails("pricing", nb_error_message());
    running = true;
    bool ran = nb_realize_all(n, y) == NB_OK;
    running = false;
    if (!ran) return fails("running", nb_error_message());
    const char *bad = shaped ? NULL : traffic_check(&t, m);
    if (bad) return fails("traffic", bad);
    for (int k = 0; k < n; k++) {
        t = (traffic){0};
        nb_comm_stats_reset(m);
        if (!traffic_of_reading(&t, y[k]))
            return fails("pricing", nb_error_message());
        bad = blocks_check(y[k], plain[k], tolerance(s, plain, n));
        if (bad) return fails("value", bad);
        bad = traffic_check(&t, m);
        if (bad) return fails("traffic of reading", bad);
    }
    return HOLDS;
}

static verdict case_run(const shard_case *c)
{
    sample s;
    nb_tensor *in[MAX_IN];
    const nb_mesh *m = mesh_sized(c->mesh);
    if (!ranks_share(m)) return INVALID;
    nb_scope_open();
    verdict v = operands(c, m, &s, in);
    nb_decide_spoil = spoil;
    if (v == HOLDS) v = compare(&s, m, in);
    nb_decide_spoil = NULL;
    nb_scope_close(0, NULL);
    nb_error_clear();
    if (ranks_agree(v != FAILS)) return v;
    return v == FAILS ? v : fails("elsewhere", "see what other ranks say");
}

/* A case a little smaller, number k; false: there is no such. */
static bool smaller(const shard_case *c, int k, shard_case *out)
{
    const nb_mesh *m = mesh_sized(c->mesh);
    *out = *c;
    for (int i = 0; i < c->n; i++) {
        int n = layout_axes(c->layout[i]);
        if (k == 0) return strcpy(out->layout[i], "-"), true;
        if (--k < n) return layout_without(out->layout[i], m, k) || true;
        k -= n;
        if (k-- == 0)
            return out->layout[i][strcspn(out->layout[i], "!")] = 0, true;
    }
    char *last = strrchr(out->mesh, 'x');
    if (k == 0) return last ? (*last = 0) == 0 : true;
    if (k < 4) {
        size_t at = 2 * (size_t)(k - 1);
        if (at < strlen(out->mesh)) out->mesh[at] = '2';
        return true;
    }
    k -= 4;
    if (k > 6) return false;
    out->cap = c->cap - 1 - k;
    return out->cap > 0;
}

static void shrink(shard_case *c)
{
    shard_case next;
    char kept[sizeof why];
    bool again = true;
    for (int turn = 0; again && turn < 60; turn++) {
        again = false;
        for (int k = 0; !again && smaller(c, k, &next); k++) {
            if (!memcmp(&next, c, sizeof next)) continue;
            memcpy(kept, why, sizeof why);
            again = case_run(&next) == FAILS;
            if (again)
                *c = next;
            else
                memcpy(why, kept, sizeof why);
        }
    }
}

static void case_try(shard_case *c)
{
    verdict v = case_run(c);
    tried++;
    held += v == HOLDS;
    if (v != FAILS) return;
    failed++;
    shrink(c);
    printf("%sFAIL %s\n     ", rank_prefix(), why);
    case_print(c);
    fflush(stdout);
}

static void try_op(nb_op *op, unsigned first, int n)
{
    int before = failed;
    for (int i = 0; i < n && failed < before + 3; i++) {
        shard_case c;
        nb_scope_open();
        bool drawn = case_draw(&c, op, first + (unsigned)i);
        nb_scope_close(0, NULL);
        nb_error_clear();
        if (drawn) case_try(&c);
    }
}

/* Rules broken on purpose: each must be noticed. */

static void respec(const nb_spec **s, const nb_spec *draft)
{
    *s = nb_spec_intern(draft);
}

static void forget_what_is_pending(const nb_call *c, nb_decision *d)
{
    (void)c;
    for (int k = 0; k < d->nout; k++) {
        nb_spec s = nb_spec_draft(d->give[k]);
        s.partial.n = 0;
        respec(&d->give[k], &s);
    }
}

static void take_another_kind(const nb_call *c, nb_decision *d)
{
    (void)c;
    for (int k = 0; k < d->nout; k++) {
        nb_spec s = nb_spec_draft(d->give[k]);
        s.kind = s.kind == NB_SUM ? NB_MAX : NB_SUM;
        respec(&d->give[k], &s);
    }
}

static void swap_two_axes(const nb_call *c, nb_decision *d)
{
    (void)c;
    for (int k = 0; k < d->nout; k++) {
        nb_spec s = nb_spec_draft(d->give[k]);
        for (int i = 0; i < s.rank; i++) {
            nb_cut *l = &s.dim[i].axes;
            if (l->n < 2) continue;
            nb_axis first = l->at[0];
            l->at[0] = l->at[1];
            l->at[1] = first;
        }
        respec(&d->give[k], &s);
    }
}

/* Sums go through ops that are not linear. */
static void carry_all(const nb_call *c, nb_decision *d)
{
    const nb_spec *was = c->nin == 1 ? c->in[0]->sharding : NULL;
    if (!was || !was->partial.n || c->op->places) return;
    nb_spec need = nb_spec_draft(d->need[0]), give = nb_spec_draft(d->give[0]);
    need.partial = give.partial = was->partial;
    need.kind = give.kind = was->kind;
    const nb_spec *a = nb_spec_intern(&need), *b = nb_spec_intern(&give);
    nb_error_clear(); /* an axis that is used already */
    if (!a || !b) return;
    d->need[0] = a;
    d->give[0] = b;
}

/* One operand is not moved to where the call needs it. */
static void leave_it_there(const nb_call *c, nb_decision *d)
{
    if (c->in[0]->sharding) d->need[0] = c->in[0]->sharding;
}

/* More is moved than was said. */
static void gather_all(const nb_call *c, nb_decision *d)
{
    if (!running || c->op->places) return;
    for (int i = 0; i < d->nin; i++)
        d->need[i] = nb_spec_whole(d->mesh, d->need[i]->rank, false);
    for (int k = 0; k < d->nout; k++)
        d->give[k] = nb_spec_whole(d->mesh, d->give[k]->rank, false);
}

/* On one rank alone: its program is another then. */
static void gather_all_here(const nb_call *c, nb_decision *d)
{
    if (nb_distributed_rank() == nb_distributed_size() - 1) gather_all(c, d);
}

static const struct {
    const char *says, *op;
    void (*spoil)(const nb_call *c, nb_decision *d);
} broken[] = {
    {"what is pending is forgotten", "reduce_sum", forget_what_is_pending},
    {"what is pending is forgotten", "matmul", forget_what_is_pending},
    {"what is pending is forgotten", "index", forget_what_is_pending},
    {"what is pending is forgotten", "arg_extreme", forget_what_is_pending},
    {"a sum is a maximum", "reduce_sum", take_another_kind},
    {"a maximum is a sum", "reduce_max", take_another_kind},
    {"two axes of a dim change places", "add", swap_two_axes},
    {"two axes of a dim change places", "matmul", swap_two_axes},
    {"a sum comes after exp", "exp", carry_all},
    {"a maximum comes after sin", "sin", carry_all},
    {"an operand is not moved", "mul", leave_it_there},
    {"more is moved than was said", "add", gather_all},
    {"one process moves more", "add", gather_all_here},
};
enum { NBROKEN = sizeof broken / sizeof broken[0] };

static void notices(int i, unsigned first)
{
    nb_op *op = nb_op_find(broken[i].op);
    int noticed = 0, cases = 0;
    for (; cases < 200 && !noticed; cases++) {
        shard_case c;
        nb_scope_open();
        bool drawn = case_draw(&c, op, first + (unsigned)cases);
        nb_scope_close(0, NULL);
        nb_caches_clear();
        spoil = broken[i].spoil;
        noticed = drawn && case_run(&c) == FAILS;
        spoil = NULL;
    }
    nb_caches_clear();
    tried++;
    held += noticed;
    failed += !noticed;
    if (!noticed && rank_speaks())
        printf("FAIL nobody notices that %s in %s\n", broken[i].says, op->name);
}

static int number(const char *name, int otherwise)
{
    const char *v = getenv(name);
    return v ? atoi(v) : otherwise;
}

int main(int argc, char **argv)
{
    shard_case c;
    unsigned first = (unsigned)number("NABLA_SHARD_SEED", 1);
    int n = number("NABLA_SHARD_CASES", CASES);
    if (argc > 1 && case_read(&c, argv[1]))
        case_try(&c);
    else
        for (int i = 0; nb_op_at(i); i++)
            if (argc < 2 ? there_takes() : !strcmp(argv[1], nb_op_at(i)->name))
                try_op(nb_op_at(i), first, n);
    int spoils = argc < 2 && there_leads() ? NBROKEN : 0;
    for (int i = 0; i < spoils; i++)
        notices(i, first);
    nb_caches_clear();
    int64_t alive = nb_stats_get().nodes_live;
    if (alive)
        printf("%sFAIL %lld nodes are still alive\n", rank_prefix(),
               (long long)alive);
    failed += !ranks_agree(!alive);
    if (rank_speaks()) printf("%d cases\n", tried);
    return ranks_tally(held, failed);
}
