/* subject.c - calling an op on some of the arguments of its sample. */
#include "support/subject.h"

#include <string.h>

bool is_float(nb_tensor *x)
{
    return nb_dtype_is_float(nb_dtype_of(x));
}

static nb_status subject_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    const subject *f = ctx;
    const sample *s = &f->s;
    nb_tensor *in[MAX_IN];
    (void)nx;
    memcpy(in, s->in, sizeof in);
    for (int i = 0; i < f->nfree; i++)
        in[f->free[i]] = x[i];
    *ny -= f->scaled;
    nb_status status =
        nb_op_call(s->op, s->nin, in, s->nval, s->val, ny, y + f->scaled);
    *ny += f->scaled;
    if (f->scaled && status == NB_OK)
        y[0] = nb_mul(nb_cast(y[1], NB_F64), x[f->nfree]);
    return status;
}

bool subject_of(nb_op *op, subject *f, task *g)
{
    nb_tensor *y[MAX_ARGS];
    *f = (subject){.scaled = true};
    if (!sample_random(&f->s, op)) return false;
    *g = (task){.fn = nb_func_new(subject_body, f), .nout = MAX_ARGS};
    for (int i = 0; i < f->s.nin; i++) {
        if (sample_smooth(&f->s, i)) f->scaled = false;
        if (is_float(f->s.in[i]) && op->fixed >> i & 1) continue;
        f->free[f->nfree++] = i;
        g->x[g->nin++] = f->s.in[i];
    }
    if (f->scaled) g->x[g->nin++] = draw(0, NULL, 0.5, 2);
    return nb_func_call(g->fn, g->nin, g->x, &g->nout, y) == NB_OK;
}
