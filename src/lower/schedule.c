/* schedule.c - the order of the steps.
 *
 * A unit is a nest, or a call by itself.  Units go in the order of their lines,
 * each after what it reads; but one that leaves less memory in use than it
 * found goes as soon as it can, because it is the last to read something large.
 * What can run right after it counts: the gradient of a weight is large, but
 * the step of the optimiser that reads it writes only results, whose memory is
 * there from the start.  So does one that reads a large block and leaves next to
 * nothing of it, before others that could write over the block. */
#include "lower/fuse.h"

#include "lower/passes.h"

#include <string.h>

enum { HANDED_OUT = -1, SMALL = 64 };

typedef struct schedule {
    nb_fusion *f;
    bool eager;
    bool *done; /* by line: a block is there */
    int *order, n;
    /* Blocks, by line. */
    int64_t *bytes;
    int *left;    /* units that are still to read it, */
    int64_t *sum; /* and the sum of their numbers */
    int *first;   /* its readers: from first[k] to first[k + 1] */
    int *reader, *stamp, now;
    int *by;    /* one more than the unit asked about that reads it */
    bool *kept; /* its memory is a result's */
    /* Units: nests, then lines. */
    int *missing, *line; /* blocks that are not there; any of its lines */
    int *root;           /* room for what one unit reads */
    int *asked, nasked;  /* units that may have become worth it */
} schedule;

static int unit_of(const nb_fusion *f, int k)
{
    return f->plan->group[k] >= 0 ? f->plan->group[k] : f->n + k;
}

static int first_of(const nb_fusion *f, int k)
{
    int g = f->plan->group[k];
    return g >= 0 ? f->nest[g].head : k;
}

static int next_of(const nb_fusion *f, int k)
{
    return f->plan->group[k] >= 0 ? f->next[k] : -1;
}

static bool works(const nb_plan *p, int k)
{
    return p->graph->line[k].kind == NB_LINE_CALL && !nb_line_looks(p, k);
}

static bool is_input(const nb_plan *p, int k)
{
    return p->graph->line[k].kind == NB_LINE_INPUT;
}

/* The blocks that the unit of line k reads and that are inputs or others write,
 * each once. */
static int reads(schedule *s, int k)
{
    const nb_plan *p = s->f->plan;
    int n = 0, unit = unit_of(s->f, k);
    s->now++;
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        for (int i = 0; i < p->graph->line[l].nin; i++) {
            int root = p->place[p->graph->line[l].in[i]].root;
            bool known = !works(p, root) && !is_input(p, root);
            if (s->stamp[root] == s->now || known ||
                unit_of(s->f, root) == unit)
                continue;
            s->stamp[root] = s->now;
            s->root[n++] = root;
        }
    return n;
}

/* Calls have no nest to keep their results in. */
static bool is_stored(const nb_fusion *f, int k)
{
    return f->plan->group[k] < 0 || nb_line_is_stored(f, k);
}

/* Bytes that are free after the unit of line k and were not before; if `after`
 * is a unit, when that has run.  The memory of a result may be that of an input
 * which nobody else is still to read. */
static int64_t gain(schedule *s, int k, int after)
{
    const nb_plan *p = s->f->plan;
    int64_t bytes = 0, stored = 0, inputs = 0, results = 0;
    for (int i = reads(s, k) - 1; i >= 0; i--) {
        int root = s->root[i];
        bool both = after >= 0 && s->by[root] == after + 1;
        if (s->left[root] != 1 + both) continue;
        *(is_input(p, root) ? &inputs : &bytes) += s->bytes[root];
    }
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        if (is_stored(s->f, l))
            *(s->kept[l] ? &results : &stored) += s->bytes[l];
    if (results > inputs) stored += results - inputs;
    return bytes - stored;
}

/* The same of a unit together with those that can run once it has. */
static int64_t gain_with_next(schedule *s, int k)
{
    int unit = unit_of(s->f, k);
    int64_t bytes = gain(s, k, -1);
    if (bytes > 0) return bytes;
    for (int i = reads(s, k) - 1; i >= 0; i--)
        s->by[s->root[i]] = unit + 1;
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        for (int u = s->first[l]; u < s->first[l + 1]; u++) {
            int next = s->reader[u];
            if (s->missing[next] != 1) continue;
            int64_t more = gain(s, s->line[next], unit);
            if (more > 0) bytes += more;
        }
    return bytes;
}

/* Whether the unit of line k stores next to nothing of a block that others are
 * still to read: the last of those may write over it. */
static bool takes_little(schedule *s, int k)
{
    int64_t stored = 0;
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        if (is_stored(s->f, l)) stored += s->bytes[l];
    for (int i = reads(s, k) - 1; i >= 0; i--) {
        int root = s->root[i];
        if (works(s->f->plan, root) && s->left[root] > 1 &&
            s->bytes[root] / NB_FEW_OF >= stored)
            return true;
    }
    return false;
}

static int64_t bytes_of(const nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    nb_shape shape = nb_tensor_shape(p->node[k]);
    int64_t n = 0;
    if (l->multi) return p->parts[k][l->op->nout];
    nb_shape_count(&shape, &n);
    return n * (int64_t)nb_dtype_size(l->dtype);
}

static void ask(schedule *s, int unit)
{
    if (s->eager) s->asked[s->nasked++] = unit;
}

static void put(schedule *s, int k)
{
    int unit = unit_of(s->f, k);
    s->order[s->n++] = k;
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l)) {
        s->done[l] = true;
        for (int u = s->first[l]; u < s->first[l + 1]; u++)
            if (--s->missing[s->reader[u]] == 0) ask(s, s->reader[u]);
    }
    for (int i = reads(s, k) - 1; i >= 0; i--) {
        int root = s->root[i];
        s->sum[root] -= unit;
        if (--s->left[root] == 1 && s->sum[root] != HANDED_OUT)
            ask(s, (int)s->sum[root]);
    }
}

/* Of a unit that writes results, over inputs that nobody else reads any more:
 * what it waits for may have become worth it. */
static void ask_before(schedule *s, int k)
{
    bool results = false;
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        results = results || s->kept[l];
    if (!results) return;
    for (int i = reads(s, k) - 1; i >= 0; i--) {
        int unit = unit_of(s->f, s->root[i]);
        if (!s->done[s->root[i]] && !s->missing[unit]) ask(s, unit);
    }
}

static void put_eager(schedule *s, int k)
{
    put(s, k);
    while (s->nasked) {
        int unit = s->asked[--s->nasked], line = s->line[unit];
        if (s->done[line] || s->f->plan->graph->line[line].op->effect) continue;
        if (s->missing[unit] == 1) ask_before(s, line);
        if (!s->missing[unit] &&
            (takes_little(s, line) || gain_with_next(s, line) > 0))
            put(s, line);
    }
}

/* Puts the unit of line k, and before it what it waits for. */
static void put_all(schedule *s, int k)
{
    int depth = 0, *stack = s->f->stack;
    stack[depth++] = k;
    while (depth) {
        int top = stack[depth - 1], before = depth;
        if (s->done[top]) {
            depth--;
            continue;
        }
        for (int i = reads(s, top) - 1; i >= 0; i--)
            if (!s->done[s->root[i]]) stack[depth++] = s->root[i];
        if (depth == before) put_eager(s, top);
    }
}

/* Who reads what. */
static void survey(schedule *s)
{
    const nb_plan *p = s->f->plan;
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < p->graph->n; k++) {
            int unit = unit_of(s->f, k);
            if (!works(p, k) || first_of(s->f, k) != k) continue;
            int n = reads(s, k);
            s->line[unit] = k;
            s->missing[unit] = 0;
            for (int i = 0; i < n; i++) {
                int root = s->root[i];
                s->missing[unit] += works(p, root);
                if (!round) {
                    s->first[root + 1]++;
                    continue;
                }
                s->reader[s->first[root] + s->left[root]++] = unit;
                s->sum[root] += unit;
            }
        }
        for (int k = 0; !round && k < p->graph->n; k++)
            s->first[k + 1] += s->first[k];
    }
    for (int i = 0; i < p->graph->ny; i++) {
        int root = p->place[p->graph->result[i]].root;
        if (s->stamp[root] == -1) continue;
        s->stamp[root] = -1;
        s->left[root]++;
        s->sum[root] += HANDED_OUT;
        s->kept[root] = true;
    }
    for (int k = 0; k < p->graph->n; k++) {
        s->done[k] = !works(p, k);
        s->bytes[k] = works(p, k) || is_input(p, k) ? bytes_of(p, k) : 0;
    }
}

/* Whether a result of the unit of line k could take the place of an input that
 * it reads, if only others had read that. */
static bool waits(schedule *s, int k)
{
    const nb_plan *p = s->f->plan;
    int n = reads(s, k);
    for (int l = first_of(s->f, k); l >= 0; l = next_of(s->f, l))
        for (int i = 0; s->kept[l] && i < n; i++)
            if (is_input(p, s->root[i]) && s->left[s->root[i]] > 1 &&
                s->bytes[s->root[i]] == s->bytes[l])
                return true;
    return false;
}

/* Numbers of a few bytes that many wait for: all that can go now do. */
static void put_small(schedule *s)
{
    const nb_plan *p = s->f->plan;
    for (int k = 0; s->eager && k < p->graph->n; k++)
        if (!s->done[k] && first_of(s->f, k) == k &&
            !s->missing[unit_of(s->f, k)] && !p->graph->line[k].op->effect &&
            gain(s, k, -1) >= -SMALL)
            put_eager(s, k);
}

static bool make_room(schedule *s, size_t n, size_t total)
{
    size_t units = n + (size_t)s->f->n;
    int *stack = nb_resize(s->f->stack, (n + total) * 2 * sizeof *stack);
    if (!stack) return false;
    s->f->stack = stack;
    s->done = nb_alloc_zero(n);
    s->bytes = nb_alloc_zero(n * sizeof *s->bytes);
    s->left = nb_alloc_zero(n * sizeof *s->left);
    s->sum = nb_alloc_zero(n * sizeof *s->sum);
    s->first = nb_alloc_zero((n + 1) * sizeof *s->first);
    s->reader = nb_alloc((total + 1) * sizeof *s->reader);
    s->stamp = nb_alloc_zero(n * sizeof *s->stamp);
    s->by = nb_alloc_zero(n * sizeof *s->by);
    s->kept = nb_alloc_zero(n);
    s->missing = nb_alloc_zero(units * sizeof *s->missing);
    s->line = nb_alloc_zero(units * sizeof *s->line);
    s->root = nb_alloc((total + 1) * sizeof *s->root);
    s->asked = nb_alloc(2 * (2 * units + n) * sizeof *s->asked);
    return s->done && s->bytes && s->left && s->sum && s->first && s->reader &&
           s->stamp && s->by && s->kept && s->missing && s->line && s->root &&
           s->asked;
}

bool nb_plan_schedule(nb_fusion *f, int *order, int *n)
{
    const nb_graph *g = f->plan->graph;
    schedule s = {.f = f, .order = order, .eager = nb_pass_is_on("schedule")};
    size_t total = 0;
    for (int k = 0; k < g->n; k++)
        total += (size_t)g->line[k].nin;
    bool ok = make_room(&s, (size_t)g->n + 1, total);
    if (ok) survey(&s), put_small(&s);
    for (int late = !s.eager; ok && late < 2; late++)
        for (int k = 0; k < g->n; k++)
            if (!s.done[k] && (late || !waits(&s, k))) put_all(&s, k);
    *n = s.n;
    nb_free(s.done), nb_free(s.bytes), nb_free(s.left), nb_free(s.sum);
    nb_free(s.first), nb_free(s.reader), nb_free(s.stamp), nb_free(s.missing);
    nb_free(s.by), nb_free(s.kept);
    nb_free(s.line), nb_free(s.root), nb_free(s.asked);
    return ok;
}
