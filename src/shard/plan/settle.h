/* settle.h - who adds up what where pending blocks become blocks of another
 * layout in one step.
 *
 * The blocks of both layouts cut the tensor into pieces.  Of each piece there
 * are n addends, each on one device or more, and some devices want the sum.
 * Every element is given to one device, which receives the addends that it has
 * not and sends the sum to all who want it.  So everybody receives what it
 * wants once, and who adds an element up receives n more addends than that,
 * less one if it has one, less one if it wants the sum.  Elements are dealt out
 * so that nobody receives much more than others. */
#ifndef NB_SHARD_PLAN_SETTLE_H
#define NB_SHARD_PLAN_SETTLE_H

#include "shard/plan/plan.h"

/* Of larger groups it would take too long. */
enum { NB_SETTLING_DEVICES = 64 };

/* A device of the group. */
typedef struct nb_party {
    int position;
    int addend;         /* which of them it has */
    int64_t has, wants; /* numbers of its blocks */
    int64_t received;   /* elements, in all */
    nb_box from, into;
} nb_party;

typedef struct nb_piece {
    int64_t has, wants; /* the blocks that have it in common */
    int64_t count;
    nb_box box;
} nb_piece;

typedef struct nb_settling {
    int n, npieces, naddends; /* n: devices */
    nb_party *party;          /* in the order of the group */
    nb_piece *piece;
    int64_t *share; /* elements of a piece that a device adds up, npieces x n */
} nb_settling;

/* How a step from `from` to `into` over these axes is settled in the group of
 * that position; without shares if `deal` is false.  False if memory runs out. */
bool nb_settling_open(nb_settling *s, const nb_hop *h, const int64_t *size,
                      int position, bool deal);
void nb_settling_close(nb_settling *s);

/* Elements of piece k that devices before i of the group add up: theirs come
 * before those of i. */
int64_t nb_settling_start(const nb_settling *s, int k, int i);

/* Who sends addend a of piece k to device i of the group: i itself if it has
 * it; those that have the same take turns. */
int nb_settling_server(const nb_settling *s, int k, int a, int i);

/* The most that a device of any group receives, in elements, and in how many
 * messages.  -1: memory ran out. */
int64_t nb_settling_price(const nb_hop *h, const int64_t *size, int *messages);

/* What a device of some group must receive, in elements, whatever the plan over
 * these axes.  -1: memory ran out. */
int64_t nb_settling_bound(const nb_hop *h, const int64_t *size);

#endif
