/* func.c - functions as values. */
#include "transform/func.h"

#include "core/apply.h"
#include "ops/ops.h"

#include <string.h>

struct nb_func {
    atomic_int refs;
    nb_body *body;
    void *ctx;
    void (*release)(void *ctx); /* NULL: the ctx is the caller's */
    const char *name;           /* of a transform, or NULL */
    bool tidy;                  /* lends its results and nothing else */
};

static void drop_func(void *f)
{
    nb_func_drop(f);
}

nb_func *nb_func_owning(nb_body *body, void *ctx, void (*release)(void *))
{
    nb_func *f = nb_alloc(sizeof *f);
    if (f) {
        *f = (nb_func){.refs = 1, .body = body, .ctx = ctx, .release = release};
        return nb_lend_other(f, drop_func);
    }
    if (release) release(ctx);
    return NULL;
}

nb_func *nb_func_new(nb_body *body, void *ctx)
{
    if (!body) return nb_fail(NB_EVALUE, "a function needs a body");
    return nb_func_owning(body, ctx, NULL);
}

nb_func *nb_func_keep(nb_func *f)
{
    if (f) atomic_fetch_add(&f->refs, 1);
    return f;
}

void nb_func_drop(nb_func *f)
{
    if (!f || atomic_fetch_sub(&f->refs, 1) != 1) return;
    if (f->release) f->release(f->ctx);
    nb_free(f);
}

void *nb_func_ctx(const nb_func *f, nb_body *body)
{
    return f->body == body ? f->ctx : NULL;
}

static void made_free(void *ctx)
{
    nb_made *m = ctx;
    nb_func_drop(m->of);
    nb_free(m);
}

nb_func *nb_func_made(nb_func *f, nb_body *body, int n, const int *numbers)
{
    if (!f) return NULL;
    nb_made *m = nb_alloc(sizeof *m + (size_t)n * sizeof m->argument[0]);
    if (!m) return NULL;
    m->of = nb_func_keep(f);
    m->n = n;
    for (int i = 0; i < n; i++)
        m->argument[i] = numbers[i];
    return nb_func_owning(body, m, made_free);
}

nb_func *nb_func_named(nb_func *f, const char *name)
{
    if (f) f->name = name;
    return f;
}

static nb_status call_it(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const nb_made *m = ctx;
    return nb_func_call(m->of, nx, x, ny, y);
}

nb_func *nb_func_inside(nb_func *f, const char *name)
{
    return nb_func_named(nb_func_made(f, call_it, 0, NULL), name);
}

nb_tensor **nb_array(int n)
{
    return nb_alloc_zero((size_t)(n + 1) * sizeof(nb_tensor *));
}

static bool complete(int n, nb_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (!x[i]) return false;
    return true;
}

/* The first to tell knows where it was: the place is still that of the call. */
static void tell(const nb_func *f)
{
    nb_site at = nb_site_now();
    bool first = !*nb_error_notes();
    if (!f->name && !at.file) return;
    if (at.file && first) nb_error_note("at %s:%d", at.file, at.line);
    if (f->name)
        nb_error_note(first && !at.file ? "inside %s" : ", inside %s", f->name);
}

nb_func *nb_func_tidy(nb_func *f)
{
    if (f) f->tidy = true;
    return f;
}

static bool run_tidy(nb_func *f, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    bool ok = f->body(f->ctx, nx, x, ny, y) == NB_OK;
    if (!ok) *ny = 0;
    if (!ok) tell(f);
    return ok;
}

bool nb_run(nb_func *f, int nx, nb_tensor *const *x, int *ny, nb_tensor **y)
{
    if (!f || !complete(nx, x)) return false;
    if (f->tidy) return run_tidy(f, nx, x, ny, y);
    if (nb_scope_open() != NB_OK) return false;
    nb_site was = nb_site_now();
    bool ok = f->body(f->ctx, nx, x, ny, y) == NB_OK && complete(*ny, y);
    if (!ok) *ny = 0;
    if (!ok) tell(f);
    nb_site_back(was);
    nb_scope_close(*ny, y);
    return ok && complete(*ny, y);
}

nb_status nb_func_call(nb_func *f, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    return NB_STATUS(nb_run(f, nx, x, ny, y));
}

nb_tensor *nb_func_call1(nb_func *f, int nx, nb_tensor *const *x)
{
    int ny = NB_MAX_RESULTS;
    nb_tensor **y = nb_array(ny), *first = NULL;
    bool ok = y && nb_run(f, nx, x, &ny, y);
    if (ok && ny == 0) nb_fail(NB_ETYPE, "call: the function has no result");
    if (ok && ny > 0) first = y[0];
    nb_free(y);
    return first;
}

/* A number, which is nowhere, is to be where x is. */
nb_tensor *nb_or_zeros(nb_tensor *g, nb_tensor *x)
{
    if (!g) g = nb_laid_like(nb_fill_like(x, 0), x);
    if (!g || !x->device || !nb_tensor_is_number(g)) return g;
    return nb_on_at_once(g, x->device);
}
