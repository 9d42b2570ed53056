/* nabla/random.h - random numbers.
 *
 * A key is a tensor of two words, uint32[2].  What is drawn depends on the key
 * alone: the same key gives the same numbers, however and wherever they are
 * computed, and element i of a draw (counted in row-major order) is the same
 * whatever the shape.  So a key is used once; nb_random_split makes new ones
 * from it.  The generator is Philox 4x32-10, a function of key and index.
 *
 *     int64_t shape[] = {8, 4};
 *     nb_tensor *key = nb_random_key(42);
 *     nb_tensor *x = nb_random_normal(key, 2, shape, 0, 1, NB_F32);
 *
 * Inside a vmap a draw is shared by all lanes unless the key or a parameter
 * differs from lane to lane; nb_random_key_like makes such a key.
 *
 * A rank below zero with a shape of NULL stands for the shape that the other
 * arguments give; a dtype of NB_NOTYPE for the default float. */
#ifndef NABLA_RANDOM_H
#define NABLA_RANDOM_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The key of a seed. */
NB_API nb_tensor *nb_random_key(int64_t seed);

/* num keys made from one, of shape (num, 2). */
NB_API nb_tensor *nb_random_split(nb_tensor *key, int64_t num);

/* A key made from a key and integers, say the number of a step: of shape
 * (..., 2) for keys (..., 2) and data (...). */
NB_API nb_tensor *nb_random_fold_in(nb_tensor *key, nb_tensor *data);

/* The key, another one in every lane in which x differs. */
NB_API nb_tensor *nb_random_key_like(nb_tensor *key, nb_tensor *x);

/* Evenly from low to below high, which are rounded to the dtype first: high
 * itself never comes. */
NB_API nb_tensor *nb_random_uniform(nb_tensor *key, int rank,
                                    const int64_t *shape, double low,
                                    double high, nb_dtype dtype);

/* From the normal distribution. */
NB_API nb_tensor *nb_random_normal(nb_tensor *key, int rank,
                                   const int64_t *shape, double mean,
                                   double std, nb_dtype dtype);

/* From the part of the standard normal distribution between lower and upper,
 * which may be infinite. */
NB_API nb_tensor *nb_random_truncated_normal(nb_tensor *key, double lower,
                                             double upper, int rank,
                                             const int64_t *shape,
                                             nb_dtype dtype);

/* True with probability p, which broadcasts to the shape (rank < 0: has it). */
NB_API nb_tensor *nb_random_bernoulli(nb_tensor *key, nb_tensor *p, int rank,
                                      const int64_t *shape);

/* Integers from low to below high; dtype NB_NOTYPE: int64. */
NB_API nb_tensor *nb_random_randint(nb_tensor *key, int rank,
                                    const int64_t *shape, int64_t low,
                                    int64_t high, nb_dtype dtype);

/* Indices along an axis of logits, each with a probability in proportion to
 * the exponential of its logit.  The result has the shape of logits without
 * the axis, or a shape that this broadcasts to. */
NB_API nb_tensor *nb_random_categorical(nb_tensor *key, nb_tensor *logits,
                                        int64_t axis, int rank,
                                        const int64_t *shape);

/* x in another order along an axis; an integer n without axes, as nb_count(n),
 * stands for 0 .. n - 1. */
NB_API nb_tensor *nb_random_permutation(nb_tensor *key, nb_tensor *x,
                                        int64_t axis);

/* One generator of keys for the whole process, for programs that do not carry
 * keys: the next key, and a new start.  The seed is 0 at first.  Any thread
 * may ask; which gets which key is then a matter of chance. */
NB_API nb_tensor *nb_next_key(void);
NB_API void nb_manual_seed(int64_t seed);

#ifdef __cplusplus
}
#endif
#endif
