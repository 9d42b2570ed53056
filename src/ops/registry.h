/* registry.h - the names of ops that were registered at run time. */
#ifndef NB_OPS_REGISTRY_H
#define NB_OPS_REGISTRY_H

#include "core/op.h"

nb_op *nb_registry_find(const char *name); /* or NULL, no error */
bool nb_registry_has(const nb_op *op);

/* Lists the op.  If its name is taken by one that `same` says is no other, that
 * one is listed once more and given, with a use of the caller's; else it is an
 * error. */
nb_op *nb_registry_add(nb_op *op, bool (*same)(const nb_op *, const nb_op *));

/* Takes one listing back; nothing if there is none. */
void nb_registry_remove(const nb_op *op);

#endif
