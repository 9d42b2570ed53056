/* recording.c - recording functions, and whether one is being recorded. */
#include "run/recording.h"

#include "nabla/compile.h"
#include "nabla/device.h"
#include "nabla/random.h"
#include "ops/random.h"
#include "run/realize.h"
#include "transform/region.h"

/* What this thread is recording for an executable, the innermost. */
typedef struct open_recording {
    struct open_recording *around;
    nb_list *in;
    int nkeys;
} open_recording;
static _Thread_local open_recording *innermost;
static _Thread_local bool asked;

void nb_recording_free(nb_recording *r)
{
    nb_graph_free(r->graph);
    for (int i = 0; i < r->ncaptured; i++)
        nb_drop(r->captured[i]);
    nb_free(r->captured);
    *r = (nb_recording){0};
}

static bool stand_ins(int nx, nb_tensor *const *x, const nb_shape *shape,
                      nb_list *to)
{
    for (int i = 0; i < nx; i++) {
        if (!x[i]) return false;
        nb_shape s = shape ? shape[i] : nb_tensor_shape(x[i]);
        nb_tensor *in = nb_stand_in_on(x[i]->device, (nb_dtype)x[i]->dtype, &s);
        if (in) in->sharding = x[i]->sharding;
        if (!nb_list_add(to, in)) return false;
    }
    return true;
}

/* A key as one more input; the scope in which it is drawn may end before the
 * recording does, so the list has a reference of its own. */
static nb_tensor *key_input(void)
{
    nb_shape pair = {.rank = 1, .size = {nb_extent_of(2)}};
    nb_tensor *key = nb_stand_in_on(nb_device_in_force(), NB_U32, &pair);
    if (!key || !nb_list_add(innermost->in, key)) return NULL;
    innermost->nkeys++;
    return nb_keep(key);
}

static bool record(nb_recording *to, nb_region *r, nb_func *f, nb_list *in)
{
    nb_tensor *(*source)(void) = nb_key_source;
    open_recording now = {.around = innermost, .in = in};
    innermost = &now;
    nb_key_source = key_input;
    nb_asked_take();
    bool ok = nb_region_record(r, f, in);
    asked = !ok && nb_asked_take();
    nb_key_source = source;
    innermost = now.around;
    to->nkeys = now.nkeys;
    return ok;
}

bool nb_recording_make(nb_recording *to, nb_func *f, int nx,
                       nb_tensor *const *x, const nb_shape *shape)
{
    nb_region r = {.once = true};
    nb_list in = {0};
    *to = (nb_recording){0};
    asked = false;
    bool ok = stand_ins(nx, x, shape, &in) && record(to, &r, f, &in);
    if (ok) {
        to->graph = r.graph;
        to->ncaptured = r.ncaptured;
        to->captured = r.captured;
        r = (nb_region){0};
        ok = nb_realize_now(to->ncaptured, to->captured);
    }
    nb_region_free(&r);
    for (int i = in.n - to->nkeys; i < in.n; i++)
        nb_drop(in.at[i]);
    nb_list_free(&in);
    if (!ok) nb_recording_free(to);
    return ok;
}

bool nb_value_asked(void)
{
    return asked;
}

/* Whether x is computed from a stand-in, whose value does not exist. */
static bool is_recorded(nb_tensor *x)
{
    nb_tensor **stack = NULL;
    int depth = 0, room = 0;
    bool found = false;
    if (nb_tensor_done(x)) return false;
    nb_graph_lock();
    uint32_t mark = nb_graph_mark();
    while (x && !found) {
        x->mark = mark;
        found = !x->op && !(x->flags & NB_DONATED);
        for (int i = 0; i < x->nin && !found; i++) {
            nb_tensor *in = nb_tensor_in(x)[i];
            if (nb_tensor_done(in) || in->mark == mark) continue;
            found = !nb_grow(&stack, &room, depth + 1, sizeof *stack);
            if (!found) stack[depth++] = in;
        }
        x = depth ? stack[--depth] : NULL;
    }
    nb_graph_unlock();
    nb_free(stack);
    return found;
}

bool nb_is_watched(int nx, nb_tensor *const *x)
{
    int lanes;
    nb_lanes_open(&lanes);
    if (innermost || lanes || nb_traces_open()) return true;
    for (int i = 0; i < nx; i++)
        if (x[i] && (x[i]->nlanes || is_recorded(x[i]))) return true;
    return false;
}
