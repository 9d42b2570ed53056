/* softsign.c - x / (1 + |x|), for every numeric dtype. */
#include <nabla/kernel.h>

NB_MAP1(softsign, x, x / (1 + (x < 0 ? -x : x)))
