/* shape.c - arithmetic on extents and shapes, with overflow checked. */
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

bool nb_extent_mul(nb_extent *product, nb_extent a, nb_extent b)
{
    return !__builtin_mul_overflow(a.code, b.code, &product->code);
}

nb_extent nb_lane_stored(nb_lane lane)
{
    return lane.thin ? nb_extent_of(1) : lane.size;
}

/* Zero extents make the product zero whatever the others are, but the others
 * must still multiply to an int64, or strides would overflow. */
bool nb_shape_count(const nb_shape *s, int64_t *count)
{
    nb_extent n = nb_extent_of(1);
    bool empty = false, fits = true;
    for (int d = 0; d < s->nlanes + s->rank; d++) {
        nb_extent e =
            d < s->nlanes ? nb_lane_stored(s->lane[d]) : s->size[d - s->nlanes];
        if (nb_extent_is(e, 0))
            empty = true;
        else
            fits = fits && nb_extent_mul(&n, n, e);
    }
    *count = empty ? 0 : nb_extent_get(n);
    return fits;
}

bool nb_shape_check(const nb_shape *s, nb_dtype d, const char *who)
{
    int64_t n, bytes, item = d ? (int64_t)nb_dtype_size(d) : 8;
    if (!nb_shape_count(s, &n) || __builtin_mul_overflow(n, item, &bytes))
        return nb_fail(NB_EOVERFLOW,
                       "%s: shape %s has more bytes than an int64 can count",
                       who, nb_shape_text(s));
    return true;
}

int nb_shape_find_lane(const nb_shape *s, int id)
{
    for (int l = 0; l < s->nlanes; l++)
        if (s->lane[l].id == id) return l;
    return -1;
}

bool nb_shape_add_lane(nb_shape *s, nb_lane lane)
{
    int at = 0;
    if (nb_shape_find_lane(s, lane.id) >= 0) return true;
    if (s->nlanes == NB_MAX_LANES)
        return nb_fail(NB_EVALUE, "more than %d hidden axes on one tensor",
                       NB_MAX_LANES);
    while (at < s->nlanes && s->lane[at].id < lane.id)
        at++;
    memmove(s->lane + at + 1, s->lane + at,
            (size_t)(s->nlanes++ - at) * sizeof lane);
    s->lane[at] = lane;
    return true;
}

static void print_sizes(nb_text *t, const nb_shape *s, const char *gap)
{
    for (int d = 0; d < s->rank; d++)
        nb_text_add(t, "%s%lld", d ? gap : "",
                    (long long)nb_extent_get(s->size[d]));
}

void nb_shape_print(nb_text *t, const nb_shape *s)
{
    nb_text_add(t, "(");
    print_sizes(t, s, ", ");
    nb_text_add(t, s->rank == 1 ? ",)" : ")");
}

void nb_shape_list(nb_text *t, const nb_shape *s)
{
    for (int l = s->nlanes - 1; l >= 0; l--)
        nb_text_add(t, "%lld%s", (long long)nb_extent_get(s->lane[l].size),
                    l         ? ","
                    : s->rank ? " | "
                              : " |");
    print_sizes(t, s, ",");
}

const char *nb_shape_text(const nb_shape *s)
{
    static _Thread_local char text[4][256];
    static _Thread_local unsigned next;
    char *to = text[next++ % 4];
    int n = snprintf(to, 256, "(");
    for (int d = 0; d < s->rank && n < 230; d++)
        n += snprintf(to + n, (size_t)(256 - n), "%s%lld", d ? ", " : "",
                      (long long)nb_extent_get(s->size[d]));
    snprintf(to + n, (size_t)(256 - n), s->rank == 1 ? ",)" : ")");
    return to;
}
