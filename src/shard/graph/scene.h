/* scene.h - a call as those see it who say why its operands move: its factors,
 * and words for its dims. */
#ifndef NB_SHARD_GRAPH_SCENE_H
#define NB_SHARD_GRAPH_SCENE_H

#include "shard/decide/work.h"
#include "shard/graph/reason.h"

typedef struct nb_scene {
    nb_call call;
    nb_factors f;
    nb_work w;
} nb_scene;

/* The call of a line; false if it is none or has no factors. */
bool nb_scene_open(nb_scene *v, const nb_occasion *o, int line);
void nb_scene_close(nb_scene *v);

/* A factor that the signature names, or NULL. */
const char *nb_scene_named(const nb_scene *v, int factor);

/* "k", "(a b)", or if the signature has no name for it "dim 1"; "dp,tp". */
void nb_scene_write_dim(nb_text *t, const nb_scene *v, int tensor, int d);
void nb_scene_write_cut(nb_text *t, const nb_mesh *m, const nb_cut *l);

/* What of a's is not in b. */
nb_cut nb_scene_without(const nb_cut *a, const nb_cut *b);

/* A dim that does not keep its blocks, or -1. */
int nb_scene_moved_dim(const nb_spec *from, const nb_spec *into);

/* How operand i of the user lies; and an operand that has the factor and may
 * never be split on one of these axes, or -1. */
const nb_spec *nb_scene_lies(const nb_occasion *o, const nb_scene *v, int i);
int nb_scene_barred_by(const nb_occasion *o, const nb_scene *v, int factor,
                       const nb_cut *lost);

#endif
