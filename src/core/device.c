/* device.c - where tensors are, and that those of a call are together. */
#include "nabla/device.h"

#include "core/apply.h"
#include "core/lanes.h"
#include "core/tensor.h"

#include <string.h>

static _Thread_local int in_force = -1, by_default;
static int (*_Atomic asked)(void);

int nb_device_enter(int device)
{
    int was = in_force;
    in_force = device;
    return was;
}

int nb_device_in_force(void)
{
    return in_force >= 0 ? in_force : nb_default_device();
}

int nb_default_device(void)
{
    int (*ask)(void) = atomic_load(&asked);
    return ask ? ask() : by_default;
}

void nb_default_device_ask(int (*ask)(void))
{
    atomic_store(&asked, ask);
}

nb_status nb_default_device_set(int device)
{
    if (!nb_device_name(device)) return nb_error_code();
    by_default = device;
    return NB_OK;
}

int nb_device_of(const nb_tensor *x)
{
    return x ? x->device : 0;
}

/* Moving.  Back from a derivative it is the other way. */

static nb_tensor *move(nb_tensor *x, int device)
{
    int64_t attr = device;
    return nb_record(&nb_op_to_device, 1, &x, 1, &attr);
}

static nb_tensor *transpose(const nb_call *c, int i, nb_tensor *ct)
{
    return nb_to_device(ct, c->in[i]->device);
}

nb_op nb_op_to_device = {
    .name = "to_device",
    .doc = "The same value on another device: 0 is the CPU, 1 + k is card k.",
    .params = "x, device:int",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .lands = 1,
    .transpose = transpose,
};

nb_tensor *nb_to_device(nb_tensor *x, int device)
{
    if (!x || !nb_device_name(device)) return NULL;
    if (x->device == device && !nb_tensor_is_number(x)) return x;
    if (x->flags & NB_WEAK) x = nb_as(x, (nb_dtype)x->dtype);
    return device || x->device ? move(x, device) : x;
}

nb_tensor *nb_on_at_once(nb_tensor *x, int device)
{
    nb_tensor *y = nb_to_device(x, device);
    return !y || y == x || nb_realize_now(1, &y) ? y : NULL;
}

/* Where they have to be: with those that lie on a mesh, which others follow. */
static int meeting_place(int nin, nb_tensor *const *in, bool *mesh)
{
    int device = 0;
    for (int i = 0; i < nin; i++)
        if ((*mesh = in[i]->sharding)) return in[i]->device;
    for (int i = 0; i < nin; i++)
        device = device ? device : in[i]->device;
    return device;
}

bool nb_settle_devices(const char *who, int nin, nb_tensor **in)
{
    bool mesh = false;
    int device = meeting_place(nin, in, &mesh);
    if (!device && !mesh) return true;
    for (int i = 0; i < nin; i++) {
        if (in[i]->device == device || nb_tensor_is_number(in[i])) continue;
        if ((in[i]->device || in[i]->rank) && (!mesh || in[i]->sharding))
            return nb_fail(NB_EVALUE,
                           "%s: operands must be on the same device, not on "
                           "%s and %s (to_device moves one)",
                           who, nb_device_name(device),
                           nb_device_name(in[i]->device));
        if (!(in[i] = move(in[i], device))) return false;
    }
    return true;
}

nb_buffer *nb_buffer_on(int device, size_t bytes)
{
    return device ? nb_on_card.buffer(device, bytes) : nb_buffer_new(bytes);
}

bool nb_bytes_copy(int device, char *to, const char *from, size_t n)
{
    if (device) return nb_on_card.copy(device, to, from, n);
    if (n) memcpy(to, from, n);
    return true;
}

bool nb_bytes_read(int device, void *to, const char *from, size_t n)
{
    if (device) return nb_on_card.read(device, to, from, n);
    memcpy(to, from, n);
    return true;
}
