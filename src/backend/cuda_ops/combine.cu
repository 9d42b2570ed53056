NB_CUDA(
static __device__ __forceinline__ V load(T x)
{
    return LOAD(x);
}

static __device__ __forceinline__ V both(V a, V b)
{
    return BOTH;
}

/* The table as it was. */
extern "C" __global__ void __launch_bounds__(256)
place_copy(const T *x, T *y, const dims all)
{
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all.count;
         i += gridDim.x * 256ll)
        y[dims_at(all, 1, i)] = x[dims_at(all, 0, i)];
}

/* Points in the order of their places, a team of threads each.  The first of
 * those that share a place takes all of them, in their order. */
extern "C" __global__ void __launch_bounds__(256)
place_rows(const T *u, T *y, const u32 *keys, const u32 *numbers,
           const dims batch, const dims place, const dims point,
           const dims row, int team)
{
    i64 points = point.count;
    i64 i = blockIdx.x * (256ll / team) + threadIdx.x / team;
    if (i >= batch.count * points) return;
    i64 first = i % points;
    i64 b = i / points;
    const u32 *key = keys + b * points;
    const u32 *number = numbers + b * points;
    u32 mine = key[first];
    if (mine >= place.count || (first && key[first - 1] == mine)) return;
    T *to = y + dims_at(batch, 0, b) + dims_at(place, 0, mine);
    const T *from = u + dims_at(batch, 1, b);
    for (i64 r = threadIdx.x % team; r < row.count; r += team) {
        i64 s = first;
        const T *at = from + dims_at(row, 1, r);
        T *out = to + dims_at(row, 0, r);
        if (LAST) {
            while (s + 1 < points && key[s + 1] == mine)
                s++;
            *out = at[dims_at(point, 1, number[s])];
            continue;
        }
        V sum = load(*out);
        for (; s + 4 <= points && key[s + 3] == mine; s += 4) {
            V x0 = load(at[dims_at(point, 1, number[s])]);
            V x1 = load(at[dims_at(point, 1, number[s + 1])]);
            V x2 = load(at[dims_at(point, 1, number[s + 2])]);
            V x3 = load(at[dims_at(point, 1, number[s + 3])]);
            sum = both(both(both(both(sum, x0), x1), x2), x3);
        }
        for (; s < points && key[s] == mine; s++)
            sum = both(sum, load(at[dims_at(point, 1, number[s])]));
        *out = (T)STORE(sum);
    }
}

/* The number of the point before that names the same place. */
extern "C" __global__ void __launch_bounds__(256)
place_prior(i64 *y, const u32 *keys, const u32 *numbers, const dims batch,
            const dims point, u32 places)
{
    i64 points = point.count;
    i64 all = batch.count * points;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < all;
         i += gridDim.x * 256ll) {
        i64 s = i % points;
        bool follows = s && keys[i - 1] == keys[i] && keys[i] < places;
        y[i / points * points + numbers[i]] =
            follows ? (i64)numbers[i - 1] : points;
    }
}
)
