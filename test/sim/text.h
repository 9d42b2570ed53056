/* text.h - what the simulator must know of a kernel's text before it compiles
 * it as C++. */
#ifndef SIM_TEXT_H
#define SIM_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A text that grows; it stays NULL once memory was short. */
typedef struct sim_text {
    char *chars;
    size_t count, room;
    bool failed;
} sim_text;

void sim_text_add(sim_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_text_part(sim_text *t, const char *from, size_t n);
void sim_text_free(sim_text *t);

typedef struct sim_found {
    char name[256];
    int threads; /* of __launch_bounds__ */
} sim_found;

/* The kernels a text defines, but templates; how many, at most `room`. */
int sim_text_kernels(const char *text, sim_found *list, int room);
/* Whether threads may meet. */
bool sim_text_meets(const char *text);
/* The text with `extern __shared__ T x[];` bound to the dynamic memory. */
void sim_text_bind(sim_text *to, const char *text);

#endif
