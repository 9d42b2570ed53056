/* place.c - where a point lies: its coordinates, and places in memory. */
#include "backend/cuda/print/printer.h"

void nb_print_number(nb_printer *p, int slot)
{
    if (p->members && slot == NB_SLOT_CUT)
        OUT(p, "p.n[%d]", NB_MEMBER_CUT);
    else if (nb_nest_varies(p->x, slot))
        OUT(p, "p.n[%d]", p->x->param[slot]);
    else
        OUT(p, "%lld", (long long)*nb_nest_number(p->x, slot));
}

static bool is_zero(const nb_printer *p, int slot)
{
    return !nb_nest_varies(p->x, slot) && *nb_nest_number(p->x, slot) == 0;
}

static bool is_one(const nb_printer *p, int slot)
{
    return !nb_nest_varies(p->x, slot) && *nb_nest_number(p->x, slot) == 1;
}

static void print_place(nb_printer *p, int k, bool lane, int without)
{
    bool any = !is_zero(p, nb_slot_offset(k));
    if (any) nb_print_number(p, nb_slot_offset(k));
    for (int a = 0; a < p->x->naxes; a++) {
        int slot = nb_slot_stride(k, a);
        if (is_zero(p, slot) || a == without) continue;
        bool moves = lane && a == p->w.vector && p->w.lanes > 1;
        OUT(p, moves ? "%s(i%d + l)" : "%si%d", any ? " + " : "", a);
        if (!is_one(p, slot)) {
            OUT(p, " * ");
            nb_print_number(p, slot);
        }
        any = true;
    }
    if (!any) OUT(p, "0");
}

void nb_print_place(nb_printer *p, int k, bool lane)
{
    print_place(p, k, lane, -1);
}

/* A vector that may reach over: where it begins, where its row ends, whether it
 * is inside. */
static void begin_vector(nb_printer *p)
{
    const nb_nest *x = p->x;
    int a = p->w.vector;
    if (p->w.head >= 0) {
        nb_print_line(p);
        OUT(p, "i%d -= (", a);
        print_place(p, p->w.head, false, a);
        OUT(p, ") & %d;", p->w.lanes - 1);
    }
    nb_print_line(p);
    if (x->cut == a && x->cut)
        OUT(p, "const I end = min((I)%lld, (I)%lld - i0 * %lld);",
            (long long)x->size[a], (long long)x->cut_size,
            (long long)x->size[a]);
    else
        OUT(p, "const I end = %lld;", (long long)x->size[a]);
    nb_print_line(p);
    OUT(p, "const bool whole = i%d >= 0 && i%d + %d <= end;", a, a, p->w.lanes);
}

void nb_print_unfold(nb_printer *p, const char *flat, bool inner)
{
    const nb_nest *x = p->x;
    int order[NB_MAX_NEST_AXES], n = 0; /* the vector axis runs fastest */
    for (int a = 0; a < x->naxes; a++)
        if ((x->inner >> a & 1) == inner && a != p->w.vector) order[n++] = a;
    bool mine = p->w.vector >= 0 && (x->inner >> p->w.vector & 1) == inner;
    if (mine) order[n++] = p->w.vector;
    if (n > 1) {
        nb_print_line(p);
        OUT(p, "I r%d = %s;", inner, flat);
    }
    for (int j = n - 1; j >= 0; j--) {
        int a = order[j];
        int lanes = a == p->w.vector ? p->w.lanes : 1;
        nb_print_line(p);
        OUT(p, "I i%d = ", a);
        if (n > 1)
            OUT(p, "r%d", inner);
        else
            OUT(p, "%s", flat);
        if (j > 0) {
            OUT(p, " %% ");
            if (lanes > 1)
                OUT(p, "%lld", (long long)nb_cuda_vectors(&p->w));
            else
                nb_print_number(p, a);
        }
        if (lanes > 1) OUT(p, " * %d", lanes);
        OUT(p, ";");
        if (j == 0) continue;
        nb_print_line(p);
        OUT(p, "r%d /= ", inner);
        if (lanes > 1)
            OUT(p, "%lld", (long long)nb_cuda_vectors(&p->w));
        else
            nb_print_number(p, a);
        OUT(p, ";");
    }
    if (mine && p->w.ragged) begin_vector(p);
}

void nb_print_count(nb_printer *p, bool inner)
{
    bool any = false;
    int64_t known = 1;
    if (p->members && !inner) {
        OUT(p, "(I)p.n[%d]", NB_MEMBER_TOTAL);
        return;
    }
    for (int a = 0; a < p->x->naxes; a++) {
        if ((p->x->inner >> a & 1) != inner) continue;
        if (!nb_nest_varies(p->x, a)) {
            bool vector = a == p->w.vector && p->w.lanes > 1;
            known *= vector ? nb_cuda_vectors(&p->w) : p->x->size[a];
            continue;
        }
        OUT(p, "%sp.n[%d]", any ? " * " : "(I)", p->x->param[a]);
        any = true;
    }
    OUT(p, any ? " * %lld" : "(I)%lld", (long long)known);
}
