/* turns.c - states of a loop, in two places each. */
#include "transform/turns.h"

size_t nb_shape_bytes(const nb_shape *s, nb_dtype d)
{
    int64_t n;
    nb_shape_count(s, &n);
    return (size_t)n * nb_dtype_size(d);
}

bool nb_states_begin(nb_states *s, int n, const nb_shape *shape,
                     nb_tensor *const *init)
{
    *s = (nb_states){.n = n};
    s->bytes = nb_alloc((size_t)(n + 1) * sizeof *s->bytes);
    s->place = nb_alloc_zero((size_t)(2 * n + 1) * sizeof *s->place);
    bool ok = s->bytes && s->place;
    for (int k = 0; ok && k < n; k++) {
        s->bytes[k] = nb_shape_bytes(&shape[k], (nb_dtype)init[k]->dtype);
        s->place[k] = nb_buffer_on(init[k]->device, s->bytes[k]);
        s->place[n + k] = nb_buffer_on(init[k]->device, s->bytes[k]);
        ok = s->place[k] && s->place[n + k] &&
             nb_copy_into(s->place[k]->data, &shape[k], init[k]);
    }
    return ok;
}

void nb_states_turn(nb_states *s, int from, int n)
{
    for (int k = from; k < from + n; k++) {
        nb_buffer *was = s->place[k];
        s->place[k] = s->place[s->n + k];
        s->place[s->n + k] = was;
    }
}

void nb_states_end(nb_states *s)
{
    for (int k = 0; s->place && k < 2 * s->n; k++)
        nb_buffer_drop(s->place[k]);
    nb_free(s->place), nb_free(s->bytes);
}

int64_t nb_states_bytes(int n, const nb_shape *shape, nb_tensor *const *init)
{
    int64_t bytes = 0;
    for (int k = 0; k < n; k++)
        bytes +=
            2 * (int64_t)nb_shape_bytes(&shape[k], (nb_dtype)init[k]->dtype);
    return bytes;
}
