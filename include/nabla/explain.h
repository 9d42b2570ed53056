/* nabla/explain.h - what a program over many devices says to itself.
 *
 * Results lie as their operands suggest, and what has to move moves by itself.
 * Nobody need guess what: an explanation lists every collective of a program,
 * with its bytes, who wants it and why, the least that any way of doing it
 * could do with, and what would be cheaper.  A budget makes too much of it an
 * error.  Verifying runs the program over its devices and without them, line by
 * line. */
#ifndef NABLA_EXPLAIN_H
#define NABLA_EXPLAIN_H

#include "nabla/compile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_explanation nb_explanation;

typedef struct nb_explain_options {
    /* That the collectives of a program may have a device receive, all
     * together: 0 is any number, a negative one none at all. */
    int64_t max_collective_bytes;
    /* As f runs when it is not compiled: values lie as follows from call to
     * call.  What is compiled is laid out as a whole. */
    bool eager;
} nb_explain_options;

/* What f does on arguments of the types and layouts of x; nothing runs.  Yours,
 * nb_explanation_drop.  NB_EVALUE, naming the dearest collective, if they
 * are over the budget.  options may be NULL. */
NB_API nb_status nb_explain(nb_func *f, int nx, nb_tensor *const *x,
                            const nb_explain_options *options,
                            nb_explanation **out);

/* The same of a function that is compiled already; and whether it is within a
 * budget. */
NB_API nb_status nb_executable_explain(const nb_executable *e,
                                       nb_explanation **out);
NB_API nb_status nb_executable_budget(const nb_executable *e,
                                      int64_t max_collective_bytes);

NB_API void nb_explanation_drop(nb_explanation *e);

/* A collective.  Several may belong to one move of a value: they have its
 * number, and `bound` and `alternative` are about all of them. */
typedef struct nb_explain_row {
    const char *kind;      /* "all_gather", "all_reduce", "reduce_scatter",
                           * "all_to_all", "permute", "exchange" */
    const char *axes;      /* between devices along these: "tp", "x,y" */
    int64_t bytes;         /* received by a device, at most */
    int64_t times;         /* in a run: 1, or turns of the loops around it,
                            * where a while loop counts as one */
    double seconds;        /* by the mesh's costs: a byte is 1 unless said */
    const char *from, *to; /* the type and layout before and after */
    const char *of;     /* who made the value: an op, "input 0", "constant" */
    const char *op;     /* who wants it: an op; "result 0" */
    const char *source; /* where that was called, or "" */
    const char *reason;
    const char *rule; /* the signature whose axes that names, or "" */
    int move;
    int64_t bound;           /* no way of doing the move can do with less */
    int64_t cheaper;         /* bytes of a cheaper one, if one thing were
                              * otherwise; -1: none is known */
    const char *alternative; /* what that thing is, or "" */
    bool reading; /* a reduction that is left pending: of a result, when it is
                   * used or read */
} nb_explain_row;

/* Row k, lent by the explanation; false past the last. */
NB_API int nb_explanation_rows(const nb_explanation *e);
NB_API bool nb_explanation_row(const nb_explanation *e, int k,
                               nb_explain_row *row);

/* Bytes of all collectives of a kind, or of all if that is NULL, and how many
 * there are; calls may be NULL. */
NB_API int64_t nb_explanation_total(const nb_explanation *e, const char *kind,
                                    int *calls);

/* As a table; yours, nb_text_release. */
NB_API char *nb_explanation_text(const nb_explanation *e);

/* Runs f on x over its devices, and without them: arguments gathered, nothing
 * laid out.  NB_ERUNTIME if some op gives another value, by more than tolerance
 * times the greatest element (0: what orders of summation may make, by dtype),
 * or a result differs; the error names the first.  Of many
 * processes each looks at the devices that it has, and all report the same.
 * report may be NULL. */
typedef struct nb_verify_report {
    int compared;        /* values that were */
    double error;        /* the greatest difference seen, relative */
    bool differs;        /* and if one differs: */
    char op[64];         /* the first, */
    char source[256];    /* where it was called, or "", */
    char call[256];      /* the types and layouts that it went by, */
    int device;          /* the position of a device that has it wrong, */
    int64_t place[32];   /* and where in the value, hidden axes first, */
    int rank;            /* which has as many dims; */
    double found, value; /* what it has there, what it should */
} nb_verify_report;
NB_API nb_status nb_verify(nb_func *f, int nx, nb_tensor *const *x,
                           double tolerance, nb_verify_report *report);

#ifdef __cplusplus
}
#endif
#endif
