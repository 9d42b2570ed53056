/* columns.c - sums across the memory that units lie along: a thread has
 * the totals of several units side by side, its lanes, and a team brings those
 * of one after another together. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

static bool is_total(const nb_printer *p, int k)
{
    return nb_printer_value(p, k)->kind == NB_NEST_REDUCE;
}

/* Vectors that are the same all along the columns, and those to be stored. */
static void begin(nb_printer *p)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (p->w.inside[k] || !nb_cuda_is_vector(&p->w, v)) continue;
        nb_print_line(p);
        OUT(p, "V%d_%s %c%d", p->w.lanes, nb_cuda_stored(v->stored),
            v->kind == NB_NEST_STORE ? 'y' : 'x', k);
        if (v->kind == NB_NEST_LOAD) {
            OUT(p, " = ");
            nb_print_vector(p, k);
        }
        OUT(p, ";");
    }
}

static void begin_totals(nb_printer *p)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (!is_total(p, k)) continue;
        nb_print_line(p);
        OUT(p, "%s t%d[%d];", nb_cuda_type(v->dtype), k, p->w.lanes);
        nb_print_line(p);
        OUT(p, "#pragma unroll");
        nb_print_line(p);
        OUT(p, "for (int l = 0; l < %d; l++) t%d[l] = ", p->w.lanes, k);
        nb_cuda_neutral(p->t, v->reduce, v->dtype);
        OUT(p, ";");
    }
}

void nb_print_column(nb_printer *p, int q)
{
    for (int k = 0; k < p->x->n; k++) {
        if (!is_total(p, k) || !p->w.needed[q][k]) continue;
        nb_print_line(p);
        OUT(p, "%s &a%d = t%d[l];", nb_cuda_type(nb_printer_value(p, k)->dtype),
            k, k);
    }
    nb_print_level(p, 0, false);
}

static size_t exchanged(const nb_printer *p, int k)
{
    return (size_t)(nb_cuda_threads(&p->w) * p->w.lanes) *
           nb_dtype_size(nb_printer_value(p, k)->dtype);
}

/* Whether all totals of a block go through shared memory at once; the bytes of
 * it that the widest take. */
static bool meet(const nb_printer *p, size_t *bytes)
{
    enum { ROOM = 40 << 10 };
    *bytes = 0;
    for (int k = 0; k < p->x->n; k++)
        if (is_total(p, k) && exchanged(p, k) > *bytes)
            *bytes = exchanged(p, k);
    return p->w.team > 1 && *bytes <= ROOM;
}

/* The totals of value k: each column by one thread, member after member. */
static void bring_together(nb_printer *p, int k)
{
    const nb_cuda_walk *w = &p->w;
    const char *type = nb_cuda_type(nb_printer_value(p, k)->dtype);
    const char *stored = nb_cuda_stored(nb_printer_value(p, k)->dtype);
    int columns = w->units * w->lanes;
    OUT(p,
        "\n    {\n"
        "        %s *s = (%s *)room;\n"
        "        #pragma unroll\n"
        "        for (int l = 0; l < %d; l++)"
        " s[threadIdx.x * %d + l] = t%d[l];\n"
        "        __syncthreads();\n"
        "        for (int c = threadIdx.x; c < %d; c += %d) {\n"
        "            %s a = s[c];\n"
        "            #pragma unroll 8\n"
        "            for (int m = 1; m < %d; m++) {\n"
        "                %s b = s[m * %d + c];\n"
        "                a = ",
        stored, stored, w->lanes, w->lanes, k, columns, nb_cuda_threads(w),
        type, w->team, type, columns);
    nb_print_combine(p, k, "a", "b");
    OUT(p,
        ";\n            }\n"
        "            s[c] = a;\n"
        "        }\n"
        "        __syncthreads();\n"
        "        #pragma unroll\n"
        "        for (int l = 0; l < %d; l++)"
        " t%d[l] = s[threadIdx.x %% %d * %d + l];\n"
        "        __syncthreads();\n"
        "    }",
        w->lanes, k, w->units, w->lanes);
}

/* The totals of one unit after another, and what is made of them. */
static void end_totals(nb_printer *p)
{
    size_t bytes;
    bool met = meet(p, &bytes);
    if (met) {
        nb_print_line(p);
        OUT(p, "__shared__ __align__(16) char room[%d];", (int)bytes);
    }
    for (int k = 0; met && k < p->x->n; k++)
        if (is_total(p, k)) bring_together(p, k);
    nb_print_line(p);
    OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p, "for (int l = 0; l < %d; l++) {", p->w.lanes);
    p->depth++;
    for (int k = 0; k < p->x->n; k++) {
        const char *type = nb_cuda_type(nb_printer_value(p, k)->dtype);
        if (!is_total(p, k)) continue;
        nb_print_line(p);
        OUT(p, "%s a%d = t%d[l];", type, k, k);
        if (!met) nb_print_fold(p, k);
        nb_print_line(p);
        OUT(p, "%s v%d = a%d;", type, k, k);
    }
    for (int q = 0; q < p->w.npasses; q++)
        nb_print_level(p, q, true);
    if (!met) {
        nb_print_line(p);
        OUT(p, "__syncthreads();"); /* before totals are exchanged again */
    }
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}

static void end(nb_printer *p)
{
    for (int k = 0; k < p->x->n; k++) {
        const nb_nest_value *v = nb_printer_value(p, k);
        if (v->kind != NB_NEST_STORE || !nb_cuda_is_vector(&p->w, v)) continue;
        if (p->w.inside[k]) continue;
        nb_print_line(p);
        OUT(p, "if (live && member == 0) ");
        nb_print_vector(p, k);
        OUT(p, " = y%d;", k);
    }
}

void nb_print_columns(nb_printer *p)
{
    begin(p);
    begin_totals(p);
    nb_print_turns(p, 0);
    end_totals(p);
    end(p);
}
