/* walk_lanes.c - which points a thread takes at once: lanes along an axis, and
 * tiles of two axes.
 *
 * Lanes are one aligned piece of memory.  Where the rows of an axis do not begin
 * at such pieces, or do not end there, vectors are laid over them as they lie in
 * memory: the first may begin before the row, the last end behind it, and what
 * is outside is left alone.  All vectors of a nest then begin at the same
 * points; `head` is an access that tells which. */
#include "backend/cuda/print/walk.h"

enum {
    SHORT_SIDE = 16, /* of a matrix that is worth turning */
    MOST_TURNED = 4, /* tiles in shared memory */
    GOOD_BYTES = 8,  /* of a vector that is not worth one that reaches over */
    SHORT_ROW = 4,   /* vectors */
    FEW_COLUMNS = 32 /* the same */
};

/* Whether lanes along axis a begin where those of `head` do. */
static bool lies_along(const nb_cuda_walk *w, const nb_nest_value *v, int a)
{
    const nb_nest_value *h = w->head < 0 ? NULL : &w->nest->value[w->head];
    if (w->lanes == 1 || v->stride[a] != 1) return false;
    if ((v->offset - (h ? h->offset : 0)) % w->lanes) return false;
    for (int b = 0; b < w->nest->naxes; b++)
        if (b != a && (v->stride[b] - (h ? h->stride[b] : 0)) % w->lanes)
            return false;
    return true;
}

bool nb_cuda_is_vector(const nb_cuda_walk *w, const nb_nest_value *v)
{
    if (v->kind != NB_NEST_LOAD && v->kind != NB_NEST_STORE) return false;
    return w->vector >= 0 && lies_along(w, v, w->vector);
}

bool nb_cuda_is_turned(const nb_cuda_walk *w, const nb_nest_value *v)
{
    return w->tile >= 0 && v->kind == NB_NEST_LOAD && v->stride[w->tile] == 1 &&
           v->stride[w->vector] && v->stride[w->vector] != 1;
}

bool nb_cuda_is_upright(const nb_cuda_walk *w, const nb_nest_value *v)
{
    return lies_along(w, v, w->tile) && w->nest->size[w->tile] % w->lanes == 0;
}

int64_t nb_cuda_vectors(const nb_cuda_walk *w)
{
    int64_t reach = w->head < 0 ? 0 : w->lanes - 1;
    return (w->nest->size[w->vector] + reach + w->lanes - 1) / w->lanes;
}

/* Accesses that lanes are vectors of. */
static int vectors(const nb_cuda_walk *w)
{
    int n = 0;
    for (int k = 0; k < w->nest->n; k++)
        n += nb_cuda_is_vector(w, &w->nest->value[k]);
    return n;
}

/* The bytes of the narrowest access along the vector axis; 0: none. */
static int narrowest(const nb_cuda_walk *w)
{
    int least = 0;
    for (int k = 0; k < w->nest->n; k++) {
        const nb_nest_value *v = &w->nest->value[k];
        int size = (int)nb_dtype_size(v->stored);
        if (!nb_nest_in_memory(v) || v->stride[w->vector] != 1) continue;
        if (!least || size < least) least = size;
    }
    return least;
}

/* As many as the widest accesses allow and the axis is a multiple of; all of a
 * nest for known sizes. */
static void choose_exact(nb_cuda_walk *w, int bytes)
{
    const nb_nest *x = w->nest;
    int narrow = w->vector < 0 || x->param ? 0 : narrowest(w);
    for (w->lanes = narrow ? bytes / narrow : 0; w->lanes > 1; w->lanes /= 2) {
        bool cut = x->cut && x->cut == w->vector && x->cut_size % w->lanes;
        if (!cut && x->size[w->vector] % w->lanes == 0 && vectors(w)) return;
    }
    w->lanes = 1;
}

/* Vectors that reach over the ends of rows: as most accesses lie. */
static void choose_ragged(nb_cuda_walk *w, int narrow)
{
    const nb_nest *x = w->nest;
    int lanes = w->lanes, most, head = -1;
    w->lanes = NB_CUDA_VECTOR / narrow;
    if (w->lanes <= lanes || x->size[w->vector] < SHORT_ROW * w->lanes) {
        w->lanes = lanes;
        return;
    }
    most = vectors(w);
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        bool moves = v->kind == NB_NEST_LOAD || v->kind == NB_NEST_STORE;
        w->head = k;
        if (!moves || v->stride[w->vector] != 1 || vectors(w) <= most) continue;
        most = vectors(w);
        head = k;
    }
    w->head = head;
    w->ragged = most > 0;
    if (!most) w->lanes = lanes;
}

void nb_cuda_choose_exact_lanes(nb_cuda_walk *w)
{
    choose_exact(w, NB_CUDA_VECTOR);
}

void nb_cuda_choose_lanes(nb_cuda_walk *w)
{
    choose_exact(w, NB_CUDA_VECTOR);
    int narrow = w->vector < 0 || w->nest->param ? 0 : narrowest(w);
    if (narrow && w->lanes * narrow < GOOD_BYTES) choose_ragged(w, narrow);
}

/* The axis that something is stored along, -1 if there is none. */
static int stored_along(const nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        for (int a = 0; a < x->naxes; a++)
            if (x->value[k].kind == NB_NEST_STORE && x->size[a] > 1 &&
                x->value[k].stride[a] == 1)
                return a;
    return -1;
}

/* The axis, of those that are long, that most of what is turned runs along. */
static void choose_axes(nb_cuda_walk *w)
{
    const nb_nest *x = w->nest;
    int along = stored_along(x), most = 0, found = -1;
    if (along < 0 || x->param || x->size[along] < SHORT_SIDE) return;
    int was = w->vector;
    w->vector = along;
    for (int a = 0; a < x->naxes; a++) {
        int n = 0;
        w->tile = a;
        for (int k = 0; k < x->n; k++)
            n += nb_cuda_is_turned(w, &x->value[k]);
        if (a == along || x->size[a] < SHORT_SIDE || n <= most) continue;
        most = n;
        found = a;
    }
    w->tile = most > MOST_TURNED ? -1 : found;
    if (w->tile < 0) w->vector = was;
}

/* A warp along one side, two along the other, words of shared memory as
 * lanes. */
bool nb_cuda_choose_tile(nb_cuda_walk *w)
{
    choose_axes(w);
    if (w->tile < 0) return false;
    choose_exact(w, NB_CUDA_WORD);
    w->side = NB_CUDA_WARP * w->lanes;
    w->rise = 2 * NB_CUDA_WARP * w->lanes;
    return true;
}

/* Whether all that is reduced is, before something else needs it. */
static bool is_one_pass(const nb_nest *x)
{
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        bool waits = false;
        for (int i = 0; i < nb_nest_args(v); i++)
            waits |= !(x->value[v->arg[i]].axes & x->inner) &&
                     x->value[v->arg[i]].kind != NB_NEST_CONST &&
                     x->value[v->arg[i]].kind != NB_NEST_LOAD;
        if (waits && (v->axes & x->inner || v->kind == NB_NEST_REDUCE))
            return false;
    }
    return true;
}

bool nb_cuda_choose_columns(nb_cuda_walk *w, int axis)
{
    w->vector = axis;
    if (is_one_pass(w->nest)) choose_exact(w, NB_CUDA_VECTOR);
    while (w->lanes > 1 && w->nest->size[axis] / w->lanes < FEW_COLUMNS)
        w->lanes /= 2;
    w->columns = w->lanes > 1;
    if (!w->columns) w->vector = -1;
    return w->columns;
}
