/* attention_match.h - attention found among the lines of a program.
 *
 * It begins with a product, the scores, goes on with their softmax and ends in
 * products with v, with what flows back, and with q and k: those lines are what
 * the two ops of attention.h give.  What is between is known by algebra, not by
 * its shape: every matrix of scores there is a sum of products of e^score, of
 * its sum along keys, of g v^T and of what that comes to on average. */
#ifndef NB_LOWER_ATTENTION_MATCH_H
#define NB_LOWER_ATTENTION_MATCH_H

#include "core/graph.h"

/* A tensor: its line, -1 if there is none, and which dim of the scores each of
 * its dims is; NB_OWN: none, it has that one alone. */
enum { NB_OWN = NB_MAX_RANK };
typedef struct nb_attention_side {
    int line, rank;
    int8_t role[NB_MAX_RANK];
} nb_attention_side;

typedef struct nb_attention_found {
    int scores;     /* the line of the product */
    int rank, t, s; /* the dims of queries and of keys among its dims */
    double scale;
    int64_t ahead;
    nb_attention_side q, k, v, g;    /* what is read */
    nb_attention_side o, dq, dk, dv; /* what is made; lines -1: not wanted */
    int at, back_at; /* lines before which the calls stand, -1: none; what they
                        read is there, or can be moved there */
} nb_attention_found;

/* The line of a mask.  `adds`: zeros leave a key, what is far below takes it;
 * else what is not 0 leaves it, or, unless it `keeps`, takes it. */
typedef struct nb_attention_mask {
    int line;
    bool adds, keeps;
} nb_attention_mask;

/* What was found of a mask over such scores. */
typedef struct nb_attention_seen {
    nb_attention_mask mask;
    int rank, t, s;
    int64_t queries, keys;
    bool known;
    int64_t ahead;
} nb_attention_seen;

/* The program, with a node for each line; who uses lines; room for the work. */
typedef struct nb_attention_lines {
    const nb_graph *graph;
    nb_tensor *const *node;
    int *uses, *user; /* by line: how many, results too, and the last one */
    bool *needed;
    struct nb_attention_term *form;
    nb_attention_seen seen; /* the last; rank 0: none */
} nb_attention_lines;

bool nb_attention_lines_open(nb_attention_lines *l, const nb_graph *g,
                             nb_tensor *const *node);
void nb_attention_lines_close(nb_attention_lines *l);

/* Whether the exponential that line k is belongs to one, whose scores nothing
 * else needs. */
bool nb_attention_find(nb_attention_lines *l, int k, nb_attention_found *f);

/* Puts the ops of attention.h where it is found. */
bool nb_attention_fuse(nb_graph *g);

/* Whether a mask over scores, or what is added to them, is known, and leaves to
 * query t the keys up to t + f->ahead; that is NB_NONE if it leaves all. */
bool nb_attention_mask_ahead(nb_attention_lines *l, nb_attention_mask mask,
                             nb_attention_found *f);

/* A score that far below others has no weight. */
#define NB_FAR_BELOW (-1e4)

#endif
