/* team.c - what the members of a team have reduced becomes one, by fixed
 * trees. */
#include "backend/cuda/print/printer.h"

#include "backend/cuda/print/prelude.h"

#include <stdio.h>

static const char *shuffled(nb_dtype d)
{
    return nb_dtype_size(d) < 4 ? "int" : nb_cuda_type(d);
}

static void fold_warp(nb_printer *p, int k, int n)
{
    nb_dtype d = nb_printer_value(p, k)->dtype;
    for (int step = n / 2; step; step /= 2) {
        char other[128], total[32];
        snprintf(total, sizeof total, "a%d", k);
        snprintf(other, sizeof other,
                 "(%s)__shfl_xor_sync(0xffffffffu, (%s)a%d, %d)",
                 nb_cuda_type(d), shuffled(d), k, step);
        nb_print_line(p);
        OUT(p, "{ %s b = %s; a%d = ", nb_cuda_type(d), other, k);
        nb_print_combine(p, k, total, "b");
        OUT(p, "; }");
    }
}

static void fold_block(nb_printer *p, int k, int warps)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    fold_warp(p, k, 32);
    nb_print_line(p);
    OUT(p, "__shared__ %s s%d[%d];", nb_cuda_stored(v->dtype), k, warps);
    nb_print_line(p);
    OUT(p, "if (threadIdx.x %% 32 == 0) s%d[threadIdx.x / 32] = a%d;", k, k);
    nb_print_line(p);
    OUT(p, "__syncthreads();");
    nb_print_line(p);
    OUT(p, "a%d = threadIdx.x %% 32 < %d ? (%s)s%d[threadIdx.x %% 32] : ", k,
        warps, nb_cuda_type(v->dtype), k);
    nb_cuda_neutral(p->t, v->reduce, v->dtype);
    OUT(p, ";");
    fold_warp(p, k, 32);
}

static void fold_across(nb_printer *p, int k)
{
    const nb_nest_value *v = nb_printer_value(p, k);
    int team = p->w.team, side = p->w.units;
    char a[32], b[32];
    nb_print_line(p);
    OUT(p, "__shared__ %s s%d[%d];", nb_cuda_stored(v->dtype), k, team * side);
    nb_print_line(p);
    OUT(p, "s%d[threadIdx.x] = a%d;", k, k);
    nb_print_line(p);
    OUT(p, "__syncthreads();");
    for (int step = team / 2; step; step /= 2) {
        nb_print_line(p);
        OUT(p, "if (member < %d) {", step);
        snprintf(a, sizeof a, "a%d", k);
        snprintf(b, sizeof b, "b");
        OUT(p, " %s b = s%d[threadIdx.x + %d]; a%d = ", nb_cuda_type(v->dtype),
            k, step * side, k);
        nb_print_combine(p, k, a, b);
        OUT(p, "; s%d[threadIdx.x] = a%d; }", k, k);
        nb_print_line(p);
        OUT(p, "__syncthreads();");
    }
    nb_print_line(p);
    OUT(p, "a%d = s%d[threadIdx.x %% %d];", k, k, side);
}

void nb_print_fold(nb_printer *p, int k)
{
    if (p->w.team == 1) return;
    if (p->w.across)
        fold_across(p, k);
    else if (p->w.team <= 32)
        fold_warp(p, k, p->w.team);
    else
        fold_block(p, k, p->w.team / 32);
}

/* Totals and what is carried, before a pass and behind it. */
