/* model.c - programs as problems: nodes, values, what is said of them, and the
 * problem that comes of it. */
#include "shard/solve/model_parts.h"

#include <stdlib.h>
#include <string.h>

nb_model *nb_model_new(const nb_mesh *mesh, const nb_model_options *o)
{
    nb_model *m = nb_alloc_zero(sizeof *m);
    if (!m) return NULL;
    m->mesh = mesh;
    if (o) m->o = *o;
    if (!m->o.price) m->o.price = nb_price_plan;
    return m;
}

void nb_model_free(nb_model *m)
{
    if (!m) return;
    for (nb_choices *c = m->choices, *next; c; c = next) {
        next = c->next;
        nb_choices_free(c);
    }
    for (nb_priced *p = m->priced, *next; p; p = next) {
        next = p->next;
        nb_free(p->table);
        nb_free(p);
    }
    for (int i = 0; i < m->nnodes; i++)
        nb_free(m->node[i].operand);
    nb_free(m->node);
    nb_free(m->value);
    nb_free(m->tie);
    nb_free(m->count);
    nb_free(m->alias);
    nb_free(m->want);
    nb_free(m->budget);
    nb_free(m->flops);
    nb_problem_free(m->problem);
    nb_solution_free(m->solution);
    nb_free(m);
}

/* What options follow from, as numbers. */
typedef struct key {
    int64_t *word;
    int n, room;
    bool failed;
} key;

static void put(key *k, int64_t word)
{
    if (k->failed || !nb_grow(&k->word, &k->room, k->n + 1, sizeof *k->word))
        k->failed = true;
    else
        k->word[k->n++] = word;
}

static void put_op(key *k, const nb_model_op *op)
{
    const nb_factors *f = op->factors;
    put(k, f->n), put(k, f->nin), put(k, f->nout);
    put(k, op->carry), put(k, (int64_t)op->carriers), put(k, op->spread);
    put(k, (intptr_t)op->said);
    for (int i = 0; i < f->n; i++) {
        put(k, f->size[i]);
        put(k, f->kind[i] | f->reduce[i] << 8 | f->reduced[i] << 16);
    }
    for (int t = 0; t < f->nin + f->nout; t++) {
        put(k, f->tensor[t].rank);
        for (int d = 0; d < f->tensor[t].rank; d++) {
            put(k, f->tensor[t].size[d]);
            put(k, f->tensor[t].dim[d].n);
            for (int i = 0; i < f->tensor[t].dim[d].n; i++)
                put(k, f->tensor[t].dim[d].factor[i]);
        }
    }
}

static void put_input(key *k, const nb_model_tensor *t)
{
    put(k, -1), put(k, t->rank), put(k, (intptr_t)t->spec);
    for (int d = 0; d < t->rank; d++)
        put(k, t->size[d]);
}

/* Options of an op, or of an input if op is NULL. */
static const nb_choices *choices_find(nb_model *m, const nb_model_op *op,
                                      const nb_model_tensor *t)
{
    key k = {0};
    nb_choices *c = m->choices;
    if (op)
        put_op(&k, op);
    else
        put_input(&k, t);
    size_t bytes = (size_t)k.n * sizeof *k.word;
    while (c && !k.failed && (c->nkey != k.n || memcmp(c->key, k.word, bytes)))
        c = c->next;
    if (c || k.failed) {
        nb_free(k.word);
        return k.failed ? NULL : c;
    }
    c = op ? nb_choices_of_op(m->mesh, op) : nb_choices_of_input(m->mesh, t);
    if (!c) return nb_free(k.word), NULL;
    c->key = k.word;
    c->nkey = k.n;
    c->next = m->choices;
    return m->choices = c;
}

static bool add_node(nb_model *m, nb_model_node n, const int *operand,
                     double flops)
{
    if (!nb_grow(&m->node, &m->node_room, m->nnodes + 1, sizeof *m->node) ||
        !nb_grow(&m->flops, &m->flops_room, m->nnodes + 1, sizeof *m->flops) ||
        !nb_grow(&m->value, &m->value_room, m->nvalues + n.nout,
                 sizeof *m->value))
        return false;
    n.operand = nb_alloc((size_t)(n.nin + 1) * sizeof *n.operand);
    if (!n.operand) return false;
    for (int i = 0; i < n.nin; i++) {
        n.operand[i] = operand[i];
        m->value[operand[i]].last = m->nnodes;
    }
    n.first = m->nvalues;
    m->flops[m->nnodes] = flops;
    m->node[m->nnodes] = n;
    return true;
}

int nb_model_input(nb_model *m, const nb_model_tensor *t)
{
    const nb_choices *c = choices_find(m, NULL, t);
    nb_model_node n = {.name = t->name, .choices = c, .nout = 1};
    n.is_input = true;
    if (!c || !add_node(m, n, NULL, 0)) return -1;
    m->value[m->nvalues] = (nb_model_value){m->nnodes, 0, t->item, m->nnodes};
    m->nnodes++;
    return m->nvalues++;
}

static bool check_operands(const nb_model *m, const nb_model_op *op)
{
    const nb_factors *f = op->factors;
    for (int i = 0; i < f->nin; i++) {
        int v = op->operand[i];
        if (v < 0 || v >= m->nvalues)
            return nb_fail(NB_EVALUE, "auto_shard: %s has no operand %d",
                           op->name, i);
        const nb_model_value *x = &m->value[v];
        const nb_choices *c = m->node[x->node].choices;
        int t = c->nin + x->k, rank = f->tensor[i].rank;
        if (rank != c->rank[t] ||
            memcmp(c->size[t], f->tensor[i].size,
                   (size_t)rank * sizeof *f->tensor[i].size))
            return nb_fail(NB_EVALUE,
                           "auto_shard: operand %d of %s has other sizes than "
                           "the value it is",
                           i, op->name);
    }
    return true;
}

int nb_model_add(nb_model *m, const nb_model_op *op)
{
    const nb_factors *f = op->factors;
    if (!check_operands(m, op)) return -1;
    const nb_choices *c = choices_find(m, op, NULL);
    nb_model_node n = {
        .name = op->name, .choices = c, .nin = f->nin, .nout = f->nout};
    if (!c || !add_node(m, n, op->operand, op->flops)) return -1;
    int first = m->nvalues;
    for (int k = 0; k < f->nout; k++)
        m->value[m->nvalues++] =
            (nb_model_value){m->nnodes, k, op->item[k], m->nnodes};
    m->nnodes++;
    return first;
}

static bool add_want(nb_model *m, int value, const nb_spec *spec, bool rather)
{
    if (!nb_grow(&m->want, &m->want_room, m->nwants + 1, sizeof *m->want))
        return false;
    m->want[m->nwants].value = value;
    m->want[m->nwants].rather = rather;
    m->want[m->nwants++].spec = spec;
    return true;
}

bool nb_model_want(nb_model *m, int value, const nb_spec *spec)
{
    if (!add_want(m, value, spec, false)) return false;
    m->value[value].last = m->nnodes;
    return true;
}

bool nb_model_prefer(nb_model *m, int value, const nb_spec *spec)
{
    return add_want(m, value, spec, true);
}

bool nb_model_alias(nb_model *m, int value, int input)
{
    if (!nb_grow(&m->alias, &m->alias_room, m->naliases + 1, sizeof *m->alias))
        return false;
    m->alias[m->naliases].a = value;
    m->alias[m->naliases++].b = input;
    return true;
}

bool nb_model_tie(nb_model *m, int a, int b)
{
    const nb_model_node *x = &m->node[m->value[a].node];
    const nb_model_node *y = &m->node[m->value[b].node];
    if (x->choices != y->choices)
        return nb_fail(NB_EVALUE, "auto_shard: %s and %s are not alike",
                       x->name, y->name);
    if (!nb_grow(&m->tie, &m->tie_room, m->nties + 1, sizeof *m->tie))
        return false;
    m->tie[m->nties].a = m->value[a].node;
    m->tie[m->nties++].b = m->value[b].node;
    return true;
}

int nb_model_row(nb_model *m, int64_t budget)
{
    if (!nb_grow(&m->budget, &m->row_room, m->nrows + 1, sizeof *m->budget))
        return -1;
    m->budget[m->nrows] = budget;
    return m->nrows++;
}

bool nb_model_count(nb_model *m, int row, int value)
{
    if (!nb_grow(&m->count, &m->count_room, m->ncounts + 1, sizeof *m->count))
        return false;
    m->count[m->ncounts].a = row;
    m->count[m->ncounts++].b = value;
    return true;
}

/* Bytes of a value on one device that has all of it. */
static double whole_bytes(const nb_model *m, int v)
{
    const nb_model_value *x = &m->value[v];
    const nb_choices *c = m->node[x->node].choices;
    double bytes = x->item;
    for (int d = 0; d < c->rank[c->nin + x->k]; d++)
        bytes *= (double)c->size[c->nin + x->k][d];
    return bytes;
}

static bool is_alive(const nb_model *m, int v, int time)
{
    const nb_model_value *x = &m->value[v];
    return m->node[x->node].is_input || (x->node <= time && x->last >= time);
}

bool nb_model_count_live(nb_model *m, int times, int64_t budget)
{
    double *total = nb_alloc_zero((size_t)(m->nnodes + 1) * sizeof *total);
    bool ok = total != NULL;
    for (int t = 0; t < m->nnodes && ok; t++)
        for (int v = 0; v < m->nvalues; v++)
            if (is_alive(m, v, t)) total[t] += whole_bytes(m, v);
    for (int k = 0; k < times && ok; k++) {
        int at = 0, row;
        for (int t = 1; t < m->nnodes; t++)
            if (total[t] > total[at]) at = t;
        if (m->nnodes == 0 || total[at] < 0) break;
        ok = (row = nb_model_row(m, budget)) >= 0;
        for (int v = 0; v < m->nvalues && ok; v++)
            if (is_alive(m, v, at)) ok = nb_model_count(m, row, v);
        /* Times close by have nearly the same alive. */
        for (int t = 0; t < m->nnodes; t++)
            if (abs(t - at) <= m->nnodes / (2 * times)) total[t] = -1;
    }
    nb_free(total);
    return ok;
}

static bool pose_node(nb_model *m, int i)
{
    nb_model_node *n = &m->node[i];
    const nb_choices *c = n->choices;
    n->var = nb_problem_add(m->problem, c->n);
    if (n->var < 0) return false;
    if (m->o.flop > 0 && m->flops[i] > 0) {
        double *cost = nb_alloc((size_t)c->n * sizeof *cost);
        if (!cost) return false;
        for (int k = 0; k < c->n; k++)
            cost[k] = m->o.flop * m->flops[i] * c->share[k];
        bool ok = nb_problem_cost(m->problem, n->var, cost);
        nb_free(cost);
        if (!ok) return false;
    }
    for (int j = 0; j < n->nin; j++) {
        const nb_model_value *x = &m->value[n->operand[j]];
        const nb_model_node *from = &m->node[x->node];
        const double *price =
            nb_model_prices(m, from->choices, x->k, c, j, x->item);
        if (!price || !nb_problem_pair(m->problem, from->var, n->var, price))
            return false;
    }
    return true;
}

/* An input stands for its own result 0, which is tensor 0 of its options. */
static bool pose_alias(nb_model *m, int value, int input)
{
    const nb_model_value *x = &m->value[value], *y = &m->value[input];
    const nb_model_node *from = &m->node[x->node], *to = &m->node[y->node];
    const double *price =
        nb_model_prices(m, from->choices, x->k, to->choices, 0, x->item);
    return price && nb_problem_pair(m->problem, from->var, to->var, price);
}

/* Less than any step that moves, for each open dim that lies otherwise. */
static double miss(const nb_spec *is, const nb_spec *rather)
{
    double n = 0, byte = is->mesh->byte[0];
    for (int d = 0; d < is->rank; d++)
        n += rather->dim[d].open &&
             !nb_cut_prefix(&rather->dim[d].axes, &is->dim[d].axes);
    return n * 1e-6 * (byte > 0 ? byte : 1);
}

static bool pose_want(nb_model *m, int value, const nb_spec *spec, bool rather)
{
    const nb_model_value *x = &m->value[value];
    const nb_model_node *n = &m->node[x->node];
    const nb_choices *c = n->choices;
    int t = c->nin + x->k;
    double *cost = nb_alloc((size_t)c->n * sizeof *cost);
    if (!cost) return false;
    for (int i = 0; i < c->n; i++)
        cost[i] = rather ? miss(nb_choices_spec(c, i, t), spec)
                         : nb_model_price(m, nb_choices_spec(c, i, t), spec,
                                          c->size[t], x->item);
    bool ok = nb_problem_cost(m->problem, n->var, cost);
    nb_free(cost);
    return ok;
}

static bool pose_count(nb_model *m, int row, int value)
{
    const nb_model_value *x = &m->value[value];
    const nb_model_node *n = &m->node[x->node];
    const nb_choices *c = n->choices;
    int64_t *bytes = nb_alloc((size_t)c->n * sizeof *bytes);
    if (!bytes) return false;
    for (int i = 0; i < c->n; i++)
        bytes[i] = nb_choices_bytes(c, i, c->nin + x->k, x->item);
    bool ok = nb_problem_bytes(m->problem, n->var, row, bytes);
    nb_free(bytes);
    return ok;
}

static bool pose(nb_model *m)
{
    nb_problem_free(m->problem);
    bool ok = (m->problem = nb_problem_new(m->nrows)) != NULL;
    for (int i = 0; i < m->nnodes && ok; i++)
        ok = pose_node(m, i);
    for (int i = 0; i < m->naliases && ok; i++)
        ok = pose_alias(m, m->alias[i].a, m->alias[i].b);
    for (int i = 0; i < m->nwants && ok; i++)
        ok = pose_want(m, m->want[i].value, m->want[i].spec, m->want[i].rather);
    for (int i = 0; i < m->ncounts && ok; i++)
        ok = pose_count(m, m->count[i].a, m->count[i].b);
    for (int r = 0; r < m->nrows && ok; r++)
        ok = nb_problem_budget(m->problem, r, m->budget[r]);
    for (int i = 0; i < m->nties && ok; i++)
        ok = nb_problem_tie(m->problem, m->node[m->tie[i].a].var,
                            m->node[m->tie[i].b].var);
    return ok;
}

bool nb_model_solve(nb_model *m)
{
    nb_solution_free(m->solution);
    m->solution = NULL;
    if (!pose(m)) return false;
    m->solution = nb_problem_solve(m->problem, &m->o.solve);
    return m->solution != NULL;
}

const nb_solution *nb_model_solution(const nb_model *m)
{
    return m->solution;
}

const nb_problem *nb_model_problem(const nb_model *m)
{
    return m->problem;
}

static const nb_spec *chosen(const nb_model *m, int node, int t)
{
    if (!m->solution || !m->solution->choice) return NULL;
    return nb_choices_spec(m->node[node].choices, m->solution->choice[node], t);
}

const nb_spec *nb_model_spec(const nb_model *m, int value)
{
    const nb_model_value *x = &m->value[value];
    return chosen(m, x->node, m->node[x->node].nin + x->k);
}

const nb_spec *nb_model_need(const nb_model *m, int value, int k)
{
    return chosen(m, m->value[value].node, k);
}
