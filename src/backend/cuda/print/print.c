/* print.c - writing the kernel of a nest: what it is written with, then its
 * form. */
#include "backend/cuda/print/print.h"

#include "backend/cuda/print/prelude.h"
#include "backend/cuda/print/printer.h"

void nb_print_line(nb_printer *p)
{
    OUT(p, "\n%*s", 4 * p->depth, "");
}

static bool has_outer_lanes(const nb_printer *p)
{
    return p->w.lanes > 1 && !(p->x->inner >> p->w.vector & 1);
}

static void kernel(nb_printer *p, const char *called)
{
    const nb_cuda_walk *w = &p->w;
    int nb = p->x->nbuffers, np = p->x->param ? p->x->nparams : 0;
    nb_cuda_prelude(p->t, 1, &w);
    nb_print_vector_types(p);
    OUT(p, "struct args { char *b[%d]; long long n[%d]; };\n", nb ? nb : 1,
        np ? np : 1);
    OUT(p,
        "extern \"C\" __global__ void __launch_bounds__(%d, %d)\n"
        "%s(const __grid_constant__ args p)\n{",
        nb_cuda_threads(w), w->blocks, called);
    p->depth = 1;
    if (w->tile >= 0)
        nb_print_tiles(p);
    else if (p->x->inner)
        nb_print_rows(p);
    else
        nb_print_map(p);
    OUT(p, "\n}\n");
}

bool nb_print_nest(nb_text *t, const nb_nest *x, const char *called,
                   nb_printed *how)
{
    nb_printer p = {.t = t, .x = x};
    bool ok = nb_cuda_walk_plan(&p.w, x);
    if (ok) {
        kernel(&p, called);
        *how = (nb_printed){.tile = p.w.tile,
                            .side = p.w.side,
                            .rise = p.w.rise,
                            .along = p.w.vector,
                            .threads = nb_cuda_threads(&p.w),
                            .per_block = (int64_t)p.w.units * p.w.ahead,
                            .lanes = p.w.lanes,
                            .reach = p.w.head < 0 ? 0 : p.w.lanes - 1,
                            .vector = has_outer_lanes(&p) ? p.w.vector : -1};
    }
    nb_cuda_walk_free(&p.w);
    return ok && !t->failed;
}

static int64_t pieces(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

int64_t nb_printed_blocks(const nb_printed *how, const nb_nest *x)
{
    int64_t units = nb_nest_units(x);
    if (how->tile >= 0 && units)
        return units / x->size[how->along] / x->size[how->tile] *
               pieces(x->size[how->along], how->side) *
               pieces(x->size[how->tile], how->rise);
    if (how->vector >= 0 && units)
        units = units / x->size[how->vector] *
                pieces(x->size[how->vector] + how->reach, how->lanes);
    return pieces(units, how->per_block);
}
