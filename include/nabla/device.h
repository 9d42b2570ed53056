/* nabla/device.h - where tensors are: the CPU, or a graphics card.
 *
 * Device 0 is the CPU, device 1 + k is card k.  What an op gives is where its
 * inputs are, which have to be together; numbers go everywhere, and so do
 * tensors without axes on the CPU.  What is made of nothing is on the default
 * device.  Moving is differentiable. */
#ifndef NABLA_DEVICE_H
#define NABLA_DEVICE_H

#include "nabla/tensor.h"

/* All devices that are there; 1 where there is no card, and why: one sentence,
 * "" if there are cards. */
NB_API int nb_devices(void);
NB_API const char *nb_devices_trouble(void);

/* "cpu", "gpu:0"; NULL if there is none of that number, with an error: NB_EVALUE
 * for a negative one, else NB_ERUNTIME, which says how many cards there are or
 * what is missing.  So do all functions here that are given a device.  The name
 * is good until the second next call in this thread. */
NB_API const char *nb_device_name(int device);

NB_API int nb_device_of(const nb_tensor *x);

/* x there; itself if it is there already. */
NB_API nb_tensor *nb_to_device(nb_tensor *x, int device);

/* Of this thread; a function that is asked instead, or NULL. */
NB_API int nb_default_device(void);
NB_API nb_status nb_default_device_set(int device);
NB_API void nb_default_device_ask(int (*ask)(void));

/* Memory of a device that someone else owns, as a tensor: as nb_borrow, which it
 * is for the CPU.  release is called when the card has done what was to be done
 * with it; work of others on that memory is waited for with nb_device_after. */
NB_API nb_tensor *nb_borrow_on(int device, nb_dtype dtype, int rank,
                               const int64_t *shape, const int64_t *strides,
                               void *data, void (*release)(void *owner),
                               void *owner);

/* As nb_data, but where x is: an address of its device, which only that can
 * read, and what is to be there may still be under way (nb_device_before). */
NB_API void *nb_device_data(nb_tensor *x, int64_t *strides);

/* The elements of x in memory of their own, in row-major order, where x is;
 * without history. */
NB_API nb_tensor *nb_device_copy(nb_tensor *x);

/* Everything on a card happens in the order of one stream, a CUstream; NULL,
 * with an error, on the CPU.  What it is given from now on waits for what
 * `stream` has been given so far, and the other way round.  Streams are those of
 * CUDA: NULL and 1 are the legacy default one, 2 is that of the thread. */
NB_API void *nb_device_stream(int device);
NB_API nb_status nb_device_after(int device, void *stream);
NB_API nb_status nb_device_before(int device, void *stream);

/* Waits for all that a card was given to do; on the CPU there is nothing to wait
 * for.  Errors of what it did come out here at the latest. */
NB_API nb_status nb_device_wait(int device);

/* Bytes of a device: in use by tensors and programs now, at most so far or since
 * nb_device_peak_reset, kept for later, and all that it has. */
typedef struct nb_device_memory {
    int64_t used, most, kept, all;
} nb_device_memory;
NB_API nb_status nb_device_memory_of(int device, nb_device_memory *m);
NB_API nb_status nb_device_peak_reset(int device);

/* Gives back what is kept for later. */
NB_API nb_status nb_device_trim(int device);

#endif
