/* exec.c - making executables, and running them. */
#include "run/exec.h"

#include "backend/cpu/cache.h"
#include "backend/cpu/emit.h"
#include "backend/cpu/llvm.h"
#include "backend/ref/product.h"
#include "backend/ref/ref.h"
#include "base/pool.h"
#include "core/convert.h"
#include "lower/passes.h"
#include "run/chain.h"
#include "run/check.h"
#include "run/donate.h"
#include "run/profile.h"
#include "transform/region.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SMALL_ARENA = 1 << 16,
    STACK_SCRATCH = 1 << 14,
    CHUNK_CYCLES = 100000,
    MAX_CHUNKS = 64
};

/* A step that is a nest: its function, and how to cut its units. */
typedef struct kernel {
    nb_cpu_kernel *fn;
    nb_emitted info;
    int64_t chunks, per_chunk; /* units */
    int64_t *param;            /* of a nest for any sizes */
    nb_product *product;       /* of a call that is one */
} kernel;

/* What one run has: the arena, where blocks are, and nodes over them for the
 * calls of ops. */
typedef struct frame {
    struct frame *next;
    nb_buffer *arena;
    char **block;     /* by line: of roots */
    nb_buffer **held; /* by line: of results, made in this run */
    nb_tensor **node; /* by line: what calls read, made when first needed */
    nb_buffer *alien; /* what nodes over memory of the caller's look into */
    nb_buffer **own;  /* by line: of inputs, whose elements are put in order */
} frame;

struct nb_exec {
    nb_plan *plan;
    nb_code *code;
    kernel *kernel; /* by step */
    int *take;      /* by line: the input whose block a result takes; or NULL */
    int *result;    /* by line: the first result that it is, -1: none */
    int64_t bytes;  /* that a run needs besides its inputs */
    bool lends;     /* ops are called, which lend what they like */
    bool looks;     /* a result is a look, an input, or another result */
    bool echoes;    /* a result is, or looks into, an input */
    char *trouble;  /* why there is no code, and ops run one by one; or NULL */
    atomic_bool loaded;   /* the code is made, or there is trouble; */
    pthread_mutex_t lock; /* for making it */
    atomic_int refs;
    _Atomic(frame *) free;
};

const nb_plan *nb_exec_plan(const nb_exec *e)
{
    return e->plan;
}

static void frame_free(const nb_plan *p, frame *f)
{
    for (int k = 0; f->node && k < p->graph->n; k++)
        if (f->node[k]) {
            f->node[k]->data = NULL;
            f->node[k]->buffer = NULL;
            nb_drop(f->node[k]);
        }
    nb_buffer_drop(f->arena);
    nb_buffer_drop(f->alien);
    for (int k = 0; f->own && k < p->graph->n; k++)
        nb_buffer_drop(f->own[k]);
    nb_free(f->own);
    nb_free(f->block), nb_free(f->held), nb_free(f->node);
    nb_free(f);
}

void nb_exec_drop(nb_exec *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1) return;
    for (frame *f = e->free, *next; f; f = next) {
        next = f->next;
        frame_free(e->plan, f);
    }
    nb_code_drop(e->code);
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
static void cut(kernel *k)
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
static bool find_params(kernel *k, const nb_nest *x)
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
static bool settle(kernel *k, const nb_nest *x)
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
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int s = 0; ok && s < e->plan->nsteps; s++)
        ok = find_product(e, s);
    nb_scope_close(0, NULL);
    return ok;
}

static nb_tensor *packed(nb_tensor *x);

/* *x in a buffer, its elements in order; what it was is dropped. */
static bool pack(nb_tensor **x)
{
    nb_tensor *was = *x, *is = nb_realize_now(1, x) ? packed(was) : NULL;
    if (!is) return false;
    *x = nb_keep(is);
    nb_drop(was);
    return true;
}

/* Values that are known: captured tensors, and numbers, into which results may
 * look. */
static bool pack_known(nb_plan *p)
{
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int k = 0; ok && k < p->graph->n; k++) {
        nb_line *l = &p->graph->line[k];
        if (l->kind == NB_LINE_CAPTURED) ok = pack(&l->captured);
        if (l->kind == NB_LINE_NUMBER) ok = pack(&p->node[k]);
    }
    nb_scope_close(0, NULL);
    return ok;
}

/* Without a compiler the ops run one by one; the error becomes the reason. */
static bool make_do(nb_exec *e)
{
    if (nb_error_code() != NB_ERUNTIME || nb_llvm_there()) return false;
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
    return p->arena + p->tiles * nb_threads() + most;
}

static void count_bytes(nb_exec *e)
{
    e->bytes = nb_exec_temporaries(e);
    for (int k = 0; k < e->plan->graph->n; k++)
        if (e->plan->home[k] == NB_HOME_RESULT) e->bytes += e->plan->bytes[k];
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
    e->kernel = nb_alloc_zero((size_t)(p->nsteps + 1) * sizeof *e->kernel);
    bool ok = e->kernel && pack_known(p) && find_products(e) &&
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
    if (!nb_lower_graph(g)) return nb_graph_free(g), NULL;
    nb_plan *p = nb_plan_new(g);
    nb_profile_end(began, "compile", "lower");
    return p ? begin(p, false) : NULL;
}

nb_exec *nb_exec_like(const nb_exec *from, nb_plan *p)
{
    nb_exec *e = begin(p, true);
    if (!e) return NULL;
    e->code = nb_code_keep(from->code);
    e->loaded = true;
    for (int s = 0; s < p->nsteps; s++) {
        kernel *k = &e->kernel[s];
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

/* Frames */

static frame *frame_new(const nb_plan *p)
{
    size_t n = (size_t)(p->graph->n + p->nextra) + 1;
    frame *f = nb_alloc_zero(sizeof *f);
    if (!f) return NULL;
    f->block = nb_alloc_zero(n * sizeof *f->block);
    f->held = nb_alloc_zero(n * sizeof *f->held);
    f->node = nb_alloc_zero(n * sizeof *f->node);
    f->own = nb_alloc_zero(n * sizeof *f->own);
    if (f->block && f->held && f->node && f->own) return f;
    frame_free(p, f);
    return NULL;
}

static frame *frame_pop(nb_exec *e)
{
    frame *f = atomic_exchange(&e->free, NULL);
    if (!f) return frame_new(e->plan);
    frame *rest = f->next;
    f->next = NULL;
    while (rest) { /* others go back, one by one */
        frame *next = rest->next;
        rest->next = atomic_load(&e->free);
        while (!atomic_compare_exchange_weak(&e->free, &rest->next, rest))
            continue;
        rest = next;
    }
    return f;
}

static bool is_ours(const nb_plan *p, int k)
{
    return p->home[k] == NB_HOME_ARENA || p->home[k] == NB_HOME_RESULT;
}

/* The largest block that a run makes, below a size; -1: none. */
static int largest_below(const nb_plan *p, int64_t bytes)
{
    int best = -1;
    for (int k = 0; k < p->graph->n; k++)
        if (is_ours(p, k) && p->bytes[k] < bytes &&
            (best < 0 || p->bytes[k] > p->bytes[best]))
            best = k;
    return best;
}

/* What memory that cannot be had is for. */
static void *explain(const nb_exec *e)
{
    const nb_plan *p = e->plan;
    nb_text t = {0};
    int64_t below = INT64_MAX;
    for (int i = 0, k; i < 3 && (k = largest_below(p, below)) >= 0; i++) {
        const nb_line *l = &p->graph->line[k];
        nb_text_add(&t, "%s %s%s of %lld bytes", i ? "," : "", l->op->name,
                    nb_shape_text(&l->shape), (long long)p->bytes[k]);
        below = p->bytes[k];
    }
    nb_error_clear();
    nb_fail(NB_EMEMORY,
            "out of memory: the program needs %lld bytes besides its "
            "arguments, the largest:%s",
            (long long)e->bytes, nb_text_get(&t));
    nb_text_free(&t);
    return NULL;
}

/* What is more than there is fails before anything runs: the system might hand
 * it out, and end the process when it is used. */
static frame *frame_take(nb_exec *e)
{
    if ((uint64_t)e->bytes > nb_memory_limit()) return explain(e);
    frame *f = frame_pop(e);
    if (f && !f->arena) f->arena = nb_buffer_new((size_t)e->plan->arena);
    if (!f || f->arena) return f;
    frame_free(e->plan, f);
    return explain(e);
}

/* A large arena is left to whoever needs memory next. */
static void frame_give(nb_exec *e, frame *f)
{
    if (e->plan->arena > SMALL_ARENA) {
        nb_buffer_drop(f->arena);
        f->arena = NULL;
    }
    f->next = atomic_load(&e->free);
    while (!atomic_compare_exchange_weak(&e->free, &f->next, f))
        continue;
}

/* Running */

typedef struct run {
    nb_exec *e;
    frame *f;
    nb_tensor *const *x; /* or, if these are NULL, memory: */
    char *const *in, *const *out;
    const nb_run_watch *watch; /* or NULL */
} run;

static nb_tensor *given(const run *r, int k)
{
    const nb_line *l = &r->e->plan->graph->line[k];
    return l->kind == NB_LINE_INPUT      ? r->x[k]
           : l->kind == NB_LINE_CAPTURED ? l->captured
                                         : r->e->plan->node[k];
}

/* Copies the elements of x in order. */
static void pack_into(char *to, const nb_tensor *x)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], at[NB_MAX_DIMS];
    int64_t item = (int64_t)nb_dtype_size(d), n = 1;
    int nd = nb_tensor_strides(x, size, stride);
    for (int k = 0; k < nd; k++) {
        n *= size[k];
        at[k] = 0;
    }
    int64_t row = nd ? size[nd - 1] : 1, step = nd ? stride[nd - 1] : 1;
    for (int64_t done = 0; done < n; done += row) {
        int64_t o = 0;
        for (int k = 0; k < nd - 1; k++)
            o += at[k] * stride[k];
        nb_convert(to + done * item, d, 1, x->data + o * item, d, step, row);
        for (int k = nd - 2; k >= 0 && ++at[k] == size[k]; k--)
            at[k] = 0;
    }
}

/* Inputs that are memory of the caller's. */
static bool is_alien(const run *r, int k)
{
    return r->in && r->e->plan->graph->line[k].kind == NB_LINE_INPUT;
}

/* Where a result goes: memory of the caller's or of an input that is donated, or
 * a buffer of its own. */
static bool place_result(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    int first = r->out ? r->e->result[k] : -1;
    if (first >= 0) {
        r->f->block[k] = r->out[first];
        return true;
    }
    int i = r->e->take && r->x && !r->watch ? r->e->take[k] : -1;
    r->f->held[k] = i >= 0 && nb_donate_can(r->x[i])
                        ? nb_buffer_keep(r->x[i]->buffer)
                        : nb_buffer_new((size_t)p->bytes[k]);
    if (!r->f->held[k]) return false;
    r->f->block[k] = r->f->held[k]->data;
    return true;
}

/* An input whose elements do not lie in order is copied to the frame's own
 * memory, which costs less than a tensor of its own. */
static bool place_given(run *r, int k)
{
    char **block = &r->f->block[k];
    if (is_alien(r, k)) {
        *block = r->in[k];
        return true;
    }
    const nb_tensor *x = given(r, k);
    *block = x->data;
    if (nb_tensor_is_packed(x)) return true;
    if (!r->f->own[k])
        r->f->own[k] = nb_buffer_new((size_t)r->e->plan->bytes[k]);
    if (!r->f->own[k]) return false;
    *block = r->f->own[k]->data;
    pack_into(*block, x);
    return true;
}

static bool place_blocks(run *r)
{
    const nb_plan *p = r->e->plan;
    for (int k = 0; k < p->graph->n + p->nextra; k++) {
        if (p->home[k] == NB_HOME_GIVEN && !place_given(r, k)) return false;
        if (p->home[k] == NB_HOME_ARENA)
            r->f->block[k] = r->f->arena->data + p->at[k];
        if (p->home[k] == NB_HOME_TILE && !r->watch) continue;
        if (p->home[k] >= NB_HOME_RESULT && !place_result(r, k)) return false;
    }
    return true;
}

typedef struct launch {
    const kernel *k;
    void **buffer;
    const char *name; /* if times are taken; and whose thread this is */
    int thread;
    atomic_bool failed;
} launch;

static void run_chunk(void *ctx, int64_t i)
{
    launch *l = ctx;
    const kernel *k = l->k;
    int64_t from = i * k->per_chunk, to = from + k->per_chunk;
    _Alignas(64) char room[STACK_SCRATCH];
    char *scratch = room, *block = NULL;
    size_t got = 0;
    int64_t began = l->name ? nb_profile_now() : 0;
    if (to > k->info.units) to = k->info.units;
    if (k->info.scratch > STACK_SCRATCH) {
        scratch = block = nb_block_new((size_t)k->info.scratch, &got);
        if (!block) {
            l->failed = true;
            return;
        }
    }
    k->fn(l->buffer, scratch, from, to);
    if (block) nb_block_free(block, got);
    if (began && nb_profile_thread() != l->thread)
        nb_profile_end(began, "kernel", l->name);
}

static bool run_nest(run *r, int s, const char *name)
{
    const nb_step *step = &r->e->plan->step[s];
    const kernel *k = &r->e->kernel[s];
    void *few[16], **buffer = few;
    if (step->nbuffers > 15)
        buffer = nb_alloc((size_t)(step->nbuffers + 1) * sizeof *buffer);
    if (!buffer) return false;
    buffer[step->nbuffers] = k->param;
    for (int b = 0; b < step->nbuffers; b++)
        buffer[b] = r->f->block[step->buffer[b]];
    launch l = {.k = k, .buffer = buffer, .name = name};
    if (name) l.thread = nb_profile_thread();
    double ns = k->info.cycles * (double)k->info.units / 3;
    if (k->chunks == 1)
        run_chunk(&l, 0);
    else
        nb_parallel_if(ns, k->chunks, run_chunk, &l);
    if (buffer != few) nb_free(buffer);
    return !l.failed;
}

static nb_buffer *buffer_of(const run *r, int root)
{
    nb_home home = r->e->plan->home[root];
    if (home == NB_HOME_ARENA) return r->f->arena;
    if (home == NB_HOME_GIVEN)
        return is_alien(r, root) ? r->f->alien : given(r, root)->buffer;
    return r->f->held[root] ? r->f->held[root] : r->f->alien;
}

/* A node over the memory of line k. */
static nb_tensor *node_over(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    const nb_place *at = &p->place[k];
    const nb_tensor *form = p->node[k];
    if (at->root == k && p->home[k] == NB_HOME_GIVEN && !is_alien(r, k))
        return given(r, k);
    nb_tensor *x = r->f->node[k];
    if (!x) {
        if (!(x = nb_line_laid_out(p, k))) return NULL;
        r->f->node[k] = nb_keep(x);
    }
    x->data = r->f->block[at->root] +
              at->offset * (int64_t)nb_dtype_size((nb_dtype)form->dtype);
    x->buffer = buffer_of(r, at->root);
    return x;
}

static char *data_of(const run *r, int k)
{
    const nb_plan *p = r->e->plan;
    return r->f->block[p->place[k].root] +
           p->place[k].offset *
               (int64_t)nb_dtype_size((nb_dtype)p->node[k]->dtype);
}

static bool run_product(run *r, const nb_product *product, int k)
{
    const nb_line *l = &r->e->plan->graph->line[k];
    return nb_product_run(product, data_of(r, l->in[0]), data_of(r, l->in[1]),
                          r->f->block[k]);
}

static bool run_call(run *r, int k)
{
    const nb_plan *p = r->e->plan;
    const nb_line *l = &p->graph->line[k];
    int64_t attr[NB_MAX_WORDS];
    nb_call c = nb_call_of(p->node[k]);
    int nout = l->multi ? l->op->nout : 1;
    nb_tensor **in = nb_alloc((size_t)(l->nin + 1) * sizeof *in);
    char **to = nb_alloc((size_t)(nout + 1) * sizeof *to);
    bool ok = in && to;
    for (int i = 0; ok && i < l->nin; i++)
        ok = (in[i] = node_over(r, l->in[i]));
    for (int i = 0; ok && i < nout; i++)
        to[i] = r->f->block[k] + (l->multi ? p->parts[k][i] : 0);
    if (ok) {
        if (c.nattr) memcpy(attr, c.attr, (size_t)c.nattr * sizeof *attr);
        c.in = in;
        c.attr = attr;
        ok = nb_ref_compute(&c, p->node[k], to);
    }
    nb_free(in);
    nb_free(to);
    return ok;
}

/* The value of line k, of a shape that is the line's but for the lanes. */
static nb_tensor *leaf_of(run *r, int k, const nb_shape *shape)
{
    const nb_plan *p = r->e->plan;
    const nb_place *at = &p->place[k];
    nb_dtype d = p->graph->line[k].dtype;
    if (at->root == k) return nb_leaf_first(d, shape, r->f->held[k]);
    nb_buffer *b = p->home[at->root] == NB_HOME_GIVEN
                       ? given(r, at->root)->buffer
                       : r->f->held[at->root];
    return nb_leaf_new(d, shape, b,
                       r->f->block[at->root] +
                           at->offset * (int64_t)nb_dtype_size(d),
                       at->stride);
}

static nb_tensor *result_of(run *r, int k, const int *id)
{
    const nb_plan *p = r->e->plan;
    const nb_shape *form = &p->graph->line[k].shape;
    if (p->place[k].root == k && p->home[k] == NB_HOME_GIVEN)
        return given(r, k);
    if (!form->nlanes) return leaf_of(r, k, form);
    nb_shape shape = *form;
    for (int l = 0; l < shape.nlanes; l++)
        shape.lane[l].id = id[shape.lane[l].id];
    return leaf_of(r, k, &shape);
}

/* x with its elements in order, in a buffer. */
static nb_tensor *packed(nb_tensor *x)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t n;
    if (x->buffer && nb_tensor_is_packed(x)) return x;
    nb_shape shape = nb_tensor_shape(x);
    nb_shape_count(&shape, &n);
    nb_buffer *b = nb_buffer_new((size_t)n * nb_dtype_size(d));
    if (!b) return NULL;
    pack_into(b->data, x);
    nb_tensor *y = nb_leaf_first(d, &shape, b);
    nb_buffer_drop(b);
    return y;
}

static bool pack_inputs(int n, nb_tensor *const *x, nb_tensor **to)
{
    for (int i = 0; i < n; i++)
        if (!(to[i] = packed(x[i]))) return false;
    return true;
}

static bool run_step(run *r, int s, const char *name)
{
    const nb_plan *p = r->e->plan;
    const nb_product *product = r->e->kernel[s].product;
    int line = p->step[s].line;
    return p->step[s].nest ? run_nest(r, s, name)
           : product       ? run_product(r, product, line)
                           : run_call(r, line);
}

/* The ops of a step, as far as there is room. */
static void name_step(const nb_plan *p, int s, char *name, size_t room)
{
    int line = p->step[s].line, group = p->step[s].nest ? p->group[line] : -1;
    size_t n = 0;
    for (int k = 0; k < p->graph->n && n < room; k++)
        if (group >= 0 ? p->group[k] == group : k == line)
            n += (size_t)snprintf(name + n, room - n, "%s%s", n ? "+" : "",
                                  p->graph->line[k].op->name);
}

static bool run_step_timed(run *r, int s, int64_t began)
{
    char name[256] = "";
    name_step(r->e->plan, s, name, sizeof name);
    bool ok = run_step(r, s, name);
    nb_profile_end(began, r->e->plan->step[s].nest ? "kernel" : "call", name);
    nb_profile_memory(began);
    return ok;
}

static bool run_chain(run *r, const nb_chain *c)
{
    nb_chain_code code[NB_MAX_CHAIN] = {0};
    for (int s = c->first; s <= c->last; s++) {
        const kernel *k = &r->e->kernel[s];
        if (!r->e->plan->step[s].nest) continue;
        code[s - c->first] =
            (nb_chain_code){k->fn, k->info.units / c->rows, k->info.scratch};
    }
    return nb_chain_run(r->e->plan, c, code, r->f->block);
}

static bool run_chain_timed(run *r, const nb_chain *c, int64_t began)
{
    char name[256] = "";
    bool ok = run_chain(r, c);
    for (int s = c->first; s <= c->last; s++) {
        size_t n = strlen(name), room = sizeof name - n;
        if (n && room > 3) snprintf(name + n, room, ", ");
        name_step(r->e->plan, s, name + strlen(name),
                  sizeof name - strlen(name));
    }
    nb_profile_end(began, "chain", name);
    nb_profile_memory(began);
    return ok;
}

static nb_tensor *value_of(void *r, int k)
{
    return node_over(r, k);
}

static bool tell(run *r, int s, bool after)
{
    return !r->watch || r->watch->step(r->watch->ctx, s, after, value_of, r);
}

static bool writes_tiles(const nb_plan *p, int s)
{
    const nb_step *step = &p->step[s];
    if (!step->nest) return p->home[step->line] == NB_HOME_TILE;
    for (int k = 0; k < step->nest->n; k++) {
        const nb_nest_value *v = &step->nest->value[k];
        if (v->kind == NB_NEST_STORE &&
            p->home[step->buffer[v->buffer]] == NB_HOME_TILE)
            return true;
    }
    return false;
}

/* Who watches sees what a chain left, and what was only in its tiles by running
 * those steps once more, for all rows. */
static bool run_watched(run *r, int s)
{
    const nb_plan *p = r->e->plan;
    if (!tell(r, s, false)) return false;
    if ((!p->step[s].chain || writes_tiles(p, s)) && !run_step(r, s, NULL))
        return false;
    return tell(r, s, true);
}

static bool run_steps(run *r)
{
    const nb_plan *p = r->e->plan;
    if (!place_blocks(r)) return explain(r->e);
    for (int s = 0; s < p->nsteps; s++) {
        int64_t began = nb_profile_begin();
        int chain = p->step[s].chain;
        const nb_chain *c = chain ? &p->chain[chain - 1] : NULL;
        bool ok = true;
        if (c && s == c->first)
            ok = began ? run_chain_timed(r, c, began) : run_chain(r, c);
        if (ok && r->watch)
            ok = run_watched(r, s);
        else if (c)
            s = c->last;
        else if (ok)
            ok = began ? run_step_timed(r, s, began) : run_step(r, s, NULL);
        if (!ok) return false;
    }
    return true;
}

/* Blocks that were taken hold results now. */
static void mark_donated(const run *r)
{
    for (int k = 0; r->f && k < r->e->plan->graph->n; k++) {
        int i = r->e->take[k];
        if (i >= 0 && r->f->held[k] && r->f->held[k] == r->x[i]->buffer)
            nb_donate_mark(r->x[i]);
    }
}

bool nb_exec_run_as(nb_exec *e, const nb_graph *recorded, nb_tensor *const *x,
                    nb_tensor **y)
{
    if (!nb_exec_load(e)) return false;
    if (e->trouble || nb_runs_plainly())
        return nb_graph_run_plainly(recorded ? recorded : e->plan->graph, x, y);
    if (nb_check_get()) return nb_check_run(e, recorded, x, y);
    return nb_exec_run_watched(e, x, y, NULL);
}

bool nb_exec_run(nb_exec *e, nb_tensor *const *x, nb_tensor **y)
{
    return nb_exec_run_as(e, NULL, x, y);
}

static void let_go(run *r)
{
    for (int k = 0; k < r->e->plan->graph->n; k++) {
        if (r->f->held[k]) nb_buffer_drop(r->f->held[k]);
        r->f->held[k] = NULL;
        if (!r->f->own[k] || r->f->own[k]->room <= SMALL_ARENA) continue;
        nb_buffer_drop(r->f->own[k]);
        r->f->own[k] = NULL;
    }
    frame_give(r->e, r->f);
}

static bool run_packed(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                       const nb_run_watch *watch)
{
    const nb_graph *g = e->plan->graph;
    int id[NB_MAX_GRAPH_LANES + 1];
    run r = {.e = e, .f = frame_take(e), .x = x, .watch = watch};
    if (!r.f) return false;
    bool ok = run_steps(&r);
    if (ok && g->nlanes) nb_graph_match(g, x, id);
    for (int i = 0; ok && i < g->ny; i++)
        ok = (y[i] = result_of(&r, g->result[i], id));
    if (e->take) mark_donated(&r);
    let_go(&r);
    return ok;
}

/* Results that share memory with inputs, and whoever watches, want inputs that
 * are packed tensors. */
static bool run_scoped(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                       const nb_run_watch *watch)
{
    const nb_graph *g = e->plan->graph;
    nb_tensor *few[16], **in = few;
    if (g->nx > 16 && !(in = nb_alloc((size_t)g->nx * sizeof *in)))
        return false;
    bool ok = nb_scope_open() == NB_OK;
    if (ok) {
        ok = pack_inputs(g->nx, x, in) && run_packed(e, in, y, watch);
        nb_scope_close(ok ? g->ny : 0, y);
    }
    for (int i = 0; ok && i < g->ny; i++)
        ok = y[i];
    if (in != few) nb_free(in);
    return ok;
}

/* Loops lend nothing but results, and need no scope. */
bool nb_exec_run_watched(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                         const nb_run_watch *watch)
{
    bool scoped = e->lends || e->echoes || watch;
    return scoped ? run_scoped(e, x, y, watch) : run_packed(e, x, y, NULL);
}

/* Copies results that did not land where they belong: looks, inputs, lines that
 * are several results. */
static bool bring(run *r)
{
    const nb_graph *g = r->e->plan->graph;
    for (int i = 0; i < g->ny; i++) {
        int k = g->result[i];
        if (r->f->block[k] == r->out[i] && r->e->plan->place[k].root == k)
            continue;
        nb_tensor *x = node_over(r, k);
        if (!x) return false;
        nb_copy_into(r->out[i], &g->line[k].shape, x);
    }
    return true;
}

/* Inputs that nodes look into belong to nobody here. */
static bool has_alien(frame *f)
{
    if (f->alien) return true;
    if (!(f->alien = nb_alloc(sizeof *f->alien))) return false;
    *f->alien = (nb_buffer){.refs = 1};
    return true;
}

bool nb_exec_run_at(nb_exec *e, char *const *in, char *const *out)
{
    run r = {.e = e, .f = frame_take(e), .in = in, .out = out};
    if (!r.f) return false;
    bool scope = e->lends || e->looks;
    bool ok = has_alien(r.f) && (!scope || nb_scope_open() == NB_OK);
    if (ok) {
        ok = run_steps(&r) && (!e->looks || bring(&r));
        if (scope) nb_scope_close(0, NULL);
    }
    let_go(&r);
    return ok;
}
