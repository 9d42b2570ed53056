/* dnn.c - the part of cuDNN that is used, on simulated cards: descriptors, three
 * proposals for every graph, the first of which says that its results may
 * differ from run to run, the second that it has tensor cores, and plans.  What it computes is in dnn_run.c.
 *
 * Like the library it refuses what it does not know, and tensors that do not
 * begin where they were said to. */
#include "dnn.h"

#include <stdlib.h>
#include <string.h>

enum { OK, BAD = 2000, UNSUPPORTED = 3000, EXECUTION = 5000 };
enum { PROPOSALS = 3, SPACE = 1024, VERSION = 91900 };

typedef struct sim_dnn {
    int kind, n;
    bool done;
    sim_field field[16];
    struct sim_dnn *graph;    /* of a proposal */
    int which;                /* of a proposal, an engine */
    sim_dnn_program *program; /* of a plan */
} sim_dnn;

static sim_dnn_program *programs;
static sim_dnn_run *runs;
static CUstream stream;

#pragma GCC visibility push(default)
size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(int status);
void cudnnGetLastErrorString(char *to, size_t room);
int cudnnCreate(void **handle);
int cudnnSetStream(void *handle, CUstream s);
int cudnnBackendCreateDescriptor(int kind, sim_dnn **d);
int cudnnBackendDestroyDescriptor(sim_dnn *d);
int cudnnBackendSetAttribute(sim_dnn *d, int name, int type, int64_t n,
                             const void *at);
int cudnnBackendGetAttribute(sim_dnn *d, int name, int type, int64_t room,
                             int64_t *n, void *at);
int cudnnBackendFinalize(sim_dnn *d);
int cudnnBackendExecute(void *handle, sim_dnn *plan, sim_dnn *pack);
#pragma GCC visibility pop

size_t cudnnGetVersion(void)
{
    return (size_t)sim_setting("NABLA_SIM_CUDNN", VERSION);
}

const char *cudnnGetErrorString(int status)
{
    return status == UNSUPPORTED ? "NOT_SUPPORTED" : status ? "FAILED" : "FINE";
}

void cudnnGetLastErrorString(char *to, size_t room)
{
    if (room) *to = 0;
}

int cudnnCreate(void **handle)
{
    static int one;
    if (sim_fails(__func__)) return EXECUTION;
    *handle = &one;
    return OK;
}

/* One handle, which whoever uses it holds a lock of. */
int cudnnSetStream(void *handle, CUstream s)
{
    (void)handle;
    stream = s;
    return OK;
}

int cudnnBackendCreateDescriptor(int kind, sim_dnn **d)
{
    *d = sim_fails(__func__) ? NULL : calloc(1, sizeof **d);
    if (*d) (*d)->kind = kind;
    return *d ? OK : EXECUTION;
}

int cudnnBackendDestroyDescriptor(sim_dnn *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->field[i].at);
    free(d);
    return OK;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case SIM_TYPE_CHAR:
    case SIM_TYPE_BOOLEAN: return 1;
    case SIM_TYPE_DATA_TYPE:
    case SIM_TYPE_FLOAT:
    case SIM_TYPE_CONVOLUTION_MODE:
    case SIM_TYPE_HEUR_MODE:
    case SIM_TYPE_NUMERICAL_NOTE:
    case SIM_TYPE_POINTWISE_MODE:
    case SIM_TYPE_REDUCTION_OPERATOR_TYPE: return 4;
    default: return 8;
    }
}

size_t sim_dnn_bytes(const sim_field *f)
{
    return (size_t)f->n * bytes_of(f->type);
}

static bool copy_field(sim_field *to, sim_field from)
{
    size_t n = sim_dnn_bytes(&from);
    *to = from;
    to->at = malloc(n + 1);
    if (to->at) memcpy(to->at, from.at, n);
    return to->at;
}

int cudnnBackendSetAttribute(sim_dnn *d, int name, int type, int64_t n,
                             const void *at)
{
    if (d->done || d->n == 16 || !at) return BAD;
    sim_field f = {name, type, n, (void *)(uintptr_t)at};
    return copy_field(&d->field[d->n++], f) ? OK : EXECUTION;
}

static const sim_field *find(const sim_dnn *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->field[i].name == name) return &d->field[i];
    return NULL;
}

static sim_dnn *refer(const sim_dnn *d, int name)
{
    const sim_field *f = find(d, name);
    return f && f->n == 1 ? *(sim_dnn **)f->at : NULL;
}

static int64_t number(const sim_dnn *d, int name)
{
    const sim_field *f = find(d, name);
    if (!f) return 0;
    return bytes_of(f->type) == 1   ? *(bool *)f->at
           : bytes_of(f->type) == 4 ? *(int *)f->at
                                    : *(int64_t *)f->at;
}

/* Programs */

static int add_tensor(sim_dnn_program *p, const sim_dnn *d)
{
    const sim_field *size = find(d, SIM_ATTR_TENSOR_DIMENSIONS);
    const sim_field *step = find(d, SIM_ATTR_TENSOR_STRIDES);
    sim_dnn_tensor t = {.id = number(d, SIM_ATTR_TENSOR_UNIQUE_ID),
                        .type = (int)number(d, SIM_ATTR_TENSOR_DATA_TYPE),
                        .align = number(d, SIM_ATTR_TENSOR_BYTE_ALIGNMENT),
                        .between = number(d, SIM_ATTR_TENSOR_IS_VIRTUAL),
                        .fixed = number(d, SIM_ATTR_TENSOR_IS_BY_VALUE)};
    for (int i = 0; i < p->ntensors; i++)
        if (p->tensor[i].id == t.id) return i;
    t.rank = (int)size->n;
    memcpy(t.size, size->at, (size_t)t.rank * sizeof *t.size);
    memcpy(t.step, step->at, (size_t)t.rank * sizeof *t.step);
    if (p->ntensors == SIM_DNN_MOST) return -1;
    p->tensor[p->ntensors] = t;
    return p->ntensors++;
}

/* The attributes of d and of all that it refers to. */
static bool flatten(sim_dnn_program *p, sim_dnn_op *op, const sim_dnn *d)
{
    for (int i = 0; i < d->n; i++) {
        sim_field f = d->field[i];
        sim_dnn *to =
            f.type == SIM_TYPE_BACKEND_DESCRIPTOR ? *(sim_dnn **)f.at : NULL;
        bool tensor = to && to->kind == SIM_BACKEND_TENSOR_DESCRIPTOR;
        int64_t place = tensor ? add_tensor(p, to) : 0;
        if (to && !tensor) {
            if (!flatten(p, op, to)) return false;
            continue;
        }
        if (tensor) f.at = &place;
        if (place < 0 || op->n == SIM_DNN_FIELDS ||
            !copy_field(&op->field[op->n++], f))
            return false;
    }
    return true;
}

static sim_dnn_program *compile(const sim_dnn *graph)
{
    const sim_field *ops = find(graph, SIM_ATTR_OPERATIONGRAPH_OPS);
    sim_dnn_program *p = calloc(1, sizeof *p);
    bool ok = p && ops && ops->n <= SIM_DNN_MOST;
    for (int64_t i = 0; ok && i < ops->n; i++) {
        const sim_dnn *d = ((sim_dnn **)ops->at)[i];
        p->op[p->nops].kind = d->kind;
        ok = flatten(p, &p->op[p->nops], d) && sim_dnn_fits(p, p->nops);
        p->nops++;
    }
    return ok ? p : NULL;
}

static sim_dnn_program *stays(sim_dnn_program *p)
{
    if (!p) return NULL;
    p->next = __atomic_load_n(&programs, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&programs, &p->next, p, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    return p;
}

/* Graphs, proposals, plans */

static bool is_operation(int kind)
{
    return kind == SIM_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           kind ==
               SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ||
           kind == SIM_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           kind == SIM_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
           kind == SIM_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
           kind == SIM_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
           kind == SIM_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

/* Descriptors that are referred to are made before. */
static bool is_whole(const sim_dnn *d)
{
    for (int i = 0; i < d->n; i++) {
        const sim_field *f = &d->field[i];
        if (f->type != SIM_TYPE_BACKEND_DESCRIPTOR) continue;
        for (int64_t k = 0; k < f->n; k++)
            if (!((sim_dnn **)f->at)[k] || !((sim_dnn **)f->at)[k]->done)
                return false;
    }
    return true;
}

int cudnnBackendFinalize(sim_dnn *d)
{
    if (sim_fails(__func__)) return UNSUPPORTED;
    if (d->done || !is_whole(d)) return BAD;
    if (is_operation(d->kind) && !sim_dnn_knows(d->kind)) return UNSUPPORTED;
    if (d->kind == SIM_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        sim_dnn *config = refer(d, SIM_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        const sim_field *kept =
            find(d, SIM_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
        if (!find(d, SIM_ATTR_EXECUTION_PLAN_HANDLE) || !(config || kept))
            return BAD;
        d->program = stays(kept ? sim_dnn_read(kept->at, kept->n)
                                : compile(config->graph));
        if (!d->program) return UNSUPPORTED;
        if (config && config->which == sim_setting("NABLA_SIM_CUDNN_IDLE", -1))
            d->program->nops = 0;
    }
    d->done = true;
    return OK;
}

static int propose(const sim_dnn *d, int64_t room, int64_t *n, sim_dnn **to)
{
    *n = sim_setting("NABLA_SIM_CUDNN_PROPOSALS", PROPOSALS);
    if (*n > room) *n = room;
    for (int i = 0; i < *n; i++) {
        to[i]->graph = refer(d, SIM_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        to[i]->which = i;
        to[i]->done = true;
    }
    return OK;
}

int cudnnBackendGetAttribute(sim_dnn *d, int name, int type, int64_t room,
                             int64_t *n, void *at)
{
    (void)type;
    if (!d->done) return BAD;
    *n = 1;
    switch (name) {
    case SIM_ATTR_ENGINEHEUR_RESULTS: return propose(d, room, n, at);
    case SIM_ATTR_ENGINECFG_ENGINE:
        (*(sim_dnn **)at)->which = d->which;
        (*(sim_dnn **)at)->done = true;
        return OK;
    case SIM_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = d->which < 2;
        *(int *)at = d->which ? SIM_NUMERICAL_NOTE_TENSOR_CORE
                              : SIM_NUMERICAL_NOTE_NONDETERMINISTIC;
        return OK;
    case SIM_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
        *n = sim_dnn_write(d->program, room ? at : NULL);
        return OK;
    case SIM_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)at = SPACE;
        return OK;
    default: return BAD;
    }
}

/* Running */

static bool place(sim_dnn_run *r, const sim_dnn *pack)
{
    const sim_field *id = find(pack, SIM_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const sim_field *at = find(pack, SIM_ATTR_VARIANT_PACK_DATA_POINTERS);
    const sim_dnn_program *p = r->program;
    for (int i = 0; i < p->ntensors; i++) {
        const sim_dnn_tensor *t = &p->tensor[i];
        int64_t k = 0;
        while (k < id->n && ((int64_t *)id->at)[k] != t->id)
            k++;
        if (t->between) continue;
        char *data = k < id->n ? ((char **)at->at)[k] : NULL;
        if (!data || (!t->fixed && (uintptr_t)data % (uintptr_t)t->align))
            return false;
        if (t->fixed) memcpy(&r->value[i], data, sizeof r->value[i]);
        r->at[i] = data;
    }
    return true;
}

int cudnnBackendExecute(void *handle, sim_dnn *plan, sim_dnn *pack)
{
    (void)handle;
    const sim_field *space = find(pack, SIM_ATTR_VARIANT_PACK_WORKSPACE);
    if (sim_fails(__func__)) return EXECUTION;
    sim_dnn_run *r = calloc(1, sizeof *r);
    if (!r) return EXECUTION;
    r->program = plan->program;
    r->space = space ? *(char **)space->at : NULL;
    r->space_bytes = SPACE;
    r->next = __atomic_load_n(&runs, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&runs, &r->next, r, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    if (!r->space || !pack->done || !place(r, pack)) return BAD;
    return cuLaunchHostFunc(stream, sim_dnn_go, r) ? EXECUTION : OK;
}
