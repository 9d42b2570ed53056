/* fiber.c - switching stacks: a few instructions on x86-64, ucontext elsewhere.
 * Stacks lie between pages nobody may touch and are used again.  Each begins at
 * another part of an odd number of pages, or all would share a few lines of the
 * caches. */
#define _GNU_SOURCE
#include "fiber.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, STACK = 256 << 10 };

static char *spare; /* free stacks; each holds the next in its last word */

static char **link_of(char *stack)
{
    return (char **)(void *)(stack + STACK - sizeof(char *));
}

static char *stack_new(void)
{
    if (spare) {
        char *stack = spare;
        spare = *link_of(stack);
        return stack;
    }
    static unsigned made;
    char *at = mmap(NULL, STACK + 3 * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    mprotect(at, PAGE, PROT_NONE);
    return at + PAGE + made++ * 5 % 64 * 64;
}

static void stack_free(char *stack)
{
    *link_of(stack) = spare;
    spare = stack;
}

#ifdef __x86_64__

void sim_switch_stacks(void **save, void *to);

/* What a call must keep goes on the stack; the rest is the caller's affair. */
__asm__(".text\n"
        ".globl sim_switch_stacks\n"
        ".hidden sim_switch_stacks\n"
        ".type sim_switch_stacks, @function\n"
        "sim_switch_stacks:\n"
        "    endbr64\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size sim_switch_stacks, . - sim_switch_stacks\n");

int sim_fiber_new(sim_fiber *f, void (*begin)(void))
{
    f->stack = stack_new();
    if (!f->stack) return 0;
    uint64_t *top = (uint64_t *)(void *)(f->stack + STACK);
    memset(top - 8, 0, 8 * sizeof *top);
    top[-2] = (uint64_t)(uintptr_t)begin; /* returned to, as if called */
    f->top = top - 8;
    return 1;
}

void sim_fiber_free(sim_fiber *f)
{
    if (f->stack) stack_free(f->stack);
    *f = (sim_fiber){0};
}

void sim_fiber_switch(sim_fiber *from, sim_fiber *to)
{
    sim_switch_stacks(&from->top, to->top);
}

#else

#include <ucontext.h>

int sim_fiber_new(sim_fiber *f, void (*begin)(void))
{
    ucontext_t *u = malloc(sizeof *u);
    f->stack = stack_new();
    f->top = u;
    if (!u || !f->stack || getcontext(u)) {
        sim_fiber_free(f);
        return 0;
    }
    u->uc_stack.ss_sp = f->stack;
    u->uc_stack.ss_size = STACK;
    u->uc_link = NULL;
    makecontext(u, begin, 0);
    return 1;
}

void sim_fiber_free(sim_fiber *f)
{
    if (f->stack) stack_free(f->stack);
    free(f->top);
    *f = (sim_fiber){0};
}

void sim_fiber_switch(sim_fiber *from, sim_fiber *to)
{
    if (!from->top) from->top = calloc(1, sizeof(ucontext_t));
    if (!from->top) abort();
    swapcontext(from->top, to->top);
}

#endif
