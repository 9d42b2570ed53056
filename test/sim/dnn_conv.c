/* dnn_conv.c - convolutions of simulated cuDNN, and their gradients: what they
 * are told, whether it goes together, and which numbers meet. */
#include "dnn.h"

#include <stdlib.h>

static const struct {
    int kind, x, w, y;
    int result; /* 0: x, 1: w, 2: y */
} kinds[] = {
    {SIM_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     SIM_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     SIM_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     SIM_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 2},
    {SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 0},
    {SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     SIM_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 1},
};

static const int64_t *list(const sim_dnn_op *op, int name)
{
    static const int64_t none[8];
    for (int i = 0; i < op->n; i++)
        if (op->field[i].name == name) return op->field[i].at;
    return none;
}

bool sim_conv_of(sim_conv *c, const sim_dnn_program *p, const sim_dnn_op *op)
{
    for (int k = 0; k < 3; k++) {
        if (kinds[k].kind != op->kind) continue;
        c->x = (int)*list(op, kinds[k].x);
        c->w = (int)*list(op, kinds[k].w);
        c->y = (int)*list(op, kinds[k].y);
        c->result = (int[]){c->x, c->w, c->y}[kinds[k].result];
        c->lines = p->tensor[c->x].rank - 2;
        c->stride = list(op, SIM_ATTR_CONVOLUTION_FILTER_STRIDES);
        c->dilation = list(op, SIM_ATTR_CONVOLUTION_DILATIONS);
        c->before = list(op, SIM_ATTR_CONVOLUTION_PRE_PADDINGS);
        c->after = list(op, SIM_ATTR_CONVOLUTION_POST_PADDINGS);
        return true;
    }
    return false;
}

/* Packed with channels inside: of other ways to lie the library takes some and
 * gets others wrong, filters above all. */
static bool is_packed(const sim_dnn_tensor *t)
{
    int64_t step = t->size[1];
    bool ok = t->size[1] == 1 || t->step[1] == 1;
    for (int k = t->rank - 1; k > 0; k--) {
        int d = k == 1 ? 0 : k;
        ok = ok && (t->size[d] == 1 || t->step[d] == step);
        step *= t->size[d];
    }
    return ok;
}

bool sim_conv_fits(const sim_conv *c, const sim_dnn_program *p)
{
    const sim_dnn_tensor *x = &p->tensor[c->x], *w = &p->tensor[c->w];
    const sim_dnn_tensor *y = &p->tensor[c->y];
    bool fits = c->lines >= 2 && c->lines <= 3 && w->rank == x->rank &&
                y->rank == x->rank && x->size[0] == y->size[0] &&
                w->size[0] == y->size[1] && x->size[1] % w->size[1] == 0 &&
                is_packed(x) && is_packed(w) && is_packed(y);
    for (int d = 0; fits && d < c->lines; d++) {
        int64_t room = x->size[2 + d] + c->before[d] + c->after[d] -
                       (w->size[2 + d] - 1) * c->dilation[d] - 1;
        fits = c->stride[d] > 0 && c->dilation[d] > 0 && c->before[d] >= 0 &&
               c->after[d] >= 0 && room >= 0 &&
               room / c->stride[d] + 1 == y->size[2 + d];
    }
    return fits;
}

bool sim_conv_at(const sim_conv *c, const sim_dnn_program *p, const int64_t *y,
                 const int64_t *w, int64_t *x)
{
    const sim_dnn_tensor *of_x = &p->tensor[c->x], *of_w = &p->tensor[c->w];
    int64_t groups = of_x->size[1] / of_w->size[1];
    int64_t group = y[1] / (of_w->size[0] / groups);
    x[0] = y[0];
    x[1] = group * of_w->size[1] + w[1];
    for (int d = 0; d < c->lines; d++) {
        x[2 + d] =
            y[2 + d] * c->stride[d] + w[2 + d] * c->dilation[d] - c->before[d];
        if (x[2 + d] < 0 || x[2 + d] >= of_x->size[2 + d]) return false;
    }
    return true;
}
