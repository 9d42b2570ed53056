/* dnn_parts.h - what the files of cuDNN share. */
#ifndef NB_CUDA_DNN_PARTS_H
#define NB_CUDA_DNN_PARTS_H

#include "backend/cuda/dnn/dnn.h"
#include "base/disk.h"
#include "base/text.h"

#define DNN(result, name, arguments) result(*name) arguments;
typedef struct nb_dnn_functions {
#include "backend/cuda/dnn/dnn.def"
} nb_dnn_functions;
#undef DNN

extern nb_dnn_functions nb_dnn; /* once nb_dnn_there */

/* For each card one for running plans and making them, and one for making them
 * meanwhile, in another thread; kept.  NULL with an error. */
typedef enum nb_dnn_use {
    NB_DNN_NOW,
    NB_DNN_MEANWHILE,
    NB_DNN_USES
} nb_dnn_use;
void *nb_dnn_handle(nb_card *c, nb_dnn_use use);

/* Held while a handle is used: it has one stream at a time. */
void nb_dnn_lock(void);
void nb_dnn_unlock(void);

/* Descriptors; owned. */
typedef struct nb_dnn_list {
    void **at;
    int n, room;
} nb_dnn_list;
void nb_dnn_list_free(nb_dnn_list *l);

/* Made and put into the list; NULL if memory ran out (*broken) or refused. */
void *nb_dnn_new(nb_dnn_list *l, int kind, bool *broken);

/* A tensor that has memory: its number in the graph and how far it reaches, or
 * what it is if it is a number. */
typedef struct nb_dnn_place {
    int64_t id;
    nb_dtype dtype;
    size_t bytes;
    bool fixed;
    float value;
} nb_dnn_place;

enum { NB_DNN_PLACES = 24, NB_DNN_ALIGN = 256 }; /* ALIGN: of workspaces */

struct nb_dnn_graph {
    nb_card *card;
    void *handle;
    nb_dnn_list all, tensor, op; /* of the last two, lent by the first */
    nb_dnn_place *place;
    int nplaces, place_room;
    nb_text key;          /* all that was said, for finding its plan */
    bool refused, broken; /* by the library; for want of memory */
    char trouble[512];
};

/* Notes what the library returned; true for success. */
bool nb_dnn_check(nb_dnn_graph *g, int status, const char *what);

/* A plan keeps all descriptors that it was made of. */
struct nb_dnn_plan {
    nb_dnn_plan *next; /* of those in use */
    int users;
    nb_card *card;
    void *plan;
    nb_dnn_list all;
    nb_dnn_place *place;
    int nplaces;
    int64_t workspace;
    nb_text key;
};

/* The one of some plans that runs fastest, same: of those that give what the
 * first gives. */
typedef struct nb_dnn_candidate {
    void *plan;
    int64_t workspace;
} nb_dnn_candidate;
int nb_dnn_fastest(const nb_dnn_graph *g, bool same, int n,
                   const nb_dnn_candidate *list);

/* Plans on disk (keep.c), by what their graphs say: the descriptor of one that
 * was kept, or NULL. */
nb_disk_key nb_dnn_key(const nb_dnn_graph *g);
void *nb_dnn_recall(nb_dnn_graph *g, nb_disk_key key);
void nb_dnn_keep(void *plan, nb_disk_key key);

#endif
