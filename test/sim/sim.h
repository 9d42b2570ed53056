/* sim.h - the insides of the simulated driver.  One lock holds for all of it.
 * Work on streams is queued and runs as late as a program lets it: when it
 * waits, asks or frees, so that a missing wait shows.
 *
 * Environment: NABLA_SIM_CARDS (1), NABLA_SIM_ARCH (90), NABLA_SIM_PROCESSORS
 * (4), NABLA_SIM_MEMORY (bytes of a card), NABLA_SIM_VERSION (13000, of the
 * driver), NABLA_SIM_GUARD (1: host code that touches device memory crashes),
 * NABLA_SIM_ASYNC (1; 0: work runs at once), NABLA_SIM_SEED (another order of
 * threads and blocks), NABLA_SIM_CXX (the compiler), and NABLA_SIM_FAIL:
 * NAME:N, the N-th call of that function fails, or NAME:N+, it and all after,
 * each perhaps with :CODE; several with commas.  Names go without _v2.  For
 * NABLA_SIM_NVRTC and NABLA_SIM_CHECKED see real.h.  Of cuDNN:
 * NABLA_SIM_CUDNN_PROPOSALS (3) and NABLA_SIM_CUDNN_IDLE, the number of one
 * whose plan does nothing, at once. */
#ifndef SIM_H
#define SIM_H

#include "api.h"
#include "port.h"
#include <pthread.h>
#include <stdbool.h>

enum { SIM_CARDS = 8, SIM_WARP = 32 };

typedef struct sim_range {
    uint64_t at, bytes;   /* as given out */
    uint64_t page, pages; /* the bytes under it, whole pages */
} sim_range;

typedef struct sim_ranges {
    sim_range *list; /* sorted by address */
    int count, room;
} sim_ranges;

typedef struct sim_card {
    int id, refs, open;
    CUresult fault; /* the first late one, for ever */
    bool peer[SIM_CARDS];
    char *base;    /* its part of the address space */
    uint64_t top;  /* how much of it was ever given out */
    uint64_t used; /* bytes alive */
    sim_ranges memory;
    struct sim_stream *streams, *null;
} sim_card;

typedef struct sim_function {
    struct sim_function *next;
    struct sim_module *module;
    const sim_kernel *kernel;
    int dynamic_most; /* bytes of dynamic shared memory it may ask for */
} sim_function;

typedef struct sim_module {
    void *library;
    sim_image *image;
    sim_card *card;
    sim_function *functions;
} sim_module;

typedef struct sim_launch {
    sim_function *function;
    unsigned grid[3], block[3], shared;
    bool together; /* all blocks at once: cooperative */
    void **args;   /* owned, one allocation */
} sim_launch;

typedef struct sim_copy {
    uint64_t to, from;
    size_t width, rows, to_pitch, from_pitch;
    void *staged; /* owned: what pageable memory held when asked */
} sim_copy;

typedef struct sim_fill {
    uint64_t to;
    size_t width, rows, pitch; /* width in elements */
    unsigned value, size;
} sim_fill;

typedef enum sim_kind {
    SIM_KERNEL,
    SIM_COPY,
    SIM_FILL,
    SIM_CALL,
    SIM_GRAPH,
    SIM_RECORD,
    SIM_WAIT,
    SIM_FREE,
    SIM_EMPTY,
    SIM_BRANCH
} sim_kind;

/* A mark in a stream's order. */
typedef struct sim_mark {
    struct sim_stream *stream;
    uint64_t number;
} sim_mark;

typedef struct sim_work {
    sim_kind kind;
    union {
        sim_launch launch;
        sim_copy copy;
        sim_fill fill;
        struct {
            CUhostFn function;
            void *data;
        } call;
        struct sim_exec *exec;   /* kept */
        struct sim_event *event; /* kept */
        sim_mark wait;
        uint64_t at;
        struct sim_branch *branch; /* kept */
    };
} sim_work;

typedef struct sim_event {
    int refs;
    bool timed;
    sim_mark mark;    /* no stream: never recorded */
    double time;      /* ms; when it was reached */
    uint64_t capture; /* it was recorded in; 0: none */
    struct sim_node **nodes;
    int count;
} sim_event;

typedef struct sim_stream {
    struct sim_stream *next;
    sim_card *card;
    unsigned flags;
    int priority;
    bool dead;
    uint64_t id;
    sim_work *queue; /* a ring */
    size_t head, count, room;
    uint64_t issued, done;
    struct sim_graph *capture;
    bool origin, invalid, borrowed; /* borrowed: the graph was given */
    int mode;
    pthread_t thread;
    struct sim_node **last; /* what the next captured node follows */
    int last_count;
} sim_stream;

/* core.c: every function of the API is one turn under the lock. */
typedef struct sim_turn {
    CUresult code;
    sim_card *card; /* of the current context */
} sim_turn;

sim_turn sim_enter(const char *name);
sim_turn sim_enter_card(const char *name);
void sim_leave(sim_turn *t);
int sim_fails(const char *name); /* counts, without the lock held */
int64_t sim_setting(const char *name, int64_t otherwise);
void sim_kernel_counted(void);

#define SIM_TURN                                                             \
    sim_turn turn __attribute__((cleanup(sim_leave))) = sim_enter(__func__); \
    if (turn.code) return turn.code
#define SIM_CARD_TURN                                   \
    sim_turn turn __attribute__((cleanup(sim_leave))) = \
        sim_enter_card(__func__);                       \
    if (turn.code) return turn.code;                    \
    sim_card *card = turn.card;                         \
    (void)card

/* card.c */
sim_card *sim_card_at(int id); /* NULL: there is none */
sim_card *sim_card_current(void);
bool sim_ready(void); /* cuInit was called */
int sim_arch(void);
uint64_t sim_card_bytes(void);
uint64_t sim_memory_used(void);
int sim_shared_most(void);
int sim_processors(void);

/* memory.c */
void sim_open(sim_card *c); /* what runs on it may touch its memory */
void sim_close(sim_card *c);
uint64_t sim_touch(uint64_t at); /* makes it so; how far, 0: it may not */
void sim_reach(uint64_t at, size_t n);
CUresult sim_memory_new(sim_card *c, size_t bytes, uint64_t *at);
bool sim_memory_free(sim_card *c, uint64_t at);
void sim_memory_reset(sim_card *c);
sim_card *sim_memory_card(uint64_t at); /* whose address; NULL: the host's */
bool sim_memory_holds(uint64_t at, size_t n); /* in one live allocation */
bool sim_pinned(uint64_t at);
bool sim_pin(void *at, size_t bytes);
bool sim_unpin(void *at);

/* copy.c */
CUresult sim_copy_run(sim_card *c, const sim_copy *k);
CUresult sim_fill_run(sim_card *c, const sim_fill *f);

/* stream.c */
bool sim_stream_find(sim_card *c, CUstream handle, sim_stream **s);
sim_stream *sim_stream_new(sim_card *c, unsigned flags, int priority);
CUresult sim_put(sim_card *c, CUstream handle, sim_work w); /* takes w */
void sim_run(sim_stream *s, uint64_t number);
CUresult sim_finish(sim_card *c); /* all streams; the fault, if any */
CUresult sim_do(sim_card *c, const sim_work *w);
void sim_work_free(sim_work *w);
void sim_streams_free(sim_card *c);

/* launch.c: runs all blocks; a CUresult. */
CUresult sim_launch_run(sim_card *c, const sim_launch *l);

/* module.c */
CUresult sim_launch_new(sim_launch *l, sim_card *c, CUfunction f,
                        const unsigned grid[3], const unsigned block[3],
                        unsigned shared, void **args, void **extra);

/* nvrtc.c: what a cubin begins with. */
typedef struct sim_header {
    char magic[8];
    int arch, virtual; /* virtual: for any later architecture too */
    uint64_t bytes;    /* of the shared object that follows */
} sim_header;

#define SIM_MAGIC "NBSIMCU"

/* capture.c */
CUresult sim_capture_put(sim_stream *s, sim_work w); /* takes w */
CUresult sim_capture_record(sim_stream *s, sim_event *e);
CUresult sim_capture_wait(sim_stream *s, sim_event *e);
void sim_capture_abandon(sim_card *c);
bool sim_capturing(sim_card *c); /* waiting is forbidden now */

/* exec.c */
CUresult sim_exec_run(sim_card *c, struct sim_exec *e);
void sim_condition_set(unsigned long long handle, unsigned value);
void sim_exec_keep(struct sim_exec *e);
void sim_exec_drop(struct sim_exec *e);

#endif
