/* devices.c - devices as users ask for them. */
#include "nabla/device.h"

#include "backend/cuda/custom.h"
#include "backend/cuda/memory.h"
#include "base/memory.h"
#include "core/tensor.h"
#include "lower/look.h"

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

/* The card, NULL for the CPU. */
static bool find_card(int device, nb_card **card)
{
    *card = NULL;
    if (device < 0) return nb_fail(NB_EVALUE, "%d is not a device", device);
    return !device || (*card = nb_card_at(device - 1));
}

const char *nb_device_name(int device)
{
    static _Thread_local char name[2][16];
    static _Thread_local int turn; /* one message may name two */
    nb_card *card;
    if (!find_card(device, &card)) return NULL;
    if (!card) return "cpu";
    turn = !turn;
    snprintf(name[turn], sizeof name[turn], "gpu:%d", device - 1);
    return name[turn];
}

/* The card, started; NULL with an error. */
static nb_card *started(int device)
{
    nb_card *card;
    if (!find_card(device, &card)) return NULL;
    if (!card)
        return nb_fail(NB_EVALUE, "the CPU has no stream; cards are 1, 2, ...");
    return nb_card_enter(card) ? card : NULL;
}

void *nb_device_stream(int device)
{
    const nb_card *card = started(device);
    return card ? card->stream : NULL;
}

nb_status nb_device_after(int device, void *stream)
{
    nb_card *card = started(device);
    return NB_STATUS(card && nb_card_stream_after(card, card->stream, stream));
}

nb_status nb_device_before(int device, void *stream)
{
    nb_card *card = started(device);
    return NB_STATUS(card && nb_card_stream_after(card, stream, card->stream));
}

/* Memory of others.  The owner may use it again at once, on any stream. */

typedef struct loan {
    int device;
    void (*release)(void *owner);
    void *owner;
} loan;

static void end_loan(void *p)
{
    loan l = *(loan *)p;
    nb_free(p);
    nb_card *card = nb_card_at(l.device - 1);
    if (card && !nb_card_sync(card)) nb_error_clear();
    if (l.release) l.release(l.owner);
}

nb_tensor *nb_borrow_on(int device, nb_dtype dtype, int rank,
                        const int64_t *shape, const int64_t *strides,
                        void *data, void (*release)(void *owner), void *owner)
{
    if (!device)
        return nb_borrow(dtype, rank, shape, strides, data, release, owner);
    nb_card *card = started(device);
    if (!card) return NULL;
    if (data && !nb_card_reaches(card, data))
        return nb_error_code()
                   ? NULL
                   : nb_fail(NB_EVALUE,
                             "borrow: what lies at %p is not memory of %s, or "
                             "that of another context of it",
                             data, nb_device_name(device));
    loan *l = nb_alloc(sizeof *l);
    if (!l) return NULL;
    *l = (loan){device, release, owner};
    nb_tensor *x = nb_leaf_on(
        device, nb_borrow(dtype, rank, shape, strides, data, end_loan, l));
    if (!x) nb_free(l);
    return x;
}

void *nb_device_data(nb_tensor *x, int64_t *strides)
{
    if (!x || !x->device) return (void *)nb_data(x, strides);
    return (void *)nb_data_there(x, strides);
}

static nb_buffer *copied(nb_tensor *x, const char *from, const int64_t *stride)
{
    int64_t size[NB_MAX_RANK], packed[NB_MAX_RANK];
    size_t bytes = (size_t)nb_elements(x) * nb_dtype_size((nb_dtype)x->dtype);
    nb_buffer *b = nb_buffer_on(x->device, bytes);
    nb_sizes(x, size);
    nb_packed_strides(x->rank, size, packed);
    bool ok =
        b &&
        (x->device ? nb_on_card.elements(x->device, (nb_dtype)x->dtype, x->rank,
                                         size, b->data, packed, from, stride)
                   : nb_read(x, NB_NOTYPE, b->data) == NB_OK);
    if (ok) return b;
    nb_buffer_drop(b);
    return NULL;
}

nb_tensor *nb_device_copy(nb_tensor *x)
{
    int64_t stride[NB_MAX_RANK];
    const char *from = nb_data_there(x, stride);
    nb_buffer *b = from ? copied(x, from, stride) : NULL;
    if (!b) return NULL;
    nb_shape s = {.rank = x->rank};
    for (int d = 0; d < x->rank; d++)
        s.size[d] = nb_tensor_size(x)[d];
    nb_tensor *y = nb_leaf_on(
        x->device, nb_leaf_new((nb_dtype)x->dtype, &s, b, b->data, NULL));
    nb_buffer_drop(b);
    return y;
}

nb_status nb_device_wait(int device)
{
    nb_card *card;
    if (!find_card(device, &card)) return nb_error_code();
    return NB_STATUS(!card ||
                     (nb_card_sync(card) && nb_card_words_check(card)));
}

/* As that of a card. */
static nb_card_memory memory_here(void)
{
    return (nb_card_memory){.live = nb_block_bytes(),
                            .cached = nb_block_kept(),
                            .peak = nb_block_peak()};
}

nb_status nb_device_memory_of(int device, nb_device_memory *m)
{
    nb_card_memory is = memory_here();
    nb_card *card;
    *m = (nb_device_memory){0};
    if (!find_card(device, &card)) return nb_error_code();
    if (card) nb_card_memory_get(card, &is);
    *m = (nb_device_memory){
        .used = (int64_t)is.live,
        .most = (int64_t)is.peak,
        .kept = (int64_t)is.cached,
        .all = (int64_t)(card ? card->memory : nb_memory_limit())};
    return NB_OK;
}

nb_status nb_device_peak_reset(int device)
{
    nb_card *card;
    if (!find_card(device, &card)) return nb_error_code();
    card ? nb_card_peak_reset(card) : nb_block_peak_reset();
    return NB_OK;
}

nb_status nb_device_trim(int device)
{
    nb_card *card;
    if (!find_card(device, &card)) return nb_error_code();
    card ? nb_card_trim(card) : nb_block_trim();
    return NB_OK;
}
