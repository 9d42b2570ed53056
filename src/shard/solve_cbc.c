/* solve_cbc.c */
#include "shard/solve_parts.h"
bool nb_cbc_solve(const nb_net *g, double seconds, nb_found *f)
{
    return (void)g, (void)seconds, (void)f, false;
}
