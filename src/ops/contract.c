/* contract.c - products summed over shared axes. */
#include "ops/ops.h"

static nb_tensor *mT(nb_tensor *x)
{
    int64_t order[NB_MAX_RANK];
    int rank = nb_rank(x);
    for (int d = 0; d < rank; d++)
        order[d] = d;
    if (rank >= 2) order[rank - 1] = rank - 2, order[rank - 2] = rank - 1;
    return nb_permute(x, rank, order);
}

/* C = A B.  Writing X* for the cotangent of X: A* = C* B', B* = A' C*. */
TRANSPOSE(matmul, i == 0 ? nb_matmul(ct, mT(c->in[1]))
                         : nb_matmul(mT(c->in[0]), ct))

nb_op nb_op_matmul = {
    .name = "matmul",
    .doc = "Matrix product over the last two axes; leading axes broadcast.",
    .example = "matmul([[1, 2], [3, 4]], [[5], [6]]) = [[17], [39]]",
    .sig = "... m k, ... k n -> ... m n",
    .kind = NB_MULTILINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_mul,
    .transpose = matmul_transpose,
};
