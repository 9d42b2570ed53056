/* there.c - the device of a test program, for all its threads. */
#include "support/there.h"

#include "backend/cuda/memory.h"
#include "base/memory.h"
#include "core/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int device;

int there(void)
{
    return device;
}

bool there_is_card(void)
{
    return device > 0;
}

void there_open(void)
{
    const char *name = getenv("NABLA_TEST_DEVICE");
    if (!name || !*name || !strcmp(name, "cpu")) return;
    int wanted = 1 + (strncmp(name, "gpu:", 4) ? 0 : atoi(name + 4));
    if (!nb_device_name(wanted)) {
        printf("skipped, no %s: %s\n", name, nb_error_message());
        exit(77);
    }
    device = wanted;
    nb_default_device_ask(there);
}

void there_move(int to)
{
    device = to;
    nb_default_device_ask(there);
}

/* Realised, so that it is a leaf there as it is on the CPU. */
nb_tensor *given(nb_dtype dtype, int rank, const int64_t *shape,
                 const void *data)
{
    nb_tensor *x = nb_constant(dtype, rank, shape, data);
    if (!x || !device) return x;
    nb_tensor *y = nb_to_device(x, device);
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

/* A card keeps names of what it runs. */
static void let_go(void)
{
    if (!device) return;
    nb_caches_clear();
    nb_device_wait(device);
}

int64_t nodes_left(void)
{
    let_go();
    return nb_nodes_live();
}

int64_t memory_left(void)
{
    let_go();
    return nb_memory_live();
}

static nb_card_memory on_card(void)
{
    nb_card_memory m;
    nb_card_memory_get(nb_card_at(device - 1), &m);
    return m;
}

size_t there_bytes(void)
{
    return device ? on_card().live : nb_block_bytes();
}

size_t there_peak(void)
{
    return device ? on_card().peak : nb_block_peak();
}

void there_peak_reset(void)
{
    if (device)
        nb_card_peak_reset(nb_card_at(device - 1));
    else
        nb_block_peak_reset();
}

/* The cases that are taken: those at a multiple of `every` whose number among
 * them leaves `part` when divided by `parts`. */
static struct share {
    int every, part, parts;
} share;

static void share_find(void)
{
    const char *every = getenv("NABLA_TEST_EVERY");
    const char *part = getenv("NABLA_TEST_PART");
    if (share.every) return;
    share.every = every && atoi(every) > 0 ? atoi(every) : 1;
    if (!part || sscanf(part, "%d/%d", &share.part, &share.parts) != 2 ||
        share.part < 0 || share.part >= share.parts)
        share.part = 0, share.parts = 1;
}

bool there_takes(void)
{
    static int seen;
    int i = seen++;
    share_find();
    return i % share.every == 0 && i / share.every % share.parts == share.part;
}

bool there_leads(void)
{
    share_find();
    return share.part == 0;
}

bool there_shares(int k)
{
    share_find();
    return k % share.parts == share.part;
}

int64_t there_next(int64_t n)
{
    const char *all = getenv("NABLA_TEST_ALL");
    bool each = !device || (all && !strcmp(all, "1"));
    return n + 1 + (each ? 0 : n / 8);
}
