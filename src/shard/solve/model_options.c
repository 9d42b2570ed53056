/* model_options.c - the options of an op: what each mesh axis may do in it.
 *
 * An axis does nothing, splits a factor, or is that of a pending sum which the
 * op hands on.  Axes that split the same factor do so in the order of the mesh.
 * A factor has no more blocks than elements; one that is not the last of a
 * group is split evenly, and those after it only if it is split to single
 * elements, else blocks would not be contiguous. */
#include "shard/solve/model_parts.h"

#include <string.h>

enum { NONE = -1, CARRY = NB_MAX_AXES, MAX_OPTIONS = 1 << 14 };

void nb_choices_free(nb_choices *c)
{
    if (!c) return;
    for (int t = 0; c->size && t < c->nin + c->nout; t++)
        nb_free(c->size[t]);
    nb_free(c->key);
    nb_free(c->rank);
    nb_free(c->size);
    nb_free(c->spec);
    nb_free(c->share);
    nb_free(c);
}

/* One assignment while it is tried. */
typedef struct trial {
    const nb_mesh *mesh;
    const nb_factors *f;
    const nb_model_op *op;
    int may[NB_MAX_AXES + 64], nmay; /* what an axis may do */
    int does[NB_MESH_AXES];
    int64_t blocks[NB_MAX_AXES];
} trial;

static bool may_split(const nb_factors *f, int k)
{
    bool used = false;
    if (f->size[k] < 2 || (f->kind[k] != NB_PASS && f->kind[k] != NB_MASK))
        return false;
    for (int t = 0; t < f->nin + f->nout; t++) {
        bool has = nb_factored_has(&f->tensor[t], k);
        used |= has;
        if (!has && t >= f->nin && !f->reduced[k]) return false;
    }
    return used;
}

static void list_deeds(trial *t)
{
    const nb_model_op *op = t->op;
    t->may[t->nmay++] = NONE;
    for (int k = 0; k < t->f->n; k++)
        if (may_split(t->f, k)) t->may[t->nmay++] = k;
    if (op->carry == NB_CARRY_ALL && op->carriers) t->may[t->nmay++] = CARRY;
    for (int i = 0; i < t->f->nin && i < 64; i++)
        if (op->carry == NB_CARRY_ONE && op->carriers >> i & 1)
            t->may[t->nmay++] = CARRY + 1 + i;
}

static bool blocks_fit(const trial *t, const nb_dim *dim)
{
    bool whole_before = true; /* all before are split to single elements */
    for (int i = 0; i < dim->n; i++) {
        int k = dim->factor[i];
        if (t->blocks[k] > t->f->size[k]) return false;
        if (t->blocks[k] > 1 && !whole_before) return false;
        if (i + 1 < dim->n && t->f->size[k] % t->blocks[k]) return false;
        whole_before &= t->blocks[k] == t->f->size[k];
    }
    return true;
}

/* Counts blocks; false if the assignment is none. */
static bool count_blocks(trial *t)
{
    const nb_factors *f = t->f;
    int kind = -1;
    for (int k = 0; k < f->n; k++)
        t->blocks[k] = 1;
    for (int a = 0; a < t->mesh->naxes; a++) {
        int k = t->does[a], adds = k >= CARRY ? NB_SUM : -1;
        if (k >= 0 && k < CARRY) {
            t->blocks[k] *= t->mesh->size[a];
            if (f->reduced[k]) adds = f->reduce[k];
        }
        if (adds < 0 || t->mesh->size[a] == 1) continue;
        if (kind >= 0 && kind != adds) return false;
        kind = adds;
    }
    for (int i = 0; i < f->nin + f->nout; i++)
        for (int d = 0; d < f->tensor[i].rank; d++)
            if (!blocks_fit(t, &f->tensor[i].dim[d])) return false;
    return true;
}

static void split_dim(const trial *t, const nb_dim *dim, nb_dim_spec *to)
{
    for (int i = 0; i < dim->n; i++)
        for (int a = 0; a < t->mesh->naxes; a++)
            if (t->does[a] == dim->factor[i])
                to->axes.at[to->axes.n++] = nb_axis_full(t->mesh, a);
}

/* Whether axis a is pending in tensor i. */
static bool is_pending(const trial *t, int i, int a)
{
    const nb_factors *f = t->f;
    int does = t->does[a];
    bool result = i >= f->nin;
    if (does < 0) return false;
    if (does < CARRY) return result && f->reduced[does];
    if (result) return true;
    if (does == CARRY) return t->op->carriers >> i & 1;
    return does == CARRY + 1 + i;
}

static const nb_spec *spec_of(const trial *t, int i)
{
    const nb_factored *x = &t->f->tensor[i];
    nb_spec draft = {.mesh = t->mesh, .rank = x->rank};
    for (int d = 0; d < x->rank; d++)
        if (x->size[d] > 1) split_dim(t, &x->dim[d], &draft.dim[d]);
    for (int a = 0; a < t->mesh->naxes; a++) {
        if (!is_pending(t, i, a)) continue;
        draft.partial.at[draft.partial.n++] = nb_axis_full(t->mesh, a);
        int k = t->does[a];
        if (k < CARRY) draft.kind = (nb_reduce)t->f->reduce[k];
    }
    return nb_spec_intern(&draft);
}

/* Devices among which the work is divided. */
static int64_t used(const trial *t)
{
    int64_t n = 1;
    for (int k = 0; k < t->f->n; k++)
        n *= t->blocks[k];
    return n;
}

static double share(const trial *t)
{
    double s = 1;
    for (int k = 0; k < t->f->n; k++) {
        int64_t n = t->blocks[k], d = t->f->size[k];
        if (n > 1) s *= (double)((d + n - 1) / n) / (double)d;
    }
    return s;
}

static bool add_option(nb_choices *c, const trial *t)
{
    int n = c->nin + c->nout, room = c->room;
    if (c->n == MAX_OPTIONS)
        return nb_fail(NB_EVALUE, "auto_shard: more than %d layouts of one op",
                       MAX_OPTIONS);
    if (!nb_grow(&c->spec, &room, c->n + 1, (size_t)n * sizeof *c->spec) ||
        !nb_grow(&c->share, &c->room, c->n + 1, sizeof *c->share))
        return false;
    for (int i = 0; i < n; i++)
        if (!(c->spec[c->n * n + i] = spec_of(t, i))) return false;
    c->share[c->n++] = share(t);
    return true;
}

/* The next assignment, the last axis fastest. */
static bool advance(const trial *t, int *digit)
{
    for (int a = t->mesh->naxes - 1; a >= 0; a--) {
        if (t->mesh->size[a] > 1 && ++digit[a] < t->nmay) return true;
        digit[a] = 0;
    }
    return false;
}

/* All assignments; of an op that must spread, those that use the most. */
static bool enumerate(nb_choices *c, trial *t)
{
    int64_t most = 0;
    for (int pass = t->op->spread ? 0 : 1; pass < 2; pass++) {
        int digit[NB_MESH_AXES] = {0};
        do {
            for (int a = 0; a < t->mesh->naxes; a++)
                t->does[a] = t->may[digit[a]];
            if (!count_blocks(t)) continue;
            if (!pass && used(t) > most) most = used(t);
            if (pass && used(t) >= most && !add_option(c, t)) return false;
        } while (advance(t, digit));
    }
    return true;
}

static bool set_sizes(nb_choices *c, int t, int rank, const int64_t *size)
{
    c->rank[t] = rank;
    c->size[t] = nb_alloc((size_t)(rank + 1) * sizeof **c->size);
    if (!c->size[t]) return false;
    memcpy(c->size[t], size, (size_t)rank * sizeof *size);
    return true;
}

static nb_choices *choices_new(int nin, int nout)
{
    nb_choices *c = nb_alloc_zero(sizeof *c);
    if (!c) return NULL;
    size_t n = (size_t)(nin + nout);
    c->nin = nin, c->nout = nout;
    c->rank = nb_alloc_zero((n + 1) * sizeof *c->rank);
    c->size = nb_alloc_zero((n + 1) * sizeof *c->size);
    if (c->rank && c->size) return c;
    return nb_choices_free(c), NULL;
}

/* Whether closed dims are as was said, and no axis splits what it may not. */
static bool is_as_said(const nb_spec *is, const nb_spec *said)
{
    for (int d = 0; d < is->rank; d++) {
        const nb_cut *axes = &is->dim[d].axes;
        if (!said->dim[d].open && !nb_cut_equal(axes, &said->dim[d].axes))
            return false;
        for (int i = 0; i < axes->n; i++)
            if (nb_cut_has(&said->replicated, axes->at[i])) return false;
    }
    return !is->partial.n;
}

/* Only such options; or, if the op has none, the one that was said. */
static bool keep_said(nb_choices *c, const nb_spec *said)
{
    int kept = 0;
    nb_spec draft;
    for (int i = 0; i < c->n; i++) {
        if (!is_as_said(nb_choices_spec(c, i, 1), said)) continue;
        memmove(&c->spec[2 * kept], &c->spec[2 * i], 2 * sizeof *c->spec);
        c->share[kept++] = c->share[i];
    }
    c->n = kept ? kept : 1;
    if (kept) return true;
    memset(&draft, 0, sizeof draft);
    draft.mesh = said->mesh;
    draft.rank = said->rank;
    for (int d = 0; d < said->rank; d++)
        draft.dim[d].axes = said->dim[d].axes;
    return (c->spec[0] = c->spec[1] = nb_spec_intern(&draft)) != NULL;
}

nb_choices *nb_choices_of_op(const nb_mesh *mesh, const nb_model_op *op)
{
    const nb_factors *f = op->factors;
    nb_choices *c = choices_new(f->nin, f->nout);
    trial t = {.mesh = mesh, .f = f, .op = op};
    bool ok = c != NULL;
    for (int i = 0; i < f->nin + f->nout && ok; i++)
        ok = set_sizes(c, i, f->tensor[i].rank, f->tensor[i].size);
    list_deeds(&t);
    if (ok && enumerate(c, &t) && (!op->said || keep_said(c, op->said)))
        return c;
    return nb_choices_free(c), NULL;
}

/* An input is an op without operands whose dims are factors of their own. */
nb_choices *nb_choices_of_input(const nb_mesh *mesh, const nb_model_tensor *x)
{
    nb_factors f = {.n = x->rank, .nout = 1};
    f.tensor = f.few;
    f.few[0].rank = x->rank;
    for (int d = 0; d < x->rank; d++) {
        f.size[d] = f.few[0].size[d] = x->size[d];
        f.few[0].dim[d] = (nb_dim){.n = 1, .factor = {(int16_t)d}};
    }
    nb_model_op op = {.factors = &f};
    nb_choices *c = nb_choices_of_op(mesh, &op);
    if (!c || !x->spec) return c;
    c->n = 1;
    c->spec[0] = x->spec;
    return c;
}

int64_t nb_choices_bytes(const nb_choices *c, int i, int t, int item)
{
    return nb_spec_elements(nb_choices_spec(c, i, t), c->size[t]) * item;
}
