/* printer.h - the parts that kernels are printed by: places, values, lanes,
 * teams, and the forms that are made of these. */
#ifndef NB_CUDA_PRINTER_H
#define NB_CUDA_PRINTER_H

#include "backend/cuda/print/print.h"

typedef struct nb_printer {
    nb_text *t;
    const nb_nest *x;
    nb_cuda_walk w;
    int depth;
    /* Of nests inside a kernel (solo.h): the number of this one; by value,
     * loads that are in registers and stores that every thread makes. */
    int number;
    const bool *held, *all;
    int members; /* of a kernel for several nests: how many at most; or 0 */
    bool apart;  /* points in turn add to totals apart, of which none waits */
} nb_printer;

#define OUT(p, ...) nb_text_add((p)->t, __VA_ARGS__)

void nb_print_line(nb_printer *p); /* begins one */

static inline const nb_nest_value *nb_printer_value(const nb_printer *p, int k)
{
    return &p->x->value[k];
}

/* The number of the block among those of a nest. */
static inline const char *nb_printer_block(const nb_printer *p)
{
    return p->members ? "block" : "blockIdx.x";
}

/* A number of the nest: known now, or a parameter. */
void nb_print_number(nb_printer *p, int slot);
/* offset + i0 * stride ... , the lane included if it is asked for. */
void nb_print_place(nb_printer *p, int k, bool lane);
/* The coordinates of a flat number along the inner axes or the outer ones; how
 * many points these have. */
void nb_print_unfold(nb_printer *p, const char *flat, bool inner);
void nb_print_count(nb_printer *p, bool inner);

/* The name of value k at this point: of one lane, if it has several. */
void nb_print_name(nb_printer *p, int k);
/* A conversion, but for what it is of and the bracket that ends it. */
void nb_print_convert(nb_printer *p, nb_dtype from, nb_dtype to,
                      const char *open);
void nb_print_combine(nb_printer *p, int k, const char *a, const char *b);
void nb_print_held(nb_printer *p, int k);       /* where it is in registers */
bool nb_printer_writes(const nb_nest_value *v); /* it is a variable */
void nb_print_define(nb_printer *p, int k);
void nb_print_store(nb_printer *p, int k);

void nb_print_vector_types(nb_printer *p);
/* A vector that is kept raw is read. */
void nb_print_keeping(nb_printer *p, int k);
/* All lanes of a turn of pass q. */
void nb_print_lanes(nb_printer *p, int q);
/* How many totals a thread has of each reduction: 1, or as many as it goes
 * through in turn. */
int nb_printer_totals(const nb_printer *p);
/* The team's total of value k, to all its members. */
void nb_print_fold(nb_printer *p, int k);
/* All passes of a unit with inner axes. */
void nb_print_passes(nb_printer *p);

/* All values of a nest without inner axes; one that is in a tile. */
void nb_print_points(nb_printer *p);
void nb_print_turned(nb_printer *p, int k);
/* Whether a load of a tile is in registers before it is used. */
bool nb_printer_reads_ahead(const nb_printer *p, int k);

/* All turns of pass q; what is the same all over the unit and ready in it. */
void nb_print_turns(nb_printer *p, int q);
void nb_print_level(nb_printer *p, int q, bool stores);
/* Vectors of units side by side, which one pass reduces. */
void nb_print_columns(nb_printer *p);
void nb_print_column(nb_printer *p, int q); /* a lane: its totals, its level */
/* A vector, from memory or to it. */
void nb_print_vector(nb_printer *p, int k);

/* Forms. */
void nb_print_map(nb_printer *p);
void nb_print_tiles(nb_printer *p);
void nb_print_rows(nb_printer *p);

#endif
