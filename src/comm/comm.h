/* comm.h - devices that talk to each other.
 *
 * Every device of a mesh runs the same program in a thread of its own; devices
 * of other processes do so there.  A thread knows which device it is by its
 * nb_device.  All communication is one thing: everybody posts what it sends and
 * what it receives, and waits.  Collectives, and the moves of nb_hop, are
 * written once over that, with fixed orders of summation, so that results do
 * not depend on what carries the bytes. */
#ifndef NB_COMM_COMM_H
#define NB_COMM_COMM_H

#include "nabla/dtype.h"
#include "shard/plan.h"

typedef struct nb_message {
    int peer; /* position on the mesh */
    void *data;
    size_t bytes;
} nb_message;

typedef struct nb_link nb_link;

/* What a round is about: equal on all who take part, or the round fails. */
typedef struct nb_meeting {
    uint64_t number, what; /* of rounds of this device; a hash of op, shape */
    const char *name;      /* of the collective, for messages */
    const char *source;    /* the user's place, or "" */
} nb_meeting;

typedef struct nb_device {
    const nb_mesh *mesh;
    int position;
    nb_link *link;
    uint64_t round;
    const char *source; /* of the op that runs */
} nb_device;

/* What carries bytes between the devices of a mesh. */
struct nb_link {
    const char *name; /* "local", "mpi" */
    /* Sends and receives all of it; false, with an error that names the peer,
     * the collective and the source, if one fails, or does not come in time.
     * Messages between two devices arrive in the order they were sent. */
    bool (*exchange)(nb_link *l, nb_device *me, const nb_meeting *round,
                     int nsend, const nb_message *send, int nrecv,
                     const nb_message *recv);
    /* The device has failed, for the reason in the error that is set: whoever
     * waits for it, or will in this run, fails too. */
    void (*fail)(nb_link *l, nb_device *me);
};

/* The device that this thread is; NULL outside of programs over a mesh. */
nb_device *nb_device_now(void);

/* A step of a plan on this device's block of a tensor of these stored sizes:
 * `in`, packed, becomes `out`, packed. */
bool nb_hop_run(nb_device *me, const nb_hop *step, nb_dtype dtype,
                const int64_t *size, const void *in, void *out);

/* Runs fn(ctx, position) for every device of the mesh that this process has,
 * each in a thread that is that device; waits for all.  False, with the error
 * of the first device that failed by itself, if one returns false. */
typedef bool nb_device_fn(void *ctx, int position);
bool nb_devices_run(const nb_mesh *m, nb_device_fn *fn, void *ctx);

/* Whether this process has that device of the mesh, and how many it has. */
bool nb_device_is_here(const nb_mesh *m, int position);
int nb_devices_here(const nb_mesh *m);

#endif
