/* axis.c - mesh axes, parts of them, and lists of those. */
#include "shard/layout/spec.h"

#include <stdio.h>

nb_axis nb_axis_full(const nb_mesh *m, int axis)
{
    return (nb_axis){(uint8_t)axis, 1, (uint16_t)m->size[axis]};
}

bool nb_axis_equal(nb_axis a, nb_axis b)
{
    return a.axis == b.axis && a.pre == b.pre && a.size == b.size;
}

bool nb_axis_overlap(nb_axis a, nb_axis b)
{
    int from = a.pre > b.pre ? a.pre : b.pre;
    int64_t end_a = (int64_t)a.pre * a.size, end_b = (int64_t)b.pre * b.size;
    return a.axis == b.axis && from < (end_a < end_b ? end_a : end_b);
}

/* The end of one must divide the beginning of the other, or the two do not
 * belong to one way of cutting the axis. */
bool nb_axis_fits(nb_axis a, nb_axis b)
{
    if (a.axis != b.axis) return true;
    if (a.pre > b.pre) return nb_axis_fits(b, a);
    return b.pre % ((int64_t)a.pre * a.size) == 0;
}

/* Whether a, on m, may be used beside b. */
static bool use_beside(const nb_mesh *m, nb_uses *u, nb_axis a, nb_axis b)
{
    const char *name = m->axis[a.axis];
    if (a.axis != b.axis) return true;
    if (nb_axis_overlap(a, b) || m->size[a.axis] == 1) {
        snprintf(u->why, sizeof u->why, "axis '%s' is used twice", name);
        return false;
    }
    if (nb_axis_fits(a, b)) return true;
    snprintf(u->why, sizeof u->why,
             "%s:(%d)%d and %s:(%d)%d are not parts of one cut of axis '%s'",
             name, a.pre, a.size, name, b.pre, b.size, name);
    return false;
}

/* A part of size one says nothing; an axis of size one may still be used but
 * once, so that what is right does not hang on its size. */
bool nb_axis_use(const nb_mesh *m, nb_uses *u, nb_axis a)
{
    if (a.axis >= m->naxes) {
        snprintf(u->why, sizeof u->why, "mesh @%s has no axis %d", m->name,
                 a.axis);
        return false;
    }
    int size = m->size[a.axis];
    if (a.pre < 1 || a.size < 1 || size % ((int64_t)a.pre * a.size) != 0) {
        snprintf(u->why, sizeof u->why,
                 "%s:(%d)%d is no part of axis '%s' of size %d",
                 m->axis[a.axis], a.pre, a.size, m->axis[a.axis], size);
        return false;
    }
    for (int i = 0; i < u->n; i++)
        if (!use_beside(m, u, a, u->at[i])) return false;
    if (a.size > 1 || size == 1) u->at[u->n++] = a;
    return true;
}

int nb_axis_coordinate(const nb_mesh *m, nb_axis a, int position)
{
    int64_t blocks = (int64_t)a.pre * a.size;
    int at = nb_mesh_coordinate(m, position, a.axis);
    if (at < 0 || !blocks || blocks > m->size[a.axis]) return -1;
    int rest = m->size[a.axis] / (int)blocks;
    return at / rest % a.size;
}

int64_t nb_cut_count(const nb_cut *l)
{
    int64_t n = 1;
    for (int i = 0; i < l->n; i++)
        n *= l->at[i].size;
    return n;
}

bool nb_cut_equal(const nb_cut *a, const nb_cut *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!nb_axis_equal(a->at[i], b->at[i])) return false;
    return true;
}

bool nb_cut_has(const nb_cut *l, nb_axis a)
{
    for (int i = 0; i < l->n; i++)
        if (nb_axis_overlap(l->at[i], a)) return true;
    return false;
}

/* How much of a and b, which stand at the same place, is the same; size 1 if
 * nothing. */
static nb_axis common(nb_axis a, nb_axis b)
{
    if (a.axis != b.axis || a.pre != b.pre) return (nb_axis){a.axis, 1, 1};
    if (b.size % a.size == 0) return a;
    if (a.size % b.size == 0) return b;
    return (nb_axis){a.axis, 1, 1};
}

nb_cut nb_cut_common(const nb_cut *a, const nb_cut *b)
{
    nb_cut l = {0};
    for (int i = 0; i < a->n && i < b->n; i++) {
        nb_axis c = common(a->at[i], b->at[i]);
        if (c.size > 1) l.at[l.n++] = c;
        if (!nb_axis_equal(c, a->at[i]) || !nb_axis_equal(c, b->at[i])) break;
    }
    return l;
}

bool nb_cut_prefix(const nb_cut *a, const nb_cut *b)
{
    nb_cut l = nb_cut_common(a, b);
    return nb_cut_equal(&l, a);
}

bool nb_cut_add(nb_cut *l, nb_axis a)
{
    nb_axis *last = l->n ? &l->at[l->n - 1] : NULL;
    if (a.size == 1) return true;
    if (last && last->axis == a.axis &&
        (int64_t)last->pre * last->size == a.pre) {
        last->size = (uint16_t)(last->size * a.size);
        return true;
    }
    if (l->n == NB_MESH_AXES) return false;
    l->at[l->n++] = a;
    return true;
}

int64_t nb_cut_index(const nb_mesh *m, const nb_cut *l, int position)
{
    int64_t i = 0;
    for (int k = 0; k < l->n; k++)
        i = i * l->at[k].size + nb_axis_coordinate(m, l->at[k], position);
    return i;
}

int nb_cut_group(const nb_mesh *m, const nb_cut *l, int position, int *member)
{
    int n = (int)nb_cut_count(l), base = position;
    for (int k = 0; k < l->n; k++) {
        nb_axis a = l->at[k];
        int step = m->size[a.axis] / (a.pre * a.size) * m->stride[a.axis];
        base -= nb_axis_coordinate(m, a, position) * step;
    }
    for (int i = 0; i < n; i++) {
        int at = base, left = i;
        for (int k = l->n - 1; k >= 0; k--) {
            nb_axis a = l->at[k];
            int step = m->size[a.axis] / (a.pre * a.size) * m->stride[a.axis];
            at += left % a.size * step;
            left /= a.size;
        }
        member[i] = at;
    }
    return n;
}
