/* reason.h - why a value moves, in words, and what would be cheaper. */
#ifndef NB_SHARD_GRAPH_REASON_H
#define NB_SHARD_GRAPH_REASON_H

#include "shard/decide/layouts.h"

/* The value of a line goes from one layout to another: for operand number
 * `operand` of the call of line `user`; or, if that is -1, because it is result
 * number `operand`. */
typedef struct nb_occasion {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_layouts *lay;
    int line, user, operand;
    bool reach;   /* not to lie otherwise: parts of other blocks are brought, or
                     what these come to */
    bool reading; /* of a result: what is pending is reduced */
    const nb_reshard_plan *plan;
    const nb_op *within; /* the op whose program this is; NULL: none */
    int64_t times;       /* how often that runs, or 1 */
} nb_occasion;

/* Who is told of moves. */
typedef struct nb_watcher {
    bool (*moved)(void *ctx, const nb_occasion *o);
    void *ctx;
    int64_t turns; /* of a loop of which nobody knows how many it has */
} nb_watcher;

/* Tells of every move of a program that lies so, in their order, which is that
 * of all devices.  node is the graph recorded on stand-ins, whose scope is
 * open. */
bool nb_layouts_watch(const nb_graph *g, nb_tensor *const *node,
                      const nb_layouts *l, const nb_watcher *watcher);

/* False if nothing but the fact can be said. */
bool nb_reason_write(nb_text *t, const nb_occasion *o);

/* The line whose signature has the axes that it names, or -1. */
int nb_reason_line(const nb_occasion *o);

/* What would have to be otherwise for fewer bytes, written to t, and those
 * bytes; -1: nothing that is known. */
int64_t nb_cheaper_write(nb_text *t, const nb_occasion *o);

#endif
