/* attention.h - attention in one step, which a pass makes of programs on a card
 * (pass_attention.c); nobody records it.
 *
 * With s = scale q k^T, masked beyond key t + ahead of query t if there is an
 * ahead, attention gives o = softmax(s) v and lse, the logarithm of the sum of
 * e^s along keys.  attention_back gives what flows back to q, k and v from g,
 * which flows back to o: with p = e^(s - lse),
 *     dv = p^T g,  ds = scale p (g v^T - sum(g o)),  dq = ds k,  dk = ds^T q.
 *
 * A rule says what the dims of each operand are: t queries, s keys, d what is
 * summed for s, e what v has; every other letter is of the batch:
 *     "A B t d, A B s d, A B s e -> A t B e, A B t"
 *
 * attention_back_one is attention_back of as many keys as queries, and of rows
 * of one length, whose three results are parts of one, along z:
 *     "A B t d, ... -> A t z B d; z=3" */
#ifndef NB_LOWER_ATTENTION_H
#define NB_LOWER_ATTENTION_H

#include "core/apply.h"

extern nb_op nb_op_attention;      /* q, k, v -> o, lse */
extern nb_op nb_op_attention_back; /* q, k, v, o, lse, g -> dq, dk, dv */
extern nb_op nb_op_attention_back_one;

enum { NB_ATTENTION_OPERANDS = 9, NB_ATTENTION_BATCH = 4 };

/* An operand: steps in elements.  lse has no columns. */
typedef struct nb_attention_matrix {
    nb_dtype dtype;
    int64_t batch[NB_ATTENTION_BATCH], row, column;
} nb_attention_matrix;

typedef struct nb_attention_form {
    int nbatch, noperands;
    int64_t size[NB_ATTENTION_BATCH];
    int64_t t, s, d, e;
    double scale;
    bool masks;
    int64_t ahead;
    int64_t join; /* from dq to dk and to dv in one result; 0: they are three */
    nb_attention_matrix operand[NB_ATTENTION_OPERANDS]; /* results last */
} nb_attention_form;

/* The form of a call, lanes and all; inputs as they are laid out, results
 * packed.  False with an error if the batch has too many dims. */
bool nb_attention_form_of(nb_attention_form *f, const nb_call *c);

/* The attributes of both: a rule, the scale, how far keys go ahead, or
 * NB_NONE. */
bool nb_attention_attr(nb_op *op, const char *rule, double scale, int64_t ahead,
                       words *w);

#endif
