/* card.c - programs on a card: code, launches, memory. */
#include "run/card.h"

#include "backend/cuda/blaslt.h"
#include "backend/cuda/build.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/print.h"
#include "backend/ref/ref.h"
#include "lower/look.h"
#include "lower/passes.h"
#include "nabla/device.h"

#include <stdio.h>
#include <string.h>

struct nb_card_step {
    nb_card_code *code;
    nb_printed how;
    int64_t blocks;
    char *args;            /* pointers, then parameters */
    nb_card_gemm *product; /* of a call that is one */
    char what[96];
};

int nb_graph_device(const nb_graph *g)
{
    int device = -1;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (l->kind == NB_LINE_NUMBER) continue;
        if (device >= 0 && device != l->device) return -1;
        device = l->device;
        if (l->op && l->op->lands) return -1;
    }
    return device < 0 ? 0 : device;
}

/* Memory */

typedef struct block {
    nb_card *card;
    void *data;
    size_t room;
} block;

static void give_back(void *owner)
{
    block *b = owner;
    nb_card_free(b->card, b->data, b->room);
    nb_free(b);
}

static nb_buffer *buffer(int device, size_t bytes)
{
    nb_card *card = nb_card_at(device - 1);
    nb_buffer *b = card ? nb_alloc(sizeof *b) : NULL;
    block *own = b ? nb_alloc(sizeof *own) : NULL;
    if (own) *own = (block){.card = card};
    if (!own ||
        !(own->data = nb_card_alloc(card, bytes ? bytes : 1, &own->room))) {
        nb_free(own), nb_free(b);
        return NULL;
    }
    *b = (nb_buffer){
        .refs = 1, .data = own->data, .release = give_back, .owner = own};
    return b;
}

static size_t bytes_of(const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], n = 1;
    for (int d = nb_tensor_strides(x, size, stride) - 1; d >= 0; d--)
        n *= size[d];
    return (size_t)n * nb_dtype_size((nb_dtype)x->dtype);
}

static bool transfer(char *to, int device, const char *from, int from_device,
                     size_t n)
{
    if (!n) return true;
    nb_card *card = nb_card_at((device ? device : from_device) - 1);
    if (!card) return false;
    if (!device) return nb_card_get(card, to, from, n);
    if (!from_device) return nb_card_put(card, to, from, n);
    return nb_card_copy(card, to, from, n);
}

/* Between two cards by way of the CPU. */
nb_tensor *nb_tensor_on(nb_tensor *x, int device)
{
    nb_shape shape = nb_tensor_shape(x);
    if (x->device == device && x->buffer && nb_tensor_is_packed(x)) return x;
    if (x->device && device && x->device != device) {
        nb_tensor *here = nb_tensor_on(x, 0);
        return here ? nb_tensor_on(here, device) : NULL;
    }
    size_t n = bytes_of(x);
    bool packed = nb_tensor_is_packed(x);
    if (!packed && !x->device) {
        if (!(x = nb_tensor_packed(x)) || !device) return x;
    } else if (!packed && !device) {
        if (!(x = nb_tensor_on(x, x->device))) return NULL;
    }
    nb_buffer *b = nb_buffer_on(device, n);
    bool ok = b;
    if (ok && !nb_tensor_is_packed(x))
        ok = nb_card_pack(device, b->data, x);
    else if (ok)
        ok = transfer(b->data, device, x->data, x->device, n);
    nb_tensor *y =
        ok ? nb_leaf_new((nb_dtype)x->dtype, &shape, b, b->data, NULL) : NULL;
    if (y) y->device = (uint8_t)device;
    nb_buffer_drop(b);
    return y;
}

static nb_tensor *fetch(nb_tensor *x)
{
    return nb_tensor_on(x, 0);
}

/* Code */

static size_t args_bytes(const nb_nest *x)
{
    int np = x->param ? x->nparams : 0, nb = x->nbuffers;
    return (size_t)((nb ? nb : 1) + (np ? np : 1)) * 8;
}

static bool find_params(nb_card_step *k, const nb_nest *x)
{
    int64_t *param;
    k->args = nb_alloc_zero(args_bytes(x));
    if (!k->args) return false;
    param = (int64_t *)k->args + (x->nbuffers ? x->nbuffers : 1);
    for (int slot = 0; x->param && slot < nb_nest_slots(x); slot++)
        if (nb_nest_varies(x, slot))
            param[x->param[slot]] = *nb_nest_number(x, slot);
    return true;
}

static void name_step(const nb_plan *p, int s, char *name, size_t room)
{
    int line = p->step[s].line, group = p->group[line];
    size_t n = 0;
    for (int k = 0; k < p->graph->n && n < room; k++)
        if (p->group[k] == group && p->graph->line[k].op)
            n += (size_t)snprintf(name + n, room - n, "%s%s", n ? "+" : "",
                                  p->graph->line[k].op->name);
}

/* Products */

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

static bool find_products(nb_exec *e)
{
    const nb_plan *p = e->plan;
    nb_card *card = nb_card_at(e->device - 1);
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int s = 0; ok && s < p->nsteps; s++) {
        nb_gemm_form f;
        int k = p->step[s].line;
        if (p->step[s].nest || !p->library[k] || !form_of(p, k, &f)) continue;
        snprintf(e->on_card[s].what, sizeof e->on_card[s].what, "%s",
                 p->graph->line[k].op->name);
        ok = (e->on_card[s].product = nb_card_gemm_new(card, &f));
    }
    nb_scope_close(0, NULL);
    return ok;
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

static bool print_all(nb_exec *e, nb_text *text, nb_card_source *source,
                      int *step, int *n)
{
    const nb_plan *p = e->plan;
    for (int s = 0; s < p->nsteps; s++) {
        nb_card_step *k = &e->on_card[s];
        const nb_nest *x = p->step[s].nest;
        if (!x) continue;
        if (!nb_print_nest(&text[*n], x, "kernel", &k->how)) return false;
        if (!find_params(k, x)) return false;
        k->blocks = nb_printed_blocks(&k->how, x);
        name_step(p, s, k->what, sizeof k->what);
        if (nb_pass_is_dumped("code"))
            nb_pass_dump("code", nb_text_get(&text[*n]));
        source[*n] =
            (nb_card_source){.text = nb_text_get(&text[*n]), .name = "kernel"};
        step[(*n)++] = s;
    }
    return true;
}

bool nb_card_load(nb_exec *e)
{
    size_t most = (size_t)e->plan->nsteps + 1;
    nb_card *card = nb_card_at(e->device - 1);
    nb_text *text = nb_alloc_zero(most * sizeof *text);
    nb_card_source *source = nb_alloc_zero(most * sizeof *source);
    nb_card_code **code = nb_alloc_zero(most * sizeof *code);
    int *step = nb_alloc_zero(most * sizeof *step), n = 0;
    if (!e->on_card) e->on_card = nb_alloc_zero(most * sizeof *e->on_card);
    bool ok = card && text && source && code && step && e->on_card &&
              find_products(e) && print_all(e, text, source, step, &n) &&
              nb_card_build(card, n, source, code);
    for (int i = 0; i < n; i++) {
        if (ok) e->on_card[step[i]].code = code[i];
        nb_text_free(&text[i]);
    }
    nb_free(text), nb_free(source), nb_free(code), nb_free(step);
    if (!ok) nb_card_unload(e);
    return ok;
}

void nb_card_unload(nb_exec *e)
{
    for (int s = 0; e->on_card && s < e->plan->nsteps; s++) {
        nb_card_code_drop(e->on_card[s].code);
        nb_card_gemm_free(e->on_card[s].product);
        nb_free(e->on_card[s].args);
    }
    nb_free(e->on_card);
    e->on_card = NULL;
}

bool nb_card_run_nest(nb_exec *e, int s, char *const *block_of)
{
    const nb_step *step = &e->plan->step[s];
    const nb_card_step *k = &e->on_card[s];
    size_t bytes = args_bytes(step->nest);
    char few[1024], *args = bytes > sizeof few ? nb_alloc(bytes) : few;
    if (!args) return false;
    memcpy(args, k->args, bytes);
    for (int b = 0; b < step->nbuffers; b++)
        ((char **)args)[b] = block_of[step->buffer[b]];
    unsigned grid[3] = {(unsigned)k->blocks, 1, 1};
    unsigned threads[3] = {(unsigned)k->how.threads, 1, 1};
    void *list[1] = {args};
    bool ok = !k->blocks || nb_card_launch(nb_card_at(e->device - 1), k->code,
                                           grid, threads, 0, list, k->what);
    if (args != few) nb_free(args);
    return ok;
}

/* Calls on the CPU */

bool nb_card_run_call(const nb_call *c, nb_tensor *y, int nout,
                      const int64_t *bytes, char *const *to)
{
    int device = y->device;
    nb_call here = *c;
    nb_tensor **in = nb_alloc_zero((size_t)(c->nin + 1) * sizeof *in);
    char **at = nb_alloc_zero((size_t)(nout + 1) * sizeof *at);
    size_t *room = nb_alloc_zero((size_t)(nout + 1) * sizeof *room);
    bool ok = in && at && room;
    for (int i = 0; ok && i < c->nin; i++)
        ok = (in[i] = nb_tensor_on(c->in[i], 0));
    for (int i = 0; ok && i < nout; i++)
        ok = (at[i] = nb_block_new((size_t)bytes[i] + 1, &room[i]));
    here.in = in;
    ok = ok && nb_ref_compute(&here, y, at);
    for (int i = 0; ok && i < nout; i++)
        ok = transfer(to[i], device, at[i], 0, (size_t)bytes[i]);
    for (int i = 0; at && room && i < nout; i++)
        if (at[i]) nb_block_free(at[i], room[i]);
    nb_free(in), nb_free(at), nb_free(room);
    return ok;
}

/* Elements from strides to strides, by a nest that copies. */

/* Halves stay as they are. */
static nb_dtype as_bits(nb_dtype d)
{
    return d == NB_F16 || d == NB_BF16 ? NB_U16 : d;
}

enum { VECTOR = 16 }; /* bytes, at most */

bool nb_card_takes(int device, const char *data)
{
    return !device || (uintptr_t)data % VECTOR == 0;
}

/* Elements of the last vector's worth that come before an address. */
static int64_t before(const char *at, nb_dtype d)
{
    return (int64_t)((uintptr_t)at % VECTOR) / (int64_t)nb_dtype_size(d);
}

static bool copy_nest(nb_nest *x, nb_dtype d, int n, const int64_t *size,
                      const int64_t *to, const int64_t *from)
{
    nb_nest_value load = {.kind = NB_NEST_LOAD, .dtype = d, .stored = d};
    nb_nest_value store = {
        .kind = NB_NEST_STORE, .dtype = d, .stored = d, .buffer = 1};
    *x = (nb_nest){.nbuffers = 2, .naxes = n};
    for (int a = 0; a < n; a++) {
        x->size[a] = size[a];
        load.stride[a] = from[a];
        store.stride[a] = to[a];
    }
    load.axes = store.axes = (1u << n) - 1;
    if (!nb_nest_add(x, load) || !nb_nest_add(x, store)) return false;
    nb_nest_merge(x);
    return true;
}

static bool launch_copy(nb_card *card, const nb_nest *x, char *to,
                        const char *from)
{
    nb_text text = {0};
    nb_printed how;
    nb_card_code *code = NULL;
    bool ok = nb_print_nest(&text, x, "kernel", &how);
    nb_card_source source = {nb_text_get(&text), "kernel"};
    ok = ok && nb_card_build(card, 1, &source, &code);
    if (ok) {
        struct {
            const char *b[2];
            int64_t n[1];
        } args = {{from, to}, {0}};
        void *list[1] = {&args};
        unsigned grid[3] = {(unsigned)nb_printed_blocks(&how, x), 1, 1};
        unsigned threads[3] = {(unsigned)how.threads, 1, 1};
        ok = nb_card_launch(card, code, grid, threads, 0, list, "copy");
    }
    nb_card_code_drop(code);
    nb_text_free(&text);
    return ok;
}

static bool elements(int device, nb_dtype d, int n, const int64_t *size,
                     char *to, const int64_t *to_stride, const char *from,
                     const int64_t *stride)
{
    nb_card *card = nb_card_at(device - 1);
    nb_nest x = {0};
    for (int a = 0; a < n; a++)
        if (size[a] == 0) return true;
    int64_t item = (int64_t)nb_dtype_size(d);
    bool ok = card && copy_nest(&x, as_bits(d), n, size, to_stride, stride);
    if (ok) {
        int64_t read = before(from, d), write = before(to, d);
        x.value[0].offset = read;
        x.value[1].offset = write;
        ok = launch_copy(card, &x, to - write * item, from - read * item);
    }
    nb_free(x.value);
    return ok;
}

bool nb_card_pack(int device, char *to, const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], packed[NB_MAX_DIMS];
    int n = nb_tensor_strides(x, size, stride);
    nb_packed_strides(n, size, packed);
    return elements(device, (nb_dtype)x->dtype, n, size, to, packed, x->data,
                    stride);
}

static bool copy_there(int device, char *to, const char *from, size_t n)
{
    return transfer(to, device, from, device, n);
}

static bool read_there(int device, void *to, const char *from, size_t n)
{
    return transfer(to, 0, from, device, n);
}

const nb_card_bytes nb_on_card = {buffer, elements, copy_there, read_there,
                                  fetch};
