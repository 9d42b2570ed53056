/* ref.c - choosing how to run a call. */
#include "backend/ref/ref.h"

#include "core/apply.h"
#include "lower/look.h"

static bool compute(const nb_call *c, nb_tensor *y, char *to)
{
    bool done = false;
    if (c->op->kernel) return nb_ref_kernel(c, y, &to);
    if (c->op->scalar == NB_S_mul && c->nin == 2 && c->op->kind &&
        !c->sig->pointwise && !nb_ref_contract(c, y, to, &done))
        return false;
    return done || nb_ref_loop(c, y, to);
}

bool nb_ref_compute(const nb_call *c, nb_tensor *y, char *const *to)
{
    if (c->op->execute) return c->op->execute(c, to);
    if (y->flags & NB_MULTI) return nb_ref_kernel(c, y, to);
    return compute(c, y, *to);
}

/* The node of all results has their offsets for strides. */
static bool run_parts(const nb_call *c, nb_tensor *y, nb_placed *out)
{
    int n = c->op->nout;
    int64_t total, *offset = nb_alloc((size_t)n * sizeof *offset);
    out->strides = offset;
    char **to = nb_alloc((size_t)n * sizeof *to);
    bool ok = offset && to && nb_look_parts(c, offset, &total) &&
              (out->buffer = nb_buffer_new((size_t)total));
    if (ok) out->data = out->buffer->data;
    for (int k = 0; ok && k < n; k++)
        to[k] = out->data + offset[k];
    ok = ok && nb_ref_compute(c, y, to);
    nb_free(to);
    return ok;
}

static bool run(const nb_call *c, nb_tensor *y, nb_placed *out)
{
    bool done = false;
    if (c->op == &nb_op_part) return nb_ref_part(c, out);
    if (y->flags & NB_MULTI) return run_parts(c, y, out);
    if (!nb_ref_view(c, y, out, &done)) return false;
    if (done) return true;
    nb_shape shape = nb_tensor_shape(y);
    int64_t n;
    nb_shape_count(&shape, &n);
    out->buffer = nb_buffer_new((size_t)n * nb_dtype_size((nb_dtype)y->dtype));
    if (!out->buffer) return false;
    out->data = out->buffer->data;
    return nb_ref_compute(c, y, &out->data);
}

bool nb_ref_run(const nb_call *c, nb_tensor *y, nb_placed *out)
{
    *out = (nb_placed){0};
    if (run(c, y, out)) return true;
    nb_buffer_drop(out->buffer);
    nb_free(out->strides);
    return false;
}
