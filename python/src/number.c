/* number.c - operators of Tensor.
 *
 * An operator is its op; an operand that is not a tensor is converted, and what
 * cannot be converted is left to the other side. */
#include "py.h"

static PyObject *unconverted(void)
{
    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        nb_error_clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    return NULL;
}

static PyObject *binary(PyObject *a, PyObject *b,
                        nb_tensor *f(nb_tensor *, nb_tensor *))
{
    PyObject *r;
    ENTER;
    nb_tensor *x = nb_py_operand_beside(a, b);
    nb_tensor *y = x ? nb_py_operand_beside(b, a) : NULL;
    if (x && y) {
        nb_py_locate();
        r = nb_py_wrap(f(x, y));
    } else
        r = unconverted();
    LEAVE;
    return r;
}

static PyObject *unary(PyObject *a, nb_tensor *f(nb_tensor *))
{
    ENTER;
    nb_py_locate();
    PyObject *r = nb_py_wrap(f(nb_py_get(a)));
    LEAVE;
    return r;
}

/* The update of a parameter: the object takes the new value, lazily, and stays
 * a leaf that requires grad; the update itself is not recorded. */
static PyObject *in_place(PyObject *a, PyObject *b,
                          nb_tensor *f(nb_tensor *, nb_tensor *))
{
    nb_py_tensor *self = (nb_py_tensor *)a;
    if (!self->requires_grad || !nb_py_is_leaf(self)) Py_RETURN_NOTIMPLEMENTED;
    PyObject *r = NULL;
    ENTER;
    nb_tensor *y = nb_py_operand_beside(b, a);
    if (y) {
        nb_py_locate();
        y = nb_detach(f(nb_detach(self->x), nb_detach(y)));
        r = y ? a : nb_py_raise();
    } else
        r = unconverted();
    if (r == a) {
        Py_INCREF(a);
        nb_py_replace(self, y);
        self->cut = true;
    }
    LEAVE;
    return r;
}

#define BINARY(slot, op)                               \
    static PyObject *slot(PyObject *a, PyObject *b)    \
    {                                                  \
        return binary(a, b, nb_##op);                  \
    }                                                  \
    static PyObject *i##slot(PyObject *a, PyObject *b) \
    {                                                  \
        return in_place(a, b, nb_##op);                \
    }
#define UNARY(slot, op)                \
    static PyObject *slot(PyObject *a) \
    {                                  \
        return unary(a, nb_##op);      \
    }

BINARY(add, add)
BINARY(sub, sub)
BINARY(mul, mul)
BINARY(div, div)
BINARY(floordiv, floor_divide)
BINARY(mod, mod)
BINARY(matmul, matmul)
BINARY(and, bitwise_and)
BINARY(or, bitwise_or)
BINARY(xor, bitwise_xor)
BINARY(lshift, bitwise_left_shift)
BINARY(rshift, bitwise_right_shift)
UNARY(negative, neg)
UNARY(absolute, abs)
UNARY(invert, bitwise_invert)

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return binary(a, b, nb_pow);
}

static PyObject *ipower(PyObject *a, PyObject *b, PyObject *modulus)
{
    (void)modulus;
    return in_place(a, b, nb_pow);
}

static PyObject *positive(PyObject *a)
{
    Py_INCREF(a);
    return a;
}

static PyObject *compare(PyObject *a, PyObject *b, int how)
{
    switch (how) {
    case Py_EQ: return binary(a, b, nb_equal);
    case Py_NE: return binary(a, b, nb_not_equal);
    case Py_LT: return binary(a, b, nb_less);
    case Py_LE: return binary(a, b, nb_less_equal);
    case Py_GT: return binary(a, b, nb_greater);
    default: return binary(a, b, nb_greater_equal);
    }
}

/* Numbers out of tensors of one element. */

static PyObject *item(PyObject *a)
{
    return PyObject_CallMethod(a, "item", NULL);
}

static int truth(PyObject *a)
{
    PyObject *v = item(a);
    int yes = v ? PyObject_IsTrue(v) : -1;
    Py_XDECREF(v);
    return yes;
}

static PyObject *as_float(PyObject *a)
{
    PyObject *v = item(a), *f = v ? PyNumber_Float(v) : NULL;
    Py_XDECREF(v);
    return f;
}

static PyObject *as_int(PyObject *a)
{
    PyObject *v = item(a), *i = v ? PyNumber_Long(v) : NULL;
    Py_XDECREF(v);
    return i;
}

static PyObject *as_index(PyObject *a)
{
    nb_tensor *x = nb_py_get(a);
    if (nb_rank(x) != 0 || !nb_dtype_is_integer(nb_dtype_of(x)))
        return PyErr_Format(PyExc_TypeError,
                            "only 0-d integer tensors can be used as an index");
    return as_int(a);
}

PyType_Slot nb_py_number_slots[] = {{Py_nb_add, add},
                                    {Py_nb_subtract, sub},
                                    {Py_nb_multiply, mul},
                                    {Py_nb_true_divide, div},
                                    {Py_nb_floor_divide, floordiv},
                                    {Py_nb_remainder, mod},
                                    {Py_nb_matrix_multiply, matmul},
                                    {Py_nb_and, and},
                                    {Py_nb_or, or },
                                    {Py_nb_xor, xor},
                                    {Py_nb_lshift, lshift},
                                    {Py_nb_rshift, rshift},
                                    {Py_nb_power, power},
                                    {Py_nb_inplace_add, iadd},
                                    {Py_nb_inplace_subtract, isub},
                                    {Py_nb_inplace_multiply, imul},
                                    {Py_nb_inplace_true_divide, idiv},
                                    {Py_nb_inplace_floor_divide, ifloordiv},
                                    {Py_nb_inplace_remainder, imod},
                                    {Py_nb_inplace_matrix_multiply, imatmul},
                                    {Py_nb_inplace_and, iand},
                                    {Py_nb_inplace_or, ior},
                                    {Py_nb_inplace_xor, ixor},
                                    {Py_nb_inplace_lshift, ilshift},
                                    {Py_nb_inplace_rshift, irshift},
                                    {Py_nb_inplace_power, ipower},
                                    {Py_nb_negative, negative},
                                    {Py_nb_positive, positive},
                                    {Py_nb_absolute, absolute},
                                    {Py_nb_invert, invert},
                                    {Py_nb_bool, truth},
                                    {Py_nb_float, as_float},
                                    {Py_nb_int, as_int},
                                    {Py_nb_index, as_index},
                                    {Py_tp_richcompare, compare},
                                    {0, NULL}};
