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

/* "cpu", "gpu:0"; NULL if there is none of that number. */
NB_API const char *nb_device_name(int device);

NB_API int nb_device_of(const nb_tensor *x);

/* x there; itself if it is there already. */
NB_API nb_tensor *nb_to_device(nb_tensor *x, int device);

/* Of this thread; a function that is asked instead, or NULL. */
NB_API int nb_default_device(void);
NB_API nb_status nb_default_device_set(int device);
NB_API void nb_default_device_ask(int (*ask)(void));

/* Waits for all that a card was given to do.  Errors of what it did come out
 * here at the latest. */
NB_API nb_status nb_device_wait(int device);

/* Bytes of a card: in use now and at most so far, kept for later, all that it
 * has. */
typedef struct nb_device_memory {
    int64_t used, most, kept, all;
} nb_device_memory;
NB_API nb_status nb_device_memory_of(int device, nb_device_memory *m);

/* Gives back what is kept for later. */
NB_API nb_status nb_device_trim(int device);

#endif
