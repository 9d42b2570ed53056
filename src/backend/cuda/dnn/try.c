/* try.c - which of some plans is fastest.
 *
 * They run on numbers of which nothing is known, in memory of the sizes.  Where
 * that is wished, one that gives something else than the first is left out: of
 * the gradients of a small convolution in float32, with other zeros before its
 * lines than after them, the library was seen to propose three that are wrong
 * after ones that are right. */
#include "backend/cuda/dnn/dnn_parts.h"

#include "backend/cuda/memory.h"
#include "backend/cuda/parts.h"
#include "base/memory.h"
#include "core/convert.h"

#include <math.h>

/* SEEN: bytes at either end of a tensor that are looked at. */
enum { TIMES = 4, PATTERN = 16381, SEEN = 1 << 20, FEW = 1024 };

/* What is tried instead of the first has to be so much faster. */
static const float gain = 0.98f;

/* What differs by more of the largest number is something else. */
static const double differs_by = 1.0 / 32;

typedef struct trial {
    nb_card *card;
    nb_dnn_plan plan;
    bool same, known; /* known: what the first gave */
    void *at[NB_DNN_PLACES], *from, *to;
    nb_dnn_place place[NB_DNN_PLACES]; /* of these */
    size_t room[NB_DNN_PLACES], workspace_room;
    char *workspace, *pattern, *first, *now;
    int n;
} trial;

/* Memory */

/* Of a tensor's bytes, those that are looked at: all, or both ends. */
static size_t seen_of(const nb_dnn_place *p)
{
    return p->bytes < 2 * SEEN ? p->bytes : 2 * SEEN;
}

/* Where they lie one after the other, for elements of any dtype. */
static size_t step_of(const nb_dnn_place *p)
{
    return (seen_of(p) + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

static bool make_room(trial *t, const nb_dnn_place *place, int nplaces,
                      size_t workspace)
{
    size_t seen = 0;
    for (int i = 0; i < nplaces; i++) {
        if (place[i].fixed) continue;
        seen += step_of(&place[i]);
        t->place[t->n] = place[i];
        t->at[t->n] = nb_card_alloc(t->card, place[i].bytes, &t->room[t->n]);
        if (!t->at[t->n++]) return false;
    }
    t->workspace =
        nb_card_alloc(t->card, workspace + NB_DNN_ALIGN, &t->workspace_room);
    t->pattern = nb_alloc(PATTERN * sizeof(double));
    if (t->same) t->first = nb_alloc(seen), t->now = nb_alloc(seen);
    return t->workspace && t->pattern && (!t->same || (t->first && t->now));
}

static void let_go(trial *t)
{
    const nb_cuda *cu = t->card->api;
    for (int i = 0; i < t->n; i++)
        nb_card_free(t->card, t->at[i], t->room[i]);
    nb_card_free(t->card, t->workspace, t->workspace_room);
    if (t->from) cu->EventDestroy(t->from);
    if (t->to) cu->EventDestroy(t->to);
    nb_free(t->pattern), nb_free(t->first), nb_free(t->now);
}

/* Numbers */

/* Floats between -1 and 1, one after the other; else zeros. */
static size_t draw(char *to, nb_dtype d)
{
    size_t item = nb_dtype_size(d);
    uint32_t x = 1;
    for (int i = 0; i < PATTERN; i++) {
        x = x * 1664525u + 1013904223u;
        double number = (double)(x >> 8) / (1 << 23) - 1;
        nb_write_f64(to + (size_t)i * item, d,
                     nb_dtype_is_float(d) ? number : 0);
    }
    return PATTERN * item;
}

/* All tensors, results too: what is not written shows. */
static bool fill(trial *t)
{
    bool ok = true;
    for (int i = 0; ok && i < t->n; i++) {
        size_t all = t->place[i].bytes,
               done = draw(t->pattern, t->place[i].dtype);
        if (done > all) done = all;
        ok = nb_card_put(t->card, t->at[i], t->pattern, done);
        for (size_t more; ok && done < all; done += more) {
            more = all - done < done ? all - done : done;
            ok = nb_card_copy(t->card, (char *)t->at[i] + done, t->at[i], more);
        }
    }
    return ok;
}

/* What is seen of all tensors. */
static bool look(trial *t, char *to)
{
    bool ok = true;
    for (int i = 0; ok && i < t->n; i++) {
        size_t all = t->place[i].bytes, seen = seen_of(&t->place[i]);
        size_t front = seen < all ? SEEN : all;
        ok =
            nb_card_get(t->card, to, t->at[i], front) &&
            (seen == front || nb_card_get(t->card, to + front,
                                          (char *)t->at[i] + all - SEEN, SEEN));
        to += step_of(&t->place[i]);
    }
    return ok;
}

/* The largest number of a tensor, and the largest difference; numbers that are
 * none differ from all others. */
static void compare(const char *a, const char *b, nb_dtype d, size_t n,
                    double *most, double *apart)
{
    double x[FEW], y[FEW];
    size_t item = nb_dtype_size(d);
    for (size_t at = 0; at < n; at += FEW) {
        int64_t few = (int64_t)(n - at < FEW ? n - at : FEW);
        nb_convert(x, NB_F64, 1, a + at * item, d, 1, few);
        nb_convert(y, NB_F64, 1, b + at * item, d, 1, few);
        for (int64_t i = 0; i < few; i++) {
            bool same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
            double off = same ? 0 : fabs(x[i] - y[i]);
            if (isfinite(x[i])) *most = fmax(*most, fabs(x[i]));
            *apart = isnan(off) ? INFINITY : fmax(*apart, off);
        }
    }
}

/* Whether the plan that has just run gave what the first gave. */
static bool is_same(trial *t)
{
    const char *a = t->first, *b = t->now;
    if (!t->same) return true;
    if (!look(t, t->known ? t->now : t->first)) return false;
    if (!t->known) return t->known = true;
    for (int i = 0; i < t->n; i++) {
        const nb_dnn_place *p = &t->place[i];
        double most = 0, apart = 0;
        compare(a, b, p->dtype, seen_of(p) / nb_dtype_size(p->dtype), &most,
                &apart);
        if (apart > most * differs_by) return false;
        a += step_of(p), b += step_of(p);
    }
    return true;
}

/* Trying */

/* Milliseconds of a few, or a negative number if it does not run or gives
 * something else. */
static float time_of(trial *t, const nb_dnn_candidate *c)
{
    const nb_cuda *cu = t->card->api;
    float ms = -1;
    t->plan.plan = c->plan;
    t->plan.workspace = c->workspace;
    bool ok = fill(t) &&
              nb_dnn_plan_run(&t->plan, t->at, t->workspace, "trying a plan") &&
              is_same(t) && !cu->EventRecord(t->from, t->card->stream);
    for (int i = 0; ok && i < TIMES; i++)
        ok = nb_dnn_plan_run(&t->plan, t->at, t->workspace, "trying a plan");
    ok = ok && !cu->EventRecord(t->to, t->card->stream) &&
         !cu->EventSynchronize(t->to) &&
         !cu->EventElapsedTime(&ms, t->from, t->to);
    if (!ok) nb_error_clear();
    return ok ? ms : -1;
}

static int fastest(trial *t, const nb_dnn_graph *g, int n,
                   const nb_dnn_candidate *list)
{
    const nb_cuda *cu = t->card->api;
    int best = 0;
    float least = -1;
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (list[i].workspace > most) most = list[i].workspace;
    bool ok = nb_card_enter(t->card) && !cu->EventCreate(&t->from, 0) &&
              !cu->EventCreate(&t->to, 0) &&
              make_room(t, g->place, g->nplaces, (size_t)most);
    for (int i = 0; ok && i < n; i++) {
        float ms = time_of(t, &list[i]);
        if (ms < 0 || (least >= 0 && ms >= least * gain)) continue;
        least = ms;
        best = i;
    }
    if (!ok) nb_error_clear();
    return best;
}

int nb_dnn_fastest(const nb_dnn_graph *g, bool same, int n,
                   const nb_dnn_candidate *list)
{
    trial t = {
        .card = g->card,
        .same = same,
        .plan = {.card = g->card, .place = g->place, .nplaces = g->nplaces}};
    nb_card_time_open(t.card);
    int best = fastest(&t, g, n, list);
    nb_card_time_close(t.card);
    let_go(&t);
    return best;
}
