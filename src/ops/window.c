/* window.c - where a point of the whole lies in a window of it: what embed,
 * update and concatenate do at a point. */
#include "ops/view.h"

/* One axis of a window: n places from start on, step apart, among `whole`. */
typedef struct range {
    int64_t start, n, step, whole;
} range;

/* Whether the point is between the first place and the last. */
static nb_val between(nb_point *p, int axis, const range *r)
{
    int64_t end = r->start + (r->n - 1) * r->step;
    int64_t low = r->step > 0 ? r->start : end;
    int64_t high = r->step > 0 ? end : r->start;
    nb_val i = nb_p_along(p, axis, 0, 1), is = NB_NO_VAL;
    if (low > 0) is = nb_p_two(p, NB_S_le, nb_p_number(p, NB_I64, low), i);
    if (high < r->whole - 1)
        is = nb_p_both(p, is,
                       nb_p_two(p, NB_S_le, i, nb_p_number(p, NB_I64, high)));
    return is;
}

static nb_val axis_at(nb_point *p, int axis, const range *r, nb_val *at)
{
    nb_val is = between(p, axis, r);
    bool back = r->step < 0;
    int64_t by = back ? -r->step : r->step;
    *at = nb_p_along(p, axis, back ? r->start : -r->start, back ? -1 : 1);
    if (by == 1) return is;
    nb_val gap = nb_p_number(p, NB_I64, by), zero = nb_p_number(p, NB_I64, 0);
    nb_val rest = nb_p_two(p, NB_S_mod, *at, gap);
    *at = nb_p_two(p, NB_S_quot, *at, gap);
    return nb_p_both(p, is, nb_p_two(p, NB_S_eq, rest, zero));
}

nb_val nb_window_at(nb_point *p, int i, const int64_t *start,
                    const int64_t *size, const int64_t *step, nb_val *at)
{
    nb_val is = NB_NO_VAL;
    for (int d = 0; d < p->rank; d++) {
        range r = {start[d], nb_size(p->call->in[i], d), step[d], size[d]};
        is = nb_p_both(p, is, axis_at(p, d, &r, &at[d]));
    }
    return is;
}
