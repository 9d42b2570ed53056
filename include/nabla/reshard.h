/* nabla/reshard.h - how a tensor gets from one layout to another.
 *
 * A plan is a list of steps: slices, which move nothing, and collectives.  What
 * is listed here is what runs when a tensor changes its layout, and the bytes
 * are those that a device receives, at most.  No plan over the mesh axes that it
 * may use can do with fewer bytes than the bound; one that reaches it is
 * minimal.  Plans live as long as the process. */
#ifndef NABLA_RESHARD_H
#define NABLA_RESHARD_H

#include "nabla/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_reshard_plan nb_reshard_plan;

/* What a plan may do other than reshards do by themselves.  These send blocks to
 * blocks directly, in one step, only where a tensor has more than 1 KiB and
 * collectives would move more than 1.25 of the bound. */
enum {
    NB_RESHARD_EXCHANGE = 1,   /* directly wherever that is cheaper */
    NB_RESHARD_WIDE = 2,       /* all-to-alls over several mesh axes at once */
    NB_RESHARD_IDLE = 4,       /* use mesh axes that neither spec has */
    NB_RESHARD_COLLECTIVES = 8 /* directly nowhere */
};

/* The cheapest plan for a tensor of these sizes, as many as both specs have
 * dims; dims of size 1 count as whole.  `may` is a sum of the above, or 0.
 * NB_EVALUE if the specs are of other ranks or their meshes have different
 * devices. */
NB_API const nb_reshard_plan *nb_reshard_plan_of(const nb_spec *from,
                                                 const nb_spec *into, int rank,
                                                 const int64_t *size,
                                                 nb_dtype dtype, int may);

NB_API int nb_reshard_plan_steps(const nb_reshard_plan *p);
NB_API int64_t nb_reshard_plan_bytes(const nb_reshard_plan *p); /* all steps */
NB_API int64_t nb_reshard_plan_bound(const nb_reshard_plan *p);
/* The most bytes that input and output of a step take on a device. */
NB_API int64_t nb_reshard_plan_peak(const nb_reshard_plan *p);
/* By the costs of the mesh. */
NB_API double nb_reshard_plan_seconds(const nb_reshard_plan *p);

/* Of step i: "all_gather"; the mesh axes over which devices talk, "dp,tp"; the
 * layout after it. */
NB_API const char *nb_reshard_step_kind(const nb_reshard_plan *p, int i);
NB_API const char *nb_reshard_step_axes(const nb_reshard_plan *p, int i);
NB_API const nb_spec *nb_reshard_step_into(const nb_reshard_plan *p, int i);
NB_API int64_t nb_reshard_step_bytes(const nb_reshard_plan *p, int i);

/* For people: a line for each step, then the total, the bound, and whether they
 * are the same.  Yours, nb_text_release. */
NB_API char *nb_reshard_plan_text(const nb_reshard_plan *p);

#ifdef __cplusplus
}
#endif
#endif
