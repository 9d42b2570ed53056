/* block.c - which part of a tensor a device has. */
#include "shard/spec.h"

void nb_spec_box(const nb_spec *s, const int64_t *size, int position,
                 nb_box *box)
{
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *l = &s->dim[d].axes;
        int64_t n = nb_cut_count(l), i = nb_cut_index(s->mesh, l, position);
        box->start[d] = nb_block_start(size[d], n, i);
        box->size[d] = nb_block_start(size[d], n, i + 1) - box->start[d];
    }
}

/* The largest block of n is ceil(d / n). */
int64_t nb_spec_elements(const nb_spec *s, const int64_t *size)
{
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++) {
        int64_t n = nb_cut_count(&s->dim[d].axes);
        count *= size[d] / n + (size[d] % n != 0);
    }
    return count;
}
