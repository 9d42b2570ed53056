/* map.c - nests without inner axes: every thread takes some units. */
#include "backend/cuda/print/printer.h"

void nb_print_points(nb_printer *p)
{
    for (int k = 0; k < p->x->n; k++)
        p->w.needed[0][k] = true;
    nb_print_lanes(p, 0);
}

void nb_print_map(nb_printer *p)
{
    const nb_cuda_walk *w = &p->w;
    nb_print_line(p);
    OUT(p, "const I total = ");
    nb_print_count(p, false);
    OUT(p, ";");
    nb_print_line(p);
    OUT(p, "#pragma unroll");
    nb_print_line(p);
    OUT(p, "for (int u = 0; u < %d; u++) {", w->ahead);
    p->depth++;
    nb_print_line(p);
    OUT(p, "I unit = ((I)%s * %d + u) * %d + threadIdx.x;", nb_printer_block(p),
        w->ahead, w->units);
    nb_print_line(p);
    OUT(p, "if (unit >= total) break;");
    nb_print_line(p);
    OUT(p, "const bool live = true;");
    nb_print_unfold(p, "unit", false);
    nb_print_points(p);
    p->depth--;
    nb_print_line(p);
    OUT(p, "}");
}
