/* reshard.c - plans as users see them. */
#include "nabla/reshard.h"

#include "base/text.h"
#include "shard/plan/plan.h"

const nb_reshard_plan *nb_reshard_plan_of(const nb_spec *from,
                                          const nb_spec *into, int rank,
                                          const int64_t *size, nb_dtype dtype,
                                          int may)
{
    nb_plan_options options = {.exchange = may & NB_RESHARD_EXCHANGE,
                               .wide = may & NB_RESHARD_WIDE,
                               .idle_axes = may & NB_RESHARD_IDLE,
                               .collectives = may & NB_RESHARD_COLLECTIVES};
    from = nb_spec_fit(from, rank, size);
    into = from ? nb_spec_fit(into, rank, size) : NULL;
    if (!into) return NULL;
    if (!nb_dtype_size(dtype))
        return nb_fail(NB_EVALUE, "reshard: dtype %d", (int)dtype);
    return nb_reshard_find(from, into, size, (int)nb_dtype_size(dtype),
                           &options);
}

int nb_reshard_plan_steps(const nb_reshard_plan *p)
{
    return p->n;
}

int64_t nb_reshard_plan_bytes(const nb_reshard_plan *p)
{
    return p->bytes;
}

int64_t nb_reshard_plan_bound(const nb_reshard_plan *p)
{
    return p->bound;
}

int64_t nb_reshard_plan_peak(const nb_reshard_plan *p)
{
    return p->peak;
}

double nb_reshard_plan_seconds(const nb_reshard_plan *p)
{
    return p->seconds;
}

static const nb_hop *step(const nb_reshard_plan *p, int i)
{
    if (i >= 0 && i < p->n) return &p->step[i];
    return nb_fail(NB_EVALUE, "reshard: step %d of a plan of %d", i, p->n);
}

const char *nb_reshard_step_kind(const nb_reshard_plan *p, int i)
{
    const nb_hop *s = step(p, i);
    return s ? nb_hop_name(s->kind) : NULL;
}

static void write_axes(nb_text *t, const nb_hop *s)
{
    char name[128];
    for (int k = 0; k < s->axes.n; k++) {
        nb_axis_text(s->from->mesh, s->axes.at[k], name, sizeof name);
        nb_text_add(t, "%s%s", k ? "," : "", name);
    }
}

const char *nb_reshard_step_axes(const nb_reshard_plan *p, int i)
{
    const nb_hop *s = step(p, i);
    const char *kept = NULL;
    nb_text t = {0};
    if (!s) return NULL;
    write_axes(&t, s);
    if (!t.failed) kept = nb_intern(nb_text_get(&t), (size_t)t.n);
    nb_text_free(&t);
    return kept;
}

const nb_spec *nb_reshard_step_into(const nb_reshard_plan *p, int i)
{
    const nb_hop *s = step(p, i);
    return s ? s->into : NULL;
}

int64_t nb_reshard_step_bytes(const nb_reshard_plan *p, int i)
{
    const nb_hop *s = step(p, i);
    return s ? s->bytes : -1;
}

/* "all_to_all dp: dim 0 to 1, 2048 B", and so on. */
static void write_step(nb_text *t, const nb_hop *s)
{
    nb_text_add(t, "%s ", nb_hop_name(s->kind));
    write_axes(t, s);
    if (s->dim >= 0) nb_text_add(t, ": dim %d", s->dim);
    if (s->to >= 0) nb_text_add(t, " to %d", s->to);
    nb_text_add(t, ", %lld B\n", (long long)s->bytes);
}

char *nb_reshard_plan_text(const nb_reshard_plan *p)
{
    nb_text t = {0};
    for (int i = 0; i < p->n; i++)
        write_step(&t, &p->step[i]);
    nb_text_add(&t, "total %lld B, bound %lld B%s\n", (long long)p->bytes,
                (long long)p->bound, p->bytes == p->bound ? ": minimal" : "");
    if (!t.failed) return t.data;
    nb_text_free(&t);
    return NULL;
}
