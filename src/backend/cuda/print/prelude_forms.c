/* prelude_forms.c - functions that forms of kernels call, beside those of their
 * values: quotients by what is the same all over a unit, exponentials below one,
 * pairs of halves, vectors that reach over the ends of rows. */
#include "backend/cuda/print/prelude.h"

/* Many quotients by one divisor: with its reciprocal r, q = x r is corrected
 * once by the remainder x - q y, which rounds it as a division does (Markstein).
 * Where the remainder is no number q is right: infinite or zero.  A divisor too
 * small to have a reciprocal is scaled. */
static const char divisors[] =
    "struct divisor { f32 y, r, scale; };\n"
    "FN divisor divide_by(f32 y)\n"
    "{\n"
    "    divisor d;\n"
    "    d.scale = fabsf(y) < 1.17549435e-38f ? 16777216.0f : 1.0f;\n"
    "    d.y = y * d.scale;\n"
    "    d.r = 1.0f / d.y;\n"
    "    return d;\n"
    "}\n"
    "FN f32 divided(f32 x, divisor d)\n"
    "{\n"
    "    f32 q = x * d.r, rest = fmaf(-q, d.y, x);\n"
    "    return (rest == rest ? fmaf(rest, d.r, q) : q) * d.scale;\n"
    "}\n";

/* e^x for x not above 0: 2^t with t = x / ln 2, rounded away from 0 by a
 * constant that is too large, times what t lacks, 1 + (x - t ln 2), which is not
 * below 1.  Where that is no number, because x is infinite or e^x is, 2^t is
 * right, and what is above 0 without being too large is right to some digits
 * less. */
static const char low_exp[] =
    "FN f32 exp_low(f32 x)\n"
    "{\n"
    "    f32 y, t = x * 1.4426951f;\n"
    "    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(t));\n"
    "    return fmaxf(y, fmaf(y, fmaf(t, -0.693147181f, x), y));\n"
    "}\n";

/* Halves of a vector, two by one instruction. */
static const char packing[] =
    "FN u32 pack_f16(f32 x, f32 y)\n"
    "{\n"
    "    u32 z;\n"
    "    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(z) : \"f\"(y), "
    "\"f\"(x));\n"
    "    return z;\n"
    "}\n"
    "FN u32 pack_bf16(f32 x, f32 y)\n"
    "{\n"
    "    u32 z;\n"
    "    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(z) : \"f\"(y), "
    "\"f\"(x));\n"
    "    return z;\n"
    "}\n";

/* Vectors that reach over the ends of their row. */
static const char reaching[] =
    "template <class V, class T>\n"
    "FN V take(const T *p, I at, I end, bool whole, T fill)\n"
    "{\n"
    "    V x;\n"
    "    if (whole) return *(const V *)p;\n"
    "#pragma unroll\n"
    "    for (int l = 0; l < sizeof(V) / sizeof(T); l++)\n"
    "        x.x[l] = at + l >= 0 && at + l < end ? p[l] : fill;\n"
    "    return x;\n"
    "}\n"
    "template <class V, class T>\n"
    "FN void give(T *p, I at, I end, bool whole, const V &x)\n"
    "{\n"
    "    if (whole) {\n"
    "        *(V *)p = x;\n"
    "        return;\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int l = 0; l < sizeof(V) / sizeof(T); l++)\n"
    "        if (at + l >= 0 && at + l < end) p[l] = x.x[l];\n"
    "}\n";

/* Hides from the compiler what is in registers, so that it does not keep what
 * it was converted to instead. */
static const char hiding[] = "template <class V> FN void hide(V &x)\n"
                             "{\n"
                             "    u32 *word = (u32 *)&x;\n"
                             "#pragma unroll\n"
                             "    for (int i = 0; i < sizeof x / 4; i++)\n"
                             "        asm volatile(\"\" : \"+r\"(word[i]));\n"
                             "}\n";

/* The larger or the smaller ones of all pairs in a vector. */
static void pairs(nb_text *t, const nb_cuda_walk *w)
{
    for (int k = 0; k < w->nest->n; k++) {
        const nb_nest_value *v = &w->nest->value[k];
        if (!nb_cuda_is_paired(w, k)) continue;
        nb_text_add(t,
                    "template <class V> FN void pairs_%d(u32 &y, const V &x)\n"
                    "{\n"
                    "    const u32 *word = (const u32 *)&x;\n"
                    "#pragma unroll\n"
                    "    for (int i = 0; i < sizeof x / 4; i++)\n"
                    "        asm(\"%s.NaN.%sx2 %%0, %%0, %%1;\" : \"+r\"(y) : "
                    "\"r\"(word[i]));\n"
                    "}\n",
                    k, v->reduce == NB_MAX ? "max" : "min",
                    nb_cuda_type(w->nest->value[v->arg[0]].stored));
    }
}

/* What kernels of these need. */
typedef struct needs {
    bool wide, divides, hides, low, ragged, packs;
} needs;

static void find_needs(const nb_cuda_walk *w, needs *all)
{
    all->wide |= w->wide;
    all->ragged |= w->ragged;
    for (int k = 0; k < w->nest->n; k++) {
        all->divides |= nb_cuda_is_divisor(w, k);
        all->hides |= w->raw[k];
        all->low |= nb_cuda_is_below_one(w, k);
        all->packs |= nb_cuda_is_packed(w, k);
    }
}

void nb_cuda_prelude_forms(nb_text *t, int n, const nb_cuda_walk *const *w)
{
    needs all = {0};
    for (int i = 0; i < n; i++)
        find_needs(w[i], &all);
    nb_text_add(t, "typedef %s I;\n", all.wide ? "long long" : "int");
    if (all.divides) nb_text_add(t, "%s", divisors);
    if (all.hides) nb_text_add(t, "%s", hiding);
    if (all.low) nb_text_add(t, "%s", low_exp);
    if (all.packs) nb_text_add(t, "%s", packing);
    if (all.ragged) nb_text_add(t, "%s", reaching);
    for (int i = 0; i < n; i++)
        pairs(t, w[i]);
}
