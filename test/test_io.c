/* test_io.c - tensors saved and loaded: what comes back, whose memory it is,
 * and what is refused.  The formats themselves are tested in test_files.c. */
#include "core/lanes.h"
#include "nabla/io.h"
#include "nabla/nabla.h"
#include "support/faults.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/nabla-io-XXXXXX";
static const char *const formats[] = {"x.safetensors", "x.npz"};

static const char *in_folder(const char *name)
{
    static char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char path[600];
    DIR *d = opendir(folder);
    (void)state;
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    return rmdir(folder);
}

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open();
}

static int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_error_clear();
    return nb_stats_get().nodes_live != 0 || nb_memory_in_use() != 0;
}

static void ok(nb_status s)
{
    if (s != NB_OK) fail_msg("%s", nb_error_message());
}

static void refused(nb_status s, nb_status code, const char *why)
{
    assert_int_equal(s, code);
    if (!strstr(nb_error_message(), why)) fail_msg("%s", nb_error_message());
    nb_error_clear();
}

static nb_file *loaded(const char *name)
{
    nb_file *f;
    ok(nb_load(in_folder(name), &f));
    return f;
}

/* One tensor, under the name "x". */
static nb_status save_one(const char *name, nb_tensor *x)
{
    return nb_save(in_folder(name), 1, (const char *[]){"x"}, &x, 0, NULL,
                   NULL);
}

static nb_tensor *counting(nb_dtype d)
{
    return nb_cast(nb_reshape(nb_iota(6, NB_I64), 2, (int64_t[]){2, 3}), d);
}

static void same(nb_tensor *x, nb_tensor *y)
{
    double a[64], b[64];
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_dtype_of(x), nb_dtype_of(y));
    assert_int_equal(nb_rank(x), nb_rank(y));
    for (int d = 0; d < nb_rank(x); d++)
        assert_int_equal(nb_size(x, d), nb_size(y, d));
    ok(nb_read(x, NB_F64, a));
    ok(nb_read(y, NB_F64, b));
    assert_memory_equal(a, b, (size_t)nb_elements(x) * sizeof *a);
}

static void test_every_dtype_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (nb_dtype d = NB_BOOL; d < NB_NDTYPES; d++) {
            if (d == NB_BF16 && i == 1) continue;
            ok(save_one(formats[i], counting(d)));
            nb_file *f = loaded(formats[i]);
            assert_int_equal(nb_file_tensors(f), 1);
            same(nb_file_get(f, "x"), counting(d));
            nb_file_free(f);
        }
}

static void test_names_and_order_are_kept(void **state)
{
    const char *names[] = {"b.weight", "a", "\xc3\xa9"};
    (void)state;
    nb_tensor *x[] = {counting(NB_F32), nb_scalar_int(7, NB_I32),
                      nb_zeros(2, (int64_t[]){3, 0}, NB_F64)};
    for (int i = 0; i < 2; i++) {
        ok(nb_save(in_folder(formats[i]), 3, names, x, 0, NULL, NULL));
        nb_file *f = loaded(formats[i]);
        assert_int_equal(nb_file_tensors(f), 3);
        for (int k = 0; k < 3; k++) {
            same(nb_file_get(f, names[k]), x[k]);
            assert_non_null(nb_file_name(f, k));
        }
        assert_null(nb_file_name(f, 3));
        assert_null(nb_file_tensor(f, 3));
        assert_int_equal(nb_error_code(), NB_EINDEX);
        nb_error_clear();
        assert_null(nb_file_get(f, "c"));
        assert_int_equal(nb_error_code(), NB_EKEY);
        nb_error_clear();
        nb_file_free(f);
    }
}

static void test_a_npy_file_holds_one_tensor_without_a_name(void **state)
{
    (void)state;
    ok(save_one("x.npy", counting(NB_I16)));
    nb_file *f = loaded("x.npy");
    assert_string_equal(nb_file_name(f, 0), "");
    same(nb_file_tensor(f, 0), counting(NB_I16));
    nb_file_free(f);
}

static void test_views_are_saved_in_row_major_order(void **state)
{
    (void)state;
    nb_tensor *x = counting(NB_F32);
    nb_tensor *view[] = {
        nb_swap_axes(x, 0, 1), nb_flip(x, -1, NULL),
        nb_broadcast_to(nb_num(2.5), 2, (int64_t[]){3, 2}),
        nb_slice(x, (int64_t[]){0, 0}, (int64_t[]){2, 2}, (int64_t[]){1, 2})};
    for (int i = 0; i < 4; i++) {
        ok(save_one("x.safetensors", view[i]));
        nb_file *f = loaded("x.safetensors");
        same(nb_file_get(f, "x"), view[i]);
        nb_file_free(f);
    }
}

static void test_notes_come_back(void **state)
{
    const char *keys[] = {"format", "note"}, *values[] = {"pt", "a \"b\"\n"};
    (void)state;
    nb_tensor *x = counting(NB_F32);
    ok(nb_save(in_folder("x.safetensors"), 1, (const char *[]){"x"}, &x, 2,
               keys, values));
    nb_file *f = loaded("x.safetensors");
    assert_int_equal(nb_file_notes(f), 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(nb_file_note_key(f, i), keys[i]);
        assert_string_equal(nb_file_note(f, i), values[i]);
    }
    assert_null(nb_file_note_key(f, 2));
    assert_null(nb_file_note(f, -1));
    nb_file_free(f);
    refused(nb_save(in_folder("x.npz"), 1, (const char *[]){"x"}, &x, 2, keys,
                    values),
            NB_EVALUE, "metadata");
}

static void test_a_tensor_outlives_its_file(void **state)
{
    (void)state;
    ok(save_one("x.safetensors", counting(NB_F32)));
    nb_scope_open();
    nb_file *f = loaded("x.safetensors");
    nb_tensor *x = nb_keep(nb_file_get(f, "x"));
    nb_file_free(f);
    nb_scope_close(0, NULL);
    same(nb_mul(x, nb_num(2)), nb_add(counting(NB_F32), counting(NB_F32)));
    nb_drop(x);
}

static void test_saving_is_all_or_nothing(void **state)
{
    const char *twice[] = {"x", "x"};
    (void)state;
    ok(save_one("x.safetensors", counting(NB_F32)));
    nb_tensor *x[] = {counting(NB_F64), counting(NB_F64)};
    refused(nb_save(in_folder("x.safetensors"), 2, twice, x, 0, NULL, NULL),
            NB_EVALUE, "named");
    nb_file *f = loaded("x.safetensors");
    same(nb_file_get(f, "x"), counting(NB_F32));
    nb_file_free(f);
}

static void test_what_cannot_be_saved_is_refused(void **state)
{
    (void)state;
    refused(save_one("x.txt", counting(NB_F32)), NB_EVALUE, "suffix");
    refused(save_one("no/x.npz", counting(NB_F32)), NB_ENOFILE, "no/x.npz");
    refused(save_one("x.npz", counting(NB_BF16)), NB_ETYPE, "bfloat16");
    nb_tensor *two[] = {counting(NB_F32), counting(NB_F32)};
    refused(nb_save(in_folder("x.npy"), 2, (const char *[]){"a", "b"}, two, 0,
                    NULL, NULL),
            NB_EVALUE, "npy");
    nb_extent three = nb_extent_of(3);
    int lane = nb_lane_open(three, NULL);
    nb_tensor *mapped = nb_hide(nb_iota(3, NB_F32), 0, lane);
    refused(save_one("x.npz", mapped), NB_EVALUE, "lane");
    nb_lane_close();
    nb_matmul(counting(NB_F32), counting(NB_F32));
    refused(save_one("x.npz", NULL), NB_EVALUE, "matmul");
}

static void test_what_cannot_be_loaded_is_refused(void **state)
{
    nb_file *f;
    (void)state;
    refused(nb_load(in_folder("missing.npz"), &f), NB_ENOFILE, "missing.npz");
    assert_null(f);
    refused(nb_load(in_folder("x.txt"), &f), NB_EVALUE, "suffix");
    ok(save_one("x.safetensors", counting(NB_F32)));
    assert_int_equal(truncate(in_folder("x.safetensors"), 40), 0);
    refused(nb_load(in_folder("x.safetensors"), &f), NB_EVALUE,
            "x.safetensors");
    assert_int_equal(mkdir(in_folder("d.npy"), 0700), 0);
    refused(nb_load(in_folder("d.npy"), &f), NB_ERUNTIME, "d.npy");
    rmdir(in_folder("d.npy"));
}

static bool there_and_back(void *unused)
{
    (void)unused;
    nb_file *f = NULL;
    nb_tensor *x[] = {nb_swap_axes(counting(NB_F32), 0, 1), counting(NB_I8)};
    const char *names[] = {"a", "b"}, *key = "k", *value = "v";
    bool done = nb_save(in_folder("f.safetensors"), 2, names, x, 1, &key,
                        &value) == NB_OK &&
                nb_load(in_folder("f.safetensors"), &f) == NB_OK &&
                nb_file_get(f, "a") && nb_file_get(f, "b");
    nb_file_free(f);
    return done;
}

static void test_running_out_of_memory_is_an_error(void **state)
{
    faults f = {.run = there_and_back};
    (void)state;
    assert_true(faults_survived(&f) && f.n > 20);
    assert_int_equal(nb_memory_in_use(), 0);
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_dtype_comes_back),
        TEST(test_names_and_order_are_kept),
        TEST(test_a_npy_file_holds_one_tensor_without_a_name),
        TEST(test_views_are_saved_in_row_major_order),
        TEST(test_notes_come_back),
        TEST(test_a_tensor_outlives_its_file),
        TEST(test_saving_is_all_or_nothing),
        TEST(test_what_cannot_be_saved_is_refused),
        TEST(test_what_cannot_be_loaded_is_refused),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("io", tests, make_folder, remove_folder);
}
