/* fiber.h - stacks to switch between, in one thread. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

typedef struct sim_fiber {
    void *top;   /* where its registers lie while another runs */
    char *stack; /* NULL: the thread's own */
} sim_fiber;

/* A fiber that enters `begin`, which must never return. */
int sim_fiber_new(sim_fiber *f, void (*begin)(void)); /* 0: no memory */
/* It may be given back at any point of what it ran. */
void sim_fiber_free(sim_fiber *f);
void sim_fiber_switch(sim_fiber *from, sim_fiber *to);

#endif
