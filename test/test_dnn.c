/* test_dnn.c - cuDNN's graphs: that our numbers are the library's, that a
 * missing library is an error that says so, and, on the simulated one, that
 * graphs become plans, which are shared, and compute. */
#include "backend/cuda/dnn/dnn.h"
#include "backend/cuda/memory.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name;
    int value;
} numbers[] = {
#define DNN_NUMBER(name, value) {"CUDNN_" #name, value},
#include "backend/cuda/dnn/numbers.def"
#undef DNN_NUMBER
};

/* The first text of a header that is a name and "= value", or -1. */
static int value_in(const char *text, const char *name)
{
    size_t n = strlen(name);
    const char *end = " \t=";
    for (const char *at = text; (at = strstr(at, name)); at += n) {
        int value;
        const char *is = at + n + strcspn(at + n, ",=\n");
        bool whole = (at == text || strchr(" \t\n{", at[-1])) &&
                     strchr(end, at[n]) && *is == '=';
        if (whole && sscanf(is + 1, "%d", &value) == 1) return value;
    }
    return -1;
}

static char *read_header(void)
{
    static const char *const paths[] = {
        "/usr/local/cuda/include/cudnn_graph.h", "/usr/include/cudnn_graph.h",
        "/usr/include/x86_64-linux-gnu/cudnn_graph.h"};
    FILE *f = NULL;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !f; i++)
        f = fopen(paths[i], "r");
    if (!f) return NULL;
    enum { ROOM = 1 << 20 };
    char *text = calloc(ROOM, 1);
    if (text && !fread(text, 1, ROOM - 1, f)) *text = 0;
    fclose(f);
    return text;
}

static void numbers_are_those_of_the_header(void **state)
{
    (void)state;
    char *text = read_header();
    if (!text) skip();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (value_in(text, numbers[i].name) != numbers[i].value)
            fail_msg("%s is %d, not %d", numbers[i].name,
                     value_in(text, numbers[i].name), numbers[i].value);
    free(text);
}

static void without_it(void)
{
    need(!nb_dnn_there());
    need(nb_dnn_version() == 0);
    need(!nb_dnn_need());
    need(strstr(nb_error_message(), "nowhere.so"));
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    alone(without_it, "NABLA_CUDNN=/nowhere.so");
}

/* Of two rows of three: e^x times what that adds up to along the row. */
enum { ROWS = 2, COLUMNS = 3, N = ROWS * COLUMNS };

static int tensor(nb_dnn_graph *g, int64_t columns, bool between)
{
    nb_dnn_tensor t = {.dtype = NB_F32,
                       .rank = 3,
                       .size = {1, ROWS, columns},
                       .step = {ROWS * columns, columns, 1},
                       .between = between};
    return nb_dnn_tensor_add(g, &t);
}

static nb_dnn_graph *graph(nb_card *c, float factor)
{
    nb_dnn_graph *g = nb_dnn_graph_new(c);
    need(g);
    int x = tensor(g, COLUMNS, false), y = tensor(g, COLUMNS, false);
    int e = tensor(g, COLUMNS, true), sum = tensor(g, 1, true);
    int f = nb_dnn_number_add(g, 3, factor), half = tensor(g, COLUMNS, true);
    nb_dnn_pointwise_add(
        g, &(nb_dnn_pointwise){.mode = NB_DNN_POINTWISE_EXP, .x = x, .y = e});
    nb_dnn_reduce_add(g, NB_DNN_REDUCE_TENSOR_ADD, e, sum);
    nb_dnn_pointwise_add(
        g, &(nb_dnn_pointwise){
               .mode = NB_DNN_POINTWISE_MUL, .x = e, .b = sum, .y = half});
    nb_dnn_pointwise_add(
        g, &(nb_dnn_pointwise){
               .mode = NB_DNN_POINTWISE_MUL, .x = half, .b = f, .y = y});
    return g;
}

static nb_dnn_plan *plan(nb_card *c, float factor)
{
    nb_dnn_plan *p = NULL;
    nb_dnn_graph *g = graph(c, factor);
    need(nb_dnn_plan_find(g, &(nb_dnn_wish){0}, &p));
    nb_dnn_graph_free(g);
    return p;
}

static void check_runs(nb_card *c, nb_dnn_plan *p, float factor)
{
    static const float in[N] = {0, 1, -1, 2, 0.5f, 0};
    float out[N];
    size_t room[3];
    char *x = nb_card_alloc(c, sizeof in, &room[0]);
    char *y = nb_card_alloc(c, sizeof out, &room[1]);
    char *workspace = nb_card_alloc(c, nb_dnn_plan_workspace(p), &room[2]);
    need(x && y && workspace && nb_card_put(c, x, in, sizeof in));
    need(nb_dnn_plan_run(p, (void *[]){x, y}, workspace, "test"));
    need(nb_card_get(c, out, y, sizeof out));
    for (int i = 0; i < N; i++) {
        const float *row = in + i / COLUMNS * COLUMNS;
        float sum = expf(row[0]) + expf(row[1]) + expf(row[2]);
        need(fabsf(out[i] - factor * sum * expf(in[i])) < 1e-4f * out[i]);
    }
    nb_card_free(c, x, room[0]), nb_card_free(c, y, room[1]);
    nb_card_free(c, workspace, room[2]);
}

static void graphs_run(void)
{
    nb_card *c = cards_first();
    nb_dnn_plan *p = plan(c, 2), *same = plan(c, 2), *other = plan(c, 3);
    need(p && p == same && other && other != p);
    check_runs(c, p, 2);
    check_runs(c, other, 3);
    nb_dnn_plan_drop(p), nb_dnn_plan_drop(other);
    check_runs(c, same, 2);
    nb_dnn_plan_drop(same);
}

static void searches_run(void)
{
    nb_card *c = cards_first();
    nb_dnn_wish wish = {.tries = 2};
    nb_dnn_search *s[3];
    for (int i = 0; i < 3; i++)
        need(s[i] = nb_dnn_search_begin(graph(c, i < 2 ? 2 : 3), &wish));
    need(s[0] == s[1] && s[2] != s[0]);
    for (int i = 0; i < 3; i++) {
        need(nb_dnn_search_plan(s[i]));
        check_runs(c, nb_dnn_search_plan(s[i]), i < 2 ? 2 : 3);
    }
    for (int i = 0; i < 3; i++)
        nb_dnn_search_drop(s[i]);
}

/* The sum of rows that are not there is no descriptor. */
static void refusals_are_told(void)
{
    nb_card *c = cards_first();
    nb_dnn_plan *p = NULL;
    nb_dnn_graph *g = graph(c, 1);
    nb_dnn_reduce_add(g, NB_DNN_REDUCE_TENSOR_ADD, 1, 99);
    nb_dnn_reduce_add(g, NB_DNN_REDUCE_TENSOR_ADD, 1, 2);
    need(nb_dnn_plan_find(g, &(nb_dnn_wish){0}, &p) && !p);
    need(strstr(nb_dnn_graph_trouble(g), "descriptor 22"));
    nb_dnn_graph_free(g);
}

static void simulated(void (*body)(void))
{
    if (!cards_simulated()) skip();
    cards_alone(body, "%s", cards_dnn());
}

static void plans_are_shared_and_compute(void **state)
{
    (void)state;
    simulated(graphs_run);
}

static void searches_are_shared_and_find_plans(void **state)
{
    (void)state;
    simulated(searches_run);
}

static void what_is_refused_is_told(void **state)
{
    (void)state;
    simulated(refusals_are_told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_header),
        cmocka_unit_test(a_missing_library_is_named),
        cmocka_unit_test(plans_are_shared_and_compute),
        cmocka_unit_test(searches_are_shared_and_find_plans),
        cmocka_unit_test(what_is_refused_is_told),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
