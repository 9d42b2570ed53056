/* picture.c - which devices have which block, drawn.
 *
 * The last two dims are drawn, the one before the last downwards; a vector is
 * one row.  Of the dims before them the first block is meant. */
#include "base/error.h"
#include "base/memory.h"
#include "shard/layout/spec.h"

#include <string.h>

typedef struct picture {
    const nb_spec *s;
    const int64_t *size;
    int down, across; /* dims, or -1 */
    int64_t rows, columns;
    nb_text *cell; /* what stands in each: numbers of devices */
    nb_text t;
} picture;

static int64_t parts_of(const picture *p, int dim)
{
    return dim < 0 ? 1 : nb_cut_count(&p->s->dim[dim].axes);
}

static int64_t part_at(const picture *p, int dim, int position)
{
    if (dim < 0) return 0;
    return nb_cut_index(p->s->mesh, &p->s->dim[dim].axes, position);
}

/* Whether the device has the first block of the dims that are not drawn. */
static bool is_drawn(const picture *p, int position)
{
    for (int d = 0; d < p->down; d++)
        if (part_at(p, d, position)) return false;
    return true;
}

/* 0,2-5,7 */
typedef struct numbers {
    nb_text *t;
    int first, last;
} numbers;

static void end_run(numbers *n)
{
    if (n->last > n->first)
        nb_text_add(n->t, n->last > n->first + 1 ? "-%d" : ",%d", n->last);
}

static void add_number(numbers *n, int device)
{
    if (n->first >= 0 && device == n->last + 1) {
        n->last = device;
        return;
    }
    if (n->first >= 0) end_run(n);
    nb_text_add(n->t, n->first >= 0 ? ",%d" : "%d", device);
    n->first = n->last = device;
}

static void fill_cell(picture *p, int64_t row, int64_t column)
{
    const nb_mesh *m = p->s->mesh;
    nb_text *cell = &p->cell[row * p->columns + column];
    numbers n = {cell, -1, -1};
    for (int at = 0; at < m->ndevices; at++)
        if (is_drawn(p, at) && part_at(p, p->down, at) == row &&
            part_at(p, p->across, at) == column)
            add_number(&n, m->device[at]);
    end_run(&n);
}

static bool begin(picture *p)
{
    size_t n = (size_t)(p->rows * p->columns);
    p->cell = nb_alloc_zero(n * sizeof *p->cell);
    for (int64_t i = 0; p->cell && i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++)
            fill_cell(p, i, j);
    return p->cell;
}

static char *finish(picture *p)
{
    bool failed = p->t.failed || !p->cell;
    for (int64_t k = 0; p->cell && k < p->rows * p->columns; k++) {
        failed = failed || p->cell[k].failed;
        nb_text_free(&p->cell[k]);
    }
    nb_free(p->cell);
    if (failed) nb_text_free(&p->t);
    return p->t.data;
}

static const char *cell_text(const picture *p, int64_t row, int64_t column)
{
    return nb_text_get(&p->cell[row * p->columns + column]);
}

/* "[32@dp, 256]{P:tp}", what the picture is of. */
static void add_title(picture *p, nb_text *t)
{
    nb_text_add(t, "@%s [", p->s->mesh->name);
    for (int d = 0; d < p->s->rank; d++) {
        nb_text_add(t, "%s%lld", d ? ", " : "", (long long)p->size[d]);
        nb_spec_write_dim(t, p->s, d);
    }
    nb_text_add(t, "]");
    nb_spec_write_partial(t, p->s);
}

/* Empty, or that others are like what is shown. */
static void add_note(picture *p, nb_text *t)
{
    int64_t blocks = 1;
    for (int d = 0; d < p->down; d++)
        blocks *= parts_of(p, d);
    if (p->down > 0)
        nb_text_add(t, "the last two dims, of block 1 of %lld of the others",
                    (long long)blocks);
}

/* Text */

/* From mark to mark. */
static void add_line(picture *p, int width, const char *const mark[3])
{
    nb_text_add(&p->t, "\n");
    for (int64_t j = 0; j < p->columns; j++) {
        nb_text_add(&p->t, "%s", mark[j ? 1 : 0]);
        for (int k = 0; k < width + 2; k++)
            nb_text_add(&p->t, "─");
    }
    nb_text_add(&p->t, "%s", mark[2]);
}

static void add_row(picture *p, int width, int64_t row)
{
    nb_text_add(&p->t, "\n");
    for (int64_t j = 0; j < p->columns; j++) {
        const char *cell = cell_text(p, row, j);
        int n = (int)strlen(cell), left = (width - n) / 2;
        nb_text_add(&p->t, "│ %*s%s%*s ", left, "", cell, width - n - left, "");
    }
    nb_text_add(&p->t, "│");
}

static void draw_text(picture *p)
{
    static const char *const top[] = {"┌", "┬", "┐"};
    static const char *const middle[] = {"├", "┼", "┤"};
    static const char *const bottom[] = {"└", "┴", "┘"};
    int width = 1;
    for (int64_t k = 0; k < p->rows * p->columns; k++)
        if ((int)p->cell[k].n > width) width = (int)p->cell[k].n;
    add_title(p, &p->t);
    for (int64_t i = 0; i < p->rows; i++) {
        add_line(p, width, i ? middle : top);
        add_row(p, width, i);
    }
    add_line(p, width, bottom);
    if (p->down > 0) nb_text_add(&p->t, "\n");
    add_note(p, &p->t);
}

/* SVG: blocks are as large as they are, on a page of WIDTH by the ratio of the
 * sizes, which is kept within 4. */

enum { WIDTH = 480, TITLE = 28, MARGIN = 8 };

static double height_of(const picture *p)
{
    double rows = p->down < 0 ? 1 : (double)p->size[p->down];
    double columns = p->across < 0 ? 1 : (double)p->size[p->across];
    if (p->down < 0 || rows * 4 < columns) return WIDTH / 4.0;
    return rows > columns * 2 ? WIDTH * 2.0 : WIDTH * rows / columns;
}

/* Where block i begins, of 0 to 1. */
static double edge(const picture *p, int dim, int64_t i)
{
    int64_t n = parts_of(p, dim);
    if (dim < 0 || !p->size[dim]) return (double)i / (double)n;
    return (double)nb_block_start(p->size[dim], n, i) / (double)p->size[dim];
}

static void draw_cell(picture *p, double height, int64_t i, int64_t j)
{
    double x = MARGIN + WIDTH * edge(p, p->across, j);
    double y = TITLE + height * edge(p, p->down, i);
    double w = MARGIN + WIDTH * edge(p, p->across, j + 1) - x;
    double h = TITLE + height * edge(p, p->down, i + 1) - y;
    int64_t cells = p->rows * p->columns, k = i * p->columns + j;
    nb_text_add(&p->t,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "fill=\"hsl(%d,60%%,80%%)\" stroke=\"#333\"/>\n",
                x, y, w, h, (int)(k * 360 / cells));
    nb_text_add(&p->t,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" "
                "dominant-baseline=\"middle\">%s</text>\n",
                x + w / 2, y + h / 2, cell_text(p, i, j));
}

static void draw_svg(picture *p)
{
    double height = height_of(p);
    nb_text_add(&p->t,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                "height=\"%.0f\" font-family=\"monospace\" "
                "font-size=\"14\">\n<text x=\"%d\" y=\"18\">",
                WIDTH + 2 * MARGIN, TITLE + height + TITLE, MARGIN);
    add_title(p, &p->t);
    nb_text_add(&p->t, "</text>\n");
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++)
            draw_cell(p, height, i, j);
    nb_text_add(&p->t, "<text x=\"%d\" y=\"%.0f\">", MARGIN,
                TITLE + height + 20);
    add_note(p, &p->t);
    nb_text_add(&p->t, "</text>\n</svg>\n");
}

char *nb_sharding_picture(const nb_spec *s, int rank, const int64_t *sizes,
                          const char *format)
{
    bool svg = format && !strcmp(format, "svg");
    if (!svg && (!format || strcmp(format, "text")))
        return nb_fail(NB_EVALUE,
                       "visualize_sharding: no format is called %s: text, svg",
                       format ? format : "NULL");
    s = nb_spec_fit(s, rank, sizes);
    if (!s) return NULL;
    picture p = {.s = s, .size = sizes, .down = rank - 2, .across = rank - 1};
    if (rank < 2) p.down = -1;
    p.rows = parts_of(&p, p.down);
    p.columns = parts_of(&p, p.across);
    if (begin(&p)) svg ? draw_svg(&p) : draw_text(&p);
    return finish(&p);
}
