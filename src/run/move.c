/* move.c - devices exchange blocks.
 *
 * Moves without communication need no token: they may happen at any time. */
#include "run/move.h"

#include "comm/comm.h"
#include "nabla/view.h"
#include "run/card.h"
#include "transform/region.h"

static const nb_dtype token_dtype = NB_U8;

static const nb_reshard_plan *plan_of(const nb_call *c)
{
    return (const nb_reshard_plan *)(intptr_t)c->attr[0];
}

static bool move_result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int rank;
    const int64_t *size = nb_arg_list(c, 2, &rank);
    *out = (nb_shape){.rank = k ? 1 : rank};
    *dtype = k ? token_dtype : (nb_dtype)c->in[0]->dtype;
    if (k) out->size[0] = nb_extent_of(0);
    for (int d = 0; !k && d < rank; d++)
        out->size[d] = nb_extent_of(size[d]);
    return true;
}

static bool move_execute(const nb_call *c, char *const *to)
{
    nb_device *me = nb_device_now();
    const nb_reshard_plan *p = plan_of(c);
    nb_shape s = nb_tensor_shape(c->in[0]);
    nb_tensor *x = nb_settled(c->in[0], &s);
    if (!me) return nb_fail(NB_ERUNTIME, "move: runs on devices alone");
    if (x && !nb_tensor_is_packed(x)) x = nb_tensor_on(x, x->device);
    if (!x) return false;
    if (c->out) me->source = nb_source_text(c->out->source, c->out->line);
    return nb_hop_run(me, &p->step[c->attr[1]], (nb_dtype)x->dtype, p->size,
                      x->data, to[0]);
}

nb_op nb_op_move = {
    .name = "move",
    .doc = "A device's block, exchanged for another.",
    .params = "x, token, plan:int, step:int, size:ints",
    .kind = NB_CONSTANT,
    .nout = 2,
    .anywhere = true,
    .result = move_result,
    .execute = move_execute,
};

nb_tensor *nb_token_new(void)
{
    return nb_zeros(1, (int64_t[]){0}, token_dtype);
}

nb_tensor *nb_move(nb_tensor *x, const nb_reshard_plan *plan, int k,
                   const nb_box *to, nb_tensor **token)
{
    nb_tensor *y[2], *in[] = {x, *token};
    nb_results r = {.room = 2, .out = y};
    int rank = plan->step[k].into->rank;
    int64_t attr[3 + NB_MAX_DIMS] = {(intptr_t)plan, k, rank};
    for (int d = 0; d < rank; d++)
        attr[3 + d] = to->size[d];
    if (!x || !nb_op_ready(&nb_op_move) ||
        !nb_record_many(&nb_op_move, 2, in, 3 + rank, attr, &r))
        return NULL;
    *token = y[1];
    return y[0];
}
