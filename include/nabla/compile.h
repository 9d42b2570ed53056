/* nabla/compile.h - functions as machine code.
 *
 * A function is recorded once for arguments of certain types, fused into loops,
 * given one plan of memory and compiled; from then on a call runs that.  Without
 * a compiler on the machine the ops run one by one, which is slower and gives
 * the same. */
#ifndef NABLA_COMPILE_H
#define NABLA_COMPILE_H

#include "nabla/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f for arguments of the types of x, whatever their values; yours,
 * nb_executable_drop.  What f closes over is bound now.  NB_ERUNTIME if f asks
 * for a value, which it cannot have while it is recorded. */
typedef struct nb_executable nb_executable;
NB_API nb_status nb_executable_new(nb_func *f, int nx, nb_tensor *const *x,
                                   nb_executable **out);
/* The same for any sizes along the dims given; dims of one name have one size.
 * f is recorded at several sizes, large ones; what is recorded must differ in
 * numbers alone, or the executable is for the sizes of x only: see
 * nb_executable_fixed.  A size beyond those seen so far is recorded once to see
 * that the program is still the same; in between it is taken to be. */
typedef struct nb_dynamic_dim {
    int argument, axis;
    const char *name;
} nb_dynamic_dim;
NB_API nb_status nb_executable_new_dynamic(nb_func *f, int nx,
                                           nb_tensor *const *x, int ndims,
                                           const nb_dynamic_dim *dims,
                                           nb_executable **out);
/* Why it is for the sizes of x only, although others were asked for; "" if it
 * is not, or none were. */
NB_API const char *nb_executable_fixed(const nb_executable *e);
/* The same without the code: that is made when it first runs, or is loaded, and
 * whoever only wants to look at it never waits for it.  One for any sizes has
 * code at once. */
NB_API nb_status nb_executable_lower(nb_func *f, int nx, nb_tensor *const *x,
                                     int ndims, const nb_dynamic_dim *dims,
                                     nb_executable **out);
NB_API nb_status nb_executable_load(nb_executable *e);
/* Whether that failed, when this thread last called it, because f asked. */
NB_API bool nb_value_asked(void);
NB_API nb_executable *nb_executable_keep(nb_executable *e);
NB_API void nb_executable_drop(nb_executable *e);

/* Whether x has the type that argument i was compiled for; and the number of
 * results. */
NB_API bool nb_executable_takes(const nb_executable *e, int i,
                                const nb_tensor *x);
NB_API int nb_executable_results(const nb_executable *e);

/* Runs it; *ny comes in as the room in y and goes out as the number of results,
 * which are lent and have their values.  Any thread may, several at a time.
 * Keys that f draws (nb_next_key) are drawn anew. */
NB_API nb_status nb_executable_run(nb_executable *e, int nx,
                                   nb_tensor *const *x, int *ny, nb_tensor **y);

/* From now on runs may write results into the memory of these arguments, where
 * nothing but the caller's one reference holds them.  An argument whose memory
 * was taken cannot be used any more: NB_ERUNTIME. */
NB_API nb_status nb_executable_donate(nb_executable *e, int n,
                                      const int *arguments);

/* A tensor of the type of x that cannot be used either: what bindings put in
 * the place of an argument that was donated. */
NB_API nb_tensor *nb_donated(const nb_tensor *x);

/* Its text at a stage; yours, nb_text_release.  "graph": what was recorded;
 * the name of a pass over graphs ("inline", "canonicalise", "fold", "simplify",
 * "pick", "cse", "again", "dead", "attention", "recompute", "cheap"): what was
 * left after it; "plan": loops, calls, chains of them and blocks of memory;
 * "memory": what is alive when the most is, a line each, bytes first, the
 * largest on top.  NULL stands for "graph".
 *
 * NABLA_DISABLE=name,name in the environment leaves passes out, also "fuse",
 * "schedule", "chain", "memory" and "code"; NABLA_DUMP=name,name, or all,
 * prints what is there after them on stderr. */
NB_API char *nb_executable_text(const nb_executable *e, const char *stage);

/* Bytes known before it runs.  Temporaries count what the largest loop or branch
 * needs inside: its states, the temporaries of a turn, and what one turn keeps
 * for the way back; of a while, whose turns are not known, one turn. */
typedef struct nb_memory_plan {
    int64_t arguments, results, temporaries, constants;
    int64_t donated; /* of the results: in the memory of arguments */
    int64_t peak;    /* all of these together, donated bytes once */
} nb_memory_plan;
NB_API nb_memory_plan nb_executable_memory(const nb_executable *e);

/* How many loops and calls of ops it runs. */
NB_API int nb_executable_steps(const nb_executable *e, int *loops);

/* Arithmetic operations of one run, as nb_graph_flops counts them. */
NB_API double nb_executable_flops(const nb_executable *e);

/* Whether it takes so little time that nothing is gained by letting others work
 * meanwhile. */
NB_API bool nb_executable_is_small(const nb_executable *e);

/* Why its ops run one by one, "" if they do not: no compiler was found. */
NB_API const char *nb_executable_trouble(const nb_executable *e);

/* Whether ops on x are being recorded in this thread: by a compilation, a loop
 * or branch, a vmap or a differentiation, which have to see them. */
NB_API bool nb_is_watched(int nx, nb_tensor *const *x);

/* f compiled for each combination of types that it is called with.  Within
 * another compilation, a loop's body, a vmap or a differentiation it is f
 * itself, so that those see its ops. */
typedef struct nb_compile_options {
    int max_cache_size; /* executables; the least recently used goes; 0: 64 */
    int ndynamic;       /* dims of any size, as in nb_executable_new_dynamic */
    const nb_dynamic_dim *dynamic;
    /* As in nabla/explain.h: NB_EVALUE at the call that would be over it. */
    int64_t max_collective_bytes;
} nb_compile_options;
NB_API nb_func *nb_compile(nb_func *f, const nb_compile_options *options);

/* Each call adds one to hits, misses or fallbacks (calls that could not be
 * compiled, and ran op by op). */
typedef struct nb_compile_stats {
    int64_t hits, misses, fallbacks;
    double compile_ms;
    int cache_size;
} nb_compile_stats;
NB_API nb_status nb_compile_stats_of(nb_func *compiled, nb_compile_stats *out);
NB_API nb_status nb_compile_clear(nb_func *compiled);

/* Realising compiles too: a program that is asked for again is kept as an
 * executable.  This drops those, and the executables of all compiled functions
 * of the process; those that run go when they are done. */
NB_API void nb_caches_clear(void);

/* Code of loops and kernels of cards, kept by what it does: found in this
 * process or on disk, or compiled; and the bytes of the CPU's that are in use. */
typedef struct nb_cache_stats {
    int64_t hits, disk_hits, misses, bytes;
    double compile_ms;
    const char *trouble; /* why nothing is kept on disk; "" if it is */
} nb_cache_stats;
NB_API nb_cache_stats nb_cache_stats_get(void);

/* Another folder for code on disk; NULL: what NABLA_CACHE_DIR says, or
 * ~/.cache/nabla. */
NB_API nb_status nb_cache_folder_set(const char *path);

#ifdef __cplusplus
}
#endif
#endif
