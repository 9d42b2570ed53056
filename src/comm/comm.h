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
#include "shard/plan/plan.h"

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
    int position, on; /* on: what it is, 0 the CPU, 1 + k card k */
    nb_link *link;
    uint64_t round;
    const char *source; /* of the op that runs */
    bool struck;        /* its error says that another has failed */
} nb_device;

/* Who looks at what is received instead of having it copied: at receives that
 * have no data, which come first and are all of one size.  Their bytes from `at`
 * to `at + bytes` lie at data[i], in their order.  Called for one range after
 * another, cut at multiples of 64, until all is read. */
typedef struct nb_reader {
    void (*read)(void *ctx, size_t at, size_t bytes, const void *const *data);
    void *ctx;
} nb_reader;

/* What a device does in a round: messages to others and from others. */
typedef struct nb_post {
    int nsend, nrecv;
    const nb_message *send, *recv;
    const nb_reader *reader; /* or NULL: all receives have data */
} nb_post;

/* What carries bytes between the devices of a mesh. */
struct nb_link {
    const char *name; /* "local", "mpi" */
    /* Best size of a message, 0 if that does not matter.  If it does, a reader
     * can look at one receive only. */
    size_t piece;
    bool cards;  /* messages are on the cards of the devices, not on the CPU */
    bool copies; /* and there are no readers */
    /* Sends and receives all of it; false, with an error that names the peer,
     * the collective and the source, if one fails, or does not come in time.
     * Messages between two devices arrive in the order they were sent. */
    bool (*exchange)(nb_link *l, nb_device *me, const nb_meeting *round,
                     const nb_post *post);
    /* The device has failed, for the reason in the error that is set: whoever
     * waits for it, or will in this run, fails too. */
    void (*fail)(nb_link *l, nb_device *me);
    /* A run begins; and a device has come to its end in it. */
    bool (*start)(nb_link *l, const nb_mesh *m);
    void (*leave)(nb_link *l, nb_device *me);
};

/* The device that this thread is; NULL outside of programs over a mesh. */
nb_device *nb_device_now(void);

/* A step of a plan on this device's block of a tensor of these stored sizes:
 * `in`, packed, becomes `out`, packed and elsewhere; both are memory of what the
 * device is.  Every device of the mesh takes part in every step. */
bool nb_hop_run(nb_device *me, const nb_hop *step, nb_dtype dtype,
                const int64_t *size, const void *in, void *out);

/* Runs fn(ctx, position) for every device of the mesh that this process has,
 * each in a thread that is that device, the first in the caller's; waits for
 * all.  False, with the error of the first device that failed by itself, if one
 * returns false.  One run at a time: others wait for it. */
typedef bool nb_device_fn(void *ctx, int position);
bool nb_devices_run(const nb_mesh *m, nb_device_fn *fn, void *ctx);

/* Whether this process has that device of the mesh, and how many it has: all,
 * or its share of a program of many processes (nabla/distributed.h).  None, with
 * an error, if there is such a program and the mesh cannot be shared out. */
bool nb_device_is_here(const nb_mesh *m, int position);

/* What the devices of a mesh are of which nothing was said (nb_mesh_on). */
void nb_devices_locate(const nb_mesh *m, int *place);

int nb_devices_here(const nb_mesh *m);

/* What steps of a kind have done on the devices of the mesh that are here since
 * the last reset: how often one ran, and the bytes that it received, on the
 * device that received most. */
typedef struct nb_comm_stats {
    int64_t calls, bytes;
} nb_comm_stats;
nb_comm_stats nb_comm_stats_get(const nb_mesh *m, nb_hop_kind kind);
void nb_comm_stats_reset(const nb_mesh *m);

/* The n-th exchange from now (1 is the next) of that device, of any mesh,
 * fails, once; 0: none. */
void nb_comm_fault_set(int position, int64_t nth);

#endif
