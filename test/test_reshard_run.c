/* test_reshard_run.c - plans carried out by the devices of a mesh: the values
 * are right, and what each kind of step received is what it was priced at. */
#include "support/check.h"
#include "support/ranks.h"
#include "support/simulate.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "nabla/distributed.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    const nb_reshard_plan *plan;
    world *before, *after;
    int64_t fault; /* the allocation of the first device that fails; 0: none */
    bool struck;
} job;

/* Of what a device has. */
static size_t bytes_of(const nb_spec *s, const int64_t *size, int device)
{
    nb_box box;
    size_t n = sizeof(int64_t);
    nb_spec_box(s, size, nb_mesh_position(s->mesh, device), &box);
    for (int d = 0; d < s->rank; d++)
        n *= (size_t)box.size[d];
    return n;
}

/* The mesh that runs may not be that of the specs: devices count. */
static bool run_device(void *ctx, int position)
{
    job *j = ctx;
    const nb_reshard_plan *p = j->plan;
    int device = nb_device_now()->mesh->device[position];
    size_t bytes = bytes_of(p->from, p->size, device);
    void *in = malloc(bytes), *out;
    bool ok = true;
    memcpy(in, j->before->block[nb_mesh_position(p->from->mesh, device)],
           bytes);
    for (int i = 0; i < p->n && ok; i++, free(in), in = out) {
        bytes = bytes_of(p->step[i].into, p->size, device);
        out = malloc(bytes);
        if (!position) nb_fault_set(j->fault);
        ok = nb_hop_run(nb_device_now(), &p->step[i], NB_I64, p->size, in, out);
        if (!position) j->struck = j->fault && !nb_fault_is_set();
        if (!position) nb_fault_set(0);
    }
    if (ok)
        memcpy(j->after->block[nb_mesh_position(p->into->mesh, device)], in,
               bytes);
    free(in);
    return ok;
}

/* Steps of a kind, by the plan and by the counters.  One device need not
 * receive most in every step, so counted bytes may be less than the sum. */
static bool is_counted(const nb_reshard_plan *p, const nb_mesh *m, int kind)
{
    int64_t calls = 0, bytes = 0;
    nb_comm_stats s = stats_anywhere(m, (nb_hop_kind)kind);
    for (int i = 0; i < p->n; i++)
        if ((int)p->step[i].kind == kind) {
            calls++;
            bytes += p->step[i].bytes;
        }
    return s.calls == calls &&
           (calls == 1 ? s.bytes == bytes : s.bytes <= bytes);
}

/* What other ranks have, so that all can look at all of it. */
static bool spread(world *w)
{
    size_t bytes[MAX_DEVICES];
    const nb_mesh *m = w->spec->mesh;
    for (int p = 0; p < m->ndevices; p++)
        bytes[p] = bytes_of(w->spec, w->size, m->device[p]);
    return ranks_spread(m, (void **)w->block, bytes);
}

static void check_case(int i, const reshard_case *c, const nb_mesh *running,
                       const nb_plan_options *options)
{
    if (!ranks_share(running)) return;
    int64_t *value = case_values(c);
    const nb_reshard_plan *p =
        nb_reshard_find(c->from, c->into, c->size, 8, options);
    if (!expect(p != NULL, "case %d has a plan", i)) return;
    world before = world_new(c->from, c->size, value);
    world after = world_new(c->into, c->size, value);
    job j = {p, &before, &after, 0, false};
    nb_comm_stats_reset(running);
    bool ok = nb_devices_run(running, run_device, &j);
    expect(ok, "case %d runs", i);
    expect(spread(&after), "case %d: all blocks", i);
    const char *wrong = world_check(&after);
    expect(!wrong, "case %d: %s", i, wrong ? wrong : "");
    for (int k = 0; k <= NB_HOP_EXCHANGE; k++)
        expect(is_counted(p, running, k), "case %d: bytes of %s", i,
               nb_hop_name((nb_hop_kind)k));
    world_free(&before);
    world_free(&after);
    free(value);
}

/* Half of them as reshards do it by themselves; of more than 1 KiB these are at
 * most 1.25 of the bound. */
static void test_random(void)
{
    for (int i = 0; i < 2000; i++) {
        reshard_case c = case_draw(i % 2);
        nb_plan_options options = {.idle_axes = below(4) == 0,
                                   .wide = below(2),
                                   .exchange = below(2) == 0};
        check_case(i, &c, c.mesh, i / 2 % 2 ? &options : NULL);
        const nb_reshard_plan *p =
            nb_reshard_find(c.from, c.into, c.size, 8, NULL);
        if (p && c.elements * 8 > 1024 && p->bound)
            expect(4 * p->bytes <= 5 * p->bound,
                   "case %d: %lld bytes, bound %lld", i, (long long)p->bytes,
                   (long long)p->bound);
    }
}

/* From a mesh to another one of the same devices, run on either. */
static void test_meshes(void)
{
    const char *xy[] = {"x", "y"};
    const nb_mesh *m[2] = {
        nb_mesh_new("a", 2, xy, (int[]){2, 2}, (int[]){3, 1, 0, 2}),
        nb_mesh_new("b", 1, xy, (int[]){4}, NULL)};
    for (int i = 0; i < 100; i++) {
        reshard_case c = {.rank = 2, .size = {7, 6}, .elements = 42};
        c.from = spec_draw(m[i % 2], 2, NB_SUM, true);
        c.into = spec_draw(m[(i + 1) % 2], 2, NB_SUM, true);
        check_case(i, &c, m[i / 2 % 2], NULL);
    }
}

/* Pending blocks on their way to others: a message or memory that fails is an
 * error, nothing is left behind, and the next run is right. */
static void test_faults(void)
{
    if (nb_distributed_size() > 1) return; /* test_mpi.c has those of a rank */
    const nb_mesh *m =
        nb_mesh_new("f", 2, (const char *[]){"x", "y"}, (int[]){2, 2}, NULL);
    reshard_case c = {.mesh = m, .rank = 2, .size = {9, 6}, .elements = 54};
    c.from = nb_spec_parse(m, "[x,.]P{y}");
    c.into = nb_spec_parse(m, "[y,.]");
    nb_plan_options direct = {.exchange = true};
    int64_t *value = case_values(&c), live = nb_memory_live();
    world before = world_new(c.from, c.size, value);
    world after = world_new(c.into, c.size, value);
    job j = {nb_reshard_find(c.from, c.into, c.size, 8, &direct), &before,
             &after, 0, false};
    expect(j.plan && j.plan->step[0].kind == NB_HOP_REDUCE_EXCHANGE,
           "it goes straight");
    for (int nth = 1; nth <= 2; nth++) {
        nb_comm_fault_set(1, nth);
        expect(!nb_devices_run(m, run_device, &j) &&
                   failed_with(NB_ERUNTIME, "reduce_exchange"),
               "message %d fails", nth);
    }
    nb_comm_fault_set(0, 0);
    for (j.fault = 1, j.struck = true; j.struck; j.fault++) {
        bool ok = nb_devices_run(m, run_device, &j);
        bool failed = nb_error_code() != NB_OK;
        nb_error_clear();
        expect(ok == !j.struck && failed == j.struck, "allocation %lld fails",
               (long long)j.fault);
        expect(nb_memory_live() == live, "nothing is left");
    }
    expect(j.fault > 8 && !world_check(&after), "and then it is right");
    world_free(&before);
    world_free(&after);
    free(value);
}

int main(void)
{
    void (*const all[])(void) = {test_random, test_meshes, test_faults};
    none_leaks(sizeof all / sizeof all[0], all);
    return tally();
}
