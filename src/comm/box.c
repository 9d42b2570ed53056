/* box.c - see box.h.  Copies go by rows: the trailing dims that part fills in
 * both boxes, and the dim before them. */
#include "comm/box.h"

#include <string.h>

static int64_t offset(int rank, const nb_box *part, const nb_box *b)
{
    int64_t at = 0;
    for (int d = 0; d < rank; d++)
        at = at * b->size[d] + part->start[d] - b->start[d];
    return at;
}

/* The first dim of those that part fills to the end in b. */
static int filled(int rank, const nb_box *part, const nb_box *b)
{
    int d = rank;
    while (d > 0 && part->size[d - 1] == b->size[d - 1])
        d--;
    return d;
}

bool nb_box_is_run(int rank, const nb_box *part, const nb_box *b, int64_t *at)
{
    for (int d = 0; d < filled(rank, part, b) - 1; d++)
        if (part->size[d] != 1) return false;
    *at = offset(rank, part, b);
    return true;
}

typedef struct walk {
    int rows; /* dims that are walked */
    const int64_t *size;
    size_t row, a[NB_MAX_DIMS], b[NB_MAX_DIMS]; /* bytes: of a row, a step */
} walk;

static void strides(int rank, const nb_box *b, size_t item, size_t *step)
{
    for (int d = rank - 1; d >= 0; d--) {
        step[d] = item;
        item *= (size_t)b->size[d];
    }
}

static void copy_rows(const walk *w, int d, const char *from, char *to)
{
    if (d == w->rows) {
        memcpy(to, from, w->row);
        return;
    }
    for (int64_t i = 0; i < w->size[d]; i++)
        copy_rows(w, d + 1, from + (size_t)i * w->a[d],
                  to + (size_t)i * w->b[d]);
}

void nb_box_copy(int rank, const nb_box *part, const nb_box *a,
                 const void *from, const nb_box *b, void *to, size_t item)
{
    walk w = {.size = part->size, .row = item};
    int fa = filled(rank, part, a), fb = filled(rank, part, b);
    w.rows = fa > fb ? fa : fb;
    if (w.rows > 0) w.rows--;
    for (int d = w.rows; d < rank; d++)
        w.row *= (size_t)part->size[d];
    strides(rank, a, item, w.a);
    strides(rank, b, item, w.b);
    if (nb_box_count(rank, part) > 0)
        copy_rows(&w, 0,
                  (const char *)from + (size_t)offset(rank, part, a) * item,
                  (char *)to + (size_t)offset(rank, part, b) * item);
}
