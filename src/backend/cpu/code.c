/* code.c - references to machine code. */
#include "backend/cpu/code.h"

#include "backend/cpu/elf.h"

#include <stdatomic.h>
#include <stdlib.h>

struct nb_code {
    atomic_int references;
    nb_image image;
    void (*gone)(void *);
    void *gone_arg;
};

static atomic_int_fast64_t mapped;

nb_code *nb_code_load(const void *object, size_t n)
{
    nb_code *c = nb_alloc_zero(sizeof *c);
    if (!c) return NULL;
    if (!nb_elf_load(object, n, &c->image)) {
        nb_free(c);
        return NULL;
    }
    c->references = 1;
    mapped += (int64_t)c->image.size;
    return c;
}

void *nb_code_find(const nb_code *c, const char *name)
{
    nb_function wanted = {.name = name};
    const nb_function *f =
        bsearch(&wanted, c->image.functions, (size_t)c->image.n, sizeof wanted,
                nb_function_compare);
    return f ? f->at : NULL;
}

nb_code *nb_code_keep(nb_code *c)
{
    if (c) c->references++;
    return c;
}

bool nb_code_keep_if_live(nb_code *c)
{
    int n = c->references;
    while (n > 0)
        if (atomic_compare_exchange_weak(&c->references, &n, n + 1))
            return true;
    return false;
}

void nb_code_watch(nb_code *c, void (*gone)(void *), void *arg)
{
    c->gone = gone;
    c->gone_arg = arg;
}

void nb_code_drop(nb_code *c)
{
    if (!c || --c->references > 0) return;
    if (c->gone) c->gone(c->gone_arg);
    mapped -= (int64_t)c->image.size;
    nb_image_free(&c->image);
    nb_free(c);
}

int64_t nb_code_bytes(void)
{
    return mapped;
}
