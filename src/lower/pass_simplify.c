/* pass_simplify.c - algebra: what facts.def says of an instruction holds for
 * the ops that are that instruction at each point.
 *
 * A line gives way only to one of its own type, so that what is broadcast
 * stays so. */
#include "core/convert.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <math.h>
#include <string.h>

typedef enum sides { NONE, R, B } sides;
typedef struct neutral {
    sides sides;
    double value;
} neutral;

static const neutral floats[NB_S_count] = {
#define FLOATS(name, where, e) [NB_S_##name] = {where, e},
#include "lower/facts.def"
};
static const neutral whole[NB_S_count] = {
#define WHOLE(name, where, e) [NB_S_##name] = {where, e},
#include "lower/facts.def"
};

typedef enum twice { NEITHER, NOTHING, ONCE } twice;
static const twice done_twice[NB_S_count] = {
#define TWICE(name, as) [NB_S_##name] = as,
#include "lower/facts.def"
};

static const bool either[NB_S_count] = {
#define EITHER(name) [NB_S_##name] = true,
#include "lower/facts.def"
};

/* Instructions that another does in other words. */
typedef struct reduced {
    double exponent;
    nb_scalar by;
} reduced;
static const reduced squares[NB_S_count] = {
#define SQUARE(name, e, by) [NB_S_##name] = {e, NB_S_##by},
#include "lower/facts.def"
};
static const reduced scales[NB_S_count] = {
#define SCALES(name, by) [NB_S_##name] = {0, NB_S_##by},
#include "lower/facts.def"
};

/* Ops of the catalogue that are an instruction on two operands, as found. */
typedef struct ops {
    nb_op *of[NB_S_count];
} ops;

static nb_op *op_of(ops *found, nb_scalar s)
{
    nb_op *op;
    for (int i = 0; !found->of[s] && (op = nb_op_at(i)); i++)
        if (op->scalar == s && !op->body && op->sig && nb_op_ready(op) &&
            op->static_sig->pointwise && op->static_sig->nin == 2)
            found->of[s] = op;
    return found->of[s];
}

static bool same_number(double a, double b)
{
    return a == b && signbit(a) == signbit(b);
}

static bool is_neutral(const nb_graph *g, const nb_line *l, int i)
{
    bool real = nb_dtype_is_float(l->dtype);
    neutral e = (real ? floats : whole)[nb_line_scalar(l)];
    double value;
    if (e.sides == NONE || (i == 0 && e.sides == R)) return false;
    return nb_line_repeats(g, l->in[i], &value) && same_number(value, e.value);
}

/* The line that l is, -1 if it is none. */
static int instead(const nb_graph *g, const nb_line *l)
{
    nb_scalar s = nb_line_scalar(l);
    const nb_line *first = &g->line[l->in[0]];
    for (int i = 0; l->nin == 2 && i < 2; i++)
        if (is_neutral(g, l, i)) return l->in[1 - i];
    if (l->nin >= 2 && either[s] && l->in[l->nin - 1] == l->in[l->nin - 2])
        return l->in[l->nin - 1];
    if (done_twice[s] && nb_line_scalar(first) == s)
        return done_twice[s] == ONCE ? l->in[0] : first->in[0];
    return -1;
}

static void becomes(nb_line *l, nb_op *op, int second)
{
    nb_op_use(op);
    nb_op_leave(l->op);
    l->op = op;
    l->in[1] = second;
}

/* 1 / e is exact for a power of two whose reciprocal is there. */
static bool reciprocal(nb_dtype d, double e, int64_t *bits)
{
    int exponent;
    *bits = 0;
    if (!isfinite(e) || fabs(frexp(e, &exponent)) != 0.5) return false;
    nb_write_f64(bits, d, 1 / e);
    return nb_read_f64(bits, d) == 1 / e && isfinite(1 / e);
}

/* Cheaper instructions that do the same. */
static bool reduce(nb_rewrite *r, ops *found)
{
    nb_line *l = nb_rewrite_line(r);
    nb_scalar s = nb_line_scalar(l);
    double e;
    int64_t bits;
    if (!squares[s].by && !scales[s].by) return true;
    if (!nb_line_alike(l, &r->graph->line[l->in[0]]) ||
        !nb_line_repeats(r->graph, l->in[1], &e))
        return true;
    if (squares[s].by && e == squares[s].exponent) {
        nb_op *op = op_of(found, squares[s].by);
        if (op) becomes(l, op, l->in[0]);
    } else if (scales[s].by && reciprocal(l->dtype, e, &bits)) {
        nb_op *op = op_of(found, scales[s].by);
        int number = op ? nb_rewrite_number(r, l->dtype, bits) : -1;
        if (op && number < 0) return false;
        if (op) becomes(nb_rewrite_line(r), op, number);
    }
    return true;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    const nb_line *l = nb_rewrite_line(r);
    if (!nb_line_scalar(l) || !l->nin) return true;
    int k = instead(r->graph, l);
    if (k >= 0 && nb_line_alike(l, &r->graph->line[k])) {
        r->is = k;
        return true;
    }
    return reduce(r, ctx);
}

bool nb_pass_simplify(nb_graph *g)
{
    ops found = {0};
    return nb_graph_rewrite(g, visit, &found);
}
