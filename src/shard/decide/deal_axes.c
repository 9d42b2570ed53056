/* deal_axes.c - the axes of a dim, dealt out to the factors it is made of. */
#include "shard/decide/factors.h"

static int gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return (int)a;
}

void nb_factors_deal(const int64_t *size, const nb_dim *dim, const nb_cut *axes,
                     nb_cut *cand)
{
    int i = 0;
    bool own = dim->n == 1; /* alone: any split will do */
    int64_t rest = dim->n ? size[dim->factor[0]] : 1;
    for (int k = 0; k < axes->n && dim->n; k++) {
        nb_axis a = axes->at[k];
        while (a.size > 1 && !own) {
            while (rest == 1 && i + 1 < dim->n)
                rest = size[dim->factor[++i]];
            int g = gcd(rest, a.size);
            if (i + 1 == dim->n) break;
            if (g == 1) return;
            nb_cut_add(&cand[dim->factor[i]],
                       (nb_axis){a.axis, a.pre, (uint16_t)g});
            a.pre = (uint16_t)(a.pre * g);
            a.size = (uint16_t)(a.size / g);
            rest /= g;
        }
        nb_cut_add(&cand[dim->factor[i]], a);
    }
}
