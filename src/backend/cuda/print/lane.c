/* lane.c - what a thread does at once: vectors are loaded, lanes computed
 * one by one, vectors stored. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

#include <stdio.h>

/* Where a vector is, as that or as its first element. */
static void vector_address(nb_printer *p, int k, bool whole)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_stored(v->stored);
    if (whole) OUT(p, "*(V%d_%s *)(", p->w.lanes, type);
    OUT(p, "(%s *)p.b[%d] + ", type, v->buffer);
    nb_print_place(p, k, false);
    if (whole) OUT(p, ")");
}

/* Bits that no maximum of pairs is. */
static unsigned filling(const nb_printer *p, int k)
{
    for (int i = k + 1; i < p->x->n; i++)
        if (nb_cuda_is_paired(&p->w, i) && nb_printer_value(p, i)->arg[0] == k)
            return nb_printer_value(p, k)->stored == NB_BF16 ? 0xff80 : 0xfc00;
    return 0;
}

static void read_vector(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    const char *type = nb_cuda_stored(v->stored);
    if (!p->w.ragged) {
        vector_address(p, k, true);
        return;
    }
    OUT(p, "take<V%d_%s>(", p->w.lanes, type);
    vector_address(p, k, false);
    OUT(p, ", i%d, end, whole, (%s)%u)", p->w.vector, type, filling(p, k));
}

void nb_print_vector_types(nb_printer *p)
{
    bool seen[NB_NDTYPES] = {false};
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        nb_dtype d = v->stored;
        bool upright =
            nb_cuda_is_turned(&p->w, v) && nb_cuda_is_upright(&p->w, v);
        if (!nb_cuda_is_vector(&p->w, v) && !upright) continue;
        for (int e = 0; e < NB_NDTYPES; e++) /* one for those that lie alike */
            if (seen[e] && nb_cuda_stored((nb_dtype)e) == nb_cuda_stored(d))
                seen[d] = true;
        if (seen[d]) continue;
        seen[d] = true;
        size_t bytes = nb_dtype_size(d) * (size_t)p->w.lanes;
        OUT(p, "struct __align__(%d) V%d_%s { %s x[%d]; };\n",
            (int)(bytes > 16 ? 16 : bytes), p->w.lanes, nb_cuda_stored(d),
            nb_cuda_stored(d), p->w.lanes);
    }
}

static bool is_read_at(const nb_printer *p, int k, int q)
{
    return p->w.needed[q][k] && !(p->w.kept[k] >= 0 && p->w.kept[k] < q);
}

static void load_vectors(nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (v->kind != NB_NEST_LOAD || !p->w.needed[q][k]) continue;
        if (!p->w.raw[k] && !is_read_at(p, k, q)) continue;
        if (!nb_cuda_is_vector(&p->w, v) || p->w.tile >= 0) continue;
        if (p->held && p->held[k]) continue;
        nb_print_line(p);
        OUT(p, "V%d_%s x%d = ", p->w.lanes, nb_cuda_stored(v->stored), k);
        if (p->w.raw[k])
            OUT(p, "k%d[e]", k);
        else
            read_vector(p, k);
        OUT(p, ";");
    }
}

void nb_print_vector(nb_printer *p, int k)
{
    vector_address(p, k, true);
}

void nb_print_keeping(nb_printer *p, int k)
{
    nb_print_line(p);
    OUT(p, "k%d[e] = ", k);
    read_vector(p, k);
    OUT(p, ";");
}

static void take_pairs(nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        if (!p->w.needed[q][k] || !nb_cuda_is_paired(&p->w, k)) continue;
        nb_print_line(p);
        OUT(p, "pairs_%d(m%d, x%d);", k, k, nb_printer_value(p, k)->arg[0]);
    }
}

/* Numbers of a vector become halves. */
static void pack(nb_printer *p, int k)
{
    nb_print_line(p);
    OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p,
        "for (int l = 0; l < %d; l += 2) ((u32 *)&y%d)[l / 2] = "
        "pack_%s(z%d[l], z%d[l + 1]);",
        p->w.lanes, k, nb_cuda_type(nb_printer_value(p, k)->stored), k, k);
}

static void store_vectors(nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (v->kind != NB_NEST_STORE || !p->w.needed[q][k]) continue;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        if (nb_cuda_is_packed(&p->w, k)) pack(p, k);
        nb_print_line(p);
        OUT(p, p->w.ragged ? "if (live) give(" : "if (live) ");
        vector_address(p, k, !p->w.ragged);
        if (p->w.ragged)
            OUT(p, ", i%d, end, whole, y%d);", p->w.vector, k);
        else
            OUT(p, " = y%d;", k);
    }
}

static void declare_stores(nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (v->kind != NB_NEST_STORE || !p->w.needed[q][k]) continue;
        if (!nb_cuda_is_vector(&p->w, v)) continue;
        nb_print_line(p);
        OUT(p, "V%d_%s y%d;", p->w.lanes, nb_cuda_stored(v->stored), k);
        if (nb_cuda_is_packed(&p->w, k)) OUT(p, " f32 z%d[%d];", k, p->w.lanes);
    }
}

static void store_one(nb_printer *p, int k)
{
    if (nb_cuda_is_packed(&p->w, k)) {
        nb_print_line(p);
        OUT(p, "z%d[l] = ", k);
        nb_print_name(p, nb_cuda_unrounded(&p->w, k));
        OUT(p, ";");
        return;
    }
    if (nb_cuda_is_vector(&p->w, nb_printer_value(p, k))) {
        nb_print_store(p, k);
        return;
    }
    nb_print_line(p);
    OUT(p, p->all && p->all[k] ? "{" : "if (live) {");
    p->depth++;
    nb_print_store(p, k);
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}

static void accumulate(nb_printer *p, int k)
{
    char total[64], of[64];
    int parts = nb_printer_totals(p);
    if (parts > 1)
        snprintf(total, sizeof total, "A%d[(e * %d + l) %% %d]", k, p->w.lanes,
                 parts);
    else
        snprintf(total, sizeof total, "a%d", k);
    nb_text one = {0}, *was = p->t;
    p->t = &one;
    nb_print_name(p, nb_printer_value(p, k)->arg[0]);
    p->t = was;
    snprintf(of, sizeof of, "%s", nb_text_get(&one));
    was->failed |= one.failed;
    nb_text_free(&one);
    nb_print_line(p);
    OUT(p, "%s = ", total);
    nb_print_combine(p, k, total, of);
    OUT(p, ";");
}

static void lane(nb_printer *p, int q)
{
    const nb_cuda_walk *w = &p->w;
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (!w->needed[q][k]) continue;
        if (v->kind == NB_NEST_STORE) {
            store_one(p, k);
        } else if (v->kind == NB_NEST_REDUCE) {
            if (!nb_cuda_is_paired(w, k)) accumulate(p, k);
        } else if (w->kept[k] >= 0 && w->kept[k] < q && !w->raw[k]) {
            nb_print_line(p);
            OUT(p, "%s v%d = k%d[e * %d + l];", nb_cuda_type(v->dtype), k, k,
                w->lanes);
        } else if (nb_printer_writes(v)) {
            nb_print_define(p, k);
            if (w->kept[k] != q || w->raw[k]) continue;
            nb_print_line(p);
            OUT(p, "k%d[e * %d + l] = v%d;", k, w->lanes, k);
        }
    }
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (v->kind != NB_NEST_CARRY || !w->needed[q][k]) continue;
        nb_print_line(p);
        OUT(p, "a%d = ", k);
        nb_print_name(p, v->next);
        OUT(p, ";");
    }
}

void nb_print_lanes(nb_printer *p, int q)
{
    load_vectors(p, q);
    take_pairs(p, q);
    declare_stores(p, q);
    nb_print_line(p);
    OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p, "for (int l = 0; l < %d; l++) {", p->w.lanes);
    p->depth++;
    if (p->w.ragged) {
        int a = p->w.vector;
        nb_print_line(p);
        OUT(p, "if (!whole && (i%d + l < 0 || i%d + l >= end)) continue;", a,
            a);
    }
    if (p->w.columns) nb_print_column(p, q);
    lane(p, q);
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
    store_vectors(p, q);
}
