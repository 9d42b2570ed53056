/* check.h - for tests of transforms: each of them done the slow way, by finite
 * differences and loops, as the oracle; values on the page; counting. */
#ifndef NB_TEST_CHECK_H
#define NB_TEST_CHECK_H

#include "support/sample.h"

/* The ways to transform a function: those that any function takes, then those
 * of functions with few elements in and out (hess_rf is jacrev of jacfwd), and
 * those that change how a function is computed. */
enum { MAX_ARGS = 64 };
typedef enum way {
    VJP,
    JVP,
    VMAP,
    JACREV,
    JACFWD,
    NWAYS,
    HESS_RF = NWAYS,
    HESS_FR,
    CHECKPOINT,
    SCAN,
    ALL_WAYS
} way;
extern const char *const way_name[ALL_WAYS];

/* A function, arguments to try it on, and how many results it has. */
typedef struct task {
    nb_func *fn;
    int nin, nout;
    nb_tensor *x[MAX_ARGS];
    int in_axes[MAX_ARGS], axis; /* of a vmap or a scan */
} task;

/* A function of x, nx of them, that closes over c, in one expression. */
#define FN(name, expression)                                               \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        nb_tensor *const *c = ctx;                                         \
        (void)c, (void)nx, (void)x;                                        \
        y[0] = expression;                                                 \
        return *ny = 1, NB_OK;                                             \
    }

/* Counts a check; one that does not hold, or that leaves an error behind, is
 * printed.  tally prints the counts, how a program should exit.  Under mpirun a
 * check holds if it does on all ranks, which make it together. */
bool expect(bool ok, const char *format, ...) NB_PRINTF(2, 3);
int tally(void);

/* Runs tests, each in a scope and with caches of its own; none but the first,
 * which sets up what stays, leaves memory behind. */
void none_leaks(size_t n, void (*const *test)(void));

/* No vmap and no differentiation is open. */
bool all_closed(void);

/* Runs it in a scope of its own, then with every allocation failing in turn:
 * that is an error, after which all is closed and no memory is lost.  Outside of
 * all scopes, whose own memory would count. */
void expect_survival(const char *name, bool (*run)(void));

nb_tensor *draw(int rank, const int64_t *size, double lo, double hi);
nb_tensor *vec(int64_t n, const double *v);
bool is(nb_tensor *x, int64_t n, const double *v);
bool failed_with(nb_status code, const char *part); /* and clears it */

#define COUNT(...) (sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define VEC(...)   vec(COUNT(__VA_ARGS__), (double[]){__VA_ARGS__})
#define SAYS(sentence, tensor, ...) \
    expect(is(tensor, COUNT(__VA_ARGS__), (double[]){__VA_ARGS__}), sentence)
#define FAILS(sentence, call, code, part)                     \
    do {                                                      \
        bool refused = !(call);                               \
        expect(failed_with(code, part) && refused, sentence); \
    } while (0)

/* The task transformed, and whether it agrees with the slow way.  mapped and at
 * choose vmap's arguments and the axis of arguments and results; a scan runs
 * along the first axis of the arguments mapped and closes over the others. */
task task_transform(way w, const task *g, uint64_t mapped, int at);
bool task_agrees(way w, const task *g, const task *t);

/* For t = vjp of g: whether <ct, J u> = <J' ct, u>, J u by jvp. */
bool task_is_transposed(const task *g, const task *t, double tolerance);

/* Whether t and s, functions of the same arguments, have the same results. */
bool task_is_same(const task *t, const task *s, double tolerance);

#endif
