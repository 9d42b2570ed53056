/* nabla/rule.h - rules: which dims of an op's operands and results run
 * together, and what becomes of them when they are split over devices.
 *
 * A template is a text, such as
 *
 *     ... m k, ... k n -> ... m n
 *
 * operands separated by commas, dims by blanks.  m is a factor: dims of one
 * name are split alike.  "..." are the other leading dims, aligned from the
 * right ("...1" those of another batch); 1 is a dim that is never split; (a b)
 * is one dim made of two factors, a major; ? is a factor of that dim of a result
 * alone.  A factor that no result has is reduced, by a sum unless max{k},
 * min{k}, prod{k}, and{k} or or{k} says otherwise.  Other attributes, after a
 * semicolon and separated by commas, are
 *
 *     replicate{r}  needed whole
 *     permute{r}    stays split, neighbours exchange; every tensor has a size
 *                   of its own along it
 *     scan{r}       stays split, totals are passed on
 *     mask{r}       stays split, each device sees to the indices in its range
 *     blocked{r}    nothing propagates along it
 *     r=4           its size
 *
 * A rule is a template on shapes: dots are spelled out, factors have sizes. */
#ifndef NABLA_RULE_H
#define NABLA_RULE_H

#include "nabla/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_sig nb_rule_template;
typedef struct nb_rule nb_rule;

/* The template that a text says; it lives as long as the process.  NULL with
 * NB_EVALUE, the position and what stands there if the text is wrong. */
NB_API const nb_rule_template *nb_rule_parse(const char *text);

/* That of a reshape: "i j k -> (i j) k" from (2, 4, 32) to (8, 32).  NULL with
 * NB_EVALUE unless both shapes have the same number of elements. */
NB_API const nb_rule_template *nb_rule_reshape(int nfrom, const int64_t *from,
                                               int nto, const int64_t *to);

/* The template whose tensors have these dims: of each the factors, major to
 * minor, none for one that is never split. */
typedef struct nb_rule_names {
    int n;
    const char *const *name;
} nb_rule_names;

typedef struct nb_rule_mapping {
    int rank;
    const nb_rule_names *dim;
} nb_rule_mapping;

NB_API const nb_rule_template *nb_rule_map(int nin, const nb_rule_mapping *in,
                                           int nout,
                                           const nb_rule_mapping *out);

/* The text in one form, which parses to the same.  Yours: nb_text_release. */
NB_API char *nb_rule_template_text(const nb_rule_template *t);

/* Operands, results. */
NB_API int nb_rule_template_inputs(const nb_rule_template *t);
NB_API int nb_rule_template_results(const nb_rule_template *t);

typedef struct nb_rule_shape {
    int rank;
    const int64_t *size; /* of each dim; -1: not known */
} nb_rule_shape;

/* The rule on these shapes; `out` NULL: results have the shapes that follow.
 * Yours: nb_rule_free.  NULL with NB_EVALUE if shapes do not fit the template,
 * or a factor's size does not follow from them. */
NB_API nb_rule *nb_rule_new(const nb_rule_template *t, int nin,
                            const nb_rule_shape *in, int nout,
                            const nb_rule_shape *out);
NB_API void nb_rule_free(nb_rule *r);

/* The rule as a template for tensors of these ranks: dots are spelled out as
 * b0 b1 ...  Yours: nb_text_release. */
NB_API char *nb_rule_text(const nb_rule *r);

/* What was rewritten, NULL if nothing: a group whose other members have size
 * one is read as the one that is left. */
NB_API const char *nb_rule_note(const nb_rule *r);

/* Tensors are numbered through: inputs, then results. */
NB_API int nb_rule_inputs(const nb_rule *r);
NB_API int nb_rule_results(const nb_rule *r);
NB_API int nb_rule_rank(const nb_rule *r, int tensor);
NB_API int64_t nb_rule_size(const nb_rule *r, int tensor, int dim);

/* Factors of a dim, major to minor: how many, and number k of them. */
NB_API int nb_rule_dim_factors(const nb_rule *r, int tensor, int dim);
NB_API int nb_rule_dim_factor(const nb_rule *r, int tensor, int dim, int k);

/* What a factor does when it is split: nb_rule_factor_info.kind is "pass",
 * "reduce", or one of the attributes above.  Names of dims behind dots are
 * ".0_0", ".0_1" ..., of a ? "?0", "?1" ... */
typedef struct nb_rule_factor_info {
    const char *name, *kind;
    const char *reduce; /* "sum", ... of one that is reduced, else NULL */
    int64_t size;       /* -1: a ? of a result whose shape is not known */
} nb_rule_factor_info;

NB_API int nb_rule_factors(const nb_rule *r);
NB_API int nb_rule_factor_find(const nb_rule *r, const char *name); /* or -1 */
NB_API bool nb_rule_factor(const nb_rule *r, int factor,
                           nb_rule_factor_info *info);

/* How operands that lie so are wanted (`need`, may be NULL) and how the results
 * lie then, what is reduced over a split factor pending.  NULL among `in`: as
 * the rule wants it. */
NB_API nb_status nb_rule_resolve(const nb_rule *r, const nb_mesh *m,
                                 const nb_spec *const *in, const nb_spec **need,
                                 const nb_spec **give);

/* Both ways, without moving anything: specs of operands and results, NULL for
 * one that says nothing, of which open dims get the axes of dims that run along
 * with them.  Dims of a priority beyond `priority` say nothing yet; -1: all
 * do. */
NB_API nb_status nb_rule_propagate(const nb_rule *r, const nb_mesh *m,
                                   int priority, const nb_spec **spec,
                                   bool *changed);

#ifdef __cplusplus
}
#endif
#endif
