/* stream.c - waiting: the host for a stream, one stream for another. */
#include "backend/cuda/parts.h"

bool nb_card_sync(nb_card *c)
{
    if (!c->started) return nb_card_ok(c);
    if (!nb_card_enter(c) || !nb_card_is_free(c, "waiting")) return false;
    uint64_t n = nb_card_launches(c);
    if (!nb_card_check(c, c->api->StreamSynchronize(c->stream), "waiting"))
        return false;
    nb_card_ended(c, n);
    return true;
}

void nb_card_time_open(nb_card *c)
{
    pthread_mutex_lock(&c->timing);
}

void nb_card_time_close(nb_card *c)
{
    pthread_mutex_unlock(&c->timing);
}

void *nb_card_stream_new(nb_card *c)
{
    void *stream = NULL;
    if (!nb_card_enter(c) ||
        !nb_card_check(
            c, c->api->StreamCreate(&stream, NB_CUDA_STREAM_NON_BLOCKING),
            "a stream cannot be made"))
        return NULL;
    return stream;
}

void nb_card_stream_free(nb_card *c, void *stream)
{
    if (!stream || !nb_card_reenter(c)) return;
    c->api->StreamSynchronize(stream);
    nb_card_pool_forget(c, stream);
    c->api->StreamDestroy(stream);
}

/* The event may be recorded again as soon as it is waited for: a wait is for
 * what was recorded last before it. */
bool nb_card_stream_after(nb_card *c, void *later, void *earlier)
{
    if (later == earlier) return true;
    if (!nb_card_enter(c)) return false;
    pthread_mutex_lock(&c->lock);
    bool ok = nb_card_check(c, c->api->EventRecord(c->event, earlier),
                            "recording an event") &&
              nb_card_check(c, c->api->StreamWaitEvent(later, c->event, 0),
                            "waiting for an event");
    pthread_mutex_unlock(&c->lock);
    return ok;
}
