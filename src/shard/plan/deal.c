/* deal.c - cutting two specs into atoms, and back to specs. */
#include "shard/plan/deal.h"

#include <string.h>

/* Ends of the pieces of one mesh axis: 1 < ... < size, each divides the next. */
typedef struct cuts {
    int n, at[2 * NB_ATOMS + 2];
} cuts;

static bool cut_at(cuts *c, int end)
{
    int i = 0;
    while (i < c->n && c->at[i] < end)
        i++;
    if (i < c->n && c->at[i] == end) return true;
    if (c->n == (int)(sizeof c->at / sizeof c->at[0])) return false;
    memmove(c->at + i + 1, c->at + i, (size_t)(c->n - i) * sizeof c->at[0]);
    c->at[i] = end;
    c->n++;
    return true;
}

static bool cut_list(cuts *c, const nb_cut *l)
{
    for (int i = 0; i < l->n; i++) {
        nb_axis a = l->at[i];
        cuts *x = c + a.axis;
        if (!cut_at(x, a.pre) || !cut_at(x, a.pre * a.size)) return false;
    }
    return true;
}

static bool cut_spec(cuts *c, const nb_spec *s)
{
    for (int d = 0; d < s->rank; d++)
        if (!cut_list(c, &s->dim[d].axes)) return false;
    return cut_list(c, &s->partial);
}

static bool uses(const nb_spec *s, nb_axis a)
{
    for (int d = 0; d < s->rank; d++)
        if (nb_cut_has(&s->dim[d].axes, a)) return true;
    return nb_cut_has(&s->partial, a);
}

/* All pieces that matter, those of the two specs or all there are. */
static bool find_atoms(nb_reshard_task *t)
{
    const nb_mesh *m = t->from->mesh;
    cuts c[NB_MESH_AXES] = {{0}};
    for (int k = 0; k < m->naxes; k++)
        if (!cut_at(c + k, 1) || !cut_at(c + k, m->size[k])) return false;
    if (!cut_spec(c, t->from) || !cut_spec(c, t->into)) return false;
    for (int k = 0; k < m->naxes; k++)
        for (int i = 0; i + 1 < c[k].n; i++) {
            if (c[k].at[i + 1] % c[k].at[i]) return false;
            nb_axis a = {(uint8_t)k, (uint16_t)c[k].at[i],
                         (uint16_t)(c[k].at[i + 1] / c[k].at[i])};
            if (!t->options.idle_axes && !uses(t->from, a) && !uses(t->into, a))
                continue;
            if (t->natoms == NB_ATOMS) return false;
            t->atom[t->natoms++] = a;
        }
    return true;
}

/* The atoms of a list, in its order. */
static int atoms_of(const nb_reshard_task *t, const nb_cut *l, uint8_t *atom)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < t->natoms; k++)
            if (nb_axis_overlap(l->at[i], t->atom[k])) atom[n++] = (uint8_t)k;
    return n;
}

/* Dims that are split in one of the specs; if none is and other axes may help,
 * the largest, for them to work on. */
static bool find_dims(nb_reshard_task *t)
{
    int largest = -1;
    for (int d = 0; d < t->from->rank; d++) {
        if (largest < 0 || t->size[d] > t->size[largest]) largest = d;
        if (!t->from->dim[d].axes.n && !t->into->dim[d].axes.n) continue;
        if (t->ndims == NB_PLAN_DIMS) return false;
        t->dim[t->ndims++] = d;
    }
    if (!t->ndims && t->options.idle_axes && largest >= 0)
        t->dim[t->ndims++] = largest;
    return true;
}

static void place_dim(nb_reshard_task *t, int d)
{
    uint8_t a[NB_ATOMS], b[NB_ATOMS];
    int na = atoms_of(t, &t->from->dim[t->dim[d]].axes, a);
    int nb = atoms_of(t, &t->into->dim[t->dim[d]].axes, b), same = 0;
    while (same < na && same < nb && a[same] == b[same])
        nb_cut_add(&t->fixed[d], t->atom[a[same++]]);
    nb_deal_add(&t->start, d, a + same, na - same);
    nb_deal_add(&t->goal, d, b + same, nb - same);
    for (int i = 0; i < nb; i++)
        t->home[b[i]] = (int8_t)d;
}

static uint16_t bits_of(const nb_reshard_task *t, const nb_cut *l)
{
    uint8_t a[NB_ATOMS];
    uint16_t bits = 0;
    for (int i = 0, n = atoms_of(t, l, a); i < n; i++)
        bits |= (uint16_t)(1 << a[i]);
    return bits;
}

static void place_pending(nb_reshard_task *t)
{
    uint16_t before = bits_of(t, &t->from->partial);
    uint16_t after = bits_of(t, &t->into->partial);
    uint16_t same = t->from->kind == t->into->kind ? before & after : 0;
    for (int k = 0; k < t->natoms; k++)
        if (same >> k & 1) nb_cut_add(&t->kept, t->atom[k]);
    t->start.pending = before & (uint16_t)~same;
    t->goal.pending = after & (uint16_t)~same;
    t->goal.turned = t->goal.pending != 0;
}

/* Atoms that never move are left out of those that can; the layouts name the
 * others by their new numbers. */
static void drop_fixed(nb_reshard_task *t)
{
    uint8_t number[NB_ATOMS];
    int n = 0;
    for (int k = 0; k < t->natoms; k++) {
        bool stays = nb_cut_has(&t->kept, t->atom[k]);
        for (int d = 0; d < t->ndims; d++)
            stays |= nb_cut_has(&t->fixed[d], t->atom[k]);
        number[k] = (uint8_t)n;
        if (stays) continue;
        t->home[n] = t->home[k];
        t->atom[n++] = t->atom[k];
    }
    nb_deal *both[2] = {&t->start, &t->goal};
    for (int i = 0; i < 2; i++) {
        nb_deal *l = both[i];
        uint16_t pending = 0;
        for (int k = 0; k < nb_deal_first(l, t->ndims); k++)
            l->at[k] = number[l->at[k]];
        for (int k = 0; k < t->natoms; k++)
            if (l->pending >> k & 1) pending |= (uint16_t)(1 << number[k]);
        l->pending = pending;
    }
    t->natoms = n;
}

/* A thousandth of what a byte costs where it costs least. */
static double op_price(const nb_mesh *m)
{
    double least = 0;
    for (int k = 0; k < m->naxes; k++)
        if (m->byte[k] > 0 && (least == 0 || m->byte[k] < least))
            least = m->byte[k];
    return (least > 0 ? least : 1) / 1024;
}

void nb_reshard_open(nb_reshard_task *t)
{
    memset(t->home, -1, sizeof t->home);
    t->op = op_price(t->from->mesh);
    t->fits = t->from->mesh == t->into->mesh && find_atoms(t) && find_dims(t);
    if (!t->fits) return;
    for (int d = 0; d < t->ndims; d++)
        place_dim(t, d);
    place_pending(t);
    drop_fixed(t);
}

bool nb_reshard_all_axes(const nb_reshard_task *t, nb_cut *axes)
{
    axes->n = 0;
    for (int k = 0; k < t->natoms; k++)
        if (!nb_cut_add(axes, t->atom[k])) return false;
    return t->fits;
}

bool nb_deal_spec(const nb_reshard_task *t, const nb_deal *l, nb_spec *draft)
{
    const uint8_t *at = l->at;
    draft->mesh = t->from->mesh;
    draft->rank = t->from->rank;
    draft->replicated.n = 0;
    draft->partial = t->kept;
    draft->kind =
        l->turned || !t->from->partial.n ? t->into->kind : t->from->kind;
    for (int d = 0; d < draft->rank; d++) {
        draft->dim[d].axes.n = 0;
        draft->dim[d].open = false;
        draft->dim[d].priority = 0;
    }
    for (int d = 0; d < t->ndims; d++) {
        nb_cut *axes = &draft->dim[t->dim[d]].axes;
        *axes = t->fixed[d];
        for (int i = 0; i < l->n[d]; i++)
            if (!nb_cut_add(axes, t->atom[*at++])) return false;
    }
    for (int k = 0; k < t->natoms; k++)
        if (l->pending >> k & 1 && !nb_cut_add(&draft->partial, t->atom[k]))
            return false;
    return true;
}

int nb_deal_first(const nb_deal *l, int d)
{
    int first = 0;
    while (d > 0)
        first += l->n[--d];
    return first;
}

uint16_t nb_deal_used(const nb_deal *l)
{
    uint16_t used = l->pending;
    int n = nb_deal_first(l, NB_PLAN_DIMS);
    for (int i = 0; i < n; i++)
        used |= (uint16_t)(1 << l->at[i]);
    return used;
}

/* What is behind the atoms in use is kept zero: layouts compare as bytes. */
void nb_deal_cut(nb_deal *l, int d, int k)
{
    int end = nb_deal_first(l, d + 1), all = nb_deal_first(l, NB_PLAN_DIMS);
    memmove(l->at + end - k, l->at + end, (size_t)(all - end));
    memset(l->at + all - k, 0, (size_t)k);
    l->n[d] = (uint8_t)(l->n[d] - k);
}

void nb_deal_add(nb_deal *l, int d, const uint8_t *atom, int k)
{
    int end = nb_deal_first(l, d + 1), all = nb_deal_first(l, NB_PLAN_DIMS);
    memmove(l->at + end + k, l->at + end, (size_t)(all - end));
    memcpy(l->at + end, atom, (size_t)k);
    l->n[d] = (uint8_t)(l->n[d] + k);
}
