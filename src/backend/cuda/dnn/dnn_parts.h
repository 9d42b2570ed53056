/* dnn_parts.h - what the files of cuDNN share. */
#ifndef NB_CUDA_DNN_PARTS_H
#define NB_CUDA_DNN_PARTS_H

#include "backend/cuda/dnn/dnn.h"
#include "base/text.h"

#define DNN(result, name, arguments) result(*name) arguments;
typedef struct nb_dnn_functions {
#include "backend/cuda/dnn/dnn.def"
} nb_dnn_functions;
#undef DNN

extern nb_dnn_functions nb_dnn; /* once nb_dnn_there */

/* One for each card; kept.  NULL with an error. */
void *nb_dnn_handle(nb_card *c);

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

/* A tensor that has memory: its number, and what it is if it is a number. */
typedef struct nb_dnn_place {
    int64_t id;
    bool fixed;
    float value;
} nb_dnn_place;

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

#endif
