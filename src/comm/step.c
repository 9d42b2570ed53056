/* step.c - steps of plans on the devices. */
#include "comm/step.h"

#include "base/memory.h"
#include "comm/memory.h"
#include "comm/stats.h"

#include <stdio.h>

enum { NAME = 128 };

/* The same in every process, whatever lies where in its memory. */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mix_split(uint64_t h, const nb_cut *l)
{
    for (int i = 0; i < l->n; i++)
        h = mix(h, (uint64_t)l->at[i].axis << 32 |
                       (uint64_t)l->at[i].pre << 16 | l->at[i].size);
    return mix(h, l->n);
}

static uint64_t mix_spec(uint64_t h, const nb_spec *s)
{
    for (int d = 0; d < s->rank; d++)
        h = mix_split(h, &s->dim[d].axes);
    return mix(mix_split(h, &s->partial), s->kind);
}

static uint64_t what(const nb_task *t)
{
    uint64_t h = mix((uint64_t)t->step->kind, (uint64_t)t->dtype);
    for (int d = 0; d < t->rank; d++)
        h = mix(h, (uint64_t)t->size[d]);
    h = mix_split(h, &t->step->axes);
    for (int d = 0; t->step->reach && d < t->rank; d++) {
        const int64_t *r = t->step->reach->range[d];
        int64_t n = nb_cut_count(&t->step->into->dim[d].axes);
        for (int64_t i = 0; r && i < 2 * n; i++)
            h = mix(h, (uint64_t)r[i]);
    }
    return mix_spec(mix_spec(h, t->step->from), t->step->into);
}

/* "all_gather f32[4, 6]" */
static void write_name(const nb_task *t, char text[NAME])
{
    int n = snprintf(text, NAME, "%s %s[", nb_hop_name(t->step->kind),
                     nb_dtype_brief(t->dtype));
    for (int d = 0; d < t->rank && n < NAME - 24; d++)
        n += snprintf(text + n, (size_t)(NAME - n), "%s%lld", d ? ", " : "",
                      (long long)t->size[d]);
    snprintf(text + n, (size_t)(NAME - n), "]");
}

bool nb_task_exchange(nb_task *t, const nb_post *post)
{
    nb_link *l = t->me->link;
    t->round.number = ++t->me->round;
    for (int i = 0; i < post->nrecv; i++)
        t->received += (int64_t)post->recv[i].bytes;
    return l->exchange(l, t->me, &t->round, post);
}

bool nb_task_copy(const nb_task *t, const nb_box *part, const nb_box *a,
                  const void *from, const nb_box *b, void *to)
{
    return nb_part_copy(t->on, t->rank, part, a, from, b, to, t->item);
}

static bool was_split(const nb_hop *s)
{
    for (int d = 0; d < s->from->rank; d++)
        if (s->axes.n && nb_cut_has(&s->from->dim[d].axes, s->axes.at[0]))
            return true;
    return false;
}

/* Pending instead of whole: one device keeps the value.  Pending instead of
 * split: each keeps its block. */
static bool unreduce(nb_task *t)
{
    int64_t count = nb_box_count(t->rank, &t->into);
    bool split = was_split(t->step);
    if (!split && t->index == 0)
        return nb_bytes_copy(t->on, t->out, t->in, (size_t)count * t->item);
    if (!nb_identity_put(t->on, t->dtype, t->step->into->kind, count, t->out))
        return false;
    return !split ||
           nb_task_copy(t, &t->from, &t->from, t->in, &t->into, t->out);
}

static bool slice(nb_task *t)
{
    nb_box part;
    return !nb_box_meet(t->rank, &t->from, &t->into, &part) ||
           nb_task_copy(t, &part, &t->from, t->in, &t->into, t->out);
}

static bool carry_out(nb_task *t)
{
    switch (t->step->kind) {
    case NB_HOP_SLICE: return slice(t);
    case NB_HOP_UNREDUCE: return unreduce(t);
    case NB_HOP_REDUCE_SCATTER: return nb_step_reduce_scatter(t);
    case NB_HOP_ALL_REDUCE: return nb_step_all_reduce(t);
    case NB_HOP_REDUCE_EXCHANGE: return nb_step_reduce_exchange(t);
    case NB_HOP_ALL_GATHER:
    case NB_HOP_ALL_TO_ALL:
    case NB_HOP_PERMUTE:
    case NB_HOP_EXCHANGE: break;
    }
    return nb_step_move(t);
}

/* A position on the mesh that runs, on the mesh of a spec. */
int nb_task_position(const nb_task *t, const nb_spec *s, int position)
{
    const nb_mesh *m = t->me->mesh;
    if (s->mesh == m) return position;
    return nb_mesh_position(s->mesh, m->device[position]);
}

void nb_task_box(const nb_task *t, const nb_spec *s, int position, nb_box *box)
{
    nb_spec_box(s, t->size, nb_task_position(t, s, position), box);
}

static bool find_group(nb_task *t)
{
    const nb_mesh *m = t->step->from->mesh;
    int me = nb_task_position(t, t->step->from, t->me->position);
    t->n = (int)nb_cut_count(&t->step->axes);
    t->member = nb_alloc((size_t)t->n * sizeof(int));
    if (!t->member) return false;
    nb_cut_group(m, &t->step->axes, me, t->member);
    while (t->member[t->index] != me)
        t->index++;
    for (int i = 0; i < t->n && m != t->me->mesh; i++)
        t->member[i] = nb_mesh_position(t->me->mesh, m->device[t->member[i]]);
    return true;
}

/* What is reached for beyond the ends of the tensor is zero. */
static bool clear_outside(nb_task *t)
{
    int64_t count = nb_box_count(t->rank, &t->into);
    nb_box whole = {0}, part;
    for (int d = 0; d < t->rank; d++)
        whole.size[d] = t->size[d];
    t->wanted = nb_box_meet(t->rank, &t->into, &whole, &part)
                    ? nb_box_count(t->rank, &part)
                    : 0;
    return t->wanted == count ||
           nb_zero_put(t->on, (size_t)count * t->item, t->out);
}

/* On blocks that are there. */
static bool run(nb_device *me, int on, const nb_hop *step, nb_dtype dtype,
                const int64_t *size, const void *in, void *out)
{
    char name[NAME];
    nb_task t = {.me = me, .step = step, .dtype = dtype, .in = in, .out = out};
    t.on = on;
    t.size = size;
    t.rank = step->from->rank;
    t.item = nb_dtype_size(dtype);
    write_name(&t, name);
    t.round =
        (nb_meeting){.what = what(&t), .name = name, .source = me->source};
    nb_task_box(&t, step->from, me->position, &t.from);
    nb_hop_box(step, size, nb_task_position(&t, step->into, me->position),
               &t.into);
    bool ok = clear_outside(&t) && find_group(&t) && carry_out(&t);
    nb_free(t.member);
    if (ok) nb_counters_add(me, step->kind, t.received);
    return ok;
}

/* Of blocks on a card, through memory of the CPU. */
static bool run_staged(nb_device *me, const nb_hop *step, nb_dtype dtype,
                       const int64_t *size, const void *in, void *out)
{
    nb_task t = {.me = me};
    nb_box from, into;
    size_t item = nb_dtype_size(dtype), room[2] = {0};
    nb_spec_box(step->from, size,
                nb_task_position(&t, step->from, me->position), &from);
    nb_hop_box(step, size, nb_task_position(&t, step->into, me->position),
               &into);
    size_t nin = (size_t)nb_box_count(step->from->rank, &from) * item;
    size_t nout = (size_t)nb_box_count(step->into->rank, &into) * item;
    char *down = nb_block_new(nin + 1, &room[0]);
    char *up = down ? nb_block_new(nout + 1, &room[1]) : NULL;
    bool ok = up && nb_on_card.read(me->on, down, in, nin) &&
              run(me, 0, step, dtype, size, down, up) &&
              nb_on_card.write(me->on, out, up, nout);
    if (up) nb_block_free(up, room[1]);
    if (down) nb_block_free(down, room[0]);
    return ok;
}

bool nb_hop_run(nb_device *me, const nb_hop *step, nb_dtype dtype,
                const int64_t *size, const void *in, void *out)
{
    bool alone = step->kind == NB_HOP_SLICE || step->kind == NB_HOP_UNREDUCE;
    return me->on && !alone && !me->link->cards
               ? run_staged(me, step, dtype, size, in, out)
               : run(me, me->on, step, dtype, size, in, out);
}
