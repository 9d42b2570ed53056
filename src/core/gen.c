/* gen.c - scalar code: the instructions of one op's work at a point. */
#include "core/op.h"

enum { T1, T2, T3, C1, C2, B1, B2, SEL };
static const unsigned char form_of[] = {
    T1,
#define SCALAR(name, form, types, cost, f, i) form,
#include "core/scalars.def"
};

bool nb_scalar_is_test(nb_scalar s)
{
    int form = form_of[s];
    return form == C1 || form == C2 || form == B1 || form == B2;
}

nb_val nb_s_emit(nb_gen *g, nb_scalar s, nb_val a, nb_val b, nb_val c)
{
    nb_instr *x = &g->code[g->n];
    if (g->n < NB_MAX_CODE - 1) g->n++;
    *x = (nb_instr){.scalar = s, .arg = {a.id, b.id, c.id}};
    x->is_bool = nb_scalar_is_test(s);
    return (nb_val){NB_MAX_SCALAR_IN + (int)(x - g->code)};
}

nb_val nb_s_const(nb_gen *g, double value)
{
    nb_instr *x = &g->code[g->n];
    if (g->n < NB_MAX_CODE - 1) g->n++;
    *x = (nb_instr){.scalar = NB_S_none, .value = value};
    return (nb_val){NB_MAX_SCALAR_IN + (int)(x - g->code)};
}

nb_val nb_gen_body(nb_gen *g, const nb_call *c)
{
    static const nb_val x[NB_MAX_SCALAR_IN] = {{0}, {1}, {2}, {3}};
    const nb_op *op = c->op;
    g->n = 0;
    for (int i = 0; i < NB_MAX_SCALAR_IN; i++)
        g->in_bool[i] = op->mask >> i & 1 || op->in == NB_IN_BOOL;
    if (op->body) return op->body(g, x, c);
    return nb_s_emit(g, op->scalar, x[0], x[1], x[2]);
}
