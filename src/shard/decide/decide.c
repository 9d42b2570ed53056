/* decide.c - decisions: made once for calls that are alike, and kept. */
#include "core/lanes.h"
#include "shard/decide/partial.h"
#include "shard/decide/region.h"
#include "shard/decide/work.h"
#include "shard/plan/plan.h"

#include <pthread.h>
#include <string.h>

nb_factor_kind nb_work_kind(const nb_work *w, int factor)
{
    nb_factor_kind k = (nb_factor_kind)w->f->kind[factor];
    int64_t none[2] = {0}, range[2];
    const nb_op *op = w->call->op;
    bool able = k == NB_PERMUTE
                    ? op->reach && op->reach(w->call, 0, 0, none, range)
                    : op->splits >> k & 1;
    return k == NB_PASS || able ? k : NB_REPLICATE;
}

const char *nb_work_factor_name(const nb_work *w, int factor)
{
    const nb_sig *sig = w->call->sig;
    int first = w->f->n - (sig ? sig->nfactors : 0);
    if (!sig || factor < first) return "a batch dim";
    const char *name = sig->factor[factor - first].name;
    return *name ? name : "?";
}

/* A dim of one element, or none, is not split. */
void nb_work_dims(const nb_work *w, int t, nb_spec *draft)
{
    const nb_factored *x = &w->f->tensor[t];
    memset(draft, 0, sizeof *draft);
    draft->mesh = w->mesh;
    draft->rank = x->rank;
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; x->size[d] > 1 && i < x->dim[d].n; i++) {
            const nb_cut *l = &w->axes[x->dim[d].factor[i]];
            if (t < w->f->nin &&
                w->f->kind[x->dim[d].factor[i]] == NB_PERMUTE &&
                !w->from[t]->dim[d].axes.n)
                continue; /* it has all that is to be reached */
            for (int k = 0; k < l->n; k++)
                nb_cut_add(&draft->dim[d].axes, l->at[k]);
        }
}

const nb_spec *nb_work_need(const nb_work *w, int t)
{
    nb_spec draft;
    nb_work_dims(w, t, &draft);
    return nb_spec_intern(&draft);
}

double nb_work_debt(const nb_work *w, const nb_cut *axes)
{
    double n = (double)nb_cut_count(axes), byte = 0, message = 0, bytes = 0;
    for (int k = 0; k < axes->n; k++) {
        int a = axes->at[k].axis;
        if (w->mesh->byte[a] > byte) byte = w->mesh->byte[a];
        if (w->mesh->message[a] > message) message = w->mesh->message[a];
    }
    for (int k = 0; k < w->f->nout; k++) {
        nb_spec draft;
        int t = w->f->nin + k;
        nb_work_dims(w, t, &draft);
        bytes += (double)(nb_spec_elements(&draft, w->f->tensor[t].size) *
                          w->item[t]);
    }
    return n > 1 ? (n - 1) * message + bytes * (n - 1) / n * byte : 0;
}

const nb_spec *nb_spec_on(const nb_tensor *x, const nb_mesh *m)
{
    if (x->sharding) return x->sharding;
    return nb_spec_whole(m, x->nlanes + x->rank, true);
}

/* UPDATE */

/* Whoever was given one may keep it: none is freed, found again or not. */
static _Atomic(const nb_decision *) decisions;

static nb_decision *room(const nb_mesh *m, int nin, int nout, int nkept)
{
    size_t n = (size_t)(nin + nout);
    nb_decision *d = nb_alloc_forever(
        sizeof *d + (2 * n + (size_t)(nin + nkept)) * sizeof *d->need);
    if (!d) return NULL;
    *d = (nb_decision){.mesh = m, .nin = nin, .nout = nout, .reason = ""};
    d->next = decisions;
    while (!atomic_compare_exchange_weak(&decisions, &d->next, d))
        ;
    d->need = (const nb_spec **)(d + 1);
    d->give = d->need + nin;
    d->reach = (const nb_reshard_plan **)(d->give + nout);
    d->share = d->reach + nin;
    d->kept = (const nb_spec **)(d->share + n);
    memset(d->reach, 0, (n + (size_t)nin) * sizeof *d->reach);
    return d;
}

static bool update(const nb_work *w, nb_decision *d)
{
    nb_cut operand[64], result, *carried = operand;
    nb_reduce kind;
    nb_spec draft;
    int nin = w->f->nin;
    bool ok = true;
    if (w->call->op ==
        &nb_op_alias) { /* graphs leave it out: it says nothing */
        d->need[0] = d->give[0] = w->from[0];
        return true;
    }
    if (nin > 64 && !(carried = nb_alloc((size_t)nin * sizeof *carried)))
        return false;
    ok = nb_work_partials(w, carried, &result, &kind);
    for (int t = 0; ok && t < nin; t++) {
        nb_work_dims(w, t, &draft);
        draft.partial = carried[t];
        draft.kind = kind;
        ok = (d->need[t] = nb_spec_intern(&draft)) != NULL;
    }
    for (int k = 0; ok && k < w->f->nout; k++) {
        nb_work_dims(w, nin + k, &draft);
        draft.partial = result;
        draft.kind = nb_call_turns(w->call, kind);
        ok = (d->give[k] = nb_spec_intern(&draft)) != NULL;
    }
    if (carried != operand) nb_free(carried);
    for (int t = 0; ok && w->call->op->reach && t < nin; t++)
        ok = nb_reach_plan(w, t, d->need[t], d->give[0], &d->reach[t]);
    for (int t = 0; ok && t < nin + w->f->nout; t++)
        if (t < 32 && w->call->op->shares >> t & 1)
            ok = nb_share_plan(w, t, t < nin ? d->need[t] : d->give[t - nin],
                               &d->share[t]);
    if (ok && *w->reason)
        ok = (d->reason = nb_intern(w->reason, strlen(w->reason))) != NULL;
    return ok;
}

static bool meet(const nb_call *c, const nb_mesh **mesh)
{
    *mesh = NULL;
    for (int i = 0; i < c->nin; i++) {
        const nb_spec *s = c->in[i]->sharding;
        if (!s) continue;
        if (!*mesh) *mesh = s->mesh;
        if (*mesh != s->mesh)
            return nb_fail(NB_EVALUE,
                           "%s: operands lie on two meshes, @%s and @%s: "
                           "reshard one of them",
                           c->op->name, (*mesh)->name, s->mesh->name);
    }
    return true;
}

static nb_decision *decide(nb_work *w, const nb_call *c, int nout,
                           nb_tensor *const *out, const nb_wish *wish)
{
    int n = c->nin + nout;
    nb_decision *d = room(w->mesh, c->nin, nout, 0);
    w->spec = nb_alloc_zero((size_t)n * 2 * sizeof *w->spec);
    w->item = nb_alloc((size_t)n * sizeof *w->item);
    w->from = w->spec ? w->spec + n : NULL;
    bool ok = d && w->spec && w->item;
    for (int t = 0; ok && t < n; t++) {
        const nb_tensor *x = t < c->nin ? c->in[t] : out[t - c->nin];
        w->item[t] = (int)nb_dtype_size((nb_dtype)x->dtype);
        if (t >= c->nin) {
            w->spec[t] =
                wish && wish->results ? wish->results[t - c->nin] : NULL;
            continue;
        }
        w->spec[t] = x->sharding;
        ok = (w->from[t] = nb_spec_on(x, w->mesh)) != NULL;
    }
    ok = ok && nb_work_resolve(w) && update(w, d);
    nb_free(w->cand);
    nb_free(w->spec);
    nb_free(w->item);
    return ok ? d : NULL;
}

/* What one operand has pending all are made to have a part of. */
static void mask(nb_work *w)
{
    for (int t = 0; t < w->call->nin; t++) {
        const nb_spec *s = w->call->in[t]->sharding;
        for (int i = 0; s && s->kind == NB_SUM && i < s->partial.n; i++)
            if (!nb_cut_has(&w->pending, s->partial.at[i]) &&
                w->pending.n < NB_MESH_AXES)
                w->pending.at[w->pending.n++] = s->partial.at[i];
    }
}

/* What a decision follows from, as words. */
typedef struct key {
    int n, nids;
    uint64_t hash;
    int32_t id[NB_MAX_LANES * 8]; /* lanes, in the order they are met */
    int64_t word[1024];
} key;

static bool key_add(key *k, int64_t word)
{
    if (k->n == (int)(sizeof k->word / sizeof k->word[0])) return false;
    k->word[k->n++] = word;
    return true;
}

/* Which lane it is does not matter, only where it is met again. */
static bool key_lane(key *k, int64_t id)
{
    int at = 0;
    while (at < k->nids && k->id[at] != id)
        at++;
    if (at == (int)(sizeof k->id / sizeof k->id[0])) return false;
    if (at == k->nids) k->id[k->nids++] = (int32_t)id;
    return key_add(k, at);
}

static bool key_tensor(key *k, const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS];
    int n = nb_stored_sizes(x, size);
    bool ok = key_add(k, (intptr_t)x->sharding) &&
              key_add(k, n << 16 | x->rank << 8 | x->dtype);
    for (int d = 0; ok && d < n; d++)
        ok = key_add(k, size[d]);
    for (int l = 0; ok && l < x->nlanes; l++)
        ok = key_lane(k, nb_tensor_lane(x)[l].id);
    return ok;
}

/* An op that is made at a call goes with it: what it holds says what it is. */
static bool key_op(key *k, const nb_call *c)
{
    const nb_op *op = c->op;
    bool ok = key_add(k, op->release ? (intptr_t)op->name : (intptr_t)op);
    for (int i = 0; ok && op->release && i < 2; i++)
        ok = key_add(k,
                     op->region[i] ? (int64_t)nb_graph_hash(op->region[i]) : 0);
    for (int i = 0; ok && op->release && i < c->nattr; i++)
        ok = key_add(k, c->attr[i]);
    return ok;
}

static bool key_wish(key *k, int nout, const nb_wish *w)
{
    bool ok = key_add(k, w ? (intptr_t)w->mesh : 0) &&
              key_add(k, w && w->results ? nout : 0);
    for (int i = 0; ok && w && w->results && i < nout; i++)
        ok = key_add(k, (intptr_t)w->results[i]);
    for (int i = 0; ok && w && i < w->pending.n; i++) {
        nb_axis a = w->pending.at[i];
        ok = key_add(k, a.axis | (int64_t)a.pre << 8 | (int64_t)a.size << 24);
    }
    return ok;
}

/* False: too long to be kept. */
static bool key_of(key *k, const nb_call *c, int nout, nb_tensor *const *out,
                   const nb_wish *wish)
{
    k->n = k->nids = 0;
    if (!key_op(k, c)) return false;
    bool ok = key_add(k, (intptr_t)c->sig);
    for (int i = 0; ok && i < c->nin; i++) {
        int same = 0; /* x * x is not x * y */
        while (c->in[same] != c->in[i])
            same++;
        ok = key_add(k, same) && key_tensor(k, c->in[i]);
    }
    for (int i = 0; ok && i < nout; i++)
        ok = key_tensor(k, out[i]);
    for (int i = 0; ok && c->op->reach && i < c->nattr; i++)
        ok = key_add(k, c->attr[i]);
    if (ok && c->op->dim_of) /* axis, lane, size */
        ok = key_add(k, c->attr[0]) && key_lane(k, c->attr[1]);
    ok = ok && key_wish(k, nout, wish);
    k->hash = nb_hash(7, k->word, (size_t)k->n * sizeof k->word[0]);
    return ok;
}

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    const nb_decision *decision;
    int n;
    int64_t word[];
} entry;

enum { BUCKETS = 4096 };
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static entry *table[BUCKETS];

static const nb_decision *find(const key *k)
{
    pthread_rwlock_rdlock(&lock);
    entry *e = table[k->hash % BUCKETS];
    while (e && (e->hash != k->hash || e->n != k->n ||
                 memcmp(e->word, k->word, (size_t)k->n * sizeof e->word[0])))
        e = e->next;
    pthread_rwlock_unlock(&lock);
    return e ? e->decision : NULL;
}

static void keep(const key *k, const nb_decision *d)
{
    size_t bytes = (size_t)k->n * sizeof k->word[0];
    entry *e = nb_alloc_forever(sizeof *e + bytes);
    if (!e) {
        nb_error_clear();
        return;
    }
    e->hash = k->hash;
    e->decision = d;
    e->n = k->n;
    memcpy(e->word, k->word, bytes);
    pthread_rwlock_wrlock(&lock);
    e->next = table[k->hash % BUCKETS];
    table[k->hash % BUCKETS] = e;
    pthread_rwlock_unlock(&lock);
}

void (*nb_decide_spoil)(const nb_call *c, nb_decision *d);

const nb_decision *nb_decide_with(const nb_call *c, int nout,
                                  nb_tensor *const *out, const nb_wish *wish)
{
    key k;
    nb_factors f;
    nb_work w = {.call = c};
    if (!meet(c, &w.mesh)) return NULL;
    if (!w.mesh && wish) w.mesh = wish->mesh;
    if (!w.mesh) return NULL;
    if (wish) w.pending = wish->pending;
    if (w.mesh->rules & NB_MESH_MASK) mask(&w);
    bool kept = !nb_decide_spoil && key_of(&k, c, nout, out, wish);
    const nb_decision *found = kept ? find(&k) : NULL;
    if (found) return found;
    nb_decision *d;
    if (c->op->result) {
        const nb_graph *g = c->op->region[0];
        d = room(w.mesh, c->nin, nout,
                 g && g->nx > c->nin ? g->nx - c->nin : 0);
        if (d && !nb_region_decide(c, nout, out, wish, d)) return NULL;
    } else {
        if (!nb_factors_of(&f, c, nout, out)) return NULL;
        w.f = &f;
        d = decide(&w, c, nout, out, wish);
        nb_factors_free(&f);
    }
    if (d && kept) keep(&k, d);
    if (d && nb_decide_spoil) nb_decide_spoil(c, d);
    return d;
}

const nb_decision *nb_decide(const nb_call *c, int nout, nb_tensor *const *out)
{
    return nb_decide_with(c, nout, out, NULL);
}
