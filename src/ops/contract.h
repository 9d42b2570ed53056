/* contract.h - the product that other families build on. */
#ifndef NB_OPS_CONTRACT_H
#define NB_OPS_CONTRACT_H

#include "ops/ops.h"

/* The sum of products of x and y that the rule, a signature of plain factors,
 * says: "... i j, ... j -> ... i". */
nb_tensor *nb_contract(nb_tensor *x, nb_tensor *y, const char *rule);

/* The name of factor i in a rule that is written by code; i < 52. */
char nb_letter(int i);

#endif
