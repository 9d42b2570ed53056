/* math_parts.c - what all families of functions are made of. */
#include "backend/cpu/math_parts.h"

#include "backend/cpu/cpu.h"

#include <stdio.h>

/* Horner: the fewest operations; other vectors fill the waiting. */
nb_v nb_math_poly(nb_ir *ir, const nb_poly *two, nb_v x)
{
    const nb_poly *p = &two[W(x)];
    nb_v y = k(x, p->c[p->n - 1]);
    for (int i = p->n - 2; i >= 0; i--)
        y = mac(ir, y, x, k(x, p->c[i]));
    return y;
}

/* Beside 1.5 2^23 (f64: 2^52) the last bit weighs one. */
nb_whole nb_math_whole(nb_ir *ir, nb_v x, double times)
{
    double beside = W(x) ? 0x1.8p52 : 0x1.8p23;
    int64_t pattern = W(x) ? 0x4338000000000000 : 0x4b400000;
    nb_v t = mac(ir, x, k(x, times), k(x, beside));
    return (nb_whole){sub(ir, t, k(x, beside)),
                      iopk(ir, "sub", bits(ir, t), pattern)};
}

nb_v nb_math_two(nb_ir *ir, nb_v n)
{
    bool wide = n.type == NB_IR_I64;
    n = iopk(ir, "add", n, wide ? 1023 : 127);
    return unbits(ir, iopk(ir, "shl", n, wide ? 52 : 23));
}

/* Two factors, so that results may be subnormal or infinite; only the second
 * rounds. */
nb_v nb_math_scale(nb_ir *ir, nb_v x, nb_whole n)
{
    int bytes = x.lanes * nb_irt_bytes((nb_irt)x.type);
    if (nb_cpu_target()->masks && bytes == 64)
        return nb_ir_scalef(ir, x, n.real);
    nb_v half = iopk(ir, "ashr", n.integer, 1);
    nb_v rest = iop(ir, "sub", n.integer, half);
    x = mul(ir, x, nb_math_two(ir, half));
    return mul(ir, x, nb_math_two(ir, rest));
}

nb_v nb_math_libm(nb_ir *ir, const char *name, int n, const nb_v *x)
{
    char full[32];
    snprintf(full, sizeof full, "%s%s", name, W(x[0]) ? "" : "f");
    return nb_ir_libm(ir, full, n, x);
}

nb_v nb_math_rare(nb_ir *ir, nb_v rare, nb_v y, const char *name, int n,
                  const nb_v *x)
{
    nb_ir_if f;
    nb_ir_when(ir, &f, nb_ir_any(ir, rare));
    nb_v slow = pick(ir, rare, nb_math_libm(ir, name, n, x), y);
    return nb_ir_fi_value(ir, &f, slow, y);
}
