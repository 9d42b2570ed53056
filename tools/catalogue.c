/* catalogue.c - fails the build where a descriptor is incomplete: no doc, no
 * example, no derivative, not exactly one way to do its work.  (A row without
 * a descriptor does not link.) */
#include "core/op.h"
#include "nabla/nabla.h"

#include <stdio.h>
#include <string.h>

static const char *missing(const nb_op *op)
{
    int works = !!op->body + !!op->scalar + !!op->kernel + !!op->compose;
    size_t n = op->doc ? strlen(op->doc) : 0;
    if (!op->name) return "a name";
    if (n == 0 || op->doc[n - 1] != '.')
        return "a doc that ends in a full stop";
    if (!op->example || !strstr(op->example, " = ")) return "an example";
    if (!op->sig && !op->sign && !op->compose) return "a signature";
    if (works > 1) return "one way to do its work, it has several";
    if (works == 0 && !op->view) return "a way to do its work";
    switch (op->kind) {
    case NB_POINTWISE: return op->partial ? NULL : "a partial";
    case NB_LINEAR:
    case NB_MULTILINEAR: return op->transpose ? NULL : "a transpose";
    case NB_RULE:
        return !op->jvp                       ? "a jvp"
               : op->linear && !op->transpose ? "a transpose"
                                              : NULL;
    case NB_CONSTANT: return NULL;
    case NB_COMPOSITE: return op->compose ? NULL : "a compose";
    default: return "a kind, which says how it varies";
    }
}

int main(void)
{
    int bad = 0, n = 0;
    for (nb_op *op; (op = nb_op_at(n)); n++) {
        const char *what = missing(op);
        if (!what && !nb_op_ready(op)) what = nb_error_message();
        if (what) fprintf(stderr, "op %s lacks %s\n", op->name, what);
        bad += what != NULL;
        nb_error_clear();
    }
    printf("%d ops\n", n);
    return bad != 0;
}
