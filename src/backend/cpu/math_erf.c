/* math_erf.c - the error function. */
#include "backend/cpu/math_parts.h"

/* erf x / x - 1, of x^2, to 0.9 and 1; relative to erf x 2^-32, 2^-63. */
static const nb_poly near_poly[2] = {
    {7,
     {0x1.06eba8p-3, -0x1.812744p-2, 0x1.ce2e54p-4, -0x1.b81524p-6,
      0x1.550a44p-8, -0x1.aca39p-11, 0x1.6510bcp-14}},
    {13,
     {0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b2p-4,
      -0x1.b82ce3128499dp-6, 0x1.565bcd0db02f5p-8, -0x1.c02db3d8ed52fp-11,
      0x1.f9a321a122eaep-14, -0x1.f4d1df39a88e3p-17, 0x1.b9def1a25d43cp-20,
      -0x1.5f1d36e57e9d3p-23, 0x1.f7a41391f2137p-27, -0x1.386ac4ca4337ap-30,
      0x1.0579b4df66246p-34}},
};

/* -log(1 - erf x) / x from 0.88 to 4 and 0.99 to 6; error of erf 2^-30,
 * 2^-60. */
static const nb_poly far_poly[2] = {
    {7,
     {0x1.20ed9ep0, 0x1.453ed8p-1, 0x1.b280ap-4, -0x1.831234p-6, 0x1.d4d35cp-9,
      -0x1.4160f8p-12, 0x1.419cdep-17}},
    {21,
     {0x1.20dd761ac82fp0,     0x1.45f2ee82cbd4dp-1,   0x1.a4f8e634eeefap-4,
      -0x1.399ba4a14b3a2p-6,  -0x1.78deb84e24729p-13, 0x1.af2e9014a987bp-10,
      -0x1.10f58cee1175bp-11, -0x1.9964ec4f7d587p-15, 0x1.0ec4074fb4346p-13,
      -0x1.3a760529818dcp-14, 0x1.e54db7c9a418cp-16,  -0x1.1d7db3f471468p-17,
      0x1.0b02033ffc01p-19,   -0x1.91efbc143dae4p-22, 0x1.e5fabf00c02c2p-25,
      -0x1.d24e6513b5e19p-28, 0x1.5b368909406c8p-31,  -0x1.82d4b7035dd1dp-35,
      0x1.2f4119bb558b8p-39,  -0x1.2a313ee5e0ea5p-44, 0x1.14794c647eab9p-50}},
};

nb_v nb_math_erf(nb_ir *ir, nb_v x)
{
    nb_v a = at_most(ir, size(ir, x), W(x) ? 6 : 4), one = k(x, 1);
    nb_v z = mul(ir, x, x);
    nb_v near = mac(ir, nb_math_poly(ir, near_poly, z), x, x);
    nb_v t = neg(ir, mul(ir, nb_math_poly(ir, far_poly, a), a));
    nb_v y = sub(ir, one, nb_math_exp_fast(ir, t));
    nb_v is_near = lt(ir, a, k(x, W(x) ? 1 : 0.9));
    return pick(ir, is_near, near, sign_of(ir, y, x));
}

/* erfc x exp(x^2) / q, of q = 1 / (1 + 0.4 x), x from 0 to 10.3; relative
 * 2^-33, for f32 only. */
static const nb_poly erfc_poly[2] = {
    {0, {0}},
    {12,
     {0x1.ce2d35299541fp-3, 0x1.ce66a43895a2dp-3, 0x1.a66cf2290d034p-3,
      0x1.74433b77946f9p-3, 0x1.235d0cdf75d32p-4, 0x1.e6ebdce0d3a51p-3,
      -0x1.8b500e135d736p-2, 0x1.4d27aed318b3ap-1, -0x1.844bcdc0284dbp-1,
      0x1.ee73b84c3e9c8p-2, -0x1.4617aa0ccff34p-3, 0x1.641337bff4c3dp-6}},
};

/* In double, where x^2 is exact; of f64 by the C library. */
nb_v nb_math_erfc(nb_ir *ir, nb_v x)
{
    if (W(x)) return nb_math_libm(ir, "erfc", 1, &x);
    nb_v wide = nb_ir_cast(ir, "fpext", x, NB_IR_F64);
    nb_v a = at_most(ir, size(ir, wide), 10.3), one = k(a, 1);
    nb_v q = quo(ir, one, mac(ir, a, k(a, 0.4), one));
    nb_v e = nb_math_exp_fast(ir, neg(ir, mul(ir, a, a)));
    nb_v y = mul(ir, mul(ir, e, q), nb_math_poly(ir, erfc_poly, q));
    y = pick(ir, lt(ir, wide, k(a, 0)), sub(ir, k(a, 2), y), y);
    return nb_ir_cast(ir, "fptrunc", y, NB_IR_F32);
}
