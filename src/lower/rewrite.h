/* rewrite.h - a graph gone through from its first line to its last, and changed
 * on the way.
 *
 * A pass looks at one line at a time.  What that line refers to has been looked
 * at before and is what became of it, so one round settles a graph. */
#ifndef NB_LOWER_REWRITE_H
#define NB_LOWER_REWRITE_H

#include "core/graph.h"

enum { NB_STAYS = -1, NB_GOES = -2 };

typedef struct nb_rewrite {
    nb_graph *graph;
    int at; /* the line looked at; it may be changed */
    int is; /* for the pass to set: the earlier line that stands for it; or that
               it goes, because nothing refers to it */
    /* Lines between at and read are free. */
    int read, end;
} nb_rewrite;

/* Inputs are not looked at: they stay.  Where it fails the graph can only be
 * freed. */
typedef bool nb_visit(nb_rewrite *r, void *ctx);
bool nb_graph_rewrite(nb_graph *g, nb_visit *visit, void *ctx);

/* A line before the one looked at, which moves: where it is, or -1.  Its lists
 * become the graph's, also where that fails. */
int nb_rewrite_insert(nb_rewrite *r, nb_line l);

/* The same of a number. */
int nb_rewrite_number(nb_rewrite *r, nb_dtype dtype, int64_t bits);

/* Line k again, of these inputs, before the line looked at, which moves: its
 * line, or -1. */
int nb_rewrite_copy(nb_rewrite *r, int k, const int *in);

static inline nb_line *nb_rewrite_line(const nb_rewrite *r)
{
    return &r->graph->line[r->at];
}

/* The graph again; or the programs inside its ops too. */
nb_graph *nb_graph_copy_whole(const nb_graph *g);

/* Whether two lines are of one type, hidden axes and all. */
bool nb_line_alike(const nb_line *a, const nb_line *b);

/* Whether the call only looks at elements of its first input. */
bool nb_line_views(const nb_line *l);

/* The number that line k is at all places, or -1. */
int nb_line_uniform(const nb_graph *g, int k);

/* Whether line k is such a number, also as another float: its value. */
bool nb_line_repeats(const nb_graph *g, int k, double *value);

/* The instruction that the call is, at each point of operands of one shape;
 * NB_S_none if it is anything else. */
nb_scalar nb_line_scalar(const nb_line *l);

#endif
