/* port.h - what a compiled kernel and the simulator hand each other.  The text
 * of a kernel is compiled with shim.h into a shared object that exports one
 * sim_image; the simulator fills in `host` and calls the bodies.  C and C++, no
 * headers. */
#ifndef SIM_PORT_H
#define SIM_PORT_H

enum { SIM_DYNAMIC_MOST = 1 << 18 };

/* What the lanes of a warp do together. */
enum {
    SIM_SHUFFLE,
    SIM_UP,
    SIM_DOWN,
    SIM_ACROSS,
    SIM_BALLOT,
    SIM_MATCH,
    SIM_ADD,
    SIM_MIN,
    SIM_MAX,
    SIM_UMIN,
    SIM_UMAX,
    SIM_AND,
    SIM_OR,
    SIM_XOR,
    SIM_MEET,
    SIM_GATHER /* gets the address of what all 32 lanes gave */
};

typedef struct sim_place {
    unsigned x, y, z;
} sim_place;

typedef struct sim_lanes {
    int what, line;
    unsigned mask;
    int operand, width;
    unsigned long long value;
} sim_lanes;

typedef struct sim_host {
    /* All threads of the block meet; the number of them with yes != 0. */
    int (*barrier)(int line, int yes);
    /* The lanes of the mask meet; what this lane gets. */
    unsigned long long (*lanes)(const sim_lanes *);
    /* Ends the launch with this CUresult; does not return. */
    void (*stop)(int code);
    /* Lets other threads and blocks run: what a spinning thread calls. */
    void (*pause)(void);
    void (*condition)(unsigned long long handle, unsigned value);
} sim_host;

typedef struct sim_parameter {
    unsigned size, align;
    int pointer; /* it is an address */
} sim_parameter;

typedef struct sim_kernel {
    const char *name;
    void (*body)(void **args);  /* one thread */
    void (*sweep)(void **args); /* a block whose threads never meet */
    const sim_parameter *parameters;
    int count, threads; /* parameters; most threads of a block */
} sim_kernel;

typedef struct sim_image {
    const sim_kernel *kernels; /* up to one without a name */
    sim_place *thread, *block, *block_size, *grid_size;
    char *fixed, *fixed_end; /* shared memory of known size */
    char *dynamic;           /* SIM_DYNAMIC_MOST bytes, on a page */
    const sim_host **host;
    int arch, meets; /* whether any thread waits for another */
} sim_image;

#endif
