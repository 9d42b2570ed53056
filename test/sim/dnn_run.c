/* dnn_run.c - what the operations of a simulated plan compute: in order, in
 * double, each number rounded to the type of its tensor.
 *
 * A tensor is an array that its steps lead into, so that one reshaped is the
 * same array. */
#include "dnn.h"

#include "nabla/kernel.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_array {
    double *x;
    int64_t n;
} sim_array;

typedef struct sim_scene {
    const sim_dnn_run *run;
    sim_array array[SIM_DNN_MOST];
} sim_scene;

static size_t bytes_of(int type)
{
    return type == SIM_DATA_DOUBLE || type == SIM_DATA_INT64    ? 8
           : type == SIM_DATA_HALF || type == SIM_DATA_BFLOAT16 ? 2
           : type == SIM_DATA_BOOLEAN                           ? 1
                                                                : 4;
}

static double rounded(int type, double x)
{
    if (type == SIM_DATA_HALF) return nb_load_f16(nb_store_f16((float)x));
    if (type == SIM_DATA_BFLOAT16) return nb_load_bf16(nb_store_bf16((float)x));
    return type == SIM_DATA_FLOAT ? (float)x : x;
}

static double read(const char *at, int type)
{
    uint16_t half;
    float f;
    double d;
    memcpy(&half, at, 2);
    if (type == SIM_DATA_HALF) return nb_load_f16(half);
    if (type == SIM_DATA_BFLOAT16) return nb_load_bf16(half);
    if (type == SIM_DATA_DOUBLE) return memcpy(&d, at, 8), d;
    return memcpy(&f, at, 4), f;
}

static void write(char *at, int type, double x)
{
    float f = (float)x;
    uint16_t half = type == SIM_DATA_HALF ? nb_store_f16(f) : nb_store_bf16(f);
    if (type == SIM_DATA_DOUBLE)
        memcpy(at, &x, 8);
    else if (type == SIM_DATA_FLOAT)
        memcpy(at, &f, 4);
    else
        memcpy(at, &half, 2);
}

/* Tensors */

static const sim_dnn_tensor *tensor(const sim_scene *s, int i)
{
    return &s->run->program->tensor[i];
}

/* The next point of a shape, from the last dim on. */
static bool step_on(const sim_dnn_tensor *t, int64_t *point)
{
    int d = t->rank - 1;
    while (d >= 0 && ++point[d] == t->size[d])
        point[d--] = 0;
    return d >= 0;
}

/* Where a point is; along a dim of size 1 all are the same. */
static int64_t spot(const sim_dnn_tensor *t, const int64_t *point)
{
    int64_t at = 0;
    for (int d = 0; d < t->rank; d++)
        at += t->size[d] == 1 ? 0 : point[d] * t->step[d];
    return at;
}

static double get(const sim_scene *s, int i, const int64_t *point)
{
    return s->array[i].x[spot(tensor(s, i), point)];
}

static void put(sim_scene *s, int i, const int64_t *point, double x)
{
    s->array[i].x[spot(tensor(s, i), point)] = rounded(tensor(s, i)->type, x);
}

static bool load(sim_scene *s, int i)
{
    const sim_dnn_tensor *t = tensor(s, i);
    const char *data = s->run->at[i];
    int64_t point[8] = {0};
    s->array[i].n = 1;
    for (int d = 0; d < t->rank; d++)
        s->array[i].n += (t->size[d] - 1) * t->step[d];
    s->array[i].x = calloc((size_t)s->array[i].n, sizeof *s->array[i].x);
    if (!s->array[i].x) return false;
    if (t->fixed) s->array[i].x[0] = s->run->value[i];
    if (t->fixed || t->between) return true;
    sim_reach((uint64_t)(uintptr_t)data,
              (size_t)s->array[i].n * bytes_of(t->type));
    do {
        int64_t at = spot(t, point);
        s->array[i].x[at] =
            read(data + at * (int64_t)bytes_of(t->type), t->type);
    } while (step_on(t, point));
    return true;
}

static void store(sim_scene *s, int i)
{
    const sim_dnn_tensor *t = tensor(s, i);
    int64_t point[8] = {0};
    if (t->between) return;
    do {
        int64_t at = spot(t, point);
        write(s->run->at[i] + at * (int64_t)bytes_of(t->type), t->type,
              s->array[i].x[at]);
    } while (step_on(t, point));
}

/* Operations */

static int64_t number(const sim_dnn_op *op, int name)
{
    for (int i = 0; i < op->n; i++) {
        const sim_field *f = &op->field[i];
        bool wide =
            f->type == SIM_TYPE_INT64 || f->type == SIM_TYPE_BACKEND_DESCRIPTOR;
        if (f->name == name) return wide ? *(int64_t *)f->at : *(int *)f->at;
    }
    return -1;
}

static double point_of(int mode, double x, double b, double t)
{
    switch (mode) {
    case SIM_POINTWISE_ADD: return x + b;
    case SIM_POINTWISE_SUB: return x - b;
    case SIM_POINTWISE_MUL: return x * b;
    case SIM_POINTWISE_DIV: return x / b;
    case SIM_POINTWISE_MAX: return x > b ? x : b;
    case SIM_POINTWISE_MIN: return x < b ? x : b;
    case SIM_POINTWISE_EXP: return exp(x);
    case SIM_POINTWISE_LOG: return log(x);
    case SIM_POINTWISE_RELU_FWD: return x > 0 ? x : 0;
    case SIM_POINTWISE_CMP_GE: return x >= b;
    case SIM_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: return x;
    }
}

static int pointwise(sim_scene *s, const sim_dnn_op *op)
{
    int mode = (int)number(op, SIM_ATTR_POINTWISE_MODE);
    int x = (int)number(op, SIM_ATTR_OPERATION_POINTWISE_XDESC);
    int b = (int)number(op, SIM_ATTR_OPERATION_POINTWISE_BDESC);
    int t = (int)number(op, SIM_ATTR_OPERATION_POINTWISE_TDESC);
    int y = (int)number(op, SIM_ATTR_OPERATION_POINTWISE_YDESC);
    int64_t axis = number(op, SIM_ATTR_POINTWISE_AXIS), point[8] = {0};
    do {
        double to =
            mode == SIM_POINTWISE_GEN_INDEX
                ? (double)point[axis]
                : point_of(mode, get(s, x, point), b < 0 ? 0 : get(s, b, point),
                           t < 0 ? 0 : get(s, t, point));
        put(s, y, point, to);
    } while (step_on(tensor(s, y), point));
    return y;
}

static int matmul(sim_scene *s, const sim_dnn_op *op)
{
    int a = (int)number(op, SIM_ATTR_OPERATION_MATMUL_ADESC);
    int b = (int)number(op, SIM_ATTR_OPERATION_MATMUL_BDESC);
    int c = (int)number(op, SIM_ATTR_OPERATION_MATMUL_CDESC);
    int rank = tensor(s, c)->rank;
    int64_t point[8] = {0}, k = tensor(s, a)->size[rank - 1];
    do {
        int64_t left[8], right[8];
        double sum = 0;
        memcpy(left, point, sizeof left);
        memcpy(right, point, sizeof right);
        for (int64_t i = 0; i < k; i++) {
            left[rank - 1] = right[rank - 2] = i;
            sum += get(s, a, left) * get(s, b, right);
        }
        put(s, c, point, sum);
    } while (step_on(tensor(s, c), point));
    return c;
}

static int reduction(sim_scene *s, const sim_dnn_op *op)
{
    int x = (int)number(op, SIM_ATTR_OPERATION_REDUCTION_XDESC);
    int y = (int)number(op, SIM_ATTR_OPERATION_REDUCTION_YDESC);
    bool most =
        number(op, SIM_ATTR_REDUCTION_OPERATOR) == SIM_REDUCE_TENSOR_MAX;
    sim_array *to = &s->array[y];
    int64_t point[8] = {0};
    for (int64_t i = 0; i < to->n; i++)
        to->x[i] = most ? -INFINITY : 0;
    do {
        double *sum = &to->x[spot(tensor(s, y), point)];
        double new = get(s, x, point);
        *sum = most ? (new > *sum ? new : *sum) : *sum + new;
    } while (step_on(tensor(s, x), point));
    return y;
}

static int reshape(sim_scene *s, const sim_dnn_op *op)
{
    int x = (int)number(op, SIM_ATTR_OPERATION_RESHAPE_XDESC);
    int y = (int)number(op, SIM_ATTR_OPERATION_RESHAPE_YDESC);
    int type = tensor(s, y)->type;
    for (int64_t i = 0; i < s->array[y].n && i < s->array[x].n; i++)
        s->array[y].x[i] = rounded(type, s->array[x].x[i]);
    return y;
}

/* All points of y and, with its channel out, of w. */
static int convolution(sim_scene *s, const sim_dnn_op *op)
{
    sim_conv c;
    const sim_dnn_program *p = s->run->program;
    int64_t y[8] = {0}, x[8] = {0};
    if (!sim_conv_of(&c, p, op)) return -1;
    sim_array *to = &s->array[c.result];
    memset(to->x, 0, (size_t)to->n * sizeof *to->x);
    do {
        sim_dnn_tensor taps = p->tensor[c.w];
        int64_t w[8] = {0};
        taps.size[0] = 1;
        do {
            int64_t at[8];
            memcpy(at, w, sizeof at);
            at[0] = y[1];
            if (!sim_conv_at(&c, p, y, at, x)) continue;
            double a = get(s, c.x, x), b = get(s, c.w, at), g = get(s, c.y, y);
            to->x[spot(tensor(s, c.result), c.result == c.x   ? x
                                            : c.result == c.w ? at
                                                              : y)] +=
                c.result == c.x   ? b * g
                : c.result == c.w ? a * g
                                  : a * b;
        } while (step_on(&taps, w));
    } while (step_on(tensor(s, c.y), y));
    return c.result;
}

/* Each gives the tensor that it has written. */
static const struct {
    int kind;
    int (*run)(sim_scene *s, const sim_dnn_op *op);
} operations[] = {
    {SIM_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, pointwise},
    {SIM_BACKEND_OPERATION_MATMUL_DESCRIPTOR, matmul},
    {SIM_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, reduction},
    {SIM_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, reshape},
    {SIM_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, convolution},
    {SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, convolution},
    {SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, convolution},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

bool sim_dnn_knows(int kind)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (operations[i].kind == kind) return true;
    return false;
}

bool sim_dnn_fits(const sim_dnn_program *p, int op)
{
    sim_conv c;
    return !sim_conv_of(&c, p, &p->op[op]) || sim_conv_fits(&c, p);
}

static void run_all(sim_scene *s)
{
    const sim_dnn_program *p = s->run->program;
    for (int i = 0; i < p->nops; i++)
        for (int k = 0; k < OPERATIONS; k++)
            if (operations[k].kind == p->op[i].kind)
                store(s, operations[k].run(s, &p->op[i]));
}

void sim_dnn_go(void *run)
{
    sim_scene s = {.run = run};
    bool ok = true;
    sim_reach((uint64_t)(uintptr_t)s.run->space, s.run->space_bytes);
    memset(s.run->space, 0xee, s.run->space_bytes);
    for (int i = 0; i < s.run->program->ntensors; i++)
        ok = ok && load(&s, i);
    if (ok) run_all(&s);
    for (int i = 0; i < SIM_DNN_MOST; i++)
        free(s.array[i].x);
}
