/* row_args.c - what a kernel over rows has stored as its status. */
#include "core/row_args.h"

#include "base/error.h"

bool nb_row_status_check(const char *name, int32_t status)
{
    switch (status) {
    case 0: return true;
    case NB_STATUS_DTYPE:
        return nb_fail(NB_ERUNTIME, "%s: the kernel does not take these dtypes",
                       name);
    case NB_STATUS_SHAPE:
        return nb_fail(NB_ERUNTIME,
                       "%s: the kernel's operands have different sizes", name);
    case NB_STATUS_COUNT:
        return nb_fail(NB_ERUNTIME,
                       "%s: the kernel takes another number of operands", name);
    default:
        return nb_fail(NB_ERUNTIME, "%s: the kernel failed with status %d",
                       name, (int)status);
    }
}
