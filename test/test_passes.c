/* test_passes.c - passes over graphs: what goes in and what comes out.
 *
 * First texts, before and after one pass.  Then laws on every op of the
 * catalogue, alone and under transforms: no pass changes a result or the type
 * of a line, none adds calls but the one that puts programs in the place of
 * calls and the one that computes again, and a second time changes nothing.
 *
 * "test_passes names" prints what the passes are called. */
#include "support/there.h"
#include "support/words.h"

#include "base/memory.h"
#include "lower/passes.h"
#include "lower/plan.h"
#include "lower/rewrite.h"
#include "nabla/compile.h"
#include "transform/region.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Texts */

typedef struct golden {
    const char *pass, *sentence, *inputs, *before, *after;
} golden;

static const golden goldens[] = {
    {"canonicalise", "a detached value is the value", "f32[2]",
     "%v1: f32[2] = detach(%a1)\n"
     "%v2: f32[2] = sin(%v1)\n"
     "return (%v2, %v1)",
     "%v1: f32[2] = sin(%a1)\n"
     "return (%v1, %a1)"},
    {"canonicalise", "a cast to the dtype that is there is no cast", "f32[2]",
     "%v1: f32[2] = cast(%a1, dtype=@float32)\n"
     "%v2: f64[2] = cast(%v1, dtype=@float64)\n"
     "return %v2",
     "%v1: f64[2] = cast(%a1, dtype=@float64)\n"
     "return %v1"},
    {"canonicalise", "the last shape of several counts", "f32[2,3]",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[3,2] = reshape(%v1, shape=(3, 2))\n"
     "return %v2",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[3,2] = reshape(%a1, shape=(3, 2))\n"
     "return %v2"},
    {"canonicalise", "shapes there and back are no shapes", "f32[2,3]",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[2,3] = reshape(%v1, shape=(2, 3))\n"
     "%v3: f32[2,3] = neg(%v2)\n"
     "return %v3",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[2,3] = neg(%a1)\n"
     "return %v2"},
    {"canonicalise",
     "what is transposed twice is itself, what is turned is not", "f32[2,2,2]",
     "%v1: f32[2,2,2] = permute(%a1, order=(2, 0, 1))\n"
     "%v2: f32[2,2,2] = permute(%v1, order=(1, 2, 0))\n"
     "%v3: f32[2,2,2] = permute(%v1, order=(2, 0, 1))\n"
     "return (%v2, %v3)",
     "%v1: f32[2,2,2] = permute(%a1, order=(2, 0, 1))\n"
     "%v2: f32[2,2,2] = permute(%v1, order=(2, 0, 1))\n"
     "return (%a1, %v2)"},
    {"canonicalise", "a lane hidden and shown again", "f32[2,3]",
     "%v1: f32[2 | 3] = hide(%a1, axis=0, id=1, size=2)\n"
     "%v2: f32[2,3] = show(%v1, axis=0, id=1, size=2)\n"
     "%v3: f32[3,2] = show(%v1, axis=1, id=1, size=2)\n"
     "return (%v2, %v3)",
     "%v1: f32[2 | 3] = hide(%a1, axis=0, id=1, size=2)\n"
     "%v2: f32[3,2] = show(%v1, axis=1, id=1, size=2)\n"
     "return (%a1, %v2)"},
    {"canonicalise", "a slice of all is all, and from elsewhere is not",
     "f32[3], f32[1]",
     "%v1: f32[3] = slice(%a1, size=(3,), start=(0,), step=(1,))\n"
     "%v2: f32[3] = slice(%a1, size=(3,), start=(2,), step=(-1,))\n"
     "return (%v1, %v2)",
     "%v1: f32[3] = slice(%a1, size=(3,), start=(2,), step=(-1,))\n"
     "return (%a1, %v1)"},
    {"canonicalise", "again is not gone, nor looked behind", "f32[2,3]",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[6] = again(%v1)\n"
     "%v3: f32[2,3] = reshape(%v2, shape=(2, 3))\n"
     "return (%v2, %v3)",
     "%v1: f32[6] = reshape(%a1, shape=(6,))\n"
     "%v2: f32[6] = again(%v1)\n"
     "%v3: f32[2,3] = reshape(%v2, shape=(2, 3))\n"
     "return (%v2, %v3)"},
    {"fold", "numbers are computed, through calls of them", "f32[2]",
     "%v1: f32[] = add(1.0:f32, 2.0:f32)\n"
     "%v2: f32[] = mul(%v1, 4.0:f32)\n"
     "%v3: f32[2] = add(%a1, %v2)\n"
     "return %v3",
     "%v1: f32[] = add(1.0:f32, 2.0:f32)\n"
     "%v2: f32[2] = add(%a1, 12.0:f32)\n"
     "return %v2"},
    {"fold", "a number repeated stays that", "f32[2]",
     "%v1: f32[] = neg(1.0:f32)\n"
     "%v2: f32[2] = broadcast_to(%v1, shape=(2,))\n"
     "%v3: f32[2] = add(%a1, %v2)\n"
     "return %v3",
     "%v1: f32[2] = broadcast_to(-1.0:f32, shape=(2,))\n"
     "%v2: f32[2] = add(%a1, %v1)\n"
     "return %v2"},
    {"fold", "a small known tensor is one, a large one a call", "f32[]",
     "%v1: f32[3] = broadcast_to(2.0:f32, shape=(3,))\n"
     "%v2: f32[3] = exp(%v1)\n"
     "%v3: f32[5000] = broadcast_to(2.0:f32, shape=(5000,))\n"
     "%v4: f32[5000] = exp(%v3)\n"
     "return (%v2, %v4)",
     "%v1: f32[3] = broadcast_to(2.0:f32, shape=(3,))\n"
     "%v2: f32[5000] = broadcast_to(2.0:f32, shape=(5000,))\n"
     "%v3: f32[5000] = exp(%v2)\n"
     "return (?, %v3)"},
    {"simplify", "x + 0 is not x for floats, where x may be -0; x + -0 is",
     "f32[2], i32[2]",
     "%v1: f32[2] = add(%a1, 0.0:f32)\n"
     "%v2: f32[2] = add(%v1, -0.0:f32)\n"
     "%v3: f32[2] = sub(%v2, 0.0:f32)\n"
     "%v4: f32[2] = sub(%v3, -0.0:f32)\n"
     "%v5: i32[2] = add(%a2, 0:i32)\n"
     "return (%v4, %v5)",
     "%v1: f32[2] = add(%a1, 0.0:f32)\n"
     "%v2: f32[2] = sub(%v1, -0.0:f32)\n"
     "return (%v2, %a2)"},
    {"simplify", "x * 1, 1 * x, x / 1, x ** 1; but not 1 / x, 1 ** x", "f32[2]",
     "%v1: f32[2] = mul(%a1, 1.0:f32)\n"
     "%v2: f32[2] = mul(1.0:f32, %v1)\n"
     "%v3: f32[2] = div(%v2, 1.0:f32)\n"
     "%v4: f32[2] = pow(%v3, 1.0:f32)\n"
     "%v5: f32[2] = div(1.0:f32, %v4)\n"
     "%v6: f32[2] = pow(1.0:f32, %v5)\n"
     "return %v6",
     "%v1: f32[2] = div(1.0:f32, %a1)\n"
     "%v2: f32[2] = pow(1.0:f32, %v1)\n"
     "return %v2"},
    {"simplify", "x * 0 is not 0: x may be infinite", "f32[2]",
     "%v1: f32[2] = mul(%a1, 0.0:f32)\n"
     "return %v1",
     "%v1: f32[2] = mul(%a1, 0.0:f32)\n"
     "return %v1"},
    {"simplify", "ones of any shape, but what they broadcast stays",
     "f32[2], f32[]",
     "%v1: f32[2] = broadcast_to(1.0:f32, shape=(2,))\n"
     "%v2: f32[2] = mul(%a1, %v1)\n"
     "%v3: f32[2] = mul(%a2, %v1)\n"
     "return (%v2, %v3)",
     "%v1: f32[2] = broadcast_to(1.0:f32, shape=(2,))\n"
     "%v2: f32[2] = mul(%a2, %v1)\n"
     "return (%a1, %v2)"},
    {"fold", "also as another float", "bf16[2]",
     "%v1: f32[2] = broadcast_to(3.0:f32, shape=(2,))\n"
     "%v2: bf16[2] = cast(%v1, dtype=@bfloat16)\n"
     "%v3: i32[2] = cast(%v1, dtype=@int32)\n"
     "%v4: bf16[2] = add(%a1, %v2)\n"
     "return (%v4, %v3)",
     "%v1: f32[2] = broadcast_to(3.0:f32, shape=(2,))\n"
     "%v2: bf16[2] = cast(%v1, dtype=@bfloat16)\n"
     "%v3: bf16[2] = add(%a1, %v2)\n"
     "return (%v3, ?)"},
    {"simplify", "ones of another float, and what is one only as that",
     "bf16[2], f32[2]",
     "%v1: f32[2] = broadcast_to(1.001:f32, shape=(2,))\n"
     "%v2: bf16[2] = cast(%v1, dtype=@bfloat16)\n"
     "%v3: bf16[2] = mul(%v2, %a1)\n"
     "%v4: f32[2] = cast(%v2, dtype=@float32)\n"
     "%v5: f32[2] = mul(%a2, %v4)\n"
     "%v6: f32[2] = mul(%v5, %v1)\n"
     "return (%v3, %v6)",
     "%v1: f32[2] = broadcast_to(1.001:f32, shape=(2,))\n"
     "%v2: bf16[2] = cast(%v1, dtype=@bfloat16)\n"
     "%v3: f32[2] = cast(%v2, dtype=@float32)\n"
     "%v4: f32[2] = mul(%a2, %v1)\n"
     "return (%a1, %v4)"},
    {"simplify", "twice is not at all, or once", "f32[2], i8[2]",
     "%v1: f32[2] = neg(%a1)\n"
     "%v2: f32[2] = neg(%v1)\n"
     "%v3: f32[2] = abs(%v2)\n"
     "%v4: f32[2] = abs(%v3)\n"
     "%v5: i8[2] = bitwise_invert(%a2)\n"
     "%v6: i8[2] = bitwise_invert(%v5)\n"
     "return (%v4, %v6)",
     "%v1: f32[2] = neg(%a1)\n"
     "%v2: f32[2] = abs(%a1)\n"
     "%v3: i8[2] = bitwise_invert(%a2)\n"
     "return (%v2, %a2)"},
    {"simplify", "a choice between equals is none", "bool[2], f32[2]",
     "%v1: f32[2] = where(%a1, %a2, %a2)\n"
     "%v2: f32[2] = maximum(%v1, %a2)\n"
     "return %v2",
     "return %a2"},
    {"simplify", "squares and halves are products; thirds are not", "f32[2]",
     "%v1: f32[2] = pow(%a1, 2.0:f32)\n"
     "%v2: f32[2] = div(%v1, 4.0:f32)\n"
     "%v3: f32[2] = div(%v2, 3.0:f32)\n"
     "%v4: f32[2] = div(%v3, 0.0:f32)\n"
     "return %v4",
     "%v1: f32[2] = mul(%a1, %a1)\n"
     "%v2: f32[2] = mul(%v1, 0.25:f32)\n"
     "%v3: f32[2] = div(%v2, 3.0:f32)\n"
     "%v4: f32[2] = div(%v3, 0.0:f32)\n"
     "return %v4"},
    {"simplify", "a contraction with one is no product by one", "f32[2,1]",
     "%v1: f32[1,1] = broadcast_to(1.0:f32, shape=(1, 1))\n"
     "%v2: f32[2,1] = matmul(%a1, %v1)\n"
     "return %v2",
     "%v1: f32[1,1] = broadcast_to(1.0:f32, shape=(1, 1))\n"
     "%v2: f32[2,1] = matmul(%a1, %v1)\n"
     "return %v2"},
    {"cse", "equal calls are one, also of calls that became one", "f32[2]",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = sin(%a1)\n"
     "%v3: f32[2] = add(%v1, 1.0:f32)\n"
     "%v4: f32[2] = add(%v2, 1.0:f32)\n"
     "return (%v3, %v4)",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = add(%v1, 1.0:f32)\n"
     "return (%v2, %v2)"},
    {"cse", "sums and products either way, differences not", "f32[2], f32[2]",
     "%v1: f32[2] = mul(%a1, %a2)\n"
     "%v2: f32[2] = mul(%a2, %a1)\n"
     "%v3: f32[2] = sub(%a1, %a2)\n"
     "%v4: f32[2] = sub(%a2, %a1)\n"
     "return (%v1, %v2, %v3, %v4)",
     "%v1: f32[2] = mul(%a1, %a2)\n"
     "%v2: f32[2] = sub(%a1, %a2)\n"
     "%v3: f32[2] = sub(%a2, %a1)\n"
     "return (%v1, %v1, %v2, %v3)"},
    {"cse", "other attributes, numbers or dtypes are other calls", "f32[2,2]",
     "%v1: f32[2] = reduce_sum(%a1, axis=0, keepdims=False)\n"
     "%v2: f32[2] = reduce_sum(%a1, axis=1, keepdims=False)\n"
     "%v3: f32[2] = add(%v1, 0.0:f32)\n"
     "%v4: f32[2] = add(%v1, -0.0:f32)\n"
     "return (%v2, %v3, %v4)",
     "%v1: f32[2] = reduce_sum(%a1, axis=0, keepdims=False)\n"
     "%v2: f32[2] = reduce_sum(%a1, axis=1, keepdims=False)\n"
     "%v3: f32[2] = add(%v1, 0.0:f32)\n"
     "%v4: f32[2] = add(%v1, -0.0:f32)\n"
     "return (%v2, %v3, %v4)"},
    {"pick", "few elements are picked before what is computed with them",
     "f32[2,64], f32[2,1], i64[2,1]",
     "%v1: f32[2,64] = sub(%a1, %a2)\n"
     "%v2: f32[2,64] = exp(%v1)\n"
     "%v3: f32[2,64] = mul(%v1, %v2)\n"
     "%v4: f32[2,1] = take_along(%v3, %a3)\n"
     "return (%v2, %v4)",
     "%v1: f32[2,64] = sub(%a1, %a2)\n"
     "%v2: f32[2,64] = exp(%v1)\n"
     "%v3: f32[2,64] = mul(%v1, %v2)\n"
     "%v4: f32[2,1] = take_along(%a1, %a3)\n"
     "%v5: f32[2,1] = sub(%v4, %a2)\n"
     "%v6: f32[2,1] = take_along(%a1, %a3)\n"
     "%v7: f32[2,1] = sub(%v6, %a2)\n"
     "%v8: f32[2,1] = exp(%v7)\n"
     "%v9: f32[2,1] = mul(%v5, %v8)\n"
     "return (%v2, %v9)"},
    {"pick", "many are not", "f32[2,4], i64[2,1]",
     "%v1: f32[2,4] = exp(%a1)\n"
     "%v2: f32[2,1] = take_along(%v1, %a2)\n"
     "return %v2",
     "%v1: f32[2,4] = exp(%a1)\n"
     "%v2: f32[2,1] = take_along(%v1, %a2)\n"
     "return %v2"},
    {"cse", "what is computed again is not what was computed before", "f32[2]",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = again(%a1, %v1)\n"
     "%v3: f32[2] = sin(%v2)\n"
     "%v4: f32[2] = again(%a1, %v1)\n"
     "%v5: f32[2] = sin(%v4)\n"
     "%v6: f32[2] = sin(%v4)\n"
     "return (%v1, %v3, %v5, %v6)",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = again(%a1, %v1)\n"
     "%v3: f32[2] = sin(%v2)\n"
     "%v4: f32[2] = again(%a1, %v1)\n"
     "%v5: f32[2] = sin(%v4)\n"
     "return (%v1, %v3, %v5, %v5)"},
    {"cse", "calls with several results, if all were needed before", "f64[3,3]",
     "%v1: f64[3,3], %v2: f64[3,3] = qr(%a1, mode=\"reduced\")\n"
     "_, %v3: f64[3,3] = qr(%a1, mode=\"reduced\")\n"
     "return (%v1, %v2, %v3)",
     "%v1: f64[3,3], %v2: f64[3,3] = qr(%a1, mode=\"reduced\")\n"
     "return (%v1, %v2, %v2)"},
    {"cse", "calls with several results, of which others were needed",
     "f64[3,3]",
     "%v1: f64[3,3], _ = qr(%a1, mode=\"reduced\")\n"
     "_, %v2: f64[3,3] = qr(%a1, mode=\"reduced\")\n"
     "return (%v1, %v2)",
     "%v1: f64[3,3], _ = qr(%a1, mode=\"reduced\")\n"
     "_, %v2: f64[3,3] = qr(%a1, mode=\"reduced\")\n"
     "return (%v1, %v2)"},
    {"cheap", "what a product reads is stored, what that is made of is not",
     "f32[64,64], f32[64]",
     "%v1: f32[64,64] = matmul(%a1, %a1)\n"
     "%v2: f32[64,64] = add(%v1, %a2)\n"
     "%v3: f32[64,64] = mul(%v2, %v2)\n"
     "%v4: f32[64,64] = mul(%v3, %v2)\n"
     "%v5: f32[64,64] = matmul(%v4, %a1)\n"
     "%v6: f32[64,64] = mul(%v5, %v3)\n"
     "%v7: f32[64,64] = add(%v6, %v2)\n"
     "return %v7",
     "%v1: f32[64,64] = matmul(%a1, %a1)\n"
     "%v2: f32[64,64] = add(%v1, %a2)\n"
     "%v3: f32[64,64] = mul(%v2, %v2)\n"
     "%v4: f32[64,64] = mul(%v3, %v2)\n"
     "%v5: f32[64,64] = matmul(%v4, %a1)\n"
     "%v6: f32[64,64] = add(%v1, %a2)\n"
     "%v7: f32[64,64] = mul(%v6, %v6)\n"
     "%v8: f32[64,64] = mul(%v5, %v7)\n"
     "%v9: f32[64,64] = add(%v8, %v6)\n"
     "return %v9"},
    {"cheap", "one array is read rather than two", "f32[64,64], f32[64,64]",
     "%v1: f32[64,64] = add(%a1, %a2)\n"
     "%v2: f32[64,64] = neg(%v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = mul(%v3, %v1)\n"
     "return %v4",
     "%v1: f32[64,64] = add(%a1, %a2)\n"
     "%v2: f32[64,64] = neg(%v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = mul(%v3, %v1)\n"
     "return %v4"},
    {"cheap", "what takes longer than reading it is stored", "f32[64,64]",
     "%v1: f32[64,64] = tanh(%a1)\n"
     "%v2: f32[64,64] = neg(%v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = mul(%v3, %v1)\n"
     "return %v4",
     "%v1: f32[64,64] = tanh(%a1)\n"
     "%v2: f32[64,64] = neg(%v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = mul(%v3, %v1)\n"
     "return %v4"},
    {"cheap", "but not where caches do not hold it", "f32[512,512]",
     "%v1: f32[512,512] = tanh(%a1)\n"
     "%v2: f32[512,512] = neg(%v1)\n"
     "%v3: f32[512,512] = matmul(%v2, %a1)\n"
     "%v4: f32[512,512] = mul(%v3, %v1)\n"
     "return %v4",
     "%v1: f32[512,512] = tanh(%a1)\n"
     "%v2: f32[512,512] = neg(%v1)\n"
     "%v3: f32[512,512] = matmul(%v2, %a1)\n"
     "%v4: f32[512,512] = tanh(%a1)\n"
     "%v5: f32[512,512] = mul(%v3, %v4)\n"
     "return %v5"},
    {"cheap", "sums are stored, they are small", "f32[64,64]",
     "%v1: f32[64,1] = reduce_sum(%a1, axis=1, keepdims=True)\n"
     "%v2: f32[64,64] = sub(%a1, %v1)\n"
     "%v3: f32[64,64] = neg(%v2)\n"
     "%v4: f32[64,64] = matmul(%v3, %a1)\n"
     "%v5: f32[64,64] = mul(%v4, %v2)\n"
     "return %v5",
     "%v1: f32[64,1] = reduce_sum(%a1, axis=1, keepdims=True)\n"
     "%v2: f32[64,64] = sub(%a1, %v1)\n"
     "%v3: f32[64,64] = neg(%v2)\n"
     "%v4: f32[64,64] = matmul(%v3, %a1)\n"
     "%v5: f32[64,64] = sub(%a1, %v1)\n"
     "%v6: f32[64,64] = mul(%v4, %v5)\n"
     "return %v6"},
    {"cheap", "a look at what is computed again is one more look", "f32[64,64]",
     "%v1: f32[64,64] = neg(%a1)\n"
     "%v2: f32[64,64] = mul(%v1, %v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = permute(%v1, order=(1, 0))\n"
     "%v5: f32[64,64] = mul(%v3, %v4)\n"
     "return %v5",
     "%v1: f32[64,64] = neg(%a1)\n"
     "%v2: f32[64,64] = mul(%v1, %v1)\n"
     "%v3: f32[64,64] = matmul(%v2, %a1)\n"
     "%v4: f32[64,64] = neg(%a1)\n"
     "%v5: f32[64,64] = permute(%v4, order=(1, 0))\n"
     "%v6: f32[64,64] = mul(%v3, %v5)\n"
     "return %v6"},
    {"cheap", "what is handed out is stored anyway", "f32[64,64]",
     "%v1: f32[64,64] = neg(%a1)\n"
     "%v2: f32[64,64] = matmul(%v1, %a1)\n"
     "%v3: f32[64,64] = mul(%v2, %v1)\n"
     "return (%v3, %v1)",
     "%v1: f32[64,64] = neg(%a1)\n"
     "%v2: f32[64,64] = matmul(%v1, %a1)\n"
     "%v3: f32[64,64] = mul(%v2, %v1)\n"
     "return (%v3, %v1)"},
    {"again", "again is gone at last, the order stays", "f32[2]",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = again(%a1, %v1)\n"
     "%v3: f32[2] = sin(%v2)\n"
     "return (%v1, %v3)",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = sin(%a1)\n"
     "return (%v1, %v2)"},
    {"dead", "lines that nobody needs are gone, inputs stay", "f32[2], f32[]",
     "%v1: f32[2] = sin(%a1)\n"
     "%v2: f32[2] = cos(%v1)\n"
     "%v3: f32[2] = exp(%a1)\n"
     "return %v3",
     "%v1: f32[2] = exp(%a1)\n"
     "return %v1"},
    {"recompute", "what is large and made of little is not kept for long",
     "f32[600,32], f32[32,600], f32[4,4]",
     "%v1: f32[600,600] = matmul(%a1, %a2)\n"
     "%v2: f32[600,600] = exp(%v1)\n"
     "%v3: f32[600] = reduce_sum(%v2, axis=1, keepdims=False)\n"
     "%v4: f32[4,4] = matmul(%a3, %a3)\n"
     "%v5: f32[4,4] = matmul(%v4, %a3)\n"
     "%v6: f32[4,4] = matmul(%v5, %a3)\n"
     "%v7: f32[4,4] = matmul(%v6, %a3)\n"
     "%v8: f32[4,4] = matmul(%v7, %a3)\n"
     "%v9: f32[4,4] = matmul(%v8, %a3)\n"
     "%v10: f32[4,4] = matmul(%v9, %a3)\n"
     "%v11: f32[4,4] = matmul(%v10, %a3)\n"
     "%v12: f32[600,600] = mul(%v2, 2.0:f32)\n"
     "%v13: f32[600,600] = add(%v2, %v1)\n"
     "return (%v3, %v11, %v12, %v13)",
     "%v1: f32[600,600] = matmul(%a1, %a2)\n"
     "%v2: f32[600,600] = exp(%v1)\n"
     "%v3: f32[600] = reduce_sum(%v2, axis=1, keepdims=False)\n"
     "%v4: f32[4,4] = matmul(%a3, %a3)\n"
     "%v5: f32[4,4] = matmul(%v4, %a3)\n"
     "%v6: f32[4,4] = matmul(%v5, %a3)\n"
     "%v7: f32[4,4] = matmul(%v6, %a3)\n"
     "%v8: f32[4,4] = matmul(%v7, %a3)\n"
     "%v9: f32[4,4] = matmul(%v8, %a3)\n"
     "%v10: f32[4,4] = matmul(%v9, %a3)\n"
     "%v11: f32[4,4] = matmul(%v10, %a3)\n"
     "%v12: f32[600,600] = matmul(%a1, %a2)\n"
     "%v13: f32[600,600] = exp(%v12)\n"
     "%v14: f32[600,600] = mul(%v13, 2.0:f32)\n"
     "%v15: f32[600,600] = add(%v13, %v12)\n"
     "return (%v3, %v11, %v14, %v15)"},
    {"recompute", "what a product makes of as much is kept",
     "f32[600,100], f32[100,600], f32[4,4]",
     "%v1: f32[600,600] = matmul(%a1, %a2)\n"
     "%v2: f32[600,600] = exp(%v1)\n"
     "%v3: f32[600] = reduce_sum(%v2, axis=1, keepdims=False)\n"
     "%v4: f32[4,4] = matmul(%a3, %a3)\n"
     "%v5: f32[4,4] = matmul(%v4, %a3)\n"
     "%v6: f32[4,4] = matmul(%v5, %a3)\n"
     "%v7: f32[4,4] = matmul(%v6, %a3)\n"
     "%v8: f32[4,4] = matmul(%v7, %a3)\n"
     "%v9: f32[4,4] = matmul(%v8, %a3)\n"
     "%v10: f32[4,4] = matmul(%v9, %a3)\n"
     "%v11: f32[4,4] = matmul(%v10, %a3)\n"
     "%v12: f32[600,600] = mul(%v2, 2.0:f32)\n"
     "return (%v3, %v11, %v12)",
     "%v1: f32[600,600] = matmul(%a1, %a2)\n"
     "%v2: f32[600,600] = exp(%v1)\n"
     "%v3: f32[600] = reduce_sum(%v2, axis=1, keepdims=False)\n"
     "%v4: f32[4,4] = matmul(%a3, %a3)\n"
     "%v5: f32[4,4] = matmul(%v4, %a3)\n"
     "%v6: f32[4,4] = matmul(%v5, %a3)\n"
     "%v7: f32[4,4] = matmul(%v6, %a3)\n"
     "%v8: f32[4,4] = matmul(%v7, %a3)\n"
     "%v9: f32[4,4] = matmul(%v8, %a3)\n"
     "%v10: f32[4,4] = matmul(%v9, %a3)\n"
     "%v11: f32[4,4] = matmul(%v10, %a3)\n"
     "%v12: f32[600,600] = mul(%v2, 2.0:f32)\n"
     "return (%v3, %v11, %v12)"},
};

/* "f32[2], i32[]" and lines as the text of a program. */
static char *program(const char *inputs, const char *lines)
{
    nb_text t = {0};
    int n = 0;
    nb_text_add(&t, "fn(\n");
    while (*inputs) {
        size_t len = strcspn(inputs, "]") + 1;
        nb_text_add(&t, "  %%a%d: %.*s,\n", ++n, (int)len, inputs);
        inputs += len;
        inputs += strspn(inputs, ", ");
    }
    nb_text_add(&t, ") {\n");
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        nb_text_add(&t, "  %.*s\n", (int)len, lines);
        lines += len + (lines[len] == '\n');
    }
    nb_text_add(&t, "}\n");
    return t.data;
}

static void is_text(nb_graph *g, const char *want, const char *sentence)
{
    char *got = nb_graph_text(g);
    if (!expect(got && !strcmp(got, want), "%s", sentence))
        printf("wanted\n%sgot\n%s", want, got ? got : "");
    nb_text_release(got);
}

static void every_golden(void)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const golden *t = &goldens[i];
        char *before = program(t->inputs, t->before);
        char *after = program(t->inputs, t->after);
        nb_graph *g = NULL;
        bool ok = nb_graph_parse(before, &g) == NB_OK &&
                  nb_pass_find(t->pass)->run(g);
        if (expect(ok, "%s: %s", t->pass, t->sentence))
            is_text(g, after, t->sentence);
        nb_graph_free(g);
        nb_text_release(before);
        nb_text_release(after);
    }
}

/* Laws */

static const word all_words[] = {
    {"", 0, {0}},
    {"vjp ", 1, {VJP}},
    {"vmap ", 1, {VMAP}},
    {"jvp vjp ", 2, {JVP, VJP}},
    {"vmap vjp ", 2, {VMAP, VJP}},
    {"vjp vmap ", 2, {VJP, VMAP}},
    {"checkpoint ", 1, {CHECKPOINT}},
    {"vjp checkpoint ", 2, {VJP, CHECKPOINT}},
    {"vmap checkpoint ", 2, {VMAP, CHECKPOINT}},
    {"scan ", 1, {SCAN}},
};
enum { NWORDS = sizeof all_words / sizeof all_words[0] };

/* A program and arguments: those of the task, then what it closes over. */
typedef struct recorded {
    nb_region r;
    int nx;
    nb_tensor *x[4 * MAX_ARGS];
} recorded;

static bool record(const task *t, recorded *to)
{
    nb_list in = {0};
    *to = (recorded){.nx = t->nin};
    bool ok = true;
    for (int i = 0; ok && i < t->nin; i++) {
        nb_shape s = nb_tensor_shape(t->x[i]);
        to->x[i] = t->x[i];
        ok = nb_list_add(&in, nb_stand_in(nb_dtype_of(t->x[i]), &s));
    }
    ok = ok && nb_region_record(&to->r, t->fn, &in);
    for (int i = 0; ok && i < to->r.ncaptured; i++)
        to->x[to->nx++] = to->r.captured[i];
    nb_list_free(&in);
    return ok;
}

static bool has_programs(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].op && g->line[k].op->inlines) return true;
    return false;
}

static bool same_results(const nb_graph *g, const recorded *f,
                         nb_tensor *const *want)
{
    nb_tensor *got[4 * MAX_ARGS];
    bool ok = nb_graph_run(g, f->nx, f->x, got) == NB_OK;
    for (int k = 0; ok && k < g->ny; k++)
        ok = near(got[k], want[k], 1e-13);
    return ok;
}

static void laws_of(const char *how, const char *name, recorded *f)
{
    nb_graph *g = nb_graph_copy(f->r.graph);
    nb_tensor *want[4 * MAX_ARGS];
    bool ok = g && nb_graph_hash(g) == nb_graph_hash(f->r.graph) &&
              nb_graph_run(f->r.graph, f->nx, f->x, want) == NB_OK &&
              nb_realize_now(g->ny, want);
    if (!expect(ok, "%s%s is recorded", how, name)) g = NULL;
    for (const nb_pass *p = nb_passes; g && p->name; p++) {
        if (!p->run) continue;
        int calls = nb_graph_calls(g);
        bool may_grow = p->run == nb_pass_cheap ||
                        (p->run == nb_pass_inline && has_programs(g));
        expect(p->run(g), "%s %s%s", p->name, how, name);
        expect(may_grow || nb_graph_calls(g) <= calls,
               "%s adds nothing to %s%s", p->name, how, name);
        expect(nb_graph_check(g) == NB_OK, "%s leaves the types of %s%s",
               p->name, how, name);
        expect(same_results(g, f, want), "%s leaves the results of %s%s",
               p->name, how, name);
        uint64_t hash = nb_graph_hash(g);
        expect(p->run(g) && nb_graph_hash(g) == hash,
               "%s again changes nothing in %s%s", p->name, how, name);
    }
    nb_graph_free(g);
}

static void laws(const trial *x)
{
    recorded f = {0};
    if (expect(record(x->t, &f), "%s%s records", x->how, x->op->name))
        laws_of(x->how, x->op->name, &f);
    nb_region_free(&f.r);
}

static void every_op(const char *only)
{
    nb_op *op;
    for (int i = 0; (op = nb_op_at(i)); i++)
        if (!only || !strcmp(only, op->name))
            words_each(op, NWORDS, all_words, laws);
}

/* Checkpoints: a chain of layers, whose insides are wide. */

enum { LAYERS = 8, ROWS = 64, NARROW = 4, WIDE = 256 };

static nb_status layer(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_tanh(nb_matmul(nb_sin(nb_matmul(x[0], x[1])), x[2]));
    return *ny = 1, NB_OK;
}

static nb_status network(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    nb_func *f = ctx;
    nb_tensor *h = x[0];
    (void)nx;
    for (int i = 0; i < LAYERS; i++)
        h = nb_func_call1(f, 3, (nb_tensor *[]){h, x[1], x[2]});
    y[0] = nb_reduce_sum(nb_mul(h, h), -1, NULL, false);
    return *ny = 1, NB_OK;
}

/* Temporaries of the compiled gradient, whose values go to y. */
static int64_t temporaries(nb_func *of, nb_tensor *const *x, nb_tensor **y)
{
    nb_func *f = nb_grad(nb_func_new(network, of), 3, (int[]){0, 1, 2});
    nb_executable *e = NULL;
    int ny = 3;
    bool ok = nb_executable_new(f, 3, x, &e) == NB_OK &&
              nb_executable_run(e, 3, x, &ny, y) == NB_OK;
    int64_t bytes = ok ? nb_executable_memory(e).temporaries : -1;
    nb_executable_drop(e);
    return bytes;
}

static void checkpoints_save_memory(void)
{
    nb_tensor *kept[3], *again[3], *called[3];
    nb_scope_open();
    nb_tensor *x[] = {draw(2, (int64_t[]){ROWS, NARROW}, -1, 1),
                      draw(2, (int64_t[]){NARROW, WIDE}, -1, 1),
                      draw(2, (int64_t[]){WIDE, NARROW}, -1, 1)};
    nb_func *f = nb_func_new(layer, NULL), *c = nb_checkpoint(f, NULL);
    int64_t all = temporaries(f, x, kept), some = temporaries(c, x, again);
    setenv("NABLA_DISABLE", "inline", 1);
    int64_t none = temporaries(c, x, called);
    unsetenv("NABLA_DISABLE");
    expect(some > 0 && none > 0 && some < all / 2,
           "what is computed again is not kept: %lld of %lld bytes, %lld",
           (long long)some, (long long)all, (long long)none);
    for (int i = 0; i < 3; i++)
        expect(near(again[i], kept[i], 1e-12) &&
                   near(called[i], kept[i], 1e-12),
               "and the gradients are the same");
    nb_scope_close(0, NULL);
}

/* The environment, and what is told. */

FN(twice_negated, nb_sin(nb_neg(nb_neg(x[0]))))

static void passes_are_switched(void)
{
    nb_scope_open();
    nb_tensor *x = VEC(1, 2);
    nb_executable *e = NULL;
    nb_func *f = nb_func_new(twice_negated, NULL);
    expect(nb_executable_new(f, 1, &x, &e) == NB_OK, "an executable");
    char *graph = nb_executable_text(e, "graph");
    char *simple = nb_executable_text(e, "simplify");
    char *dead = nb_executable_text(e, "dead");
    setenv("NABLA_DISABLE", "simplify,cse", 1);
    char *off = nb_executable_text(e, "dead");
    setenv("NABLA_DISABLE", "simplify,magic", 1);
    FAILS("an unknown pass cannot be left out", nb_executable_text(e, "dead"),
          NB_EVALUE, "NABLA_DISABLE: no pass is called magic: inline, ");
    unsetenv("NABLA_DISABLE");
    expect(!strcmp(graph, off), "a pass that is off does nothing");
    expect(strstr(graph, "neg(%v1)") && strstr(simple, "sin(%a1)") &&
               strstr(simple, "neg(%v1)") == NULL && !strstr(dead, "neg"),
           "texts after each pass");
    FAILS("there is no such stage", nb_executable_text(e, "magic"), NB_EVALUE,
          "no stage is called magic");
    nb_text_release(graph), nb_text_release(simple);
    nb_text_release(dead), nb_text_release(off);
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
}

/* Whichever allocation fails: an error, and nothing is left behind. */
static void memory_runs_out(void)
{
    char *text = program("f32[2], f32[4,4]",
                         "%v1: f32[] = add(1.0:f32, 2.0:f32)\n"
                         "%v2: f32[2] = div(%a1, 4.0:f32)\n"
                         "%v3: f32[2] = detach(%v2)\n"
                         "%v4: f32[2] = mul(%v3, %v1)\n"
                         "%v5: f32[3] = broadcast_to(%v1, shape=(3,))\n"
                         "%v6: f32[3] = exp(%v5)\n"
                         "%v7: f32[4,4] = neg(%a2)\n"
                         "%v8: f32[4,4] = mul(%v7, %v7)\n"
                         "%v9: f32[4,4] = matmul(%v8, %a2)\n"
                         "%v10: f32[4,4] = mul(%v9, %v7)\n"
                         "return (%v4, %v6, %v10)");
    int failed = 0;
    bool done = false;
    for (int n = 1; !done && n < 1000; n++) {
        nb_graph *g = NULL;
        int64_t live = nb_memory_live();
        nb_scope_open();
        nb_graph_parse(text, &g);
        nb_fault_set(n);
        bool ok = nb_lower_graph(g);
        done = nb_fault_is_set();
        nb_fault_set(0);
        bool told = ok || nb_error_code() == NB_EMEMORY;
        failed += !ok;
        nb_error_clear();
        nb_graph_free(g);
        nb_scope_close(0, NULL);
        expect(told && nb_memory_live() == live,
               "nothing is left of fault %d: %lld", n,
               (long long)(nb_memory_live() - live));
    }
    expect(failed > 5 && done, "%d faults", failed);
    nb_text_release(text);
}

/* A layer of a network again and again: passes take time in step with it. */
static double milliseconds(int layers)
{
    nb_text t = {0};
    nb_graph *g = NULL;
    struct timespec from, to;
    nb_text_add(&t, "fn(\n  %%a1: f32[4],\n) {\n"
                    "  %%v1: f32[4] = sin(%%a1)\n");
    for (int i = 1; i <= 4 * layers; i += 4)
        nb_text_add(&t,
                    "  %%v%d: f32[4] = mul(%%v%d, 1.0:f32)\n"
                    "  %%v%d: f32[4] = add(%%v%d, %%v1)\n"
                    "  %%v%d: f32[4] = add(%%v%d, %%v1)\n"
                    "  %%v%d: f32[4] = mul(%%v%d, %%v%d)\n",
                    i + 1, i, i + 2, i + 1, i + 3, i, i + 4, i + 2, i + 3);
    nb_text_add(&t, "  return %%v%d\n}\n", 4 * layers + 1);
    bool ok = nb_graph_parse(nb_text_get(&t), &g) == NB_OK;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ok = ok && nb_lower_graph(g);
    clock_gettime(CLOCK_MONOTONIC, &to);
    expect(ok && nb_graph_calls(g) == 2 * layers + 1, "%d layers", layers);
    nb_graph_free(g);
    nb_text_free(&t);
    return (double)(to.tv_sec - from.tv_sec) * 1e3 +
           (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
}

static void time_is_linear(void)
{
    nb_scope_open();
    double one = INFINITY, ten = INFINITY;
    for (int i = 0; i < 5; i++) {
        one = fmin(one, milliseconds(1000));
        ten = fmin(ten, milliseconds(10000));
    }
    printf("passes over 5,000 lines: %.2f ms, 50,000: %.2f ms\n", one, ten);
    expect(ten < 40 * one + 50, "ten times the lines, some ten times the time");
    nb_scope_close(0, NULL);
}

int main(int argc, char **argv)
{
    there_open();
    if (argc > 1 && !strcmp(argv[1], "names")) {
        for (const nb_pass *p = nb_passes; p->name; p++)
            puts(p->name);
        return 0;
    }
    unsetenv("NABLA_DISABLE");
    unsetenv("NABLA_DUMP");
    every_golden();
    checkpoints_save_memory();
    passes_are_switched();
    memory_runs_out();
    time_is_linear();
    every_op(argc > 1 ? argv[1] : NULL);
    return tally();
}
