/* replay.c - running a recorded program: once, or many times.
 *
 * Many times: after a while a program is made of it (core/tensor.h).  Until then
 * nodes that depend on the stand-ins are templates, made anew on
 * every run as they are, without asking their ops for shapes; all others are
 * inputs of templates, and realised by the first run that needs them. */
#include "transform/region.h"

#include "core/convert.h"

#include <string.h>

/* Closes the scope around what was recorded, before that is computed: then data
 * goes with the last node that needs it. */
static bool alone(bool ok, int ny, nb_tensor **y)
{
    nb_scope_close(ok ? ny : 0, y);
    for (int k = 0; ok && k < ny; k++)
        ok = y[k];
    return ok;
}

/* Whoever runs a program lies on no device: neither do results, though the
 * program may have put them there. */
static bool computed(bool ok, int ny, nb_tensor **y)
{
    ok = ok && nb_realize_now(ny, y);
    for (int k = 0; ok && k < ny; k++)
        if (y[k]->sharding) ok = (y[k] = nb_gatherer(y[k])) != NULL;
    return ok;
}

bool nb_region_run(const nb_graph *g, int nx, nb_tensor *const *x,
                   nb_tensor **y)
{
    if (nb_scope_open() != NB_OK) return false;
    bool ok = nb_graph_run(g, nx, x, y) == NB_OK;
    return computed(alone(ok, g->ny, y), g->ny, y);
}

struct nb_replay {
    int nx, n, ny;
    nb_tensor **node;  /* templates, kept, in the order of recording */
    nb_shape *shape;   /* of each */
    int *from;         /* of each input of each: the value, or -1 */
    int *result;       /* the value, or -1 for what is fixed */
    nb_tensor **fixed; /* kept */
    nb_tensor **value; /* of a run: inputs, then nodes */
    nb_tensor **in;    /* room for the inputs of one node */
    int64_t runs;
    nb_program *program;    /* or NULL; */
    int nprogram;           /* its inputs: */
    int *program_from;      /* stand-ins, by number, or -1 for */
    nb_tensor **program_in; /* nodes that are fixed; room for a run's */
};

void nb_replay_free(nb_replay *p)
{
    if (!p) return;
    for (int k = 0; p->node && k < p->n; k++)
        nb_drop(p->node[k]);
    for (int k = 0; p->fixed && k < p->ny; k++)
        nb_drop(p->fixed[k]);
    nb_free(p->node), nb_free(p->shape), nb_free(p->from);
    nb_free(p->result), nb_free(p->fixed), nb_free(p->value), nb_free(p->in);
    nb_programs_run.drop(p->program);
    nb_free(p->program_from), nb_free(p->program_in);
    nb_free(p);
}

/* Everything between the oldest stand-in and the newest result, by serial:
 * nodes that y needs, and the number of their values (-1: fixed). */
typedef struct span {
    uint64_t first, n;
    nb_tensor **node;
    int *number;
    nb_tensor **stack;
    int depth, room, inputs, most; /* of all templates; of one */
} span;

static int number_of(const span *s, const nb_tensor *x)
{
    return x->serial - s->first < s->n ? s->number[x->serial - s->first] : -1;
}

static bool visit(span *s, nb_tensor *x)
{
    uint64_t at = x->serial - s->first;
    if (!x->op || at >= s->n || s->node[at]) return true;
    if (!nb_grow(&s->stack, &s->room, s->depth + 1, sizeof *s->stack))
        return false;
    s->stack[s->depth++] = s->node[at] = x;
    return true;
}

static bool span_of(span *s, int nx, nb_tensor *const *x, int ny,
                    nb_tensor *const *y)
{
    uint64_t last = 0;
    s->first = UINT64_MAX;
    for (int i = 0; i < nx; i++)
        if (x[i]->serial < s->first) s->first = x[i]->serial;
    for (int i = 0; i < nx; i++)
        if (x[i]->serial > last) last = x[i]->serial;
    for (int k = 0; k < ny; k++)
        if (y[k]->serial > last) last = y[k]->serial;
    s->n = nx ? last - s->first + 1 : 0;
    s->node = nb_alloc_zero((s->n + 1) * sizeof *s->node);
    s->number = nb_alloc((s->n + 1) * sizeof *s->number);
    bool ok = s->node && s->number;
    for (uint64_t k = 0; ok && k < s->n; k++)
        s->number[k] = -1;
    for (int i = 0; ok && i < nx; i++)
        s->number[x[i]->serial - s->first] = i;
    for (int k = 0; ok && k < ny; k++)
        ok = visit(s, y[k]);
    while (ok && s->depth) {
        nb_tensor *node = s->stack[--s->depth];
        for (int i = 0; ok && i < node->nin; i++)
            ok = visit(s, nb_tensor_in(node)[i]);
    }
    return ok;
}

/* Numbers the nodes that depend on stand-ins and leaves only them. */
static int number_nodes(span *s, int nx)
{
    int n = 0;
    for (uint64_t k = 0; k < s->n; k++) {
        nb_tensor *node = s->node[k];
        bool depends = node && node->op->effect;
        for (int i = 0; node && i < node->nin; i++)
            depends = depends || number_of(s, nb_tensor_in(node)[i]) >= 0;
        if (!depends) {
            s->node[k] = NULL;
            continue;
        }
        s->number[k] = nx + n++;
        s->inputs += node->nin;
        if (node->nin > s->most) s->most = node->nin;
    }
    return n;
}

static bool make_room(nb_replay *p, const span *s)
{
    p->node = nb_array(p->n);
    p->shape = nb_alloc((size_t)(p->n + 1) * sizeof *p->shape);
    p->from = nb_alloc((size_t)(s->inputs + 1) * sizeof *p->from);
    p->result = nb_alloc((size_t)(p->ny + 1) * sizeof *p->result);
    p->fixed = nb_array(p->ny);
    p->value = nb_array(p->nx + p->n);
    p->in = nb_array(s->most);
    return p->node && p->shape && p->from && p->result && p->fixed &&
           p->value && p->in;
}

static bool fill(nb_replay *p, const span *s, int ny, nb_tensor *const *y)
{
    int at = 0;
    if (!make_room(p, s)) return false;
    for (uint64_t k = 0; k < s->n; k++) {
        nb_tensor *node = s->node[k];
        if (!node) continue;
        p->shape[s->number[k] - p->nx] = nb_tensor_shape(node);
        p->node[s->number[k] - p->nx] = nb_keep(node);
        for (int i = 0; i < node->nin; i++)
            p->from[at++] = number_of(s, nb_tensor_in(node)[i]);
    }
    for (int k = 0; k < ny; k++) {
        p->result[k] = number_of(s, y[k]);
        if (p->result[k] < 0) p->fixed[k] = nb_keep(y[k]);
    }
    return true;
}

nb_replay *nb_replay_new(int nx, nb_tensor *const *x, int ny,
                         nb_tensor *const *y)
{
    span s = {0};
    nb_replay *p = nb_alloc_zero(sizeof *p);
    bool ok = p && span_of(&s, nx, x, ny, y);
    if (ok) {
        p->nx = nx;
        p->ny = ny;
        p->n = number_nodes(&s, nx);
        ok = fill(p, &s, ny, y);
    }
    nb_free(s.node), nb_free(s.number), nb_free(s.stack);
    if (!ok) nb_replay_free(p);
    return ok ? p : NULL;
}

static nb_tensor *copy_of(nb_tensor *t, const nb_shape *shape,
                          nb_tensor *const *in)
{
    nb_tensor *x = nb_node_new(t->op, t->sig, (nb_dtype)t->dtype, shape, t->nin,
                               in, t->nattr, nb_tensor_attr(t));
    if (!x) return NULL;
    x->flags = t->flags;
    x->sharding = t->sharding;
    x->source = t->source;
    x->line = t->line;
    return x;
}

static bool record_again(nb_replay *p, nb_tensor *const *x, nb_tensor **y)
{
    const int *from = p->from;
    for (int i = 0; i < p->nx; i++)
        p->value[i] = x[i];
    for (int k = 0; k < p->n; k++) {
        nb_tensor *t = p->node[k];
        for (int i = 0; i < t->nin; i++, from++)
            p->in[i] = *from < 0 ? nb_tensor_in(t)[i] : p->value[*from];
        p->value[p->nx + k] = copy_of(t, &p->shape[k], p->in);
        if (!p->value[p->nx + k]) return false;
    }
    for (int k = 0; k < p->ny; k++)
        y[k] = p->result[k] < 0 ? p->fixed[k] : p->value[p->result[k]];
    return true;
}

/* Adds an input of the program to be, once. */
static bool add_input(nb_replay *p, int from, nb_tensor *x, int *room)
{
    for (int i = 0; i < p->nprogram; i++)
        if (p->program_in[i] == x) return true;
    int n = p->nprogram + 1, same = *room;
    if (!nb_grow(&p->program_in, &same, n, sizeof *p->program_in) ||
        !nb_grow(&p->program_from, room, n, sizeof *p->program_from))
        return false;
    p->program_in[p->nprogram] = x;
    p->program_from[p->nprogram++] = from;
    return true;
}

static bool find_inputs(nb_replay *p)
{
    const int *from = p->from;
    int room = 0;
    for (int k = 0; k < p->n; k++)
        for (int i = 0; i < p->node[k]->nin; i++, from++) {
            nb_tensor *x = nb_tensor_in(p->node[k])[i];
            if (*from >= p->nx) continue;
            if (*from < 0 && !nb_realize_now(1, &x)) return false;
            if (!add_input(p, *from, x, &room)) return false;
        }
    return true;
}

/* Results that are nodes, in their order. */
static int node_results(const nb_replay *p, nb_tensor **y)
{
    int n = 0;
    for (int k = 0; k < p->ny; k++)
        if (p->result[k] >= p->nx) y[n++] = p->node[p->result[k] - p->nx];
    return n;
}

static bool make_program(nb_replay *p)
{
    nb_tensor **y = nb_array(p->ny);
    bool failed = nb_failed(), ok = y && find_inputs(p);
    int n = ok ? node_results(p, y) : 0;
    if (ok && n)
        p->program =
            nb_programs_run.make(p->nprogram, p->program_in, n, y, false);
    nb_free(y);
    return ok && nb_failed() == failed;
}

static bool run_program(nb_replay *p, nb_tensor *const *x, nb_tensor **y)
{
    for (int i = 0; i < p->nprogram; i++)
        if (p->program_from[i] >= 0) p->program_in[i] = x[p->program_from[i]];
    if (!nb_programs_run.run(p->program, p->program_in, p->value)) return false;
    for (int k = 0, n = 0; k < p->ny; k++)
        y[k] = p->result[k] < 0       ? p->fixed[k]
               : p->result[k] < p->nx ? x[p->result[k]]
                                      : p->value[n++];
    return true;
}

/* Making a program takes as long as recording some thousand nodes. */
enum { MANY_NODES = 4000 };

bool nb_replay_run(nb_replay *p, nb_tensor *const *x, nb_tensor **y)
{
    bool many = p->runs <= MANY_NODES && (p->runs += p->n) > MANY_NODES;
    if (many && !make_program(p)) return false;
    if (p->program) return computed(run_program(p, x, y), p->ny, y);
    if (nb_scope_open() != NB_OK) return false;
    bool ok = record_again(p, x, y);
    return computed(alone(ok, p->ny, y), p->ny, y);
}

/* Data */

/* Rows of x, sizes and steps of which are given, to where the other steps say.
 */
static bool copy_dims(char *to, const int64_t *to_step, const nb_tensor *x,
                      const int64_t *step, int n, const int64_t *size)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t item = (int64_t)nb_dtype_size(d), at[NB_MAX_DIMS] = {0};
    int64_t row = n ? size[n - 1] : 1, rows = 1;
    if (x->device)
        return nb_on_card.elements(x->device, d, n, size, to, to_step, x->data,
                                   step);
    for (int k = 0; k < n - 1; k++)
        rows *= size[k];
    for (int64_t r = 0; row && r < rows; r++) {
        int64_t i = 0, j = 0;
        for (int k = 0; k < n - 1; k++) {
            i += at[k] * to_step[k];
            j += at[k] * step[k];
        }
        nb_convert(to + i * item, d, n ? to_step[n - 1] : 1, x->data + j * item,
                   d, n ? step[n - 1] : 1, row);
        for (int k = n - 2; k >= 0 && ++at[k] == size[k]; k--)
            at[k] = 0;
    }
    return true;
}

/* Sizes of s as stored, and the steps of x along them. */
static int steps_of(const nb_tensor *x, const nb_shape *s, int64_t *size,
                    int64_t *step)
{
    int64_t own[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_tensor_strides(x, own, stride);
    for (int l = 0; l < s->nlanes; l++) {
        size[l] = nb_extent_get(nb_lane_stored(s->lane[l]));
        step[l] = 0;
        for (int k = 0; k < x->nlanes; k++)
            if (nb_tensor_lane(x)[k].id == s->lane[l].id &&
                !nb_tensor_lane(x)[k].thin)
                step[l] = stride[k];
    }
    for (int d = 0; d < x->rank; d++) {
        size[s->nlanes + d] = own[x->nlanes + d];
        step[s->nlanes + d] = stride[x->nlanes + d];
    }
    return s->nlanes + x->rank;
}

bool nb_copy_steps(char *to, const int64_t *to_step, const nb_shape *s,
                   nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], step[NB_MAX_DIMS];
    int n = steps_of(x, s, size, step);
    return copy_dims(to, to_step, x, step, n, size);
}

bool nb_copy_into(char *to, const nb_shape *s, nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], step[NB_MAX_DIMS], packed[NB_MAX_DIMS];
    int n = steps_of(x, s, size, step);
    int64_t next = 1;
    for (int d = n - 1; d >= 0; d--) {
        packed[d] = next;
        next *= size[d];
    }
    return copy_dims(to, packed, x, step, n, size);
}

bool nb_copy_step(char *to, const nb_shape *whole, nb_tensor *x, int64_t t)
{
    int64_t size[NB_MAX_DIMS], step[NB_MAX_DIMS], packed[NB_MAX_DIMS];
    int n = steps_of(x, whole, size, step);
    int64_t next = 1, item = (int64_t)nb_dtype_size((nb_dtype)x->dtype);
    for (int d = n - 1; d >= 0; d--) {
        if (d == whole->nlanes - 1) next *= nb_extent_get(whole->size[0]);
        packed[d] = next;
        next *= size[d];
    }
    int64_t one = 1;
    for (int d = whole->nlanes; d < n; d++)
        one *= size[d];
    return copy_dims(to + t * one * item, packed, x, step, n, size);
}

static bool same_lanes(const nb_tensor *x, const nb_shape *s)
{
    bool same = x->nlanes == s->nlanes;
    for (int l = 0; same && l < s->nlanes; l++)
        same = nb_tensor_lane(x)[l].thin == s->lane[l].thin &&
               nb_tensor_lane(x)[l].id == s->lane[l].id;
    return same;
}

nb_tensor *nb_leaf_of(nb_tensor *x, const nb_shape *s)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t n;
    if (x->buffer && same_lanes(x, s))
        return nb_leaf_on(x->device,
                          nb_leaf_new(d, s, x->buffer, x->data, x->strides));
    nb_shape_count(s, &n);
    nb_buffer *b = nb_buffer_on(x->device, (size_t)n * nb_dtype_size(d));
    nb_tensor *y = b ? nb_leaf_on(x->device, nb_leaf_first(d, s, b)) : NULL;
    nb_buffer_drop(b);
    return y && nb_copy_into(y->data, s, x) ? y : NULL;
}

nb_tensor *nb_settled(nb_tensor *x, const nb_shape *s)
{
    return same_lanes(x, s) ? x : nb_leaf_of(x, s);
}
