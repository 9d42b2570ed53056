/* card_passes.c - loops that end by a test and are walked over several times, of
 * many kernels: the way back through a loop.
 *
 * Turns of the first pass keep values for the later ones, in records.  How many
 * turns there will be nobody knows, and the card cannot take memory: it goes on
 * until the records are used up or the test fails, and then the host looks; each
 * time there are twice as many. */
#include "run/card_turns.h"

#include "backend/cuda/memory.h"

enum { FIRST = 64 };                        /* records */
static const size_t most = (size_t)1 << 28; /* bytes at once, if it can be */

typedef struct reel {
    char *data;
    size_t room;
    int64_t turns, used;
} reel;

typedef struct records {
    reel *reel;
    int n, room;
    int64_t turns; /* used */
} records;

static void let_go(nb_loop_run *r, records *all)
{
    for (int i = 0; i < all->n; i++)
        nb_card_free(r->l->card, all->reel[i].data, all->reel[i].room);
    nb_free(all->reel);
}

static reel *more(nb_loop_run *r, records *all)
{
    size_t bytes = r->l->record ? r->l->record : 1;
    int64_t n = all->n ? 2 * all->reel[all->n - 1].turns : FIRST;
    while (n > 1 && (size_t)n * bytes > most)
        n /= 2;
    if (!nb_grow(&all->reel, &all->room, all->n + 1, sizeof *all->reel))
        return NULL;
    reel *k = &all->reel[all->n];
    *k = (reel){.turns = n};
    k->data = nb_card_alloc(r->l->card, (size_t)n * bytes, &k->room);
    if (!k->data) return NULL;
    all->n++;
    return k;
}

static char *record_at(const nb_loop_run *r, const records *all, int64_t t)
{
    const reel *k = all->reel;
    for (; t >= k->turns; k++)
        t -= k->turns;
    return k->data + (size_t)t * r->l->record;
}

/* As many turns as there are records, as a graph; NULL without an error if there
 * can be none. */
static nb_card_graph *graph_of(nb_loop_run *r, const reel *k, bool tested)
{
    nb_card_graph *g = NULL;
    if (!nb_card_graphs_wanted() || !r->l->warm || r->l->unfit) return NULL;
    if (!nb_card_capture_begin(r->l->card)) return nb_error_clear(), NULL;
    r->record = k->data;
    if (nb_loop_capture(r, k->turns, tested))
        g = nb_card_capture_end(r->l->card, r->what);
    else
        nb_card_capture_give_up(r->l->card);
    if (g) return g;
    if (nb_error_code() != NB_EMEMORY) r->l->unfit = true;
    r->nmoves = r->half = 0;
    nb_error_clear();
    return NULL;
}

static bool run_graph(nb_loop_run *r, nb_card_graph *g, reel *k, bool *on)
{
    nb_loop_head head;
    bool ok = nb_card_graph_launch(g) && nb_loop_read(r, &head);
    nb_card_graph_free(g);
    *on = ok && head.flag[0];
    if (ok) k->used = head.count.count;
    return ok;
}

/* The same, whose tests the host reads. */
static bool run_tests(nb_loop_run *r, reel *k, bool *on)
{
    const nb_loop_side *s = &r->l->side[0];
    char **x = nb_loop_room(s, &s->program[0]);
    char **y = nb_loop_room(s, &s->program[1]);
    bool ok = x && y;
    for (*on = true; ok && *on && k->used < k->turns;) {
        nb_loop_head head;
        ok = nb_loop_test(r, y) && nb_loop_read(r, &head);
        *on = ok && head.flag[0];
        if (!*on) break;
        r->record = k->data + (size_t)k->used++ * r->l->record;
        ok = nb_loop_turn(r, &s->program[0], x);
        r->half = 1 - r->half;
    }
    nb_free(x), nb_free(y);
    return ok;
}

static bool first_pass(nb_loop_run *r, records *all)
{
    bool on = true, ok = true;
    for (bool tested = false; ok && on;) {
        reel *k = more(r, all);
        nb_card_graph *g = k && !r->half ? graph_of(r, k, tested) : NULL;
        ok = k && (g ? run_graph(r, g, k, &on) : run_tests(r, k, &on));
        if (ok) all->turns += k->used;
        tested = g;
    }
    return ok && nb_loop_end(r, &r->l->side[0], &r->l->side[0].program[0]);
}

/* To and fro. */
static bool later_pass(nb_loop_run *r, const records *all, int pass)
{
    const nb_loop_side *s = &r->l->side[0];
    const nb_loop_program *p = &s->program[pass + 1];
    char **x = nb_loop_room(s, p);
    bool ok = x;
    r->half = 0;
    for (int64_t i = 0; ok && i < all->turns; i++) {
        r->record = record_at(r, all, pass % 2 ? all->turns - 1 - i : i);
        ok = nb_loop_turn(r, p, x);
        r->half = 1 - r->half;
    }
    nb_free(x);
    return ok && nb_loop_end(r, s, p);
}

bool nb_loop_run_passes(nb_loop_run *r)
{
    const nb_loop_side *s = &r->l->side[0];
    records all = {0};
    bool ok = nb_loop_begin(r, s) && first_pass(r, &all);
    for (int pass = 1; ok && pass + 1 < s->n; pass++)
        ok = later_pass(r, &all, pass);
    let_go(r, &all);
    return ok;
}
