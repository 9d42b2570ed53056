/* point.c - building the code of a point. */
#include "core/point.h"

#include "core/tensor.h"

#include <string.h>

static nb_val add(nb_point *p, nb_point_value v)
{
    if (p->n == NB_MAX_POINT) {
        p->full = true;
        return (nb_val){0};
    }
    p->value[p->n] = v;
    return (nb_val){p->n++};
}

static nb_dtype type_of(const nb_point *p, nb_val x)
{
    return p->value[x.id].dtype;
}

nb_val nb_p_number(nb_point *p, nb_dtype d, int64_t value)
{
    nb_point_value v = {.kind = NB_AT_NUMBER, .dtype = d, .number = value};
    return add(p, v);
}

nb_val nb_p_place(nb_point *p, int64_t first, const int64_t *step)
{
    nb_point_value v = {.kind = NB_AT_PLACE, .dtype = NB_I64, .number = first};
    memcpy(v.step, step, (size_t)p->rank * sizeof *step);
    return add(p, v);
}

nb_val nb_p_along(nb_point *p, int axis, int64_t first, int64_t step)
{
    int64_t steps[NB_MAX_RANK] = {0};
    steps[axis] = step;
    return nb_p_place(p, first, steps);
}

nb_val nb_p_read(nb_point *p, int input, nb_dtype d)
{
    nb_point_value v = {
        .kind = NB_AT_READ, .dtype = d, .input = input, .when = -1};
    return add(p, v);
}

nb_val nb_p_read_at(nb_point *p, int input, nb_dtype d, const nb_val *at,
                    nb_val when)
{
    nb_point_value v = {.kind = NB_AT_READ,
                        .dtype = d,
                        .input = input,
                        .elsewhere = true,
                        .when = when.id};
    for (int a = 0; a < p->call->in[input]->rank; a++)
        v.at[a] = at[a].id;
    return add(p, v);
}

nb_val nb_p_convert(nb_point *p, nb_val x, nb_dtype d)
{
    nb_point_value v = {.kind = NB_AT_CONVERT, .dtype = d, .arg = {x.id}};
    return type_of(p, x) == d ? x : add(p, v);
}

nb_val nb_p_word(nb_point *p, nb_val number, nb_val key0, nb_val key1,
                 nb_dtype d, uint32_t stream, uint32_t purpose)
{
    nb_point_value v = {
        .kind = NB_AT_WORD, .dtype = d, .arg = {number.id, key0.id, key1.id}};
    v.number = (int64_t)((uint64_t)purpose << 32 | stream);
    return add(p, v);
}

nb_val nb_p_scalar(nb_point *p, nb_scalar s, nb_val a, nb_val b, nb_val c)
{
    nb_point_value v = {.kind = NB_AT_SCALAR,
                        .dtype = type_of(p, c),
                        .scalar = s,
                        .arg = {a.id, b.id, c.id}};
    if (nb_scalar_is_test(s)) v.dtype = NB_BOOL;
    return add(p, v);
}

nb_val nb_p_two(nb_point *p, nb_scalar s, nb_val a, nb_val b)
{
    return nb_p_scalar(p, s, a, b, b);
}

nb_val nb_p_both(nb_point *p, nb_val a, nb_val b)
{
    if (a.id < 0 || b.id < 0) return a.id < 0 ? b : a;
    return nb_p_two(p, NB_S_both, a, b);
}

bool nb_point_of(const nb_call *c, const nb_tensor *y, nb_point **out)
{
    *out = NULL;
    if (!c->op->point || !c->sig) return true;
    nb_point *p = nb_alloc_zero(sizeof *p);
    if (!p) return false;
    p->call = c;
    p->rank = y->rank;
    if (c->op->point(p, c, &p->result) && !p->full)
        *out = p;
    else
        nb_free(p);
    return true;
}

uint64_t nb_point_elsewhere(const nb_point *p)
{
    uint64_t bits = 0;
    for (int k = 0; k < p->n; k++)
        if (p->value[k].kind == NB_AT_READ && p->value[k].elsewhere)
            bits |= (uint64_t)1 << p->value[k].input;
    return bits;
}
