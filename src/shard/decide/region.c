/* region.c - how the operands and results of ops that hold programs lie. */
#include "shard/decide/region.h"

#include "shard/decide/factors.h"

#include <string.h>

enum { PROGRAMS = 2, ROUNDS = 4 };

/* A call while it is decided. */
typedef struct opened {
    const nb_call *c;
    nb_decision *d;
    int n;
    nb_inside inside[PROGRAMS];
} opened;

static void close_all(opened *o)
{
    for (int r = 0; r < o->n; r++)
        nb_inside_free(&o->inside[r]);
}

/* Whether a test would differ from lane to lane. */
static bool is_full(const nb_shape *s)
{
    for (int l = 0; l < s->nlanes; l++)
        if (!s->lane[l].thin) return true;
    return false;
}

static bool is_handed(const opened *o, int input)
{
    for (int r = 0; r < o->n; r++)
        for (int i = 0; i < o->inside[r].j.nx; i++)
            if (o->inside[r].j.from[i] == input) return true;
    return false;
}

/* Tests are results that go nowhere; predicates, inputs that no program has. */
static bool tests_differ(const opened *o)
{
    for (int r = 0; r < o->n; r++)
        for (int k = 0; k < o->inside[r].j.ny; k++) {
            const nb_inside *b = &o->inside[r];
            const nb_line *l = &b->graph->line[b->graph->result[k]];
            if (b->j.to[k] < 0 && b->j.feeds[k] < 0 && is_full(&l->shape))
                return true;
        }
    for (int i = 0; i < o->c->nin; i++) {
        nb_shape s = nb_tensor_shape(o->c->in[i]);
        if (!is_handed(o, i) && is_full(&s)) return true;
    }
    return false;
}

/* False with *ok: they run on whole values. */
static bool open_all(opened *o, bool *ok)
{
    const nb_op *op = o->c->op;
    *ok = true;
    if (!op->region[0] || (!op->inlines && !op->join)) return false;
    for (; *ok && o->n < PROGRAMS && op->region[o->n]; o->n += *ok)
        *ok = nb_inside_open(o->c, o->n, &o->inside[o->n]);
    if (*ok && !tests_differ(o)) return true;
    close_all(o);
    return false;
}

/* Inputs as they come; what a program keeps, whole. */
static bool seed(opened *o)
{
    bool ok = true;
    for (int r = 0; r < o->n; r++) {
        nb_inside *b = &o->inside[r];
        for (int i = 0; ok && i < b->j.nx; i++) {
            const nb_shape *to = &b->j.shape[i];
            int from = b->j.from[i];
            if (from < 0) {
                b->in[i] =
                    nb_spec_whole(o->d->mesh, to->nlanes + to->rank, false);
            } else {
                nb_tensor *x = o->c->in[from];
                nb_shape of = nb_tensor_shape(x);
                const nb_spec *s = nb_spec_on(x, o->d->mesh);
                b->in[i] = s ? nb_spec_between(s, &of, to) : NULL;
            }
            ok = b->in[i];
        }
    }
    return ok;
}

/* What is carried lies as somebody would like its last state to. */
static bool follow(opened *o, const nb_wish *wish)
{
    bool ok = true;
    for (int r = 0; wish && wish->results && r < o->n; r++) {
        nb_inside *b = &o->inside[r];
        for (int k = 0; ok && k < b->j.ny; k++) {
            int at = b->j.feeds[k], to = b->j.to[k];
            const nb_spec *s = at >= 0 && to >= 0 ? wish->results[to] : NULL;
            const nb_shape *is = &b->j.shape[at < 0 ? 0 : at];
            if (s) ok = (b->in[at] = nb_spec_between(s, is, is)) != NULL;
        }
    }
    return ok;
}

/* What comes in whole on the first turn takes the layout that a turn gives
 * it. */
static bool adopt(nb_inside *b, bool *changed)
{
    for (int k = 0; k < b->j.ny; k++) {
        int at = b->j.feeds[k];
        if (at < 0 || !nb_spec_is_whole(b->in[at])) continue;
        const nb_spec *is = nb_spec_settled(b->lay.spec[b->graph->result[k]]);
        if (!is) return false;
        if (nb_spec_same_layout(is, b->in[at])) continue;
        b->in[at] = is;
        *changed = true;
    }
    return true;
}

static bool settle(opened *o)
{
    bool ok = true, changed = true;
    for (int turn = 0; ok && changed; turn++) {
        changed = false;
        for (int r = 0; ok && r < o->n; r++)
            ok = nb_inside_lay(&o->inside[r], o->d->mesh);
        for (int r = 0; ok && turn + 1 < ROUNDS && r < o->n; r++)
            ok = adopt(&o->inside[r], &changed);
    }
    return ok;
}

/* Operands */

static bool need(opened *o)
{
    bool ok = true;
    int kept = 0;
    for (int i = 0; ok && i < o->c->nin; i++) {
        int rank = o->c->in[i]->nlanes + o->c->in[i]->rank;
        ok = (o->d->need[i] = nb_spec_whole(o->d->mesh, rank, false)) != NULL;
    }
    for (int r = 0; r < o->n; r++) {
        const nb_inside *b = &o->inside[r];
        for (int i = 0; ok && i < b->j.nx; i++) {
            if (b->j.from[i] < 0) {
                o->d->kept[kept++] = b->in[i];
                continue;
            }
            nb_shape to = nb_tensor_shape(o->c->in[b->j.from[i]]);
            const nb_spec *s = nb_spec_between(b->in[i], &b->j.shape[i], &to);
            ok = (o->d->need[b->j.from[i]] = s) != NULL;
        }
    }
    return ok;
}

/* Results */

/* Of two layouts of a value that one is, the cheaper to have for both. */
static const nb_spec *meet(const nb_spec *a, const nb_spec *b,
                           const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS];
    int item = (int)nb_dtype_size((nb_dtype)x->dtype);
    if (nb_spec_same_layout(a, b)) return a;
    nb_stored_sizes(x, size);
    const nb_reshard_plan *to = nb_reshard_find(a, b, size, item, NULL);
    const nb_reshard_plan *from = nb_reshard_find(b, a, size, item, NULL);
    if (!to || !from) return NULL;
    return to->bytes < from->bytes ? b : a;
}

static const nb_spec *given(const opened *o, const nb_inside *b, int k,
                            const nb_tensor *y)
{
    int line = b->graph->result[k], at = b->j.feeds[k];
    nb_shape to = nb_tensor_shape(y);
    if (at >= 0) return nb_spec_between(b->in[at], &b->j.shape[at], &to);
    nb_shape of = nb_tensor_shape(b->node[line]);
    const nb_spec *s = b->lay.spec[line];
    return o->c->op->inlines ? s : nb_spec_between(s, &of, &to);
}

static bool give(opened *o, int nout, nb_tensor *const *out)
{
    memset(o->d->give, 0, (size_t)nout * sizeof *o->d->give);
    for (int r = 0; r < o->n; r++)
        for (int k = 0; k < o->inside[r].j.ny; k++) {
            int to = o->inside[r].j.to[k];
            if (to < 0) continue;
            const nb_spec *s = given(o, &o->inside[r], k, out[to]);
            const nb_spec *was = o->d->give[to];
            if (s && was) s = meet(was, s, out[to]);
            if (!(o->d->give[to] = s)) return false;
        }
    return true;
}

/* What was decided, looked at again */

bool nb_inside_of(const nb_call *c, const nb_decision *d, int region,
                  nb_inside *to)
{
    int kept = 0;
    bool ok = true;
    if (region >= PROGRAMS || !d->opens || !c->op->region[region]) return false;
    if (!nb_inside_open(c, region, to)) return false;
    for (int i = 0; ok && i < to->j.nx; i++) {
        int from = to->j.from[i];
        if (from < 0) {
            to->in[i] = d->kept[kept++];
            continue;
        }
        nb_shape of = nb_tensor_shape(c->in[from]);
        to->in[i] = nb_spec_between(d->need[from], &of, &to->j.shape[i]);
        ok = to->in[i];
    }
    /* What comes in may lack lanes that it has from the first turn on. */
    for (int k = 0; ok && k < to->j.ny; k++) {
        int at = to->j.feeds[k];
        if (at < 0 || to->j.to[k] < 0) continue;
        const nb_shape *is = &to->j.shape[at];
        ok = (to->in[at] = nb_spec_between(d->give[to->j.to[k]], is, is));
    }
    ok = ok && nb_inside_lay(to, d->mesh);
    if (!ok) nb_inside_free(to);
    return ok;
}

const nb_spec *nb_inside_result(const nb_call *c, const nb_decision *d,
                                const nb_inside *b, int k)
{
    const nb_tensor *y = b->node[b->graph->result[k]];
    int at = b->j.feeds[k], out = b->j.to[k];
    nb_shape of, to = nb_tensor_shape(y);
    nb_dtype dtype;
    if (at >= 0) return b->in[at];
    if (out < 0) return nb_spec_whole(d->mesh, y->nlanes + y->rank, false);
    if (c->op->inlines) return d->give[out];
    if (!c->op->result(c, out, &of, &dtype)) return NULL;
    return nb_spec_between(d->give[out], &of, &to);
}

/* Ops without programs */

bool nb_call_hands_on(const nb_call *c)
{
    return c->op->inlines && !c->op->region[0];
}

static bool same_lanes(const nb_tensor *a, const nb_tensor *b)
{
    bool same = a->nlanes == b->nlanes;
    for (int l = 0; same && l < a->nlanes; l++)
        same = nb_tensor_lane(a)[l].id == nb_tensor_lane(b)[l].id &&
               nb_tensor_lane(a)[l].thin == nb_tensor_lane(b)[l].thin;
    return same;
}

static bool hand_on(const nb_call *c, int nout, nb_decision *d)
{
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++)
        ok = (d->need[i] = nb_spec_on(c->in[i], d->mesh)) != NULL;
    for (int k = 0; ok && k < nout; k++)
        d->give[k] = d->need[k];
    return ok;
}

static bool decide_whole(const nb_call *c, int nout, nb_tensor *const *out,
                         nb_decision *d)
{
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++) {
        int rank = c->in[i]->nlanes + c->in[i]->rank;
        ok = (d->need[i] = nb_spec_whole(d->mesh, rank, false)) != NULL;
    }
    for (int k = 0; ok && k < nout; k++) {
        int rank = out[k]->nlanes + out[k]->rank;
        ok = (d->give[k] = nb_spec_whole(d->mesh, rank, false)) != NULL;
    }
    d->reason = c->op->join
                    ? "its test differs from one hidden place to another"
                    : "it holds a program of its own";
    return ok;
}

bool nb_region_decide(const nb_call *c, int nout, nb_tensor *const *out,
                      const nb_wish *wish, nb_decision *d)
{
    opened o = {.c = c, .d = d};
    bool ok, hands = nb_call_hands_on(c);
    for (int k = 0; hands && k < nout; k++)
        hands = same_lanes(c->in[k], out[k]);
    if (hands) return hand_on(c, nout, d);
    if (nb_scope_open() != NB_OK) return false;
    d->opens = open_all(&o, &ok);
    if (d->opens) {
        ok = seed(&o) && follow(&o, wish) && settle(&o) && need(&o) &&
             give(&o, nout, out);
        close_all(&o);
    }
    nb_scope_close(0, NULL);
    return ok && (d->opens || decide_whole(c, nout, out, d));
}
