/* profile.h - taking times. */
#ifndef NB_RUN_PROFILE_H
#define NB_RUN_PROFILE_H

#include "base/text.h"

#include <stdatomic.h>

extern atomic_bool nb_profile_on;

int64_t nb_profile_now(void); /* nanoseconds, never 0 */

/* Of what begins now: 0 if no times are taken. */
static inline int64_t nb_profile_begin(void)
{
    return atomic_load_explicit(&nb_profile_on, memory_order_relaxed)
               ? nb_profile_now()
               : 0;
}

/* What began then is over; nothing if that is 0.  Kinds live on. */
void nb_profile_end(int64_t began, const char *kind, const char *name);

/* The bytes of tensor data in use, if times are taken. */
void nb_profile_memory(int64_t began);

/* This thread among those that were seen, counted from 1. */
int nb_profile_thread(void);

#endif
