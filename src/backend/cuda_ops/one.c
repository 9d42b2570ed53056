/* one.c - calls that are one kernel. */
#include "backend/cuda_ops/one.h"

#include "backend/cuda_ops/text.h"

#include <assert.h>
#include <string.h>

const char nb_one_text[] =
#include "backend/cuda_ops/one.cu"
    ;

/* As in one.cu. */
typedef struct at {
    const char *in[NB_ONE_OPERANDS - 1];
    char *out;
} at;

typedef struct one {
    nb_card_job job;
    nb_card *card;
    nb_card_code *code;
    int64_t count;
    int nin;
    _Alignas(8) char known[NB_ONE_MOST];
} one;

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    one *o = (one *)j;
    at where = {.out = out[0]};
    unsigned grid[3] = {nb_card_grid(o->card, o->count), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    void *args[] = {o->known, &where};
    for (int i = 0; i < o->nin; i++)
        where.in[i] = in[i];
    (void)workspace;
    return nb_card_launch(o->card, o->code, grid, block, 0, args, what);
}

static void release(nb_card_job *j)
{
    one *o = (one *)j;
    nb_card_code_drop(o->code);
    nb_free(o);
}

bool nb_card_one_make(nb_card *card, nb_text *text, const char *name, int nin,
                      const void *known, size_t bytes, int64_t count,
                      nb_card_job **job)
{
    one *o = nb_alloc_zero(sizeof *o);
    nb_card_source source = {nb_text_get(text), name};
    assert(bytes <= sizeof o->known && nin < NB_ONE_OPERANDS);
    bool ok = o && nb_card_build(card, 1, &source, &o->code);
    nb_text_free(text);
    if (!ok) return nb_free(o), false;
    o->job = (nb_card_job){.run = run, .free = release};
    o->card = card;
    o->count = count;
    o->nin = nin;
    memcpy(o->known, known, bytes);
    *job = &o->job;
    return true;
}
