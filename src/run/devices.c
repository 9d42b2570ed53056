/* devices.c - devices as users ask for them. */
#include "nabla/device.h"

#include "backend/cuda/card.h"
#include "backend/cuda/memory.h"

#include <stdio.h>

int nb_devices(void)
{
    return 1 + nb_card_count();
}

const char *nb_devices_trouble(void)
{
    const char *why = nb_card_trouble();
    return why ? why : "";
}

const char *nb_device_name(int device)
{
    static _Thread_local char name[2][16];
    static _Thread_local int turn; /* one message may name two */
    if (!device) return "cpu";
    if (device < 0 || !nb_card_at(device - 1)) {
        if (device < 0) nb_fail(NB_EVALUE, "%d is not a device", device);
        return NULL;
    }
    turn = !turn;
    snprintf(name[turn], sizeof name[turn], "gpu:%d", device - 1);
    return name[turn];
}

nb_status nb_device_wait(int device)
{
    nb_card *card = device ? nb_card_at(device - 1) : NULL;
    if (!device) return NB_OK;
    return NB_STATUS(card && nb_card_sync(card));
}

nb_status nb_device_memory_of(int device, nb_device_memory *m)
{
    nb_card_memory is;
    nb_card *card = nb_card_at(device - 1);
    *m = (nb_device_memory){0};
    if (!card) return nb_error_code();
    nb_card_memory_get(card, &is);
    *m = (nb_device_memory){.used = (int64_t)is.live,
                            .most = (int64_t)is.peak,
                            .kept = (int64_t)is.cached,
                            .all = (int64_t)card->memory};
    return NB_OK;
}

nb_status nb_device_trim(int device)
{
    nb_card *card = device ? nb_card_at(device - 1) : NULL;
    if (!device) return NB_OK;
    if (card) nb_card_trim(card);
    return NB_STATUS(card);
}
