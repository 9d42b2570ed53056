/* card_memory.c - tensors on a card: their memory, and copies to and fro. */
#include "run/card_parts.h"

#include "backend/cuda/memory.h"

typedef struct block {
    nb_card *card;
    void *data;
    size_t room;
} block;

static void give_back(void *owner)
{
    block *b = owner;
    nb_card_free(b->card, b->data, b->room);
    nb_free(b);
}

static nb_buffer *buffer(int device, size_t bytes)
{
    nb_card *card = nb_card_at(device - 1);
    nb_buffer *b = card ? nb_alloc(sizeof *b) : NULL;
    block *own = b ? nb_alloc(sizeof *own) : NULL;
    if (own) *own = (block){.card = card};
    if (!own ||
        !(own->data = nb_card_alloc(card, bytes ? bytes : 1, &own->room))) {
        nb_free(own), nb_free(b);
        return NULL;
    }
    *b = (nb_buffer){.refs = 1,
                     .data = own->data,
                     .room = own->room,
                     .release = give_back,
                     .owner = own};
    nb_card_wake(card);
    return b;
}

static size_t bytes_of(const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], n = 1;
    for (int d = nb_tensor_strides(x, size, stride) - 1; d >= 0; d--)
        n *= size[d];
    return (size_t)n * nb_dtype_size((nb_dtype)x->dtype);
}

bool nb_card_transfer(char *to, int device, const char *from, int from_device,
                      size_t n)
{
    if (!n) return true;
    nb_card *card = nb_card_at((device ? device : from_device) - 1);
    if (!card) return false;
    if (!device) return nb_card_get(card, to, from, n);
    if (!from_device) return nb_card_put(card, to, from, n);
    if (device == from_device) return nb_card_copy(card, to, from, n);
    nb_card *other = nb_card_at(from_device - 1);
    return other && nb_card_copy_from(card, to, other, from, n);
}

nb_tensor *nb_tensor_on(nb_tensor *x, int device)
{
    nb_shape shape = nb_tensor_shape(x);
    if (!x->device && !device) return nb_tensor_packed(x);
    if (x->device == device && x->buffer && nb_tensor_is_packed(x)) return x;
    size_t n = bytes_of(x);
    bool packed = nb_tensor_is_packed(x);
    if (!packed && !x->device) {
        if (!(x = nb_tensor_packed(x))) return NULL;
    } else if (!packed && x->device != device) {
        if (!(x = nb_tensor_on(x, x->device))) return NULL;
    }
    nb_buffer *b = nb_buffer_on(device, n);
    bool ok = b;
    if (ok && !nb_tensor_is_packed(x))
        ok = nb_card_pack(device, b->data, x);
    else if (ok)
        ok = nb_card_transfer(b->data, device, x->data, x->device, n);
    nb_tensor *y =
        ok ? nb_leaf_new((nb_dtype)x->dtype, &shape, b, b->data, NULL) : NULL;
    if (y) y->device = (uint8_t)device;
    nb_buffer_drop(b);
    return y;
}

static nb_tensor *fetch(nb_tensor *x)
{
    return nb_tensor_on(x, 0);
}

static bool copy_there(int device, char *to, const char *from, size_t n)
{
    return nb_card_transfer(to, device, from, device, n);
}

static bool read_there(int device, void *to, const char *from, size_t n)
{
    return nb_card_transfer(to, 0, from, device, n);
}

static bool write_there(int device, char *to, const void *from, size_t n)
{
    return nb_card_transfer(to, device, from, 0, n);
}

const nb_card_bytes nb_on_card = {buffer,     nb_card_elements, copy_there,
                                  read_there, write_there,      fetch};
