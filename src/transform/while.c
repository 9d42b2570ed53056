/* while.c - a loop until a test fails: passes of one.
 *
 * A test that differs from lane to lane is masked: the loop goes on while any
 * lane does, and lanes that are done keep their state. */
#include "transform/passes.h"

#include "core/lanes.h"
#include "ops/ops.h"

typedef struct masked {
    nb_func *test, *body;
    int n;
} masked;

static nb_tensor *test_of(nb_func *f, int n, nb_tensor *const *x)
{
    nb_tensor *p = nb_func_call1(f, n, x);
    if (p && nb_elements(p) != 1)
        return nb_fail(NB_EVALUE,
                       "while: the test gives a scalar, not %lld elements",
                       (long long)nb_elements(p));
    return nb_cast(nb_reshape(p, 0, NULL), NB_BOOL);
}

static nb_status any_lane(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const masked *m = ctx;
    nb_tensor *p = test_of(m->test, nx, x);
    for (int l = 0; p && l < p->nlanes;) {
        nb_lane lane = nb_tensor_lane(p)[l];
        if (lane.thin)
            l++;
        else
            p = nb_any(nb_show(p, 0, lane), 1, (int64_t[]){0}, false);
    }
    y[0] = p;
    *ny = 1;
    return NB_STATUS(p);
}

static nb_status masked_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const masked *m = ctx;
    nb_tensor *p = test_of(m->test, nx, x);
    bool ok = p && nb_run(m->body, nx, x, ny, y);
    if (ok && *ny != m->n)
        ok = nb_fail(NB_EVALUE, "while: %d states, the body returns %d", m->n,
                     *ny);
    for (int k = 0; ok && nb_differs(p) && k < nx; k++)
        ok = (y[k] = nb_strong(y[k], x[k])) &&
             nb_carry_check("while: state", k, x[k], y[k]) &&
             (y[k] = nb_where(p, y[k], x[k]));
    return NB_STATUS(ok);
}

nb_status nb_while(nb_func *test, nb_func *body, int n, nb_tensor *const *init,
                   nb_tensor **y)
{
    masked m = {test, body, n};
    nb_pass pass = {0};
    nb_results results = {.room = n, .out = y};
    bool ok = test && body;
    if (ok && n < 1) ok = nb_fail(NB_EVALUE, "while: no state");
    bool open = ok && nb_scope_open() == NB_OK;
    ok = open && (m.test = nb_func_inside(test, "while")) &&
         (m.body = nb_func_inside(body, "while")) &&
         (pass.body = nb_func_new(masked_body, &m));
    for (int k = 0; ok && k < n; k++)
        ok = nb_list_add(&pass.init, nb_strong(init[k], NULL));
    ok = ok && nb_passes_record(nb_func_new(any_lane, &m), 1, &pass, &results);
    nb_list_free(&pass.init);
    if (open) nb_scope_close(ok ? n : 0, y);
    return NB_STATUS(ok);
}
