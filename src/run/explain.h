/* explain.h - explanations of recorded programs. */
#ifndef NB_RUN_EXPLAIN_H
#define NB_RUN_EXPLAIN_H

#include "core/graph.h"
#include "nabla/explain.h"

/* Of what g does on its inputs, laid out as a whole or from call to call. */
nb_explanation *nb_graph_explain(const nb_graph *g, bool whole);

/* Whether that is within a budget; if not an error, which `who` begins. */
bool nb_explanation_within(const nb_explanation *e, const char *who,
                           int64_t max_collective_bytes);

#endif
