/* debug.c - watching ops, and the effects of a recording. */
#include "core/debug.h"

#include "core/convert.h"
#include "core/lanes.h"

#include <math.h>
#include <stdio.h>

_Thread_local unsigned nb_debug_flags;
static _Thread_local nb_effects *innermost;

unsigned nb_debug_set(unsigned what)
{
    unsigned was = nb_debug_flags;
    nb_debug_flags = what & (NB_DEBUG_NANS | NB_DEBUG_BOUNDS);
    return was;
}

unsigned nb_debug_get(void)
{
    return nb_debug_flags;
}

/* Under the graph lock: puts the inputs of x that have no data yet, and were
 * not met, on the stack.  True: one of them is a stand-in, or memory is out. */
static bool visit(const nb_tensor *x, uint32_t mark, nb_tensor ***stack,
                  int *depth, int *room)
{
    for (int i = 0; i < x->nin; i++) {
        nb_tensor *in = nb_tensor_in(x)[i];
        if (nb_tensor_done(in) || in->mark == mark) continue;
        in->mark = mark;
        if (!in->op || !nb_grow(stack, room, *depth + 1, sizeof **stack))
            return true;
        (*stack)[(*depth)++] = in;
    }
    return false;
}

bool nb_is_waiting(nb_tensor *x)
{
    nb_tensor **stack = NULL;
    int depth = 0, room = 0;
    if (nb_tensor_done(x)) return false;
    if (!x->op) return true;
    nb_graph_lock();
    uint32_t mark = nb_graph_mark();
    bool waits = visit(x, mark, &stack, &depth, &room);
    while (!waits && depth)
        waits = visit(stack[--depth], mark, &stack, &depth, &room);
    nb_graph_unlock();
    nb_free(stack);
    return waits;
}

/* Effects of what is being recorded are for later. */
static bool is_pending(const nb_tensor *x)
{
    const nb_op *op = x->op == &nb_op_part ? nb_tensor_in(x)[0]->op : x->op;
    return innermost && op && op->effect;
}

bool nb_debug_settle(nb_tensor *x)
{
    return !x || is_pending(x) || nb_is_waiting(x) || nb_realize_now(1, &x);
}

bool nb_has_nan(const nb_tensor *x)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], at[NB_MAX_DIMS] = {0};
    int64_t rows = 1, item = (int64_t)nb_dtype_size(d);
    if (!nb_dtype_is_float(d) || x->flags & NB_MULTI) return false;
    int n = nb_tensor_strides(x, size, stride);
    int64_t row = n ? size[n - 1] : 1, step = n ? stride[n - 1] : 1;
    for (int k = 0; k < n - 1; k++)
        rows *= size[k];
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = 0;
        for (int k = 0; k < n - 1; k++)
            from += at[k] * stride[k];
        for (int64_t i = 0; i < row; i++)
            if (isnan(nb_read_f64(x->data + (from + i * step) * item, d)))
                return true;
        for (int k = n - 2; k >= 0 && ++at[k] == size[k]; k--)
            at[k] = 0;
    }
    return false;
}

const char *nb_debug_place(const nb_tensor *x)
{
    static _Thread_local char text[640];
    const char *source = x ? nb_source_text(x->source, x->line) : "";
    const char *pass = !x                       ? ""
                       : x->flags & NB_BACKWARD ? ", in the backward pass"
                       : x->flags & NB_TANGENT  ? ", in a forward derivative"
                                                : ", in the forward pass";
    snprintf(text, sizeof text, "%s%s%s", *source ? " at " : "", source, pass);
    return text;
}

/* Effects */

void nb_effects_open(nb_effects *e)
{
    *e = (nb_effects){.around = innermost};
    innermost = e;
}

static void forget(nb_effects *e)
{
    while (e->n)
        nb_drop(e->pending[--e->n]);
}

void nb_effects_close(nb_effects *e)
{
    forget(e);
    nb_free(e->pending);
    innermost = e->around;
}

const nb_effects *nb_effects_pending(void)
{
    return innermost;
}

bool nb_effects_are(nb_tensor *y)
{
    nb_effects *e = innermost;
    if (!e) return true;
    forget(e);
    if (!nb_grow(&e->pending, &e->room, 1, sizeof *e->pending)) return false;
    e->pending[e->n++] = nb_keep(y);
    return true;
}

nb_tensor *nb_effects_tie(nb_tensor *x)
{
    for (int i = 0; x && innermost && i < innermost->n; i++)
        x = nb_record(&nb_op_after, 2,
                      (nb_tensor *[]){x, innermost->pending[i]}, 0, NULL);
    return x;
}
