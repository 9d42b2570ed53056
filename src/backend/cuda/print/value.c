/* value.c - one value of a nest, as an expression. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

#include <stdio.h>

void nb_print_name(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    if (v->kind == NB_NEST_CONST) {
        if (nb_nest_varies(p->x, nb_slot_bits(k)))
            OUT(p, "(%s)p.n[%d]", nb_cuda_type(v->dtype),
                p->x->param[nb_slot_bits(k)]);
        else
            nb_cuda_constant(p->t, v->dtype, v->bits);
        return;
    }
    OUT(p, "v%d", k);
}

void nb_print_convert(nb_printer *p, nb_dtype from, nb_dtype to,
                      const char *open)
{
    if (from == to)
        OUT(p, "(%s", open);
    else
        OUT(p, "c_%s_%s(%s", nb_cuda_type(from), nb_cuda_type(to), open);
}

static void address(nb_printer *p, int k, bool lane)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    OUT(p, "((%s *)p.b[%d])[", nb_cuda_stored(v->stored), v->buffer);
    nb_print_place(p, k, lane);
    if (v->kind == NB_NEST_PICK) {
        OUT(p, " + ");
        nb_print_name(p, v->arg[0]);
    }
    OUT(p, "]");
}

static const char *tested(const nb_nest_value *v)
{
    return v->stored == NB_BOOL ? " != 0" : "";
}

/* The bits of an element are those of the pointer. */
static void given(nb_printer *p, const nb_nest_value *v)
{
    const char *of = v->stored == NB_F32   ? "__int_as_float((i32)"
                     : v->stored == NB_F64 ? "__longlong_as_double("
                                           : "(";
    OUT(p, "(%s)%s(i64)p.b[%d])", nb_cuda_stored(v->stored), of, v->buffer);
}

void nb_print_held(nb_printer *p, int k)
{
    OUT(p, "h%d_%d[", p->number, k);
    if (p->w.inside[k])
        OUT(p, "(u * %d + e) * %d + l]", p->w.turns, p->w.lanes);
    else
        OUT(p, "u]");
}

static void load(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    nb_print_convert(p, v->stored, v->dtype, "");
    if (p->held && p->held[k])
        nb_print_held(p, k);
    else if (nb_cuda_is_turned(&p->w, v))
        nb_print_turned(p, k);
    else if (nb_printer_reads_ahead(p, k))
        OUT(p, p->w.lanes > 1 ? "x%d[e].x[l]" : "x%d[e]", k);
    else if (nb_cuda_is_vector(&p->w, v))
        OUT(p, "x%d.x[l]", k);
    else if (v->given)
        given(p, v);
    else
        address(p, k, true);
    OUT(p, "%s)", tested(v));
}

static void pick(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    nb_print_name(p, v->arg[1]);
    OUT(p, " ? ");
    nb_print_convert(p, v->stored, v->dtype, "");
    address(p, k, true);
    OUT(p, "%s) : (%s)0", tested(v), nb_cuda_type(v->dtype));
}

static void word(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    bool whole = nb_printer_value(p, v->arg[0])->dtype == NB_U64;
    OUT(p, "%s_%s(", whole ? "block" : "word", nb_cuda_type(v->dtype));
    for (int i = 0; i < 3; i++) {
        nb_print_name(p, v->arg[i]);
        OUT(p, ", ");
    }
    OUT(p, "0x%llxu, 0x%llxu)", (unsigned long long)v->bits & 0xffffffff,
        (unsigned long long)v->bits >> 32 & 0xffffffff);
}

static void scalar(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    if (nb_cuda_is_quotient(&p->w, k)) {
        OUT(p, "divided(");
        nb_print_name(p, v->arg[0]);
        OUT(p, ", d%d)", v->arg[1]);
        return;
    }
    if (nb_cuda_is_below_one(&p->w, k)) {
        OUT(p, "exp_low(");
        nb_print_name(p, v->arg[0]);
        OUT(p, ")");
        return;
    }
    nb_cuda_scalar_name(p->t, v->scalar, v->compute);
    OUT(p, "(");
    for (int i = 0; i < 3; i++) {
        if (i) OUT(p, ", ");
        nb_print_name(p, v->arg[i]);
    }
    OUT(p, ")");
}

void nb_print_combine(nb_printer *p, int k, const char *a, const char *b)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    nb_cuda_reduce_name(p->t, v->reduce, v->dtype);
    OUT(p, "(%s, %s, %s)", a, b, b);
}

static void scan(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    char total[32], of[32];
    snprintf(total, sizeof total, "a%d", k);
    snprintf(of, sizeof of, "v%d", v->arg[0]);
    if (v->bits)
        OUT(p, "a%d;", k);
    else {
        nb_print_combine(p, k, total, of);
        OUT(p, ";");
    }
    nb_print_line(p);
    OUT(p, "a%d = ", k);
    nb_print_combine(p, k, total, of);
}

static void expression(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    switch (v->kind) {
    case NB_NEST_LOAD: load(p, k); break;
    case NB_NEST_PICK: pick(p, k); break;
    case NB_NEST_WORD: word(p, k); break;
    case NB_NEST_SCAN: scan(p, k); break;
    case NB_NEST_SCALAR: scalar(p, k); break;
    case NB_NEST_INDEX:
        OUT(p, "(%s)(", nb_cuda_type(v->dtype));
        nb_print_place(p, k, true);
        OUT(p, ")");
        break;
    case NB_NEST_CONVERT:
        nb_print_convert(p, v->compute, v->dtype, "");
        nb_print_name(p, v->arg[0]);
        OUT(p, ")");
        break;
    case NB_NEST_CARRY: OUT(p, "a%d", k); break;
    case NB_NEST_LAST: OUT(p, "a%d", v->arg[0]); break;
    default: break;
    }
}

bool nb_printer_writes(const nb_nest_value *v)
{
    return v->kind != NB_NEST_CONST && v->kind != NB_NEST_REDUCE &&
           v->kind != NB_NEST_STORE;
}

void nb_print_define(nb_printer *p, int k)
{
    nb_print_line(p);
    OUT(p, "%s v%d = ", nb_cuda_type(nb_printer_value(p, k)->dtype), k);
    expression(p, k);
    OUT(p, ";");
}

void nb_print_store(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    nb_dtype is = nb_printer_value(p, v->arg[0])->dtype;
    nb_print_line(p);
    if (nb_cuda_is_vector(&p->w, v))
        OUT(p, "y%d.x[l]", k);
    else
        address(p, k, true);
    OUT(p, " = ");
    nb_print_convert(p, is, v->stored, "");
    nb_print_name(p, v->arg[0]);
    OUT(p, ");");
}
