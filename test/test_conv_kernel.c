/* test_conv_kernel.c - the inner loops of convolution against its definition:
 * by places and by images, in every width of vectors, on operands that lie in
 * any order, and in any number of threads. */
#include "base/pool.h"
#include "core/convert.h"
#include "ops/conv_kernel.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { AXES = 2 + NB_MAX_SPATIAL };

static uint64_t state = 1;

/* From 0 to n - 1. */
static int64_t pick(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

/* An operand: a view in memory of its own, and its values in row-major order.
 */
typedef struct operand {
    nb_view view;
    int64_t size[AXES], stride[AXES], n;
    int64_t *value;
    char *data;
} operand;

static void operand_free(operand *o)
{
    free(o->value);
    free(o->data);
}

/* Axes in any order, some backwards, with gaps; or row-major. */
static int64_t lay(operand *o, bool plain)
{
    int rank = o->view.rank, order[AXES];
    int64_t step = 1, first = 0;
    for (int d = 0; d < rank; d++)
        order[d] = d;
    for (int d = 0; !plain && d < rank; d++) {
        int other = (int)pick(rank), was = order[d];
        order[d] = order[other];
        order[other] = was;
    }
    for (int i = rank - 1; i >= 0; i--) {
        int d = order[i];
        bool back = !plain && pick(3) == 0;
        o->stride[d] = back ? -step : step;
        if (back && o->size[d] > 0) first += step * (o->size[d] - 1);
        step = step * o->size[d] + (plain ? 0 : pick(3));
        if (step == 0) step = 1;
    }
    return first;
}

static int64_t offset_of(const operand *o, int64_t i)
{
    int64_t at = 0;
    for (int d = o->view.rank - 1; d >= 0; d--) {
        at += i % o->size[d] * o->stride[d];
        i /= o->size[d];
    }
    return at;
}

static int64_t room_of(const operand *o)
{
    int64_t n = 1;
    for (int d = 0; d < o->view.rank; d++)
        n += llabs(o->stride[d]) * (o->size[d] > 0 ? o->size[d] - 1 : 0);
    return n;
}

static void operand_make(operand *o, nb_dtype d, int rank, const int64_t *size,
                         bool plain)
{
    size_t item = nb_dtype_size(d);
    memset(o, 0, sizeof *o);
    o->n = 1;
    for (int k = 0; k < rank; k++)
        o->n *= o->size[k] = size[k];
    o->view = (nb_view){
        .dtype = d, .rank = rank, .size = o->size, .stride = o->stride};
    int64_t first = lay(o, plain);
    o->data = malloc((size_t)room_of(o) * item);
    o->value = malloc((size_t)(o->n + 1) * sizeof *o->value);
    memset(o->data, 0x7f, (size_t)room_of(o) * item);
    o->view.data = o->data + first * (int64_t)item;
    for (int64_t i = 0; i < o->n; i++) {
        o->value[i] = pick(7) - 3;
        nb_convert(o->view.data + offset_of(o, i) * (int64_t)item, d, 1,
                   &o->value[i], NB_I64, 1, 1);
    }
}

/* The element of x that tap k reads at place t, or -1: the definition. */
static int64_t read_at(const nb_conv_line *l, int64_t t, int64_t k)
{
    int64_t p = t * l->stride + k * l->dilation - l->before;
    if (p < 0 || p % l->spread || p / l->spread >= l->size) return -1;
    return p / l->spread;
}

/* What the taps numbered `tap` of all lines read at place `at`: a number in
 * row-major order, or -1. */
static int64_t place_of(const nb_geometry *g, int64_t at, int64_t tap)
{
    int64_t p = 0, step = 1;
    for (int d = g->rank - 1; d >= 0; d--) {
        const nb_conv_line *l = &g->line[d];
        int64_t here = read_at(l, at % l->places, tap % l->taps);
        if (here < 0) return -1;
        p += here * step;
        step *= l->size;
        at /= l->places;
        tap /= l->taps;
    }
    return p;
}

typedef struct sizes {
    int64_t places, taps, points;
} sizes;

static sizes sizes_of(const nb_geometry *g)
{
    sizes s = {1, 1, 1};
    for (int d = 0; d < g->rank; d++) {
        s.places *= g->line[d].places;
        s.taps *= g->line[d].taps;
        s.points *= g->line[d].size;
    }
    return s;
}

static int64_t term_sum(const nb_geometry *g, const operand *x,
                        const operand *f, int64_t image, int64_t at, int64_t o)
{
    sizes s = sizes_of(g);
    int64_t sum = 0, all_in = g->groups * g->in, all_out = g->groups * g->out;
    for (int64_t tap = 0; tap < s.taps; tap++) {
        int64_t p = place_of(g, at, tap);
        for (int64_t i = 0; p >= 0 && i < g->in; i++)
            sum += x->value[(image * s.points + p) * all_in +
                            o / g->out * g->in + i] *
                   f->value[(tap * g->in + i) * all_out + o];
    }
    return sum;
}

static int64_t definition(const nb_geometry *g, const operand *x,
                          const operand *f, int64_t n)
{
    int64_t all_out = g->groups * g->out, places = sizes_of(g).places;
    return term_sum(g, x, f, n / all_out / places, n / all_out % places,
                    n % all_out);
}

typedef struct problem {
    nb_geometry g;
    operand x, f, y;
} problem;

static void problem_free(problem *p)
{
    operand_free(&p->x);
    operand_free(&p->f);
    operand_free(&p->y);
}

static void problem_make(problem *p, nb_dtype d, bool plain)
{
    nb_geometry *g = &p->g;
    int rank = g->rank;
    int64_t x[AXES], f[AXES], y[AXES];
    x[0] = y[0] = g->images;
    x[rank + 1] = g->groups * g->in;
    f[rank] = g->in;
    f[rank + 1] = y[rank + 1] = g->groups * g->out;
    for (int k = 0; k < rank; k++) {
        x[1 + k] = g->line[k].size;
        f[k] = g->line[k].taps;
        y[1 + k] = g->line[k].places;
    }
    operand_make(&p->x, d, rank + 2, x, plain);
    operand_make(&p->f, d, rank + 2, f, plain);
    operand_make(&p->y, d, rank + 2, y, true);
}

/* Small whole numbers: sums are exact in any order and dtype. */
static void holds(problem *p, nb_conv_way way, const char *want)
{
    size_t item = nb_dtype_size(p->y.view.dtype);
    memset(p->y.data, 0x7f, (size_t)p->y.n * item);
    assert_true(nb_conv_run_as(&p->g, &p->x.view, &p->f.view, &p->y.view, way));
    for (size_t i = 0; i < (size_t)p->y.n; i++)
        if (memcmp(want + i * item, p->y.data + i * item, item) != 0)
            fail_msg("element %zu of %lld: rows %d, %d bytes, dtype %s", i,
                     (long long)p->y.n, (int)way.rows, way.bytes,
                     nb_dtype_name(p->y.view.dtype));
}

static void holds_every_way(problem *p)
{
    size_t item = nb_dtype_size(p->y.view.dtype);
    char *want = malloc((size_t)p->y.n * item + 1);
    for (int64_t i = 0; i < p->y.n; i++) {
        int64_t sum = definition(&p->g, &p->x, &p->f, i);
        nb_convert(want + (size_t)i * item, p->y.view.dtype, 1, &sum, NB_I64, 1,
                   1);
    }
    for (int bytes = 16; bytes <= 64; bytes *= 2)
        for (int rows = NB_CONV_EITHER; rows <= NB_CONV_BY_IMAGES; rows++) {
            nb_conv_way way = {.bytes = bytes};
            way.rows = rows;
            holds(p, way, want);
        }
    free(want);
}

/* Lines with all that they can have; most are short of one thing or another. */
static nb_conv_line some_line(void)
{
    nb_conv_line l;
    do
        l = (nb_conv_line){.size = pick(11),
                           .taps = 1 + pick(4),
                           .stride = 1 + pick(3) * pick(2),
                           .dilation = 1 + pick(3) * pick(2),
                           .spread = 1 + pick(4) * pick(2),
                           .before = pick(5) - 1,
                           .after = pick(5) - 1};
    while (!nb_conv_line_measure(&l) || l.places < 0);
    return l;
}

static nb_geometry some_geometry(void)
{
    static const int64_t channels[] = {1, 2, 3, 5, 8, 17, 33, 40};
    nb_geometry g = {.rank = 1 + (int)pick(3),
                     .images = pick(4),
                     .groups = 1 + pick(3) * pick(2),
                     .in = channels[pick(5)],
                     .out = channels[pick(8)]};
    if (pick(5) == 0) g.images = 9 + pick(9);
    if (pick(9) == 0) g.in = 0;
    for (int d = 0; d < g.rank; d++)
        g.line[d] = some_line();
    return g;
}

static double work_of(const nb_geometry *g)
{
    sizes s = sizes_of(g);
    return (double)(s.places * s.taps) *
           (double)(g->images * g->groups * g->in * g->out);
}

static void test_any_convolution_is_its_definition(void **s)
{
    static const nb_dtype types[] = {NB_F32,  NB_F64, NB_F32, NB_F16,
                                     NB_BF16, NB_I8,  NB_I64};
    (void)s;
    for (int i = 0; i < 600; i++) {
        problem p = {.g = some_geometry()};
        if (work_of(&p.g) > 2e5) continue;
        problem_make(&p, types[i % 7], pick(2));
        holds_every_way(&p);
        problem_free(&p);
    }
}

static nb_geometry square(int64_t images, int64_t size, int64_t groups,
                          int64_t in, int64_t out, int64_t taps, int64_t stride)
{
    nb_geometry g = {
        .rank = 2, .images = images, .groups = groups, .in = in, .out = out};
    for (int d = 0; d < 2; d++) {
        g.line[d] = (nb_conv_line){.size = size,
                                   .taps = taps,
                                   .stride = stride,
                                   .dilation = 1,
                                   .spread = 1,
                                   .before = taps / 2,
                                   .after = taps / 2};
        nb_conv_line_measure(&g.line[d]);
    }
    return g;
}

/* The gradient of a filter, of which x and filter are turned. */
static nb_geometry of_filter(int64_t images, int64_t size, int64_t groups,
                             int64_t in, int64_t out, int64_t taps)
{
    nb_geometry g = square(in, size, groups, images, out, size, 1);
    for (int d = 0; d < 2; d++) {
        g.line[d].before = taps / 2;
        g.line[d].after = taps - 1 - taps / 2;
        nb_conv_line_measure(&g.line[d]);
    }
    return g;
}

/* Large enough that blocks, panels, terms, bands and parts are cut. */
static void test_what_is_cut_is_whole(void **s)
{
    nb_geometry g[] = {
        square(1, 21, 1, 33, 70, 3, 1), square(2, 40, 1, 20, 9, 3, 2),
        square(1, 4, 1, 300, 17, 3, 1), square(1, 9, 16, 1, 1, 3, 1),
        of_filter(3, 24, 1, 16, 20, 3), of_filter(9, 18, 1, 300, 3, 1),
        of_filter(2, 33, 1, 3, 16, 5),  of_filter(3, 20, 70, 1, 1, 3),
    };
    (void)s;
    for (size_t i = 0; i < sizeof g / sizeof *g; i++) {
        problem p = {.g = g[i]};
        problem_make(&p, NB_F32, i % 2);
        holds_every_way(&p);
        problem_free(&p);
    }
}

static nb_geometry far_line(int64_t size, int64_t far, int64_t before)
{
    nb_geometry g = {.rank = 1, .images = 2, .groups = 1, .in = 3, .out = 2};
    g.line[0] = (nb_conv_line){.size = size,
                               .taps = 3,
                               .stride = 1,
                               .dilation = far,
                               .spread = 1,
                               .before = before,
                               .after = far};
    nb_conv_line_measure(&g.line[0]);
    return g;
}

/* Even so far that a line between them would not fit in memory. */
static void test_taps_may_be_far_apart(void **s)
{
    int64_t far = (int64_t)1 << 45;
    nb_geometry g[] = {far_line(6, far, far), far_line(1300, 300, 7)};
    (void)s;
    assert_int_equal(g[0].line[0].places, 6);
    for (int i = 0; i < 2; i++) {
        problem p = {.g = g[i]};
        problem_make(&p, NB_F32, true);
        holds_every_way(&p);
        problem_free(&p);
    }
}

/* Sums of these depend on the order in which they are made. */
static void fill(operand *o)
{
    for (int64_t i = 0; i < o->n; i++)
        ((float *)o->data)[i] = (float)pick(1000003) * 1e-3f - 300;
}

static void run_in(problem *p, int threads, nb_conv_way way, float *to)
{
    assert_int_equal(nb_set_threads(threads), NB_OK);
    assert_true(nb_conv_run_as(&p->g, &p->x.view, &p->f.view, &p->y.view, way));
    memcpy(to, p->y.data, (size_t)p->y.n * sizeof *to);
}

static void test_threads_change_no_bit(void **s)
{
    nb_geometry g[] = {
        square(4, 28, 1, 24, 48, 3, 1),  square(1, 14, 1, 64, 96, 3, 1),
        square(3, 28, 48, 1, 1, 3, 2),   of_filter(4, 28, 1, 24, 48, 3),
        of_filter(2, 7, 1, 256, 160, 3), of_filter(4, 28, 64, 1, 1, 3)};
    int before = nb_threads();
    (void)s;
    for (int i = 0; i < 12; i++) {
        problem p = {.g = g[i / 2]};
        nb_conv_way way = {.bytes = 64};
        way.rows = NB_CONV_BY_PLACES + i % 2;
        problem_make(&p, NB_F32, true);
        fill(&p.x);
        fill(&p.f);
        size_t bytes = (size_t)p.y.n * sizeof(float);
        float *one = malloc(bytes), *many = malloc(bytes);
        run_in(&p, 1, way, one);
        for (int n = 2; n <= 5; n += 3) {
            run_in(&p, n, way, many);
            assert_memory_equal(one, many, bytes);
        }
        free(one);
        free(many);
        problem_free(&p);
    }
    nb_set_threads(before);
}

typedef struct narrow {
    problem p;
    int rows;
} narrow;

static bool runs(void *ctx)
{
    const narrow *x = ctx;
    nb_conv_way way = {.bytes = 64};
    way.rows = x->rows;
    return nb_conv_run_as(&x->p.g, &x->p.x.view, &x->p.f.view, &x->p.y.view,
                          way);
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    nb_dtype types[] = {NB_F32, NB_F16};
    (void)s;
    for (int i = 0; i < 4; i++) {
        narrow x = {.p = {.g = square(2, 30, 1, 10, 20, 3, 1)},
                    .rows = NB_CONV_BY_PLACES + i / 2};
        faults f = {.run = runs, .ctx = &x, .bare = true};
        problem_make(&x.p, types[i % 2], true);
        assert_true(faults_survived(&f) && f.failed > 1);
        problem_free(&x.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_convolution_is_its_definition),
        cmocka_unit_test(test_what_is_cut_is_whole),
        cmocka_unit_test(test_taps_may_be_far_apart),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
