/* lazy.c - realising by executables.
 *
 * A loop in plain lazy style asks for the same program again and again, on
 * other data.  Programs are told apart by the hash of what was recorded; one
 * that comes back, or is long, is compiled and kept.  Numbers in expressions
 * are inputs like tensors, or a learning rate that changes would make a new
 * program each time.
 *
 * What somebody else still holds is a result too; all the rest of a program
 * never gets a value, and is computed again if it is asked for after all. */
#include "run/lazy.h"

#include "backend/cpu/llvm.h"
#include "core/graph.h"
#include "run/card.h"
#include "run/check.h"
#include "run/shelf.h"
#include "run/single.h"
#include "transform/region.h"

#include <string.h>

enum {
    SMALL = 1 << 15, /* elements computed by loops, less are not worth it */
    LONG = 1 << 23,  /* worth it at once */
    KEPT = 256,
    SEEN = 4096
};

static void drop(void *exec)
{
    nb_exec_drop(exec);
}

/* Executables, or that a program cannot be compiled. */
static nb_shelf programs = {PTHREAD_MUTEX_INITIALIZER, NULL, KEPT, drop};
static _Atomic uint64_t seen[SEEN];

void nb_lazy_clear(void)
{
    nb_shelf_clear(&programs);
    for (int i = 0; i < SEEN; i++)
        seen[i] = 0;
}

/* What a realisation would compile: from `in` to `out`, both kept. */
typedef struct job {
    nb_list in, out;
    double work; /* elements that loops compute */
    bool fits;
    bool whole; /* it has to run in any case */
} job;

static double elements(const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    double n = 1;
    for (int d = nb_tensor_strides(x, size, stride) - 1; d >= 0; d--)
        n *= (double)size[d];
    return n;
}

/* What an op does follows from its name, attributes and programs; but for ops
 * made at a call that hold something else, such as functions. */
static bool is_plain_op(const nb_op *op)
{
    if (!op->release || op->identity) return true;
    for (int k = 0; k < 2; k++)
        if (op->region[k] && !nb_graph_is_closed(op->region[k])) return false;
    return op->region[0];
}

static bool is_plain(const nb_tensor *x)
{
    return x->op && is_plain_op(x->op);
}

static bool add_kept(nb_list *list, nb_tensor *x)
{
    bool ok = nb_list_add(list, x);
    if (ok) nb_keep(x);
    return ok;
}

static bool add_input(job *j, nb_tensor *x, uint32_t mark)
{
    if (x->mark == mark) return true;
    x->mark = mark;
    if (x->nlanes && !j->whole) j->fits = false;
    return add_kept(&j->in, x);
}

static bool loops(const nb_op *op)
{
    return op->scalar || op->body || op->point;
}

/* Under the graph lock: who is used how often, then what is held besides. */
static bool survey(job *j, int n, nb_tensor **node)
{
    uint32_t mark = nb_graph_mark(), input = nb_graph_mark();
    for (int k = 0; k < n; k++) {
        bool done = nb_tensor_done(node[k]);
        node[k]->mark = j->whole && done ? 0 : mark;
        node[k]->slot = 1; /* held by the list of nodes */
        if (!j->whole && (done || !is_plain(node[k]))) j->fits = false;
    }
    for (int k = 0; j->fits && k < n; k++) {
        if (node[k]->mark != mark) continue;
        if (loops(node[k]->op)) j->work += elements(node[k]);
        for (int i = 0; i < node[k]->nin; i++) {
            nb_tensor *x = nb_tensor_in(node[k])[i];
            if (x->mark == mark)
                x->slot++;
            else if (!nb_tensor_done(x) && !j->whole)
                j->fits = false;
            else if (!add_input(j, x, input))
                return false;
        }
    }
    return true;
}

static bool find_results(job *j, int n, nb_tensor **node, int nroots,
                         nb_tensor *const *root)
{
    for (int k = 0; k < n; k++) {
        bool held = (int)node[k]->slot < atomic_load(&node[k]->refs);
        for (int i = 0; !held && i < nroots; i++)
            held = root[i] == node[k];
        if (!held || node[k]->flags & NB_MULTI || nb_tensor_done(node[k]))
            continue;
        if (node[k]->nlanes && !j->whole) j->fits = false;
        if (!add_kept(&j->out, node[k])) return false;
    }
    return true;
}

static void job_free(job *j)
{
    for (int i = 0; i < j->in.n; i++)
        nb_drop(j->in.at[i]);
    for (int i = 0; i < j->out.n; i++)
        nb_drop(j->out.at[i]);
    nb_list_free(&j->in);
    nb_list_free(&j->out);
}

/* A tensor that another thread has computed meanwhile stands in the graph with
 * its value, of which the hash knows nothing. */
bool nb_graph_is_closed(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].kind == NB_LINE_CAPTURED ||
            (g->line[k].op && !is_plain_op(g->line[k].op)))
            return false;
    return true;
}

/* Whether the program has been here before. */
static bool has_been_seen(uint64_t hash)
{
    return atomic_exchange(&seen[hash % SEEN], hash) == hash;
}

/* Takes the graph.  A program that cannot be compiled is kept as that. */
static nb_shelved *make(nb_graph *g, uint64_t hash, bool later)
{
    nb_exec *e = later ? nb_exec_lower(g) : nb_exec_new(g);
    if (!e) nb_error_clear();
    return nb_shelf_put(&programs, hash, e, true);
}

/* The program of a job, NULL without an error if it had better not be
 * compiled. */
static nb_shelved *program_of(const job *j)
{
    nb_graph *g;
    uint64_t hash;
    if (nb_graph_of(j->in.n, j->in.at, j->out.n, j->out.at, &g) != NB_OK)
        return NULL;
    if (!nb_graph_known_by(g, &hash)) return nb_graph_free(g), NULL;
    nb_shelved *p = nb_shelf_take(&programs, hash);
    if (!p && nb_graph_is_closed(g) && (j->work >= LONG || has_been_seen(hash)))
        return make(g, hash, false);
    nb_graph_free(g);
    return p;
}

bool nb_lazy_settle(nb_tensor *x, nb_tensor *value)
{
    size_t n = (size_t)(x->nlanes + x->rank) + 1;
    nb_tensor **old = NULL;
    int64_t *strides = NULL;
    if (value->strides && (strides = nb_alloc(n * sizeof *strides)))
        memcpy(strides, value->strides, (n - 1) * sizeof *strides);
    if (value->strides && !strides) return false;
    nb_graph_lock();
    bool ours = !nb_tensor_done(x);
    if (ours) nb_tensor_settle(x, value->buffer, value->data, strides);
    int count = ours ? nb_tensor_forget(x, &old) : 0;
    nb_graph_unlock();
    for (int i = 0; i < count; i++)
        nb_drop(old[i]);
    if (!ours) nb_free(strides);
    return true;
}

/* Whoever compares wants to know what was recorded. */
static bool run_on(const job *j, nb_exec *e, nb_tensor **y)
{
    nb_graph *g = NULL;
    if (nb_check_get() &&
        nb_graph_of(j->in.n, j->in.at, j->out.n, j->out.at, &g) != NB_OK)
        return false;
    bool ok = nb_exec_run_as(e, g, j->in.at, y);
    nb_graph_free(g);
    return ok;
}

static bool run(const job *j, nb_exec *e)
{
    nb_tensor **y = nb_array(j->out.n);
    bool ok = y && nb_scope_open() == NB_OK;
    if (ok) {
        ok = run_on(j, e, y);
        for (int i = 0; ok && i < j->out.n; i++)
            ok = nb_lazy_settle(j->out.at[i], y[i]);
        nb_scope_close(0, NULL);
    }
    nb_free(y);
    return ok;
}

/* For programs that run many times */

struct nb_program {
    nb_shelved *of; /* shared by equal ones, or */
    nb_exec *own;
    bool at; /* no op keeps what it is given: runs on memory alone */
};

static void drop_program(nb_program *p)
{
    if (!p) return;
    nb_shelf_return(&programs, p->of);
    nb_exec_drop(p->own);
    nb_free(p);
}

/* Takes the graph. */
static nb_shelved *shared(nb_graph *g, bool later)
{
    uint64_t hash;
    if (!nb_graph_known_by(g, &hash)) return nb_graph_free(g), NULL;
    nb_shelved *p = nb_shelf_take(&programs, hash);
    if (!p) return make(g, hash, later);
    nb_graph_free(g);
    return p;
}

static bool has_plain_ops(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].op && !is_plain_op(g->line[k].op)) return false;
    return true;
}

static nb_program *make_program(int nx, nb_tensor *const *x, int ny,
                                nb_tensor *const *y, bool later)
{
    nb_graph *g;
    bool wanted = later || (nb_llvm_there() && !nb_runs_plainly());
    nb_program *p = wanted ? nb_alloc_zero(sizeof *p) : NULL;
    if (!p || nb_graph_of(nx, x, ny, y, &g) != NB_OK) return nb_free(p), NULL;
    p->at = has_plain_ops(g);
    if (later && !p->at) return nb_graph_free(g), nb_free(p), NULL;
    if (nb_graph_is_closed(g))
        p->of = shared(g, later);
    else
        p->own = later ? nb_exec_lower(g) : nb_exec_new(g);
    if (p->own || (p->of && p->of->it)) return p;
    nb_error_clear();
    drop_program(p);
    return NULL;
}

nb_exec *nb_program_exec(const nb_program *p)
{
    return p->of ? p->of->it : p->own;
}

/* Whoever watches values wants tensors. */
static bool is_ready(nb_program *p)
{
    if (!p->at || nb_runs_plainly() || nb_check_get()) return false;
    bool ok = nb_exec_load(nb_program_exec(p));
    if (!ok) nb_error_clear();
    return ok && !*nb_exec_trouble(nb_program_exec(p));
}

static bool run_at(nb_program *p, char *const *x, char *const *y)
{
    return nb_exec_run_at(nb_program_exec(p), x, y);
}

static int64_t program_bytes(const nb_program *p)
{
    return nb_exec_temporaries(nb_program_exec(p));
}

static bool run_program(nb_program *p, nb_tensor *const *x, nb_tensor **y)
{
    return nb_exec_run(nb_program_exec(p), x, y);
}

const nb_programs nb_programs_run = {make_program, run_program,   is_ready,
                                     run_at,       program_bytes, drop_program};

static bool is_small(int n, nb_tensor **node)
{
    double work = 0;
    for (int k = 0; k < n && work < SMALL; k++)
        if (node[k]->op && loops(node[k]->op)) work += elements(node[k]);
    return work < SMALL;
}

bool nb_lazy_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root,
                 bool *done)
{
    job j = {.fits = true};
    if (is_small(n, node) || nb_runs_plainly() || !nb_llvm_there()) return true;
    nb_graph_lock();
    bool ok = survey(&j, n, node) &&
              (!j.fits || find_results(&j, n, node, nroots, root));
    nb_graph_unlock();
    bool failed = nb_failed();
    nb_shelved *p = ok && j.fits ? program_of(&j) : NULL;
    ok = ok && nb_failed() == failed;
    if (p && p->it) {
        ok = run(&j, p->it);
        *done = ok;
    }
    nb_shelf_return(&programs, p);
    job_free(&j);
    return ok;
}

/* There is no other way: why it cannot be compiled is the error. */
static nb_shelved *program_made(nb_graph *g)
{
    uint64_t hash;
    if (!nb_graph_known_by(g, &hash)) return nb_graph_free(g), NULL;
    nb_shelved *p = nb_shelf_take(&programs, hash);
    if (p && p->it) return nb_graph_free(g), p;
    nb_shelf_return(&programs, p);
    bool keep = nb_graph_is_closed(g) && !p;
    nb_exec *e = nb_exec_new(g);
    return e ? nb_shelf_put(&programs, hash, e, keep) : NULL;
}

/* Numbers that are inputs are so on the device of the program. */
static void bring_numbers(const job *j, nb_graph *g)
{
    for (int i = 0; i < j->in.n; i++) {
        if (!nb_tensor_is_number(j->in.at[i])) continue;
        g->line[i].device = j->out.at[0]->device;
        g->line[i].given = true;
    }
}

static bool run_whole(const job *j, uint64_t key)
{
    nb_graph *g;
    if (nb_graph_of(j->in.n, j->in.at, j->out.n, j->out.at, &g) != NB_OK)
        return false;
    bring_numbers(j, g);
    nb_card_give_numbers(g);
    if (nb_graph_device(g) < 0) {
        nb_graph_free(g);
        return nb_fail(NB_EVALUE, "values of one program are on several "
                                  "devices, and nothing moves them");
    }
    nb_shelved *p = program_made(g);
    bool ok = p && run(j, p->it);
    if (ok && key) nb_single_keep(key, p->hash);
    nb_shelf_return(&programs, p);
    return ok;
}

/* Of a program that is one call, of what it is given or of numbers that move. */
static uint64_t key_of(const job *j, int n, nb_tensor **node)
{
    int calls = 0;
    for (int k = 0; k < n; k++)
        calls += !nb_tensor_done(node[k]) && !node[k]->op->lands;
    bool single = calls == 1 && j->out.n == 1;
    return single ? nb_single_key(j->out.at[0], j->in.n, j->in.at) : 0;
}

/* A program that was recorded before, for one call. */
static bool run_single(const job *j, uint64_t key, bool *done)
{
    uint64_t hash = key ? nb_single_find(key) : 0;
    nb_shelved *p = hash ? nb_shelf_take(&programs, hash) : NULL;
    bool ok = true;
    *done = p && p->it;
    if (*done) ok = run(j, p->it);
    nb_shelf_return(&programs, p);
    return ok;
}

bool nb_lazy_run_whole(int n, nb_tensor **node, int nroots,
                       nb_tensor *const *root)
{
    job j = {.fits = true, .whole = true};
    nb_graph_lock();
    bool ok = survey(&j, n, node) && find_results(&j, n, node, nroots, root);
    uint64_t key = ok ? key_of(&j, n, node) : 0;
    nb_graph_unlock();
    bool done = !j.out.n;
    if (key) ok = run_single(&j, key, &done);
    if (ok && !done) ok = run_whole(&j, key);
    job_free(&j);
    return ok;
}
