/* index_loops.c - the loops of picking and placing.
 *
 * Axes fall into three groups: those of the list before the picked ones, the
 * points (one for each element of an index tensor), and those after.  Points
 * are taken in row-major order, some hundreds at a time: their places in both
 * operands are found once, then used for all that runs beside them. */
#include "ops/index.h"

#include "base/half.h"
#include "base/pool.h"
#include "core/convert.h"
#include "core/debug.h"
#include "ops/copy.h"

#include <string.h>

enum { SOME = 512, TABLE = 0, LIST = 1 };
#define NOWHERE INT64_MIN

/* Loops over two operands, outermost first, steps in bytes. */
typedef struct loops {
    int n;
    bool empty;
    int64_t size[NB_MAX_RANK], step[2][NB_MAX_RANK], at[NB_MAX_RANK];
} loops;

/* What happens to a row of the two operands. */
typedef struct row {
    int64_t n, step[2];
    size_t item;
    nb_combine how;
} row;
typedef void row_work(const row *r, char *table, char *list);

/* Points in row-major order, from `at` on. */
typedef struct points {
    const nb_view *index; /* n of them, all of one shape */
    int n;
    bool clamp;
    int64_t size[NB_MAX_RANK], table_step[NB_MAX_RANK]; /* of picked axes */
    int64_t list_step[NB_MAX_RANK]; /* of the axes of the indices */
    int64_t at[NB_MAX_RANK], left;
    int64_t *place[2];     /* of some of them, in table and list */
    const nb_call *strict; /* of a call whose indices are watched, or NULL */
    bool failed;
} points;

typedef struct job {
    points points;
    loops before, after;
    row_work *work;
    row row;
    int64_t from, to; /* places that are worked on */
    bool reads;
} job;

/* Joins the loop to the one outside it where one step walks both. */
static void add_loop(loops *l, int64_t size, int64_t table, int64_t list)
{
    int d = l->n - 1;
    l->empty = l->empty || size == 0;
    if (size == 1) return;
    bool one = d >= 0 && l->step[TABLE][d] == table * size &&
               l->step[LIST][d] == list * size;
    if (!one) l->size[d = l->n++] = 1;
    l->size[d] *= size;
    l->step[TABLE][d] = table;
    l->step[LIST][d] = list;
}

/* To the next place of the first n loops; after the last it is back at the
 * first, and false. */
static inline bool next(loops *l, int n, char **table, char **list)
{
    for (int d = n - 1; d >= 0; d--) {
        bool on = ++l->at[d] < l->size[d];
        int64_t by = on ? 1 : 1 - l->size[d];
        *table += l->step[TABLE][d] * by;
        *list += l->step[LIST][d] * by;
        if (on) return true;
        l->at[d] = 0;
    }
    return false;
}

static int64_t count(int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= size[d];
    return n;
}

/* An unsigned index beyond int64 is out of range, not negative. */
static inline int64_t read_index(const char *at, nb_dtype d)
{
    uint64_t big;
    if (d == NB_I64) return *(const int64_t *)at;
    if (d != NB_U64) return nb_read_i64(at, d);
    memcpy(&big, at, sizeof big);
    return big > INT64_MAX ? INT64_MAX : (int64_t)big;
}

/* Rules of derivatives use indices that name nothing. */
static const nb_call *watched(const nb_call *c)
{
    bool derived = c->out && c->out->flags & (NB_BACKWARD | NB_TANGENT);
    return nb_debug_flags & NB_DEBUG_BOUNDS && !derived ? c : NULL;
}

static void out_of_range(points *q, int64_t i, int64_t n)
{
    q->failed = true;
    nb_fail(NB_EINDEX,
            "%s: index %lld is out of range for an axis of size "
            "%lld%s",
            q->strict->op->name, (long long)(i < 0 ? i - n : i), (long long)n,
            nb_debug_place(q->strict->out));
}

/* Adds what index tensor k says to the places of a run of points. */
static void follow(points *q, int k, int64_t *place, int run)
{
    const nb_view *index = &q->index[k];
    int64_t item = (int64_t)nb_dtype_size(index->dtype), n = q->size[k];
    int rank = index->rank;
    int64_t step = rank ? index->stride[rank - 1] * item : 0;
    const char *from = index->data;
    for (int d = 0; d < rank; d++)
        from += q->at[d] * index->stride[d] * item;
    for (int p = 0; p < run; p++) {
        int64_t i = read_index(from + p * step, index->dtype);
        if (i < 0) i += n;
        int64_t near = i < 0 ? 0 : i >= n ? n - 1 : i;
        bool out = n == 0 || (near != i && !q->clamp);
        if (q->strict && !q->failed && (n == 0 || near != i))
            out_of_range(q, i, n);
        if (out || place[p] == NOWHERE)
            place[p] = NOWHERE;
        else
            place[p] += near * q->table_step[k];
    }
}

/* The points after those before, along the last axis as far as it goes;
 * returns how many they are. */
static int some(points *q)
{
    int rank = q->index->rank, last = rank - 1, n = 0;
    const int64_t *size = q->index->size;
    while (q->left > 0 && n < SOME) {
        int64_t rest = rank ? size[last] - q->at[last] : 1, list = 0;
        int run = rest < SOME - n ? (int)rest : SOME - n;
        for (int d = 0; d < rank; d++)
            list += q->at[d] * q->list_step[d];
        for (int p = 0; p < run; p++) {
            q->place[TABLE][n + p] = 0;
            q->place[LIST][n + p] = list + (rank ? p * q->list_step[last] : 0);
        }
        for (int k = 0; k < q->n; k++)
            follow(q, k, q->place[TABLE] + n, run);
        if (rank) q->at[last] += run;
        for (int d = last; d > 0 && q->at[d] == size[d]; d--) {
            q->at[d] = 0;
            q->at[d - 1]++;
        }
        q->left -= run;
        n += run;
    }
    return n;
}

/* One element a point, read.  The size is a constant in each loop. */
static inline void pick(const points *q, int n, const char *table, char *list,
                        size_t item)
{
    for (int p = 0; p < n; p++)
        if (q->place[TABLE][p] != NOWHERE)
            memcpy(list + q->place[LIST][p], table + q->place[TABLE][p], item);
}

static void pick_some(const job *j, int n, const char *table, char *list)
{
    switch (j->row.item) {
    case 1: pick(&j->points, n, table, list, 1); break;
    case 2: pick(&j->points, n, table, list, 2); break;
    case 4: pick(&j->points, n, table, list, 4); break;
    default: pick(&j->points, n, table, list, 8); break;
    }
}

/* Every row that runs beside each point. */
static void work_some(job *j, int n, char *table, char *list)
{
    const points *q = &j->points;
    for (int p = 0; p < n; p++) {
        int64_t at = q->place[TABLE][p];
        if (at == NOWHERE || at < j->from || at >= j->to) continue;
        char *t = table + q->place[TABLE][p], *l = list + q->place[LIST][p];
        do
            j->work(&j->row, t, l);
        while (next(&j->after, j->after.n, &t, &l));
    }
}

static void run(job *j, char *table, char *list)
{
    bool single = j->reads && j->row.n == 1 && j->after.n == 0;
    int64_t place[2][SOME];
    j->points.place[TABLE] = place[TABLE];
    j->points.place[LIST] = place[LIST];
    if (j->before.empty || j->after.empty) return;
    for (int n; (n = some(&j->points)) > 0;) {
        do
            if (single)
                pick_some(j, n, table, list);
            else
                work_some(j, n, table, list);
        while (next(&j->before, j->before.n, &table, &list));
    }
}

/* Sorts the axes of table and list into the groups.  Items are the bytes of an
 * element of each. */
static void plan(job *j, const nb_pick *p, const nb_view *table,
                 const nb_view *list, const int64_t item[2])
{
    points *q = &j->points;
    int kept = 0, at = (int)p->at, rank = q->index->rank;
    q->n = p->n;
    q->clamp = p->clamp;
    q->left = count(rank, q->index->size);
    for (int k = 0; k < p->n; k++) {
        q->size[k] = table->size[p->axes[k]];
        q->table_step[k] = table->stride[p->axes[k]] * item[TABLE];
    }
    for (int d = 0; d < rank; d++)
        q->list_step[d] = list->stride[at + d] * item[LIST];
    for (int d = 0; d < table->rank; d++) {
        bool picked = false;
        for (int k = 0; k < p->n; k++)
            picked = picked || p->axes[k] == d;
        if (picked) continue;
        int in_list = kept < at ? kept : kept + rank;
        add_loop(kept < at ? &j->before : &j->after, table->size[d],
                 table->stride[d] * item[TABLE],
                 list->stride[in_list] * item[LIST]);
        kept++;
    }
    j->from = INT64_MIN; /* steps may go back */
    j->to = INT64_MAX;
    j->row = (row){.n = 1, .item = (size_t)item[LIST]};
    if (j->after.n > 0) {
        int last = --j->after.n;
        j->row.n = j->after.size[last];
        j->row.step[TABLE] = j->after.step[TABLE][last];
        j->row.step[LIST] = j->after.step[LIST][last];
    }
}

/* A job in parts, each of which goes through all points in order, so that no
 * element depends on how many parts there are: a part of the outermost loop, or
 * those points whose place in the table is in a part of it. */
typedef struct parts {
    const job *job;
    char *table, *list;
    bool places;
    int64_t n, per;
    atomic_bool failed;
} parts;

static void run_part(void *ctx, int64_t i)
{
    parts *p = ctx;
    job j = *p->job;
    int64_t from = i * p->per, n = p->n - from < p->per ? p->n - from : p->per;
    char *table = p->table, *list = p->list;
    if (p->places) {
        j.from = from;
        j.to = from + n;
    } else if (p->n > 1) {
        j.before.size[0] = n;
        table += from * j.before.step[TABLE][0];
        list += from * j.before.step[LIST][0];
    }
    run(&j, table, list);
    if (j.points.failed) p->failed = true;
}

/* Places are less than this. */
static int64_t end_of(const points *q)
{
    int64_t end = 1;
    for (int k = 0; k < q->n; k++)
        end += q->size[k] > 0 ? (q->size[k] - 1) * q->table_step[k] : 0;
    return end;
}

static double work_of(const job *j)
{
    double n = (double)j->points.left * (double)(j->row.n + 4);
    for (int d = 0; d < j->before.n; d++)
        n *= (double)j->before.size[d];
    for (int d = 0; d < j->after.n; d++)
        n *= (double)j->after.size[d];
    return n / 2;
}

static bool run_parts(job *j, char *table, char *list)
{
    enum { PARTS = 8, LONG = 16 };
    parts p = {.job = j, .table = table, .list = list, .n = 1};
    bool outer = j->before.n > 0 && j->before.size[0] >= PARTS;
    p.places = !outer && j->row.n >= LONG;
    if (outer) p.n = j->before.size[0];
    if (p.places) p.n = end_of(&j->points);
    p.per = (p.n + PARTS - 1) / PARTS;
    if (j->points.strict) p.per = p.n; /* the first that is wrong */
    nb_parallel_if(work_of(j), (p.n + p.per - 1) / p.per, run_part, &p);
    return !p.failed;
}

/* The size of an element is a constant in each loop: one move. */
static inline void copy(char *to, int64_t to_step, const char *from,
                        int64_t from_step, int64_t n, size_t item)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step, from + i * from_step, item);
}

static void move(char *to, int64_t to_step, const char *from, int64_t from_step,
                 const row *r)
{
    int64_t item = (int64_t)r->item;
    if (to_step == item && from_step == item) {
        memcpy(to, from, (size_t)r->n * r->item);
        return;
    }
    switch (item) {
    case 1: copy(to, to_step, from, from_step, r->n, 1); break;
    case 2: copy(to, to_step, from, from_step, r->n, 2); break;
    case 4: copy(to, to_step, from, from_step, r->n, 4); break;
    default: copy(to, to_step, from, from_step, r->n, 8); break;
    }
}

static void read_row(const row *r, char *table, char *list)
{
    move(list, r->step[LIST], table, r->step[TABLE], r);
}

static void set_row(const row *r, char *table, char *list)
{
    move(table, r->step[TABLE], list, r->step[LIST], r);
}

/* Rows of one dtype that meet rows of the table, a the old value and b the
 * new one.  T is the type of the table, U that of the list. */
#define EACH(T, U, load, expression)                                 \
    if (r->step[TABLE] == sizeof(T) && r->step[LIST] == sizeof(U)) { \
        EVERY(T, U, load, expression, sizeof(T), sizeof(U))          \
    } else {                                                         \
        EVERY(T, U, load, expression, r->step[TABLE], r->step[LIST]) \
    }                                                                \
    return;
/* Steps that are constants make better code. */
#define EVERY(T, U, load, expression, table_step, list_step)          \
    for (int64_t i = 0; i < r->n; i++) {                              \
        T *to = (T *)(table + i * (int64_t)(table_step));             \
        T a = *to, b = load(*(U *)(list + i * (int64_t)(list_step))); \
        *to = (T)(expression);                                        \
    }
#define ROW(name, T, U, load, add, mul, min, max)                 \
    static void name##_row(const row *r, char *table, char *list) \
    {                                                             \
        switch (r->how) {                                         \
        case NB_PUT_ADD: EACH(T, U, load, add)                    \
        case NB_PUT_MUL: EACH(T, U, load, mul)                    \
        case NB_PUT_MIN: EACH(T, U, load, min)                    \
        default: EACH(T, U, load, max)                            \
        }                                                         \
    }

/* Integers wrap; of bools the sum is or, the product and; NaN is the least and
 * the largest of all. */
#define INTEGER(name, T)                                                    \
    ROW(name, T, T, , (uint64_t)a + (uint64_t)b, (uint64_t)a * (uint64_t)b, \
        a < b ? a : b, a > b ? a : b)
#define FLOATING(name, T, U, load)                               \
    ROW(name, T, U, load, a + b, a * b, a < b || a != a ? a : b, \
        a > b || a != a ? a : b)

ROW(bool, uint8_t, uint8_t, , a | b, a &b, a &b, a | b)
INTEGER(int8, int8_t)
INTEGER(int16, int16_t)
INTEGER(int32, int32_t)
INTEGER(int64, int64_t)
INTEGER(uint8, uint8_t)
INTEGER(uint16, uint16_t)
INTEGER(uint32, uint32_t)
INTEGER(uint64, uint64_t)
FLOATING(float16, float, uint16_t, nb_f16_to_f32)
FLOATING(bfloat16, float, uint16_t, nb_bf16_to_f32)
FLOATING(float32, float, float, )
FLOATING(float64, double, double, )

static row_work *const combining[] = {
    NULL,
#define DTYPE(NAME, name, brief, type, bytes, class) name##_row,
#include "nabla/dtypes.def"
};

bool nb_index_read(const nb_kernel *k, const nb_pick *p)
{
    const nb_view *x = &k->view[0], *y = &k->view[k->nin];
    job j = {.points = {.index = &k->view[1], .strict = watched(k->call)},
             .work = read_row,
             .reads = true};
    int64_t item = (int64_t)nb_dtype_size(x->dtype);
    plan(&j, p, x, y, (int64_t[]){item, item});
    if (!p->clamp) memset(y->data, 0, (size_t)(count(y->rank, y->size) * item));
    run(&j, x->data, y->data);
    return !j.points.failed;
}

/* Halves are gathered in float and rounded once. */
static bool write_wide(job *j, const nb_kernel *k, const nb_pick *p,
                       nb_combine how)
{
    const nb_view *y = &k->view[k->nin];
    int64_t n = count(y->rank, y->size);
    nb_view wide = *y;
    wide.data = nb_alloc((size_t)n * sizeof(float) + 1);
    if (!wide.data) return false;
    nb_convert(wide.data, NB_F32, 1, y->data, y->dtype, 1, n);
    plan(j, p, &wide, &k->view[1], (int64_t[]){4, 2});
    j->row.how = how;
    bool ok = run_parts(j, wide.data, k->view[1].data);
    nb_convert(y->data, y->dtype, 1, wide.data, NB_F32, 1, n);
    nb_free(wide.data);
    return ok;
}

bool nb_index_write(const nb_kernel *k, const nb_pick *p, nb_combine how)
{
    const nb_view *x = &k->view[0], *list = &k->view[1];
    const nb_view *y = &k->view[k->nin];
    int64_t item = (int64_t)nb_dtype_size(x->dtype);
    bool half = nb_dtype_is_half(y->dtype);
    job j = {.points = {.index = &k->view[2], .strict = watched(k->call)},
             .work = how == NB_PUT_SET ? set_row : combining[y->dtype]};
    nb_copy((size_t)item, y->rank, y->size, (nb_side){y->data, y->stride},
            (nb_side){x->data, x->stride});
    if (half && how != NB_PUT_SET) return write_wide(&j, k, p, how);
    plan(&j, p, y, list, (int64_t[]){item, item});
    j.row.how = how;
    return run_parts(&j, y->data, list->data);
}

bool nb_index_link(const nb_kernel *k, const int64_t *size, bool clamp)
{
    const nb_view *y = &k->view[k->nin];
    int64_t place[2][SOME];
    points q = {.index = k->view,
                .n = k->nin,
                .clamp = clamp,
                .place = {place[TABLE], place[LIST]}};
    int64_t places = count(q.n, size), all = count(y->rank, y->size), at = 0;
    int64_t *to = (int64_t *)y->data;
    int64_t *last = nb_alloc((size_t)(places + 1) * sizeof *last);
    if (!last) return false;
    for (int64_t p = 0; p < places; p++)
        last[p] = all;
    q.left = all;
    memcpy(q.size, size, (size_t)q.n * sizeof *size);
    nb_row_major(q.n, size, q.table_step);
    for (int n; (n = some(&q)) > 0;)
        for (int p = 0; p < n; p++, at++) {
            int64_t here = place[TABLE][p];
            to[at] = here == NOWHERE ? all : last[here];
            if (here != NOWHERE) last[here] = at;
        }
    nb_free(last);
    return true;
}
