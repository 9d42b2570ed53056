/* tiles.c - sizes of tiles, and the text that all kernels of tiles begin with.
 */
#include "backend/cuda/product/tiles.h"

#include "base/half.h"

#define NB_CUDA(...) #__VA_ARGS__

static const char place[] =
#include "backend/cuda/product/tiles_place.cu"
    ;
static const char halves[] =
#include "backend/cuda/product/tiles_halves.cu"
    ;
static const char floats[] =
#include "backend/cuda/product/tiles_floats.cu"
    ;

#define SIZE(m, n, k, of_m, of_n, s)                                   \
    {                                                                  \
        .bm = m, .bn = n, .bk = k, .wm = of_m, .wn = of_n, .stages = s \
    }

int nb_tiles_all(nb_dtype a, const nb_tiles **list)
{
    static const nb_tiles of_halves[] = {
        SIZE(128, 256, 32, 64, 64, 4), SIZE(128, 128, 32, 64, 64, 4),
        SIZE(128, 64, 32, 64, 32, 4), SIZE(64, 64, 32, 32, 32, 4)};
    static const nb_tiles of_floats[] = {SIZE(128, 128, 8, 8, 8, 2),
                                         SIZE(128, 64, 16, 8, 4, 2),
                                         SIZE(64, 64, 16, 4, 4, 2)};
    static const nb_tiles of_doubles[] = {SIZE(64, 64, 8, 4, 4, 2)};
    *list = nb_dtype_is_half(a) ? of_halves
            : a == NB_F64       ? of_doubles
                                : of_floats;
    return nb_dtype_is_half(a) ? 4 : a == NB_F64 ? 1 : 3;
}

nb_tiles nb_tiles_sized(const nb_tiles *t, const nb_tiles *size)
{
    nb_tiles to = *size;
    to.a = t->a, to.c = t->c;
    to.a_turned = t->a_turned, to.b_turned = t->b_turned;
    return to;
}

unsigned nb_tiles_threads(const nb_tiles *t)
{
    int each = nb_dtype_is_half(t->a) ? 32 : 1;
    return (unsigned)(t->bm / t->wm * (t->bn / t->wn) * each);
}

/* Elements of a stage: rows as they lie in memory, and eight more each. */
static int tile_of(bool turned, int rows, int columns)
{
    return turned ? columns * (rows + 8) : rows * (columns + 8);
}

size_t nb_tiles_shared(const nb_tiles *t)
{
    if (!nb_dtype_is_half(t->a)) return 0;
    return 2 * (size_t)t->stages *
           (size_t)(tile_of(t->a_turned, t->bm, t->bk) +
                    tile_of(t->b_turned, t->bk, t->bn));
}

static void write_types(nb_text *t, const nb_tiles *k)
{
    bool half = nb_dtype_is_half(k->a), narrow = nb_dtype_is_half(k->c);
    const char *w = k->a == NB_F64 ? "double" : "float";
    nb_text_add(t, "typedef unsigned short u16;\ntypedef unsigned u32;\n"
                   "typedef long long i64;\n"
                   "#define FN static __device__ __forceinline__\n"
                   "#define UNROLL _Pragma(\"unroll\")\n");
    nb_text_add(t, "typedef %s T;\ntypedef %s W;\ntypedef %s C;\n",
                half ? "u16" : w, w, narrow ? "u16" : w);
    nb_text_add(t, "struct __align__(%d) pair { C x, y; };\n",
                (int)(2 * nb_dtype_size(k->c)));
    nb_text_add(t, "struct __align__(16) vector { T at[%d]; };\n",
                (int)(16 / nb_dtype_size(k->a)));
    nb_text_add(t, "#define FMA %s\n", k->a == NB_F64 ? "fma" : "fmaf");
    if (narrow && k->c == NB_BF16)
        nb_text_add(t, "FN float load_c(u16 h)\n{\n"
                       "    return __int_as_float((u32)h << 16);\n}\n"
                       "FN u16 store_c(float x)\n{\n    u16 h;\n"
                       "    asm(\"cvt.rn.bf16.f32 %%0, %%1;\" : \"=h\"(h) : "
                       "\"f\"(x));\n    return h;\n}\n");
    else if (narrow)
        nb_text_add(t, "FN float load_c(u16 h)\n{\n    float x;\n"
                       "    asm(\"cvt.f32.f16 %%0, %%1;\" : \"=f\"(x) : "
                       "\"h\"(h));\n    return x;\n}\n"
                       "FN u16 store_c(float x)\n{\n    u16 h;\n"
                       "    asm(\"cvt.rn.f16.f32 %%0, %%1;\" : \"=h\"(h) : "
                       "\"f\"(x));\n    return h;\n}\n");
    else
        nb_text_add(t, "#define load_c(x) (x)\n#define store_c(x) (x)\n");
}

/* 16 x 8 of C, of 16 x 16 of A, by a warp. */
static void write_instruction(nb_text *t, const char *type)
{
    nb_text_add(
        t,
        "FN void multiply_small(float *d, const u32 *a, const u32 *b)\n"
        "{\n"
        "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.%s.%s."
        "f32 {%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, "
        "{%%10, %%11, %%12, %%13};\"\n"
        "        : \"=f\"(d[0]), \"=f\"(d[1]), \"=f\"(d[2]), "
        "\"=f\"(d[3])\n"
        "        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), "
        "\"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]),\n"
        "          \"f\"(d[0]), \"f\"(d[1]), \"f\"(d[2]), "
        "\"f\"(d[3]));\n"
        "}\n",
        type, type);
}

void nb_tiles_begin(nb_text *t, const nb_tiles *k)
{
    write_types(t, k);
    nb_text_add(t,
                "enum { BM = %d, BN = %d, BK = %d, WM = %d, WN = %d, STAGES = "
                "%d, THREADS = %d, VECTOR = %d, A_TURNED = %d, B_TURNED = %d, "
                "A_TILE = %d, B_TILE = %d };\n",
                k->bm, k->bn, k->bk, k->wm, k->wn, k->stages,
                (int)nb_tiles_threads(k), (int)(16 / nb_dtype_size(k->a)),
                k->a_turned, k->b_turned, tile_of(k->a_turned, k->bm, k->bk),
                tile_of(k->b_turned, k->bk, k->bn));
    if (nb_dtype_is_half(k->a))
        write_instruction(t, k->a == NB_F16 ? "f16" : "bf16");
}

void nb_tiles_loop(nb_text *t, const nb_tiles *k)
{
    nb_text_add(t, "%s\n%s\n", place, nb_dtype_is_half(k->a) ? halves : floats);
}
