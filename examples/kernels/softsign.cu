/* softsign.cu - x / (1 + |x|) on a card, a thread for each element. */
#include <nabla/kernel.h>

NB_MAP1(softsign, x, x / (1 + (x < 0 ? -x : x)))
