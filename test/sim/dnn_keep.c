/* dnn_keep.c - simulated plans as bytes, for another process. */
#include "dnn.h"

#include <stdlib.h>
#include <string.h>

enum { MARK = 0x6e6e64 };

static void put(char *to, int64_t *n, const void *from, size_t size)
{
    if (to) memcpy(to + *n, from, size);
    *n += (int64_t)size;
}

int64_t sim_dnn_write(const sim_dnn_program *p, char *to)
{
    int64_t n = 0;
    int head[] = {MARK, p->ntensors, p->nops};
    put(to, &n, head, sizeof head);
    put(to, &n, p->tensor, sizeof p->tensor);
    for (int i = 0; i < p->nops; i++) {
        const sim_dnn_op *op = &p->op[i];
        put(to, &n, op, sizeof *op);
        for (int k = 0; k < op->n; k++)
            put(to, &n, op->field[k].at, sim_dnn_bytes(&op->field[k]));
    }
    return n;
}

/* From where *from is, which moves on; false if not so much is left. */
static bool get(void *to, const char **from, const char *end, size_t size)
{
    if ((size_t)(end - *from) < size) return false;
    memcpy(to, *from, size);
    *from += size;
    return true;
}

static bool get_op(sim_dnn_op *op, const char **from, const char *end)
{
    if (!get(op, from, end, sizeof *op) || op->n > SIM_DNN_FIELDS) return false;
    for (int k = 0; k < op->n; k++) {
        size_t size = sim_dnn_bytes(&op->field[k]);
        op->field[k].at = malloc(size + 1);
        if (!op->field[k].at || !get(op->field[k].at, from, end, size))
            return false;
    }
    return true;
}

/* What is wrong is not freed: it happens once in a test. */
sim_dnn_program *sim_dnn_read(const char *from, int64_t n)
{
    const char *end = from + n;
    int head[3] = {0};
    sim_dnn_program *p = calloc(1, sizeof *p);
    bool ok = p && get(head, &from, end, sizeof head) && head[0] == MARK &&
              get(p->tensor, &from, end, sizeof p->tensor);
    if (ok) p->ntensors = head[1], p->nops = head[2];
    for (int i = 0; ok && i < p->nops; i++)
        ok = get_op(&p->op[i], &from, end);
    return ok ? p : NULL;
}
