/* card_copy.c - elements on a card from strides to strides, by a nest that
 * copies. */
#include "run/card.h"

#include "backend/cuda/build.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/print/print.h"
#include "base/half.h"
#include "lower/look.h"

#include <string.h>

/* Halves stay as they are. */
static nb_dtype as_bits(nb_dtype d)
{
    return nb_dtype_is_half(d) ? NB_U16 : d;
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

/* One element all over: there is a kernel for any number of them. */
static bool free_size(nb_nest *x)
{
    if (x->naxes != 1 || x->value[0].stride[0] != 0) return true;
    size_t n = (size_t)nb_nest_slots(x) * sizeof *x->param;
    if (!(x->param = nb_alloc(n))) return false;
    memset(x->param, -1, n);
    x->param[0] = x->nparams++;
    return true;
}

static bool launch_copy(nb_card *card, const nb_nest *x, char *to,
                        const char *from)
{
    nb_text text = {0};
    nb_printed how;
    nb_card_code *code = NULL;
    nb_text_add(&text, "%s", NB_CARD_JOINS);
    bool ok = nb_print_nest(&text, x, "kernel", &how);
    nb_card_source source = {nb_text_get(&text), "kernel"};
    ok = ok && nb_card_build(card, 1, &source, &code);
    if (ok) {
        struct {
            const char *b[2];
            int64_t n[1];
        } args = {{from, to}, {x->size[0]}};
        void *list[1] = {&args};
        unsigned grid[3] = {(unsigned)nb_printed_blocks(&how, x), 1, 1};
        unsigned threads[3] = {(unsigned)how.threads, 1, 1};
        ok = nb_card_launch(card, code, grid, threads, 0, list, "copy");
    }
    nb_card_code_drop(code);
    nb_text_free(&text);
    return ok;
}

/* One piece to one piece. */
static bool is_plain(const nb_nest *x)
{
    bool both = x->value[0].stride[0] == 1 && x->value[1].stride[0] == 1;
    return x->naxes == 0 || (x->naxes == 1 && both);
}

bool nb_card_elements(int device, nb_dtype d, int n, const int64_t *size,
                      char *to, const int64_t *to_stride, const char *from,
                      const int64_t *stride)
{
    nb_card *card = nb_card_at(device - 1);
    nb_nest x = {0};
    for (int a = 0; a < n; a++)
        if (size[a] == 0) return true;
    int64_t item = (int64_t)nb_dtype_size(d);
    bool ok = card && copy_nest(&x, as_bits(d), n, size, to_stride, stride);
    if (ok && is_plain(&x)) {
        size_t bytes = (size_t)(nb_nest_points(&x) * item);
        ok = nb_card_copy(card, to, from, bytes);
    } else if (ok) {
        int64_t read = before(from, d), write = before(to, d);
        x.value[0].offset = read;
        x.value[1].offset = write;
        ok = free_size(&x) &&
             launch_copy(card, &x, to - write * item, from - read * item);
    }
    nb_free(x.value), nb_free(x.param);
    return ok;
}

bool nb_card_pack(int device, char *to, const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], packed[NB_MAX_DIMS];
    int n = nb_tensor_strides(x, size, stride);
    nb_packed_strides(n, size, packed);
    return nb_card_elements(device, (nb_dtype)x->dtype, n, size, to, packed,
                            x->data, stride);
}
