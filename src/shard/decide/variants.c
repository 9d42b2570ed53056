/* variants.c - layouts in which values are there. */
#include "shard/decide/variants.h"

#include "base/memory.h"
#include "shard/decide/factors.h"

bool nb_variants_init(nb_variants *v, int lines)
{
    v->n = lines;
    v->of = nb_alloc_zero(((size_t)lines + 1) * sizeof *v->of);
    return v->of;
}

void nb_variants_free(nb_variants *v)
{
    for (int k = 0; v->of && k < v->n; k++)
        for (nb_variant *i = v->of[k], *next; i; i = next) {
            next = i->next;
            nb_free(i);
        }
    nb_free(v->of);
    *v = (nb_variants){0};
}

bool nb_variants_add(nb_variants *v, int line, const nb_spec *spec,
                     nb_tensor *x)
{
    nb_variant *i = nb_alloc(sizeof *i), **at = &v->of[line];
    if (!i) return false;
    *i = (nb_variant){NULL, spec, x};
    while (*at)
        at = &(*at)->next;
    *at = i;
    return true;
}

const nb_variant *nb_variants_find(const nb_variants *v, int line,
                                   const nb_spec *spec)
{
    const nb_variant *i = v->of[line];
    while (i && !nb_spec_same_layout(i->spec, spec))
        i = i->next;
    return i;
}

static bool is_nearer(const nb_reshard_plan *a, const nb_reshard_plan *b)
{
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->n < b->n;
}

const nb_reshard_plan *nb_variants_plan(const nb_variants *v, int line,
                                        const nb_tensor *node,
                                        const nb_spec *into,
                                        const nb_variant **from)
{
    int64_t size[NB_MAX_DIMS];
    int item = (int)nb_dtype_size((nb_dtype)node->dtype);
    const nb_reshard_plan *best = NULL;
    nb_stored_sizes(node, size);
    for (const nb_variant *i = v->of[line]; i; i = i->next) {
        const nb_reshard_plan *p =
            nb_reshard_find(i->spec, into, size, item, NULL);
        if (!p) return NULL;
        if (best && !is_nearer(p, best)) continue;
        best = p;
        *from = i;
    }
    return best;
}
