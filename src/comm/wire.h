/* wire.h - what a library of messages between processes is to us.
 *
 * libnabla_mpi.so, which alone is built against MPI, gives one of these; all
 * else that processes need is written over it here, so that a program needs no
 * MPI to load.  Calls come from any thread, one at a time. */
#ifndef NB_COMM_WIRE_H
#define NB_COMM_WIRE_H

#include <stdbool.h>
#include <stddef.h>

enum { NB_WIRE_ABI = 1 };

typedef struct nb_wire {
    int abi, rank, size;
    /* The bytes of every rank, by rank; all call it. */
    bool (*gather)(const void *mine, size_t bytes, void *all);
    /* Starts to send; data stays until sent() has been true.  NULL if too many
     * are on their way. */
    void *(*send)(const void *data, size_t bytes, int rank);
    bool (*sent)(void *request);
    /* Whether a message is there; then receive() takes it. */
    bool (*probe)(int *rank, size_t *bytes);
    bool (*receive)(void *data, size_t bytes, int rank);
    /* Ends it; whole: all ranks do, so that they can take leave together. */
    void (*close)(bool whole);
} nb_wire;

/* The one symbol of such a library; NULL with the reason. */
typedef const nb_wire *nb_wire_open_fn(char *why, size_t room);
#define NB_WIRE_SYMBOL "nb_wire_open"

#endif
