NB_CUDA(
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct dims {
    i64 n, count;
    i64 size[8];
    i64 stride[4][8];
};

static __device__ __forceinline__ i64 dims_at(const dims &d, int operand,
                                              i64 place)
{
    i64 at = 0;
    ONE_BY_ONE for (int k = (int)d.n - 1; k > 0; k--) {
        at += place % d.size[k] * d.stride[operand][k];
        place /= d.size[k];
    }
    return d.n ? at + place * d.stride[operand][0] : 0;
}
)
