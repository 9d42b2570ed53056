/* real.h - the real compiler beside the simulated one.
 *
 * Where NABLA_SIM_NVRTC names a libnvrtc, what the simulated compiler takes is
 * compiled by that too, for 8.0 and for 9.0; no card is needed.  What it
 * refuses is refused.  NABLA_SIM_CHECKED is a folder that remembers what it
 * took, so that the same text is not given to it again. */
#ifndef SIM_REAL_H
#define SIM_REAL_H

#include <stdbool.h>

/* A libnvrtc is named. */
bool sim_real_asked(void);

/* NULL, or what it says, to be freed.  seen: the text with what it includes, or
 * NULL.  Options are those of the program; names are expressions whose kernels
 * are wanted. */
char *sim_real_check(const char *text, const char *seen, int headers,
                     char *const *header, char *const *header_name,
                     int noptions, const char *const *option, int nnames,
                     char *const *name);

#endif
