/* reduce.c - steps that reduce: every device of the group is responsible for a
 * part, reads it from all others and combines it in their order.  After an
 * all_reduce the parts then go to everybody. */
#include "comm/step.h"

#include "base/memory.h"
#include "comm/box.h"
#include "comm/memory.h"

/* The parts at this device, by member, and scratch: messages, pointers, and the
 * parts of others where they cannot be read in place. */
typedef struct parts {
    char **data;
    size_t *bytes;
    int n; /* messages each way */
    nb_message *send, *recv;
    const void **seen;
    nb_buffer *room;
    char *copies; /* in it */
} parts;

/* What a reader combines: own is this device's, of all others' the same. */
typedef struct sum {
    const nb_task *t;
    const char *own;
    char *out;
    const void **seen;
    bool failed;
} sum;

/* most: bytes of a part, in one piece. */
static bool make_room(const nb_task *t, parts *p, size_t most)
{
    size_t n = (size_t)t->n, piece = t->me->link->piece;
    size_t each = sizeof *p->data + sizeof *p->bytes + 4 * sizeof *p->send +
                  sizeof *p->seen;
    *p = (parts){.send = nb_alloc(n * each)};
    if (!p->send) return false;
    p->recv = p->send + 2 * n;
    p->data = (char **)(p->recv + 2 * n);
    p->seen = (const void **)(p->data + n);
    p->bytes = (size_t *)(p->seen + n);
    if (!t->me->link->copies && (!piece || n < 3)) return true;
    if (!(p->room = nb_buffer_on(t->on, n * (most < piece ? most : piece) + 1)))
        return nb_free(p->send), false;
    p->copies = p->room->data;
    return true;
}

static void free_room(parts *p)
{
    nb_buffer_drop(p->room);
    nb_free(p->send);
}

static void combine(void *ctx, size_t at, size_t bytes, const void *const *data)
{
    sum *s = ctx;
    const nb_task *t = s->t;
    for (int i = 0, k = 0; i < t->n; i++)
        s->seen[i] = i == t->index ? s->own + at : data[k++];
    if (!nb_blocks_combine(t->on, t->dtype, t->step->from->kind, t->n, s->seen,
                           (int64_t)(bytes / t->item), s->out + at))
        s->failed = true;
}

static bool combine_copies(const sum *s, size_t bytes, const nb_message *copy)
{
    const nb_task *t = s->t;
    for (int i = 0, k = 0; i < t->n; i++)
        s->seen[i] = i == t->index ? s->own : copy[k++].data;
    return nb_blocks_combine(t->on, t->dtype, t->step->from->kind, t->n,
                             s->seen, (int64_t)(bytes / t->item), s->out);
}

/* Of a part of so many bytes, those from `at` on, `most` or less. */
static size_t range(size_t bytes, size_t at, size_t most)
{
    if (bytes <= at) return 0;
    return bytes - at < most ? bytes - at : most;
}

/* Messages with a range of part i for member i, and with what they all have of
 * this device's. */
static void post_range(const nb_task *t, parts *p, size_t at, size_t most)
{
    size_t bytes = range(p->bytes[t->index], at, most);
    for (int i = 0; i < t->n; i++) {
        size_t others = range(p->bytes[i], at, most);
        char *copy = p->copies ? p->copies + (size_t)p->n * bytes : NULL;
        if (i == t->index) continue;
        p->send[p->n] = (nb_message){t->member[i], p->data[i] + at, others};
        p->recv[p->n++] = (nb_message){t->member[i], copy, bytes};
    }
}

/* Exchanges all that is posted.  Of that, ranges of this device's part come
 * first, if there are any, and are combined with its own. */
static bool exchange(nb_task *t, parts *p, size_t bytes, const char *own,
                     char *out)
{
    sum s = {t, own, out, p->seen, false};
    nb_reader reader = {combine, &s};
    nb_post post = {p->n, p->n, p->send, p->recv, NULL};
    if (own && !p->copies) post.reader = &reader;
    if (!nb_task_exchange(t, &post) || s.failed) return false;
    if (own && (p->copies || t->n == 1) && !combine_copies(&s, bytes, p->recv))
        return false;
    p->n = 0;
    return true;
}

/* Elements from `at` on, `most` or less, cut into parts for all members. */
static void cut(const nb_task *t, parts *p, const void *data, int64_t at,
                int64_t most)
{
    int64_t left = nb_box_count(t->rank, &t->into) - at;
    int64_t count = left < 0 ? 0 : left < most ? left : most;
    for (int i = 0; i < t->n; i++) {
        int64_t start = nb_block_start(count, t->n, i);
        int64_t end = nb_block_start(count, t->n, i + 1);
        p->data[i] = (char *)data + (size_t)(at + start) * t->item;
        p->bytes[i] = (size_t)(end - start) * t->item;
    }
}

/* Messages with this device's part, reduced, for all others, and with theirs. */
static void post_results(const nb_task *t, parts *p)
{
    for (int i = 0; i < t->n; i++) {
        if (i == t->index) continue;
        p->send[p->n] =
            (nb_message){t->member[i], p->data[t->index], p->bytes[t->index]};
        p->recv[p->n++] = (nb_message){t->member[i], p->data[i], p->bytes[i]};
    }
}

/* A round: the elements from `at` on are reduced, those before them sent back.
 * So what is sent back is still in the cache. */
static bool reduce_and_return(nb_task *t, parts *p, int64_t at, int64_t piece)
{
    const char *own = NULL;
    char *out = NULL;
    size_t bytes = 0;
    if (at < nb_box_count(t->rank, &t->into)) {
        cut(t, p, t->in, at, piece);
        own = p->data[t->index];
        out = (char *)t->out + (own - (const char *)t->in);
        bytes = p->bytes[t->index];
        post_range(t, p, 0, SIZE_MAX);
    }
    if (at > 0) {
        cut(t, p, t->out, at - piece, piece);
        post_results(t, p);
    }
    return exchange(t, p, bytes, own, out);
}

/* In pieces where the link wants some.  Parts are equal in all but the last, so
 * everybody is responsible for as much as without.  Devices outside of the group
 * may have more elements, and all take part in the same number of rounds. */
bool nb_step_all_reduce(nb_task *t)
{
    int64_t count = nb_spec_elements(t->step->into, t->size);
    size_t piece = t->me->link->piece;
    int64_t most = piece ? (int64_t)(piece / t->item) * t->n : count;
    parts p;
    bool ok = make_room(t, &p, (size_t)(count / t->n + 1) * t->item);
    if (!ok) return false;
    for (int64_t at = 0; ok && count > 0 && at < count + most; at += most)
        ok = reduce_and_return(t, &p, at, most);
    free_room(&p);
    return ok;
}

/* Blocks that lie in one piece stay where they are; else all are packed, own
 * and others', one after another. */
static bool lay_out(const nb_task *t, char **data, size_t *bytes,
                    nb_buffer **packed)
{
    bool runs = true, ok = true;
    size_t used = 0;
    nb_box box;
    for (int i = 0; i < t->n; i++) {
        int64_t at = 0;
        nb_task_box(t, t->step->into, t->member[i], &box);
        bytes[i] = (size_t)nb_box_count(t->rank, &box) * t->item;
        runs &= bytes[i] == 0 || nb_box_is_run(t->rank, &box, &t->from, &at);
        data[i] = (char *)t->in + (size_t)at * t->item;
        used += (bytes[i] + 63) / 64 * 64;
    }
    if (runs) return true;
    if (!(*packed = nb_buffer_on(t->on, used))) return false;
    char *at = (*packed)->data;
    for (int i = 0; ok && i < t->n; i++) {
        nb_task_box(t, t->step->into, t->member[i], &box);
        ok = nb_task_copy(t, &box, &t->from, t->in, &box, at);
        data[i] = at;
        at += (bytes[i] + 63) / 64 * 64;
    }
    return ok;
}

static bool reduce_range(nb_task *t, parts *p, size_t at, size_t most)
{
    post_range(t, p, at, most);
    return exchange(t, p, range(p->bytes[t->index], at, most),
                    p->data[t->index] + at, (char *)t->out + at);
}

/* As many rounds as the longest part of any device needs. */
bool nb_step_reduce_scatter(nb_task *t)
{
    size_t piece = t->me->link->piece;
    size_t longest = (size_t)nb_spec_elements(t->step->into, t->size) * t->item;
    nb_buffer *packed = NULL;
    parts p;
    if (!make_room(t, &p, longest)) return false;
    bool ok = lay_out(t, p.data, p.bytes, &packed);
    if (!piece) piece = longest;
    for (size_t at = 0; ok && at < longest; at += piece)
        ok = reduce_range(t, &p, at, piece);
    nb_buffer_drop(packed);
    free_room(&p);
    return ok;
}
