/* print.c - tensors as text, and the figures of the process. */
#include "core/format.h"
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "run/realize.h"

#include <string.h>

static bool type_text(nb_text *t, const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    nb_text_add(t, "%s[", nb_dtype_brief((nb_dtype)x->dtype));
    nb_shape_list(t, &s);
    return nb_text_add(t, "]");
}

/* Hidden axes are stored outermost first and shown innermost first. */
static void turn(int n, int64_t *v)
{
    for (int d = 0; d < n / 2; d++) {
        int64_t swap = v[d];
        v[d] = v[n - 1 - d];
        v[n - 1 - d] = swap;
    }
}

/* Several rows stand on their own lines between "Tensor(" and ")". */
char *nb_tensor_text(nb_tensor *x)
{
    nb_text t = {0};
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    if (!x || !nb_realize_now(1, &x)) return NULL;
    int n = nb_tensor_strides(x, size, stride);
    for (int l = 0; l < x->nlanes; l++) {
        size[l] = nb_extent_get(nb_tensor_lane(x)[l].size);
        if (nb_tensor_lane(x)[l].thin) stride[l] = 0;
    }
    turn(x->nlanes, size);
    turn(x->nlanes, stride);
    bool rows = false;
    for (int d = 0; d < n - 1; d++)
        rows = rows || size[d] > 1;
    nb_text_add(&t, rows ? "Tensor(\n  " : "Tensor(");
    bool ok = nb_format(&t, (nb_dtype)x->dtype, n, size, stride, x->data,
                        rows ? "  " : "");
    nb_text_add(&t, " : ");
    ok = ok && type_text(&t, x);
    nb_text_add(&t, rows ? "\n)" : ")");
    if (ok && !t.failed) return t.data;
    nb_text_free(&t);
    return NULL;
}

nb_stats nb_stats_get(void)
{
    return (nb_stats){.nodes_live = nb_nodes_live(),
                      .steps_run = nb_steps_run(),
                      .allocations_live = nb_memory_live(),
                      .bytes_allocated = nb_memory_bytes(),
                      .bytes_in_use = nb_block_bytes()};
}
