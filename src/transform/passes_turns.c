/* passes_turns.c - a while loop on programs that are kept: of the test, in slot
 * 0, and of each pass after it.
 *
 * What a turn keeps for later passes is memory of its own; all else is in the
 * two places of each state. */
#include "transform/passes.h"
#include "transform/turns.h"

#include <limits.h>
#include <string.h>

enum { TEST, PASS };

static int device_of(const nb_call *c)
{
    return c->out ? c->out->device : 0;
}

static int varying(const nb_passes *p)
{
    return p->states + p->kept;
}

bool nb_passes_prepare(const nb_call *c)
{
    const nb_graph *g = c->op->region[0];
    nb_passes p = nb_passes_of(c);
    int *which = nb_alloc((size_t)(g->ny + 1) * sizeof *which);
    nb_turn_of of = {.graph = g, .varying = varying(&p), .which = which};
    if (!which) return false;
    of.n = 1;
    which[0] = p.states;
    bool ok = nb_kept_make(c, TEST, of);
    for (int i = 0; ok && i < p.n; i++) {
        of.n = 0;
        for (int k = 0; k < p.pass[i].states; k++)
            which[of.n++] = p.pass[i].state + k;
        for (int k = 0; k < p.pass[i].kept; k++)
            which[of.n++] = p.states + 1 + p.pass[i].keep + k;
        ok = nb_kept_make(c, PASS + i, of);
    }
    nb_free(which);
    return ok;
}

typedef struct run {
    const nb_call *c;
    nb_passes p;
    const nb_shape *shape; /* of states and of what is kept */
    nb_turning test, pass[NB_MAX_PASSES];
    nb_states state;
    char **out;
    int64_t turns;
    nb_buffer **kept; /* turn by turn */
    int room;
} run;

static bool begin(run *r, const nb_kept *const *program)
{
    const nb_graph *g = r->c->op->region[0];
    nb_tensor **x = nb_array(g->nx);
    r->out = nb_alloc_zero((size_t)(g->ny + 1) * sizeof *r->out);
    bool ok = x && r->out;
    for (int i = varying(&r->p); ok && i < g->nx; i++)
        x[i] = r->c->in[i - r->p.kept];
    ok = ok && nb_turning_begin(&r->test, program[TEST], x);
    for (int i = 0; ok && i < r->p.n; i++)
        ok = nb_turning_begin(&r->pass[i], program[PASS + i], x);
    ok = ok && nb_states_begin(&r->state, r->p.states, r->shape, r->c->in);
    nb_free(x);
    return ok;
}

static void end(run *r)
{
    nb_turning_end(&r->test);
    for (int i = 0; i < r->p.n; i++)
        nb_turning_end(&r->pass[i]);
    for (int64_t i = 0; i < r->turns * r->p.kept; i++)
        nb_buffer_drop(r->kept[i]);
    nb_states_end(&r->state);
    nb_free(r->kept), nb_free(r->out);
}

/* Places for what one more turn keeps. */
static bool make_room(run *r)
{
    int64_t n = (r->turns + 1) * r->p.kept;
    if (n > INT_MAX)
        return nb_fail(NB_EMEMORY, "while: %lld turns are too many to keep",
                       (long long)r->turns);
    if (!nb_grow(&r->kept, &r->room, (int)n, sizeof *r->kept)) return false;
    for (int64_t i = n - r->p.kept; i < n; i++)
        r->kept[i] = NULL;
    r->turns++;
    return true;
}

static void read_states(const run *r, char **in)
{
    for (int k = 0; k < r->p.states; k++)
        in[k] = r->state.place[k]->data;
}

/* Turn t of a pass. */
static bool turn(run *r, int pass, int64_t t)
{
    const nb_graph *g = r->c->op->region[0];
    int n = r->p.states, first = r->p.pass[pass].state;
    int states = r->p.pass[pass].states, keep = r->p.pass[pass].keep;
    nb_buffer **kept = r->kept + t * r->p.kept;
    char **in = r->pass[pass].in, **out = r->out;
    read_states(r, in);
    for (int k = 0; k < keep; k++)
        in[n + k] = kept[k]->data;
    for (int k = 0; k < states; k++)
        *out++ = r->state.place[n + first + k]->data;
    for (int k = keep; k < keep + r->p.pass[pass].kept; k++) {
        size_t bytes = nb_shape_bytes(&r->shape[n + k], g->line[n + k].dtype);
        if (!(kept[k] = nb_buffer_on(device_of(r->c), bytes))) return false;
        *out++ = kept[k]->data;
    }
    if (!nb_turning_run(&r->pass[pass], r->out)) return false;
    nb_states_turn(&r->state, first, states);
    return true;
}

static bool all_passes(run *r)
{
    nb_buffer *flag = nb_buffer_on(device_of(r->c), 1);
    bool ok = flag;
    while (ok) {
        char on = 0;
        read_states(r, r->test.in);
        ok = nb_turning_run(&r->test, &flag->data) &&
             nb_bytes_read(device_of(r->c), &on, flag->data, 1);
        if (!on) break;
        ok = ok && make_room(r) && turn(r, 0, r->turns - 1);
    }
    for (int pass = 1; ok && pass < r->p.n; pass++)
        for (int64_t i = 0; ok && i < r->turns; i++)
            ok = turn(r, pass, pass % 2 ? r->turns - 1 - i : i);
    nb_buffer_drop(flag);
    return ok;
}

bool nb_passes_turns(const nb_call *c, const nb_shape *shape, char *const *to,
                     bool *done)
{
    const nb_kept *program[PASS + NB_MAX_PASSES];
    run r = {.c = c, .p = nb_passes_of(c), .shape = shape};
    *done = true;
    for (int i = 0; i < PASS + r.p.n; i++)
        *done = *done && (program[i] = nb_kept_find(c, i));
    if (!*done) return true;
    bool ok = begin(&r, program) && all_passes(&r);
    for (int k = 0; ok && k < r.p.states; k++)
        ok = nb_bytes_copy(device_of(c), to[k], r.state.place[k]->data,
                           r.state.bytes[k]);
    end(&r);
    return ok;
}

/* What one turn keeps; how many there will be is not known. */
static int64_t kept_bytes(const nb_call *c, const nb_passes *p,
                          const nb_shape *shape)
{
    int64_t bytes = 0;
    for (int k = p->states; k < varying(p); k++)
        bytes +=
            (int64_t)nb_shape_bytes(&shape[k], c->op->region[0]->line[k].dtype);
    return bytes;
}

int64_t nb_passes_needs(const nb_call *c)
{
    nb_passes p = nb_passes_of(c);
    nb_shape *shape = nb_passes_shapes(c);
    int64_t most = 0;
    for (int i = 0; i < PASS + p.n; i++) {
        int64_t bytes = nb_kept_bytes(nb_kept_peek(c->op, i));
        if (bytes > most) most = bytes;
    }
    if (shape)
        most +=
            nb_states_bytes(p.states, shape, c->in) + kept_bytes(c, &p, shape);
    nb_free(shape);
    return most;
}
