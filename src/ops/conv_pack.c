/* conv_pack.c - matrices out of a filter, as the tiles read them. */
#include "ops/conv_work.h"

#include "core/convert.h"

#include <string.h>

/* By blocks of lines that lie in a cache line of one or the other. */
#define TURN(name, type)                                                     \
    static void name(type *to, int64_t width, const type *from, int64_t row, \
                     int64_t col, int64_t rows, int64_t cols)                \
    {                                                                        \
        for (int64_t i = 0; i < rows; i += 16)                               \
            for (int64_t j = 0; j < cols; j++)                               \
                for (int64_t k = i; k < rows && k < i + 16; k++)             \
                    to[k * width + j] = from[k * row + j * col];             \
    }
TURN(turn_32, uint32_t)
TURN(turn_64, uint64_t)

static void fill_up(char *to, const nb_conv_matrix *m, int64_t item)
{
    for (int64_t i = 0; i < m->rows; i++)
        memset(to + (i * m->width + m->cols) * item, 0,
               (size_t)((m->width - m->cols) * item));
}

void nb_conv_pack(void *to, nb_dtype type, const nb_conv_matrix *m)
{
    int64_t item = (int64_t)nb_dtype_size(type);
    int64_t from = (int64_t)nb_dtype_size(m->dtype);
    char *y = to;
    if (m->cols < m->width) fill_up(y, m, item);
    if (m->dtype != type && m->row == 1)
        for (int64_t j = 0; j < m->cols; j++)
            nb_convert(y + j * item, type, m->width,
                       m->data + j * m->col * from, m->dtype, 1, m->rows);
    else if (m->dtype != type || m->col == 1)
        for (int64_t i = 0; i < m->rows; i++)
            nb_convert(y + i * m->width * item, type, 1,
                       m->data + i * m->row * from, m->dtype, m->col, m->cols);
    else if (item == 4)
        turn_32(to, m->width, (const uint32_t *)m->data, m->row, m->col,
                m->rows, m->cols);
    else
        turn_64(to, m->width, (const uint64_t *)m->data, m->row, m->col,
                m->rows, m->cols);
}
