/* test_files.c - reading and writing of .safetensors, .npy and .npz.
 *
 * Sentences about what goes in and comes out, tables of broken files with the
 * error each must give, thousands of damaged files that must do no harm, and
 * the failure of every allocation.  Files that NumPy wrote are kept here as
 * hexadecimal text. */
#include "base/memory.h"
#include "io/archive.h"
#include "io/bytes.h"
#include "io/inflate.h"
#include "support/faults.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/nabla-files-XXXXXX";
static char where[4][320]; /* paths in use */

/* numpy.savez(f, a=arange(3, int32), b=[[True, False]]) */
static const char NUMPY_STORED[] =
    "504b03042d00000000000000210002ecbda9ffffffffffffffff05001400612e6e707901"
    "0010008c000000000000008c00000000000000934e554d5059010076007b276465736372"
    "273a20273c6934272c2027666f727472616e5f6f72646572273a2046616c73652c202773"
    "68617065273a2028332c292c207d20202020202020202020202020202020202020202020"
    "202020202020202020202020202020202020202020202020202020202020202020202020"
    "20200a000000000100000002000000504b03042d00000000000000210010193a19ffffff"
    "ffffffffff05001400622e6e70790100100082000000000000008200000000000000934e"
    "554d5059010076007b276465736372273a20277c6231272c2027666f727472616e5f6f72"
    "646572273a2046616c73652c20277368617065273a2028312c2032292c207d2020202020"
    "202020202020202020202020202020202020202020202020202020202020202020202020"
    "20202020202020202020202020202020200a0100504b01022d032d000000000000002100"
    "02ecbda98c0000008c000000050000000000000000000000800100000000612e6e707950"
    "4b01022d032d00000000000000210010193a198200000082000000050000000000000000"
    "0000008001c3000000622e6e7079504b05060000000002000200660000007c0100000000";

/* numpy.savez_compressed(f, **{"w \u00e9": (arange(300) % 7, float32)}) */
static const char NUMPY_DEFLATED[] =
    "504b03042d0000080800000021006e32897dffffffffffffffff080014007720c3a92e6e"
    "707901001000300500000000000062000000000000009bec17ea1b10c9c850c650ad9e92"
    "5a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17"
    "672416a402f91ac606063a9a3a0ab50a64032e063068b007120e4004c40d40bc00880f38"
    "8cca8dca8dca8dca0d263900504b01022d032d0000080800000021006e32897d62000000"
    "300500000800000000000000000000008001000000007720c3a92e6e7079504b05060000"
    "000001000100360000009c0000000000";

/* The bytes of `squares` below, by zlib: a block with codes of its own. */
static const char DYNAMIC[] =
    "e5d04b8e82401000d0aa1a84e64f13684105618206041117128da88c71615c18179a18ef"
    "7f90997bcc0d5e1e30a37d116271c500ca3b485a6792110d3b940cfc06219f22122a5528"
    "8bf00e4e7d2a88a5ab0095b81e813aefd6e4a81ea092f547c049bb2188f63dcab946603b"
    "cb0dc9384a505a88180694ae49e7fb37068b690b3c710bb2a75e835e3ebbc1c08288dc72"
    "25a19de51fb0f3c6244fa106d538d700dde045be3d7c2389990b6a7e3e90ef170972632a"
    "c0b1b294bc70db23032140245f48eef802e8279a0b12653bb2c72c40cde93560ce99931e"
    "5a15fa55fd017d12fc90ecf30e5910dec09c37fc4fceafc8095bb06ad891a3580fa4a08c"
    "c1925d2456b227aa9549606a694a627a79a2edac8fa01bcb03197cfb402f3147f0bf637f"
    "01";

typedef struct bytes {
    uint8_t at[4096];
    size_t n;
} bytes;

static bytes unhex(const char *text)
{
    bytes b = {.n = strlen(text) / 2};
    for (size_t i = 0; i < b.n; i++) {
        unsigned value;
        sscanf(text + 2 * i, "%2x", &value);
        b.at[i] = (uint8_t)value;
    }
    return b;
}

static const char *path_of(int i, const char *name)
{
    snprintf(where[i], sizeof where[i], "%s/%s", folder, name);
    return where[i];
}

/* Some file systems write a file that was cut to the disk at once; a new one
 * spares thousands of such waits. */
static void write_file(const char *path, const void *data, size_t n)
{
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static bytes read_file(const char *path)
{
    bytes b;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.n = fread(b.at, 1, sizeof b.at, f);
    fclose(f);
    return b;
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

/* The pending error is such a one; it is forgotten either way, lest it mask
 * those of later tests. */
static void assert_error(nb_status code, const char *fragment)
{
    char message[1024];
    nb_status found = nb_error_code();
    snprintf(message, sizeof message, "%s", nb_error_message());
    nb_error_clear();
    if (!strstr(message, fragment))
        fail_msg("wanted '%s' in '%s'", fragment, message);
    assert_int_equal(found, code);
}

/* Loading the bytes as a file of that name fails so, and leaves nothing. */
static void assert_no_load(const char *name, const void *data, size_t n,
                           nb_status code, const char *fragment)
{
    nb_archive a;
    int64_t live = nb_memory_live();
    const char *path = path_of(3, name);
    write_file(path, data, n);
    assert_false(nb_archive_load(&a, path));
    assert_int_equal(a.narrays, 0);
    assert_int_equal(nb_memory_live(), live);
    bool named = strstr(nb_error_message(), path);
    assert_error(code, fragment);
    assert_true(named);
}

static void load(nb_archive *a, const char *path)
{
    if (!nb_archive_load(a, path)) fail_msg("%s", nb_error_message());
}

static void save(const nb_archive *a, const char *path)
{
    if (!nb_archive_save(a, path)) fail_msg("%s", nb_error_message());
}

static void assert_array(const nb_archive *a, const char *name, nb_dtype dtype,
                         int rank, const int64_t *size, const void *data)
{
    const nb_array *x = nb_archive_find(a, name);
    assert_non_null(x);
    assert_int_equal(x->dtype, dtype);
    assert_int_equal(x->rank, rank);
    size_t n = nb_dtype_size(dtype);
    for (int d = 0; d < rank; d++) {
        assert_int_equal(x->size[d], size[d]);
        n *= (size_t)size[d];
    }
    assert_int_equal(x->bytes, n);
    assert_int_equal((uintptr_t)x->data % nb_dtype_size(dtype), 0);
    assert_memory_equal(x->data, data, n);
}

/* One array of each dtype, a scalar, an empty one and one of rank 16. */
static void add_all(nb_archive *a, bool with_bf16)
{
    static const uint64_t data[12] = {0x0100010001000101, 0x3ff0000000000000};
    int64_t size[NB_ARRAY_RANK] = {3, 4};
    for (int d = NB_NOTYPE + 1; d < NB_NDTYPES; d++)
        if (d != NB_BF16 || with_bf16)
            assert_true(nb_archive_add(a, nb_dtype_name(d), d, 2, size, data));
    assert_true(nb_archive_add(a, "scalar", NB_F64, 0, NULL, data + 1));
    size[1] = 0;
    assert_true(nb_archive_add(a, "empty", NB_I16, 2, size, NULL));
    for (int d = 0; d < NB_ARRAY_RANK; d++)
        size[d] = 1 + (d == 5);
    assert_true(
        nb_archive_add(a, "long \"\\\n\x01\xc3\xa9", NB_U8, 16, size, data));
}

static void assert_same(const nb_archive *a, const nb_archive *b)
{
    assert_int_equal(a->narrays, b->narrays);
    for (int i = 0; i < a->narrays; i++) {
        const nb_array *x = &a->array[i];
        assert_array(b, x->name, x->dtype, x->rank, x->size, x->data);
    }
    assert_int_equal(a->nnotes, b->nnotes);
    for (int i = 0; i < a->nnotes; i++)
        assert_string_equal(nb_archive_find_note(b, a->note[i].key),
                            a->note[i].value);
}

static void what_is_saved_is_loaded(void **state)
{
    static const char *names[] = {"all.safetensors", "all.npz"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        nb_archive a = {0}, b, none = {0};
        add_all(&a, i == 0);
        if (i == 0) {
            assert_true(nb_archive_add_note(&a, "format", "nabla"));
            assert_true(nb_archive_add_note(&a, "", "\t\xf0\x9f\x98\x80\""));
        }
        const char *path = path_of(0, names[i]);
        save(&a, path);
        load(&b, path);
        assert_same(&a, &b);
        save(&b, path);
        nb_archive_free(&b);
        load(&b, path);
        assert_same(&a, &b);
        nb_archive_free(&b);
        nb_archive_free(&a);
        save(&none, path);
        load(&b, path);
        assert_int_equal(b.narrays, 0);
        nb_archive_free(&b);
    }
}

static void every_dtype_but_bfloat16_fits_npy(void **state)
{
    nb_archive all = {0};
    (void)state;
    add_all(&all, true);
    const char *path = path_of(0, "one.npy");
    for (int i = 0; i < all.narrays; i++) {
        nb_archive one = {.array = &all.array[i], .narrays = 1}, b;
        const nb_array *x = one.array;
        if (x->dtype == NB_BF16) {
            assert_false(nb_archive_save(&one, path));
            assert_error(NB_ETYPE, "npy has no bfloat16 (cast to float32, or "
                                   "use .safetensors)");
            continue;
        }
        save(&one, path);
        load(&b, path);
        assert_int_equal(b.narrays, 1);
        assert_array(&b, "", x->dtype, x->rank, x->size, x->data);
        nb_archive_free(&b);
    }
    assert_false(nb_archive_save(&all, path_of(0, "all.npz")));
    assert_error(NB_ETYPE, "npy has no bfloat16");
    nb_archive_free(&all);
}

/* The text is what safetensors 0.8 for Python writes. */
static void safetensors_equal_the_reference(void **state)
{
    static const char head[] =
        "{\"__metadata__\":{\"k\":\"v\"},"
        "\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
        "\"a\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[12,16]},"
        "\"\xc3\xa9\\\"\\n\\u0001\":{\"dtype\":\"I32\",\"shape\":[1],"
        "\"data_offsets\":[16,20]},"
        "\"d\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[20,23]}}";
    static const int64_t one[] = {1, 1}, three[] = {3};
    static const char data[] = "abcdefgh";
    nb_archive a = {0};
    (void)state;
    assert_true(nb_archive_add(&a, "d", NB_U8, 1, three, data));
    assert_true(nb_archive_add(&a, "\xc3\xa9\"\n\x01", NB_I32, 1, one, data));
    assert_true(nb_archive_add(&a, "a", NB_I32, 2, one, data));
    assert_true(nb_archive_add(&a, "c", NB_F32, 0, NULL, data));
    assert_true(nb_archive_add(&a, "b", NB_I64, 1, one, data));
    assert_true(nb_archive_add_note(&a, "k", "v"));
    save(&a, path_of(0, "ref.safetensors"));
    nb_archive_free(&a);

    bytes b = read_file(where[0]);
    size_t n = (sizeof head - 1 + 7) / 8 * 8;
    assert_int_equal(b.n, 8 + n + 23);
    assert_int_equal(nb_get64(b.at), n);
    assert_memory_equal(b.at + 8, head, sizeof head - 1);
    for (size_t i = sizeof head - 1; i < n; i++)
        assert_int_equal(b.at[8 + i], ' ');
    assert_memory_equal(b.at + 8 + n, "abcdefghabcdabcdabcdabc", 23);
}

static void npy_equals_numpy(void **state)
{
    static const char head[] =
        "\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(2, 3), }";
    static const int64_t size[] = {2, 3};
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    nb_archive a = {0};
    (void)state;
    assert_true(nb_archive_add(&a, "any", NB_F32, 2, size, data));
    save(&a, path_of(0, "ref.npy"));
    nb_archive_free(&a);
    bytes b = read_file(where[0]);
    assert_int_equal(b.n, 128 + sizeof data);
    assert_memory_equal(b.at, head, sizeof head - 1);
    for (size_t i = sizeof head - 1; i < 127; i++)
        assert_int_equal(b.at[i], ' ');
    assert_int_equal(b.at[127], '\n');
    assert_memory_equal(b.at + 128, data, sizeof data);
}

static void what_numpy_zips_is_loaded(void **state)
{
    static const int32_t a_data[] = {0, 1, 2};
    static const int64_t a_size[] = {3}, b_size[] = {1, 2}, w_size[] = {300};
    static const uint8_t b_data[] = {1, 0};
    float w_data[300];
    nb_archive a;
    (void)state;
    bytes z = unhex(NUMPY_STORED);
    write_file(path_of(0, "numpy.npz"), z.at, z.n);
    load(&a, where[0]);
    assert_int_equal(a.narrays, 2);
    assert_array(&a, "a", NB_I32, 1, a_size, a_data);
    assert_array(&a, "b", NB_BOOL, 2, b_size, b_data);
    nb_archive_free(&a);

    z = unhex(NUMPY_DEFLATED);
    write_file(path_of(0, "numpy.npz"), z.at, z.n);
    load(&a, where[0]);
    for (int i = 0; i < 300; i++)
        w_data[i] = (float)(i % 7);
    assert_array(&a, "w \xc3\xa9", NB_F32, 1, w_size, w_data);
    nb_archive_free(&a);
}

static bytes npy(int major, const char *head, const void *data, size_t n)
{
    bytes b = {.n = 0};
    size_t length = strlen(head);
    memcpy(b.at, "\x93NUMPY", 6);
    b.at[6] = (uint8_t)major;
    uint8_t *p = nb_put(b.at + 8, length, major == 1 ? 2 : 4);
    memcpy(p, head, length);
    memcpy(p + length, data, n);
    b.n = (size_t)(p - b.at) + length + n;
    return b;
}

static void npy_of_any_version_order_and_layout_is_loaded(void **state)
{
    static const int16_t rows[] = {1, 2, 3, 4, 5, 6};
    static const char little[] = "\1\0\2\0\3\0\4\0\5\0\6";
    static const char big_columns[] = "\0\1\0\4\0\2\0\5\0\3\0\6";
    static const int64_t size[] = {2, 3};
    static const struct {
        int major;
        const char *head, *data;
    } files[] = {
        {1, "{'descr':'<i2','fortran_order':False,'shape':(2,3)}", little},
        {2, "{'shape': (2L, 3L,), \"descr\": '=i2', 'fortran_order': False}\n",
         little},
        {3, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), } \n",
         big_columns},
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        nb_archive a;
        bytes b = npy(files[i].major, files[i].head, files[i].data, 12);
        write_file(path_of(0, "x.npy"), b.at, b.n);
        load(&a, where[0]);
        assert_array(&a, "", NB_I16, 2, size, rows);
        nb_archive_free(&a);
    }
}

static void columns_of_rank_three_become_rows(void **state)
{
    static const int64_t size[] = {2, 3, 2};
    uint8_t columns[12], rows[12];
    nb_archive a;
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++) {
                uint8_t value = (uint8_t)(100 * i + 10 * j + k);
                columns[i + 2 * j + 6 * k] = value;
                rows[6 * i + 2 * j + k] = value;
            }
    bytes b = npy(1, "{'descr':'|u1','fortran_order':True,'shape':(2,3,2)}",
                  columns, 12);
    write_file(path_of(0, "x.npy"), b.at, b.n);
    load(&a, where[0]);
    assert_array(&a, "", NB_U8, 3, size, rows);
    nb_archive_free(&a);
}

static bytes safetensors(const char *head, size_t n)
{
    bytes b = {.n = 8 + strlen(head) + n};
    nb_put(b.at, strlen(head), 8);
    memcpy(b.at + 8, head, strlen(head));
    memset(b.at + 8 + strlen(head), 7, n);
    return b;
}

static void odd_places_and_odd_booleans_are_settled(void **state)
{
    static const uint8_t truth[] = {1}, sevens[] = {7, 7, 7, 7};
    nb_archive a;
    (void)state;
    bytes b = safetensors(
        "{\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[1,5]},"
        "\"t\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"BOOL\"}}",
        5);
    write_file(path_of(0, "odd.safetensors"), b.at, b.n);
    load(&a, where[0]);
    assert_array(&a, "f", NB_F32, 0, NULL, sevens);
    assert_array(&a, "t", NB_BOOL, 0, NULL, truth);
    nb_archive_free(&a);
    b = npy(1, "{'descr':'|b1','fortran_order':False,'shape':()}", sevens, 1);
    write_file(path_of(0, "odd.npy"), b.at, b.n);
    load(&a, where[0]);
    assert_array(&a, "", NB_BOOL, 0, NULL, truth);
    nb_archive_free(&a);
}

static void json_texts_are_read_with_all_escapes(void **state)
{
    nb_archive a;
    (void)state;
    bytes b = safetensors(
        "{ \"__metadata__\" :\t{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\":"
        "\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\" , \"\":\"\" }\r\n} \n",
        0);
    write_file(path_of(0, "json.safetensors"), b.at, b.n);
    load(&a, where[0]);
    assert_int_equal(a.nnotes, 2);
    assert_string_equal(nb_archive_find_note(&a, "\"\\/\b\f\n\r\t"),
                        "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    nb_archive_free(&a);
}

/* One tensor "a" of U8 with the rest of its fields. */
#define TENSOR(rest) "{\"a\":{\"dtype\":\"U8\"," rest "}}"

static void broken_safetensors_are_told_apart(void **state)
{
    static const struct {
        const char *head;
        size_t data;
        const char *message;
    } files[] = {
        {"", 0, "found the end at byte 0 where JSON needs '{'"},
        {"[]", 0, "found '[]' at byte 0"},
        {" {}", 0, "begins with blanks"},
        {"{}x", 0, "where JSON needs the end"},
        {"{}", 1, "end at byte 0 of 1"},
        {"{\"a\"", 0, "found the end at byte 4 where JSON needs ':'"},
        {"{\"a\":", 0, "needs '{'"},
        {"{\"a\":1}", 0, "found '1}' at byte 5"},
        {"{\"a\":{}", 0, "has no field 'dtype'"},
        {"{\"a", 0, "at the end of a text"},
        {"{\"a\\\"", 0, "at the end of a text"},
        {"{\"\\x\":1}", 0, "behind a backslash"},
        {"{\"\\u12g4\":1}", 0, "surrogates in pairs"},
        {"{\"\\ud800\":1}", 0, "surrogates in pairs"},
        {"{\"\\udc00\\ud800\":1}", 0, "surrogates in pairs"},
        {"{\"\\ud800\\u0041\":1}", 0, "surrogates in pairs"},
        {"{\"\\u0000\":1}", 0, "without U+0000"},
        {"{\"\x01\":1}", 0, "written as escapes"},
        {"{\"\xff\":1}", 0, "not UTF-8"},
        {"{\"\xc0\x80\":1}", 0, "not UTF-8"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a text in quotes"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0,
         "two notes are named 'a'"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
        {"{\"__metadata__\":{},}", 0, "a text in quotes"},
        {"{,}", 0, "a text in quotes"},
        {TENSOR("\"shape\":[1]"), 1, "has no field 'data_offsets'"},
        {TENSOR("\"data_offsets\":[0,1]"), 1, "has no field 'shape'"},
        {TENSOR("\"x\":[[[[1]]]]"), 1, "has a field 'x'"},
        {TENSOR("\"shape\":[1],\"shape\":[1]"), 1, "twice the field 'shape'"},
        {TENSOR("\"shape\":[[[[[[[[[[[[[["), 1, "a whole number"},
        {TENSOR("\"shape\":[-1]"), 1, "found '-1]}}' at byte"},
        {TENSOR("\"shape\":[1.0]"), 1, "',' or ']'"},
        {TENSOR("\"shape\":[1,]"), 1, "a whole number"},
        {TENSOR("\"shape\":[01]"), 1, "without leading zeros"},
        {TENSOR("\"shape\":[9223372036854775808]"), 1, "below 2^63"},
        {TENSOR("\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         "fit no address"},
        {TENSOR("\"shape\":[0,4294967296,4294967296],"
                "\"data_offsets\":[0,0]"),
         0, "fit no address"},
        {TENSOR("\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"
                "\"data_offsets\":[0,1]"),
         1, "more than 16 axes"},
        {TENSOR("\"shape\":[2],\"data_offsets\":[0,1]"), 1,
         "has 1 bytes between its data_offsets and 2 by its shape of uint8"},
        {TENSOR("\"shape\":[2],\"data_offsets\":[0,2]"), 1,
         "data_offsets [0, 2] in 1 bytes"},
        {TENSOR("\"shape\":[0],\"data_offsets\":[1,0]"), 1,
         "data_offsets [1, 0] in 1 bytes"},
        {TENSOR("\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, "needs ']'"},
        {TENSOR("\"shape\":[1],\"data_offsets\":[1,2]"), 2, "no holes"},
        {TENSOR("\"shape\":[1],\"data_offsets\":[0,1]"), 2,
         "end at byte 1 of 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "two arrays are named 'a'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "'b' begins at byte 1 of the data, the one before ends at 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bytes b = safetensors(files[i].head, files[i].data);
        assert_no_load("bad.safetensors", b.at, b.n, NB_EVALUE,
                       files[i].message);
    }
    assert_no_load("bad.safetensors", "\2\0\0\0\0\0\0", 7, NB_EVALUE,
                   "has 7 bytes");
    assert_no_load("bad.safetensors", "\3\0\0\0\0\0\0\0{}", 10, NB_EVALUE,
                   "announces a header of 3 bytes, has 2");
    assert_no_load("bad.safetensors", "\377\377\377\377\377\377\377\377{}", 10,
                   NB_EVALUE, "announces a header of 18446744073709551615");
    bytes b = safetensors("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],"
                          "\"data_offsets\":[0,1]}}",
                          1);
    assert_no_load("bad.safetensors", b.at, b.n, NB_ETYPE,
                   "tensor 'a' has dtype 'F8_E4M3'");
}

/* A header of more than 100 MB is refused before it is read; the file is
 * sparse, so it takes no space. */
static void a_header_beyond_100_megabytes_is_refused(void **state)
{
    nb_archive a;
    uint8_t head[8];
    (void)state;
    nb_put(head, 100000001, 8);
    write_file(path_of(0, "huge.safetensors"), head, 8);
    assert_int_equal(truncate(where[0], 100000009), 0);
    assert_false(nb_archive_load(&a, where[0]));
    assert_error(NB_EVALUE, "at most 100000000 are allowed");
    unlink(where[0]);
}

#define HEAD(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static void broken_npy_are_told_apart(void **state)
{
    static const struct {
        const char *head;
        size_t data;
        nb_status code;
        const char *message;
    } files[] = {
        {HEAD("[('a', '<f4')]", "False", "(1,)"), 4, NB_ETYPE, "structured"},
        {HEAD("'|O'", "False", "(1,)"), 8, NB_ETYPE, "dtype '|O'"},
        {HEAD("'<c8'", "False", "(1,)"), 8, NB_ETYPE, "dtype '<c8'"},
        {HEAD("'<U3'", "False", "(1,)"), 12, NB_ETYPE, "dtype '<U3'"},
        {HEAD("'|f4'", "False", "(1,)"), 4, NB_ETYPE, "dtype '|f4'"},
        {HEAD("'f4'", "False", "(1,)"), 4, NB_ETYPE, "dtype 'f4'"},
        {HEAD("''", "False", "(1,)"), 4, NB_ETYPE, "dtype ''"},
        {HEAD("'<f16'", "False", "(1,)"), 16, NB_ETYPE, "dtype '<f16'"},
        {HEAD("4", "False", "(1,)"), 4, NB_EVALUE, "a text in quotes"},
        {HEAD("'<f4\\n'", "False", "(1,)"), 4, NB_EVALUE, "a plain text"},
        {HEAD("'<f4", "False", "(1,)"), 4, NB_ETYPE, "dtype '<f4, '"},
        {HEAD("'<f4'", "false", "(1,)"), 4, NB_EVALUE, "True or False"},
        {HEAD("'<f4'", "False", "(1)"), 4, NB_EVALUE, "a tuple"},
        {HEAD("'<f4'", "False", "1"), 4, NB_EVALUE, "'('"},
        {HEAD("'<f4'", "False", "(,)"), 4, NB_EVALUE, "an extent"},
        {HEAD("'<f4'", "False", "(-1,)"), 4, NB_EVALUE, "an extent"},
        {HEAD("'<f4'", "False", "(1 1)"), 4, NB_EVALUE, "',' or ')'"},
        {HEAD("'<f4'", "False", "(1,"), 4, NB_EVALUE, "an extent"},
        {HEAD("'<f4'", "False", "(9223372036854775808,)"), 4, NB_EVALUE,
         "below 2^63"},
        {HEAD("'<f4'", "False", "(9223372036854775807,)"), 4, NB_EVALUE,
         "fit no address"},
        {HEAD("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), 4,
         NB_EVALUE, "more than 16 axes"},
        {HEAD("'<f4'", "False", "(2,)"), 7, NB_EVALUE,
         "has 7 bytes of data and 8 by its shape of float32"},
        {HEAD("'<f4'", "False", "(2,)"), 9, NB_EVALUE, "9 bytes of data"},
        {HEAD("'<f4', 'descr': '<f4'", "False", "(1,)"), 4, NB_EVALUE,
         "twice the key 'descr'"},
        {HEAD("'<f4', 'x': 1", "False", "(1,)"), 4, NB_EVALUE, "a key 'x'"},
        {"{'descr': '<f4', 'shape': ()}", 4, NB_EVALUE,
         "no key 'fortran_order'"},
        {"{'descr': '<f4' 'shape': ()}", 4, NB_EVALUE, "',' or '}'"},
        {"{'descr' '<f4'}", 4, NB_EVALUE, "':'"},
        {HEAD("'<f4'", "False", "()") "x", 4, NB_EVALUE, "the end"},
        {"", 4, NB_EVALUE, "found the end"},
    };
    static const char zeros[32];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bytes b = npy(1, files[i].head, zeros, files[i].data);
        assert_no_load("bad.npy", b.at, b.n, files[i].code, files[i].message);
    }
    bytes b = npy(4, "{}", zeros, 0);
    assert_no_load("bad.npy", b.at, b.n, NB_EVALUE, "npy version 4.0");
    assert_no_load("bad.npy", "", 0, NB_EVALUE, "begins with ''");
    assert_no_load("bad.npy", "\x93NUMPY\1\0\1\0", 10, NB_EVALUE,
                   "a head longer than the file");
    assert_no_load("bad.npy", "\x93NUMPY\2\0\0\0\0", 11, NB_EVALUE,
                   "a head longer than the file");
    assert_no_load("bad.npy", "PK\3\4 and so on", 14, NB_EVALUE,
                   "begins with 'PK\\x03\\x04 and'");
}

/* An npz with "a", a uint8 of shape (4): header at 0, name at 30, the array at
 * 35, the directory record at 167, the end record at 218. */
enum { RECORD_AT = 167, END_AT = 218, SMALL = 240 };

static bytes small_npz(void)
{
    static const int64_t size[] = {4};
    nb_archive a = {0};
    assert_true(nb_archive_add(&a, "a", NB_U8, 1, size, "abcd"));
    save(&a, path_of(2, "small.npz"));
    nb_archive_free(&a);
    bytes b = read_file(where[2]);
    assert_int_equal(b.n, SMALL);
    return b;
}

static void lies_in_a_zip_are_found(void **state)
{
    static const struct {
        size_t at;
        int width;
        uint64_t value;
        const char *message;
    } lies[] = {
        {0, 1, 0, "has no header at byte 0"},
        {6, 2, 1, "disagrees"},
        {8, 2, 8, "disagrees"},
        {14, 4, 0, "disagrees"},
        {18, 4, 4, "disagrees"},
        {22, 4, 4, "disagrees"},
        {26, 2, 4, "disagrees"},
        {28, 2, 0xffff, "reach beyond"},
        {30, 1, 'b', "disagrees"},
        {35, 1, 0, "begins with"},
        {35 + 131, 1, 0, "has the checksum"},
        {RECORD_AT, 1, 0, "fewer records"},
        {RECORD_AT + 8, 2, 1, "encrypted"},
        {RECORD_AT + 8, 2, 0x40, "encrypted"},
        {RECORD_AT + 10, 2, 12, "method 12"},
        {RECORD_AT + 10, 2, 8, "disagrees"},
        {RECORD_AT + 16, 4, 0, "disagrees"},
        {RECORD_AT + 20, 4, 131, "132 bytes packed into 131"},
        {RECORD_AT + 24, 4, 0xfffffff0, "4294967280 bytes packed into 132"},
        {RECORD_AT + 28, 2, 6, "runs over its end"},
        {RECORD_AT + 28, 2, 4, "more records"},
        {RECORD_AT + 30, 2, 1, "runs over its end"},
        {RECORD_AT + 32, 2, 0xffff, "runs over its end"},
        {RECORD_AT + 34, 2, 1, "broken extra field"},
        {RECORD_AT + 42, 4, 1, "has no header at byte 1"},
        {RECORD_AT + 42, 4, 166, "where no member can"},
        {RECORD_AT + 42, 4, 0xfffffffe, "where no member can"},
        {RECORD_AT + 46, 1, 0, "other than UTF-8"},
        {RECORD_AT + 46, 1, 0xff, "other than UTF-8"},
        {END_AT, 1, 0, "no end record"},
        {END_AT + 4, 2, 1, "several files"},
        {END_AT + 8, 2, 2, "several files"},
        {END_AT + 8, 4, 0x00020002, "2 members in a directory of 51"},
        {END_AT + 8, 4, 0, "more records"},
        {END_AT + 8, 4, 0xffffffff, "65535 members in a directory of 51"},
        {END_AT + 12, 4, 0xffffffff, "a directory of 4294967295 bytes"},
        {END_AT + 16, 4, 168, "a directory of 51 bytes at 168"},
        {END_AT + 16, 4, 0xffffffff, "at 4294967295"},
        {END_AT + 20, 2, 1, "no end record"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        bytes b = small_npz();
        nb_put(b.at + lies[i].at, lies[i].value, lies[i].width);
        assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, lies[i].message);
    }
    assert_no_load("bad.npz", "", 0, NB_EVALUE, "no end record");
}

/* Two records that share a member, or whose members overlap. */
static void members_may_not_overlap(void **state)
{
    (void)state;
    bytes b = small_npz();
    memmove(b.at + END_AT + 51, b.at + END_AT, 22);
    memcpy(b.at + END_AT, b.at + RECORD_AT, 51);
    b.n += 51;
    nb_put(b.at + END_AT + 51 + 8, 0x00020002, 4);
    nb_put(b.at + END_AT + 51 + 12, 102, 4);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "do not overlap");
    nb_put(b.at + END_AT + 42, 100, 4);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "reach beyond");
    nb_put(b.at + END_AT + 42, 0xfffffff0, 4); /* beyond the end, both */
    nb_put(b.at + RECORD_AT + 42, 280, 4);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "where no member can");
}

/* Moves the numbers of the record into an extra field of zip64. */
static bytes wide_npz(size_t extra)
{
    bytes b = small_npz();
    memmove(b.at + END_AT + extra, b.at + END_AT, 22);
    uint8_t *r = b.at + RECORD_AT;
    nb_put(r + 20, 0xffffffffffffffff, 8);
    nb_put(r + 42, 0xffffffff, 4);
    nb_put(r + 30, extra, 2);
    uint8_t *p = nb_put(nb_put(b.at + END_AT, 1, 2), extra - 4, 2);
    if (extra == 28) nb_put(nb_put(nb_put(p, 132, 8), 132, 8), 0, 8);
    b.n += extra;
    nb_put(b.at + END_AT + extra + 12, 51 + extra, 4);
    return b;
}

static void numbers_of_zip64_are_read(void **state)
{
    static const int64_t size[] = {4};
    nb_archive a;
    (void)state;
    bytes b = wide_npz(28);
    write_file(path_of(0, "wide.npz"), b.at, b.n);
    load(&a, where[0]);
    assert_array(&a, "a", NB_U8, 1, size, "abcd");
    nb_archive_free(&a);
    b = wide_npz(20);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "broken extra field");
    b = wide_npz(28);
    nb_put(b.at + END_AT + 2, 25, 2);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "broken extra field");
    b = wide_npz(28);
    nb_put(b.at + END_AT + 20, 0xffffffffffffff00, 8);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, "where no member can");
}

/* 16 bits do not count 65,536 members: the end record of zip64 does. */
static void members_beyond_65535_are_counted(void **state)
{
    enum { N = 65536 };
    nb_archive a = {0}, b;
    (void)state;
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_true(nb_archive_add(&a, name, NB_U16, 0, NULL, "ab"));
    }
    save(&a, path_of(0, "many.npz"));
    nb_archive_free(&a);
    load(&b, where[0]);
    assert_int_equal(b.narrays, N);
    assert_array(&b, "65535", NB_U16, 0, NULL, "ab");
    nb_archive_free(&b);

    FILE *f = fopen(where[0], "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -22 - 20 - 56 + 40, SEEK_END), 0);
    assert_int_equal(fputc(0, f), 0); /* the size of the directory */
    fclose(f);
    assert_false(nb_archive_load(&b, where[0]));
    assert_error(NB_EVALUE, "which follows the directory");
    unlink(where[0]);
}

/* The places in NUMPY_DEFLATED of the sizes that lie. */
static void a_bomb_does_not_go_off(void **state)
{
    enum { SIZE_HERE = 42, RECORD_HERE = 156 };
    (void)state;
    bytes good = unhex(NUMPY_DEFLATED), b = good;
    assert_int_equal(nb_get64(b.at + SIZE_HERE), 1328);
    assert_int_equal(nb_get32(b.at + RECORD_HERE + 24), 1328);
    static const struct {
        uint64_t size;
        const char *message;
    } lies[] = {
        {1329, "unpacks to 1328 bytes from 98 (1329 from 98"},
        {1327, "unpacks to more than 1327 bytes"},
        {100000, "unpacks to 1328 bytes"},
        {200000, "which method 8 cannot"},
    };
    for (int i = 0; i < 4; i++) {
        b = good;
        nb_put(b.at + SIZE_HERE, lies[i].size, 8);
        nb_put(b.at + RECORD_HERE + 24, lies[i].size, 4);
        assert_no_load("bad.npz", b.at, b.n, NB_EVALUE, lies[i].message);
    }

    /* A byte behind the packed data, all sizes of the zip agreeing. */
    b = good;
    memmove(b.at + RECORD_HERE + 1, b.at + RECORD_HERE, b.n - RECORD_HERE);
    b.n += 1;
    nb_put(b.at + SIZE_HERE + 8, 99, 8);
    nb_put(b.at + RECORD_HERE + 1 + 20, 99, 4);
    nb_put(b.at + b.n - 6, RECORD_HERE + 1, 4);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE,
                   "unpacks to 1328 bytes from 98 (1328 from 99");

    /* A member longer than its array, all sizes of the zip agreeing. */
    b = small_npz();
    memmove(b.at + RECORD_AT + 8, b.at + RECORD_AT, SMALL - RECORD_AT);
    b.n += 8;
    nb_put(nb_put(b.at + 18, 140, 4), 140, 4);
    nb_put(nb_put(b.at + RECORD_AT + 8 + 20, 140, 4), 140, 4);
    nb_put(b.at + END_AT + 8 + 16, RECORD_AT + 8, 4);
    assert_no_load("bad.npz", b.at, b.n, NB_EVALUE,
                   "has 12 bytes of data and 4 by its shape of uint8");
}

static void texts_that_are_no_utf8_are_known(void **state)
{
    static const char *good[] = {"",
                                 "a",
                                 "\x7f",
                                 "\xc2\x80",
                                 "\xdf\xbf",
                                 "\xe0\xa0\x80",
                                 "\xed\x9f\xbf",
                                 "\xee\x80\x80",
                                 "\xf0\x90\x80\x80",
                                 "\xf4\x8f\xbf\xbf"};
    static const char *wrong[] = {"\x80",
                                  "\xbf",
                                  "\xc1\xbf",
                                  "\xc2",
                                  "\xc2\x41",
                                  "\xe0\x9f\xbf",
                                  "\xed\xa0\x80",
                                  "\xe2\x82",
                                  "\xf0\x8f\xbf\xbf",
                                  "\xf4\x90\x80\x80",
                                  "\xf5\x80\x80\x80",
                                  "\xff",
                                  "a\xe2\x82\x41"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(nb_utf8_is(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(nb_utf8_is(wrong[i], strlen(wrong[i])));
}

static void the_checksum_is_that_of_zip(void **state)
{
    nb_crc c;
    (void)state;
    nb_crc_open(&c);
    assert_int_equal(nb_crc_run(&c, 0, "123456789", 9), 0xcbf43926);
    uint32_t half = nb_crc_run(&c, 0, "12345", 5);
    assert_int_equal(nb_crc_run(&c, half, "6789", 4), 0xcbf43926);
}

static void squares(uint8_t out[600])
{
    for (int i = 0; i < 600; i++)
        out[i] = (uint8_t)((i * i * 7 + i / 3) % 23 * (i % 5) + i % 3);
}

/* The packed bytes are on the heap, so that a sanitizer sees a step beyond. */
static nb_inflated inflate(const bytes *b, size_t n, uint8_t *out, size_t room)
{
    uint8_t *in = malloc(n), *made = malloc(room);
    assert_true(in && made);
    memcpy(in, b->at, n);
    nb_inflated r = nb_inflate(in, n, made, room);
    memcpy(out, made, r.made);
    free(in);
    free(made);
    return r;
}

static void deflated_blocks_of_all_kinds_unpack(void **state)
{
    static const struct {
        const char *packed, *text;
    } known[] = {
        {"cb4b4cca4954c8432701", "nabla nabla nabla nabla"},
        {"010500faff6e61626c61", "nabla"},
        {"000100feff6e010400fbff61626c61", "nabla"},
        {"0300", ""},
    };
    uint8_t out[1024], wanted[600];
    (void)state;
    for (int i = 0; i < 4; i++) {
        bytes b = unhex(known[i].packed);
        nb_inflated r = inflate(&b, b.n, out, sizeof out);
        assert_null(r.fault);
        assert_int_equal(r.used, b.n);
        assert_int_equal(r.made, strlen(known[i].text));
        assert_memory_equal(out, known[i].text, r.made);
    }
    bytes b = unhex(DYNAMIC);
    squares(wanted);
    for (size_t room = 0; room <= 601; room++) {
        nb_inflated r = inflate(&b, b.n, out, room);
        assert_null(r.fault);
        assert_int_equal(r.made, room < 600 ? room : 600);
        assert_int_equal(r.full, room < 600);
        assert_memory_equal(out, wanted, r.made);
    }
    for (size_t n = 0; n < b.n; n++)
        assert_string_equal(inflate(&b, n, out, 600).fault, "ends early");
}

static void broken_deflated_data_is_a_fault(void **state)
{
    static const struct {
        const char *packed, *fault;
    } known[] = {
        {"", "ends early"},
        {"07", "holds a block of unknown kind"},
        {"010500fbff6e61626c61", "holds a block of unsure length"},
        {"0302", "refers to before its beginning"},
        {"1b03", "holds a length that is none"},
        {"1bfd", "holds a distance that is none"},
        {"edffff", "holds too many codes"},
        {"050000000000", "holds a word that is no code"},
        {"05009204", "holds a code for lengths that is none"},
        {"050080e4bf1b", "repeats a length too often"},
    };
    uint8_t out[64];
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bytes b = unhex(known[i].packed);
        nb_inflated r = inflate(&b, b.n, out, sizeof out);
        if (!r.fault || strcmp(r.fault, known[i].fault) != 0)
            print_error("%s gives %s\n", known[i].packed, r.fault);
        assert_non_null(r.fault);
        assert_string_equal(r.fault, known[i].fault);
    }
}

static void files_that_cannot_be_read_say_why(void **state)
{
    nb_archive a;
    (void)state;
    assert_false(nb_archive_load(&a, path_of(0, "none.npy")));
    assert_error(NB_ENOFILE, "none.npy: No such file");
    assert_false(nb_archive_load(&a, path_of(0, "none.txt")));
    assert_error(NB_EVALUE, "(.safetensors, .npz or .npy)");
    assert_false(nb_archive_load(&a, "npz"));
    assert_error(NB_EVALUE, "names no format");
    assert_int_equal(mkdir(path_of(0, "folder.npz"), 0777), 0);
    assert_false(nb_archive_load(&a, where[0]));
    assert_error(NB_ERUNTIME, "is a folder");
    assert_int_equal(rmdir(where[0]), 0);
    assert_int_equal(mkfifo(path_of(0, "pipe.npy"), 0666), 0);
    assert_false(nb_archive_load(&a, where[0]));
    assert_error(NB_ERUNTIME, "is no regular file");
    assert_int_equal(unlink(where[0]), 0);
}

static void what_does_not_fit_is_not_saved(void **state)
{
    static const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2};
    nb_archive a = {0};
    int files = count_files();
    (void)state;
    assert_false(nb_archive_add(&a, "a", NB_U8, 1, negative, NULL));
    assert_error(NB_EVALUE, "not negative");
    assert_false(nb_archive_add(&a, "a", NB_U8, 2, huge, NULL));
    assert_error(NB_EVALUE, "fit an address");
    assert_false(nb_archive_add(&a, "a", NB_U8, 17, huge, NULL));
    assert_error(NB_EVALUE, "rank 17 is not within 0 to 16");
    assert_false(nb_archive_add(&a, "a", NB_NOTYPE, 0, NULL, NULL));
    assert_error(NB_ETYPE, "0 is no dtype");

    assert_false(nb_archive_save(&a, path_of(0, "x.npy")));
    assert_error(NB_EVALUE, "0 arrays (a .npy file holds one");
    assert_true(nb_archive_add(&a, "a", NB_U8, 0, NULL, "a"));
    assert_false(nb_archive_save(&a, path_of(0, "x.txt")));
    assert_error(NB_EVALUE, "names no format");
    assert_true(nb_archive_add_note(&a, "k", "v"));
    assert_false(nb_archive_save(&a, path_of(0, "x.npz")));
    assert_error(NB_EVALUE, "have no place in a .npz file");
    assert_true(nb_archive_add_note(&a, "k", "\xff"));
    assert_false(nb_archive_save(&a, path_of(0, "x.safetensors")));
    assert_error(NB_EVALUE, "metadata value '\\xff' is not UTF-8");
    nb_archive_free(&a);
    assert_int_equal(count_files(), files);
}

static void names_that_do_not_fit_are_not_saved(void **state)
{
    static const char *paths[] = {"x.safetensors", "x.npz"};
    nb_archive a = {0};
    int files = count_files();
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(nb_archive_add(&a, "a", NB_U8, 0, NULL, "a"));
        assert_true(nb_archive_add(&a, "a", NB_I8, 0, NULL, "a"));
        assert_false(nb_archive_save(&a, path_of(0, paths[i])));
        assert_error(NB_EVALUE, "two arrays are named 'a'");
        a.array[1].name[0] = (char)0xff;
        assert_false(nb_archive_save(&a, path_of(0, paths[i])));
        assert_error(NB_EVALUE, "name '\\xff' is not UTF-8");
        nb_archive_free(&a);
    }
    assert_true(nb_archive_add(&a, "__metadata__", NB_U8, 0, NULL, "a"));
    assert_false(nb_archive_save(&a, path_of(0, "x.safetensors")));
    assert_error(NB_EVALUE, "named '__metadata__'");
    nb_archive_free(&a);
    char *name = malloc(65533);
    assert_non_null(name);
    memset(name, 'n', 65532);
    name[65532] = '\0';
    assert_true(nb_archive_add(&a, name, NB_U8, 0, NULL, "a"));
    assert_false(nb_archive_save(&a, path_of(0, "x.npz")));
    assert_error(NB_EVALUE, "a name of 65532 bytes");
    free(name);
    nb_archive_free(&a);
    assert_int_equal(count_files(), files);
}

/* The disk is full: the file size limit plays its part. */
static bool save_within(const nb_archive *a, const char *path, rlim_t most)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    struct rlimit small = {most, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool ok = nb_archive_save(a, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return ok;
}

/* A long file fails while it is written, a short one when it is closed. */
static void a_failed_save_leaves_the_old_file(void **state)
{
    static const char *paths[] = {"old.safetensors", "old.npz", "old.npy"};
    static const char data[100000];
    static const int64_t sizes[] = {sizeof data, 100};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 6; i++) {
        nb_archive a = {0};
        assert_true(nb_archive_add(&a, "a", NB_U8, 1, &sizes[i / 3], data));
        write_file(path_of(0, paths[i % 3]), "old", 3);
        int files = count_files();
        assert_false(save_within(&a, where[0], i < 3 ? 4096 : 16));
        assert_error(NB_ERUNTIME, "File too large");
        bytes b = read_file(where[0]);
        assert_int_equal(b.n, 3);
        assert_memory_equal(b.at, "old", 3);
        assert_int_equal(count_files(), files);
        nb_archive_free(&a);
    }
}

static void folders_that_do_not_fit_are_told_apart(void **state)
{
    nb_archive a = {0};
    int files = count_files();
    (void)state;
    assert_true(nb_archive_add(&a, "a", NB_U8, 0, NULL, "a"));
    assert_false(nb_archive_save(&a, path_of(0, "no/such/folder/x.npy")));
    assert_error(NB_ENOFILE, "No such file");
    assert_int_equal(mkdir(path_of(0, "folder.npy"), 0777), 0);
    assert_false(nb_archive_save(&a, where[0]));
    assert_error(NB_ERUNTIME, "save: ");
    assert_int_equal(rmdir(where[0]), 0);
    assert_int_equal(count_files(), files);
    nb_archive_free(&a);
}

static const char *const fault_paths[] = {"f.safetensors", "f.npz", "f.npy"};

static void add_few(nb_archive *a, int format)
{
    static const int64_t size[] = {2};
    assert_true(nb_archive_add(a, "x", NB_F32, 1, size, "abcdefgh"));
    if (format == 2) return;
    assert_true(nb_archive_add(a, "y", NB_U8, 1, size, "ab"));
    if (format == 1) return;
    assert_true(nb_archive_add_note(a, "key", "value"));
}

/* Memory runs out at the first, second, ... allocation, until it does not. */
static void saving_survives_every_allocation_that_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        nb_archive a = {0};
        add_few(&a, i);
        save(&a, path_of(0, fault_paths[i]));
        bytes before = read_file(where[0]);
        int64_t live = nb_memory_live();
        int files = count_files(), n = 1;
        for (bool ok = false; !ok; n++) {
            nb_fault_set(n);
            ok = nb_archive_save(&a, where[0]);
            nb_fault_set(0);
            if (!ok) assert_error(NB_EMEMORY, "out of memory");
            assert_int_equal(nb_memory_live(), live);
            assert_int_equal(count_files(), files);
            bytes after = read_file(where[0]);
            assert_int_equal(after.n, before.n);
            assert_memory_equal(after.at, before.at, before.n);
        }
        assert_true(n > 3);
        nb_archive_free(&a);
    }
}

static bool loads(void *path)
{
    nb_archive a;
    bool ok = nb_archive_load(&a, path);
    if (ok) nb_archive_free(&a);
    return ok;
}

static void starve_load(char *path, int least)
{
    faults f = {.run = loads, .ctx = path, .bare = true};
    assert_true(faults_survived(&f) && f.n >= least);
}

static void loading_survives_every_allocation_that_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        nb_archive a = {0};
        add_few(&a, i);
        save(&a, path_of(0, fault_paths[i]));
        nb_archive_free(&a);
        starve_load(where[0], 4);
    }
    bytes b = unhex(NUMPY_DEFLATED);
    write_file(path_of(0, "f.npz"), b.at, b.n);
    starve_load(where[0], 9);
    b = npy(1, "{'descr':'>i2','fortran_order':True,'shape':(2,2)}", "12345678",
            8);
    write_file(path_of(0, "f.npy"), b.at, b.n);
    starve_load(where[0], 6);
    b = safetensors(
        "{\"f\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[1,5]},"
        "\"t\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"BOOL\"}}",
        5);
    write_file(path_of(0, "f.safetensors"), b.at, b.n);
    starve_load(where[0], 12);
}

static uint64_t dice = 88172645463325252u;

static uint32_t roll(uint32_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (uint32_t)(dice >> 32) % n;
}

/* Does to the bytes what a bad disk, a bad line or a bad man does. */
static void damage(bytes *b)
{
    static const uint8_t likely[] = "\0\1\177\200\377{}[]()\"'\\,:0129-<>|uO";
    size_t at = roll((uint32_t)b->n + 1), n = roll(9);
    uint8_t *p = b->at + at;
    switch (roll(7)) {
    case 0: b->n = at; break;
    case 1:
        for (; n > 0 && b->n < sizeof b->at; n--)
            b->at[b->n++] = (uint8_t)roll(256);
        break;
    case 2:
        if (b->n + n > sizeof b->at) break;
        memmove(p + n, p, b->n - at);
        b->n += n;
        break;
    case 3:
        if (at + n > b->n) break;
        memmove(p, p + n, b->n - at - n);
        b->n -= n;
        break;
    case 4:
        if (at < b->n) *p ^= (uint8_t)(1 << roll(8));
        break;
    case 5:
        if (at < b->n) *p = likely[roll(sizeof likely)];
        break;
    default:
        if (at + 8 <= b->n) nb_put(p, UINT64_MAX << roll(64), 1 << roll(4));
    }
}

/* Reads every byte of what was loaded and sees that it is well formed. */
static void look_through(const nb_archive *a)
{
    static volatile uint8_t sum; /* for the reading not to be left out */
    for (int i = 0; i < a->narrays; i++) {
        const nb_array *x = &a->array[i];
        size_t n = nb_dtype_size(x->dtype);
        for (int d = 0; d < x->rank; d++)
            n *= (size_t)x->size[d];
        assert_int_equal(x->bytes, n);
        assert_int_equal((uintptr_t)x->data % nb_dtype_size(x->dtype), 0);
        assert_true(nb_utf8_is(x->name, strlen(x->name)));
        for (size_t k = 0; k < x->bytes; k++)
            sum = sum ^ ((const uint8_t *)x->data)[k];
    }
}

/* Loads `tries` damaged copies; each is a success or a clean error. */
static void torment(const char *name, const bytes *good, int tries)
{
    const char *path = path_of(0, name);
    int64_t live = nb_memory_live();
    int loaded = 0;
    for (int i = 0; i < tries; i++) {
        nb_archive a;
        bytes b = *good;
        for (uint32_t k = 1 + roll(3); k > 0; k--)
            damage(&b);
        write_file(path, b.at, b.n);
        if (nb_archive_load(&a, path)) {
            look_through(&a);
            nb_archive_free(&a);
            loaded++;
        } else {
            nb_status code = nb_error_code();
            assert_true(code == NB_EVALUE || code == NB_ETYPE);
            assert_true(strlen(nb_error_message()) > strlen(path));
            nb_error_clear();
        }
        assert_int_equal(nb_memory_live(), live);
    }
    assert_true(loaded < tries / 2);
}

static void damaged_files_do_no_harm(void **state)
{
    enum { TRIES = 3000 };
    nb_archive a = {0};
    (void)state;
    add_all(&a, true);
    assert_true(nb_archive_add_note(&a, "format", "\xc3\xa9"));
    save(&a, path_of(1, "good.safetensors"));
    nb_archive_free(&a);
    bytes b = read_file(where[1]);
    assert_in_range(b.n, 1000, sizeof b.at - 1);
    torment("bad.safetensors", &b, TRIES);
    b = safetensors(TENSOR("\"shape\":[1],\"data_offsets\":[0,1]"), 1);
    torment("bad.safetensors", &b, TRIES);
    b = npy(1, HEAD("'<f4'", "False", "(1,)"), "abcd", 4);
    torment("bad.npy", &b, TRIES);
    b = npy(3, HEAD("'>i2'", "True", "(2, 3)"), "123456789012", 12);
    torment("bad.npy", &b, TRIES);
    b = small_npz();
    torment("bad.npz", &b, TRIES);
    b = wide_npz(28);
    torment("bad.npz", &b, TRIES);
    b = unhex(NUMPY_STORED);
    torment("bad.npz", &b, TRIES);
    b = unhex(NUMPY_DEFLATED);
    torment("bad.npz", &b, TRIES);
}

/* Checksums keep damage from the unpacking of npz, so it is tried apart. */
static void damaged_packed_data_does_no_harm(void **state)
{
    static const char *const packed[] = {DYNAMIC, "cb4b4cca4954c8432701",
                                         "000100feff6e010400fbff61626c61"};
    uint8_t out[4096];
    (void)state;
    for (int i = 0; i < 60000; i++) {
        bytes b = unhex(packed[i % 3]);
        damage(&b);
        nb_inflated r = inflate(&b, b.n, out, roll(sizeof out));
        assert_in_range(r.used, 0, b.n);
    }
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        unlink(path_of(0, e->d_name));
    if (d) closedir(d);
    nb_block_trim();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(every_dtype_but_bfloat16_fits_npy),
        cmocka_unit_test(safetensors_equal_the_reference),
        cmocka_unit_test(npy_equals_numpy),
        cmocka_unit_test(what_numpy_zips_is_loaded),
        cmocka_unit_test(npy_of_any_version_order_and_layout_is_loaded),
        cmocka_unit_test(columns_of_rank_three_become_rows),
        cmocka_unit_test(odd_places_and_odd_booleans_are_settled),
        cmocka_unit_test(json_texts_are_read_with_all_escapes),
        cmocka_unit_test(broken_safetensors_are_told_apart),
        cmocka_unit_test(a_header_beyond_100_megabytes_is_refused),
        cmocka_unit_test(broken_npy_are_told_apart),
        cmocka_unit_test(lies_in_a_zip_are_found),
        cmocka_unit_test(members_may_not_overlap),
        cmocka_unit_test(numbers_of_zip64_are_read),
        cmocka_unit_test(members_beyond_65535_are_counted),
        cmocka_unit_test(a_bomb_does_not_go_off),
        cmocka_unit_test(texts_that_are_no_utf8_are_known),
        cmocka_unit_test(the_checksum_is_that_of_zip),
        cmocka_unit_test(deflated_blocks_of_all_kinds_unpack),
        cmocka_unit_test(broken_deflated_data_is_a_fault),
        cmocka_unit_test(files_that_cannot_be_read_say_why),
        cmocka_unit_test(what_does_not_fit_is_not_saved),
        cmocka_unit_test(names_that_do_not_fit_are_not_saved),
        cmocka_unit_test(a_failed_save_leaves_the_old_file),
        cmocka_unit_test(folders_that_do_not_fit_are_told_apart),
        cmocka_unit_test(saving_survives_every_allocation_that_fails),
        cmocka_unit_test(loading_survives_every_allocation_that_fails),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(damaged_packed_data_does_no_harm),
    };
    return cmocka_run_group_tests_name("files", tests, open_folder,
                                       close_folder);
}
