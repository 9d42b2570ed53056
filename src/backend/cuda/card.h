/* card.h - cards: found once, started when first used.
 *
 * A card has its primary context, which it shares with other CUDA libraries of
 * the process, and one main stream, on which everything happens in order
 * unless a function says otherwise.
 *
 * A kernel that faults does so after its launch has returned.  Whatever call
 * meets the fault first fails with its text and marks the card: every later
 * call for that card fails with the same text.  The context cannot be repaired
 * in this process; the CPU and other cards go on. */
#ifndef NB_CUDA_CARD_H
#define NB_CUDA_CARD_H

#include "backend/cuda/driver.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NB_CARD_RECENT = 16, NB_CARD_DEPTH = 12 };

typedef struct nb_card {
    int id, major, minor; /* compute capability */
    char name[256];
    int processors, warp, threads; /* SMs; lanes of a warp; threads a block */
    int processor_threads, processor_registers;
    size_t shared, shared_most; /* bytes a block: plain, opted in for */
    size_t processor_shared;
    size_t memory, l2;

    /* From the first nb_card_enter on. */
    void *context, *stream; /* the main one */

    /* The rest is this folder's. */
    const nb_cuda *api;
    int device;           /* the driver's number of it */
    pthread_mutex_t lock; /* of what follows */
    atomic_bool started, faulted;
    void *event; /* for one stream to wait for another */
    pthread_mutex_t capturing, timing;
    void *aside[NB_CARD_DEPTH]; /* streams of captures, for who holds that: the
                                 * bodies of conditions have their own */
    struct nb_card_pool *pool;
    struct nb_card_ring *up, *down;
    _Atomic(struct nb_card_words *)
        words; /* that kernels may write (report.c) */
    char fault[2048];
    uint64_t launched, done; /* kernels, graphs */
    uint64_t elsewhere;      /* calls that the CPU computed for it; the last: */
    char elsewhere_last[64];
    struct {
        char what[96];
        struct nb_card_names *all; /* of a graph; or NULL */
    } recent[NB_CARD_RECENT];
} nb_card;

/* Cards of compute capability 8.0 or more; 0 without a driver or a card. */
int nb_card_count(void);
const char *nb_card_trouble(void); /* why there is none; NULL: there is */

/* NULL, with an error that says what is missing.  Starts nothing. */
nb_card *nb_card_at(int id);

/* Its context is current in this thread, the card is started and well. */
bool nb_card_enter(nb_card *c);

/* The same without an error, and only if the card was started before: for
 * giving things back. */
bool nb_card_reenter(nb_card *c);

bool nb_card_ok(nb_card *c); /* fails with the text of the fault, if any */

/* The stream that this thread's work goes to: the main one, or that of its
 * capture (graph.h). */
void *nb_card_stream(const nb_card *c);
bool nb_card_captures(const nb_card *c); /* this thread does */

/* Waits for the main stream. */
bool nb_card_sync(nb_card *c);

/* While kernels are tried and timed, one thread at a time. */
void nb_card_time_open(nb_card *c);
void nb_card_time_close(nb_card *c);

/* What a call of the driver returned: 0, or an error that says what was being
 * done; a fault of the card marks it. */
bool nb_card_check(nb_card *c, int result, const char *what);

bool nb_card_is_fault(int result);

/* Other streams.  What `later` is given from now on waits for what `earlier`
 * has been given so far. */
void *nb_card_stream_new(nb_card *c);
void nb_card_stream_free(nb_card *c, void *stream); /* waits for it */
bool nb_card_stream_after(nb_card *c, void *later, void *earlier);

/* For the text of a fault: a kernel was launched; a graph was, of ops whose
 * names are kept while they may be asked for; all of the first `n` that were
 * launched have ended. */
typedef struct nb_card_names nb_card_names;
nb_card_names *nb_card_names_new(const char *text);
const char *nb_card_names_text(const nb_card_names *n);
void nb_card_names_drop(nb_card_names *n);
void nb_card_launched(nb_card *c, const char *what);
void nb_card_launched_all(nb_card *c, nb_card_names *what);
void nb_card_ended(nb_card *c, uint64_t n);
uint64_t nb_card_launches(nb_card *c);

/* A call of an op was computed by the CPU, for want of a kernel; how many were,
 * and the last one's name. */
void nb_card_was_elsewhere(nb_card *c, const char *op);
uint64_t nb_card_elsewhere(nb_card *c, char last[64]);

#endif
