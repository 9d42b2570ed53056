/* keys.c - elements as keys that are ordered as they are, in text; and the names
 * of types there. */
#include "backend/cuda_ops/dims.h"

#include "backend/cuda_ops/text.h"

static const char keys_text[] =
#include "backend/cuda_ops/keys.cu"
    ;

const char *nb_card_type(nb_dtype d)
{
    static const char *const types[NB_NDTYPES] = {
        [NB_BOOL] = "u8",   [NB_I8] = "i8",    [NB_I16] = "i16",
        [NB_I32] = "i32",   [NB_I64] = "i64",  [NB_U8] = "u8",
        [NB_U16] = "u16",   [NB_U32] = "u32",  [NB_U64] = "u64",
        [NB_F16] = "u16",   [NB_BF16] = "u16", [NB_F32] = "float",
        [NB_F64] = "double"};
    return types[d];
}

void nb_card_define(nb_text *t, const char *name, nb_dtype d)
{
    const char *half = d == NB_F16 ? "f16" : d == NB_BF16 ? "bf16" : NULL;
    nb_text_add(t, "#define %s %s\n", name, nb_card_type(d));
    if (half)
        nb_text_add(t, "#define LOAD_%s load_%s\n#define STORE_%s store_%s\n",
                    name, half, name, half);
    else
        nb_text_add(t, "#define LOAD_%s\n#define STORE_%s\n", name, name);
}

/* How bits of an element become a key, in the lowest bits of one. */
void nb_card_keys_text(nb_text *t, nb_dtype d)
{
    static const char *const plain[] = {
        [1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    static const char *const limit[] = {[NB_F16] = "0x7c00",
                                        [NB_BF16] = "0x7f80",
                                        [NB_F32] = "0x7f800000",
                                        [NB_F64] = "0x7ff0000000000000ull"};
    size_t bytes = nb_dtype_size(d);
    bool real = nb_dtype_is_float(d);
    bool whole = nb_dtype_is_unsigned(d) || d == NB_BOOL;
    nb_text_add(t, "%s\n", nb_dims_text);
    nb_text_add(t, "#define K %s\n#define T %s\n", bytes == 8 ? "u64" : "u32",
                plain[bytes]);
    nb_text_add(t, "#define TOP ((K)1 << %d)\n", (int)bytes * 8 - 1);
    nb_text_add(t, "#define KIND %d\n#define LIMIT ((K)%s)\n",
                real    ? 2
                : whole ? 0
                        : 1,
                real ? limit[d] : "0");
    nb_text_add(t, "%s\n", keys_text);
}
