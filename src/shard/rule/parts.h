/* parts.h - what the files that make a rule share. */
#ifndef NB_SHARD_RULE_PARTS_H
#define NB_SHARD_RULE_PARTS_H

#include "shard/rule/rule.h"

enum { NB_RULE_FACTORS = NB_MAX_FACTORS + NB_MAX_BATCHES * NB_MAX_RANK };

/* A tensor that the rule is made for. */
typedef struct nb_rule_operand {
    int rank; /* -1: what follows */
    int64_t size[NB_MAX_RANK];
} nb_rule_operand;

typedef struct nb_rule_builder {
    nb_rule *rule;
    const nb_sig *sig;
    const nb_rule_operand *operand;
    int width[NB_MAX_BATCHES], first[NB_MAX_BATCHES]; /* of dots; factors */
    /* Which dim told a factor's size; tensor -1: none, it was written. */
    struct {
        int tensor, dim;
    } by[NB_RULE_FACTORS];
} nb_rule_builder;

/* What is written of tensor t. */
const nb_term *nb_rule_term(const nb_rule *r, int t);

/* Sizes of all factors from those of dims; false with an error. */
bool nb_rule_infer(nb_rule_builder *b);

#endif
