/* news.c - what other processes tell of themselves: that they failed, and why,
 * and that they come to their end; and what is to be thought of those who tell
 * nothing. */
#include "comm/remote_parts.h"

#include "base/memory.h"
#include "comm/shm.h"

#include <stdio.h>

static const double GRACE = 0.2;

/* What another process has told. */
typedef struct report {
    uint64_t run; /* in which it failed last */
    int position;
    bool bye;
    char text[NB_PACKET_TEXT];
} report;

static struct {
    int rank, size;
    report *from;  /* by rank */
    bool troubled; /* some run failed */
} news;

static int first_of(int rank)
{
    int position = 0;
    while (nb_hall_get()->at[position].rank != rank)
        position++;
    return position;
}

/* The run is over for all here: that rank is to blame. */
void nb_blame(int position, const char *why)
{
    nb_hall *h = nb_hall_get();
    if (h->first >= 0) return;
    h->first = position;
    snprintf(h->message, sizeof h->message, "%s", why);
    news.troubled = true;
    nb_hall_wake_all();
}

void nb_blame_rank(int rank, const char *why)
{
    nb_blame(first_of(rank), why);
}

/* That a process failed in this run. */
static void heed(int rank)
{
    const report *r = &news.from[rank];
    if (r->run != nb_hall_get()->run) return;
    if (nb_seat_is_of(r->position, rank))
        nb_blame(r->position, r->text);
    else
        nb_blame_rank(rank, r->text);
}

void nb_news_take(const nb_packet *k, bool running)
{
    report *r = &news.from[k->rank];
    if (k->kind == NB_PACKET_BYE) {
        r->bye = true;
        return;
    }
    r->run = k->run;
    r->position = k->from; /* or -1: its process */
    snprintf(r->text, sizeof r->text, "%.*s", (int)k->text,
             (const char *)(k + 1));
    if (running) heed((int)k->rank);
}

void nb_news_heed(void)
{
    for (int i = 0; i < news.size; i++)
        heed(i);
}

/* Whether that rank is beyond this run. */
static bool is_past(int rank)
{
    return news.from[rank].run > nb_hall_get()->run || nb_inbox_is_past(rank);
}

/* Nothing has come, and all that was sent is here: who is gone, or in another
 * run, or has taken back what it offered, will send nothing more.  But that it
 * failed in this one, and why, may be on its way over the wire, so it gets a
 * moment. */
void nb_doubt(nb_seat *a)
{
    bool torn = a->torn >= 0;
    int peer = torn ? a->torn : nb_remote_missing(a);
    if (peer < 0) return;
    int rank = nb_hall_get()->at[peer].rank;
    if (news.from[rank].bye || nb_shm_is_gone(rank)) {
        nb_blame(peer, "its process has come to its end");
    } else if (!torn && !is_past(rank)) {
        a->doubted = 0;
    } else if (a->doubted == 0) {
        a->doubted = nb_clock();
    } else if (nb_clock() > a->doubted + GRACE) {
        a->barred = torn;
        if (!torn) nb_blame(peer, "it is past this program already");
    }
}

void nb_news_trouble(void)
{
    news.troubled = true;
}

bool nb_news_are_good(void)
{
    return !news.troubled;
}

bool nb_news_all_left(void)
{
    for (int i = 0; i < news.size; i++)
        if (i != news.rank && !news.from[i].bye) return false;
    return true;
}

bool nb_news_none_awaited(void)
{
    for (int i = 0; i < news.size; i++)
        if (i != news.rank && !news.from[i].bye && !nb_shm_is_gone(i))
            return false;
    return true;
}

bool nb_news_open(const nb_wire *w)
{
    news.rank = w->rank;
    news.size = w->size;
    news.from = nb_alloc_forever((size_t)w->size * sizeof *news.from);
    return news.from;
}
