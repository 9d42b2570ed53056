NB_CUDA(
/* Where point p of a batch point writes: the number of a place in the table, or
 * PLACES where it writes nowhere. */
static __device__ __forceinline__ i64 read_index(const void *x, int kind, i64 at)
{
    if (kind == 0) return ((const i64 *)x)[at];
    if (kind == 1) return ((const i32 *)x)[at];
    if (kind == 2) return ((const i16 *)x)[at];
    if (kind == 3) return ((const i8 *)x)[at];
    if (kind == 4) return ((const u32 *)x)[at];
    if (kind == 5) return ((const u16 *)x)[at];
    if (kind == 6) return ((const u8 *)x)[at];
    u64 big = ((const u64 *)x)[at];
    return big > 0x7fffffffffffffffull ? 0x7fffffffffffffffll : (i64)big;
}

struct picks {
    i64 n, clamp, places;
    i64 size[4];
    i64 kind[4];
    const void *index[4];
    dims batch; /* strides of the index tensors */
    dims point;
};

extern "C" __global__ void __launch_bounds__(256)
place_keys(const picks q, u32 *keys)
{
    i64 points = q.point.count;
    i64 all = q.batch.count * points;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll) {
        i64 place = 0;
        bool out = false;
        for (int k = 0; k < q.n; k++) {
            i64 n = q.size[k];
            i64 x = read_index(q.index[k], (int)q.kind[k],
                               dims_at(q.batch, k, i / points) +
                                   dims_at(q.point, k, i % points));
            if (x < 0) x += n;
            i64 near = x < 0 ? 0 : x >= n ? n - 1 : x;
            out = out || (near != x && !q.clamp);
            place = place * n + near;
        }
        keys[i] = (u32)(out ? q.places : place);
    }
}
)
