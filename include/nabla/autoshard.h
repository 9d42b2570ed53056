/* nabla/autoshard.h - layouts chosen for a whole function.
 *
 * A function is recorded once; how its arguments and every value in it lie over
 * the devices of a mesh is chosen together, so that the least is moved and, if
 * a budget is given, what is there at once fits on a device.  The choice is a
 * plan: it prints, says what it costs and that nothing could cost less than its
 * bound, and makes a function that follows it. */
#ifndef NABLA_AUTOSHARD_H
#define NABLA_AUTOSHARD_H

#include "nabla/shard.h"
#include "nabla/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_auto_plan nb_auto_plan;

/* Result `result` is the new contents of argument `argument`: it comes out as
 * that lies. */
typedef struct nb_auto_alias {
    int result, argument;
} nb_auto_alias;

typedef struct nb_auto_options {
    int64_t memory_budget; /* bytes on a device; 0: any */
    int naliases;
    const nb_auto_alias *alias;
} nb_auto_options;

/* The plan for arguments of the types of x; those that lie on the mesh already
 * stay so.  Yours, nb_auto_plan_drop.  NB_EVALUE if nothing fits the budget:
 * the message says what would be needed. */
NB_API nb_status nb_auto_shard(nb_func *f, const nb_mesh *m, int nx,
                               nb_tensor *const *x, const nb_auto_options *o,
                               nb_auto_plan **out);
NB_API nb_auto_plan *nb_auto_plan_keep(nb_auto_plan *p);
NB_API void nb_auto_plan_drop(nb_auto_plan *p);

/* How argument i is to lie, and result i comes to lie; NULL: there is none. */
NB_API const nb_spec *nb_auto_plan_argument(const nb_auto_plan *p, int i);
NB_API const nb_spec *nb_auto_plan_result(const nb_auto_plan *p, int i);
NB_API int nb_auto_plan_arguments(const nb_auto_plan *p);
NB_API int nb_auto_plan_results(const nb_auto_plan *p);

/* What a run moves, by the costs of the mesh (bytes, if none were set), what no
 * choice can go below, and bytes on a device when the most is there. */
NB_API double nb_auto_plan_cost(const nb_auto_plan *p);
NB_API double nb_auto_plan_bound(const nb_auto_plan *p);
NB_API int64_t nb_auto_plan_memory(const nb_auto_plan *p);

/* The plan as a table: a line for each value, how it lies and which operands
 * have to be moved for it; then cost, bound and memory.  Yours,
 * nb_text_release. */
NB_API char *nb_auto_plan_text(const nb_auto_plan *p);

/* What was recorded, with arguments and values laid out as the plan says; for
 * arguments of the same types.  Lent. */
NB_API nb_func *nb_auto_plan_apply(nb_auto_plan *p);

#ifdef __cplusplus
}
#endif
#endif
