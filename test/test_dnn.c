/* test_dnn.c - cuDNN's graphs: that our numbers are the library's, and that a
 * missing library is an error that says so. */
#include "backend/cuda/dnn/dnn.h"
#include "nabla/nabla.h"
#include "support/alone.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_header),
        cmocka_unit_test(a_missing_library_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
