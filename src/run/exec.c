/* exec.c - making executables. */
#include "run/exec_parts.h"

#include "backend/cpu/llvm.h"
#include "lower/passes.h"
#include "run/card.h"
#include "run/donate.h"
#include "run/profile.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK_CYCLES = 100000, MAX_CHUNKS = 64 };

const nb_plan *nb_exec_plan(const nb_exec *e)
{
    return e->plan;
}

nb_exec *nb_exec_keep(nb_exec *e)
{
    if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void nb_exec_drop(nb_exec *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1) return;
    for (nb_frame *f = e->free, *next; f; f = next) {
        next = f->next;
        nb_frame_free(e, f);
    }
    nb_code_drop(e->code);
    nb_card_unload(e);
    for (int s = 0; e->kernel && s < e->plan->nsteps; s++)
        nb_free(e->kernel[s].product), nb_free(e->kernel[s].param);
    nb_plan_free(e->plan);
    nb_free(e->kernel);
    nb_free(e->take);
    nb_free(e->result);
    nb_free(e->trouble);
    pthread_mutex_destroy(&e->lock);
    nb_free(e);
}

/* Code.  Equal nests are written once: `like` is the first of them. */

static bool find_like(const nb_plan *p, uint64_t *hash, int *like)
{
    size_t room = 16;
    while (room < 2 * (size_t)p->nsteps)
        room *= 2;
    int *at = nb_alloc(room * sizeof *at); /* steps by hash, -1: none */
    if (!at) return false;
    memset(at, -1, room * sizeof *at);
    for (int s = 0; s < p->nsteps; s++) {
        if (!p->step[s].nest) continue;
        hash[s] = nb_nest_hash(p->step[s].nest);
        size_t h = (size_t)hash[s] & (room - 1);
        while (at[h] >= 0 && hash[at[h]] != hash[s])
            h = (h + 1) & (room - 1);
        if (at[h] < 0) at[h] = s;
        like[s] = at[h];
    }
    nb_free(at);
    return true;
}

static bool write_code(nb_exec *e, nb_ir *ir, int *like)
{
    const nb_plan *p = e->plan;
    uint64_t *hash = nb_alloc((size_t)(p->nsteps + 1) * sizeof *hash);
    bool ok = hash && find_like(p, hash, like);
    for (int s = 0; ok && s < p->nsteps; s++) {
        char name[32];
        if (!p->step[s].nest) continue;
        e->kernel[s] = e->kernel[like[s]];
        if (like[s] != s) continue;
        snprintf(name, sizeof name, "k%d", s);
        ok = nb_emit_nest(ir, p->step[s].nest, name, &e->kernel[s].info);
    }
    nb_free(hash);
    return ok;
}

/* How many units a chunk has follows from the work alone. */
static void cut(nb_step_kernel *k)
{
    double cycles = k->info.cycles * (double)k->info.units;
    int64_t n = (int64_t)(cycles / CHUNK_CYCLES) + 1;
    if (n > MAX_CHUNKS) n = MAX_CHUNKS;
    if (n > k->info.units) n = k->info.units;
    if (n < 1) n = 1;
    k->per_chunk = (k->info.units + n - 1) / n;
    k->chunks =
        k->per_chunk ? (k->info.units + k->per_chunk - 1) / k->per_chunk : 0;
}

/* Numbers that the code of a nest for any sizes is given. */
static bool find_params(nb_step_kernel *k, const nb_nest *x)
{
    k->param = NULL;
    if (!x->param) return true;
    k->param = nb_alloc((size_t)(x->nparams + 1) * sizeof *k->param);
    if (!k->param) return false;
    for (int slot = 0; slot < nb_nest_slots(x); slot++)
        if (nb_nest_varies(x, slot))
            k->param[x->param[slot]] = *nb_nest_number(x, slot);
    k->param[x->nparams] = k->info.kept ? k->info.scratch / k->info.kept : 0;
    return true;
}

/* What follows from the sizes of a nest, whose code may be another's. */
static bool settle(nb_step_kernel *k, const nb_nest *x)
{
    nb_emitted_measure(&k->info, x);
    cut(k);
    return find_params(k, x);
}

static bool find_code(nb_exec *e, const int *like)
{
    for (int s = 0; s < e->plan->nsteps; s++) {
        char name[32];
        if (!e->plan->step[s].nest) continue;
        snprintf(name, sizeof name, "k%d", like[s]);
        e->kernel[s].fn = (nb_cpu_kernel *)nb_code_find(e->code, name);
        if (!e->kernel[s].fn)
            return nb_fail(NB_ERUNTIME, "compile: the code of %s is missing",
                           name);
        if (!settle(&e->kernel[s], e->plan->step[s].nest)) return false;
    }
    return true;
}

void (*nb_exec_spoil)(nb_nest *x);

static nb_code *build(const char *text)
{
    int64_t began = nb_profile_begin();
    nb_code *code = nb_code_build(text);
    nb_profile_end(began, "compile", "LLVM");
    return code;
}

static bool make_code(nb_exec *e)
{
    if (e->device) return nb_card_load(e);
    nb_ir ir = {0};
    int64_t began = nb_profile_begin();
    int *like = nb_alloc((size_t)(e->plan->nsteps + 1) * sizeof *like);
    bool any = false;
    for (int s = 0; s < e->plan->nsteps; s++) {
        any = any || e->plan->step[s].nest;
        if (nb_exec_spoil && e->plan->step[s].nest)
            nb_exec_spoil(e->plan->step[s].nest);
    }
    bool ok = like && write_code(e, &ir, like);
    char *text = ok && any ? nb_ir_module(&ir) : NULL;
    nb_profile_end(began, "compile", "emit");
    if (text && nb_pass_is_dumped("code")) nb_pass_dump("code", text);
    if (ok && any) ok = text && (e->code = build(text)) && find_code(e, like);
    nb_free(text);
    nb_ir_free(&ir);
    nb_free(like);
    return ok;
}

/* Calls that are products are worked out now. */
static bool find_product(nb_exec *e, int s)
{
    const nb_plan *p = e->plan;
    const nb_line *l = &p->graph->line[p->step[s].line];
    nb_product found;
    bool fits;
    if (p->step[s].nest || l->multi || l->nin != 2 || l->op->kernel)
        return true;
    nb_call c = nb_call_of(p->node[p->step[s].line]);
    nb_tensor *in[2] = {nb_line_laid_out(p, l->in[0]),
                        nb_line_laid_out(p, l->in[1])};
    nb_tensor *out = nb_line_laid_out(p, p->step[s].line);
    c.in = in;
    if (!in[0] || !in[1] || !out || !nb_product_plan(&found, &c, out, &fits))
        return false;
    if (!fits) return true;
    nb_product *kept = nb_alloc(sizeof *kept);
    if (kept) *kept = found;
    return (e->kernel[s].product = kept);
}

static bool find_products(nb_exec *e)
{
    if (e->device) return true;
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int s = 0; ok && s < e->plan->nsteps; s++)
        ok = find_product(e, s);
    nb_scope_close(0, NULL);
    return ok;
}

/* *x in a buffer, its elements in order; what it was is dropped. */
static bool pack(nb_tensor **x, int device)
{
    nb_tensor *was = *x, *is = NULL;
    if (nb_realize_now(1, x))
        is = device || was->device
                 ? nb_tensor_on(was, device ? device : was->device)
                 : nb_tensor_packed(was);
    if (!is) return false;
    *x = nb_keep(is);
    nb_drop(was);
    return true;
}

/* Values that are known: captured tensors, and numbers, into which results may
 * look. */
static bool pack_known(nb_plan *p, int device)
{
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int k = 0; ok && k < p->graph->n; k++) {
        nb_line *l = &p->graph->line[k];
        if (l->kind == NB_LINE_CAPTURED) ok = pack(&l->captured, device);
        if (l->kind == NB_LINE_NUMBER) ok = pack(&p->node[k], device);
    }
    nb_scope_close(0, NULL);
    return ok;
}

/* Without a compiler the ops run one by one; the error becomes the reason. */
static bool make_do(nb_exec *e)
{
    if (e->device || nb_error_code() != NB_ERUNTIME || nb_llvm_there())
        return false;
    e->trouble = nb_copy_text(nb_error_message());
    if (e->trouble) nb_error_clear();
    return e->trouble;
}

bool nb_exec_donate(nb_exec *e, int n, const int *inputs)
{
    if (e->take) return true;
    return (e->take = nb_donate_plan(e->plan, n, inputs));
}

int64_t nb_exec_donated_bytes(const nb_exec *e)
{
    int64_t bytes = 0;
    for (int k = 0; e->take && !e->trouble && k < e->plan->graph->n; k++)
        if (e->take[k] >= 0) bytes += e->plan->bytes[k];
    return bytes;
}

/* Ops that hold programs make them now. */
static bool prepare(nb_exec *e, bool again)
{
    const nb_plan *p = e->plan;
    bool ok = true;
    for (int s = 0; ok && s < p->nsteps; s++) {
        nb_tensor *node = p->node[p->step[s].line];
        bool calls = !p->step[s].nest && !e->kernel[s].product;
        nb_call c = nb_call_of(node);
        e->lends = e->lends || calls;
        if (calls && !again && node->op->prepare) ok = node->op->prepare(&c);
    }
    return ok;
}

static bool find_results(nb_exec *e)
{
    const nb_graph *g = e->plan->graph;
    size_t n = (size_t)nb_plan_blocks(e->plan) + 1;
    if (!(e->result = nb_alloc(n * sizeof *e->result))) return false;
    memset(e->result, -1, n * sizeof *e->result);
    for (int i = g->ny - 1; i >= 0; i--) {
        int k = g->result[i], root = e->plan->place[k].root;
        e->looks = e->looks || e->result[k] >= 0 || root != k ||
                   e->plan->home[k] != NB_HOME_RESULT;
        e->echoes = e->echoes || g->line[root].kind == NB_LINE_INPUT;
        e->result[k] = i;
    }
    return true;
}

int64_t nb_exec_temporaries(const nb_exec *e)
{
    const nb_plan *p = e->plan;
    int64_t most = 0;
    for (int s = 0; s < p->nsteps; s++) {
        nb_tensor *node = p->node[p->step[s].line];
        nb_call c = nb_call_of(node);
        bool holds = !p->step[s].nest && node->op->needs;
        int64_t bytes = holds ? node->op->needs(&c) : 0;
        if (bytes > most) most = bytes;
    }
    return p->arena + p->tiles * nb_threads() + most + (int64_t)e->workspace;
}

static void count_bytes(nb_exec *e)
{
    e->bytes = nb_exec_temporaries(e);
    for (int k = 0; k < e->plan->graph->n; k++)
        if (e->plan->home[k] == NB_HOME_RESULT) e->bytes += e->plan->bytes[k];
}

/* Values on several devices: each op runs where it is, by itself. */
static bool scatter(nb_exec *e)
{
    e->device = 0;
    e->loaded = true;
    e->trouble = nb_copy_text("its values are on several devices");
    if (!e->trouble) nb_exec_drop(e);
    return e->trouble;
}

/* All but the code.  For sizes that may come once the programs inside ops are
 * not worth making. */
static nb_exec *begin(nb_plan *p, bool again)
{
    nb_exec *e = nb_alloc_zero(sizeof *e);
    if (!e) return nb_plan_free(p), NULL;
    e->refs = 1;
    pthread_mutex_init(&e->lock, NULL);
    e->plan = p;
    e->device = p->device;
    if (nb_graph_device(p->graph) < 0 && !scatter(e)) return NULL;
    e->kernel = nb_alloc_zero((size_t)(p->nsteps + 1) * sizeof *e->kernel);
    bool ok = e->kernel && pack_known(p, e->device) && find_products(e) &&
              find_results(e) && prepare(e, again);
    if (ok) count_bytes(e);
    if (ok) return e;
    nb_exec_drop(e);
    return NULL;
}

/* What failed for want of memory may be tried again. */
bool nb_exec_load(nb_exec *e)
{
    if (atomic_load_explicit(&e->loaded, memory_order_acquire)) return true;
    pthread_mutex_lock(&e->lock);
    bool ok = e->loaded || make_code(e) || make_do(e);
    if (!ok) {
        nb_code_drop(e->code);
        e->code = NULL;
    }
    e->loaded = ok;
    pthread_mutex_unlock(&e->lock);
    return ok;
}

nb_exec *nb_exec_new(nb_graph *g)
{
    nb_exec *e = nb_exec_lower(g);
    if (!e || nb_exec_load(e)) return e;
    nb_exec_drop(e);
    return NULL;
}

nb_exec *nb_exec_of(nb_plan *p)
{
    nb_exec *e = begin(p, false);
    if (!e || nb_exec_load(e)) return e;
    nb_exec_drop(e);
    return NULL;
}

nb_exec *nb_exec_lower(nb_graph *g)
{
    int64_t began = nb_profile_begin();
    nb_card_give_numbers(g);
    if (!nb_lower_graph(g)) return nb_graph_free(g), NULL;
    nb_plan *p = nb_plan_new(g);
    nb_profile_end(began, "compile", "lower");
    return p ? begin(p, false) : NULL;
}

nb_exec *nb_exec_like(const nb_exec *from, nb_plan *p)
{
    nb_exec *e = begin(p, true);
    if (!e) return NULL;
    if (e->device) {
        e->loaded = nb_card_load_like(e, from);
        return e->loaded ? e : (nb_exec_drop(e), NULL);
    }
    e->code = nb_code_keep(from->code);
    e->loaded = true;
    for (int s = 0; s < p->nsteps; s++) {
        nb_step_kernel *k = &e->kernel[s];
        if (!p->step[s].nest) continue;
        k->fn = from->kernel[s].fn;
        k->info = from->kernel[s].info;
        if (!settle(k, p->step[s].nest)) return nb_exec_drop(e), NULL;
    }
    return e;
}

static bool has_nests(const nb_exec *e)
{
    for (int s = 0; s < e->plan->nsteps; s++)
        if (e->plan->step[s].nest) return true;
    return false;
}

/* Where there is a compiler there will be no trouble. */
const char *nb_exec_trouble(nb_exec *e)
{
    if (!e->loaded && has_nests(e) && !nb_llvm_there() && !nb_exec_load(e))
        nb_error_clear();
    return e->loaded && e->trouble ? e->trouble : "";
}
