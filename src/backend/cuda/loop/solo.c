/* solo.c - jobs of loops and branches that are one launch of one block: chosen
 * where that is quicker than a launch for every step of every turn. */
#include "backend/cuda/loop/solo.h"

#include "backend/cuda/build.h"
#include "backend/cuda/call.h"
#include "backend/cuda/graph.h"
#include "lower/passes.h"

#include <math.h>

/* Cycles, as measured: that a step takes at least, by a block, by a launch in a
 * graph, and by one of the host's; that a graph takes to test a condition; what
 * a processor does in one, of the units that nests are measured in; and how
 * many times better products of matrices are made by the whole card. */
enum { STEP = 120, IN_GRAPH = 3000, LAUNCH = 40000, TEST = 9000 };
enum { RATE = 64, PRODUCT = 6 };
enum { FIXED_SHARED = 1 << 12 /* bytes, that teams of a block meet in */ };
enum { GIVEN_MOST = 500 /* addresses: arguments of a kernel are 4 KiB */ };

typedef struct job {
    nb_card_job job;
    nb_card *card;
    nb_card_code *code;
    int nin, nout, given, threads;
    int64_t blocks;
    nb_tensor **captured; /* kept; the last that are given */
    unsigned shared;
} job;

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *s = (job *)j;
    nb_tensor *const *captured = s->captured;
    char **args = nb_alloc((size_t)(s->given + 1) * sizeof *args);
    if (!args) return false;
    for (int i = 0; i < s->given; i++)
        args[i] = i < s->nin             ? in[i]
                  : i < s->nin + s->nout ? out[i - s->nin]
                                         : captured[i - s->nin - s->nout]->data;
    args[s->given] = workspace;
    void *list[1] = {args};
    unsigned grid[3] = {(unsigned)s->blocks, 1, 1};
    unsigned block[3] = {(unsigned)s->threads, 1, 1};
    bool ok =
        nb_card_launch(s->card, s->code, grid, block, s->shared, list, what);
    nb_free(args);
    return ok;
}

static void release(nb_card_job *j)
{
    job *s = (job *)j;
    nb_card_code_drop(s->code);
    for (int i = s->nin + s->nout; i < s->given; i++)
        nb_drop(s->captured[i - s->nin - s->nout]);
    nb_free(s->captured);
    nb_free(s);
}

static bool is_product(const nb_nest *x)
{
    bool sums = false;
    for (int k = 0; k < x->n; k++)
        sums = sums || x->value[k].kind == NB_NEST_REDUCE;
    for (int a = 0; sums && a < x->n; a++)
        for (int b = 0; b < a; b++) {
            const nb_nest_value *p = &x->value[a], *q = &x->value[b];
            bool loads = p->kind == NB_NEST_LOAD && q->kind == NB_NEST_LOAD;
            if (loads && p->axes & q->axes & x->inner && p->axes & ~q->axes &&
                q->axes & ~p->axes)
                return true;
        }
    return false;
}

/* Cycles of a list by blocks that each run it alone, less those by launches;
 * waves: so many blocks come one after the other. */
typedef struct rivals {
    double blocks, waves, processors, launch, test;
} rivals;

static double worse(const rivals *r, const nb_solo_list *l)
{
    double all = 0;
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        double inside = worse(r, &i->first) + worse(r, &i->second);
        double work = i->cycles / RATE, rate = 1;
        if (i->kind == NB_SOLO_NEST && is_product(i->nest)) rate = PRODUCT;
        if (i->kind == NB_SOLO_NEST)
            all += (STEP + work) * r->waves - r->launch -
                   work * r->blocks / r->processors / rate;
        else if (i->kind == NB_SOLO_LOOP && i->length >= 0)
            all += inside * (double)i->length - r->launch;
        else
            all += inside - r->test;
    }
    return all;
}

static bool is_worse(const nb_solo *s, const nb_card *card)
{
    bool graphs = nb_card_graphs_wanted() && nb_card_conditions_there();
    double blocks = (double)nb_solo_blocks(s);
    rivals r = {.blocks = blocks,
                .waves = ceil(blocks / card->processors),
                .processors = card->processors,
                .launch = graphs ? IN_GRAPH : LAUNCH,
                .test = graphs ? TEST : LAUNCH};
    return worse(&r, &s->list) >= 0;
}

static bool build(job *j, nb_solo *s)
{
    nb_text t = {0};
    bool ok = nb_solo_print(s, &t, "kernel");
    nb_card_source source = {nb_text_get(&t), "kernel"};
    if (ok && nb_pass_is_dumped("code")) nb_pass_dump("code", source.text);
    ok = ok && nb_card_build(j->card, 1, &source, &j->code);
    nb_text_free(&t);
    return ok;
}

static bool finish(nb_card *card, nb_solo *s, const nb_call *c,
                   nb_card_job **to)
{
    if (!nb_solo_walk(s)) return false;
    nb_solo_place(s);
    if (!nb_solo_settle(s) || !nb_solo_sync(s)) return false;
    job *j = nb_alloc_zero(sizeof *j);
    if (!j) return false;
    size_t workspace = (size_t)(s->work * nb_solo_blocks(s));
    *j = (job){.job = {.workspace = workspace, .run = run, .free = release},
               .blocks = nb_solo_blocks(s),
               .card = card,
               .nin = c->nin,
               .nout = c->op->nout ? c->op->nout : 1,
               .given = s->ngiven,
               .captured = s->captured,
               .threads = s->threads,
               .shared = (unsigned)s->shared};
    s->captured = NULL, s->ncaptured = 0; /* the job's now */
    if (!build(j, s)) return release(&j->job), false;
    *to = &j->job;
    return true;
}

/* With lanes shared out to blocks, or if that does not do, in one. */
static bool try(nb_card *card, const nb_call *c, nb_tensor *y,
                bool (*how)(nb_solo *s, const nb_call *c), nb_card_job **to)
{
    nb_solo s = {.device = y->device,
                 .shared_most = card->shared_most - FIXED_SHARED};
    bool ok = how(&s, c);
    if (ok && s.fits) ok = nb_solo_share_rows(&s, card->processors);
    if (ok && s.fits && s.list.n && s.ngiven <= GIVEN_MOST &&
        !is_worse(&s, card))
        ok = finish(card, &s, c, to);
    nb_solo_free(&s);
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **to)
{
    if (!nb_pass_is_on("solo")) return true;
    return try(card, c, y, nb_solo_build_lanes, to) &&
           (*to || try(card, c, y, nb_solo_build, to));
}

const nb_card_maker nb_card_scan = {"scan", make};
const nb_card_maker nb_card_while = {"while_loop", make};
const nb_card_maker nb_card_cond = {"cond", make};
