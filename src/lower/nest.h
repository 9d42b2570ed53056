/* nest.h - a loop program: what one kernel does, for any target.
 *
 * Axes span the points of a nest.  Outer axes are those along which results
 * lie: every point of them is a unit of work that no other unit needs.  Inner
 * axes are reduced away by some value, and walked within a unit; there may be
 * none.  A value varies along all axes, or along the outer ones alone; on a card
 * what is made of numbers of a row may vary along others.  Values are in order:
 * each uses earlier ones.
 *
 * Memory is a list of buffers; a load or store steps through one by strides, in
 * elements.  A pick's index is also computed, in 32 bits or 64, and where its
 * test fails memory is not touched.
 *
 * Random words are those of Philox 4x32-10 (base/philox.h): word n is number
 * n % 4 of the block with counter n / 4, the stream and what it is for; of 64
 * bits, two words, the first above the second.  Neighbours along an axis share
 * their blocks.  A number of type uint64 is that of a block, whose first two
 * words are meant. */
#ifndef NB_LOWER_NEST_H
#define NB_LOWER_NEST_H

#include "core/op.h"

enum { NB_MAX_NEST_AXES = 16 };

typedef enum nb_nest_kind {
    NB_NEST_LOAD,
    NB_NEST_CONST,
    NB_NEST_SCALAR, /* one instruction */
    NB_NEST_CONVERT,
    NB_NEST_REDUCE, /* of arg 0 over the inner axes */
    NB_NEST_CARRY,  /* along the one inner axis: arg 0 first, then `next` */
    NB_NEST_LAST,   /* what the carry arg 0 is in the end */
    NB_NEST_STORE,  /* arg 0 */
    NB_NEST_INDEX,  /* where the point is: what a load's index would be */
    NB_NEST_PICK,   /* a load, arg 0 elements further on; 0 where not arg 1 */
    NB_NEST_WORD,   /* random, number arg 0 of the stream `bits` of a key */
    NB_NEST_SCAN    /* of arg 0 along the one inner axis so far, this point
                       included if not `bits` */
} nb_nest_kind;

typedef struct nb_nest_value {
    nb_nest_kind kind;
    nb_dtype dtype;   /* of the value; an instruction computes in `compute` */
    nb_dtype compute; /* also what a conversion comes from */
    nb_scalar scalar;
    nb_reduce reduce;
    int arg[3];
    int next;      /* of a carry: the value that it becomes, a later one */
    unsigned axes; /* bit a: varies along axis a */
    int64_t bits;  /* of a constant, in dtype; of a word, counter 2 and 3 */
    int buffer;    /* of loads and stores, whose memory has type `stored` */
    nb_dtype stored;
    bool given; /* of a load: the element stands in place of the buffer */
    int64_t offset;
    int64_t stride[NB_MAX_NEST_AXES];
} nb_nest_value;

typedef struct nb_nest {
    int naxes;
    int64_t size[NB_MAX_NEST_AXES];
    unsigned inner; /* bit a */
    int cut;        /* an inner axis whose size is that of a piece of it, and */
    int64_t cut_size; /* its whole size; axis 0 counts the pieces.  0: none */
    int lead;         /* axes in front, whose points units do not mix, and go
                         through in order */
    int n, room;
    nb_nest_value *value;
    int nbuffers;
    /* Of a program for any sizes: its numbers by slot, -1 where one is the same
     * for all, else which of the kernel's parameters it is; or NULL. */
    int *param, nparams;
} nb_nest;

/* Slots: extents, the whole size of the cut axis, then of each value its
 * offset, its strides and, if it is a whole number, that. */
enum {
    NB_SLOT_CUT = NB_MAX_NEST_AXES,
    NB_SLOT_VALUES,
    NB_VALUE_SLOTS = NB_MAX_NEST_AXES + 2
};

static inline int nb_slot_offset(int k)
{
    return NB_SLOT_VALUES + k * NB_VALUE_SLOTS;
}

static inline int nb_slot_stride(int k, int a)
{
    return nb_slot_offset(k) + 1 + a;
}

static inline int nb_slot_bits(int k)
{
    return nb_slot_offset(k) + 1 + NB_MAX_NEST_AXES;
}

int nb_nest_slots(const nb_nest *x);
int64_t *nb_nest_number(const nb_nest *x, int slot);

static inline bool nb_nest_varies(const nb_nest *x, int slot)
{
    return x->param && x->param[slot] >= 0;
}

nb_nest_value *nb_nest_add(nb_nest *x, nb_nest_value v); /* NULL: no memory */
void nb_nest_free(nb_nest *x);
nb_nest *nb_nest_copy(const nb_nest *x);

/* Whether buffer `to` may lie where `from` does: each point reads what it then
 * writes there, and nothing else of it, and no later pass over the inner axes
 * reads it again.  Where threads share a unit, as on a card, what a whole unit
 * reads may be read by several, which do not wait for each other before one of
 * them writes. */
bool nb_nest_in_place(const nb_nest *x, int from, int to, bool shared);

/* Loads, picks, stores; the first two; those and indices: what strides tell. */
bool nb_nest_in_memory(const nb_nest_value *v);
bool nb_nest_reads(const nb_nest_value *v);
bool nb_nest_strides(const nb_nest_value *v);
bool nb_nest_is_whole(const nb_nest_value *v); /* a constant, and whole */
/* Instructions, random words, running totals. */
bool nb_nest_computes(const nb_nest_value *v);

/* How many values v uses: arg[0] and so on. */
int nb_nest_args(const nb_nest_value *v);

/* Drops axes of extent one, and merges neighbours that every access walks
 * through as one. */
void nb_nest_merge(nb_nest *x);

/* Walks axis a from its end: every access and index turned round. */
void nb_nest_mirror(nb_nest *x, int a);

/* Makes axes of `rows` points in all the lead, and splits an axis where that is
 * in the way; false, and nothing is changed, if the first axes cannot be. */
bool nb_nest_lead(nb_nest *x, int64_t rows);
/* The same, but nothing is changed: how many axes would lead, and how much of
 * the last of these, if it had to be split, would stay behind (or 1). */
bool nb_nest_can_lead(const nb_nest *x, int64_t rows, int *lead, int64_t *low);

/* Equal for nests that do the same, whatever memory and parameters they are
 * given. */
uint64_t nb_nest_hash(const nb_nest *x);

/* Whether values of nests with so many axes do the same, at the same places of
 * their buffers. */
bool nb_nest_same_value(int naxes, const nb_nest_value *v,
                        const nb_nest_value *w);

/* Its text: axes, then one line a value. */
void nb_nest_print(const nb_nest *x, nb_text *t);

/* Points of all axes; of the outer ones. */
int64_t nb_nest_points(const nb_nest *x);
int64_t nb_nest_units(const nb_nest *x);

/* The axes that a value runs along, a store with what it stores. */
unsigned nb_nest_axes(const nb_nest *x, int k);

/* Passes over the inner axes: a reduction is known when its pass is over, and
 * what needs it belongs to the next.  The pass that each value is ready for; how
 * many passes there are. */
int nb_nest_ready(const nb_nest *x, int *ready);

/* What the loops of pass q compute: what they are for, and whatever inside of
 * them is needed for that, but by way of what an earlier pass has kept (the
 * number of that pass, or -1). */
void nb_nest_needed(const nb_nest *x, int q, const int *ready,
                    const bool *inside, const int *kept, bool *need);

/* Rough cycles of one value at one point. */
int nb_nest_cost(const nb_nest_value *v);
int nb_scalar_cost(nb_scalar s);
const char *nb_scalar_name(nb_scalar s);

/* The instruction that two parts of a reduction become one by; what one of
 * nothing is, brought into the range of its dtype. */
nb_scalar nb_reduce_scalar(nb_reduce r);
double nb_reduce_neutral(nb_reduce r);

#endif
