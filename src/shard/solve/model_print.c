/* model_print.c - the plan that was chosen, as a table. */
#include "shard/solve/model_parts.h"

static void write_tensor(nb_text *t, const nb_choices *c, int k,
                         const nb_spec *s)
{
    nb_text_add(t, "(");
    for (int d = 0; d < c->rank[k]; d++) {
        nb_text_add(t, "%s%lld", d ? ", " : "", (long long)c->size[k][d]);
        nb_spec_write_dim(t, s, d);
    }
    nb_text_add(t, ")");
    nb_spec_write_partial(t, s);
}

/* Operands that must be moved, with what that costs. */
static void write_moves(nb_text *t, const nb_model *m, const nb_model_node *n)
{
    for (int j = 0; j < n->nin; j++) {
        const nb_model_value *x = &m->value[n->operand[j]];
        const nb_spec *from = nb_model_spec(m, n->operand[j]);
        const nb_spec *into = nb_model_need(m, n->first, j);
        double price =
            nb_model_price(m, from, into, n->choices->size[j], x->item);
        if (price <= 0) continue;
        nb_text_add(t, "; %s to ", m->node[x->node].name);
        write_tensor(t, n->choices, j, into);
        nb_text_add(t, " %.6g", price);
    }
}

static void write_node(nb_text *t, const nb_model *m, const nb_model_node *n)
{
    nb_text_add(t, "%-12s", n->name);
    for (int k = 0; k < n->nout; k++) {
        nb_text_add(t, k ? ", " : " ");
        write_tensor(t, n->choices, n->nin + k, nb_model_spec(m, n->first + k));
    }
    write_moves(t, m, n);
    nb_text_add(t, "\n");
}

/* Updated inputs that do not come out as they are kept. */
static void write_aliases(nb_text *t, const nb_model *m)
{
    for (int i = 0; i < m->naliases; i++) {
        const nb_model_value *x = &m->value[m->alias[i].a];
        const nb_model_value *y = &m->value[m->alias[i].b];
        const nb_choices *c = m->node[y->node].choices;
        const nb_spec *into = nb_model_spec(m, m->alias[i].b);
        double price = nb_model_price(m, nb_model_spec(m, m->alias[i].a), into,
                                      c->size[0], x->item);
        if (price <= 0) continue;
        nb_text_add(t, "%s back to ", m->node[x->node].name);
        write_tensor(t, c, 0, into);
        nb_text_add(t, " %.6g\n", price);
    }
}

static void write_rows(nb_text *t, const nb_model *m)
{
    const nb_solution *s = m->solution;
    for (int r = 0; r < m->nrows; r++) {
        nb_text_add(t, "memory %lld bytes", (long long)s->bytes[r]);
        if (m->budget[r] >= 0)
            nb_text_add(t, " of %lld", (long long)m->budget[r]);
        nb_text_add(t, "\n");
    }
}

static void write_none(nb_text *t, const nb_model *m)
{
    const nb_solution *s = m->solution;
    nb_text_add(t, "no layouts %s\n",
                s->proved ? "fit" : "that fit were found");
    for (int r = 0; r < m->nrows; r++)
        if (m->budget[r] >= 0)
            nb_text_add(t, "memory %lld bytes needed, budget %lld\n",
                        (long long)s->least[r], (long long)m->budget[r]);
}

bool nb_model_print(const nb_model *m, nb_text *t)
{
    const nb_solution *s = m->solution;
    if (!s) return nb_fail(NB_EVALUE, "auto_shard: not solved yet");
    if (!s->feasible) {
        write_none(t, m);
        return !t->failed;
    }
    for (int i = 0; i < m->nnodes; i++)
        write_node(t, m, &m->node[i]);
    write_aliases(t, m);
    nb_text_add(t, "cost %.6g, bound %.6g, by %s\n", s->cost, s->bound, s->how);
    write_rows(t, m);
    return !t->failed;
}
