/* moves.c - what is moved, and the kernel that does it. */
#include "backend/cuda/moves.h"

#include "backend/cuda_ops/makers.h"
#include "backend/cuda_ops/text.h"

static const char text[] =
#include "backend/cuda_ops/moves.cu"
    ;

enum { WIDEST = 16, SIDE = 32, FEW = 8 };

typedef struct work {
    nb_move m[NB_MOVES];
    int64_t n;
    nb_moved then;
} work;

bool nb_move_over(nb_move *m, size_t item, int n, const int64_t *size,
                  const int64_t *to, const int64_t *from)
{
    int64_t unit = (int64_t)item;
    *m = (nb_move){.unit = unit, .count = 1};
    for (int d = 0; d < n; d++) {
        int64_t to_by = to[d] * unit, from_by = from[d] * unit;
        int last = (int)m->n - 1;
        m->count *= size[d];
        if (size[d] == 1) continue;
        if (last >= 0 && m->to_by[last] == to_by * size[d] &&
            m->from_by[last] == from_by * size[d]) {
            m->size[last] *= size[d];
        } else {
            if (++last == NB_MOVE_DIMS) return false;
            m->size[last] = size[d];
            m->n = last + 1;
        }
        m->to_by[last] = to_by;
        m->from_by[last] = from_by;
    }
    return true;
}

/* Behind all dims after it. */
static void put_last(nb_move *m, int d)
{
    int64_t *each[] = {m->size, m->to_by, m->from_by};
    for (int i = 0; i < 3; i++) {
        int64_t x = each[i][d];
        for (int k = d; k + 1 < m->n; k++)
            each[i][k] = each[i][k + 1];
        each[i][m->n - 1] = x;
    }
}

/* The dim that lies in order, by its strides; -1 if none does, or it has few
 * elements. */
static int in_order(const nb_move *m, const int64_t *by)
{
    for (int d = 0; d < m->n; d++)
        if (by[d] == m->unit && m->size[d] >= FEW) return d;
    return -1;
}

/* Where another dim lies in order here than there, tiles of the two are turned:
 * neither side is read or written by single elements then. */
static void turn(nb_move *m)
{
    int here = in_order(m, m->from_by), there = in_order(m, m->to_by);
    if (here < 0 || there < 0 || here == there || m->unit == WIDEST) return;
    put_last(m, here);
    put_last(m, in_order(m, m->to_by));
    m->tiles = 1;
    for (int d = 0; d < m->n; d++)
        m->tiles *= d < m->n - 2 ? m->size[d] : (m->size[d] + SIDE - 1) / SIDE;
}

/* Rows that lie in order on both sides go by as many bytes at once as all that
 * there is begins at multiples of. */
static void widen(nb_move *m)
{
    int last = (int)m->n - 1;
    if (last < 0 || m->to_by[last] != m->unit || m->from_by[last] != m->unit) {
        turn(m);
        return;
    }
    int64_t row = m->size[last] * m->unit, unit = WIDEST;
    uint64_t all = (uint64_t)(uintptr_t)m->to | (uint64_t)(uintptr_t)m->from |
                   (uint64_t)row | (uint64_t)m->to_step |
                   (uint64_t)m->from_step;
    for (int d = 0; d < last; d++)
        all |= (uint64_t)m->to_by[d] | (uint64_t)m->from_by[d];
    while (all % (uint64_t)unit)
        unit /= 2;
    m->count = m->count * m->unit / unit;
    m->size[last] = row / unit;
    m->to_by[last] = m->from_by[last] = m->unit = unit;
}

nb_card_code *nb_moves_code(nb_card *c, bool conditions)
{
    static const char with[] =
        "// options: --relocatable-device-code=true\n"
        "extern \"C\" __device__ void cudaGraphSetConditional(\n"
        "    unsigned long long handle, unsigned value);\n"
        "#define SET(handle, value) cudaGraphSetConditional(handle, value)\n";
    static const char without[] = "#define SET(handle, value) (void)0\n";
    nb_text t = {0};
    nb_card_code *code = NULL;
    bool ok = nb_text_add(&t, "%s%s", conditions ? with : without, text);
    nb_card_source source = {nb_text_get(&t), "move_all"};
    if (!ok || !nb_card_build(c, 1, &source, &code)) code = NULL;
    nb_text_free(&t);
    return code;
}

static bool launch(nb_card *c, const nb_card_code *k, work *w, const char *what)
{
    int64_t most = 1;
    for (int i = 0; i < w->n; i++) {
        widen(&w->m[i]);
        int64_t n = w->m[i].tiles * NB_CARD_THREADS;
        if (!n) n = w->m[i].count;
        if (n > most) most = n;
    }
    unsigned grid[3] = {nb_card_grid(c, most), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    void *args[] = {w};
    return nb_card_launch(c, k, grid, block, 0, args, what);
}

bool nb_moves_launch(nb_card *c, const nb_card_code *k, int n, const nb_move *m,
                     const nb_moved *then, const char *what)
{
    bool ok = true;
    for (int i = 0; ok && (i < n || (then && i == 0)); i += NB_MOVES) {
        work w = {.n = n - i < NB_MOVES ? n - i : NB_MOVES};
        for (int d = 0; d < w.n; d++)
            w.m[d] = m[i + d];
        if (then) w.then = *then;
        if (i + NB_MOVES < n) /* the last of them counts */
            w.then.by = 0, w.then.yes = w.then.no = 0;
        ok = launch(c, k, &w, what);
    }
    return ok;
}
