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
/* The text as C++: `extern __shared__ T x[];` is bound to the dynamic memory,
 * and asm becomes calls (ptx.c). */
void sim_text_bind(sim_text *to, const char *text);

/* Words of CUDA C.  The next one, or other character, and where it ends: */
const char *sim_word(const char *p, const char **end);
bool sim_word_is(const char *p, const char *end, const char *word);
/* From an opening bracket past the one that closes it: */
const char *sim_past(const char *p);

/* From behind the word asm past its brackets, or NULL if it is none. */
const char *sim_ptx(sim_text *to, const char *p);

#endif
