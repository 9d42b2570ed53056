/* reduce.c - steps that reduce: every device of the group is responsible for a
 * part, reads it from all others and combines it in their order.  After an
 * all_reduce the parts then go to everybody. */
#include "comm/step.h"

#include "base/memory.h"
#include "comm/box.h"
#include "comm/combine.h"

#include <string.h>

/* The part of this device, as it lies at every member; data is scratch for
 * pointers to it. */
typedef struct sum {
    const nb_task *t;
    const char *own;
    char *out;
    const void **data;
} sum;

typedef struct room {
    nb_message *send, *recv;
    const void **data;
} room;

static bool make_room(const nb_task *t, room *r)
{
    size_t n = (size_t)t->n;
    r->send = nb_alloc(n * (2 * sizeof(nb_message) + sizeof(void *)));
    if (!r->send) return false;
    r->recv = r->send + n;
    r->data = (const void **)(r->recv + n);
    return true;
}

/* Reads the same range of all members, own included, where it belongs. */
static void combine(void *ctx, size_t at, size_t bytes, const void *const *data)
{
    const sum *s = ctx;
    const nb_task *t = s->t;
    for (int i = 0; i < t->n; i++)
        s->data[i] = i < t->index   ? data[i]
                     : i > t->index ? data[i - 1]
                                    : s->own + at;
    nb_combine(t->dtype, t->step->from->kind, t->n, s->data,
               (int64_t)(bytes / t->item), s->out + at);
}

/* Sends part i, at data[i], to member i and reads this device's of them. */
static bool reduce_parts(nb_task *t, room *r, char *const *data,
                         const size_t *bytes, void *out)
{
    sum s = {t, data[t->index], out, r->data};
    nb_reader reader = {combine, &s};
    nb_post post = {t->n - 1, t->n - 1, r->send, r->recv, &reader};
    for (int i = 0, k = 0; i < t->n; i++) {
        if (i == t->index) continue;
        r->send[k] = (nb_message){t->member[i], data[i], bytes[i]};
        r->recv[k++] = (nb_message){t->member[i], NULL, bytes[t->index]};
    }
    if (t->n == 1) combine(&s, 0, bytes[0], NULL);
    return nb_task_exchange(t, &post);
}

/* The parts are all over `out` by now, one on each device. */
static bool gather_parts(nb_task *t, room *r, const size_t *bytes, char *out)
{
    nb_post post = {t->n - 1, t->n - 1, r->send, r->recv, NULL};
    char *own = out;
    for (int i = 0; i < t->index; i++)
        own += bytes[i];
    for (int i = 0, k = 0; i < t->n; out += bytes[i++]) {
        if (i == t->index) continue;
        r->send[k] = (nb_message){t->member[i], own, bytes[t->index]};
        r->recv[k++] = (nb_message){t->member[i], out, bytes[i]};
    }
    return nb_task_exchange(t, &post);
}

bool nb_step_all_reduce(nb_task *t)
{
    int64_t count = nb_box_count(t->rank, &t->into);
    room r;
    char **data = nb_alloc((size_t)t->n * (sizeof *data + sizeof(size_t)));
    if (!data || !make_room(t, &r)) return nb_free(data), false;
    size_t *bytes = (size_t *)(data + t->n);
    for (int i = 0; i < t->n; i++) {
        int64_t at = nb_block_start(count, t->n, i);
        data[i] = (char *)t->in + (size_t)at * t->item;
        bytes[i] = (size_t)(nb_block_start(count, t->n, i + 1) - at) * t->item;
    }
    char *part = (char *)t->out + (data[t->index] - (char *)t->in);
    bool ok = reduce_parts(t, &r, data, bytes, part) &&
              gather_parts(t, &r, bytes, t->out);
    nb_free(r.send);
    nb_free(data);
    return ok;
}

/* Blocks that lie in one piece stay where they are; else all are packed, own
 * and others', one after another. */
static bool lay_out(const nb_task *t, char **data, size_t *bytes, char **packed,
                    size_t *space)
{
    bool runs = true;
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
    char *at = *packed = nb_block_new(used, space);
    for (int i = 0; i < t->n && at; i++) {
        nb_task_box(t, t->step->into, t->member[i], &box);
        nb_box_copy(t->rank, &box, &t->from, t->in, &box, at, t->item);
        data[i] = at;
        at += (bytes[i] + 63) / 64 * 64;
    }
    return at;
}

bool nb_step_reduce_scatter(nb_task *t)
{
    room r;
    char **data = nb_alloc((size_t)t->n * (sizeof *data + sizeof(size_t)));
    if (!data || !make_room(t, &r)) return nb_free(data), false;
    size_t *bytes = (size_t *)(data + t->n), space;
    char *packed = NULL;
    bool ok = lay_out(t, data, bytes, &packed, &space) &&
              reduce_parts(t, &r, data, bytes, t->out);
    if (packed) nb_block_free(packed, space);
    nb_free(r.send);
    nb_free(data);
    return ok;
}
