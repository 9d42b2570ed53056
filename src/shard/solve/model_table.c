/* model_table.c - prices between options, once for ops that are alike. */
#include "shard/solve/model_parts.h"

#include <math.h>

double nb_model_price(const nb_model *m, const nb_spec *from,
                      const nb_spec *into, const int64_t *size, int item)
{
    if (nb_spec_same_layout(from, into)) return 0;
    return m->o.price(m->o.ctx, from, into, size, item);
}

/* The row or column before i that has the same spec, or i. */
static int same_before(const nb_choices *c, int t, int i)
{
    for (int j = 0; j < i; j++)
        if (nb_choices_spec(c, j, t) == nb_choices_spec(c, i, t)) return j;
    return i;
}

static bool fill(nb_model *m, nb_priced *p, int *row, int *column)
{
    const nb_choices *a = p->from, *b = p->into;
    int t = a->nin + p->k;
    for (int i = 0; i < a->n; i++)
        row[i] = same_before(a, t, i);
    for (int j = 0; j < b->n; j++)
        column[j] = same_before(b, p->j, j);
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            double *to = &p->table[i * b->n + j];
            if (row[i] < i || column[j] < j) {
                *to = p->table[row[i] * b->n + column[j]];
                continue;
            }
            *to = nb_model_price(m, nb_choices_spec(a, i, t),
                                 nb_choices_spec(b, j, p->j), a->size[t],
                                 p->item);
            if (isnan(*to)) return false;
        }
    return true;
}

static bool build(nb_model *m, nb_priced *p)
{
    size_t n = (size_t)p->from->n * (size_t)p->into->n;
    size_t ends = (size_t)p->from->n + (size_t)p->into->n;
    int *row = nb_alloc(ends * sizeof *row);
    p->table = nb_alloc(n * sizeof *p->table);
    bool ok = row && p->table && fill(m, p, row, row + p->from->n);
    nb_free(row);
    return ok;
}

const double *nb_model_prices(nb_model *m, const nb_choices *from, int k,
                              const nb_choices *into, int j, int item)
{
    nb_priced *p = m->priced;
    for (; p; p = p->next)
        if (p->from == from && p->into == into && p->k == k && p->j == j &&
            p->item == item)
            return p->table;
    p = nb_alloc(sizeof *p);
    if (!p) return NULL;
    *p = (nb_priced){m->priced, from, into, k, j, item, NULL};
    if (build(m, p)) return (m->priced = p)->table;
    nb_free(p->table);
    nb_free(p);
    return NULL;
}
