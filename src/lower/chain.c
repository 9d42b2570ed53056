/* chain.c - finding the steps that make a chain.
 *
 * A large block that a product makes or takes is where one begins: the step
 * that writes it and all that read it are tried, then those of other blocks
 * that are about as large, for as long as every step goes row by row.  What no
 * one else needs is then kept in tiles. */
#include "lower/chain.h"

#include "lower/passes.h"

#include <string.h>

/* Bytes: blocks that are worth it; what tiles may take of the second cache, or
 * of the third at most; what a product may read again for every tile. */
enum {
    WORTH = 1 << 20,
    CACHE = 1 << 20,
    MOST_CACHE = 1 << 22,
    AGAIN = 1 << 21
};
/* Rows of a tile: the fewest that products are good for, the fewest for which
 * it stays in the second cache, the most that help, as measured. */
enum { LEAST_ROWS = 16, GOOD_ROWS = 64, MOST_ROWS = 128 };
/* Groups, where rows are summed: each is the work of a thread; and steps from
 * the first of a chain to the last. */
enum { LEAST_GROUPS = 4, SPAN = 64 };

typedef struct finder {
    nb_plan *p;
    int *writer; /* by block: a step, -1: none */
    int *first;  /* steps that read block b: first[b] to first[b + 1] */
    int *reader;
    bool *handed_out; /* by block */
    bool *in, *late;  /* by step: of the set; after it */
    int step[NB_MAX_CHAIN], n;
    int seed;
    nb_chain found;
    bool failed; /* with an error */
} finder;

/* The blocks of a step: access i to memory, and its block. */

static int accesses(const nb_plan *p, int s)
{
    const nb_step *step = &p->step[s];
    return step->nest ? step->nbuffers : p->graph->line[step->line].nin + 1;
}

static int access_to(const nb_plan *p, int s, int i)
{
    const nb_step *step = &p->step[s];
    const nb_line *l = &p->graph->line[step->line];
    if (step->nest) return step->buffer[i];
    return i == l->nin ? step->line : p->place[l->in[i]].root;
}

/* Who writes and reads what: the first to touch a block writes it. */
static void survey(finder *f)
{
    const nb_plan *p = f->p;
    int blocks = nb_plan_blocks(p);
    memset(f->first, 0, (size_t)(blocks + 2) * sizeof *f->first);
    memset(f->writer, -1, (size_t)blocks * sizeof *f->writer);
    for (int s = 0; s < p->nsteps; s++)
        for (int i = 0; i < accesses(p, s); i++) {
            int b = access_to(p, s, i);
            bool made =
                b >= p->graph->n || p->graph->line[b].kind == NB_LINE_CALL;
            if (made && f->writer[b] < 0) f->writer[b] = s;
            if (f->writer[b] != s) f->first[b + 2]++;
        }
    for (int b = 0; b < blocks; b++)
        f->first[b + 2] += f->first[b + 1];
    for (int s = 0; s < p->nsteps; s++)
        for (int i = 0; i < accesses(p, s); i++) {
            int b = access_to(p, s, i);
            if (f->writer[b] != s) f->reader[f->first[b + 1]++] = s;
        }
}

/* The set */

static bool is_read(const finder *f, int b, bool by_all)
{
    for (int i = f->first[b]; i < f->first[b + 1]; i++)
        if (f->in[f->reader[i]] != by_all) return !by_all;
    return by_all;
}

/* Whether block b passes from a step of the set to another; and is then not
 * needed any more. */
static bool is_passed(const finder *f, int b)
{
    return f->writer[b] >= 0 && f->in[f->writer[b]] && is_read(f, b, false);
}

static bool vanishes(const finder *f, int b)
{
    return is_passed(f, b) && is_read(f, b, true) && !f->handed_out[b];
}

static int64_t elements(const nb_plan *p, int b)
{
    return p->bytes[b] / (int64_t)nb_dtype_size(p->graph->line[b].dtype);
}

/* No access fits rows of -1 elements. */
static int64_t row_of(const void *ctx, int b)
{
    const finder *f = ctx;
    if (!is_passed(f, b)) return 0;
    if (f->p->graph->line[b].multi) return -1;
    int64_t n = elements(f->p, b), rows = f->found.rows;
    return n && n % rows == 0 ? n / rows : -1;
}

static bool add(finder *f, int s)
{
    if (f->in[s]) return true;
    if (f->n == NB_MAX_CHAIN || f->p->step[s].chain) return false;
    f->in[s] = true;
    f->step[f->n++] = s;
    return true;
}

static void shrink(finder *f, int n)
{
    while (f->n > n)
        f->in[f->step[--f->n]] = false;
}

static void span(const finder *f, int *from, int *to)
{
    *from = *to = f->step[0];
    for (int i = 1; i < f->n; i++) {
        if (f->step[i] < *from) *from = f->step[i];
        if (f->step[i] > *to) *to = f->step[i];
    }
}

/* Two steps that one nest was split into stay together. */
static bool is_second(const nb_plan *p, int s)
{
    return s > 0 && p->step[s].nest && p->step[s - 1].nest &&
           p->step[s].line == p->step[s - 1].line;
}

static bool waits(const finder *f, int s, int from)
{
    for (int i = 0; i < accesses(f->p, s); i++) {
        int w = f->writer[access_to(f->p, s, i)];
        if (w >= from && w < s && (f->in[w] || f->late[w])) return true;
    }
    return false;
}

/* Which steps among those of the set have to come after it; false if they
 * cannot be moved. */
static bool find_late(finder *f, int from, int to)
{
    bool more = true;
    memset(f->late + from, 0, (size_t)(to - from + 1));
    while (more) {
        more = false;
        for (int s = from; s <= to; s++) {
            const nb_step *step = &f->p->step[s];
            if (f->in[s]) continue;
            if (step->chain) return false;
            if (!step->nest && f->p->graph->line[step->line].op->effect)
                return false;
            f->late[s] = f->late[s] || waits(f, s, from);
            if (!f->late[s] || !is_second(f->p, s) || f->late[s - 1]) continue;
            if (s == from || f->in[s - 1]) return false;
            more = f->late[s - 1] = true;
        }
    }
    return true;
}

/* A step that waits for the set and is waited for has to join it. */
static bool settle(finder *f)
{
    int from, to, i = 0;
    while (i < f->n) {
        if (i == 0) {
            span(f, &from, &to);
            if (to - from >= SPAN || !find_late(f, from, to)) return false;
        }
        int s = f->step[i++];
        for (int k = 0; k < accesses(f->p, s); k++) {
            int w = f->writer[access_to(f->p, s, k)];
            if (w < from || f->in[w] || !f->late[w]) continue;
            if (!add(f, w)) return false;
            i = 0;
        }
    }
    return true;
}

/* Whether what a product gets from outside is small beside what it makes, and
 * can be read again for every tile. */
static bool is_lean(const finder *f, const nb_row_product *x, int line)
{
    const nb_line *l = &f->p->graph->line[line];
    const int axis[] = {x->m, x->n, x->k}, last = x->row[x->nrows - 1];
    for (int t = 0; t < 3; t++) {
        int b = t < 2 ? f->p->place[l->in[t]].root : line;
        int64_t all = 1, each = (int64_t)nb_dtype_size(x->dtype);
        if (is_passed(f, b)) continue;
        for (int a = 0; a < x->loop.naxes; a++)
            if (x->loop.stride[t][a]) all *= x->loop.size[a];
        for (int i = 0; i < 3; i++)
            if (axis[i] >= 0 && axis[i] != last && x->loop.stride[t][axis[i]])
                each *= x->loop.size[axis[i]];
        if (each > AGAIN || all > elements(f->p, f->seed) / 2) return false;
    }
    return true;
}

/* A tile lies in a row axis of every product: the smallest, which the others
 * are multiples of; the same for groups, of which the largest holds. */
static bool divide(nb_chain *c, const nb_row_product *x)
{
    int64_t run = x->loop.size[x->row[x->nrows - 1]], group = 0, inside = 1;
    for (int i = x->nrows - 1; i >= 0; i--) {
        inside *= x->loop.size[x->row[i]];
        if (x->loop.reduced[x->row[i]]) group = inside;
    }
    int64_t less = !c->run || run < c->run ? run : c->run;
    int64_t more = group > c->group ? group : c->group;
    if (run % less || c->run % less) return false;
    if ((group && more % group) || (c->group && more % c->group)) return false;
    c->run = less;
    c->group = more;
    return true;
}

/* Whether all steps of the set go row by row. */
static bool fits(finder *f)
{
    nb_rows r = {f->p, f->found.rows, row_of, f};
    nb_row_product x;
    f->found.run = f->found.group = 0;
    for (int i = 0; i < f->n; i++) {
        const nb_step *s = &f->p->step[f->step[i]];
        if (s->nest ? !nb_rows_nest(&r, s)
                    : !nb_rows_product(&r, s, &x, &f->failed))
            return false;
        if (!s->nest && (!is_lean(f, &x, s->line) || !divide(&f->found, &x)))
            return false;
    }
    return f->found.run;
}

/* Tries the steps that block b passes between: all, or one of them. */
static bool try_steps(finder *f, int b, int only)
{
    int n = f->n;
    bool ok = only < 0 ? add(f, f->writer[b]) : add(f, only);
    for (int i = f->first[b]; ok && only < 0 && i < f->first[b + 1]; i++)
        ok = add(f, f->reader[i]);
    if (ok && f->n > n && settle(f) && !f->failed && fits(f)) return true;
    shrink(f, n);
    return false;
}

static bool try_block(finder *f, int b)
{
    if (f->writer[b] < 0 || f->p->bytes[b] < f->p->bytes[f->seed] / 2)
        return false;
    if (try_steps(f, b, -1) || try_steps(f, b, f->writer[b])) return true;
    for (int i = f->first[b]; !f->failed && i < f->first[b + 1]; i++)
        if (try_steps(f, b, f->reader[i])) return true;
    return false;
}

static void grow(finder *f)
{
    bool more = true;
    while (more && !f->failed) {
        more = false;
        for (int i = 0; !more && i < f->n; i++)
            for (int k = 0; !more && k < accesses(f->p, f->step[i]); k++)
                more = try_block(f, access_to(f->p, f->step[i], k));
    }
}

/* The chain */

/* Even tiles, of whole vectors. */
static bool choose_tile(nb_chain *c, int64_t row_bytes)
{
    int64_t most = CACHE / row_bytes;
    if (most < GOOD_ROWS) {
        most = MOST_CACHE / row_bytes;
        if (most > GOOD_ROWS) most = GOOD_ROWS;
    }
    if (most > MOST_ROWS) most = MOST_ROWS;
    if (most < LEAST_ROWS) return false;
    c->tile = c->run;
    if (c->run <= most) return true;
    int64_t parts = (c->run + most - 1) / most;
    c->tile = (c->run + parts - 1) / parts;
    c->tile = (c->tile + LEAST_ROWS - 1) / LEAST_ROWS * LEAST_ROWS;
    return true;
}

static bool is_worth_it(finder *f)
{
    nb_chain *c = &f->found;
    int64_t bytes = 0;
    int products = 0;
    for (int i = 0; i < f->n; i++) {
        products += !f->p->step[f->step[i]].nest;
        for (int k = 0; k < accesses(f->p, f->step[i]); k++) {
            int b = access_to(f->p, f->step[i], k);
            if (f->writer[b] == f->step[i] && vanishes(f, b))
                bytes += f->p->bytes[b];
        }
    }
    /* A product and what becomes of its result gain nothing, as measured. */
    if (products < 2) return false;
    if (bytes < WORTH || !choose_tile(c, bytes / c->rows)) return false;
    return !c->group || c->rows / c->group >= LEAST_GROUPS;
}

/* What steps of the chain need to go row by row. */
static bool prepare(finder *f)
{
    nb_rows r = {f->p, f->found.rows, row_of, f};
    for (int i = 0; i < f->n; i++) {
        nb_step *s = &f->p->step[f->step[i]];
        if (s->nest) continue;
        s->product = nb_alloc(sizeof *s->product);
        if (!s->product || !nb_rows_product(&r, s, s->product, &f->failed))
            return false;
    }
    for (int i = 0; i < f->n; i++) {
        nb_step *s = &f->p->step[f->step[i]];
        if (s->nest) nb_nest_lead(s->nest, f->found.rows);
        s->chain = f->p->nchains + 1;
        for (int k = 0; k < accesses(f->p, f->step[i]); k++) {
            int b = access_to(f->p, f->step[i], k);
            if (vanishes(f, b)) f->p->row[b] = f->p->bytes[b] / f->found.rows;
        }
    }
    return true;
}

/* What does not wait for the chain, the chain, the rest. */
static bool reorder(finder *f)
{
    int from, to, n = 0;
    span(f, &from, &to);
    nb_step *order = nb_alloc((size_t)(to - from + 1) * sizeof *order);
    if (!order) return false;
    for (int part = 0; part < 3; part++) {
        if (part == 1) f->found.first = from + n;
        for (int s = from; s <= to; s++)
            if ((f->in[s] ? 1 : f->late[s] ? 2 : 0) == part)
                order[n++] = f->p->step[s];
        if (part == 1) f->found.last = from + n - 1;
    }
    memcpy(f->p->step + from, order, (size_t)n * sizeof *order);
    nb_free(order);
    return true;
}

static bool keep(finder *f)
{
    nb_plan *p = f->p;
    if (!nb_grow(&p->chain, &p->chain_room, p->nchains + 1, sizeof *p->chain))
        return false;
    if (!prepare(f) || !reorder(f)) return false;
    p->chain[p->nchains++] = f->found;
    shrink(f, 0);
    survey(f);
    return true;
}

/* Rows are what the last axis is not. */
static bool is_seed(finder *f, int b)
{
    const nb_plan *p = f->p;
    if (b >= p->graph->n || p->graph->line[b].multi) return false;
    if (p->bytes[b] < WORTH || f->handed_out[b]) return false;
    bool product = !p->step[f->writer[b]].nest;
    for (int i = f->first[b]; i < f->first[b + 1]; i++)
        product = product || !p->step[f->reader[i]].nest;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int n = nb_tensor_strides(p->node[b], size, stride);
    if (!product || !n || f->first[b] == f->first[b + 1]) return false;
    f->seed = b;
    f->found = (nb_chain){.rows = elements(p, b) / size[n - 1]};
    return f->found.rows > 1 && size[n - 1] > 1;
}

/* A chain through a block that step s writes; true if there is one. */
static bool find_at(finder *f, int s)
{
    for (int k = 0; !f->failed && k < accesses(f->p, s); k++) {
        int b = access_to(f->p, s, k);
        if (f->writer[b] != s || !is_seed(f, b)) continue;
        if (try_steps(f, b, -1)) {
            grow(f);
            /* Steps that did not fit have left their marks. */
            if (settle(f) && fits(f) && is_worth_it(f)) return true;
        }
        shrink(f, 0);
    }
    return false;
}

static bool find_all(finder *f)
{
    int from, to;
    survey(f);
    for (int s = 0; s < f->p->nsteps; s++) {
        if (f->p->step[s].chain) continue;
        bool found = find_at(f, s);
        if (f->failed) return false;
        if (!found) continue;
        span(f, &from, &to);
        if (!keep(f)) return false;
        s = from - 1;
    }
    return true;
}

static bool make_room(finder *f)
{
    const nb_plan *p = f->p;
    size_t blocks = (size_t)nb_plan_blocks(p) + 3, total = 1;
    for (int s = 0; s < p->nsteps; s++)
        total += (size_t)accesses(p, s);
    f->writer = nb_alloc(blocks * sizeof *f->writer);
    f->first = nb_alloc(blocks * sizeof *f->first);
    f->reader = nb_alloc(total * sizeof *f->reader);
    f->handed_out = nb_alloc_zero(blocks);
    f->in = nb_alloc_zero((size_t)p->nsteps + 1);
    f->late = nb_alloc_zero((size_t)p->nsteps + 1);
    f->p->row = nb_alloc_zero(blocks * sizeof *p->row);
    return f->writer && f->first && f->reader && f->handed_out && f->in &&
           f->late && p->row;
}

bool nb_plan_chain(nb_plan *p)
{
    finder f = {.p = p};
    bool large = false;
    for (int k = 0; k < p->graph->n; k++)
        large = large || (p->graph->line[k].kind == NB_LINE_CALL &&
                          p->bytes[k] >= WORTH);
    if (!large || p->any_size || p->device || !nb_pass_is_on("chain"))
        return true;
    bool ok = make_room(&f);
    for (int i = 0; ok && i < p->graph->ny; i++)
        f.handed_out[p->place[p->graph->result[i]].root] = true;
    ok = ok && find_all(&f);
    nb_free(f.writer), nb_free(f.first), nb_free(f.reader);
    nb_free(f.handed_out), nb_free(f.in), nb_free(f.late);
    return ok;
}

void nb_chain_place(nb_plan *p, const nb_life *life)
{
    enum { ALIGN = 64 };
    for (int k = 0; k < p->graph->n; k++) {
        if (p->home[k] != NB_HOME_TILE) continue;
        nb_chain *c = &p->chain[p->step[life[k].first].chain - 1];
        p->at[k] = c->bytes;
        c->bytes += (c->tile * p->row[k] + ALIGN - 1) / ALIGN * ALIGN;
        if (c->bytes > p->tiles) p->tiles = c->bytes;
    }
}
