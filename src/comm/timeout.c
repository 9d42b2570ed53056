/* timeout.c - how long devices wait for each other. */
#include "nabla/distributed.h"

#include "base/error.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic double chosen; /* 0: not yet known */

static double wanted(void)
{
    const char *text = getenv("NABLA_TIMEOUT");
    char *end;
    double seconds = text ? strtod(text, &end) : 0;
    return text && *text && !*end && seconds > 0 && seconds < 1e9 ? seconds
                                                                  : 300;
}

double nb_distributed_timeout(void)
{
    double seconds = chosen;
    if (seconds == 0) chosen = seconds = wanted();
    return seconds;
}

nb_status nb_distributed_set_timeout(double seconds)
{
    if (!(seconds > 0) || seconds > 1e9)
        return NB_STATUS(nb_fail(NB_EVALUE,
                                 "set_timeout: %g seconds (more than 0, at "
                                 "most 1e9)",
                                 seconds));
    chosen = seconds;
    return NB_OK;
}
