/* hall.h - where the devices of this process meet those of others: what local.c
 * and remote.c share.  All of it is guarded by the lock. */
#ifndef NB_COMM_HALL_H
#define NB_COMM_HALL_H

#include "comm/local.h"

#include <pthread.h>

typedef struct nb_parcel nb_parcel;

typedef struct nb_seat {
    pthread_cond_t wake;
    int position, rank; /* the process that has it */
    nb_device *me;
    const nb_post *post;   /* NULL: not in a round */
    uint64_t number, what; /* of the round that it is in or was in last; 0 */
    char where[NB_WHERE];
    int lacking; /* peers of this process that have not posted; which: */
    bool *lacks;
    int unread;  /* of its messages to them */
    int readers; /* who copy from it right now */
    bool asleep, over;
    int gone; /* a peer that will not come, or -1 */

    /* Of messages to and from other processes (remote.c). */
    int next; /* message to send; and how much of it is sent */
    size_t sent;
    int arriving; /* messages that are not all there */
    int pending;  /* of them, those that cannot be read yet */
    int offered;  /* messages that have not been taken; by position: */
    int *untaken;
    int torn;             /* a peer whose memory could not be read, or -1 */
    bool barred;          /* and will not be */
    uint64_t moved;       /* packets so far, to see whether there is progress */
    nb_parcel *parcel;    /* what came for it, in order */
    const nb_parcel *odd; /* one that it does not expect */
    bool starved;         /* there was no memory to keep one */
    double doubted;       /* since when a peer seems to be elsewhere; 0 */
} nb_seat;

/* first: who failed by itself before all others, or -1. */
typedef struct nb_hall {
    pthread_mutex_t lock;
    const nb_mesh *mesh;
    int on;       /* the card that messages of this process are on, or 0 */
    int rank;     /* this process */
    bool spans;   /* others have devices of the mesh too */
    uint64_t run; /* of those that processes have together, the last */
    int room, first;
    char message[1024];
    nb_seat *at;     /* by position */
    void **outgrown; /* seats there were before, in a list */
} nb_hall;

nb_hall *nb_hall_get(void);
bool nb_seat_is_here(int position); /* the device is of this process */

/* Whether there is such a device, and that process has it: over another mesh a
 * device may be elsewhere. */
bool nb_seat_is_of(int position, int rank);
void nb_seat_wake(nb_seat *s);
void nb_hall_wake_all(void);

/* Of messages, the one to or from that peer with `before` others in front of
 * it, or NULL. */
const nb_message *nb_message_nth(int n, const nb_message *m, int peer,
                                 int before);

/* All of these with the lock held. */

/* fetch.c: reads all that the seat receives and that lies somewhere, in this
 * process or another, the lock released. */
bool nb_seat_read(nb_seat *a);

/* A run begins, or cannot, for the reason in the error that is set. */
bool nb_remote_start(bool ok);

/* The seat has posted: sends what can be sent, binds what has come already. */
void nb_remote_post(nb_seat *a);

/* Whether all that comes from other processes can be read where it is, or comes
 * by itself. */
bool nb_remote_is_ready(const nb_seat *a);

/* Sends, and takes what has come, for whomever; whether there was anything. */
bool nb_remote_work(nb_seat *a);
bool nb_remote_is_done(const nb_seat *a);

/* Waits, the lock released, until there may be work; bell: read before. */
unsigned nb_remote_bell(void);
void nb_remote_wait(nb_seat *a, unsigned bell);
void nb_remote_wake(nb_seat *a);

/* An error that says so. */
bool nb_remote_differs(const nb_seat *a, const nb_parcel *p);

/* Nothing of this round is wanted any more. */
void nb_remote_withdraw(nb_seat *a);
void nb_remote_leave(nb_seat *a); /* nor of this run */

/* Tells the others that this device has failed. */
void nb_remote_fail(int position, const char *message);

/* The position of a peer of another process that the seat waits for, or -1. */
int nb_remote_missing(const nb_seat *a);

/* "device 3", or "device 3 (rank 1)" */
enum { NB_WHO = 48 };
const char *nb_device_text(int position, char text[NB_WHO]);

#endif
