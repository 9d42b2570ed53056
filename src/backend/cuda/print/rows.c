/* rows.c - units with inner axes: a team finds its unit and walks the
 * passes.  Each begins with what is the same all over the unit, then come its
 * turns, then what the team has reduced. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

#include <stdio.h>

static void guard_cut(nb_printer *p)
{
    int a = p->x->cut;
    if (!a) return;
    nb_print_line(p);
    OUT(p, "if (i%d + i0 * ", a);
    nb_print_number(p, a);
    OUT(p, " >= ");
    nb_print_number(p, NB_SLOT_CUT);
    OUT(p, ") continue;");
}

static bool any_inside(const nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++)
        if (p->w.needed[q][k]) return true;
    return false;
}

static void begin_turns(nb_printer *p)
{
    const nb_cuda_walk *w = &p->w;
    nb_print_line(p);
    OUT(p, w->turns ? "#pragma unroll" : "#pragma unroll 4");
    nb_print_line(p);
    if (w->turns)
        OUT(p, "for (int e = 0; e < %d; e++) {", w->turns);
    else
        OUT(p, "for (I e = 0; e * %d + member < inner; e++) {", w->team);
    p->depth++;
    nb_print_line(p);
    OUT(p, "I j = (I)e * %d + member;", w->team);
    if (w->turns && w->inner != (int64_t)w->turns * w->team) {
        nb_print_line(p);
        OUT(p, "if (j >= inner) continue;");
    }
    nb_print_unfold(p, "j", true);
    guard_cut(p);
}

static void end_turns(nb_printer *p)
{
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}

/* All of what is kept raw is on its way before some is used. */
static void take_raw(nb_printer *p, int q)
{
    const nb_cuda_walk *w = &p->w;
    for (int k = 0; k < p->x->n; k++) {
        if (!w->raw[k] || !w->needed[q][k]) continue;
        if (w->kept[k] == q) {
            begin_turns(p);
            nb_print_keeping(p, k);
            end_turns(p);
            continue;
        }
        nb_print_line(p);
        OUT(p, "#pragma unroll");
        nb_print_line(p);
        OUT(p, "for (int e = 0; e < %d; e++) hide(k%d[e]);", w->turns, k);
    }
}

void nb_print_turns(nb_printer *p, int q)
{
    take_raw(p, q);
    begin_turns(p);
    nb_print_lanes(p, q);
    end_turns(p);
}

/* Reductions across a team */

static bool totals(const nb_printer *p, int k, int q)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    bool is = v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_SCAN ||
              v->kind == NB_NEST_CARRY;
    return is && p->w.needed[q][k];
}

/* Two halves without a number above or below them. */
static void begin_pairs(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    bool brain = nb_printer_value(p, v->arg[0])->stored == NB_BF16;
    unsigned infinite = brain ? 0x7f80 : 0x7c00;
    if (v->reduce == NB_MAX) infinite |= 0x8000;
    OUT(p, "u32 m%d = 0x%xu;", k, infinite << 16 | infinite);
}

static void end_pairs(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_type(nb_printer_value(p, v->arg[0])->stored);
    char high[64], low[64];
    snprintf(high, sizeof high, "c_%s_f32(m%d >> 16)", type, k);
    snprintf(low, sizeof low, "c_%s_f32(m%d & 0xffff)", type, k);
    nb_print_line(p);
    OUT(p, "f32 a%d = ", k);
    nb_print_combine(p, k, high, low);
    OUT(p, ";");
}

int nb_printer_totals(const nb_printer *p)
{
    enum { TOTALS = 4 };
    bool enough = p->w.lanes >= TOTALS || p->w.turns * p->w.lanes >= TOTALS;
    return p->apart && enough ? TOTALS : 1;
}

static void begin_parts(nb_printer *p, int k, int parts)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    nb_print_line(p);
    OUT(p, "%s A%d[%d] = {", nb_cuda_type(v->dtype), k, parts);
    for (int i = 0; i < parts; i++) {
        OUT(p, i ? ", " : "");
        nb_cuda_neutral(p->t, v->reduce, v->dtype);
    }
    OUT(p, "};");
}

static void begin_totals(nb_printer *p, int q)
{
    int parts = nb_printer_totals(p);
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (!totals(p, k, q)) continue;
        if (v->kind == NB_NEST_REDUCE && parts > 1) begin_parts(p, k, parts);
        nb_print_line(p);
        if (nb_cuda_is_paired(&p->w, k)) {
            begin_pairs(p, k);
            continue;
        }
        bool again = false; /* a running total that passes share */
        for (int r = 0; r < q; r++)
            again = again || totals(p, k, r);
        if (!again) OUT(p, "%s ", nb_cuda_type(v->dtype));
        OUT(p, "a%d = ", k);
        if (v->kind == NB_NEST_CARRY)
            nb_print_name(p, v->arg[0]);
        else
            nb_cuda_neutral(p->t, v->reduce, v->dtype);
        OUT(p, ";");
    }
}

/* What is divided by, once more as that. */
static void prepare(nb_printer *p, int k)
{
    if (!nb_cuda_is_divisor(&p->w, k)) return;
    nb_print_line(p);
    OUT(p, "const divisor d%d = divide_by(v%d);", k, k);
}

/* Totals apart become one, by halves. */
static void end_parts(nb_printer *p, int k, int parts)
{
    for (int half = parts / 2; half; half /= 2)
        for (int i = 0; i < half; i++) {
            char a[32], b[32];
            snprintf(a, sizeof a, "A%d[%d]", k, i);
            snprintf(b, sizeof b, "A%d[%d]", k, i + half);
            nb_print_line(p);
            if (half > 1)
                OUT(p, "%s = ", a);
            else
                OUT(p, "a%d = ", k);
            nb_print_combine(p, k, a, b);
            OUT(p, ";");
        }
}

static void end_totals(nb_printer *p, int q)
{
    int parts = nb_printer_totals(p);
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (!totals(p, k, q) || v->kind != NB_NEST_REDUCE) continue;
        if (nb_cuda_is_paired(&p->w, k)) end_pairs(p, k);
        if (parts > 1) end_parts(p, k, parts);
        nb_print_fold(p, k);
        nb_print_line(p);
        OUT(p, "%s v%d = a%d;", nb_cuda_type(v->dtype), k, k);
        prepare(p, k);
    }
}

void nb_print_level(nb_printer *p, int q, bool stores)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (p->w.inside[k] || p->w.ready[k] != q) continue;
        if (v->kind == NB_NEST_STORE) {
            if (!stores) continue;
            nb_print_line(p);
            OUT(p, p->all && p->all[k] ? "{" : "if (live && member == 0) {");
            p->depth++;
            nb_print_store(p, k);
            p->depth--;
            nb_print_line(p);
            OUT(p, "}");
        } else if (nb_printer_writes(v) && v->kind != NB_NEST_CARRY) {
            nb_print_define(p, k);
            prepare(p, k);
        }
    }
}

static void declare_kept(nb_printer *p)
{
    for (int k = 0; k < p->x->n; k++) {
        if (p->w.kept[k] < 0) continue;
        nb_print_line(p);
        const nb_nest_value *v = nb_printer_value(p, k);
        if (p->w.raw[k])
            OUT(p, "V%d_%s k%d[%d];", p->w.lanes, nb_cuda_stored(v->stored), k,
                p->w.turns);
        else
            OUT(p, "%s k%d[%d];", nb_cuda_type(v->dtype), k,
                p->w.turns * p->w.lanes);
    }
}

void nb_print_passes(nb_printer *p)
{
    declare_kept(p);
    for (int q = 0; q < p->w.npasses; q++) {
        nb_print_level(p, q, true);
        if (!any_inside(p, q)) continue;
        begin_totals(p, q);
        nb_print_turns(p, q);
        end_totals(p, q);
    }
}

void nb_print_rows(nb_printer *p)
{
    const nb_cuda_walk *w = &p->w;
    nb_print_line(p);
    OUT(p, "const I total = ");
    nb_print_count(p, false);
    OUT(p, ";");
    nb_print_line(p);
    OUT(p, "I member = threadIdx.x %s %d;", w->across ? "/" : "%",
        w->across ? w->units : w->team);
    nb_print_line(p);
    OUT(p, "I unit = (I)%s * %d + threadIdx.x %s %d;", nb_printer_block(p),
        w->units, w->across ? "%" : "/", w->across ? w->units : w->team);
    nb_print_line(p);
    OUT(p, "bool live = unit < total;");
    nb_print_line(p);
    OUT(p, "if (!live) unit = total - 1;");
    nb_print_unfold(p, "unit", false);
    nb_print_line(p);
    OUT(p, "const I inner = ");
    nb_print_count(p, true);
    OUT(p, ";");
    if (w->columns)
        nb_print_columns(p);
    else
        nb_print_passes(p);
}
