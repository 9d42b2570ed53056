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

static void arguments(nb_printer *p)
{
    int nb = p->x->nbuffers, np = p->x->param ? p->x->nparams : 0;
    if (p->members)
        OUT(p,
            "struct one { char *b[%d]; long long n[%d]; };\n"
            "struct args { one m[%d]; unsigned first[%d]; };\n",
            nb, NB_MEMBER_NUMBERS, p->members, p->members);
    else
        OUT(p, "struct args { char *b[%d]; long long n[%d]; };\n", nb ? nb : 1,
            np ? np : 1);
}

/* The member whose block this is: the last that begins before it. */
static void find_member(nb_printer *p)
{
    int half = 1;
    while (2 * half < p->members)
        half *= 2;
    OUT(p,
        "\n    unsigned which = 0;\n"
        "    #pragma unroll\n"
        "    for (unsigned h = %d; h; h /= 2)\n"
        "        if (which + h < %d && all.first[which + h] <= blockIdx.x)\n"
        "            which += h;\n"
        "    const one &p = all.m[which];\n"
        "    const unsigned block = blockIdx.x - all.first[which];",
        half, p->members);
}

static void kernel(nb_printer *p, const char *called)
{
    const nb_cuda_walk *w = &p->w;
    nb_cuda_prelude(p->t, 1, &w);
    nb_print_vector_types(p);
    arguments(p);
    OUT(p,
        "extern \"C\" __global__ void __launch_bounds__(%d, %d)\n"
        "%s(const __grid_constant__ args %s)\n{",
        nb_cuda_threads(w), w->blocks, called, p->members ? "all" : "p");
    if (p->members) find_member(p);
    p->depth = 1;
    if (w->tile >= 0)
        nb_print_tiles(p);
    else if (p->x->inner)
        nb_print_rows(p);
    else
        nb_print_map(p);
    OUT(p, "\n}\n");
}

static bool print(nb_text *t, const nb_nest *x, const char *called, int members,
                  nb_printed *how)
{
    nb_printer p = {.t = t, .x = x, .members = members};
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
                            .members = members,
                            .reach = p.w.head < 0 ? 0 : p.w.lanes - 1,
                            .vector = has_outer_lanes(&p) ? p.w.vector : -1};
    }
    nb_cuda_walk_free(&p.w);
    return ok && !t->failed;
}

bool nb_print_nest(nb_text *t, const nb_nest *x, const char *called,
                   nb_printed *how)
{
    return print(t, x, called, 0, how);
}

size_t nb_member_bytes(const nb_nest *x)
{
    return ((size_t)x->nbuffers + NB_MEMBER_NUMBERS) * 8;
}

size_t nb_members_bytes(const nb_printed *how, const nb_nest *x)
{
    return (size_t)how->members * (nb_member_bytes(x) + sizeof(unsigned));
}

bool nb_print_nests(nb_text *t, const nb_nest *x, const char *called,
                    size_t room, nb_printed *how)
{
    size_t most = room / (nb_member_bytes(x) + sizeof(unsigned));
    *how = (nb_printed){0};
    if (x->param || x->nbuffers == 0 || most < 2) return true;
    return print(t, x, called, (int)(most / 2 * 2), how);
}

static int64_t pieces(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

int64_t nb_printed_units(const nb_printed *how, const nb_nest *x)
{
    int64_t units = nb_nest_units(x);
    if (how->vector < 0 || !units) return units;
    return units / x->size[how->vector] *
           pieces(x->size[how->vector] + how->reach, how->lanes);
}

int64_t nb_printed_blocks(const nb_printed *how, const nb_nest *x)
{
    int64_t units = nb_nest_units(x);
    if (how->tile >= 0 && units)
        return units / x->size[how->along] / x->size[how->tile] *
               pieces(x->size[how->along], how->side) *
               pieces(x->size[how->tile], how->rise);
    return pieces(nb_printed_units(how, x), how->per_block);
}
