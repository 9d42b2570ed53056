/* solo.c - jobs of loops and branches that are one launch of one block: chosen
 * where that is quicker than a launch for every step of every turn. */
#include "backend/cuda/loop/solo.h"

#include "backend/cuda/build.h"
#include "backend/cuda/call.h"
#include "lower/passes.h"

#include <math.h>

/* Cycles, as measured: that a step takes at least, by a block and by a launch;
 * and what a processor does in one, of the units that nests are measured in. */
enum { STEP = 120, LAUNCH = 40000, RATE = 64 };
enum { FIXED_SHARED = 1 << 12 /* bytes, that teams of a block meet in */ };

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

/* Cycles of a list by blocks that each run it alone, less those by launches;
 * waves: so many blocks come one after the other. */
static double worse(const nb_solo *s, const nb_card *card,
                    const nb_solo_list *l)
{
    double all = 0, blocks = (double)nb_solo_blocks(s);
    double waves = ceil(blocks / card->processors);
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        double inside = worse(s, card, &i->first) + worse(s, card, &i->second);
        double work = i->cycles / RATE;
        if (i->kind == NB_SOLO_NEST)
            all += (STEP + work) * waves - LAUNCH -
                   work * blocks / card->processors;
        else if (i->kind == NB_SOLO_LOOP && i->length >= 0)
            all += inside * (double)i->length - LAUNCH;
        else
            all += inside - LAUNCH;
    }
    return all;
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
    if (ok && s.fits && s.list.n && worse(&s, card, &s.list) < 0)
        ok = finish(card, &s, c, to);
    nb_solo_free(&s);
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **to)
{
    return try(card, c, y, nb_solo_build_lanes, to) &&
           (*to || try(card, c, y, nb_solo_build, to));
}

const nb_card_maker nb_card_scan = {"scan", make};
const nb_card_maker nb_card_while = {"while_loop", make};
const nb_card_maker nb_card_cond = {"cond", make};
