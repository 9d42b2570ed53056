/* card_product.c - products of matrices on a card, by the library. */
#include "run/card_parts.h"

static int64_t stride_of(const nb_product *p, int t, int kind)
{
    return p->n[kind] ? p->l.stride[t][p->at[kind][0]] : 0;
}

static int64_t extent_of(const nb_product *p, int kind)
{
    return p->n[kind] ? p->l.size[p->at[kind][0]] : 1;
}

/* The product of line k, if it is one of matrices where they lie. */
static bool form_of(const nb_plan *p, int k, nb_gemm_form *f)
{
    enum { M = NB_KIND_M, N = NB_KIND_N, K = NB_KIND_K, B = NB_KIND_BATCH };
    const nb_line *l = &p->graph->line[k];
    nb_product x;
    bool fits = false;
    nb_call c = nb_call_of(p->node[k]);
    nb_tensor *in[2] = {nb_line_laid_out(p, l->in[0]),
                        nb_line_laid_out(p, l->in[1])};
    nb_tensor *out = nb_line_laid_out(p, k);
    c.in = in;
    if (!in[0] || !in[1] || !out || !nb_product_plan(&x, &c, out, &fits))
        return nb_error_clear(), false;
    if (!fits || !x.in_place || x.n[B] > 1) return false;
    *f = (nb_gemm_form){.dtype = x.dtype,
                        .m = extent_of(&x, M),
                        .n = extent_of(&x, N),
                        .k = extent_of(&x, K),
                        .batch = extent_of(&x, B),
                        .a = {stride_of(&x, 0, M), stride_of(&x, 0, K)},
                        .b = {stride_of(&x, 1, K), stride_of(&x, 1, N)},
                        .c = {stride_of(&x, 2, M), stride_of(&x, 2, N)}};
    for (int t = 0; t < 3; t++)
        f->step[t] = stride_of(&x, t, B);
    return nb_blaslt_takes(f);
}

static bool multiplies(const nb_plan *p, int k)
{
    nb_gemm_form f;
    return nb_blaslt_there() && form_of(p, k, &f);
}

bool (*const nb_card_multiplies)(const nb_plan *p, int k) = multiplies;

bool nb_card_find_product(nb_exec *e, int s)
{
    const nb_plan *p = e->plan;
    nb_gemm_form f;
    int k = p->step[s].line;
    if (!p->library[k] || !form_of(p, k, &f)) return true;
    return (e->on_card[s].product =
                nb_card_gemm_new(nb_card_at(e->device - 1), &f));
}

bool nb_card_is_product(const nb_exec *e, int s)
{
    return e->device && e->on_card[s].product;
}

bool nb_card_run_product(const nb_exec *e, int s, const char *a, const char *b,
                         char *c)
{
    return nb_card_gemm_run(e->on_card[s].product, a, b, c, e->on_card[s].what);
}
